"""CA2FL (Wang, Cao, Wu, Chen and Chen 2024, ICLR: Tackling the data heterogeneity in asynchronous federated learning
with cached update calibration), where clients start from the model that they received last."""

from dataclasses import dataclass

import torch
from torch import Tensor

from fedawe.algorithms.base import check_rates, check_whole, clipped, first_model, received
from fedawe.algorithms.rows import Rows, rows_of, with_rows
from fedawe.algorithms.versions import HeldModel, Versions


@dataclass(frozen=True)
class CachedState(Versions):
    """The models that clients hold, the cache of their last innovations and its mean, and the buffer."""

    h: Rows  # client -> h_i, zero before                                                         [d] each
    h_bar: Tensor  # (1/m) sum_i h_i at the last server update                                    [d]
    buffer: Tensor  # sum of G_i - h_i since then                                                 [d]
    replies: int  # number of innovations in the buffer


@dataclass(frozen=True)
class CA2FL(HeldModel[CachedState]):
    """CA2FL (Wang, Cao, Wu, Chen and Chen, ICLR 2024): FedBuff with cached update calibration.

    The cache holds the last innovation h_i of every client; it represents the clients that are not in the buffer.

        buffer <- buffer + sum_A (G_i - h_i),   h_i <- G_i
        with K or more replies:   x <- x - eta_g [ buffer / replies + (1/m) sum_j h_j ],   and the buffer is emptied

    The mean of h_j in the formula is that at the last server update. FedVARP is the same rule with K = 1 and clients
    that start at x^t.

    >>> ca2fl = CA2FL(K=1)
    >>> state = ca2fl.init(torch.zeros(1), m=2)
    >>> state = ca2fl.aggregate(state, 0, torch.tensor([0]), torch.tensor([[2.0]]))    # 0 - 2
    >>> state = ca2fl.aggregate(state, 1, torch.tensor([1]), torch.tensor([[4.0]]))    # -2 - (4 + 2/2)
    >>> ca2fl.model(state)
    tensor([-7.])
    """

    name = "CA2FL"
    keeps = "the versions that clients hold, one model per client and two vectors"

    K: int = 10
    eta_g: float = 1.0
    clip: float | None = None

    def __post_init__(self) -> None:
        check_rates(self.eta_g, self.clip)
        check_whole("K", self.K)

    def init(self, x0: Tensor, m: int) -> CachedState:
        """Every client holds x^0; cache and buffer are empty."""
        x = first_model(x0, m)
        zero = torch.zeros_like(x)
        return CachedState(**vars(Versions.of(x, m)), h={}, h_bar=zero, buffer=zero.clone(), replies=0)

    def aggregate(self, state: CachedState, t: int, A: Tensor, G: Tensor) -> CachedState:
        """Fill the buffer and the cache, update the model if the buffer is full, and give it to the clients A."""
        A, G = received(state, t, A, G)
        if len(A) == 0:
            return state.after(t)
        buffer = state.buffer + (G - rows_of(state.h, A, state.latest)).sum(0)
        replies, x, h_bar = state.replies + len(A), state.latest.clone(), state.h_bar
        if replies >= self.K:
            x = x - self.eta_g * clipped(buffer / replies + h_bar, self.clip)
            h_bar, buffer, replies = h_bar + buffer / state.m, torch.zeros_like(buffer), 0
        h = with_rows(state.h, A, G)
        return state.advance(t, A, x).after(t, h=h, h_bar=h_bar, buffer=buffer, replies=replies)
