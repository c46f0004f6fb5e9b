"""What a trace does to those who learn from it: how stale clients are, and which classes are seldom there."""

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from fedawe.availability.trace import Trace
from fedawe.results.folder import Array, Experiment, display_name
from fedawe.results.metrics import METRICS
from fedawe.results.standings import Comparison, Difference, Interval, paired, window_mean, with_interval
from fedawe.results.tables import Cell, Column, Table

Counts = npt.NDArray[np.int64]

BY_CLASS = "test_accuracy_by_class"


def echo_counts(trace: Trace) -> Counts:
    """How often a client that came had an echo t - tau_i of e rounds, [e from 0]; FedAWE multiplies by it.

    >>> echo_counts(Trace([[1, 0], [1, 0], [0, 1]])).tolist()    # client 0 comes twice after 1, client 1 after 3
    [0, 2, 0, 1]
    """
    return np.bincount(trace.echoes())


def staleness_counts(trace: Trace) -> Counts:
    """How often a client, there or not, held a model of age t - tau_i(t), over all rounds and clients, [age from 0].

    >>> staleness_counts(Trace([[1, 0], [1, 0], [0, 1]])).tolist()    # ages 1 1, 1 2, 1 3
    [0, 4, 1, 1]
    """
    tau, counts = np.full(trace.clients, -1), np.zeros(trace.rounds + 1, dtype=np.int64)
    for t, there in enumerate(trace.on):
        counts += np.bincount(t - tau, minlength=trace.rounds + 1)
        tau[there] = t
    return np.trim_zeros(counts, "b")


def class_availability(experiment: Experiment, seed: int) -> Array | None:
    """How often a training sample of each class is there: the share of rounds, averaged over its samples, [C]."""
    clients, trace = experiment.clients.get(seed), experiment.traces.get(seed)
    if clients is None or trace is None or clients.frequencies is None:
        return None
    samples = clients.frequencies * clients.sizes[:, None]  # [m, C]
    total = samples.sum(0)
    if not (total > 0).all():
        return None
    return np.asarray(trace.on.mean(0) @ samples / total)


@dataclass(frozen=True)
class ByClass:
    """One algorithm's accuracy class by class; in each seed the classes are in order of their availability."""

    label: str
    seeds: tuple[int, ...]
    classes: npt.NDArray[np.int64]  # the class at each place, the least available first, [seeds, C]
    availability: Array  # [seeds, C]
    accuracy: Array  # [seeds, C]

    def gaps(self) -> dict[int, float]:
        """Accuracy on the more available half of the classes minus that on the other, seed by seed."""
        low, high = self.halves()
        return {seed: float(b - a) for seed, a, b in zip(self.seeds, low, high, strict=True)}

    def halves(self) -> tuple[Array, Array]:
        """Mean accuracy on the less and on the more available half (a class in the middle is in neither), [seeds]."""
        half = self.accuracy.shape[1] // 2
        return self.accuracy[:, :half].mean(1), self.accuracy[:, -half:].mean(1)


def by_class(experiment: Experiment) -> dict[str, ByClass]:
    """Every algorithm that has complete runs with accuracies of two classes or more."""
    shares = {seed: class_availability(experiment, seed) for seed in experiment.seeds}
    out = {}
    for label in experiment.labels:
        found = []
        for run in experiment.complete(label):
            share, accuracy = shares[run.seed], window_mean(run, BY_CLASS)
            if share is not None and accuracy is not None and accuracy.shape == share.shape and len(share) > 1:
                order = np.argsort(share, kind="stable")
                found.append((run.seed, order, share[order], accuracy[order]))
        if found:
            seeds, classes, availability, accuracies = zip(*found, strict=True)
            out[label] = ByClass(label, seeds, np.stack(classes), np.stack(availability), np.stack(accuracies))
    return out


def class_table(comparison: Comparison) -> Table | None:
    """Accuracy on the classes that are seldom there and on those that are often there, and the gap between them."""
    found, metric = by_class(comparison.experiment), METRICS[0]
    if not found:
        return None
    to = comparison.reference if comparison.reference in found else None
    rows = []
    for label, view in found.items():
        low, high = (float(half.mean()) for half in view.halves())
        cells = [
            Cell(display_name(label), (display_name(label),)),
            *(Cell(metric.show(value), (metric.plain(value),)) for value in (low, high)),
            Cell(metric.show(high - low, sign=True), (metric.plain(high - low),)),
        ]
        if to is not None:
            d = None if label == to else gap_difference(found, label, to, comparison.interval)
            values = (None, None, None) if d is None else (d.mean, d.low, d.high)
            cells.append(Cell(with_interval(metric, d), tuple(metric.plain(value) for value in values)))
        rows.append(tuple(cells))
    columns = [
        Column("algorithm", ("algorithm",), numeric=False),
        Column(
            "seldom there (%)", ("accuracy_seldom",), note="test accuracy on the less available half of the classes"
        ),
        Column("often there (%)", ("accuracy_often",), note="test accuracy on the more available half of the classes"),
        Column("gap", ("gap",), note="often minus seldom; part of it is that some classes are harder"),
    ]
    if to is not None:
        names = ("gap_difference", "gap_difference_low", "gap_difference_high")
        note = "paired by seed, 95 % interval; the classes are the same, so their difficulty cancels"
        columns.append(Column(f"gap minus {display_name(to)}'s [95 %]", names, note=note))
    caption = "test accuracy by how often a class was there, in percent and points, mean over seeds"
    return Table("classes", caption, tuple(columns), tuple(rows), tuple(found))


def gap_difference(found: dict[str, ByClass], label: str, to: str, interval: Interval) -> Difference | None:
    """One algorithm's gap minus another's."""
    return paired(found[label].gaps(), found[to].gaps(), interval)
