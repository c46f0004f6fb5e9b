"""Does FedAWE still win when everyone is treated alike?

Three questions on the same traces: when every method is clipped or none, each with the learning rate found for it; when
every method is evaluated at the same kind of average; and how much of FedAWE's gain over FedAvg is averaging, how much
gossip, how much echo.
"""

from collections.abc import Sequence

import numpy as np

from fedawe.compare.results import NAMES, Experiment, algorithm
from fedawe.compare.standings import Difference, paired
from fedawe.compare.tables import MISSING, Cell, Column, Table
from fedawe.experiment import Contender
from fedawe.reproduce.plan import Evaluate, Plan
from fedawe.reproduce.tables import BySeed, found

EVALUATIONS: tuple[Evaluate, ...] = ("mean", "latest", "received")
MEANING = {
    "mean": "each method's own model (FedAWE: x̄)",
    "latest": "the last aggregate for everyone",
    "received": "the mean of the models that clients received last, for everyone (FedAWE: x̄)",
}


def tables(plan: Plan, experiment: Experiment | None) -> list[Table]:
    """One table for each way of clipping, and one that takes FedAWE apart."""
    out = []
    for number, (title, readings) in enumerate(plan.protocols().items(), 1):
        labels = [Contender.parse(readings.contender(plan.preset, plan.first, name)).label for name in NAMES]
        out.append(_table(f"fairness-{number}", title, experiment, labels))
    out.append(_parts(plan, experiment))
    return out


def _table(name: str, title: str, experiment: Experiment | None, labels: Sequence[str]) -> Table:
    """Rows: algorithms; columns: each kind of evaluation, and FedAWE's lead."""
    heads = [Column("algorithm", ("algorithm",), numeric=False), Column("eta0", ("eta0",), numeric=False)]
    for kind in EVALUATIONS:
        heads.append(Column(kind, (f"{kind}", f"{kind}_std"), note=MEANING[kind]))
        heads.append(Column("FedAWE's lead [95 %]", tuple(f"{kind}_lead{end}" for end in ("", "_low", "_high"))))
    values = {kind: found(experiment, labels, "test_accuracy", kind) for kind in EVALUATIONS}
    rows = []
    for label in labels:
        each = algorithm(label)
        eta0 = label.partition("eta0=")[2].rstrip(")").partition(",")[0]
        cells = [Cell(NAMES[each], (NAMES[each],)), Cell(eta0, (eta0,))]
        for kind in EVALUATIONS:
            ours, fedawe = values[kind].get(each, {}), values[kind].get("fedawe", {})
            cells += [spread(ours), lead(None if each == "fedawe" else paired(fedawe, ours))]
        rows.append(tuple(cells))
    caption = f"{title}: test accuracy (%), each with its own learning rate"
    return Table(name, caption, tuple(heads), tuple(rows), tuple(algorithm(label) for label in labels))


def _parts(plan: Plan, experiment: Experiment | None) -> Table:
    """From FedAvg's last model to FedAWE's x-bar in steps."""
    nobody, authors = plan.protocols()["nobody clipped"], plan.protocols()["only FedAWE clipped"]

    def of(text: str, kind: Evaluate) -> BySeed:
        return next(iter(found(experiment, [Contender.parse(text).label], "test_accuracy", kind).values()), {})

    fedavg, fedawe = (nobody.contender(plan.preset, plan.first, name) for name in ("fedavg", "fedawe"))
    clipped, gossip = authors.contender(plan.preset, plan.first, "fedawe"), plan.gossip_alone(plan.first)
    steps = [
        ("FedAvg, its last model", of(fedavg, "latest")),
        ("FedAvg, the received mean", of(fedavg, "received")),
        ("FedAWE with every echo 1 and clip, x̄: gossip alone", of(gossip, "mean")),
        ("FedAWE with echo and clip, x̄", of(clipped, "mean")),
        ("FedAWE with echo, no clip, x̄", of(fedawe, "mean")),
        ("FedAWE with echo and clip, its last aggregate", of(clipped, "latest")),
    ]
    base = steps[0][1]
    rows = [
        (Cell(name, (name,)), spread(values), lead(None if values is base else paired(values, base)))
        for name, values in steps
    ]
    heads = (
        Column("what", ("what",), numeric=False),
        Column("test accuracy (%)", ("test", "test_std")),
        Column("minus FedAvg's last model [95 %]", ("difference", "difference_low", "difference_high")),
    )
    caption = "what averaging, gossip and echo contribute"
    return Table("fairness-parts", caption, heads, tuple(rows), tuple("" for _ in rows))


def spread(values: BySeed) -> Cell:
    """mean ± standard deviation."""
    if not values:
        return Cell(MISSING, (None, None))
    numbers = list(values.values())
    mean, std = float(np.mean(numbers)), float(np.std(numbers, ddof=1)) if len(numbers) > 1 else None
    return Cell(f"{mean:.1f}" + ("" if std is None else f" ± {std:.1f}"), (round(mean, 4), std and round(std, 4)))


def lead(difference: Difference | None) -> Cell:
    """A paired difference with its interval; strong where that leaves zero out."""
    if difference is None:
        return Cell(MISSING, (None, None, None))
    d = difference
    text = f"{d.mean:+.1f}" + ("" if d.low is None else f" [{d.low:+.1f}, {d.high:+.1f}]")
    values = tuple(None if value is None else round(value, 4) for value in (d.mean, d.low, d.high))
    return Cell(text.replace("-", "−"), values, strong=d.sign != 0)
