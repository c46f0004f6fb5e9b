"""FedAvg with weights 1/p_i^t, where the probabilities of availability are known."""

from dataclasses import dataclass
from typing import Any, Protocol, runtime_checkable

import numpy as np
import torch
from torch import Tensor

from fedawe.algorithms.base import (
    OneGlobalModel,
    ServerState,
    check_rates,
    clipped,
    first_model,
    received,
)
from fedawe.core.errors import UserError


@dataclass(frozen=True, eq=False)
class FedAvgKnown(OneGlobalModel[ServerState]):
    """FedAvg with known probabilities (Perazzone et al. 2022, arXiv:2201.07912): w_i = 1/(m p_i^t).

    p is [T, m]; None stands for the probabilities of the trace, which an experiment fills in for every seed. The rule
    is unbiased, but p is known in simulations only, and the weights have no upper bound.

    >>> known = FedAvgKnown(p=torch.tensor([[0.5, 1.0]]))
    >>> state = known.init(torch.zeros(1), m=2)
    >>> state = known.aggregate(state, 0, torch.tensor([0, 1]), torch.tensor([[1.0], [3.0]]))    # (1/2) (1/.5 + 3)
    >>> known.model(state)
    tensor([-2.5000])
    """

    name = "FedAvg-known"
    keeps = "the true probabilities"
    needs_p = True

    p: Any = None
    eta_g: float = 1.0
    clip: float | None = None

    def __post_init__(self) -> None:
        check_rates(self.eta_g, self.clip)
        if self.p is None:
            return
        object.__setattr__(self, "p", probabilities(self.p))

    def init(self, x0: Tensor, m: int) -> ServerState:
        """x^0."""
        if self.p is None:
            raise UserError("FedAvgKnown needs the probabilities of every round; give p, an array [rounds, clients]")
        check_columns(self.p, m)
        return ServerState(t=-1, m=m, x=first_model(x0, m))

    def aggregate(self, state: ServerState, t: int, A: Tensor, G: Tensor) -> ServerState:
        """The step along the sum of G_i / p_i^t over A, divided by m."""
        A, G = received(state, t, A, G)
        if len(A) == 0:
            return state.after(t)
        p = probabilities_of(self.p, t, A).to(G)  # p_i^t                                              [k]
        return state.after(t, x=state.x - self.eta_g * clipped((G / p[:, None]).sum(0) / state.m, self.clip))


@runtime_checkable
class Table(Protocol):
    """Probabilities [rounds, clients] whose rows are computed on demand."""

    @property
    def shape(self) -> tuple[int, int]: ...
    def row(self, t: int) -> Any: ...
    def __len__(self) -> int: ...
    def __getitem__(self, t: int) -> Tensor: ...


def probabilities(given: Any) -> Tensor | Table:
    """Checked probabilities [rounds, clients]: a copy as a tensor, or a table that computes its rows on demand."""
    if isinstance(given, Table):
        return given
    try:
        p = given.clone() if isinstance(given, Tensor) else torch.from_numpy(np.array(given))
    except (TypeError, ValueError):
        raise UserError(f"p must be probabilities [rounds, clients], not {type(given).__name__}") from None
    if p.ndim != 2 or not p.is_floating_point():
        raise UserError(f"p must be probabilities [rounds, clients], not {p.dtype} of shape {list(p.shape)}")
    if not ((p >= 0) & (p <= 1)).all():
        raise UserError("p has entries outside [0, 1]")
    return p


def check_columns(p: Tensor | Table, m: int) -> None:
    """Refuses probabilities for a number of clients other than m."""
    if p.shape[1] != m:
        raise UserError(f"p has {p.shape[1]} columns for {m} clients")


def probabilities_of(p: Tensor | Table, t: int, A: Tensor) -> Tensor:
    """p_i^t of the active clients A, [k]; refuses 0, which no active client can have."""
    if t >= len(p):
        raise UserError(f"p covers rounds 0 to {len(p) - 1}, but this is round {t}")
    own = p[t].to(A.device)[A]
    if (own == 0).any():
        raise UserError(f"client {int(A[(own == 0).nonzero()[0]])} was active in round {t}, but its p is 0")
    return own
