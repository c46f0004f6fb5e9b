"""How the algorithms did: curves, differences, classes."""

import math
from collections.abc import Mapping, Sequence

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from fedawe.core.palette import looks
from fedawe.report.plots.style import figure, line
from fedawe.results.curves import curve
from fedawe.results.folder import Experiment, display_name
from fedawe.results.metrics import METRICS, Metric, metrics_of
from fedawe.results.participation import by_class
from fedawe.results.standings import Comparison, compare, window_words


def _draw(
    ax: Axes, experiment: Experiment, metric: Metric, labels: Sequence[str], bands: Sequence[str]
) -> dict[str, float]:
    """Mean curves over complete runs and bands of one standard deviation; returns where each curve ends."""
    styles, ends = looks(experiment.labels), {}
    for label in labels:
        found = curve(experiment.complete(label), metric.name)
        if found is None:
            continue
        scale = 100 if metric.share else 1
        mean, std = scale * found.mean, scale * found.std
        ax.plot(found.rounds, mean, label=display_name(label), **line(styles[label]))
        if label in bands and len(found.seeds) > 1:
            ax.fill_between(found.rounds, mean - std, mean + std, color=styles[label].light, alpha=0.15, linewidth=0)
        ends[label] = float(mean[-1])
    ax.set_xlabel("round")
    ax.set_ylabel(metric.heading)
    ax.margins(x=0)
    return ends


def accuracy_figure(experiment: Experiment) -> Figure:
    """The metric that decides, over the rounds: every algorithm, labelled at its end; bands for FedAWE and FedAvg."""
    comparison = compare(experiment)
    metric, strong = comparison.metric, [experiment.the("fedawe"), experiment.the("fedavg")]
    with figure(3.1) as (made, ax):
        ends = _draw(ax, experiment, metric, experiment.labels, [label for label in strong if label is not None])
        if ends:
            _label_ends(ax, comparison, ends)
            seeds = max(len(standing.values) for standing in comparison.standings)
            band = "; bands: ± standard deviation, FedAWE and FedAvg only" if seeds > 1 else ""
            ax.set_title(f"mean over {seeds} seed{'' if seeds == 1 else 's'}{band}", loc="left")
            made.text(0.995, 0.005, f"numbers: {window_words(comparison)}", ha="right", va="bottom", fontsize=6.5)
        else:
            ax.text(0.5, 0.5, "no run is complete", ha="center", transform=ax.transAxes)
    return made


def _label_ends(ax: Axes, comparison: Comparison, ends: Mapping[str, float]) -> None:
    """Each algorithm's name and window mean beside the end of its curve, in the order of the means."""
    metric, styles = comparison.metric, looks(comparison.experiment.labels)
    scale = 100 if metric.share else 1
    finals = {s.label: scale * s.mean for s in comparison.standings if not s.latest and s.mean is not None}
    low, high = interesting_range(list(finals.values()), metric)
    ax.set_ylim(low, high)
    spots = _apart([finals[label] for label in ends], 0.058 * (high - low), low, high)
    for (label, end), spot in zip(ends.items(), spots, strict=True):
        number = f"{finals[label]:.1f}" if metric.share else f"{finals[label]:.3g}"
        look = styles[label]
        ax.annotate(
            f"{display_name(label)} {number}",
            xy=(1.0, (min(max(end, low), high) - low) / (high - low)),
            xycoords="axes fraction",
            xytext=(1.05, (spot - low) / (high - low)),
            color=look.light,
            fontweight="bold" if look.strong else "normal",
            va="center",
            arrowprops={"arrowstyle": "-", "color": look.light, "linewidth": 0.5, "shrinkB": 0, "relpos": (0, 0.5)},
            annotation_clip=False,
        )


def interesting_range(finals: Sequence[float], metric: Metric) -> tuple[float, float]:
    """The range in which the end of the race is seen; a curve may begin outside of it."""
    spread = max(max(finals) - min(finals), 4.0 if metric.share else 1e-9)
    if metric.share:
        return max(0.0, min(finals) - 1.5 * spread), min(100.0, max(finals) + 0.4 * spread)
    return max(0.0, min(finals) - 0.4 * spread), max(finals) + 1.5 * spread


def _apart(values: Sequence[float], gap: float, low: float, high: float) -> list[float]:
    """Places for labels near their values, at least a gap from each other.

    >>> _apart([1.0, 1.0, 3.0], 0.5, 0.0, 4.0)
    [0.75, 1.25, 3.0]
    """
    order = np.argsort(values, kind="stable")
    spots = np.array(values, dtype=np.float64)[order]
    for _ in range(200):
        close = np.flatnonzero(np.diff(spots) < gap - 1e-9)
        if not len(close):
            break
        for n in close:
            push = (gap - (spots[n + 1] - spots[n])) / 2
            spots[n] -= push
            spots[n + 1] += push
        spots += max(0.0, low - spots[0]) - max(0.0, spots[-1] - high)
    out = np.empty(len(spots))
    out[order] = spots
    return [float(spot) for spot in out.round(9)]


def training_figure(experiment: Experiment) -> Figure | None:
    """Training loss and test accuracy side by side, FedAWE, FedAvg and MIFA, as in the paper's figure 7."""
    shown = [label for name in ("fedawe", "fedavg", "mifa") if (label := experiment.the(name)) is not None]
    by_name = {metric.name: metric for metric in metrics_of(experiment)}
    if not {"train_loss", "test_accuracy"} <= set(by_name) or not any(experiment.complete(label) for label in shown):
        return None
    with figure(2.2, columns=2) as (made, (left, right)):
        _draw(left, experiment, by_name["train_loss"], shown, shown)
        left.set_yscale("log")
        _draw(right, experiment, by_name["test_accuracy"], shown, shown)
        right.legend(loc="lower right")
    return made


def difference_figure(experiment: Experiment) -> Figure | None:
    """Paired differences to FedAvg with their 95 % intervals, the best on top."""
    comparison = compare(experiment)
    rows = [s for s in comparison.standings if s.difference is not None]
    if not rows or comparison.reference is None:
        return None
    scale, styles = (100 if comparison.metric.share else 1), looks(experiment.labels)
    with figure(0.6 + 0.24 * len(rows)) as (made, ax):
        for place, standing in enumerate(rows):
            d, look = standing.difference, styles[standing.label]
            assert d is not None
            if d.low is not None and d.high is not None:
                ax.plot([scale * d.low, scale * d.high], [place, place], color=look.light, linewidth=1.6)
            filled = look.light if d.sign else "white"
            ax.plot(scale * d.mean, place, "o", markersize=5, markeredgecolor=look.light, markerfacecolor=filled)
        ax.axvline(0, color="#555555", linewidth=0.8, zorder=1)
        ax.set_yticks(range(len(rows)), [standing.name for standing in rows])
        ax.invert_yaxis()
        ax.grid(axis="y", visible=False)
        unit = "points of " if comparison.metric.share else ""
        ax.set_xlabel(f"{unit}{comparison.metric.title} minus {display_name(comparison.reference)}'s; 95 % interval")
    return made


def class_figure(experiment: Experiment) -> Figure | None:
    """Accuracy class by class against how often the class was there: where a bias shows."""
    found, styles = by_class(experiment), looks(experiment.labels)
    if not found:
        return None
    with figure(2.6) as (made, ax):
        for label, view in found.items():
            x, y = 100 * view.availability.mean(0), 100 * view.accuracy.mean(0)
            ax.plot(x, y, marker="o", markersize=2.5, label=display_name(label), **line(styles[label]))
        ax.set(xlabel="how often a sample of the class was there (% of rounds)", ylabel=METRICS[0].heading)
        ax.legend(ncols=math.ceil(len(found) / 4), loc="lower right")
    return made
