"""FedAU: weights from the mean interval between the active rounds of a client."""

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
    received,
    skipped_rounds_are_empty,
)


@dataclass(frozen=True)
class IntervalState(ServerState):
    """FedAU's state: for each client the running mean of its intervals between active rounds."""

    S: Tensor  # rounds since the last interval ended                      [m] int64
    M: Tensor  # number of intervals so far                                [m] int64
    omega: Tensor  # their mean, 1 before the first                        [m]


@dataclass(frozen=True)
class FedAU(OneGlobalModel[IntervalState]):
    """FedAU (Wang and Ji 2024, arXiv:2306.03401): w_i = omega_i/m.

    omega_i is the mean interval between the active rounds of client i, which is about 1/p_i. An interval that reaches K
    is cut there, so omega_i <= K. The interval that ends in round t is used from round t+1 on.

    >>> fedau = FedAU(K=50)
    >>> state = fedau.init(torch.zeros(1), m=1)
    >>> one, g = torch.tensor([0]), torch.tensor([[1.0]])
    >>> state = fedau.aggregate(state, 0, one[:0], g[:0])    # missed
    >>> state = fedau.aggregate(state, 1, one, g)            # weight 1; an interval of 2 ends
    >>> state = fedau.aggregate(state, 2, one, g)            # weight 2; an interval of 1 ends
    >>> fedau.model(state), state.omega
    (tensor([-3.]), tensor([1.5000]))
    """

    name = "FedAU"
    keeps = "3 numbers per client"

    K: int = 50
    eta_g: float = 1.0
    clip: float | None = None

    def __post_init__(self) -> None:
        check_rates(self.eta_g, self.clip)
        check_whole("K", self.K)

    def init(self, x0: Tensor, m: int) -> IntervalState:
        """No interval has ended; omega = 1 for every client."""
        x = first_model(x0, m)
        none = torch.zeros(m, dtype=torch.int64, device=x.device)
        return IntervalState(t=-1, m=m, x=x, S=none, M=none.clone(), omega=x.new_ones(m))

    def aggregate(self, state: IntervalState, t: int, A: Tensor, G: Tensor) -> IntervalState:
        """The step with the weights omega, then the intervals after this round."""
        A, G = received(state, t, A, G)
        state = skipped_rounds_are_empty(self, state, t)
        x = state.x - self.eta_g * clipped((state.omega[A, None] * G).sum(0) / state.m, self.clip)

        S, M, omega = intervals_after(state.S, state.M, state.omega, A, self.K)
        return state.after(t, x=x, S=S, M=M, omega=omega)


def intervals_after(S: Tensor, M: Tensor, omega: Tensor, A: Tensor, K: int) -> tuple[Tensor, Tensor, Tensor]:
    """S, M and omega after a round in which the clients A were active."""
    S = S + 1
    ends = S == K  # an interval ends if it is cut at K, or if the client is active                     [m]
    ends[A] = True
    return torch.where(ends, 0, S), M + ends, torch.where(ends, (M * omega + S) / (M + 1), omega)
