"""Figures of results: curves, differences, classes. They have no titles, which belong in the caption of a paper."""

import math
import textwrap
from collections.abc import Mapping, Sequence

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from fedawe.core.metric import Metric
from fedawe.core.palette import looks
from fedawe.report.plots.style import MARKERS, USUAL, Size, figure, line, literal
from fedawe.results.curves import Curve, curve, logarithmic
from fedawe.results.metrics import metrics_of
from fedawe.results.participation import by_class
from fedawe.results.standings import Comparison


def _draw(ax: Axes, comparison: Comparison, metric: Metric) -> dict[str, float]:
    """Draw mean curves over complete runs with bands of one standard deviation; returns the last value of each."""
    runs, strong = comparison.runs, comparison.emphasised
    styles, found = looks(runs.kinds), dict[str, Curve]()
    for label in runs.labels:
        drawn = curve(runs.complete(label), metric.name)
        if drawn is not None and len(drawn.rounds):
            found[label] = drawn
    scale = 100 if metric.share else 1
    log = logarithmic(metric, list(found.values()))
    if log:
        ax.set_yscale("log")
    least = min((float(drawn.mean.min()) for drawn in found.values()), default=0.0) / 2
    for label, drawn in found.items():
        mean, std, look = scale * drawn.mean, scale * drawn.std, styles[label]
        ax.plot(drawn.rounds, mean, label=literal(runs.names[label]), **line(look, label in strong))
        if len(drawn.seeds) > 1:
            low = np.maximum(mean - std, least) if log else mean - std  # a logarithmic axis has no zero
            ax.fill_between(drawn.rounds, low, mean + std, color=look.light, alpha=0.12, linewidth=0)
    ax.set_xlabel("round")
    ax.set_ylabel(literal(textwrap.fill(metric.heading, 26)))
    ax.margins(x=0)
    return {label: scale * float(drawn.mean[-1]) for label, drawn in found.items()}


def curve_figure(comparison: Comparison, size: Size = USUAL) -> Figure:
    """The metric that is compared over the rounds, with every algorithm named at the end of its curve."""
    with figure(3.1, size=size) as (made, ax):
        ends = _draw(ax, comparison, comparison.metric)
        if ends:
            _label_ends(made, ax, comparison, ends, size)
        else:
            ax.text(0.5, 0.5, "no run is complete", ha="center", transform=ax.transAxes)
    return made


def _label_ends(made: Figure, ax: Axes, comparison: Comparison, ends: Mapping[str, float], size: Size) -> None:
    """Write the name of each algorithm beside the end of its curve."""
    runs, strong, styles = comparison.runs, comparison.emphasised, looks(comparison.runs.kinds)
    ax.autoscale_view()  # sets the limits of the axes, which the next line reads
    places = [ax.transAxes.inverted().transform(ax.transData.transform((0, end)))[1] for end in ends.values()]
    line_height = 1.3 * size.font / 72 / (0.8 * made.get_figheight())  # in units of the axes: 0.8 of the figure
    spots = _apart(places, line_height, 0.0, 1.0)
    for label, place, spot in zip(ends, places, spots, strict=True):
        look = styles[label]
        ax.annotate(
            literal(runs.names[label]),
            xy=(1.0, place),
            xycoords="axes fraction",
            xytext=(1.05, spot),
            color=look.light,
            fontweight="bold" if label in strong else "normal",
            va="center",
            arrowprops={"arrowstyle": "-", "color": look.light, "linewidth": 0.5, "shrinkB": 0, "relpos": (0, 0.5)},
            annotation_clip=False,
        )


def _apart(values: Sequence[float], gap: float, low: float, high: float) -> list[float]:
    """Positions of labels near their values, at least `gap` from each other.

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


def metrics_figure(comparison: Comparison, size: Size = USUAL) -> Figure | None:
    """All metrics that have a direction, in two columns; None if there are fewer than two."""
    runs = comparison.runs
    shown = [metric for metric in metrics_of(runs) if metric.better is not None]
    if len(shown) < 2 or not any(runs.complete(label) for label in runs.labels):
        return None
    rows = math.ceil(len(shown) / 2)
    with figure(1.8 * rows + 0.3, rows=rows, columns=2, squeeze=False, size=size) as (made, axes):
        for metric, ax in zip(shown, axes.flat, strict=False):
            _draw(ax, comparison, metric)
        for ax in axes.flat[len(shown) :]:
            ax.set_visible(False)
        made.legend(*axes[0][0].get_legend_handles_labels(), loc="outside lower center", ncols=4)
    return made


def difference_figure(comparison: Comparison, size: Size = USUAL) -> Figure | None:
    """Paired differences to the baseline with their 95 % intervals, the best on top; filled where significant."""
    rows = [s for s in comparison.standings if s.difference is not None]
    if not rows or comparison.baseline is None:
        return None
    metric, styles = comparison.metric, looks(comparison.runs.kinds)
    scale = 100 if metric.share else 1
    with figure(0.6 + 0.24 * len(rows), size=size) as (made, ax):
        for place, standing in enumerate(rows):
            d, look = standing.difference, styles[standing.label]
            assert d is not None
            if d.low is not None and d.high is not None:
                ax.plot([scale * d.low, scale * d.high], [place, place], color=look.light, linewidth=1.6)
            filled = look.light if d.sign else "white"
            ax.plot(scale * d.mean, place, "o", markersize=5, markeredgecolor=look.light, markerfacecolor=filled)
        ax.axvline(0, color="#555555", linewidth=0.8, zorder=1)
        ax.set_yticks(range(len(rows)), [literal(standing.name) for standing in rows])
        ax.set_ylim(len(rows) - 0.5, -0.5)
        ax.grid(axis="y", visible=False)
        unit = " (points)" if metric.share else f" ({metric.unit})" if metric.unit else ""
        ax.set_xlabel(literal(f"{metric.title} minus {comparison.runs.names[comparison.baseline]}'s{unit}"))
    return made


def class_figure(comparison: Comparison, size: Size = USUAL) -> Figure | None:
    """A metric of each class against the availability of the class, which shows a bias."""
    found, styles = by_class(comparison), looks(comparison.runs.kinds)
    if not found:
        return None
    with figure(2.8, size=size) as (made, ax):
        for n, (label, view) in enumerate(found.items()):
            scale, strong = 100 if view.metric.share else 1, label in comparison.emphasised
            x, y = 100 * view.availability.mean(0), scale * view.values.mean(0)
            look = {"color": styles[label].light, "marker": MARKERS[n % len(MARKERS)], "linestyle": "none"}
            name = literal(comparison.runs.names[label])
            ax.plot(x, y, label=name, markersize=5 if strong else 3.5, zorder=5 if strong else 3, **look)
        heading = next(iter(found.values())).metric.heading
        ax.set(xlabel="availability of the class (% of rounds)", ylabel=literal(heading))
        made.legend(loc="outside lower center", ncols=4)
    return made
