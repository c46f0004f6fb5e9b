"""FedAsync (Xie, Koyejo and Gupta 2019, arXiv:1903.03934). Clients start from the model that they received last."""

from dataclasses import dataclass

import torch
from torch import Tensor

from fedawe.algorithms.base import check_clip, check_fraction, check_not_negative, clipped, first_model, received
from fedawe.algorithms.versions import HeldModel, Versions


@dataclass(frozen=True)
class AsyncState(Versions):
    """The models that clients hold, and the number of server updates in each."""

    updates: int  # server updates so far
    stamp: Tensor  # the number of server updates in the model that a client holds                [m] int64


@dataclass(frozen=True)
class FedAsync(HeldModel[AsyncState]):
    """FedAsync (Xie, Koyejo and Gupta 2019, arXiv:1903.03934): asynchronous mixing.

    A client trains from the model that it received when it was last active, and uploads when it is active again.

        x <- (1 - a_i) x + a_i x_i,     a_i = alpha (1 + staleness_i)^(-power)

    staleness_i is the number of server updates since the client received its model. If several clients are active in a
    round, x moves by the mean of the steps that each alone would cause, so that their order does not matter. A client
    that is active more often is mixed in more often, so the bias of FedAvg remains.

    >>> fedasync = FedAsync(alpha=0.5)
    >>> state = fedasync.init(torch.zeros(1), m=2)
    >>> state = fedasync.aggregate(state, 0, torch.tensor([0]), torch.tensor([[2.0]]))    # half way from 0 to -2
    >>> fedasync.model(state)
    tensor([-1.])
    """

    name = "FedAsync"
    keeps = "the versions that clients hold and two integers per client"

    alpha: float = 0.6
    power: float = 0.5
    clip: float | None = None

    def __post_init__(self) -> None:
        check_fraction("alpha", self.alpha, one=True, zero=False)
        check_not_negative("power", self.power)
        check_clip(self.clip)

    def init(self, x0: Tensor, m: int) -> AsyncState:
        """Every client holds x^0."""
        x = first_model(x0, m)
        none = torch.zeros(m, dtype=torch.int64, device=x.device)
        return AsyncState(**vars(Versions.of(x, m)), updates=0, stamp=none)

    def aggregate(self, state: AsyncState, t: int, A: Tensor, G: Tensor) -> AsyncState:
        """Mix in the local models of A, which receive the result."""
        A, G = received(state, t, A, G)
        if len(A) == 0:
            return state.after(t)
        a = self.alpha * (1 + (state.updates - state.stamp[A]).to(G)) ** -self.power  # [k]
        x_i = state[A] - G
        x = state.latest + clipped((a[:, None] * (x_i - state.latest)).mean(0), self.clip)
        stamp = state.stamp.clone()
        stamp[A] = state.updates + 1
        return state.advance(t, A, x).after(t, updates=state.updates + 1, stamp=stamp)
