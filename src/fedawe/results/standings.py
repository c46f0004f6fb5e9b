"""How the algorithms of an experiment stand to each other.

A run is summed up by its window mean: the mean over the evaluations of its last 50 rounds, or its last evaluation if it
has fewer rounds. Only complete runs count. Runs of the same seed share data, trace and initial model, so algorithms are
compared seed by seed, and the interval is one for the mean of those differences.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
from scipy import stats

from fedawe.core.errors import UserError
from fedawe.core.rng import rng
from fedawe.results.folder import Array, Experiment, Run, display_name
from fedawe.results.metrics import METRICS, Metric, metrics_of
from fedawe.results.tables import MISSING, Cell, Column, Table

WINDOW = 50  # rounds, as in the paper
BOOTSTRAP_SEEDS = 10  # with fewer, resampling sees too few different samples to mean anything

Interval = Literal["student", "bootstrap"]


def window(run: Run) -> list[int]:
    """The evaluated rounds that sum up a run."""
    rounds, total = sorted(int(line["round"]) for line in run.record.evaluations), run.rounds
    return [n for n in rounds if n > total - WINDOW] if total >= WINDOW else rounds[-1:]


def window_mean(run: Run, name: str) -> Array | None:
    """The mean of a metric over the window, a number or one per class; None if the run has no such metric."""
    values = run.series(name)
    found = [values[n] for n in window(run) if n in values]
    return np.asarray(np.mean(found, axis=0), dtype=np.float64) if found else None


@dataclass(frozen=True)
class Difference:
    """The mean of paired differences and its 95 % interval; one pair has no interval."""

    mean: float
    low: float | None
    high: float | None
    seeds: tuple[int, ...]
    interval: Interval

    @property
    def sign(self) -> int:
        """+1 or -1 where the interval leaves zero out, 0 where it does not or where there is none."""
        if self.low is None or self.high is None or self.low <= 0 <= self.high:
            return 0
        return 1 if self.low > 0 else -1


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
    if np.ptp(d) == 0:  # all the same: nothing to resample, no deviation
        return Difference(mean, mean, mean, seeds, interval)
    if interval == "bootstrap":
        found = stats.bootstrap((d,), np.mean, n_resamples=9999, method="BCa", rng=rng(0, "bootstrap"))
        low, high = found.confidence_interval
    else:
        half = stats.t.ppf(0.975, n - 1) * d.std(ddof=1) / np.sqrt(n)
        low, high = mean - half, mean + half
    return Difference(mean, float(low), float(high), seeds, interval)


@dataclass(frozen=True)
class Standing:
    """How an algorithm did: its window means by seed, and against the reference."""

    label: str
    values: dict[int, float]
    missing: tuple[Run, ...]  # its runs that do not count
    difference: Difference | None
    rank: int | None  # 1 is best; None if it lacks seeds that others have
    latest: bool = False  # FedAWE's last aggregate instead of its model, x-bar

    @property
    def name(self) -> str:
        """As people write it."""
        return display_name(self.label) + (", last aggregate" if self.latest else "")

    @property
    def mean(self) -> float | None:
        """Over its seeds."""
        return float(np.mean(list(self.values.values()))) if self.values else None

    @property
    def std(self) -> float | None:
        """Over its seeds, n - 1 in the denominator; None for one seed."""
        return float(np.std(list(self.values.values()), ddof=1)) if len(self.values) > 1 else None


@dataclass(frozen=True)
class Comparison:
    """All algorithms of an experiment by one metric, the best first."""

    experiment: Experiment
    metric: Metric
    reference: str | None  # the label differences are taken to
    interval: Interval
    standings: tuple[Standing, ...]

    def standing(self, label: str | None, latest: bool = False) -> Standing | None:
        """The standing of an algorithm, if it takes part."""
        return next((s for s in self.standings if s.label == label and s.latest == latest), None)

    @property
    def ranked(self) -> list[Standing]:
        """Those that have all seeds, the best first."""
        return [standing for standing in self.standings if standing.rank is not None]


def compare(
    experiment: Experiment,
    metric: Metric | None = None,
    *,
    reference: str = "fedavg",
    interval: Interval = "student",
) -> Comparison:
    """Every algorithm's window means, ranks, and paired differences to the reference."""
    chosen = metric or next(iter(metrics_of(experiment)), METRICS[0])
    to = experiment.the(reference)
    values = {label: _by_seed(experiment, label, chosen.name) for label in experiment.labels}
    most = max((len(v) for v in values.values()), default=0)
    whole = [label for label in values if most and len(values[label]) == most == len(experiment.of(label))]
    order = [(-1 if chosen.higher_is_better else 1) * float(np.mean(list(values[label].values()))) for label in whole]
    ranks = dict(zip(whole, stats.rankdata(order, "min").astype(int).tolist(), strict=True))

    def standing(label: str, values_of: dict[int, float], latest: bool = False) -> Standing:
        missing = tuple(run for run in experiment.of(label) if run.seed not in values_of)
        difference = None
        if to is not None and (label != to or latest):
            difference = paired(values_of, values[to], interval)
        return Standing(label, values_of, missing, difference, None if latest else ranks.get(label), latest)

    standings = [standing(label, values[label]) for label in values]
    latest = {label: _by_seed(experiment, label, f"latest_{chosen.name}") for label in values}
    standings += [standing(label, latest[label], latest=True) for label in values if latest[label]]
    best_first = sorted(standings, key=lambda s: (s.latest, s.rank is None, s.rank or 0))
    return Comparison(experiment, chosen, to, interval, tuple(best_first))


def _by_seed(experiment: Experiment, label: str, name: str) -> dict[int, float]:
    means = {run.seed: window_mean(run, name) for run in experiment.complete(label)}
    return {seed: float(mean) for seed, mean in means.items() if mean is not None}


def mean_ranks(comparisons: Sequence[Comparison]) -> dict[str, float]:
    """The mean rank of every algorithm over the settings, for algorithms that are ranked in all of them."""
    ranks: dict[str, list[int]] = {}
    for comparison in comparisons:
        for standing in comparison.ranked:
            assert standing.rank is not None
            ranks.setdefault(standing.label, []).append(standing.rank)
    return {label: float(np.mean(values)) for label, values in ranks.items() if len(values) == len(comparisons)}


def summary_table(comparison: Comparison) -> Table:
    """The result: window means over seeds, and paired differences to the reference."""
    metric, to = comparison.metric, comparison.reference
    columns = [
        Column("rank", ("rank",), note="by the mean; only algorithms that completed every seed are ranked"),
        Column("algorithm", ("algorithm",), numeric=False),
        Column("seeds", ("seeds_complete", "seeds"), note="complete runs; others do not count"),
        Column(
            metric.heading, (metric.name, f"{metric.name}_std"), note="mean ± standard deviation over seeds (n − 1)"
        ),
    ]
    if to is not None:
        names = ("difference", "difference_low", "difference_high")
        note = "paired by seed, mean and 95 % interval; " + (
            "Student's t" if comparison.interval == "student" else "bootstrap (BCa)"
        )
        columns.append(Column(f"minus {display_name(to)} [95 %]", names, note=note))
    rows = [_summary_row(comparison, standing) for standing in comparison.standings]
    caption = f"{metric.heading}, {window_words(comparison)}"
    return Table("results", caption, tuple(columns), tuple(rows), tuple(s.label for s in comparison.standings))


def _summary_row(comparison: Comparison, standing: Standing) -> tuple[Cell, ...]:
    metric, total = comparison.metric, len(standing.values) + len(standing.missing)
    best, done = standing.rank == 1, len(standing.values)
    cells = [
        Cell(MISSING if standing.rank is None else str(standing.rank), (standing.rank,)),
        Cell(standing.name, (standing.name,), strong=best),
        Cell(str(done) if done == total else f"{done} of {total}", (done, total)),
        Cell(spread(metric, standing), (metric.plain(standing.mean), metric.plain(standing.std)), strong=best),
    ]
    if comparison.reference is not None:
        d = standing.difference
        values = (None, None, None) if d is None else (d.mean, d.low, d.high)
        cells.append(Cell(with_interval(metric, d), tuple(metric.plain(value) for value in values)))
    return tuple(cells)


def spread(metric: Metric, standing: Standing) -> str:
    """mean ± standard deviation."""
    if standing.mean is None:
        return MISSING
    mean = standing.mean
    return metric.show(mean) + ("" if standing.std is None else f" ± {metric.show(standing.std, like=mean)}")


def with_interval(metric: Metric, d: Difference | None) -> str:
    """The difference and its interval, as far as there are any."""
    if d is None:
        return MISSING
    if d.low is None or d.high is None:
        return metric.show(d.mean, sign=True)
    like = max(abs(d.low), abs(d.high))
    low, high = metric.show(d.low, like=like), metric.show(d.high, like=like)
    return f"{metric.show(d.mean, sign=True, like=like)} [{low}, {high}]"


def window_words(comparison: Comparison) -> str:
    """Which evaluations count, in words."""
    windows = {
        tuple(window(run)) for label in comparison.experiment.labels for run in comparison.experiment.complete(label)
    }
    if len(windows) != 1:
        return f"mean over the evaluations of the last {WINDOW} rounds"
    (rounds,) = windows
    if len(rounds) == 1:
        return f"evaluation after round {rounds[0]}"
    return f"mean over the {len(rounds)} evaluations of rounds {rounds[0]} to {rounds[-1]}"
