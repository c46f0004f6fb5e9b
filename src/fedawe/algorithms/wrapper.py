"""The base class of algorithms around another rule: every method that they do not override is that of the rule."""

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
    """The state of a wrapper: the state of the rule inside."""

    own: State

    @property
    def latest(self) -> Tensor:
        """The rule's last aggregate, [d]."""
        return self.own.latest

    def with_model(self, x: Tensor) -> Self:
        """This state with the global model x [d] of the rule."""
        return replace(self, own=self.own.with_model(x))


N = TypeVar("N", bound=NestedState)


class Wrapper(Shown, ABC, Generic[N]):
    """An algorithm around `rule`; a subclass defines `init` and `absorb`."""

    rule: Algorithm[Any]

    @property
    def linear(self) -> bool:
        """Whether the rule's model is linear in the innovations."""
        return is_linear(self.rule)

    @property
    def plain_local(self) -> bool:
        """Whether the rule needs plain SGD at the clients."""
        return needs_plain_local(self.rule)

    @property
    def weightable(self) -> bool:
        """Whether `Weighted` may scale the rule's innovations."""
        return bool(getattr(self.rule, "weightable", True))

    @property
    def sums_to_one(self) -> bool:
        """Whether the rule averages the active clients."""
        return bool(getattr(self.rule, "sums_to_one", False))

    @property
    def private(self) -> bool:
        """Whether the rule adds noise that hides the contribution of any one client."""
        return is_private(self.rule)

    @property
    def chooses(self) -> bool:
        """Whether the rule may ask fewer than all available clients."""
        return exchange.chooses(self.rule)

    @property
    def metrics(self) -> tuple[Metric, ...]:
        """The rule's diagnostics."""
        return metrics_of(self.rule)

    def start(self, state: N, A: Tensor) -> Tensor:
        """The models at which the rule has clients A begin, [k, d]."""
        return self.rule.start(state.own, A)

    def choose(self, state: N, t: int, A: Tensor, draw: np.random.Generator) -> Tensor:
        """The rule's choice."""
        return exchange.choose(self.rule, state.own, t, A, draw)

    def broadcast(self, state: N, t: int, A: Tensor) -> Broadcast:
        """The rule's broadcast."""
        return exchange.broadcast(self.rule, state.own, t, A)

    @abstractmethod
    def absorb(self, state: N, t: int, A: Tensor, upload: Upload) -> N:
        """The state after round t."""

    def aggregate(self, state: N, t: int, A: Tensor, G: Tensor) -> N:
        """The state after round t, if the clients made one step with learning rate 1."""
        return self.absorb(state, t, A, Upload.of(G))

    def visits(self, state: N) -> Tensor | None:
        """The number of rounds in which each client was active, [m]; None if the rule does not count them."""
        return exchange.visits_of(self.rule, state.own)

    def model(self, state: N) -> Tensor:
        """The rule's model, [d]."""
        return self.rule.model(state.own)

    def also(self, state: N) -> dict[str, Tensor]:
        """The rule's further models."""
        return dict(further_models(self.rule, state.own))

    def statistics(self, ends: Tensor) -> Tensor:
        """The rule's new running statistics [b], from those [k, b] of the active clients after training."""
        return statistics_of(self.rule, ends)

    def deployed(self) -> Self:
        """This wrapper around the form of the rule that is deployed."""
        return replace(self, rule=deployed_form(self.rule))  # type: ignore[type-var]

    def initial_share(self, state: N) -> float:
        """The weight of the initial model in the rule's model."""
        return initial_share(self.rule, state.own)

    def diagnostics(self, state: N) -> Mapping[str, float]:
        """The rule's diagnostics of a state, by name."""
        return diagnostics_of(self.rule, state.own)


def check_rule(rule: Any) -> None:
    """Refuses a rule that is not an algorithm."""
    missing = [verb for verb in ("init", "start", "aggregate", "model") if not hasattr(rule, verb)]
    if missing or isinstance(rule, type):
        raise UserError(f"rule is {rule!r}; expected an algorithm, as in rule=fedawe.FedAvg()")


def check_averages(rule: Any, purpose: str) -> None:
    """Refuses a rule without `updates` and `apply`, that is, without a mean over the active clients."""
    check_rule(rule)
    if not (callable(getattr(rule, "updates", None)) and callable(getattr(rule, "apply", None))):
        raise UserError(
            f"{name_of(rule)} does not take the plain mean of the active clients' updates, which {purpose} needs; use "
            "FedAWE, FedAvg, FedProx, or an algorithm of yours with the methods `updates` and `apply`"
        )
