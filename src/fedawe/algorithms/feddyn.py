"""FedDyn (Acar, Zhao, Matas Navarro, Mattina, Whatmough and Saligrama 2021, arXiv:2111.04263)."""

from dataclasses import dataclass

import torch
from torch import Tensor

from fedawe.algorithms.base import (
    OneGlobalModel,
    ServerState,
    check_clip,
    check_positive,
    clipped,
    first_model,
    known_clients,
    received,
)
from fedawe.algorithms.exchange import Broadcast
from fedawe.algorithms.rows import Rows, rows_of, with_rows


@dataclass(frozen=True)
class DynState(ServerState):
    """lambda_i, which is minus the sum of all innovations of client i, and the mean of lambda_i over all clients."""

    lam: Rows  # client -> lambda_i, zero before                                                  [d] each
    lam_bar: Tensor  # (1/m) sum_i lambda_i                                                       [d]


@dataclass(frozen=True)
class FedDyn(OneGlobalModel[DynState]):
    """FedDyn (Acar et al. 2021, arXiv:2111.04263): dynamic regularisation.

    The loss of every client has a regularisation term that is updated in every round, so that all clients converge to
    the global optimum.

        local gradient   g + alpha (y - x^t) + alpha lambda_i
        lambda_i        <- lambda_i - G_i                                  for i in A
        x^{t+1}          = x^t - (1/|A|) sum_A G_i + (1/m) sum_i lambda_i

    The server sends alpha lambda_i with the model. It is minus the client's gradient at its last local model, if local
    training reached a stationary point. An empty round changes nothing.

    >>> feddyn = FedDyn(alpha=0.5)
    >>> state = feddyn.init(torch.zeros(1), m=2)
    >>> state = feddyn.aggregate(state, 0, torch.tensor([0]), torch.tensor([[2.0]]))    # 0 - 2 - 2/2
    >>> feddyn.model(state), feddyn.broadcast(state, 1, torch.tensor([0])).shift
    (tensor([-3.]), tensor([[-1.]]))
    """

    name = "FedDyn"
    keeps = "one vector per client and their mean"
    weightable = False

    alpha: float = 0.01
    clip: float | None = None

    def __post_init__(self) -> None:
        check_positive("alpha", self.alpha)
        check_clip(self.clip)

    def init(self, x0: Tensor, m: int) -> DynState:
        """All lambda_i are zero."""
        x = first_model(x0, m)
        return DynState(t=-1, m=m, x=x, lam={}, lam_bar=torch.zeros_like(x))

    def broadcast(self, state: DynState, t: int, A: Tensor) -> Broadcast:
        """x^t, alpha lambda_i and alpha."""
        del t
        A = known_clients(A, state)
        return Broadcast(self.start(state, A), self.alpha * rows_of(state.lam, A, state.x), self.alpha)

    def aggregate(self, state: DynState, t: int, A: Tensor, G: Tensor) -> DynState:
        """First lambda_i, then x with their new mean."""
        A, G = received(state, t, A, G)
        if len(A) == 0:
            return state.after(t)
        lam = with_rows(state.lam, A, rows_of(state.lam, A, state.x) - G)
        lam_bar = state.lam_bar - G.sum(0) / state.m
        return state.after(t, x=state.x - clipped(G.mean(0) - lam_bar, self.clip), lam=lam, lam_bar=lam_bar)
