"""FedBuff (Nguyen, Malik, Zhan, Yousefpour, Rabbat, Malek and Huba 2022, arXiv:2106.06639).

Clients start from the model that they received last.
"""

from dataclasses import dataclass

import torch
from torch import Tensor

from fedawe.algorithms.base import check_rates, check_whole, clipped, first_model, received
from fedawe.algorithms.versions import HeldModel, Versions


@dataclass(frozen=True)
class BufferState(Versions):
    """The models that clients hold, the buffer, and the number of server updates in the model of each client."""

    buffer: Tensor  # sum of the discounted innovations since the last server update               [d]
    replies: int  # number of innovations in the buffer
    updates: int  # server updates so far
    stamp: Tensor  # the number of server updates in the model that a client holds                [m] int64


@dataclass(frozen=True)
class FedBuff(HeldModel[BufferState]):
    """FedBuff (Nguyen et al. 2022, arXiv:2106.06639): buffered asynchronous aggregation.

    A client trains from the model that it received when it was last active, and uploads when it is active again.

        buffer <- buffer + sum_A (1 + staleness_i)^(-1/2) G_i
        with K or more replies:   x <- x - eta_g buffer / replies,   and the buffer is emptied

    staleness_i is the number of server updates since the client received its model. All replies of a round are added
    at once, so there is at most one server update in a round. Clients that are active more often contribute to the
    buffer more often, so the bias of FedAvg remains.

    >>> fedbuff = FedBuff(K=2)
    >>> state = fedbuff.init(torch.zeros(1), m=2)
    >>> state = fedbuff.aggregate(state, 0, torch.tensor([0]), torch.tensor([[2.0]]))    # one reply: nothing moves
    >>> state = fedbuff.aggregate(state, 1, torch.tensor([1]), torch.tensor([[4.0]]))    # 0 - (2 + 4)/2
    >>> fedbuff.model(state)
    tensor([-3.])
    """

    name = "FedBuff"
    keeps = "the versions that clients hold, one vector and two integers per client"

    K: int = 10
    eta_g: float = 1.0
    clip: float | None = None

    def __post_init__(self) -> None:
        check_rates(self.eta_g, self.clip)
        check_whole("K", self.K)

    def init(self, x0: Tensor, m: int) -> BufferState:
        """Every client holds x^0, and the buffer is empty."""
        x = first_model(x0, m)
        held = Versions.of(x, m)
        none = torch.zeros(m, dtype=torch.int64, device=x.device)
        return BufferState(**vars(held), buffer=torch.zeros_like(x), replies=0, updates=0, stamp=none)

    def aggregate(self, state: BufferState, t: int, A: Tensor, G: Tensor) -> BufferState:
        """Fill the buffer, update the model if it is full, and give the model to the clients A."""
        A, G = received(state, t, A, G)
        if len(A) == 0:
            return state.after(t)
        discount = (1 + (state.updates - state.stamp[A]).to(G)) ** -0.5  # [k]
        buffer, replies, updates = state.buffer + (discount[:, None] * G).sum(0), state.replies + len(A), state.updates
        x = state.latest.clone()
        if replies >= self.K:
            x = x - self.eta_g * clipped(buffer / replies, self.clip)
            buffer, replies, updates = torch.zeros_like(buffer), 0, updates + 1
        stamp = state.stamp.clone()
        stamp[A] = updates
        return state.advance(t, A, x).after(t, buffer=buffer, replies=replies, updates=updates, stamp=stamp)
