"""FedAvg over the active clients, and over all clients, where inactive clients count as zero.

Both are x^{t+1} = x^t - eta_g clip(sum_A w_i G_i) and differ only in the weights w_i. An empty round does not change x.
"""

from dataclasses import dataclass

from torch import Tensor

from fedawe.algorithms.base import (
    OneGlobalModel,
    ServerState,
    check_rates,
    clipped,
    first_model,
    received,
)


@dataclass(frozen=True)
class FedAvg(OneGlobalModel[ServerState]):
    """FedAvg over the active clients (McMahan et al. 2017, arXiv:1602.05629): w_i = 1/|A|.

    The model is biased towards the clients that are active most often.

    >>> import torch
    >>> fedavg = FedAvg()
    >>> state = fedavg.init(torch.zeros(1), m=3)
    >>> state = fedavg.aggregate(state, 0, torch.tensor([0, 2]), torch.tensor([[1.0], [3.0]]))
    >>> fedavg.model(state)
    tensor([-2.])
    """

    name = "FedAvg"
    keeps = "nothing"
    sums_to_one = True

    eta_g: float = 1.0
    clip: float | None = None

    def __post_init__(self) -> None:
        check_rates(self.eta_g, self.clip)

    def init(self, x0: Tensor, m: int) -> ServerState:
        """x^0."""
        return ServerState(t=-1, m=m, x=first_model(x0, m))

    def aggregate(self, state: ServerState, t: int, A: Tensor, G: Tensor) -> ServerState:
        """The step along the mean of G_i over A."""
        A, G = received(state, t, A, G)
        return self.apply(state, t, A, self.updates(state, t, A, G).mean(0)) if len(A) else state.after(t)

    def updates(self, state: ServerState, t: int, A: Tensor, G: Tensor) -> Tensor:
        """The rows whose mean is taken, one per client of A, [k, d]."""
        del state, t, A
        return G

    def apply(self, state: ServerState, t: int, A: Tensor, v: Tensor) -> ServerState:
        """The state after round t, in which the mean was v [d]."""
        del A
        return state.after(t, x=state.x - self.eta_g * clipped(v, self.clip))


@dataclass(frozen=True)
class FedAvgAll(OneGlobalModel[ServerState]):
    """FedAvg over all clients, in which an inactive client counts as a zero update: w_i = 1/m.

    Its steps are short, and the model is biased towards clients with a large p_i.

    >>> import torch
    >>> fedavg_all = FedAvgAll()
    >>> state = fedavg_all.init(torch.zeros(1), m=4)
    >>> state = fedavg_all.aggregate(state, 0, torch.tensor([0, 2]), torch.tensor([[1.0], [3.0]]))
    >>> fedavg_all.model(state)
    tensor([-1.])
    """

    name = "FedAvg-all"
    keeps = "nothing"

    eta_g: float = 1.0
    clip: float | None = None

    def __post_init__(self) -> None:
        check_rates(self.eta_g, self.clip)

    def init(self, x0: Tensor, m: int) -> ServerState:
        """x^0."""
        return ServerState(t=-1, m=m, x=first_model(x0, m))

    def aggregate(self, state: ServerState, t: int, A: Tensor, G: Tensor) -> ServerState:
        """The step along the sum of G_i over A, divided by m."""
        A, G = received(state, t, A, G)
        return state.after(t, x=state.x - self.eta_g * clipped(G.sum(0) / state.m, self.clip))
