"""Figure 2: the final model of two clients with the optima 0 and 100, for every pair of probabilities.

For FedAvg its expectation has a closed form: the distance from the mean 50 is 50 |p1 - p2| / (p1 + p2 - p1 p2).
FedAWE's model x-bar is unbiased for every pair. Both are simulated with the Algorithm objects of this package. The mean
over rounds has a Monte Carlo error, which is computed exactly for FedAvg and estimated for FedAWE.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch

from fedawe.algorithms import Algorithm, FedAvg, FedAWE
from fedawe.availability.dynamics import Array, Stationary
from fedawe.availability.trace import Trace
from fedawe.core.rng import rng

OPTIMA = (0.0, 100.0)
MEAN = 50.0
STEP = 0.05  # part of the distance to its own optimum that a client covers in a round, for all its local steps
PARTS = 20  # parts of the second half of a run, for the standard error of FedAWE's mean


def closed_form(p1: Array, p2: Array) -> Array:
    """|E[x_output] - 50| of FedAvg over active clients.

    >>> closed_form(np.array([0.9]), np.array([0.3])).round(3).tolist()    # E[x_output] = 17.742
    [32.258]
    """
    return np.asarray(50 * np.abs(p1 - p2) / (p1 + p2 - p1 * p2))


def standard_error(p1: float, p2: float, rounds: int) -> float:
    """The standard error of the mean of FedAvg's model over this many rounds, in the stationary state.

    With b = STEP, q = P(a client is active) and u the mean optimum of the active clients: x' - Ex = (1 - b)(x - Ex) +
    b (u - Ex) in such a round and x' = x otherwise, so Var x = b E[(u - Ex)^2; a client is active] / (q (2 - b)), and
    the correlation of two rounds is r = 1 - b q to the power of their distance.

    >>> round(standard_error(0.1, 0.1, 2000), 3)    # r = 0.9905: neighbouring rounds hardly differ
    2.455
    """
    q = p1 + p2 - p1 * p2
    r, x = 1 - STEP * q, 50 * p2 * (2 - p1) / q
    spread = p1 * (1 - p2) * x**2 + p2 * (1 - p1) * (100 - x) ** 2 + p1 * p2 * (50 - x) ** 2
    apart = np.arange(1, rounds)
    pairs = rounds + 2 * float(((rounds - apart) * r**apart).sum())
    return float((STEP * spread / (q * (2 - STEP)) * pairs) ** 0.5 / rounds)


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
    """`cells` values up to 1, without 0, with which no client is ever active.

    >>> probabilities(4).tolist()
    [0.25, 0.5, 0.75, 1.0]
    """
    return np.asarray(np.arange(1, cells + 1) / cells)


def heat_map(cells: int, rounds: int, seed: int = 0) -> Iterator[Cell]:
    """The results for all pairs of `cells` x `cells` probabilities, row by row."""
    values = probabilities(cells).tolist()
    for row, p1 in enumerate(values):
        for column, p2 in enumerate(values):
            own = int(rng(seed, "pair", row, column).integers(2**31))  # pairs are independent of each other
            trace = Trace.draw(Stationary(), np.array([p1, p2]), rounds, own)
            fedavg, fedawe = _second_half(FedAvg(), trace), _second_half(FedAWE(), trace)
            # Deviations of FedAWE's x-bar in successive parts partly cancel, so the estimated error is too large.
            parts = np.array([part.mean() for part in np.array_split(fedawe, PARTS)])
            error = float(parts.std(ddof=1) / PARTS**0.5)
            exact = standard_error(p1, p2, len(fedavg))
            yield Cell(p1, p2, float(fedavg.mean()), exact, float(fedawe.mean()), error)


def _second_half(algorithm: Algorithm[Any], trace: Trace) -> Array:
    """The model after every round of the second half."""
    optima = torch.tensor(OPTIMA, dtype=torch.float64)[:, None]
    state = algorithm.init(torch.full((1,), MEAN, dtype=torch.float64), 2)
    models = np.empty(trace.rounds)
    for t in range(trace.rounds):
        A = trace.active(t)
        G = STEP * (algorithm.start(state, A) - optima[A])  # towards the client's own optimum   [k, 1]
        state = algorithm.aggregate(state, t, A, G)
        models[t] = float(algorithm.model(state))
    return models[trace.rounds // 2 :]
