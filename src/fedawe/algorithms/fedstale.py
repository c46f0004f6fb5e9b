"""FedStale (Rodio and Neglia 2024, arXiv:2405.04171)."""

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from fedawe.algorithms.base import (
    OneGlobalModel,
    ServerState,
    check_fraction,
    check_rates,
    check_whole,
    clipped,
    first_model,
    received,
    skipped_rounds_are_empty,
)
from fedawe.algorithms.fedau import intervals_after
from fedawe.algorithms.fedavg_known import check_columns, probabilities, probabilities_of
from fedawe.algorithms.rows import Rows, rows_of, with_rows


@dataclass(frozen=True)
class StaleState(ServerState):
    """The last innovation of each client, their mean, and FedAU's intervals."""

    h: Rows  # client -> h_i, zero before                                                         [d] each
    h_bar: Tensor  # (1/m) sum_i h_i                                                              [d]
    S: Tensor  # rounds since the last interval ended                                             [m] int64
    M: Tensor  # number of intervals so far                                                       [m] int64
    omega: Tensor  # their mean, 1 before the first                                               [m]


@dataclass(frozen=True, eq=False)
class FedStale(OneGlobalModel[StaleState]):
    """FedStale (Rodio and Neglia 2024, arXiv:2405.04171): a mixture of fresh and stale innovations.

    pi_i is the probability that client i is active, and h_i its last innovation:

        x^{t+1} = x^t - eta_g [ (1/m) sum_A (G_i - beta h_i)/pi_i + beta (1/m) sum_j h_j ],   then h_i = G_i for i in A

    beta = 0 is FedAvg with known probabilities, or FedAU; beta = 1 is FedVARP with weights 1/(m pi_i) instead of
    1/|A|. It is unbiased for every beta if pi is right. An empty round does not change x.

    p  probabilities [rounds, clients]; None: FedAU's estimate, the mean interval between the rounds of a client
    K  the length at which that estimate cuts an interval

    >>> fedstale = FedStale(beta=0.5)
    >>> state = fedstale.init(torch.zeros(1), m=2)
    >>> state = fedstale.aggregate(state, 0, torch.tensor([0]), torch.tensor([[2.0]]))    # 0 - 2/2
    >>> state = fedstale.aggregate(state, 1, torch.tensor([0]), torch.tensor([[2.0]]))    # - (2 - 1)/2 - (1/2) 2/2
    >>> fedstale.model(state)
    tensor([-2.])
    """

    name = "FedStale"
    keeps = "one model per client and 3 numbers"

    beta: float = 1.0
    p: Any = None
    K: int = 50
    eta_g: float = 1.0
    clip: float | None = None

    def __post_init__(self) -> None:
        check_rates(self.eta_g, self.clip)
        check_whole("K", self.K)
        check_fraction("beta", self.beta, one=True)
        if self.p is not None:
            object.__setattr__(self, "p", probabilities(self.p))

    def init(self, x0: Tensor, m: int) -> StaleState:
        """All h_i are zero, and no interval has ended."""
        x = first_model(x0, m)
        if self.p is not None:
            check_columns(self.p, m)
        none = torch.zeros(m, dtype=torch.int64, device=x.device)
        return StaleState(t=-1, m=m, x=x, h={}, h_bar=torch.zeros_like(x), S=none, M=none.clone(), omega=x.new_ones(m))

    def aggregate(self, state: StaleState, t: int, A: Tensor, G: Tensor) -> StaleState:
        """The step, then the new h_i and the intervals after this round."""
        A, G = received(state, t, A, G)
        state = skipped_rounds_are_empty(self, state, t)
        S, M, omega = intervals_after(state.S, state.M, state.omega, A, self.K)
        if len(A) == 0:
            return state.after(t, S=S, M=M, omega=omega)
        over_pi = state.omega[A] if self.p is None else 1 / probabilities_of(self.p, t, A).to(G)  # [k]
        change = G - self.beta * rows_of(state.h, A, state.x)
        v = (over_pi[:, None] * change).sum(0) / state.m + self.beta * state.h_bar
        h_bar = state.h_bar + (G - rows_of(state.h, A, state.x)).sum(0) / state.m
        x = state.x - self.eta_g * clipped(v, self.clip)
        return state.after(t, x=x, h=with_rows(state.h, A, G), h_bar=h_bar, S=S, M=M, omega=omega)
