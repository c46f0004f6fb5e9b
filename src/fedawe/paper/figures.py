"""The paper's figures 3 to 7 in the paper's layouts, and the numbers of figure 3 as a table."""

from collections.abc import Sequence
from pathlib import Path

import numpy as np
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter, LogLocator, NullLocator

from fedawe.availability.dynamics import DYNAMICS as KNOWN
from fedawe.availability.dynamics import InterleavedSine
from fedawe.availability.trace import Trace
from fedawe.core.describe import path_of
from fedawe.core.palette import LOOKS
from fedawe.experiments.build import experiment_of
from fedawe.paper.found import BySeed, Ran, metric_of, spread
from fedawe.paper.outcome import Outcome
from fedawe.paper.plan import ALGORITHMS, DYNAMICS, FIGURE3, NAMES, Plan, figure3_title
from fedawe.paper.readings import Evaluate
from fedawe.report.plots.style import figure, line
from fedawe.report.plots.traces import partition_figure, probability_figure
from fedawe.results.curves import curve, smoothed
from fedawe.results.folder import Clients, RunResult, RunSet
from fedawe.results.standings import paired
from fedawe.results.tables import Cell, Column, Table

SHOWN = (0.1, 0.5, 0.9)  # the probabilities of figure 6
COLOURS = ("#6b2c7d", "#2aa3d8", "#d55e00")
TITLES = {
    "stationary": "(a) stationary",
    "staircase": "(b) staircase",
    "sine": "(c) sine",
    "interleaved": "(d) interleaved sine",
}


def fig3(plan: Plan, ran: Sequence[Ran]) -> Outcome:
    """Figure 3: FedAvg for several p and γ, as a table, a figure and sentences."""
    return Outcome((table3(plan, ran),), (("fig3", figure3(ran)),), _changes(ran))


def table3(plan: Plan, ran: Sequence[Ran]) -> Table:
    """Test accuracy of FedAvg: a row for each p, the same for all clients, and a column for each γ."""
    by_title = {each.planned.title: each for each in ran}
    heads = (Column("p", ("p",)), *(Column(f"γ = {gamma:g}", (f"{gamma:g}", f"{gamma:g}_std")) for gamma in FIGURE3[1]))
    rows = []
    for p in FIGURE3[0]:
        cells = (spread(_windows(by_title.get(figure3_title(p, gamma)), "test_accuracy")) for gamma in FIGURE3[1])
        rows.append((Cell(f"{p:g}", (p,)), *cells))
    caption = f"figure 3, {plan.first}: test accuracy (%) of FedAvg over the last 50 rounds"
    return Table("fig3", caption, heads, tuple(rows), ("fedavg",) * len(rows))


def _changes(ran: Sequence[Ran]) -> tuple[str, ...]:
    """For each p, a sentence on the paired difference between the largest and the least γ.

    The paper's text gives this difference for the least p.
    """
    by_title, said = {each.planned.title: each for each in ran}, []
    least, largest = FIGURE3[1][0], FIGURE3[1][-1]
    for p in FIGURE3[0]:
        low, high = (_windows(by_title.get(figure3_title(p, gamma)), "test_accuracy") for gamma in (least, largest))
        difference = paired(high, low)
        if difference is not None:
            sure = "" if difference.low is None else f" (95 % interval {difference.low:+.1f} to {difference.high:+.1f})"
            said.append(
                f"p = {p:g}: from γ = {least:g} to γ = {largest:g} FedAvg's test accuracy changes by "
                f"{difference.mean:+.1f} points{sure}."
            )
    return tuple(said)


def figure3(ran: Sequence[Ran]) -> Figure:
    """Train and test accuracy of FedAvg against γ, one curve for each p, the same for all clients."""
    by_title = {each.planned.title: each for each in ran}
    with figure(2.3, columns=2, sharey=True) as (made, axes):
        for ax, part in zip(axes, ("train", "test"), strict=True):
            for place, (p, shade) in enumerate(zip(FIGURE3[0], np.linspace(0.1, 1.0, len(FIGURE3[0])), strict=True)):
                means, stds = [], []
                for gamma in FIGURE3[1]:
                    values = list(_windows(by_title.get(figure3_title(p, gamma)), f"{part}_accuracy").values())
                    means.append(np.mean(values) if values else np.nan)
                    stds.append(np.std(values, ddof=1) if len(values) > 1 else 0.0)
                colour = (0.84 * shade, 0.37 * shade, 0.75 * (1 - shade))
                x = np.array(FIGURE3[1]) + 0.012 * (place - 1.5)  # shifted, so that error bars do not hide each other
                ax.errorbar(x, means, stds, marker="o", markersize=3, capsize=2, color=colour, label=f"p = {p:g}")
            ax.set(xlabel="γ", title=f"{part} accuracy (%)", xticks=FIGURE3[1])
        made.legend(*axes[0].get_legend_handles_labels(), loc="outside lower center", ncols=4)
    return made


def _windows(ran: Ran | None, name: str) -> BySeed:
    return {} if ran is None else ran.percent(name).get("fedavg", {})


def fig4(plan: Plan, _: Sequence[Ran]) -> Outcome:
    """Figure 4: a partition."""
    data = "cifar10" if "cifar10" in plan.datasets else plan.first
    made = partition_figure(_clients(plan, data, 20))
    return Outcome(figures=(("fig4", made),) if made is not None else ())


def fig5(plan: Plan, _: Sequence[Ran]) -> Outcome:
    """Figure 5: the base probabilities."""
    made = probability_figure(_clients(plan, plan.first, plan.preset.settings.clients or 100))
    return Outcome(figures=(("fig5", made),) if made is not None else ())


def _clients(plan: Plan, data: str, clients: int) -> RunSet:
    """A partition and its base probabilities, without runs."""
    changes = {"clients": clients, "rounds": 1, "keep_empty": True, "data": plan.data}
    population = experiment_of(plan.preset.on(data, "stationary", **changes)).population(0)
    sizes, frequencies = population.task.sizes, population.task.frequencies
    assert sizes is not None
    return RunSet(Path(), (), (), clients={0: Clients(sizes, frequencies, population.p)})


def fig6(_: Plan, __: Sequence[Ran]) -> Outcome:
    """Figure 6: the four dynamics."""
    return Outcome(figures=(("fig6", figure6()),))


def figure6(rounds: int = 80, seed: int = 1) -> Figure:
    """Trajectories p_i^t and sampled availability for three probabilities, one panel for each of the paper's dynamics.

    Panel (d) has gamma = 0.4 and a cut-off of 0.2, which is what the authors drew, not the 0.3 and 0.1 of their text.
    """
    p = np.array(SHOWN)
    with figure(4.3, rows=4, columns=2, sharex=True, height_ratios=(2, 1, 2, 1)) as (made, axes):
        for place, name in enumerate(DYNAMICS):
            rule = InterleavedSine(gamma=0.4, cutoff=0.2) if name == "interleaved" else KNOWN[name]()
            trace = Trace.draw(rule, p, rounds, seed)
            assert trace.p is not None
            top, bottom = axes[place // 2 * 2][place % 2], axes[place // 2 * 2 + 1][place % 2]
            for row, (chance, colour) in enumerate(zip(SHOWN, COLOURS, strict=True)):
                top.step(
                    range(rounds), trace.p[:, row], where="post", color=colour, linewidth=1.0, label=f"$p$ = {chance}"
                )
                active = np.flatnonzero(trace.on[:, row])
                bottom.eventplot(active, lineoffsets=row, linelengths=0.8, linewidths=1.2, colors=colour)
            top.set(title=TITLES[name], ylim=(-0.02, 1), xlim=(-0.5, rounds - 0.5))
            bottom.set_ylim(-0.6, 2.6)  # the same for all panels, even if a client is never available
            bottom.set_yticks(range(3), [str(chance) for chance in SHOWN])
            bottom.grid(visible=False)
        made.legend(*axes[0][0].get_legend_handles_labels(), loc="outside lower center", ncols=3)
        for ax in axes[3]:
            ax.set_xlabel("round")
    return made


def fig7(plan: Plan, ran: Sequence[Ran]) -> Outcome:
    """Figure 7: training curves under sine."""
    return Outcome(figures=(("fig7", figure7(ran, plan.readings.evaluate)),))


def figure7(ran: Sequence[Ran], evaluate: Evaluate = "mean") -> Figure:
    """Train loss, logarithmic, and test accuracy over the rounds: FedAWE, FedAvg, MIFA; a data set for each experiment.

    The first data set appears twice, raw and with FedAWE's curve smoothed (a moving average with 0.99), the others
    smoothed. Losses are true means; the paper's axis shows them divided by about 256 (docs/algorithms.md). Runs that
    were evaluated on the test data alone show their test loss.
    """
    panels = [(ran[0], False), *((each, True) for each in ran)]
    with figure(1.7 * len(panels), rows=len(panels), columns=2) as (made, axes):
        for (each, smooth), row in zip(panels, np.atleast_2d(axes), strict=True):
            loss = _loss(each)
            for ax, name, scale in zip(row, (loss, "test_accuracy"), (1, 100), strict=True):
                for kind, runs in _complete(each).items():
                    ours = curve(runs, metric_of(name, evaluate, kind))
                    if ours is not None:
                        shown = smoothed(ours) if smooth and kind == "fedawe" else ours
                        look = LOOKS[path_of(ALGORITHMS[kind])]
                        ax.plot(shown.rounds, scale * shown.mean, label=NAMES[kind], **line(look))
                ax.margins(x=0)
                ax.set_title(f"{each.planned.data}, {'FedAWE smoothed' if smooth else 'raw'}", loc="left")
            row[0].set(ylabel=loss.replace("_", " "), yscale="log")
            # Ticks only at 1, 2 and 5, because the labels of 0.8, 0.9 and 1 would overlap.
            row[0].yaxis.set_major_locator(LogLocator(subs=(1, 2, 5)))
            row[0].yaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
            row[0].yaxis.set_minor_locator(NullLocator())
            row[1].set(ylabel="test accuracy (%)")
        for ax in np.atleast_2d(axes)[-1]:
            ax.set_xlabel("round")
        if np.atleast_2d(axes)[0][0].lines:
            np.atleast_2d(axes)[0][0].legend()
    return made


def _complete(ran: Ran) -> dict[str, list[RunResult]]:
    """The complete runs of the algorithms of figure 7, by algorithm."""
    found = {kind: ran.planned.variant(kind) for kind in ("fedawe", "fedavg", "mifa")}
    return {kind: ran.complete(variant) for kind, variant in found.items() if variant is not None}


def _loss(ran: Ran) -> str:
    """The name of the loss on the training data, or on the test data if no run was evaluated on the training data."""
    lines = [line for runs in _complete(ran).values() for run in runs for line in run.record.evaluations[:1]]
    return "test_loss" if lines and not any("train_loss" in line for line in lines) else "train_loss"
