"""Table 8: the first rounds in which target accuracies are reached."""

from collections.abc import Sequence
from dataclasses import replace

from fedawe.paper.beside import text_cell
from fedawe.paper.found import Ran, means, metric_of
from fedawe.paper.outcome import Outcome
from fedawe.paper.plan import NAMES, WITHOUT_FEDVARP, Plan, Variant
from fedawe.paper.published import published
from fedawe.paper.readings import Evaluate
from fedawe.results.curves import curve, first_round
from fedawe.results.folder import RunResult
from fedawe.results.tables import MISSING, Cell, Column, Table

STRIDE = 20  # rounds: the paper counts only every 20th


def table8(plan: Plan, ran: Sequence[Ran]) -> Outcome:
    """Table 8 for every data set."""
    return Outcome(tuple(speed(each, plan.readings.evaluate) for each in ran))


def speed(ran: Ran, evaluate: Evaluate) -> Table:
    """The first round, of every 20th, in which the mean test accuracy over seeds reaches a target."""
    data, theirs = ran.planned.data, published()["table8"]
    variants = [variant for variant in ran.planned.variants if variant.name in WITHOUT_FEDVARP]
    targets = theirs["targets"].get(data) or _targets(ran, variants, evaluate)
    heads = [Column("algorithm", ("algorithm",), numeric=False)]
    for target in targets:
        heads.append(Column(f"{target:g} %, paper", (f"paper_{target:g}",)))
        heads.append(Column(f"{target:g} %, here", (f"here_{target:g}",)))
    rows = []
    for variant in variants:
        ours = curve(_every_20th(ran.complete(variant)), metric_of("test_accuracy", evaluate, variant.name))
        printed = theirs["rounds"].get(data, {}).get(variant.name, [])
        cells = [text_cell(NAMES[variant.name])]
        for place, target in enumerate(targets):
            paper = printed[place] if printed else None
            first = None if ours is None else first_round(ours, target / 100)
            cells += [_cell(paper, bool(printed)), _cell(first, ours is not None)]
        rows.append(tuple(cells))
    caption = f"{data}, sine: first round, of every 20th, in which the mean test accuracy over seeds reaches a target"
    return Table(f"table8-{data}", caption, tuple(heads), tuple(rows), tuple(variant.name for variant in variants))


def _cell(first: int | None, known: bool) -> Cell:
    return Cell(str(first) if first is not None else "never" if known else MISSING, (first,))


def _targets(ran: Ran, variants: Sequence[Variant], evaluate: Evaluate) -> list[float]:
    """Targets for data that the paper does not have: quarters of the best accuracy, rounded down to 10 %."""
    best = max(means(ran.percent("test_accuracy", evaluate, variants)).values(), default=40.0)
    top = max(10, int(best // 10 * 10))
    return [top / 4, top / 2, 3 * top / 4, top]


def _every_20th(runs: Sequence[RunResult]) -> list[RunResult]:
    """The same runs as if they had been evaluated only every 20 rounds."""
    out = []
    for run in runs:
        lines = [line for line in run.record.evaluations if line["round"] % STRIDE == 0]
        out.append(replace(run, record=run.record.only(lines)))
    return out
