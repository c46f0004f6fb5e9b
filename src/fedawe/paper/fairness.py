"""Does FedAWE still win when everyone is treated alike?

On the same traces: with the paper's learning rates and with those found for each; when only FedAWE, nobody or everybody
is clipped; when every method is evaluated at the same kind of average; and how much of what sets FedAWE apart from
FedAvg is averaging, how much gossip, echo and clip.
"""

from collections.abc import Mapping, Sequence

import numpy as np

from fedawe.experiments.settings import Contender
from fedawe.paper.plan import Evaluate, Plan, Readings
from fedawe.paper.tables import BySeed, Found, found, worst_class
from fedawe.results.folder import NAMES, Experiment
from fedawe.results.standings import Difference, paired
from fedawe.results.tables import MISSING, Cell, Column, Table

EVALUATIONS: tuple[Evaluate, ...] = ("mean", "latest", "received")
MEANING = {
    "mean": "each method's own model (FedAWE: x̄)",
    "latest": "the last aggregate for everyone",
    "received": "the mean of the models that clients received last, for everyone (FedAWE: x̄)",
}


def study(plan: Plan, experiment: Experiment | None) -> tuple[list[Table], list[str]]:
    """One table for each protocol, and one that takes FedAWE apart; what they say."""
    tables, words = [], []
    for number, (title, specs) in enumerate(plan.protocols().items(), 1):
        contenders = [Contender.parse(spec) for spec in specs]
        labels = [contender.label for contender in contenders]
        values = {kind: found(experiment, labels, "test_accuracy", kind) for kind in EVALUATIONS}
        worst = worst_class(experiment, labels)
        tables.append(_table(f"fairness-{number}", title, contenders, values, worst))
        words += [f"{title}, {MEANING[kind]}: {where}" for kind in EVALUATIONS if (where := standing(values[kind]))]
    tables.append(_parts(plan, experiment))
    return tables, words


def standing(values: Found) -> str:
    """Where FedAWE stands among those that have results: its rank, and against whom its lead is sure."""
    means = {name: float(np.mean(list(by_seed.values()))) for name, by_seed in values.items()}
    if "fedawe" not in means or len(means) < 2:
        return ""
    rank = 1 + sum(mean > means["fedawe"] for mean in means.values())
    best = max((name for name in means if name != "fedawe"), key=means.__getitem__)
    leads = [paired(values["fedawe"], values[name]) for name in means if name != "fedawe"]
    signs = [difference.sign for difference in leads if difference is not None]
    return (
        f"FedAWE {means['fedawe']:.1f}, rank {rank} of {len(means)}; the best other, {NAMES[best]}, {means[best]:.1f}; "
        f"the 95 % interval of the difference has FedAWE ahead of {signs.count(1)}, behind {signs.count(-1)}."
    )


def _table(
    name: str, title: str, contenders: Sequence[Contender], values: Mapping[Evaluate, Found], worst: Found
) -> Table:
    """Rows: algorithms; columns: each kind of evaluation, and FedAWE's lead; the worst class."""
    heads = [Column("algorithm", ("algorithm",), numeric=False), Column("eta0, eta_g", ("eta0", "eta_g"))]
    for kind in EVALUATIONS:
        heads.append(Column(kind, (f"{kind}", f"{kind}_std"), note=MEANING[kind]))
        heads.append(Column("FedAWE's lead [95 %]", tuple(f"{kind}_lead{end}" for end in ("", "_low", "_high"))))
    heads.append(Column("worst class", ("worst_class", "worst_class_std"), note="each method's own model"))
    rows = []
    for contender in contenders:
        each = contender.spec.name
        eta0, eta_g = (float(contender.spec.options.get(symbol, 1)) for symbol in ("eta0", "eta_g"))
        cells = [Cell(NAMES[each], (NAMES[each],)), Cell(f"{eta0:g}, {eta_g:g}", (eta0, eta_g))]
        for kind in EVALUATIONS:
            ours, fedawe = values[kind].get(each, {}), values[kind].get("fedawe", {})
            cells += [spread(ours), lead(None if each == "fedawe" else paired(fedawe, ours))]
        cells.append(spread(worst.get(each, {})))
        rows.append(tuple(cells))
    caption = f"{title}: test accuracy (%)"
    return Table(name, caption, tuple(heads), tuple(rows), tuple(contender.spec.name for contender in contenders))


def _parts(plan: Plan, experiment: Experiment | None) -> Table:
    """From FedAvg's last model to FedAWE's x-bar in steps."""

    def of(text: str, kind: Evaluate) -> BySeed:
        return next(iter(found(experiment, [Contender.parse(text).label], "test_accuracy", kind).values()), {})

    def unclipped(name: str) -> str:
        return Readings("none").contender(plan.preset, plan.first, name)

    fedavg, fedawe, gossip = unclipped("fedavg"), unclipped("fedawe"), plan.gossip_alone(plan.first)
    clipped = Readings("update").contender(plan.preset, plan.first, "fedawe")
    steps = [
        ("FedAvg's last model", of(fedavg, "latest")),
        ("+ averaging: received mean", of(fedavg, "received")),
        ("+ gossip: FedAWE, echo 1", of(gossip, "mean")),
        ("+ echo: FedAWE", of(fedawe, "mean")),
        ("+ clip: FedAWE, clipped", of(clipped, "mean")),
        ("its last aggregate", of(clipped, "latest")),
    ]
    rows = []
    for n, (name, values) in enumerate(steps):
        before = (steps[n - 1][1], steps[0][1]) if n else None
        differences = [lead(paired(values, other) if values and other else None) for other in before or ({}, {})]
        rows.append((Cell(name, (name,)), spread(values), *differences))
    heads = (
        Column("what", ("what",), numeric=False),
        Column("test (%)", ("test", "test_std")),
        Column("minus row above [95 %]", ("step", "step_low", "step_high")),
        Column("minus first row [95 %]", ("difference", "difference_low", "difference_high")),
    )
    caption = "what averaging, gossip, echo and clip contribute; gossip alone has the rates of unclipped FedAWE"
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
