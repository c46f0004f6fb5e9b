"""Figure 2: where two clients with the optima 0 and 100 end up, for every pair of probabilities.

For FedAvg the expected end is known in closed form: its distance from the mean 50 is 50 |p1 - p2| / (p1 + p2 - p1 p2).
FedAWE's model x-bar is unbiased for every pair. The runs here are real ones, of the same Algorithm objects as
everywhere; their mean over rounds has a Monte Carlo error, which is estimated and stated.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch

from fedawe.algorithms import Algorithm, FedAvg, FedAWE
from fedawe.availability import Array, Stationary
from fedawe.rng import rng
from fedawe.trace import Trace

OPTIMA = (0.0, 100.0)
MEAN = 50.0
STEP = 0.05  # the share of the way to its own optimum that a client goes in a round: s steps of rate eta_l in one
PARTS = 20  # of the second half of a run, for the standard error of its mean


def closed_form(p1: Array, p2: Array) -> Array:
    """|E[x_output] - 50| of FedAvg over active clients.

    >>> closed_form(np.array([0.9]), np.array([0.3])).round(3).tolist()    # E[x_output] = 17.742
    [32.258]
    """
    return np.asarray(50 * np.abs(p1 - p2) / (p1 + p2 - p1 * p2))


@dataclass(frozen=True)
class Cell:
    """One pair of probabilities: the mean model of the second half of the run, and its standard error."""

    p1: float
    p2: float
    fedavg: float
    fedavg_error: float
    fedawe: float
    fedawe_error: float

    @property
    def exact(self) -> float:
        """FedAvg's distance in closed form."""
        return float(closed_form(np.array([self.p1]), np.array([self.p2]))[0])


def probabilities(cells: int) -> Array:
    """`cells` values up to 1; 0 is left out, where nobody ever comes.

    >>> probabilities(4).tolist()
    [0.25, 0.5, 0.75, 1.0]
    """
    return np.asarray(np.arange(1, cells + 1) / cells)


def heat_map(cells: int, rounds: int, seed: int = 0) -> Iterator[Cell]:
    """Every pair of `cells` x `cells` probabilities, row by row."""
    values = probabilities(cells).tolist()
    for row, p1 in enumerate(values):
        for column, p2 in enumerate(values):
            own = int(rng(seed, "pair", row, column).integers(2**31))  # pairs are independent of each other
            trace = Trace.draw(Stationary(), np.array([p1, p2]), rounds, own)
            fedavg, fedavg_error = _mean_after(FedAvg(), trace)
            fedawe, fedawe_error = _mean_after(FedAWE(), trace)
            yield Cell(p1, p2, fedavg, fedavg_error, fedawe, fedawe_error)


def _mean_after(algorithm: Algorithm[Any], trace: Trace) -> tuple[float, float]:
    """The mean of the model over the second half of the rounds, and its standard error from the means of its parts."""
    optima = torch.tensor(OPTIMA, dtype=torch.float64)[:, None]
    state = algorithm.init(torch.full((1,), MEAN, dtype=torch.float64), 2)
    models = np.empty(trace.rounds)
    for t in range(trace.rounds):
        A = trace.active(t)
        G = STEP * (algorithm.start(state, A) - optima[A])  # the way towards one's own optimum   [k, 1]
        state = algorithm.aggregate(state, t, A, G)
        models[t] = float(algorithm.model(state))
    second = models[trace.rounds // 2 :]
    parts = np.array([part.mean() for part in np.array_split(second, PARTS)])
    return float(second.mean()), float(parts.std(ddof=1) / PARTS**0.5)
