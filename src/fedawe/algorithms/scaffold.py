"""SCAFFOLD (Karimireddy, Kale, Mohri, Reddi, Stich and Suresh 2020, arXiv:1910.06378)."""

from dataclasses import dataclass, replace
from typing import Literal

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
    skipped_rounds_are_empty,
)
from fedawe.algorithms.exchange import Broadcast, Upload, asked_for, in_order, positive_rate
from fedawe.algorithms.rows import Rows, rows_of, with_rows
from fedawe.core.errors import UserError


@dataclass(frozen=True)
class ScaffoldState(ServerState):
    """The control variates c_i and their mean c, and the sums of gradients in the current period."""

    c_i: Rows  # client -> c_i, zero before                                                       [d] each
    c: Tensor  # (1/m) sum_i c_i                                                                  [d]
    total: Rows  # client -> sum of its gradients in this period                                  [d] each
    n: Tensor  # number of gradients in that sum                                                  [m]


@dataclass(frozen=True)
class SCAFFOLD(OneGlobalModel[ScaffoldState]):
    """SCAFFOLD (Karimireddy et al. 2020, arXiv:1910.06378): control variates correct the drift of clients.

    The local gradient is g - c_i + c, where c_i is an estimate of client i's own gradient and c the mean of all c_i.

        x^{t+1} = x^t - eta_g (1/|A|) sum_A G_i
        c_i <- c_i - c + G_i / (s eta_l)                 option 2: the mean of its s gradients in this round
        c_i <- the gradient at x^t                       option 1: one more pass over the batches of the round
        c   <- c + (1/m) sum_A (change of c_i)           so that c is the mean of all c_i

    The server sends c - c_i with the model. With option 2 it computes the new c_i from G_i, so the clients send nothing
    else; that needs plain SGD at the clients (a momentum or Adam is refused). Because all c_i have the same weight in
    c, SCAFFOLD corrects the bias of unequal availability once every client has been active.

    period   P > 1: c_i is the mean gradient over the client's steps in P rounds, updated at their end, as in Amplified
             SCAFFOLD (Crawshaw and Liu, NeurIPS 2024): `Amplified(SCAFFOLD(period=P), period=P, gamma=...)`

    >>> scaffold = SCAFFOLD()
    >>> state = scaffold.init(torch.zeros(1), m=2)
    >>> up = Upload(torch.tensor([[1.0]]), weight=torch.tensor([10.0]), rate=0.1)    # ten steps, mean gradient 1
    >>> state = scaffold.absorb(state, 0, torch.tensor([0]), up)
    >>> scaffold.broadcast(state, 1, torch.tensor([0, 1])).shift                     # c - c_i, with c = 1/2
    tensor([[-0.5000],
            [ 0.5000]])
    """

    name = "SCAFFOLD"
    keeps = "one control variate per client and their mean"
    plain_local = True
    weightable = False

    option: Literal[1, 2] = 2
    eta_g: float = 1.0
    clip: float | None = None
    period: int = 1

    def __post_init__(self) -> None:
        check_rates(self.eta_g, self.clip)
        check_whole("period", self.period)
        if self.option not in (1, 2):
            raise UserError(f"option is {self.option!r}; expected 1 or 2")

    def init(self, x0: Tensor, m: int) -> ScaffoldState:
        """All control variates are zero."""
        x = first_model(x0, m)
        return ScaffoldState(t=-1, m=m, x=x, c_i={}, c=torch.zeros_like(x), total={}, n=x.new_zeros(m))

    def broadcast(self, state: ScaffoldState, t: int, A: Tensor) -> Broadcast:
        """x^t and c - c_i."""
        A = known_clients(A, state)
        state = skipped_rounds_are_empty(self, state, t)
        return Broadcast(self.start(state, A), state.c - rows_of(state.c_i, A, state.x), gradient=self.option == 1)

    def absorb(self, state: ScaffoldState, t: int, A: Tensor, upload: Upload) -> ScaffoldState:
        """The step along the mean of G_i over A, then the control variates."""
        A, up = in_order(state, t, A, upload)
        state = skipped_rounds_are_empty(self, state, t)
        if len(A):
            if self.option == 1:
                g = asked_for(up.gradient, "gradient at the start", self)
            else:  # G / (s eta_l) is the mean of g - c_i + c
                mean = up.G / (up.weight * positive_rate(up.rate, t, self))[:, None]
                g = mean - (state.c - rows_of(state.c_i, A, state.x))
            total = rows_of(state.total, A, state.x) + up.weight[:, None] * g
            n = state.n.index_add(0, A, up.weight)
            x = state.x - self.eta_g * clipped(up.G.mean(0), self.clip)
            state = replace(state, x=x, total=with_rows(state.total, A, total), n=n)
        return self._renewed(state.after(t)) if (t + 1) % self.period == 0 else state.after(t)

    def _renewed(self, state: ScaffoldState) -> ScaffoldState:
        """The state after a period: c_i is the mean gradient of client i in the period."""
        B = torch.tensor(sorted(state.total), dtype=torch.int64, device=state.x.device)
        if len(B) == 0:
            return state
        new = rows_of(state.total, B, state.x) / state.n[B, None]
        c = state.c + (new - rows_of(state.c_i, B, state.x)).sum(0) / state.m
        return replace(state, c_i=with_rows(state.c_i, B, new), c=c, total={}, n=torch.zeros_like(state.n))

    def aggregate(self, state: ScaffoldState, t: int, A: Tensor, G: Tensor) -> ScaffoldState:
        """The state after round t, if the clients made one step with learning rate 1, so that G is the gradient."""
        up = Upload.of(G)
        return self.absorb(state, t, A, replace(up, gradient=G) if self.option == 1 else up)
