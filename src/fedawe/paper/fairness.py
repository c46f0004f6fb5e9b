"""Is FedAWE still the most accurate if all algorithms are treated alike?

All runs have the same traces: with the paper's learning rates, with equal ones and with those searched for each
algorithm; with a clip for FedAWE only, for none and for all. Every method is evaluated with the same kind of model. A
last table shows what averaging, gossip, echo and clip contribute to the difference between FedAWE and FedAvg.
"""

from collections.abc import Mapping, Sequence

from fedawe.paper.beside import text_cell
from fedawe.paper.found import BySeed, Found, Ran, spread
from fedawe.paper.leads import Lead, lead_cell, lead_column, leads, standing
from fedawe.paper.outcome import Outcome
from fedawe.paper.plan import NAMES, Plan, Variant
from fedawe.paper.readings import Evaluate
from fedawe.results.significance import p_value
from fedawe.results.standings import paired
from fedawe.results.tables import Cell, Column, Table

EVALUATIONS: tuple[Evaluate, ...] = ("mean", "latest", "received")
MEANING = {
    "mean": "each method's own model (FedAWE: x̄)",
    "latest": "the last aggregate for everyone",
    "received": "the mean of the models that clients received last, for everyone (FedAWE: x̄)",
}


def fairness(plan: Plan, ran: Sequence[Ran]) -> Outcome:
    """A table for each protocol, one for the parts of FedAWE, and sentences about them."""
    (every,) = ran
    tables, words = [], []
    for number, (title, variants) in enumerate(plan.protocols().items(), 1):
        values = {kind: every.percent("test_accuracy", kind, variants) for kind in EVALUATIONS}
        tables.append(_protocol(f"fairness-{number}", title, variants, values, every.worst_class(variants)))
        words += [f"{title}, {MEANING[kind]}: {where}" for kind in EVALUATIONS if (where := standing(values[kind]))]
    if {"fedawe", "fedavg"} <= set(plan.algorithms):
        tables.append(_parts(plan, every))
    return Outcome(tuple(tables), words=tuple(words))


def _protocol(
    name: str, title: str, variants: Sequence[Variant], values: Mapping[Evaluate, Found], worst: Found
) -> Table:
    """A row per algorithm; columns for each kind of evaluation with FedAWE's leads, and for the worst class."""
    heads = [Column("algorithm", ("algorithm",), numeric=False), Column("eta0, eta_g", ("eta0", "eta_g"))]
    for kind in EVALUATIONS:
        heads.append(Column(kind, (f"{kind}", f"{kind}_std"), note=MEANING[kind]))
        heads.append(lead_column(kind))
    heads.append(Column("worst class", ("worst_class", "worst_class_std"), note="each method's own model"))
    rows, ahead = [], leads([values[kind] for kind in EVALUATIONS])
    for variant in variants:
        assert variant.rates is not None
        eta0, eta_g = variant.rates
        cells = [text_cell(NAMES[variant.name]), Cell(f"{eta0:g}, {eta_g:g}", (eta0, float(eta_g)))]
        for kind, against in zip(EVALUATIONS, ahead, strict=True):
            cells += [spread(values[kind].get(variant.name, {})), lead_cell(against.get(variant.name))]
        cells.append(spread(worst.get(variant.name, {})))
        rows.append(tuple(cells))
    caption = f"{title}: test accuracy (%)"
    return Table(name, caption, tuple(heads), tuple(rows), tuple(variant.name for variant in variants))


def _parts(plan: Plan, ran: Ran) -> Table:
    """The steps from FedAvg's last model to FedAWE's x-bar, with the difference that each makes."""

    def of(variant: Variant, kind: Evaluate) -> BySeed:
        return ran.percent("test_accuracy", kind, [variant]).get(variant.name, {})

    fedavg, fedawe = (plan.variant(plan.first, name, plan.best_known, "none") for name in ("fedavg", "fedawe"))
    clipped = plan.variant(plan.first, "fedawe", plan.best_known, "update")
    steps = [
        ("FedAvg's last model", of(fedavg, "latest")),
        ("+ averaging: received mean", of(fedavg, "received")),
        ("+ gossip: FedAWE, echo 1", of(plan.gossip_alone(), "mean")),
        ("+ echo: FedAWE", of(fedawe, "mean")),
        ("+ clip: FedAWE, clipped", of(clipped, "mean")),
        ("its last aggregate", of(clipped, "latest")),
    ]
    rows = []
    for n, (name, values) in enumerate(steps):
        before = (steps[n - 1][1], steps[0][1]) if n else ({}, {})
        rows.append((text_cell(name), spread(values), *(_minus(values, other) for other in before)))
    heads = (
        Column("what", ("what",), numeric=False),
        Column("test (%)", ("test", "test_std")),
        Column("minus row above [95 %]", ("step", "step_low", "step_high", "step_p")),
        Column("minus first row [95 %]", ("difference", "difference_low", "difference_high", "difference_p")),
    )
    caption = "what averaging, gossip, echo and clip contribute; gossip alone has the rates of unclipped FedAWE"
    return Table("fairness-parts", caption, heads, tuple(rows), tuple("" for _ in rows))


def _minus(values: BySeed, other: BySeed) -> Cell:
    """A cell with a paired difference; its p-value is not corrected, since the steps are not a family of tests."""
    difference = paired(values, other) if values and other else None
    return lead_cell(None if difference is None else Lead(difference, p_value(values, other)))
