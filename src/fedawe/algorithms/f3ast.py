"""F3AST: weights from a moving average of how often each client is selected, and a capacity."""

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
    """F3AST's state: for each client a moving average of the share of rounds in which it was selected."""

    r: Tensor  # [m]


@dataclass(frozen=True)
class F3AST(OneGlobalModel[RateState]):
    """F3AST (Ribero, Vikalo and de Veciana 2022, arXiv:2205.06730), with all clients of equal weight.

        w_i = (1/r_i) / sum_S (1/r_j)

        r <- (1 - beta) r + beta 1{i in S}         before the weights, so r_i >= beta for i in S

    S is the set of all available clients. With `capacity` it is the `capacity` available clients with the smallest r_i
    (ties go to the lowest number), and the others are not asked to train. It is not public which variant the FedAWE
    authors ran. The published variants are:

    r0         initial r_i: 1 (the FedPBC code of the FedAWE authors), or any number; "share" is 1/m (the F3AST authors'
               code)
    normalise  "self": w_i as above, which starts as FedAvg does and is the only one that fits the FedAWE paper's
               Table 8; "clients": w_i = (1/m)/r_i, unbiased once r is right (the F3AST paper and the FedPBC code);
               "capacity": w_i as for "clients", also divided by the capacity (the F3AST authors' code)

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
        """r_i = r0 for every client."""
        x = first_model(x0, m)
        r0 = 1 / m if self.r0 == "share" else self.r0
        return RateState(t=-1, m=m, x=x, r=torch.full((m,), r0, dtype=x.dtype, device=x.device))

    @property
    def sums_to_one(self) -> bool:
        """Whether the weights of the selected clients sum to 1."""
        return self.normalise == "self"

    @property
    def chooses(self) -> bool:
        """Whether it may ask fewer than all available clients."""
        return self.capacity is not None

    def choose(self, state: RateState, t: int, A: Tensor, draw: object) -> Tensor:
        """S: the `capacity` clients of A with the smallest r_i; in the paper, those with the largest p_i^2 / r_i^2."""
        del draw
        A = known_clients(A, state).sort().values
        state = skipped_rounds_are_empty(self, state, t)
        return A[self._selected(state, A)]

    def _selected(self, state: RateState, A: Tensor) -> Tensor:
        """The positions in A of the selected clients, in increasing order; all of them if the capacity suffices."""
        capacity = len(A) if self.capacity is None else self.capacity
        return state.r[A].sort(stable=True).indices[:capacity].sort().values

    def aggregate(self, state: RateState, t: int, A: Tensor, G: Tensor) -> RateState:
        """Select if that was not done before training, update r, then apply the weights."""
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
