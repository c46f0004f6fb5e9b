"""FedProx (Li, Sahu, Zaheer, Sanjabi, Talwalkar and Smith 2020, arXiv:1812.06127)."""

from dataclasses import dataclass

from torch import Tensor

from fedawe.algorithms.base import OneGlobalModel, ServerState, check_not_negative, check_rates, first_model
from fedawe.algorithms.exchange import Broadcast
from fedawe.algorithms.fedavg import FedAvg


@dataclass(frozen=True)
class FedProx(OneGlobalModel[ServerState]):
    """FedProx (Li et al. 2020, arXiv:1812.06127): FedAvg with a proximal term.

    The local gradient is g + mu (y - x^t), where y is the local iterate. It pulls clients back to the model x^t.

        x^{t+1} = x^t - eta_g (1/|A|) sum_A G_i

    The term limits how far clients drift apart in a round. It does not change which clients are averaged, so the bias
    of FedAvg under unequal availability remains. mu = 0 is FedAvg.

    >>> import torch
    >>> fedprox = FedProx(mu=0.1)
    >>> state = fedprox.init(torch.zeros(1), m=2)
    >>> fedprox.broadcast(state, 0, torch.tensor([1])).prox
    0.1
    """

    name = "FedProx"
    keeps = "nothing"
    sums_to_one = True

    mu: float = 0.01
    eta_g: float = 1.0
    clip: float | None = None

    def __post_init__(self) -> None:
        check_rates(self.eta_g, self.clip)
        check_not_negative("mu", self.mu)

    def init(self, x0: Tensor, m: int) -> ServerState:
        """x^0."""
        return ServerState(t=-1, m=m, x=first_model(x0, m))

    def broadcast(self, state: ServerState, t: int, A: Tensor) -> Broadcast:
        """x^t, and mu."""
        del t
        return Broadcast(self.start(state, A), prox=self.mu)

    def aggregate(self, state: ServerState, t: int, A: Tensor, G: Tensor) -> ServerState:
        """The step along the mean of G_i over A, as in FedAvg."""
        return FedAvg(self.eta_g, self.clip).aggregate(state, t, A, G)

    def updates(self, state: ServerState, t: int, A: Tensor, G: Tensor) -> Tensor:
        """The rows whose mean is taken, one per client of A, [k, d]."""
        del state, t, A
        return G

    def apply(self, state: ServerState, t: int, A: Tensor, v: Tensor) -> ServerState:
        """The state after round t, in which the mean was v [d]."""
        return FedAvg(self.eta_g, self.clip).apply(state, t, A, v)
