"""MimiC (Sun, Mao and Zhang 2023, arXiv:2306.12212)."""

from dataclasses import dataclass

from torch import Tensor

from fedawe.algorithms.base import OneGlobalModel, ServerState, check_rates, clipped, first_model, received
from fedawe.algorithms.rows import Rows, rows_of, with_rows


@dataclass(frozen=True)
class MimicState(ServerState):
    """MimiC's state: the correction of each client."""

    c: Rows  # client -> c_i, zero before                                                         [d] each


@dataclass(frozen=True)
class MimiC(OneGlobalModel[MimicState]):
    """MimiC (Sun, Mao and Zhang 2023, arXiv:2306.12212): corrected innovations.

    Every innovation is corrected so that it mimics the update v of the last round in which its client was active.

        v = (1/|A|) sum_A (G_i + c_i),     x^{t+1} = x^t - eta_g v,     c_i <- v - G_i  for i in A

    c_i stands for the updates of the other clients. It is zero before the first active round of client i.

    >>> import torch
    >>> mimic = MimiC()
    >>> state = mimic.init(torch.zeros(1), m=2)
    >>> state = mimic.aggregate(state, 0, torch.tensor([0, 1]), torch.tensor([[1.0], [3.0]]))    # v = 2
    >>> state = mimic.aggregate(state, 1, torch.tensor([0]), torch.tensor([[1.0]]))              # 1 + (2 - 1): 2 again
    >>> mimic.model(state)
    tensor([-4.])
    """

    name = "MimiC"
    keeps = "one vector per client"

    eta_g: float = 1.0
    clip: float | None = None

    def __post_init__(self) -> None:
        check_rates(self.eta_g, self.clip)

    def init(self, x0: Tensor, m: int) -> MimicState:
        """All corrections are zero."""
        return MimicState(t=-1, m=m, x=first_model(x0, m), c={})

    def aggregate(self, state: MimicState, t: int, A: Tensor, G: Tensor) -> MimicState:
        """The step along the mean of the corrected innovations, then the new corrections."""
        A, G = received(state, t, A, G)
        if len(A) == 0:
            return state.after(t)
        v = (G + rows_of(state.c, A, state.x)).mean(0)
        x = state.x - self.eta_g * clipped(v, self.clip)
        return state.after(t, x=x, c=with_rows(state.c, A, v - G))
