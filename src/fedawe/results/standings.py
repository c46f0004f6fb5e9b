"""Compare the algorithms of an experiment.

The score of a run is its window mean: the mean over the evaluations of its last 50 rounds, or its last evaluation if it
has fewer rounds. Only complete runs count. Runs of the same seed share data, trace and initial model, so algorithms are
compared seed by seed, and the interval is that of the mean of the paired differences.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import lazy_loader
import numpy as np

from fedawe.algorithms import FedAvg
from fedawe.core.describe import path_of
from fedawe.core.errors import UserError
from fedawe.core.metric import Metric
from fedawe.core.rng import rng
from fedawe.results.choice import WINDOW, Choice, Interval
from fedawe.results.folder import Array, RunResult, RunSet
from fedawe.results.metrics import deciding, model_name, variants_of

scipy = lazy_loader.load("scipy")  # imported with the first interval: it takes a second
BOOTSTRAP_SEEDS = 10  # with fewer, there are too few different resamples for an interval
USUAL_BASELINE = path_of(FedAvg)


def window(run: RunResult, rounds: int = WINDOW) -> list[int]:
    """The evaluated rounds over which the score of a run is the mean."""
    evaluated, total = sorted(int(line["round"]) for line in run.record.evaluations), run.rounds
    return [n for n in evaluated if n > total - rounds] if total >= rounds else evaluated[-1:]


def window_mean(run: RunResult, name: str, rounds: int = WINDOW) -> Array | None:
    """The mean of a metric over the window, a number or one per class; None if the run has no such metric.

    It is NaN for a class that has no value in some evaluation of the window.
    """
    values = run.series(name)
    found = [values[n] for n in window(run, rounds) if n in values]
    return np.asarray(np.array(found, dtype=np.float64).mean(0)) if found else None


@dataclass(frozen=True)
class Difference:
    """The mean of paired differences and its 95 % interval; one pair has no interval. `text` says it in words."""

    mean: float
    low: float | None
    high: float | None
    seeds: tuple[int, ...]
    interval: Interval
    text: str = field(default="", compare=False, repr=False)

    @property
    def sign(self) -> int:
        """+1 or -1 if the interval does not contain zero; 0 if it does or if there is no interval."""
        if self.low is None or self.high is None or self.low <= 0 <= self.high:
            return 0
        return 1 if self.low > 0 else -1

    def __str__(self) -> str:
        return self.text or repr(self)


def paired(ours: Mapping[int, float], theirs: Mapping[int, float], interval: Interval = "student") -> Difference | None:
    """Ours minus theirs on the seeds that both have; None if there are none.

    >>> d = paired({0: 3.0, 1: 5.0, 2: 4.0}, {0: 1.0, 1: 2.0, 2: 3.0, 3: 9.0})    # 2 ± 4.303 / sqrt(3)
    >>> print(f"{d.mean} [{d.low:.3f}, {d.high:.3f}] on seeds {d.seeds}")
    2.0 [-0.484, 4.484] on seeds (0, 1, 2)
    """
    seeds = tuple(sorted(set(ours) & set(theirs)))
    if not seeds:
        return None
    d = np.array([ours[seed] - theirs[seed] for seed in seeds])
    mean, n = float(d.mean()), len(d)
    if interval == "bootstrap" and n < BOOTSTRAP_SEEDS:
        raise UserError(f"a bootstrap interval needs {BOOTSTRAP_SEEDS} seeds, here are {n}; use the student interval")
    if n == 1:
        return Difference(mean, None, None, seeds, interval)
    if np.ptp(d) == 0:  # all differences are equal: the standard deviation is zero
        return Difference(mean, mean, mean, seeds, interval)
    if interval == "bootstrap":
        found = scipy.stats.bootstrap((d,), np.mean, n_resamples=9999, method="BCa", rng=rng(0, "bootstrap"))
        low, high = found.confidence_interval
    else:
        half = scipy.stats.t.ppf(0.975, n - 1) * d.std(ddof=1) / np.sqrt(n)
        low, high = mean - half, mean + half
    return Difference(mean, float(low), float(high), seeds, interval)


@dataclass(frozen=True)
class Standing:
    """The score of an algorithm: its window means by seed, its rank, and the difference to the baseline."""

    label: str
    name: str  # display name
    values: dict[int, float]
    missing: tuple[RunResult, ...]  # its runs without a window mean
    difference: Difference | None
    rank: int | None  # 1 is best; None if seeds are missing, or if the metric has no direction
    variant: str = ""  # prefix of a further model, such as `latest`; empty for the model that is ranked

    @property
    def mean(self) -> float | None:
        """The mean over seeds."""
        return float(np.mean(list(self.values.values()))) if self.values else None

    @property
    def std(self) -> float | None:
        """The standard deviation over seeds, n - 1 in the denominator; None for one seed."""
        return float(np.std(list(self.values.values()), ddof=1)) if len(self.values) > 1 else None


@dataclass(frozen=True)
class Comparison:
    """All algorithms of an experiment by one metric, the best first."""

    runs: RunSet
    metric: Metric
    baseline: str | None  # the label to which differences are taken; None for a single algorithm
    choice: Choice
    standings: tuple[Standing, ...]
    note: str = ""  # a remark on the choice of the metric

    def standing(self, label: str | None, variant: str = "") -> Standing | None:
        """The standing of an algorithm; None if it is not compared."""
        return next((s for s in self.standings if s.label == label and s.variant == variant), None)

    @property
    def ranked(self) -> list[Standing]:
        """The standings that have a rank, the best first."""
        return [standing for standing in self.standings if standing.rank is not None]

    @property
    def main(self) -> list[Standing]:
        """One standing per algorithm, without further models."""
        return [standing for standing in self.standings if not standing.variant]

    @property
    def emphasised(self) -> set[str]:
        """The labels that a figure draws thicker: the best, and the baseline."""
        best = [standing.label for standing in self.ranked[:1]]
        return {*best, *([self.baseline] if self.baseline is not None else [])}

    def verdict(self, difference: Difference | None) -> int:
        """+1 for a significant advantage, -1 for a significant disadvantage, 0 for neither."""
        return 0 if difference is None else self.metric.sign * difference.sign


def compare(runs: RunSet, choice: Choice | None = None) -> Comparison:
    """Every algorithm's window means, ranks, and paired differences to the baseline."""
    choice = choice or Choice()
    if choice.algorithms:
        every, runs = runs, runs.only([runs.the(text) for text in choice.algorithms])
        if choice.baseline is not None and runs.find(choice.baseline) is None and every.find(choice.baseline):
            raise UserError(
                f"the baseline {choice.baseline!r} is not among the algorithms to compare, "
                f"{', '.join(runs.labels)}; name it there too (--algorithms), or choose another (--baseline)"
            )
    metric, note = deciding(runs, choice.metric)
    to = baseline_of(runs, choice.baseline)
    values = {label: _by_seed(runs, label, metric.name, choice.window) for label in runs.labels}
    seeds = len({seed for found in values.values() for seed in found})
    whole = [label for label in values if seeds and metric.sign and len(values[label]) == seeds == len(runs.of(label))]
    order = [-metric.sign * float(np.mean(list(values[label].values()))) for label in whole]
    ranks = dict(zip(whole, scipy.stats.rankdata(order, "min").astype(int).tolist(), strict=True))

    def standing(label: str, values_of: dict[int, float], variant: str = "") -> Standing:
        missing = tuple(run for run in runs.of(label) if run.seed not in values_of)
        difference = None
        if to is not None and (label != to or variant):
            difference = paired(values_of, values[to], choice.interval)
        name = runs.names[label] + (f", {model_name(variant)}" if variant else "")
        return Standing(label, name, values_of, missing, difference, None if variant else ranks.get(label), variant)

    standings = [standing(label, values[label]) for label in values]
    for variant in variants_of(runs):
        of = {label: _by_seed(runs, label, f"{variant}_{metric.name}", choice.window) for label in values}
        standings += [standing(label, of[label], variant) for label in values if of[label]]
    best_first = sorted(standings, key=lambda s: (s.variant != "", s.rank is None, s.rank or 0))
    return Comparison(runs, metric, to, choice, tuple(best_first), note)


def baseline_of(runs: RunSet, asked: str | None = None) -> str | None:
    """The label of `asked`, else of FedAvg, else the first label; None if there is only one algorithm."""
    if asked is not None:
        return runs.the(asked)
    if len(runs.labels) < 2:
        return None
    return next((label for label in runs.labels if runs.kinds[label] == USUAL_BASELINE), runs.labels[0])


def _by_seed(runs: RunSet, label: str, name: str, rounds: int) -> dict[int, float]:
    means = {run.seed: window_mean(run, name, rounds) for run in runs.complete(label)}
    return {seed: float(mean) for seed, mean in means.items() if mean is not None and mean.ndim == 0}


def mean_ranks(comparisons: Sequence[Comparison]) -> dict[str, float]:
    """The mean rank over the settings of every algorithm that is ranked in all of them."""
    ranks: dict[str, list[int]] = {}
    for comparison in comparisons:
        for standing in comparison.ranked:
            assert standing.rank is not None
            ranks.setdefault(standing.label, []).append(standing.rank)
    return {label: float(np.mean(values)) for label, values in ranks.items() if len(values) == len(comparisons)}
