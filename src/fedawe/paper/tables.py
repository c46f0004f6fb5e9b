"""Tables 2, 9 and 10, and a table of accuracy under dynamics that the paper does not have."""

from collections.abc import Mapping, Sequence

from fedawe.paper.beside import Setting, side_by_side, text_cell
from fedawe.paper.found import Found, Ran, is_best, spread
from fedawe.paper.leads import lead_cell, lead_column, leads, standing
from fedawe.paper.orderings import orderings, orderings_table, ranks_in_words
from fedawe.paper.outcome import Outcome
from fedawe.paper.plan import NAMES, WITHOUT_FEDVARP, Plan
from fedawe.results.tables import Cell, Column, Table


def table2(plan: Plan, ran: Sequence[Ran]) -> Outcome:
    """Table 2 for every data set, the paper's orderings that hold, and the accuracy on the worst class."""
    seeds, algorithms = len(ran[0].planned.seeds), plan.algorithms
    settings: dict[str, list[Setting]] = {}
    for each in ran:
        setting = Setting.of(each, "table2", (each.planned.data, each.planned.title), plan.readings.evaluate)
        settings.setdefault(each.planned.data, []).append(setting)
    tables = []
    for data, columns in settings.items():
        caption = f"table 2, {data}: accuracy (%) over the last 50 rounds"
        tables.append(side_by_side(f"table2-{data}", caption, columns, algorithms))
    worst = {f"{each.planned.data}, {each.planned.title}": each.worst_class() for each in ran}
    tables += [orderings_table(settings, seeds, algorithms), worst_classes(worst, algorithms)]
    every = [setting for columns in settings.values() for setting in columns]
    return Outcome(tuple(tables), words=(orderings(every).words(), *ranks_in_words(every, seeds, algorithms)))


def table9(plan: Plan, ran: Sequence[Ran]) -> Outcome:
    """Table 9: several amplitudes γ of the sine."""
    return _over_settings("table9", plan, ran)


def table10(plan: Plan, ran: Sequence[Ran]) -> Outcome:
    """Table 10: several parameters α of the Dirichlet partition."""
    return _over_settings("table10", plan, ran)


def _over_settings(table: str, plan: Plan, ran: Sequence[Ran]) -> Outcome:
    settings = []
    for each in ran:
        value = each.planned.title.partition(" = ")[2]
        place = (value,) if each.planned.data == "svhn" else ()
        settings.append(Setting.of(each, table, place, plan.readings.evaluate))
    caption = f"{table[:5]} {table[5:]}, {plan.first}, sine: accuracy (%) over the last 50 rounds"
    algorithms = [name for name in plan.algorithms if name in WITHOUT_FEDVARP]
    return Outcome((side_by_side(table, caption, settings, algorithms),), words=(orderings(settings).words(),))


def worst_classes(columns: Mapping[str, Found], algorithms: Sequence[str]) -> Table:
    """A row per algorithm, a column per setting: test accuracy on the worst class."""
    heads = [Column("algorithm", ("algorithm",), numeric=False)]
    heads += [Column(title, (title, f"{title}_std")) for title in columns]
    rows = []
    for name in algorithms:
        cells = [spread(values.get(name, {}), is_best(values, name)) for values in columns.values()]
        rows.append((text_cell(NAMES[name]), *cells))
    caption = "test accuracy (%) on the class that fares worst, mean ± standard deviation over seeds"
    return Table("table2-worst-class", caption, tuple(heads), tuple(rows), tuple(algorithms))


def beyond(plan: Plan, ran: Sequence[Ran]) -> Outcome:
    """Test accuracy under dynamics that the paper does not have, and FedAWE's paired leads."""
    begun = [each for each in ran if each.runs is not None] or list(ran)
    values = [each.percent("test_accuracy", plan.readings.evaluate) for each in begun]
    heads = [Column("algorithm", ("algorithm",), numeric=False)]
    for each in begun:
        heads += [Column(each.planned.title, (each.planned.title, f"{each.planned.title}_std"))]
        heads += [lead_column(each.planned.title)]
    rows, ahead = [], leads(values)
    for name in plan.algorithms:
        cells: list[Cell] = [text_cell(NAMES[name])]
        for found, against in zip(values, ahead, strict=True):
            cells += [spread(found.get(name, {})), lead_cell(against.get(name))]
        rows.append(tuple(cells))
    caption = f"{plan.first}: test accuracy (%) over the last 50 rounds under other availability"
    table = Table("beyond", caption, tuple(heads), tuple(rows), plan.algorithms)
    said = zip(begun, map(standing, values), strict=True)
    return Outcome((table,), words=tuple(f"{each.planned.folder}: {where}" for each, where in said if where))
