"""From runs to what the paper prints: every item's tables and figures, and what they say in words."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from matplotlib.figure import Figure
from rich.console import Console
from rich.progress import track

from fedawe.availability.dynamics import class_weights, probabilities_from_labels
from fedawe.core.rng import rng
from fedawe.experiments.settings import World
from fedawe.paper import example1, fairness, figures, search
from fedawe.paper.plan import ALPHAS, DYNAMICS, FIGURE3, GAMMAS, WITHOUT_FEDVARP, Batch, Item, Plan
from fedawe.paper.tables import (
    BySeed,
    Column2,
    Found,
    by_rounds,
    found,
    mean_ranks,
    orderings,
    side_by_side,
    speed,
    until,
    worst_class,
    worst_classes,
)
from fedawe.report.plots.traces import partition_figure, probability_figure
from fedawe.results.folder import NAMES, Clients, Experiment, algorithm, load
from fedawe.results.standings import paired
from fedawe.results.tables import Cell, Column, Table


@dataclass(frozen=True)
class Outcome:
    """What an item comes to."""

    tables: tuple[Table, ...] = ()
    figures: tuple[tuple[str, Figure], ...] = ()
    words: tuple[str, ...] = ()


def outcome(item: Item, plan: Plan, runs: Path, data: Path | None) -> Outcome:
    """The item from the runs that are there; what is missing is shown as missing."""
    makers: dict[str, Callable[[], Outcome]] = {
        "fig2": lambda: _figure2(plan),
        "fig3": lambda: _figure3(plan, runs),
        "fig4": lambda: _figure4(plan, data),
        "fig5": lambda: _figure5(plan, data),
        "fig6": lambda: Outcome(figures=(("fig6", figures.figure6()),)),
        "fig7": lambda: _figure7(plan, runs),
        "table2": lambda: _table2(plan, runs),
        "table8": lambda: _table8(plan, runs),
        "table9": lambda: _over_settings(plan, runs, "table9", plan.table9(), GAMMAS, "γ = {}"),
        "table10": lambda: _over_settings(plan, runs, "table10", plan.table10(), ALPHAS, "α = {}"),
        "search": lambda: _search(plan, runs),
        "fairness": lambda: _fairness(plan, runs),
        "beyond": lambda: _beyond(plan, runs),
    }
    return makers[item]()


def _load(runs: Path, batch: Batch) -> Experiment | None:
    folder = runs / batch.folder
    return load(folder) if (folder / "experiment.json").exists() else None


def _labels(batch: Batch, names: Sequence[str] = tuple(NAMES)) -> list[str]:
    """The labels of a batch's algorithms, in the order of these names."""
    by_name = {algorithm(contender.label): contender.label for contender in batch.contenders()}
    return [by_name[name] for name in names if name in by_name]


def _column(
    plan: Plan, experiment: Experiment | None, batch: Batch, title: str, table: str, place: tuple[str, ...]
) -> Column2:
    labels, kind = _labels(batch), plan.readings.evaluate
    train, test = (found(experiment, labels, f"{part}_accuracy", kind) for part in ("train", "test"))
    return Column2(title, table, place, train, test)


def _table2(plan: Plan, runs: Path) -> Outcome:
    tables, every, shorter = [], [], {}
    worst: dict[str, Found] = {}
    whole, every_so_many = plan.preset.settings.rounds, plan.preset.settings.evaluate_every
    assert whole is not None
    seeds = len(plan.preset.seeds)
    halves = [whole // 2**n for n in (3, 2, 1, 0) if whole % (2**n * every_so_many) == 0]
    for data in plan.preset.data:
        batches = [plan.batch(data, dynamics) for dynamics in DYNAMICS]
        loaded = [_load(runs, batch) for batch in batches]
        for rounds in halves:
            shorter[data, rounds] = [
                _column(plan, until(experiment, rounds), batch, dynamics, "table2", (data, dynamics))
                for batch, experiment, dynamics in zip(batches, loaded, DYNAMICS, strict=True)
            ]
        worst |= {
            f"{data}, {dynamics}": worst_class(experiment, _labels(batch))
            for batch, experiment, dynamics in zip(batches, loaded, DYNAMICS, strict=True)
        }
        caption = f"table 2, {data}: accuracy (%) over the last 50 rounds"
        columns = shorter[data, halves[-1]]
        tables.append(side_by_side(f"table2-{data}", caption, columns, tuple(NAMES)))
        every += columns
    tables += [by_rounds(shorter, seeds), worst_classes(worst)]
    return Outcome(tuple(tables), words=(orderings(every).words(), *_ranks_in_words(every, seeds)))


def _ranks_in_words(columns: Sequence[Column2], seeds: int) -> list[str]:
    mean = mean_ranks(columns, seeds)
    if not mean:
        return []
    complete = sum(all(len(column.test.get(name, {})) == seeds for name in NAMES) for column in columns)
    listed = ", ".join(f"{NAMES[name]} {mean[name]:.1f}" for name in sorted(mean, key=mean.__getitem__))
    return [f"Mean rank over {complete} settings (1 is best): {listed}."]


def _table8(plan: Plan, runs: Path) -> Outcome:
    tables = []
    for data in plan.preset.data:
        batch = plan.batch(data, "sine")
        tables.append(speed(data, _load(runs, batch), _labels(batch, WITHOUT_FEDVARP), plan.readings.evaluate))
    return Outcome(tuple(tables))


def _over_settings(
    plan: Plan, runs: Path, table: str, batches: Sequence[Batch], values: Sequence[str], title: str
) -> Outcome:
    columns = [
        _column(plan, _load(runs, batch), batch, title.format(value), table, (value,) if plan.first == "svhn" else ())
        for batch, value in zip(batches, values, strict=True)
    ]
    caption = f"{table[:5]} {table[5:]}, {plan.first}, sine: accuracy (%) over the last 50 rounds"
    return Outcome(
        (side_by_side(table, caption, columns, [name for name in NAMES if name in WITHOUT_FEDVARP]),),
        words=(orderings(columns).words(),),
    )


def _search(plan: Plan, runs: Path) -> Outcome:
    grids = [grid for batch in plan.search() for grid in search.grids(plan, batch.settings.task, _load(runs, batch))]
    return Outcome(tuple(grid.table() for grid in grids), words=tuple(grid.words() for grid in grids))


def _fairness(plan: Plan, runs: Path) -> Outcome:
    tables, words = fairness.study(plan, _load(runs, plan.fairness()[0]))
    return Outcome(tuple(tables), words=tuple(words))


def _beyond(plan: Plan, runs: Path) -> Outcome:
    """Test accuracy under availability that the paper does not have, and FedAWE's paired lead."""
    loaded = [(batch, _load(runs, batch)) for batch in plan.beyond()]
    begun = [(batch, experiment) for batch, experiment in loaded if experiment is not None] or loaded
    batches = [batch for batch, _ in begun]
    values = [found(experiment, _labels(b), "test_accuracy", plan.readings.evaluate) for b, experiment in begun]
    heads = [Column("algorithm", ("algorithm",), numeric=False)]
    for batch in batches:
        name = batch.folder.removeprefix(f"{plan.first}-")
        heads.append(Column(name, (name, f"{name}_std")))
        heads.append(Column("FedAWE's lead [95 %]", tuple(f"{name}_lead{end}" for end in ("", "_low", "_high"))))
    rows = []
    for name in NAMES:
        cells = [Cell(NAMES[name], (NAMES[name],))]
        for by_name in values:
            ours: BySeed = by_name.get(name, {})
            cells += [
                fairness.spread(ours),
                fairness.lead(None if name == "fedawe" else paired(by_name.get("fedawe", {}), ours)),
            ]
        rows.append(tuple(cells))
    caption = f"{plan.first}: test accuracy (%) over the last 50 rounds under other availability"
    table = Table("beyond", caption, tuple(heads), tuple(rows), tuple(NAMES))
    said = zip(batches, map(fairness.standing, values), strict=True)
    return Outcome((table,), words=tuple(f"{batch.folder}: {where}" for batch, where in said if where))


def _figure2(plan: Plan) -> Outcome:
    side = plan.preset.figure2_cells
    pairs = example1.heat_map(side, plan.preset.figure2_rounds)
    cells = list(track(pairs, "figure 2", side**2, console=Console(stderr=True), transient=True))
    errors = [abs(abs(cell.fedavg - example1.MEAN) - cell.exact) for cell in cells]
    within = sum(error <= 3 * cell.fedavg_error + 1e-9 for error, cell in zip(errors, cells, strict=True))
    rows = tuple(
        tuple(
            Cell(f"{value:.3g}", (float(f"{value:.6g}"),))
            for value in (c.p1, c.p2, c.fedavg, c.fedavg_error, c.exact, c.fedawe, c.fedawe_error)
        )
        for c in cells
    )
    names = ("p1", "p2", "fedavg", "fedavg_error", "closed_form_distance", "fedawe", "fedawe_error")
    table = Table("fig2", "figure 2 in numbers", tuple(Column(n, (n,)) for n in names), rows, tuple("" for _ in rows))
    off = [abs(cell.fedawe - example1.MEAN) for cell in cells]
    unbiased = sum(away <= 3 * cell.fedawe_error + 1e-9 for away, cell in zip(off, cells, strict=True))
    words = (
        f"FedAvg's distance from the optimum agrees with 50|p1 - p2|/(p1 + p2 - p1 p2) within three Monte Carlo "
        f"standard errors in {within} of {len(cells)} pairs; the largest deviation is {max(errors):.2f}. "
        f"FedAWE's x-bar is at the optimum within three standard errors in {unbiased}, off by {max(off):.2f} at most; "
        f"FedAvg is off by up to {max(abs(c.fedavg - example1.MEAN) for c in cells):.1f}.",
    )
    return Outcome((table,), (("fig2", figures.figure2(cells)),), words)


def _figure3(plan: Plan, runs: Path) -> Outcome:
    pairs = [(p, gamma) for p in FIGURE3[0] for gamma in FIGURE3[1]]
    loaded = {pair: _load(runs, batch) for pair, batch in zip(pairs, plan.figure3(), strict=True)}
    return Outcome(figures=(("fig3", figures.figure3(loaded)),))


def _clients(plan: Plan, data: Path | None, task: str, clients: int) -> Experiment:
    """Only a partition and its probabilities, without runs."""
    world = World.of(plan.preset.on(task, "stationary", clients=clients, rounds=1, keep_empty=True).resolved(), 0, data)
    frequencies = world.task.frequencies
    assert frequencies is not None
    p = probabilities_from_labels(frequencies, class_weights(frequencies.shape[1], rng(0, "phi")))
    sizes = getattr(world.task, "sizes", np.zeros(clients, dtype=np.int64))
    return Experiment(Path(), "", {}, {}, (), clients={0: Clients(sizes, frequencies, p)})


def _figure4(plan: Plan, data: Path | None) -> Outcome:
    made = partition_figure(_clients(plan, data, "cifar10" if "cifar10" in plan.preset.data else plan.first, 20))
    return Outcome(figures=(("fig4", made),) if made is not None else ())


def _figure5(plan: Plan, data: Path | None) -> Outcome:
    made = probability_figure(_clients(plan, data, plan.first, plan.preset.settings.clients or 100))
    return Outcome(figures=(("fig5", made),) if made is not None else ())


def _figure7(plan: Plan, runs: Path) -> Outcome:
    batches = {data: plan.batch(data, "sine") for data in plan.preset.data}
    loaded = {data: _load(runs, batch) for data, batch in batches.items()}
    labels = {data: _labels(batch) for data, batch in batches.items()}
    return Outcome(figures=(("fig7", figures.figure7(loaded, labels, plan.readings.evaluate)),))
