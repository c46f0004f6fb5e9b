"""Any algorithm, together with the mean over all clients of the model that each received last.

FedAWE's x-bar is such a mean of past global models, and averaging models alone is known to help. With the same kind of
average for every algorithm, the effect of echo and gossip can be separated from that of averaging.
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
    """The rule's own state, and the global model that each client received last."""

    held: Versions


@dataclass(frozen=True)
class Received(Wrapper[ReceivedState]):
    """`rule`, unchanged, with a record of the models that clients receive: the clients of round t receive x^{t+1}.

    >>> import torch, fedawe
    >>> algorithm = Received(fedawe.FedAvg())
    >>> state = algorithm.init(torch.zeros(1), m=2)
    >>> state = algorithm.aggregate(state, 0, torch.tensor([0]), torch.tensor([[1.0]]))    # x^1 = -1 goes to client 0
    >>> algorithm.model(state), algorithm.received(state)
    (tensor([-1.]), tensor([-0.5000]))
    """

    rule: Algorithm[Any]

    def init(self, x0: Tensor, m: int) -> ReceivedState:
        """Every client holds x0."""
        own: State = first_state(self.rule, x0, m)
        return ReceivedState(own.t, m, own, Versions.of(own.latest.clone(), m))

    def absorb(self, state: ReceivedState, t: int, A: Tensor, upload: Upload) -> ReceivedState:
        """The rule's round; then the clients A receive its last aggregate."""
        own: State = absorb(self.rule, state.own, t, A, upload)
        A = known_clients(A, state)
        if len(A) == 0:
            return state.after(t, own=own, held=state.held.after(t))
        # A copy, because safetensors does not store two tensors that share memory.
        return state.after(t, own=own, held=state.held.advance(t, A, own.latest.clone()))

    def received(self, state: ReceivedState) -> Tensor:
        """The mean over all m clients of the model that each received last, [d]."""
        return state.held.mean()

    def also(self, state: ReceivedState) -> dict[str, Tensor]:
        """The rule's further models, and the mean of the received models."""
        return {**super().also(state), "received": self.received(state)}
