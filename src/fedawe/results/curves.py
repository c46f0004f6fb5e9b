"""Curves of a metric over the rounds, and the first rounds at which they reach targets."""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from fedawe.core.metric import Metric
from fedawe.results.folder import Array, RunResult
from fedawe.results.standings import Comparison
from fedawe.results.tables import Cell, Column, Table

PARTS = (0.25, 0.5, 0.75, 1.0)  # targets, as parts of the way to the best result
DECADE = 10.0  # values that span more than this are drawn on a logarithmic axis


@dataclass(frozen=True)
class Curve:
    """A metric over the rounds, seed by seed, at the rounds that all complete runs evaluated."""

    rounds: Array  # [n]
    by_seed: Array  # [seeds, n]
    seeds: tuple[int, ...]

    @property
    def mean(self) -> Array:
        """The mean over seeds, [n]."""
        return np.asarray(self.by_seed.mean(0))

    @property
    def std(self) -> Array:
        """The standard deviation over seeds, n - 1 in the denominator, [n]; zero for one seed."""
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


def curve(runs: Sequence[RunResult], name: str) -> Curve | None:
    """The curves of a metric in these runs; None if no run has the metric."""
    series = {run.seed: values for run in runs if (values := run.series(name))}
    if not series:
        return None
    rounds = sorted(set.intersection(*(set(values) for values in series.values())))
    by_seed = [[values[n] for n in rounds] for values in series.values()]
    return Curve(np.array(rounds, dtype=np.float64), np.array(by_seed, dtype=np.float64), tuple(series))


def logarithmic(metric: Metric, curves: Sequence[Curve]) -> bool:
    """Whether a metric is drawn on a logarithmic axis: not a share, positive, and over more than a factor of 10."""
    means = [found.mean for found in curves if len(found.mean)]
    if metric.share or not means:
        return False
    least, most = min(float(mean.min()) for mean in means), max(float(mean.max()) for mean in means)
    return least > 0 and most > DECADE * least


def first_round(curve: Curve, target: float, sign: int = 1) -> int | None:
    """The first evaluated round in which the mean over seeds is at the target; None if it never is.

    `sign` is that of the metric: 1 if it must be at least the target, -1 if at most.
    """
    reached = np.flatnonzero(sign * curve.mean >= sign * target)
    return int(curve.rounds[reached[0]]) if len(reached) else None


def speed_table(comparison: Comparison) -> Table | None:
    """A table of the first evaluated rounds at 1/4, 1/2, 3/4 and all of the way to the best result.

    For an accuracy the way begins at zero and ends at the best, rounded down to 10 %, as in the paper. For any other
    metric it begins at the first evaluation; where it is drawn on a logarithmic axis, the parts are those of that axis.
    """
    metric, runs = comparison.metric, comparison.runs
    curves = {label: curve(runs.complete(label), metric.name) for label in runs.labels if runs.complete(label)}
    targets = _targets(comparison, [found for found in curves.values() if found is not None])
    if not targets:
        return None
    rows = []
    for label, found in curves.items():
        firsts = [None if found is None else first_round(found, target, metric.sign) for target in targets]
        cells = [Cell("never" if first is None else str(first), (first,)) for first in firsts]
        rows.append((Cell(runs.names[label], (runs.names[label],)), *cells))
    said = [f"{100 * target if metric.share else target:.3g}" for target in targets]
    said = [f"{float(text):.0f}" if "e+" in text else text for text in said]
    if metric.share:
        columns = [Column(f"{each} %", (f"first_round_at_{each}_percent",)) for each in said]
    else:
        columns = [Column(each, (f"first_round_at_{each}",)) for each in said]
    side = "at or below" if metric.sign < 0 else "at or above"
    caption = f"first evaluated round in which the mean {metric.title} over seeds is {side} a target"
    head = Column("algorithm", ("algorithm",), numeric=False)
    return Table("speed", caption, (head, *columns), tuple(rows), tuple(curves))


def _targets(comparison: Comparison, curves: Sequence[Curve]) -> list[float]:
    """The targets from easy to hard; none if no result is better than the start."""
    metric = comparison.metric
    finals = [s.mean for s in comparison.main if s.mean is not None]
    if not finals or metric.sign == 0:
        return []
    best = metric.sign * max(metric.sign * final for final in finals)
    if metric.share and metric.sign > 0:
        top = int(best * 10 + 1e-9) / 10
        return [top * part for part in PARTS] if top > 0 else []
    starts = [float(found.mean[0]) for found in curves if len(found.mean)]
    if not starts:
        return []
    start = float(np.mean(starts))
    if metric.sign * (best - start) <= 0:
        return []
    if logarithmic(metric, curves):
        way = [start * (best / start) ** part for part in PARTS]
    else:
        way = [start + part * (best - start) for part in PARTS]
    return list(dict.fromkeys(_towards_start(target, metric.sign) for target in way))


def _towards_start(target: float, sign: int) -> float:
    """The target rounded to three digits, so that it does not become harder to reach.

    >>> _towards_start(5.0349, -1), _towards_start(0.98765, 1)
    (5.04, 0.987)
    """
    if target == 0:
        return 0.0
    unit = 10.0 ** (math.floor(math.log10(abs(target))) - 2)
    steps = target / unit
    return float(f"{unit * (math.floor(steps + 1e-9) if sign > 0 else math.ceil(steps - 1e-9)):.3g}")
