"""The paper's tables and figures, each by one command, with the paper's own numbers beside ours."""

from fedawe.paper.estimate import Estimate, estimates
from fedawe.paper.items import Outcome, outcome
from fedawe.paper.plan import Batch, Item, Plan, Readings, merged
from fedawe.paper.presets import Preset, presets

__all__ = [
    "Batch",
    "Estimate",
    "Item",
    "Outcome",
    "Plan",
    "Preset",
    "Readings",
    "estimates",
    "merged",
    "outcome",
    "presets",
]
