"""F3AST: weights from a moving average of how often a client is active, and a capacity."""

from dataclasses import dataclass
from typing import Literal

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
    known_clients,
    received,
    skipped_rounds_are_empty,
)
from fedawe.core.errors import UserError


@dataclass(frozen=True)
class RateState(ServerState):
    """F3AST's state: how often each client was selected, as a moving average."""

    r: Tensor  # [m]


@dataclass(frozen=True)
class F3AST(OneGlobalModel[RateState]):
    """F3AST (Ribero, Vikalo and de Veciana 2022, arXiv:2205.06730), with all clients of equal weight.

        w_i = (1/r_i) / sum_S (1/r_j)

        r <- (1 - beta) r + beta 1{i in S}         before the weights, so r_i >= beta for the selected

    S is every available client, or the `capacity` of them with the smallest r (ties: the lowest number); the others are
    not asked to train.
    Which variant the FedAWE authors ran is not public. These are the published ones:

    r0         starting rates: 1 (the authors' FedPBC code), or any number; "share" is 1/m (the F3AST authors' code)
    normalise  "self": as above, which starts as FedAvg does and alone fits the FedAWE paper's Table 8;
               "clients": (1/m)/r_i, unbiased once r is right (the F3AST paper, and the FedPBC code);
               "capacity": that divided by the capacity too (the F3AST authors' code)

    >>> f3ast = F3AST(beta=0.5, normalise="clients")
    >>> state = f3ast.init(torch.zeros(1), m=2)
    >>> one, g = torch.tensor([0]), torch.tensor([[1.0]])
    >>> state = f3ast.aggregate(state, 0, one[:0], g[:0])    # r = .5, .5
    >>> state = f3ast.aggregate(state, 1, one, g)            # r = .75, .25: x = 0 - (1/2)/.75
    >>> f3ast.model(state), state.r
    (tensor([-0.6667]), tensor([0.7500, 0.2500]))
    """

    name = "F3AST"
    keeps = "1 number per client"

    beta: float = 0.001
    eta_g: float = 1.0
    capacity: int | None = None
    r0: float | Literal["share"] = 1.0
    normalise: Literal["self", "clients", "capacity"] = "self"
    clip: float | None = None

    def __post_init__(self) -> None:
        check_rates(self.eta_g, self.clip)
        check_fraction("beta", self.beta, zero=False, one=True)
        check_whole("capacity", self.capacity, ", or None for no limit")
        if self.r0 != "share" and not (isinstance(self.r0, float | int) and 0 < self.r0 <= 1):
            raise UserError(f"r0 is {self.r0!r}; expected a number above 0 and at most 1, or 'share'")
        if self.normalise not in ("self", "clients", "capacity"):
            raise UserError(f"normalise is {self.normalise!r}; expected 'self', 'clients' or 'capacity'")

    def init(self, x0: Tensor, m: int) -> RateState:
        """r = r0 for everyone."""
        x = first_model(x0, m)
        r0 = 1 / m if self.r0 == "share" else self.r0
        return RateState(t=-1, m=m, x=x, r=torch.full((m,), r0, dtype=x.dtype, device=x.device))

    @property
    def sums_to_one(self) -> bool:
        """Whether the weights of the selected clients sum to 1."""
        return self.normalise == "self"

    @property
    def chooses(self) -> bool:
        """Whether some of the available clients may be left out of a round."""
        return self.capacity is not None

    def choose(self, state: RateState, t: int, A: Tensor, draw: object) -> Tensor:
        """S, before anyone trains: the `capacity` of A with the smallest r, which is the largest p_k^2 / r_k^2."""
        del draw
        A = known_clients(A, state).sort().values
        state = skipped_rounds_are_empty(self, state, t)
        return A[self._selected(state, A)]

    def _selected(self, state: RateState, A: Tensor) -> Tensor:
        """Which rows of A, in their order; all of them if no more are available than the capacity."""
        capacity = len(A) if self.capacity is None else self.capacity
        return state.r[A].sort(stable=True).indices[:capacity].sort().values

    def aggregate(self, state: RateState, t: int, A: Tensor, G: Tensor) -> RateState:
        """Select if nobody has selected before training, update the rates, then weight."""
        A, G = received(state, t, A, G)
        state = skipped_rounds_are_empty(self, state, t)
        if self.capacity is not None and len(A) > self.capacity:
            chosen = self._selected(state, A)
            A, G = A[chosen], G[chosen]
        r = (1 - self.beta) * state.r
        r[A] += self.beta
        if len(A) == 0:
            return state.after(t, r=r)
        w = 1 / r[A]  # [k]
        w = w / (float(w.sum()) if self.normalise == "self" else state.m)
        if self.normalise == "capacity":
            w = w / (self.capacity or len(A))
        return state.after(t, x=state.x - self.eta_g * clipped((w[:, None] * G).sum(0), self.clip), r=r)
