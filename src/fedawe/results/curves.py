"""How a metric goes over the rounds, and how soon it is good."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from fedawe.results.folder import Array, Run, display_name
from fedawe.results.standings import Comparison
from fedawe.results.tables import Cell, Column, Table


@dataclass(frozen=True)
class Curve:
    """A metric over the rounds, seed by seed, at the rounds that all complete runs evaluated."""

    rounds: Array  # [n]
    by_seed: Array  # [seeds, n]
    seeds: tuple[int, ...]

    @property
    def mean(self) -> Array:
        """Over seeds, [n]."""
        return np.asarray(self.by_seed.mean(0))

    @property
    def std(self) -> Array:
        """Over seeds, n - 1 in the denominator, [n]; zero for one seed."""
        return np.asarray(self.by_seed.std(0, ddof=1)) if len(self.seeds) > 1 else np.zeros(len(self.rounds))


def smoothed(curve: Curve, decay: float = 0.99) -> Curve:
    """An exponential moving average per round: y_k = w y_{k-1} + (1 - w) x_k with w = decay^(rounds since k - 1).

    >>> smoothed(Curve(np.array([0.0, 1.0, 3.0]), np.array([[0.0, 1.0, 1.0]]), (0,)), 0.5).by_seed.tolist()
    [[0.0, 0.5, 0.875]]
    """
    kept = decay ** np.diff(curve.rounds)
    out = curve.by_seed.copy()
    for k, w in enumerate(kept, 1):
        out[:, k] = w * out[:, k - 1] + (1 - w) * curve.by_seed[:, k]
    return Curve(curve.rounds, out, curve.seeds)


def curve(runs: Sequence[Run], name: str) -> Curve | None:
    """The curves of some runs; None if there are no runs with such a metric."""
    series = {run.seed: values for run in runs if (values := run.series(name))}
    if not series:
        return None
    rounds = sorted(set.intersection(*(set(values) for values in series.values())))
    by_seed = [[values[n] for n in rounds] for values in series.values()]
    return Curve(np.array(rounds, dtype=np.float64), np.array(by_seed, dtype=np.float64), tuple(series))


def first_round(curve: Curve, target: float) -> int | None:
    """The first evaluated round in which the mean over seeds is at the target; None if it never is."""
    there = np.flatnonzero(curve.mean >= target)
    return int(curve.rounds[there[0]]) if len(there) else None


def speed_table(comparison: Comparison) -> Table | None:
    """The first evaluated round at 1/4, 1/2, 3/4 and all of the best accuracy, rounded down to 10 % as in the paper."""
    metric, experiment = comparison.metric, comparison.experiment
    best = max((s.mean for s in comparison.standings if s.mean is not None), default=0.0)
    top = int(best * 10 + 1e-9) / 10
    if not metric.share or top == 0:
        return None
    targets = [top * part for part in (0.25, 0.5, 0.75, 1.0)]
    labels = [label for label in experiment.labels if experiment.complete(label)]
    rows = []
    for label in labels:
        found = curve(experiment.complete(label), metric.name)
        firsts = [None if found is None else first_round(found, target) for target in targets]
        cells = [Cell("never" if first is None else str(first), (first,)) for first in firsts]
        rows.append((Cell(display_name(label), (display_name(label),)), *cells))
    percents = [f"{100 * target:.3g}" for target in targets]
    columns = [Column(f"{percent} %", (f"first_round_at_{percent}_percent",)) for percent in percents]
    caption = f"first evaluated round in which the mean {metric.title} over seeds reaches a target"
    return Table(
        "speed", caption, (Column("algorithm", ("algorithm",), numeric=False), *columns), tuple(rows), tuple(labels)
    )
