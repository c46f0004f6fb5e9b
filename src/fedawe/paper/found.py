"""What the runs of a planned experiment say: window means in percent, by algorithm and seed."""

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
    """A planned experiment and its runs, as far as there are any."""

    planned: Planned
    runs: RunSet | None

    @classmethod
    def below(cls, folder: Path, planned: Iterable[Planned]) -> "list[Ran]":
        """What lies in the folders of the experiments."""
        begun = [(each, (folder / each.folder / "experiment.json").exists()) for each in planned]
        return [cls(each, load(folder / each.folder) if there else None) for each, there in begun]

    def complete(self, variant: Variant) -> list[RunResult]:
        """Its complete runs with the seeds that are planned."""
        runs = self.runs.complete(variant.label) if self.runs is not None else []
        return [run for run in runs if run.seed in self.planned.seeds]

    def percent(self, name: str, evaluate: Evaluate = "mean", variants: Sequence[Variant] | None = None) -> Found:
        """The window means of a metric, of these variants or of all that are planned."""
        return self._of(variants, lambda variant: metric_of(name, evaluate, variant.name))

    def worst_class(self, variants: Sequence[Variant] | None = None) -> Found:
        """Test accuracy on the class that fares worst, where a bias shows first; of each method's own model."""
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
    """What records call a metric of the model that is to be evaluated.

    An algorithm whose own model is the received mean says what its last aggregate is worth; that of the others is
    their own model.

    >>> [metric_of("test_loss", kind, name) for kind in ("latest", "received") for name in ("fedawe", "fedavg")]
    ['latest_test_loss', 'test_loss', 'test_loss', 'received_test_loss']
    """
    prefixed = evaluate == "latest" if is_received_mean(ALGORITHMS[algorithm]) else evaluate == "received"
    return f"{evaluate}_{name}" if prefixed else name


def means(found: Found) -> dict[str, float]:
    """Over seeds."""
    return {name: float(np.mean(list(values.values()))) for name, values in found.items()}


def spread(values: BySeed, best: bool = False) -> Cell:
    """mean ± standard deviation."""
    if not values:
        return Cell(MISSING, (None, None))
    numbers = list(values.values())
    mean, std = float(np.mean(numbers)), float(np.std(numbers, ddof=1)) if len(numbers) > 1 else None
    text = f"{mean:.1f}" + ("" if std is None else f" ± {std:.1f}")
    return Cell(text, (round(mean, 4), std and round(std, 4)), strong=best)


def is_best(found: Found, name: str) -> bool:
    """Whether it has the highest mean."""
    all_means = means(found)
    return name in all_means and all_means[name] == max(all_means.values())
