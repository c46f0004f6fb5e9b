"""Read the runs of a planned experiment: window means in percent, by algorithm and seed."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from fedawe.algorithms.facts import is_received_mean
from fedawe.paper.plan import ALGORITHMS, Planned, Variant
from fedawe.paper.readings import Evaluate
from fedawe.results.folder import RunResult, RunSet, load
from fedawe.results.standings import window_mean
from fedawe.results.tables import MISSING, Cell

BySeed = dict[int, float]  # a number for each seed
Found = Mapping[str, BySeed]  # by algorithm


@dataclass(frozen=True)
class Ran:
    """A planned experiment and its runs, or None if it has not begun."""

    planned: Planned
    runs: RunSet | None

    @classmethod
    def below(cls, folder: Path, planned: Iterable[Planned]) -> "list[Ran]":
        """Read the runs of all planned experiments from their folders below `folder`."""
        begun = [(each, (folder / each.folder / "experiment.json").exists()) for each in planned]
        return [cls(each, load(folder / each.folder) if there else None) for each, there in begun]

    def complete(self, variant: Variant) -> list[RunResult]:
        """The complete runs of a variant with the planned seeds."""
        runs = self.runs.complete(variant.label) if self.runs is not None else []
        return [run for run in runs if run.seed in self.planned.seeds]

    def percent(self, name: str, evaluate: Evaluate = "mean", variants: Sequence[Variant] | None = None) -> Found:
        """The window means of a metric in percent, for these variants or for all that are planned."""
        return self._of(variants, lambda variant: metric_of(name, evaluate, variant.name))

    def worst_class(self, variants: Sequence[Variant] | None = None) -> Found:
        """Test accuracy of each method's own model on its worst class, which shows a bias most clearly."""
        return self._of(variants, lambda _: "test_accuracy_by_class")

    def _of(self, variants: Sequence[Variant] | None, metric: Callable[[Variant], str]) -> Found:
        out: dict[str, BySeed] = {}
        for variant in self.planned.variants if variants is None else variants:
            means = {run.seed: window_mean(run, metric(variant)) for run in self.complete(variant)}
            values = {seed: 100 * float(np.min(mean)) for seed, mean in means.items() if mean is not None}
            if values:
                out[variant.name] = values
        return out


def metric_of(name: str, evaluate: Evaluate, algorithm: str) -> str:
    """The name in records of a metric of the model that is to be evaluated.

    FedAWE's own model is the mean of the models received, and its last aggregate is a further model. The own model of
    the other algorithms is the last aggregate, and the mean of the models received is a further model.

    >>> [metric_of("test_loss", kind, name) for kind in ("latest", "received") for name in ("fedawe", "fedavg")]
    ['latest_test_loss', 'test_loss', 'test_loss', 'received_test_loss']
    """
    prefixed = evaluate == "latest" if is_received_mean(ALGORITHMS[algorithm]) else evaluate == "received"
    return f"{evaluate}_{name}" if prefixed else name


def means(found: Found) -> dict[str, float]:
    """The means over seeds, by algorithm."""
    return {name: float(np.mean(list(values.values()))) for name, values in found.items()}


def spread(values: BySeed, best: bool = False) -> Cell:
    """A cell with mean ± standard deviation over seeds."""
    if not values:
        return Cell(MISSING, (None, None))
    numbers = list(values.values())
    mean, std = float(np.mean(numbers)), float(np.std(numbers, ddof=1)) if len(numbers) > 1 else None
    text = f"{mean:.1f}" + ("" if std is None else f" ± {std:.1f}")
    return Cell(text, (round(mean, 4), std and round(std, 4)), strong=best)


def is_best(found: Found, name: str) -> bool:
    """Whether the algorithm has the highest mean."""
    all_means = means(found)
    return name in all_means and all_means[name] == max(all_means.values())
