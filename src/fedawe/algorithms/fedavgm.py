"""FedAvgM: server momentum (Hsu, Qi and Brown 2019, arXiv:1909.06335)."""

from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor

from fedawe.algorithms.base import Algorithm, State, check_fraction, check_positive, skipped_rounds_are_empty
from fedawe.algorithms.exchange import Upload, absorb, first_state, in_order
from fedawe.algorithms.fedavg import FedAvg
from fedawe.algorithms.wrapper import NestedState, Wrapper, check_rule


@dataclass(frozen=True)
class MomentumState(NestedState):
    """The rule's state and the momentum."""

    b: Tensor  # [d]


@dataclass(frozen=True)
class FedAvgM(Wrapper[MomentumState]):
    """FedAvgM (Hsu, Qi and Brown 2019, arXiv:1909.06335): momentum at the server, around any rule.

    The rule must have one global model. v is what the rule subtracts from x^t:

        b <- beta b + v,     x^{t+1} = x^t - eta_s b

    The default rule is FedAvg; around FedAU or MIFA it is the momentum of an unbiased update. An empty round in which
    the rule does not change x changes nothing.

    >>> fedavgm = FedAvgM(beta=0.5)
    >>> state = fedavgm.init(torch.zeros(1), m=1)
    >>> for t in range(2):
    ...     state = fedavgm.aggregate(state, t, torch.tensor([0]), torch.ones(1, 1))
    >>> fedavgm.model(state), state.b    # 0 - 1 - 1.5
    (tensor([-2.5000]), tensor([1.5000]))
    """

    name = "FedAvgM"
    keeps = "one more vector, and what the rule keeps"

    beta: float = 0.9
    eta_s: float = 1.0
    rule: Algorithm[Any] = field(default_factory=FedAvg)

    def __post_init__(self) -> None:
        check_fraction("beta", self.beta)
        check_positive("eta_s", self.eta_s)
        check_rule(self.rule)

    def init(self, x0: Tensor, m: int) -> MomentumState:
        """b = 0."""
        own: State = first_state(self.rule, x0, m)
        own.with_model(own.latest)  # refuses a rule without a global model
        return MomentumState(own.t, m, own, torch.zeros_like(own.latest))

    def absorb(self, state: MomentumState, t: int, A: Tensor, upload: Upload) -> MomentumState:
        """The rule's round, then the momentum and the step."""
        A, up = in_order(state, t, A, upload)
        state = skipped_rounds_are_empty(self, state, t)
        own: State = absorb(self.rule, state.own, t, A, up)
        v = state.latest - own.latest
        if len(A) == 0 and not v.any():
            return state.after(t, own=own)
        b = self.beta * state.b + v
        return state.after(t, own=own.with_model(state.latest - self.eta_s * b), b=b)
