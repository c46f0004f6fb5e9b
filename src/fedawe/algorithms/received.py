"""Any algorithm, and beside it the mean over all clients of the model each received last.

FedAWE's x-bar is such a mean, over past global models, and averaging alone is known to help. To tell what echo and
gossip do from what averaging does, every algorithm can be given the same kind of average.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from torch import Tensor

from fedawe.algorithms.base import Algorithm, State, known_clients
from fedawe.algorithms.facts import diagnostics_of, further_models
from fedawe.algorithms.versions import Versions


@dataclass(frozen=True)
class ReceivedState(State):
    """The algorithm's own state, and who received which global model last."""

    own: State
    held: Versions

    @property
    def latest(self) -> Tensor:
        """The algorithm's, [d]."""
        return self.own.latest


@dataclass(frozen=True)
class Received:
    """`algorithm`, unchanged; whoever is active in round t receives x^{t+1}, as in FedAWE.

    >>> import torch, fedawe
    >>> algorithm = Received(fedawe.FedAvg())
    >>> state = algorithm.init(torch.zeros(1), m=2)
    >>> state = algorithm.aggregate(state, 0, torch.tensor([0]), torch.tensor([[1.0]]))    # x^1 = -1 goes to client 0
    >>> algorithm.model(state), algorithm.received(state)
    (tensor([-1.]), tensor([-0.5000]))
    """

    algorithm: Algorithm[Any]

    def init(self, x0: Tensor, m: int) -> ReceivedState:
        """Everyone holds x0."""
        own: State = self.algorithm.init(x0, m)
        return ReceivedState(own.t, m, own, Versions.of(own.latest.clone(), m))

    def start(self, state: ReceivedState, A: Tensor) -> Tensor:
        """Where the algorithm has them begin, [k, d]."""
        return self.algorithm.start(state.own, A)

    def aggregate(self, state: ReceivedState, t: int, A: Tensor, G: Tensor) -> ReceivedState:
        """The algorithm's round; then A receive what it made."""
        own: State = self.algorithm.aggregate(state.own, t, A, G)
        A = known_clients(A, state)
        if len(A) == 0:
            return state.after(t, own=own, held=state.held.after(t))
        # A copy: a checkpoint is refused if two of its tensors are one.
        return state.after(t, own=own, held=state.held.advance(t, A, own.latest.clone()))

    def model(self, state: ReceivedState) -> Tensor:
        """The algorithm's, [d]."""
        return self.algorithm.model(state.own)

    def received(self, state: ReceivedState) -> Tensor:
        """The mean over all m clients of the model each received last, [d]."""
        return state.held.mean()

    def also(self, state: ReceivedState) -> dict[str, Tensor]:
        """The algorithm's own, and the received mean."""
        return {**further_models(self.algorithm, state.own), "received": self.received(state)}

    def diagnostics(self, state: ReceivedState) -> Mapping[str, float]:
        """The algorithm's own."""
        return diagnostics_of(self.algorithm, state.own)
