"""The paper's figures in the paper's layouts."""

from collections.abc import Mapping, Sequence

import numpy as np
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter, LogLocator, NullLocator

from fedawe.availability.dynamics import DYNAMICS, InterleavedSine
from fedawe.availability.trace import Trace
from fedawe.core.palette import LOOKS
from fedawe.paper.example1 import MEAN, Cell
from fedawe.paper.plan import DYNAMICS as OF_TABLE_2
from fedawe.paper.plan import FIGURE3, Evaluate
from fedawe.paper.tables import metric_of
from fedawe.report.plots.style import figure, line
from fedawe.results.curves import curve, smoothed
from fedawe.results.folder import NAMES, Experiment, algorithm
from fedawe.results.standings import window_mean

SHOWN = (0.1, 0.5, 0.9)  # the probabilities of figure 6
COLOURS = ("#6b2c7d", "#2aa3d8", "#d55e00")
TITLES = {
    "stationary": "(a) stationary",
    "staircase": "(b) staircase",
    "sine": "(c) sine",
    "interleaved": "(d) interleaved sine",
}


def figure2(cells: Sequence[Cell]) -> Figure:
    """Heat maps over (p1, p2): FedAvg run, FedAvg in closed form, FedAWE run."""
    side = round(len(cells) ** 0.5)
    panels = {
        "FedAvg, run": [abs(cell.fedavg - MEAN) for cell in cells],
        "FedAvg, closed form": [cell.exact for cell in cells],
        "FedAWE (x̄), run": [abs(cell.fedawe - MEAN) for cell in cells],
    }
    with figure(2.1, columns=3, sharey=True) as (made, axes):
        for ax, (title, values) in zip(axes, panels.items(), strict=True):
            grid = np.array(values).reshape(side, side).T  # p1 to the right, p2 upwards
            edge = (0.5 / side, 1 + 0.5 / side)
            image = ax.imshow(grid, origin="lower", extent=(*edge, *edge), vmin=0, vmax=50, cmap="viridis")
            ax.set(title=title, xlabel="$p_1$", xticks=(0.5, 1), yticks=(0.5, 1))
            ax.grid(visible=False)
        axes[0].set_ylabel("$p_2$")
        made.colorbar(image, ax=axes, label="$|x_{output} - x^*|$", shrink=0.9)
    return made


def figure3(experiments: Mapping[tuple[float, float], Experiment | None]) -> Figure:
    """Train and test accuracy of FedAvg against gamma, one curve for each p that all clients share."""
    with figure(2.3, columns=2, sharey=True) as (made, axes):
        for ax, part in zip(axes, ("train", "test"), strict=True):
            for place, (p, shade) in enumerate(zip(FIGURE3[0], np.linspace(0.1, 1.0, len(FIGURE3[0])), strict=True)):
                means, stds = [], []
                for gamma in FIGURE3[1]:
                    values = _windows(experiments.get((p, gamma)), f"{part}_accuracy")
                    means.append(np.mean(values) if values else np.nan)
                    stds.append(np.std(values, ddof=1) if len(values) > 1 else 0.0)
                colour = (0.84 * shade, 0.37 * shade, 0.75 * (1 - shade))
                x = np.array(FIGURE3[1]) + 0.012 * (place - 1.5)  # side by side, so that all bars are seen
                ax.errorbar(x, means, stds, marker="o", markersize=3, capsize=2, color=colour, label=f"p = {p:g}")
            ax.set(xlabel="γ", title=f"{part} accuracy (%)", xticks=FIGURE3[1])
        made.legend(*axes[0].get_legend_handles_labels(), loc="outside lower center", ncols=4)
    return made


def _windows(experiment: Experiment | None, name: str) -> list[float]:
    runs = experiment.complete("fedavg") if experiment is not None else []
    return [100 * float(mean) for run in runs if (mean := window_mean(run, name)) is not None]


def figure6(rounds: int = 80, seed: int = 1) -> Figure:
    """Trajectories p_i^t and sampled availability for three probabilities, one panel for each of the paper's dynamics.

    Panel (d) has gamma = 0.4 and a cut-off of 0.2, which is what the authors drew, not the 0.3 and 0.1 of their text.
    """
    p = np.array(SHOWN)
    with figure(4.3, rows=4, columns=2, sharex=True, height_ratios=(2, 1, 2, 1)) as (made, axes):
        for place, name in enumerate(OF_TABLE_2):
            rule = InterleavedSine(gamma=0.4, cutoff=0.2) if name == "interleaved" else DYNAMICS[name]()
            trace = Trace.draw(rule, p, rounds, seed)
            assert trace.p is not None
            top, bottom = axes[place // 2 * 2][place % 2], axes[place // 2 * 2 + 1][place % 2]
            for row, (chance, colour) in enumerate(zip(SHOWN, COLOURS, strict=True)):
                top.step(
                    range(rounds), trace.p[:, row], where="post", color=colour, linewidth=1.0, label=f"$p$ = {chance}"
                )
                there = np.flatnonzero(trace.on[:, row])
                bottom.eventplot(there, lineoffsets=row, linelengths=0.8, linewidths=1.2, colors=colour)
            top.set(title=TITLES[name], ylim=(-0.02, 1), xlim=(-0.5, rounds - 0.5))
            bottom.set_ylim(-0.6, 2.6)  # the same for all, though somebody may never be there
            bottom.set_yticks(range(3), [str(chance) for chance in SHOWN])
            bottom.grid(visible=False)
        made.legend(*axes[0][0].get_legend_handles_labels(), loc="outside lower center", ncols=3)
        for ax in axes[3]:
            ax.set_xlabel("round")
    return made


def figure7(
    experiments: Mapping[str, Experiment | None], labels: Mapping[str, Sequence[str]], evaluate: Evaluate = "mean"
) -> Figure:
    """Train loss, logarithmic, and test accuracy over the rounds: FedAWE, FedAvg, MIFA.

    The first data set appears twice, raw and with FedAWE's curve smoothed (a moving average with 0.99), the others
    smoothed. Losses are true means; the paper's axis shows them divided by about 256 (docs/algorithms.md).
    """
    data = list(experiments)
    panels = [(data[0], False), *((each, True) for each in data)]
    with figure(1.7 * len(panels), rows=len(panels), columns=2) as (made, axes):
        for (each, smooth), row in zip(panels, np.atleast_2d(axes), strict=True):
            for ax, name, scale in zip(row, ("train_loss", "test_accuracy"), (1, 100), strict=True):
                for label in labels[each]:
                    kind, experiment = algorithm(label), experiments[each]
                    ours = (
                        None
                        if experiment is None
                        else curve(experiment.complete(label), metric_of(name, evaluate, label))
                    )
                    if kind in ("fedawe", "fedavg", "mifa") and ours is not None:
                        shown = smoothed(ours) if smooth and kind == "fedawe" else ours
                        ax.plot(shown.rounds, scale * shown.mean, label=NAMES[kind], **line(LOOKS[kind]))
                ax.margins(x=0)
                ax.set_title(f"{each}, {'FedAWE smoothed' if smooth else 'raw'}", loc="left")
            row[0].set(ylabel="train loss", yscale="log")
            # Named where labels have room: 0.8, 0.9 and 1 would stand on each other.
            row[0].yaxis.set_major_locator(LogLocator(subs=(1, 2, 5)))
            row[0].yaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
            row[0].yaxis.set_minor_locator(NullLocator())
            row[1].set(ylabel="test accuracy (%)")
        for ax in np.atleast_2d(axes)[-1]:
            ax.set_xlabel("round")
        if np.atleast_2d(axes)[0][0].lines:
            np.atleast_2d(axes)[0][0].legend()
    return made
