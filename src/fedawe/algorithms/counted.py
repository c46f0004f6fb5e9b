"""Any algorithm that chooses clients, with a count of the rounds in which each client was active.

With shuffled epochs a client continues in its next active round where it stopped, so its number of active rounds must
be known. If the algorithm chooses among the available clients, the trace does not say which were active.
"""

from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor

from fedawe.algorithms.base import Algorithm, State, known_clients
from fedawe.algorithms.buffers import WithBuffers
from fedawe.algorithms.exchange import Upload, absorb, chooses, first_state
from fedawe.algorithms.facts import name_of
from fedawe.algorithms.wrapper import NestedState, Wrapper


@dataclass(frozen=True)
class CountedState(NestedState):
    """The rule's own state, and the number of active rounds of each client."""

    active: Tensor  # number of rounds in which each client was active                           [m] int64


@dataclass(frozen=True)
class Counted(Wrapper[CountedState]):
    """An unchanged rule with a count of the rounds in which each client was active.

    >>> import fedawe
    >>> counted = Counted(fedawe.F3AST(capacity=1))
    >>> state = counted.aggregate(counted.init(torch.zeros(1), m=2), 0, torch.tensor([1]), torch.ones(1, 1))
    >>> counted.visits(state)
    tensor([0, 1])
    """

    rule: Algorithm[Any]

    @property
    def name(self) -> str:
        """The rule's name."""
        return name_of(self.rule)

    def init(self, x0: Tensor, m: int) -> CountedState:
        """No client has been active."""
        own: State = first_state(self.rule, x0, m)
        return CountedState(own.t, m, own, torch.zeros(m, dtype=torch.int64, device=own.latest.device))

    def absorb(self, state: CountedState, t: int, A: Tensor, upload: Upload) -> CountedState:
        """The rule's round; the counts of the clients A grow by one."""
        own: State = absorb(self.rule, state.own, t, A, upload)
        active = state.active.clone()
        active[known_clients(A, state)] += 1
        return state.after(t, own=own, active=active)

    def visits(self, state: CountedState) -> Tensor:
        """The number of rounds in which each client was active, [m]."""
        return state.active


def with_count(algorithm: Algorithm[Any]) -> Algorithm[Any]:
    """The algorithm with a count of active rounds: itself if it has one, or if all available clients are active."""
    if isinstance(algorithm, WithBuffers):
        return replace(algorithm, rule=with_count(algorithm.rule))
    return Counted(algorithm) if chooses(algorithm) and not _counts(algorithm) else algorithm


def _counts(algorithm: Any) -> bool:
    """Whether an algorithm, or a rule inside it, counts the rounds in which clients were active."""
    if isinstance(algorithm, Wrapper) and type(algorithm).visits is Wrapper.visits:
        return _counts(algorithm.rule)
    return hasattr(algorithm, "visits")
