"""A plug-in: `fedawe run --algorithms median fedavg --task letters --dynamics weekend --p 0.3`."""

from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor

import fedawe
from fedawe.algorithms.base import ServerState, received
from fedawe.tasks.base import Metrics, Work


@dataclass(frozen=True)
class Median(fedawe.FedAvg):
    """x <- x - eta_g times a coordinate-wise quantile of the active clients' updates; share = 0.5 is the median."""

    name, linear = "Median", False

    share: float = 0.5

    def aggregate(self, state: ServerState, t: int, A: Tensor, G: Tensor) -> ServerState:
        """The quantile over A."""
        A, G = received(state, t, A, G)
        return self.apply(state, t, A, G.quantile(self.share, 0)) if len(A) else state.after(t)


class Letters(fedawe.tasks.Task):
    """Every client has a distribution of letters; the model is one distribution for all of them."""

    metrics = (fedawe.Metric("test_perplexity", "test perplexity", better="lower", decides=True),)

    def __init__(self, seed: int, clients: int = 20) -> None:
        self.p = torch.from_numpy(fedawe.rng(seed, "letters").dirichlet(np.ones(6), clients))

    @property
    def clients(self) -> int:
        return len(self.p)

    def initial(self, seed: int) -> Tensor:
        del seed
        return torch.zeros(6, dtype=torch.float64)

    def batches(self, work: Work) -> Any:
        return self.p[work.A]

    def gradients(self, x: Tensor, batches: Any, step: int) -> Tensor:
        del step
        target: Tensor = batches
        return torch.softmax(x, 1) - target

    def evaluate(self, x: Tensor) -> Metrics:
        return {"test_perplexity": float(torch.exp(-(self.p.mean(0) * torch.log_softmax(x, 0)).sum()))}


@dataclass(frozen=True)
class Weekend(fedawe.Dynamics):
    """The last `days` days of seven every client is available; on the others with probability p_i."""

    days: int = 2

    def trajectory(self, t: Any, p: Any) -> Any:
        return np.where(t % 7 >= 7 - self.days, 1.0, p)
