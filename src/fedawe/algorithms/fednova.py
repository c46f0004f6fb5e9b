"""FedNova (Wang, Liu, Liang, Joshi and Poor 2020, arXiv:2007.07481)."""

from dataclasses import dataclass

from torch import Tensor

from fedawe.algorithms.base import OneGlobalModel, ServerState, check_rates, clipped, first_model
from fedawe.algorithms.exchange import Upload, in_order


@dataclass(frozen=True)
class FedNova(OneGlobalModel[ServerState]):
    """FedNova (Wang et al. 2020, arXiv:2007.07481): FedAvg with normalised innovations.

    The weight of a client does not grow with the number of its local steps.

        x^{t+1} = x^t - eta_g tau_eff (1/|A|) sum_A G_i / a_i,     tau_eff = (1/|A|) sum_A a_i

    a_i is the sum of the weights that the gradients of the client's steps have in G_i: the number s of steps for SGD,
    [s - rho (1 - rho^s)/(1 - rho)]/(1 - rho) for a momentum rho. Clients make different numbers of steps with
    `Local(epochs=...)`; if all make the same number, FedNova is FedAvg. Inside `Weighted` both means have its weights.
    FedNova corrects unequal work, not unequal availability.

    >>> import torch
    >>> fednova = FedNova()
    >>> state = fednova.init(torch.zeros(1), m=2)
    >>> up = Upload(torch.tensor([[1.0], [9.0]]), weight=torch.tensor([1.0, 3.0]), rate=0.1)
    >>> fednova.model(fednova.absorb(state, 0, torch.tensor([0, 1]), up))    # 2 (1/1 + 9/3)/2
    tensor([-4.])
    """

    name = "FedNova"
    keeps = "nothing"
    sums_to_one = True

    eta_g: float = 1.0
    clip: float | None = None

    def __post_init__(self) -> None:
        check_rates(self.eta_g, self.clip)

    def init(self, x0: Tensor, m: int) -> ServerState:
        """x^0."""
        return ServerState(t=-1, m=m, x=first_model(x0, m))

    def absorb(self, state: ServerState, t: int, A: Tensor, upload: Upload) -> ServerState:
        """The step along the mean of G_i / a_i, times the mean of a_i."""
        A, up = in_order(state, t, A, upload)
        if len(A) == 0:
            return state.after(t)
        a = up.weight if up.scale is None else up.scale.to(up.G) * up.weight
        v = a.mean() * (up.G / up.weight[:, None]).mean(0)
        return state.after(t, x=state.x - self.eta_g * clipped(v, self.clip))

    def aggregate(self, state: ServerState, t: int, A: Tensor, G: Tensor) -> ServerState:
        """The state after round t, if all clients made one step: FedAvg."""
        return self.absorb(state, t, A, Upload.of(G))
