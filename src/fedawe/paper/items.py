"""The paper's tables and figures by name: which experiments each needs, and the function that makes it from them."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from fedawe.paper import figures, tables
from fedawe.paper.fairness import fairness
from fedawe.paper.figure2 import fig2
from fedawe.paper.found import Ran
from fedawe.paper.outcome import Outcome
from fedawe.paper.plan import Plan, Planned
from fedawe.paper.search import search
from fedawe.paper.table8 import table8


@dataclass(frozen=True)
class Item:
    """A table or figure of the paper, or a study that is not in it."""

    about: str
    needs: Callable[[Plan], list[Planned]]
    make: Callable[[Plan, Sequence[Ran]], Outcome]


def _nothing(_: Plan) -> list[Planned]:
    """For items that need no runs."""
    return []


ITEMS = {
    "fig2": Item("Example 1: the final model of two clients, for every pair of probabilities", _nothing, fig2),
    "fig3": Item("FedAvg when all clients have the same probability, which oscillates", Plan.figure3, figures.fig3),
    "fig4": Item("a partition", _nothing, figures.fig4),
    "fig5": Item("the base probabilities", _nothing, figures.fig5),
    "fig6": Item("the four dynamics", _nothing, figures.fig6),
    "fig7": Item("training curves under sine", Plan.sine, figures.fig7),
    "table2": Item(
        "eight algorithms, four dynamics, every data set, compared with the paper's", Plan.table2, tables.table2
    ),
    "table8": Item("first round at a target accuracy", Plan.sine, table8),
    "table9": Item("the effect of the amplitude of availability", Plan.table9, tables.table9),
    "table10": Item("the effect of uneven data", Plan.table10, tables.table10),
    "search": Item("learning rates, searched for in the same way for every algorithm", Plan.search, search),
    "fairness": Item(
        "is FedAWE still the most accurate when all algorithms are treated alike", Plan.fairness, fairness
    ),
    "beyond": Item("Markov chains, cycles, outages, and a recorded trace", Plan.beyond, tables.beyond),
}


def needed(item: str, plan: Plan) -> list[Planned]:
    """The experiments that an item needs, limited to the selected part."""
    return plan.narrowed(item, ITEMS[item].needs(plan))


def made(item: str, plan: Plan, runs: Path) -> Outcome:
    """Make the item from the runs in the folder; missing runs leave empty cells."""
    return ITEMS[item].make(plan, Ran.below(runs, needed(item, plan)))
