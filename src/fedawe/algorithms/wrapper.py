"""What algorithms around another rule share: whatever they do not change, the rule does."""

from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, Generic, Self, TypeVar

import numpy as np
from torch import Tensor

from fedawe.algorithms import exchange
from fedawe.algorithms.base import Algorithm, State
from fedawe.algorithms.exchange import Broadcast, Upload
from fedawe.algorithms.facts import (
    deployed_form,
    diagnostics_of,
    further_models,
    initial_share,
    is_linear,
    is_private,
    metrics_of,
    name_of,
    needs_plain_local,
    statistics_of,
)
from fedawe.algorithms.notebook import Shown
from fedawe.core.errors import UserError
from fedawe.core.metric import Metric


@dataclass(frozen=True)
class NestedState(State):
    """The state of the rule inside."""

    own: State

    @property
    def latest(self) -> Tensor:
        """The rule's last aggregate, [d]."""
        return self.own.latest

    def with_model(self, x: Tensor) -> Self:
        """This state, in which the rule has the global model x [d]."""
        return replace(self, own=self.own.with_model(x))


N = TypeVar("N", bound=NestedState)


class Wrapper(Shown, ABC, Generic[N]):
    """An algorithm around `rule`; a subclass has `init` and `absorb`."""

    rule: Algorithm[Any]

    @property
    def linear(self) -> bool:
        """The rule's."""
        return is_linear(self.rule)

    @property
    def plain_local(self) -> bool:
        """The rule's."""
        return needs_plain_local(self.rule)

    @property
    def weightable(self) -> bool:
        """The rule's."""
        return bool(getattr(self.rule, "weightable", True))

    @property
    def sums_to_one(self) -> bool:
        """The rule's."""
        return bool(getattr(self.rule, "sums_to_one", False))

    @property
    def private(self) -> bool:
        """The rule's."""
        return is_private(self.rule)

    @property
    def chooses(self) -> bool:
        """The rule's."""
        return exchange.chooses(self.rule)

    @property
    def metrics(self) -> tuple[Metric, ...]:
        """The rule's."""
        return metrics_of(self.rule)

    def start(self, state: N, A: Tensor) -> Tensor:
        """Where the rule has them begin, [k, d]."""
        return self.rule.start(state.own, A)

    def choose(self, state: N, t: int, A: Tensor, draw: np.random.Generator) -> Tensor:
        """The rule's choice."""
        return exchange.choose(self.rule, state.own, t, A, draw)

    def broadcast(self, state: N, t: int, A: Tensor) -> Broadcast:
        """The rule's."""
        return exchange.broadcast(self.rule, state.own, t, A)

    @abstractmethod
    def absorb(self, state: N, t: int, A: Tensor, upload: Upload) -> N:
        """The state after round t."""

    def aggregate(self, state: N, t: int, A: Tensor, G: Tensor) -> N:
        """The same for innovations alone."""
        return self.absorb(state, t, A, Upload.of(G))

    def visits(self, state: N) -> Tensor | None:
        """The rule's count of the rounds in which each client was active."""
        return exchange.visits_of(self.rule, state.own)

    def model(self, state: N) -> Tensor:
        """The rule's, [d]."""
        return self.rule.model(state.own)

    def also(self, state: N) -> dict[str, Tensor]:
        """The rule's further models."""
        return dict(further_models(self.rule, state.own))

    def statistics(self, ends: Tensor) -> Tensor:
        """What becomes of the running statistics [k, b] that the active clients end with, [b]: as the rule has it."""
        return statistics_of(self.rule, ends)

    def deployed(self) -> Self:
        """Around the rule as it is deployed."""
        return replace(self, rule=deployed_form(self.rule))  # type: ignore[type-var]

    def initial_share(self, state: N) -> float:
        """The rule's."""
        return initial_share(self.rule, state.own)

    def diagnostics(self, state: N) -> Mapping[str, float]:
        """The rule's."""
        return diagnostics_of(self.rule, state.own)


def check_rule(rule: Any) -> None:
    """Refuses what is no algorithm."""
    missing = [verb for verb in ("init", "start", "aggregate", "model") if not hasattr(rule, verb)]
    if missing or isinstance(rule, type):
        raise UserError(f"rule is {rule!r}; expected an algorithm, as in rule=fedawe.FedAvg()")


def check_averages(rule: Any, purpose: str) -> None:
    """Refuses a rule that does not take the mean over the active clients of something that each of them adds."""
    check_rule(rule)
    if not (callable(getattr(rule, "updates", None)) and callable(getattr(rule, "apply", None))):
        raise UserError(
            f"{name_of(rule)} does not take the plain mean of the active clients' updates, which {purpose} needs; use "
            "FedAWE, FedAvg, FedProx, or an algorithm of yours with the methods `updates` and `apply`"
        )
