"""The paper's tables and figures, each by one command, with the paper's own numbers beside ours."""

from fedawe.reproduce.estimate import Estimate, estimates
from fedawe.reproduce.items import Outcome, outcome
from fedawe.reproduce.plan import Batch, Item, Plan, Readings, merged
from fedawe.reproduce.presets import Preset, presets

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
