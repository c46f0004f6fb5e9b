"""The interface of trackers, which receive the evaluations of runs in progress."""

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
    """One run, as it is passed to trackers.

    out     folder of the experiment
    id      of this run in this folder, the same after every resumption; 16 hexadecimal digits
    header  the first line of its record, which describes the run
    """

    out: Path
    id: str
    header: Line

    @property
    def label(self) -> str:
        """The label of the algorithm."""
        return str(self.header["label"])

    @property
    def seed(self) -> int:
        """The seed of the run."""
        return int(self.header["seed"])

    @property
    def name(self) -> str:
        """The folder of the run relative to that of the experiment, such as `fedawe/seed-0`."""
        return f"{folder_name(self.label)}/seed-{self.seed}"

    @property
    def settings(self) -> Settings:
        """The settings of the run as plain values; settings that are None are omitted."""
        first: Settings = {"folder": self.out.resolve().name, "label": self.label, "seed": self.seed}
        return {name: value for name, value in {**first, **settings_of(self.header)}.items() if value is not None}


class Tracker(ABC):
    """Receives every evaluation once and in order, also when runs are interrupted and resumed.

    Derive a class from it and implement `evaluated`. When a run continues after an interruption, `started` returns the
    last round that the tracker already has, and the tracker receives all later evaluations in the record of the run. A
    tracker that does not override `started` receives all evaluations again.
    All methods are called in the process that called `Experiment.run`, even if another process or node makes the run,
    and several runs may be open at once. If a method raises an exception, a warning is shown and the run continues; the
    next call of `Experiment.run` continues where the tracker stopped.
    """

    @property
    def destination(self) -> str:
        """A name for the place to which the tracker writes; a run that is complete there is not sent again."""
        return type(self).__name__

    def started(self, run: TrackedRun) -> int:  # noqa: ARG002
        """A run begins or continues. Returns the last round of it that the tracker already has; -1 if it has none."""
        return -1

    @abstractmethod
    def evaluated(self, run: TrackedRun, rounds: int, metrics: Mapping[str, Any]) -> None:
        """The model after `rounds` rounds was evaluated; `metrics` is the line of the record."""

    def finished(self, run: TrackedRun, status: str) -> None:  # noqa: B027
        """A run ended with status "complete", "diverged", or "unfinished" if it was interrupted and may continue."""


def numbers(metrics: Mapping[str, Any]) -> dict[str, float]:
    """The numbers of an evaluation by name; a list by class becomes one number per class, and the round comes last.

    >>> numbers({"kind": "evaluation", "round": 5, "test_accuracy_by_class": [0.9, 0.4], "elapsed_seconds": 1.5})
    {'test_accuracy_class_0': 0.9, 'test_accuracy_class_1': 0.4, 'elapsed_seconds': 1.5, 'round': 5}
    """
    found = {name: value for name, value in flat(dict(metrics)).items() if isinstance(value, int | float)}
    return {**{name: value for name, value in found.items() if name != "round"}, "round": metrics["round"]}


def needs(module: str, extra: str) -> ModuleType:
    """Import the module of a tool that is installed separately."""
    import importlib

    try:
        return importlib.import_module(module)
    except ImportError:
        raise UserError(
            f"{module} is not installed; install it with: pip install 'fedawe[{extra}]' (in a clone: pip install -e "
            f"'.[{extra}]')"
        ) from None
