"""Figures of clients and their availability: partition, probabilities, availability over time, staleness."""

import numpy as np
import numpy.typing as npt
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter, MaxNLocator

from fedawe.report.plots.style import BLUE, USUAL, Size, figure
from fedawe.results.folder import Array, RunSet
from fedawe.results.participation import echo_counts, staleness_counts, total_counts

NEAR = 10  # rounds over which the availability in a recorded trace is averaged


def partition_figure(runs: RunSet, size: Size = USUAL, clients: int = 20) -> Figure | None:
    """The numbers of samples of each class for the first clients of the first seed, as in the paper's figure 4."""
    seed = next((seed for seed, c in runs.clients.items() if c.frequencies is not None), None)
    if seed is None:
        return None
    found = runs.clients[seed]
    assert found.frequencies is not None
    counts = (found.frequencies * found.sizes[:, None])[:clients]  # [m, C]
    with figure(2.4, size=size) as (made, ax):
        client, label = np.nonzero(counts > 0.5)
        area = counts[client, label] / max(counts.max(), 1)
        ax.scatter(client, label, s=110 * area, color=BLUE, alpha=0.75, linewidth=0)
        ax.set(xlabel="client", ylabel="class", xticks=range(len(counts)), yticks=range(counts.shape[1]))
    return made


def probability_figure(runs: RunSet, size: Size = USUAL) -> Figure | None:
    """A histogram of the base probabilities p_i, as in the paper's figure 5."""
    found = [clients.p for clients in runs.clients.values() if clients.p is not None]
    if not found:
        return None
    with figure(1.9, size=size) as (made, ax):
        ax.hist(np.concatenate(found), bins=np.linspace(0, 1, 21), color=BLUE, edgecolor="white", linewidth=0.6)
        ax.set(xlabel="base probability $p_i$", ylabel=f"clients ({len(found)} seeds)" if len(found) > 1 else "clients")
        ax.set_xlim(0, 1)
        ax.grid(axis="x", visible=False)
    return made


def availability_figure(runs: RunSet, size: Size = USUAL, rounds: int = 80) -> Figure | None:
    """The probabilities of three clients over time and their available rounds, as in the paper's figure 6."""
    trace = next(iter(runs.traces.values()), None)
    if trace is None:
        return None
    order = np.argsort(trace.on.mean(0), kind="stable")
    places = (int(q * (trace.clients - 1)) for q in (0.1, 0.5, 0.9))
    shown = list(dict.fromkeys(int(order[place]) for place in places))  # fewer than three if there are few clients
    span = min(rounds, trace.rounds)
    with figure(2.6, rows=2, sharex=True, height_ratios=(2, 1), size=size) as (made, (top, bottom)):
        for place, (client, colour) in enumerate(zip(shown, ("#6b2c7d", "#2aa3d8", "#d55e00"), strict=False)):
            chance = trace.p[:, client] if trace.p is not None else _shares(trace.on[:, client])
            top.plot(chance[:span], color=colour, linewidth=1.2, label=f"client {client}")
            available = np.flatnonzero(trace.on[:span, client])
            bottom.eventplot(available, lineoffsets=place, linelengths=0.8, linewidths=1.6, colors=colour)
        top.set(ylabel="probability" if trace.p is not None else f"share of {NEAR} rounds", ylim=(0, 1.02))
        top.legend(loc="upper right", ncols=3)
        bottom.set_yticks(range(len(shown)), [f"client {client}" for client in shown])
        bottom.grid(visible=False)
        bottom.set(xlabel="round", xlim=(-0.5, span - 0.5))
    return made


def _shares(on: npt.NDArray[np.bool_]) -> Array:
    """The share of available rounds among those near each round [T]; at both ends there are fewer than `NEAR`.

    >>> _shares(np.array([True] * 5 + [False] * 5)).round(2).tolist()
    [1.0, 0.83, 0.71, 0.62, 0.56, 0.5, 0.44, 0.38, 0.29, 0.17]
    """
    ones = np.ones(min(NEAR, len(on)))
    return np.asarray(np.convolve(on, ones, "same") / np.convolve(np.ones(len(on)), ones, "same"))


def stripes_figure(runs: RunSet, size: Size = USUAL) -> Figure | None:
    """The available rounds of each client, one row per client, the most available on top."""
    trace = next(iter(runs.traces.values()), None)
    if trace is None:
        return None
    order = np.argsort(-trace.on.mean(0), kind="stable")
    with figure(2.8, size=size) as (made, ax):
        trace.plot(ax, clients=order.tolist())
        ax.set_ylabel("client, the most available on top")
        ax.set_yticks([])
        ax.grid(visible=False)
    return made


def staleness_figure(runs: RunSet, size: Size = USUAL) -> Figure | None:
    """Histograms of the echo of active clients, and of the age of the models that clients hold."""
    traces = list(runs.traces.values())
    if not traces:
        return None
    with figure(2.0, columns=2, size=size) as (made, axes):
        for ax, count, words in zip(
            axes,
            (echo_counts, staleness_counts),
            ("rounds since an active client was last active", "age of the model that a client holds"),
            strict=True,
        ):
            values = total_counts([count(trace) for trace in traces])
            ax.bar(np.arange(1, len(values)), values[1:] / values.sum(), width=1.0, color=BLUE)
            ax.set(xlabel=words, yscale="log")
            ax.yaxis.set_major_formatter(FuncFormatter(lambda share, _: f"{100 * share:g} %"))
            ax.xaxis.set_major_locator(MaxNLocator(6, integer=True))
    return made
