"""FedLaAvg (Yan, Niu, Ding, Zheng, Wu, Tang, Lv, Chen and Li 2020, arXiv:2002.07399)."""

from dataclasses import dataclass

import torch
from torch import Tensor

from fedawe.algorithms.base import (
    OneGlobalModel,
    ServerState,
    check_rates,
    check_whole,
    clipped,
    first_model,
    known_clients,
)
from fedawe.algorithms.exchange import Upload, in_order, positive_rate
from fedawe.algorithms.rows import Rows, rows_of, with_rows


@dataclass(frozen=True)
class LatestState(ServerState):
    """The last gradients of each client, their mean, and when each client was last active."""

    y: Rows  # client -> G_i / eta_l of its last round, zero before                               [d] each
    y_bar: Tensor  # (1/m) sum_i y_i                                                              [d]
    tau: Tensor  # last active round of each client, -1 if never                                  [m] int64


@dataclass(frozen=True)
class FedLaAvg(OneGlobalModel[LatestState]):
    """FedLaAvg (Yan et al. 2020, arXiv:2002.07399): the average of the latest gradients of all clients.

    Of the available clients, the k that have been inactive longest are asked to train.

        y_i <- G_i / eta_l(t)  for i in A,     x^{t+1} = x^t - eta_g eta_l(t) (1/m) sum_i y_i

    It is MIFA with a memory in units of gradients and a choice of clients before training. k = None asks all available
    clients. An empty round does not change x.

    >>> fedlaavg = FedLaAvg(k=1)
    >>> state = fedlaavg.init(torch.zeros(1), m=2)
    >>> state = fedlaavg.aggregate(state, 0, torch.tensor([0]), torch.tensor([[2.0]]))
    >>> fedlaavg.choose(state, 1, torch.tensor([0, 1]), None)
    tensor([1])
    """

    name = "FedLaAvg"
    keeps = "one model and one integer per client"

    k: int | None = None
    eta_g: float = 1.0
    clip: float | None = None

    def __post_init__(self) -> None:
        check_rates(self.eta_g, self.clip)
        check_whole("k", self.k, ", or None for no limit")

    @property
    def capacity(self) -> int | None:
        """The largest number of clients that are asked in a round; None for no limit."""
        return self.k

    @property
    def chooses(self) -> bool:
        """Whether it may ask fewer than all available clients."""
        return self.k is not None

    def init(self, x0: Tensor, m: int) -> LatestState:
        """All y_i are zero, and no client has been active."""
        x = first_model(x0, m)
        tau = torch.full((m,), -1, dtype=torch.int64, device=x.device)
        return LatestState(t=-1, m=m, x=x, y={}, y_bar=torch.zeros_like(x), tau=tau)

    def choose(self, state: LatestState, t: int, A: Tensor, draw: object) -> Tensor:
        """The k of A with the smallest tau; ties go to the lowest number."""
        del t, draw
        A = known_clients(A, state).sort().values
        return A if self.k is None else A[state.tau[A].sort(stable=True).indices[: self.k]].sort().values

    def absorb(self, state: LatestState, t: int, A: Tensor, upload: Upload) -> LatestState:
        """The new y_i of A, then the step along the mean of all y_i."""
        A, up = in_order(state, t, A, upload)
        if len(A) == 0:
            return state.after(t)
        new = up.G / positive_rate(up.rate, t, self)
        y_bar = state.y_bar + (new - rows_of(state.y, A, state.x)).sum(0) / state.m
        tau = state.tau.clone()
        tau[A] = t
        x = state.x - self.eta_g * clipped(up.rate * y_bar, self.clip)
        return state.after(t, x=x, y=with_rows(state.y, A, new), y_bar=y_bar, tau=tau)

    def aggregate(self, state: LatestState, t: int, A: Tensor, G: Tensor) -> LatestState:
        """The state after round t, if the learning rate was 1."""
        return self.absorb(state, t, A, Upload.of(G))
