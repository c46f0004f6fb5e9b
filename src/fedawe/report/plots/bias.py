"""A figure of the bias: the influence of each client, and the metric on rarely and often available classes."""

import numpy as np
from matplotlib.figure import Figure

from fedawe.core.palette import looks
from fedawe.report.influence import influences_of
from fedawe.report.plots.style import USUAL, Size, figure, line, literal
from fedawe.results.participation import by_class
from fedawe.results.standings import Comparison


def bias_figure(comparison: Comparison, size: Size = USUAL) -> Figure | None:
    """Left: the influence of each client, from the trace. Right: the metric on rarely and often available classes."""
    runs, found = comparison.runs, by_class(comparison)
    audited, styles = influences_of(runs), looks(runs.kinds)
    if audited is None or not found:
        return None
    order = np.argsort(audited.rates, kind="stable")
    with figure(2.6, columns=2, size=size) as (made, (left, right)):
        for label, influence in audited.influences.items():
            strong = label in comparison.emphasised
            left.plot(influence.fair[order], label=literal(runs.names[label]), **line(styles[label], strong))
        left.axhline(1, color="#555555", linewidth=0.8, linestyle=(0, (4, 3)), zorder=1)
        left.set(xlabel="clients, the least available first", ylabel="influence / fair share", ylim=(0, None))
        metric = next(iter(found.values())).metric
        scale = 100 if metric.share else 1
        halves = {label: [scale * float(half.mean()) for half in view.halves()] for label, view in found.items()}
        rows = sorted(halves, key=lambda label: halves[label][0], reverse=metric.better != "lower")
        for place, label in enumerate(rows):
            rare, often = halves[label]
            colour = styles[label].light
            right.plot([rare, often], [place, place], color=colour, linewidth=1.2)
            right.plot(
                rare, place, "o", color=colour, markersize=5, label="classes rarely available" if not place else ""
            )
            right.plot(often, place, "o", markeredgecolor=colour, markerfacecolor="white", markersize=5)
        right.set_yticks(range(len(rows)), [literal(runs.names[label]) for label in rows])
        right.set_ylim(len(rows) - 0.5, -0.5)
        right.grid(axis="y", visible=False)
        right.set_xlabel(f"{literal(metric.heading)}: classes rarely (●)\nand often (○) available")
        made.legend(*left.get_legend_handles_labels(), loc="outside lower center", ncols=4)
    return made
