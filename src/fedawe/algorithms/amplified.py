"""Amplified FedAvg (Wang and Ji 2022, arXiv:2205.13648), around any rule with one global model."""

from dataclasses import dataclass, field
from typing import Any

from torch import Tensor

from fedawe.algorithms.base import Algorithm, State, check_whole, skipped_rounds_are_empty
from fedawe.algorithms.exchange import Upload, absorb, first_state, in_order
from fedawe.algorithms.fedavg import FedAvg
from fedawe.algorithms.wrapper import NestedState, Wrapper, check_rule
from fedawe.core.errors import UserError


@dataclass(frozen=True)
class AmplifiedState(NestedState):
    """The rule's state, and the model at the beginning of the period."""

    x_prev: Tensor  # [d]


@dataclass(frozen=True)
class Amplified(Wrapper[AmplifiedState]):
    """Amplified FedAvg (Wang and Ji 2022, arXiv:2205.13648), around any rule with one global model.

    After every P = `period` rounds the change of the model in these rounds is multiplied by gamma.

        every P rounds:   x <- x_prev + gamma (x - x_prev),   x_prev <- x

    Empty rounds count towards P. gamma = 1 is the rule itself; P = 1 multiplies eta_g by gamma. Amplification makes up
    for rounds in which only some clients are active. It does not make up for clients that are active in fewer rounds
    than others, so the bias of the rule remains.

    >>> import torch
    >>> amplified = Amplified(period=2, gamma=3.0)
    >>> state = amplified.init(torch.zeros(1), m=1)
    >>> for t in range(2):
    ...     state = amplified.aggregate(state, t, torch.tensor([0]), torch.ones(1, 1))
    >>> amplified.model(state)
    tensor([-6.])
    """

    name = "Amplified"
    keeps = "one more vector, and what the rule keeps"

    rule: Algorithm[Any] = field(default_factory=FedAvg)
    period: int = 20
    gamma: float = 1.5

    def __post_init__(self) -> None:
        check_rule(self.rule)
        check_whole("period", self.period)
        if not isinstance(self.gamma, int | float) or not 1 <= self.gamma < float("inf"):
            raise UserError(f"gamma is {self.gamma!r}; expected a number from 1")

    def init(self, x0: Tensor, m: int) -> AmplifiedState:
        """x_prev = x^0."""
        own: State = first_state(self.rule, x0, m)
        own.with_model(own.latest)  # refuses a rule without a global model
        return AmplifiedState(own.t, m, own, own.latest.clone())

    def absorb(self, state: AmplifiedState, t: int, A: Tensor, upload: Upload) -> AmplifiedState:
        """The rule's round, and the amplification at the end of a period."""
        A, up = in_order(state, t, A, upload)
        state = skipped_rounds_are_empty(self, state, t)
        own: State = absorb(self.rule, state.own, t, A, up)
        if (t + 1) % self.period:
            return state.after(t, own=own)
        x = state.x_prev + self.gamma * (own.latest - state.x_prev)
        return state.after(t, own=own.with_model(x), x_prev=x.clone())
