"""Any algorithm, and beside it the mean over all clients of the model each received last.

FedAWE's x-bar is such a mean, over past global models, and averaging alone is known to help. To tell what echo and
gossip do from what averaging does, every algorithm can be given the same kind of average.
"""

from dataclasses import dataclass
from typing import Any

from torch import Tensor

from fedawe.algorithms.base import Algorithm, State, known_clients
from fedawe.algorithms.exchange import Upload, absorb, first_state
from fedawe.algorithms.versions import Versions
from fedawe.algorithms.wrapper import NestedState, Wrapper


@dataclass(frozen=True)
class ReceivedState(NestedState):
    """The rule's own state, and who received which global model last."""

    held: Versions


@dataclass(frozen=True)
class Received(Wrapper[ReceivedState]):
    """`rule`, unchanged; whoever is active in round t receives x^{t+1}, as in FedAWE.

    >>> import torch, fedawe
    >>> algorithm = Received(fedawe.FedAvg())
    >>> state = algorithm.init(torch.zeros(1), m=2)
    >>> state = algorithm.aggregate(state, 0, torch.tensor([0]), torch.tensor([[1.0]]))    # x^1 = -1 goes to client 0
    >>> algorithm.model(state), algorithm.received(state)
    (tensor([-1.]), tensor([-0.5000]))
    """

    rule: Algorithm[Any]

    def init(self, x0: Tensor, m: int) -> ReceivedState:
        """Everyone holds x0."""
        own: State = first_state(self.rule, x0, m)
        return ReceivedState(own.t, m, own, Versions.of(own.latest.clone(), m))

    def absorb(self, state: ReceivedState, t: int, A: Tensor, upload: Upload) -> ReceivedState:
        """The rule's round; then A receive what it made."""
        own: State = absorb(self.rule, state.own, t, A, upload)
        A = known_clients(A, state)
        if len(A) == 0:
            return state.after(t, own=own, held=state.held.after(t))
        # A copy: a checkpoint is refused if two of its tensors are one.
        return state.after(t, own=own, held=state.held.advance(t, A, own.latest.clone()))

    def received(self, state: ReceivedState) -> Tensor:
        """The mean over all m clients of the model each received last, [d]."""
        return state.held.mean()

    def also(self, state: ReceivedState) -> dict[str, Tensor]:
        """The rule's own, and the received mean."""
        return {**super().also(state), "received": self.received(state)}
