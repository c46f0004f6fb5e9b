"""FedAdam, FedYogi and FedAdagrad (Reddi, Charles, Zaheer, Garrett, Rush, Konecny, Kumar and McMahan 2021,
arXiv:2003.00295)."""

from abc import abstractmethod
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor

from fedawe.algorithms.base import Algorithm, State, check_fraction, check_positive, skipped_rounds_are_empty
from fedawe.algorithms.exchange import Upload, absorb, first_state, in_order
from fedawe.algorithms.fedavg import FedAvg
from fedawe.algorithms.wrapper import NestedState, Wrapper, check_rule


@dataclass(frozen=True)
class MomentsState(NestedState):
    """The rule's state and the two moments."""

    m1: Tensor  # [d]
    V: Tensor  # [d]


class _FedOpt(Wrapper[MomentsState]):
    """The code that the three algorithms share; they differ in V."""

    linear = False  # a quotient of moments
    eta_s: float
    b1: float
    b2: float
    tau: float

    def __post_init__(self) -> None:
        check_positive("eta_s", self.eta_s)
        check_positive("tau", self.tau)
        check_fraction("b1", self.b1)
        check_fraction("b2", self.b2)
        check_rule(self.rule)

    def init(self, x0: Tensor, m: int) -> MomentsState:
        """m1 = 0 and V = tau^2."""
        own: State = first_state(self.rule, x0, m)
        own.with_model(own.latest)  # refuses a rule without a global model
        zero = torch.zeros_like(own.latest)
        return MomentsState(own.t, m, own, zero, zero + self.tau**2)

    def absorb(self, state: MomentsState, t: int, A: Tensor, upload: Upload) -> MomentsState:
        """The rule's round, then the moments and the adaptive step."""
        A, up = in_order(state, t, A, upload)
        state = skipped_rounds_are_empty(self, state, t)
        own: State = absorb(self.rule, state.own, t, A, up)
        v = state.latest - own.latest
        if len(A) == 0 and not v.any():
            return state.after(t, own=own)
        m1, V = self.b1 * state.m1 + (1 - self.b1) * v, self._second(state.V, v**2)
        x = state.latest - self.eta_s * m1 / (V.sqrt() + self.tau)
        return state.after(t, own=own.with_model(x), m1=m1, V=V)

    @abstractmethod
    def _second(self, V: Tensor, square: Tensor) -> Tensor:
        """V after a round with v^2 = square."""


@dataclass(frozen=True)
class FedAdam(_FedOpt):
    """FedAdam (Reddi et al. 2021, arXiv:2003.00295): Adam at the server, around any rule with one global model.

    v is what the rule subtracts from x^t:

        m1 <- b1 m1 + (1 - b1) v,    V <- b2 V + (1 - b2) v^2,    x^{t+1} = x^t - eta_s m1 / (sqrt(V) + tau)

    V begins at tau^2 and there is no bias correction, as in the paper. The step is not linear in the
    innovations, so the audit refuses it. An empty round in which the rule does not change x changes nothing.

    >>> fedadam = FedAdam(eta_s=0.1, b1=0.0, b2=0.0)
    >>> state = fedadam.init(torch.zeros(1), m=1)
    >>> state = fedadam.aggregate(state, 0, torch.tensor([0]), torch.tensor([[5.0]]))    # a step of about eta_s
    >>> fedadam.model(state)
    tensor([-0.1000])
    """

    name = "FedAdam"
    keeps = "two more vectors, and what the rule keeps"

    eta_s: float = 0.1
    b1: float = 0.9
    b2: float = 0.99
    tau: float = 1e-3
    rule: Algorithm[Any] = field(default_factory=FedAvg)

    def _second(self, V: Tensor, square: Tensor) -> Tensor:
        return self.b2 * V + (1 - self.b2) * square


@dataclass(frozen=True)
class FedYogi(_FedOpt):
    """FedYogi (Reddi et al. 2021, arXiv:2003.00295): as FedAdam, with another second moment.

        V <- V - (1 - b2) v^2 sign(V - v^2)

    In one round V changes by at most (1 - b2) v^2.
    """

    name = "FedYogi"
    keeps = "two more vectors, and what the rule keeps"

    eta_s: float = 0.01
    b1: float = 0.9
    b2: float = 0.99
    tau: float = 1e-3
    rule: Algorithm[Any] = field(default_factory=FedAvg)

    def _second(self, V: Tensor, square: Tensor) -> Tensor:
        return V - (1 - self.b2) * square * torch.sign(V - square)


@dataclass(frozen=True)
class FedAdagrad(_FedOpt):
    """FedAdagrad (Reddi et al. 2021, arXiv:2003.00295): as FedAdam without the first moment, and with V <- V + v^2."""

    name = "FedAdagrad"
    keeps = "two more vectors, and what the rule keeps"
    b1 = 0.0
    b2 = 0.0

    eta_s: float = 0.1
    tau: float = 1e-3
    rule: Algorithm[Any] = field(default_factory=FedAvg)

    def _second(self, V: Tensor, square: Tensor) -> Tensor:
        return V + square
