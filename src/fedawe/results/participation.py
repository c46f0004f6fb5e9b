"""Effects of availability: the staleness of clients, and metrics of classes that are rarely or often available."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from fedawe.availability.trace import Trace
from fedawe.core.metric import Metric
from fedawe.results.choice import Interval
from fedawe.results.folder import Array, RunSet
from fedawe.results.metrics import metrics_of
from fedawe.results.standings import Comparison, Difference, paired, window_mean
from fedawe.results.summary import difference_cell
from fedawe.results.tables import Cell, Column, Table

Counts = npt.NDArray[np.int64]

SUFFIX = "_by_class"  # end of the name of a metric that has a number for every class


def echo_counts(trace: Trace) -> Counts:
    """How often an active client had an echo t - tau_i of e rounds, [e from 0]; FedAWE multiplies by it.

    >>> echo_counts(Trace([[1, 0], [1, 0], [0, 1]])).tolist()    # client 0: 1 round twice; client 1: 3 rounds
    [0, 2, 0, 1]
    """
    return np.bincount(trace.echoes())


def staleness_counts(trace: Trace) -> Counts:
    """How often a client, active or not, held a model of age t - tau_i(t), over all rounds and clients, [age from 0].

    >>> staleness_counts(Trace([[1, 0], [1, 0], [0, 1]])).tolist()    # ages 1 1, 1 2, 1 3
    [0, 4, 1, 1]
    """
    # During an absence of n rounds a client holds a model of age 1, 2, ..., n. The last absence ends with the trace.
    away = np.where(trace.on.any(0), trace.on[::-1].argmax(0), trace.rounds)
    absences = np.bincount(np.concatenate([trace.echoes(), away]))
    absences[0] = 0
    counts = absences[::-1].cumsum()[::-1]
    counts[0] = 0
    return np.asarray(counts)


def total_counts(counts: Sequence[Counts]) -> Array:
    """The sum of several counts, such as those of several traces, [e from 0]."""
    out = np.zeros(max(len(each) for each in counts))
    for each in counts:
        out[: len(each)] += each
    return out


def class_availability(runs: RunSet, seed: int) -> Array | None:
    """How often a training sample of each class is available: the share of rounds, averaged over its samples, [C]."""
    clients, trace = runs.clients.get(seed), runs.traces.get(seed)
    if clients is None or trace is None or clients.frequencies is None:
        return None
    samples = clients.frequencies * clients.sizes[:, None]  # [m, C]
    total = samples.sum(0)
    if not (total > 0).all():
        return None
    return np.asarray(trace.on.mean(0) @ samples / total)


@dataclass(frozen=True)
class ByClass:
    """A metric of one algorithm by class; in each seed, the classes are in order of their availability."""

    label: str
    metric: Metric
    seeds: tuple[int, ...]
    classes: npt.NDArray[np.int64]  # the class at each position, the least available first, [seeds, C]
    availability: Array  # [seeds, C]
    values: Array  # [seeds, C]

    def gaps(self) -> dict[int, float]:
        """By seed, the metric on the more available half of the classes minus that on the other half."""
        low, high = self.halves()
        return {seed: float(b - a) for seed, a, b in zip(self.seeds, low, high, strict=True)}

    def halves(self) -> tuple[Array, Array]:
        """The means over the less and the more available half of the classes, without one in the middle; [seeds]."""
        half = self.values.shape[1] // 2
        return self.values[:, :half].mean(1), self.values[:, -half:].mean(1)


def class_metric(comparison: Comparison) -> Metric | None:
    """The metric that evaluations have by class: the one that is compared if it is among them, else the first."""
    names = {name for run in comparison.runs.runs for line in run.lines[-1:] for name in line}
    found = [metric for metric in metrics_of(comparison.runs) if f"{metric.name}{SUFFIX}" in names]
    return comparison.metric if comparison.metric in found else next(iter(found), None)


def by_class(comparison: Comparison) -> dict[str, ByClass]:
    """The metric by class of every algorithm with complete runs; empty if it has fewer than two classes."""
    runs, metric, out = comparison.runs, class_metric(comparison), dict[str, ByClass]()
    if metric is None:
        return out
    shares = {seed: class_availability(runs, seed) for seed in runs.seeds}
    means: dict[str, dict[int, Array]] = {}
    for label in runs.labels:
        for run in runs.complete(label):
            share, lists = shares[run.seed], run.series(f"{metric.name}{SUFFIX}").values()
            if share is None or any(len(each) != len(share) for each in lists):
                continue
            values = window_mean(run, f"{metric.name}{SUFFIX}", comparison.choice.window)
            if values is not None:
                means.setdefault(label, {})[run.seed] = values
    # Classes without a number in some run, such as those without test samples, are omitted for all algorithms.
    every = [values for of in means.values() for values in of.values()]
    if len({len(values) for values in every}) != 1 or (known := np.isfinite(every).all(0)).sum() < 2:
        return out
    for label, of in means.items():
        found = []
        for seed, values in of.items():
            share = shares[seed]
            assert share is not None
            order = np.flatnonzero(known)[np.argsort(share[known], kind="stable")]
            found.append((order, share[order], values[order]))
        classes, availability, values_of = (np.stack(each) for each in zip(*found, strict=True))
        out[label] = ByClass(label, metric, tuple(of), classes, availability, values_of)
    return out


def class_table(comparison: Comparison) -> Table | None:
    """A table of a metric on the classes that are rarely and on those that are often available, and the gap."""
    found, metric = by_class(comparison), class_metric(comparison)
    if not found or metric is None:
        return None
    to = comparison.baseline if comparison.baseline in found else None
    names, rows = comparison.runs.names, []
    for label, view in found.items():
        low, high = (float(half.mean()) for half in view.halves())
        cells = [
            Cell(names[label], (names[label],)),
            *(Cell(metric.show(value), (metric.plain(value),)) for value in (low, high)),
            Cell(metric.show(high - low, sign=True), (metric.plain(high - low),)),
        ]
        if to is not None:
            d = None if label == to else gap_difference(found, label, to, comparison.choice.interval)
            cells.append(difference_cell(metric, d))
        rows.append(tuple(cells))
    unit, title = f" ({metric.unit})" if metric.unit else "", metric.title
    columns = [
        Column("algorithm", ("algorithm",), numeric=False),
        Column(f"rarely{unit}", ("rarely",), note=f"{title} on the less available half of the classes"),
        Column(f"often{unit}", ("often",), note=f"{title} on the more available half of the classes"),
        Column("gap", ("gap",), note="often minus rarely; part of it is that some classes are harder"),
    ]
    if to is not None:
        keys = ("gap_difference", "gap_difference_low", "gap_difference_high")
        note = "paired by seed, 95 % interval; the classes are the same, so their difficulty cancels"
        columns.append(Column(f"gap minus {names[to]}'s [95 %]", keys, note=note))
    caption = f"{title} on the classes that were rarely and on those that were often available, mean over seeds"
    return Table("classes", caption, tuple(columns), tuple(rows), tuple(found))


def gap_difference(found: dict[str, ByClass], label: str, to: str, interval: Interval) -> Difference | None:
    """The gap of one algorithm minus that of another, paired by seed."""
    return paired(found[label].gaps(), found[to].gaps(), interval)
