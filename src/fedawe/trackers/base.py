"""What a tracker is: an object that is told of the evaluations of runs while they go on."""

from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import Any

from fedawe.core.errors import UserError
from fedawe.results.fields import Settings, settings_of
from fedawe.results.frame import flat
from fedawe.results.head import folder_name
from fedawe.results.record import Line


@dataclass(frozen=True)
class TrackedRun:
    """One run as trackers see it.

    out     folder of the experiment
    id      of this run in this folder, the same after every resumption; 16 hexadecimal digits
    header  the first line of its record: what it is made from
    """

    out: Path
    id: str
    header: Line

    @property
    def label(self) -> str:
        """Of the algorithm."""
        return str(self.header["label"])

    @property
    def seed(self) -> int:
        """Of the run."""
        return int(self.header["seed"])

    @property
    def name(self) -> str:
        """`fedawe/seed-0`: the folder of the run, relative to that of the experiment."""
        return f"{folder_name(self.label)}/seed-{self.seed}"

    @property
    def settings(self) -> Settings:
        """What the run is made from, as plain values; those that are not set are omitted."""
        first: Settings = {"folder": self.out.resolve().name, "label": self.label, "seed": self.seed}
        return {name: value for name, value in {**first, **settings_of(self.header)}.items() if value is not None}


class Tracker(ABC):
    """Is told of every evaluation once and in order, also when runs are interrupted and resumed.

    Derive from it and implement `evaluated`. The record of a run is the truth, and a tracker follows it: when a run
    goes on after an interruption, `started` says which rounds the tracker already has, and it is told of the others.
    A tracker that does not override `started` is told of all evaluations again after an interruption.
    All methods are called in the process that called `Experiment.run`, whatever process or node makes the run, and
    several runs may be open at once. What a method raises is told as a warning and does not stop the run; the next call
    of `Experiment.run` continues where the tracker stopped.
    """

    @property
    def destination(self) -> str:
        """Where it writes: a run that is complete there is not told of again."""
        return type(self).__name__

    def started(self, run: TrackedRun) -> int:  # noqa: ARG002
        """A run begins or goes on. Returns the last round that the tracker already has of it; -1 if it has none."""
        return -1

    @abstractmethod
    def evaluated(self, run: TrackedRun, rounds: int, metrics: Mapping[str, Any]) -> None:
        """The model after so many rounds was evaluated; `metrics` is the line of the record."""

    def finished(self, run: TrackedRun, status: str) -> None:  # noqa: B027
        """A run ended: "complete", "diverged", or "unfinished" if it was interrupted and may go on."""


def numbers(metrics: Mapping[str, Any]) -> dict[str, float]:
    """The numbers of an evaluation by name; those of classes become one for each class, and the round is the last.

    >>> numbers({"kind": "evaluation", "round": 5, "test_accuracy_by_class": [0.9, 0.4], "elapsed_seconds": 1.5})
    {'test_accuracy_class_0': 0.9, 'test_accuracy_class_1': 0.4, 'elapsed_seconds': 1.5, 'round': 5}
    """
    found = {name: value for name, value in flat(dict(metrics)).items() if isinstance(value, int | float)}
    return {**{name: value for name, value in found.items() if name != "round"}, "round": metrics["round"]}


def needs(module: str, extra: str) -> ModuleType:
    """The module of a tool that is installed separately."""
    import importlib

    try:
        return importlib.import_module(module)
    except ImportError:
        raise UserError(
            f"{module} is not installed; install it with: pip install 'fedawe[{extra}]' (in a clone: pip install -e "
            f"'.[{extra}]')"
        ) from None
