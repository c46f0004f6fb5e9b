"""Any algorithm on models that have buffers, such as the running statistics of batch normalisation.

An echo or a weight above 1 could make a running variance negative, so algorithms do not handle the buffers. The server
keeps one set of buffers. Every active client begins with it, and after the round it becomes the plain mean of the
buffers of the active clients.
"""

from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor

from fedawe.algorithms.base import Algorithm, State, is_whole, known_clients
from fedawe.algorithms.exchange import Broadcast, Upload, absorb, first_state
from fedawe.algorithms.facts import is_private, name_of, statistics_of
from fedawe.algorithms.wrapper import NestedState, Wrapper
from fedawe.core.errors import UserError


@dataclass(frozen=True)
class BufferedState(NestedState):
    """The rule's own state, and the server's buffers."""

    buffers: Tensor  # [b]

    @property
    def latest(self) -> Tensor:
        """The last aggregate with the buffers, [d + b]."""
        return torch.cat([self.own.latest, self.buffers])


@dataclass(frozen=True)
class WithBuffers(Wrapper[BufferedState]):
    """A rule on vectors [d + b]: it gets the first d numbers; the last b are averaged over the active clients.

    The mean (or the statistic that a robust rule uses instead) is computed in float64. An empty round does not change
    the buffers.

    >>> import fedawe
    >>> algorithm = WithBuffers(fedawe.FedAWE(), 1)
    >>> state = algorithm.init(torch.tensor([0.0, 1.0]), m=3)
    >>> G = torch.tensor([[1.0, 0.5], [3.0, 0.25]])    # the clients ended at buffers 0.5 and 0.75
    >>> algorithm.aggregate(state, 0, torch.tensor([0, 2]), G).buffers
    tensor([0.6250])
    """

    rule: Algorithm[Any]
    b: int

    def __post_init__(self) -> None:
        if not is_whole(self.b) or self.b < 1:
            raise UserError(f"b is {self.b!r}; expected the number of buffers, a whole number from 1")
        if is_private(self.rule):
            raise UserError(
                f"the model has {self.b} running statistics, which clients would send without noise; with differential "
                "privacy use a model without batch normalisation, such as one with group normalisation"
            )

    @property
    def name(self) -> str:
        """The rule's name."""
        return name_of(self.rule)

    def init(self, x0: Tensor, m: int) -> BufferedState:
        """The rule's state for the first d numbers of x0 [d + b], and the buffers."""
        if not isinstance(x0, Tensor) or x0.ndim != 1 or len(x0) <= self.b:
            got = f"shape {list(x0.shape)}" if isinstance(x0, Tensor) else type(x0).__name__
            raise UserError(f"x0 must be a vector of parameters and {self.b} buffers, not {got}")
        buffers = x0[-self.b :].detach().clone()
        if not torch.isfinite(buffers).all():
            raise UserError("x0 has buffers that are not finite")
        own: State = first_state(self.rule, x0[: -self.b], m)
        return BufferedState(own.t, m, own, buffers)

    def start(self, state: BufferedState, A: Tensor) -> Tensor:
        """The models at which the rule has clients A begin, with the server's buffers, [k, d + b]."""
        return self._with(state, self.rule.start(state.own, A))

    def broadcast(self, state: BufferedState, t: int, A: Tensor) -> Broadcast:
        """The rule's broadcast, with the server's buffers."""
        down = super().broadcast(state, t, A)
        return replace(down, x=self._with(state, down.x))

    def absorb(self, state: BufferedState, t: int, A: Tensor, upload: Upload) -> BufferedState:
        """The rule's round; the buffers become the mean of those of the clients A after training."""
        A, G, width = known_clients(A, state), upload.G, len(state.own.latest) + self.b
        if not isinstance(G, Tensor) or G.shape != (len(A), width):
            got = list(G.shape) if isinstance(G, Tensor) else type(G).__name__
            raise UserError(f"G must be of shape [{len(A)}, {width}], one row per client of A, not {got}")
        own: State = absorb(self.rule, state.own, t, A, replace(upload, G=G[:, : -self.b]))
        if len(A) == 0:
            return state.after(t, own=own)
        # Subtracted row by row before the mean, so that rounding does not make a client's running variance negative.
        ends = state.buffers.double() - G[A.argsort(), -self.b :].double()  # [k, b]
        buffers = statistics_of(self.rule, ends).to(state.buffers.dtype)
        if not torch.isfinite(buffers).all():
            raise UserError(f"the mean of the buffers in round {t} is not finite")
        return state.after(t, own=own, buffers=buffers)

    def model(self, state: BufferedState) -> Tensor:
        """The rule's model with the buffers, [d + b]."""
        return self._with(state, self.rule.model(state.own)[None])[0]

    def also(self, state: BufferedState) -> dict[str, Tensor]:
        """The rule's further models, with the same buffers, [d + b] each."""
        return {name: self._with(state, x[None])[0] for name, x in super().also(state).items()}

    def _with(self, state: BufferedState, x: Tensor) -> Tensor:
        """The rows x [k, d] and the server's buffers, [k, d + b]."""
        return torch.cat([x, state.buffers.expand(len(x), -1)], 1)


def with_buffers(algorithm: Algorithm[Any], b: int) -> Algorithm[Any]:
    """The algorithm for models with b buffers: itself if b is 0 or if it is wrapped already."""
    return algorithm if b == 0 or isinstance(algorithm, WithBuffers) else WithBuffers(algorithm, b)
