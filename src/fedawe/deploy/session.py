"""All that changes in a federation: the algorithm's state, which clients were active when, and which node is which."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from typing import Any

import numpy as np
import torch
from torch import Tensor

from fedawe.algorithms.base import Algorithm, State
from fedawe.algorithms.exchange import Broadcast, Upload, absorb, broadcast, choose, first_state
from fedawe.algorithms.facts import diagnostics_of, further_models, initial_share, name_of
from fedawe.algorithms.private import check_trained
from fedawe.availability.dynamics import Mask
from fedawe.availability.past import Past
from fedawe.availability.trace import Trace
from fedawe.core.errors import Diverged, UserError
from fedawe.core.rng import rng
from fedawe.deploy.identity import Roster
from fedawe.deploy.wire import Reply, check_statistics, innovation, unfit, upload_of
from fedawe.results.record import Line
from fedawe.tasks.layout import Layout
from fedawe.training.diagnostics import diagnostics


@dataclass(frozen=True)
class Progress:
    """A session after some rounds, as a checkpoint keeps it."""

    state: Any
    on: Mask  # which clients were active when                                                  [rounds, m]
    roster: dict[str, Any]
    lines: Sequence[Line]  # what the record says of the last round

    @property
    def rounds(self) -> int:
        """How many are done."""
        return len(self.on)


class Session:
    """The algorithm at work on the clients of one federation; no step of it leaves a state that cannot be sent."""

    def __init__(self, algorithm: Algorithm[Any], layout: Layout, x0: Tensor, roster: Roster) -> None:
        self.algorithm, self.layout, self.roster = algorithm, layout, roster
        self.state: State = first_state(algorithm, x0, roster.clients)
        self.on: Mask = np.zeros((0, roster.clients), dtype=bool)
        self.past: Past | None = None  # what `on` says of all clients, carried along; None before the first round
        if (why := unfit(layout, x0)) is not None:
            raise UserError(f"initial_arrays: {why}")
        check_trained(algorithm, layout.frozen)
        _check_deployable(algorithm, self.state)

    def progress(self, lines: Sequence[Line] = ()) -> Progress:
        """For a checkpoint."""
        return Progress(self.state, self.on, self.roster.to_json(), lines)

    def restore(self, progress: Progress) -> None:
        """Go on from a checkpoint."""
        self.state = progress.state
        self._went(progress.on)
        self.roster.restore(progress.roster)

    def _went(self, on: Mask) -> None:
        """The rounds so far, and which clients were active in them [rounds, m]."""
        self.on = on
        if len(on):
            trace = Trace(on)
            self.past = self.past or Past(trace)
            self.past.trace = trace
            self.past.through(len(on) - 1)

    @property
    def rounds(self) -> int:
        """How many are done."""
        return len(self.on)

    def chosen(self, available: Sequence[int], seed: int) -> list[int]:
        """The clients that are asked in the coming round, of those that are available."""
        A = torch.tensor(sorted(available), dtype=torch.int64)
        return choose(self.algorithm, self.state, self.rounds, A, rng(seed, "choose", self.rounds)).tolist()

    def broadcast(self, clients: Sequence[int]) -> Broadcast:
        """What the clients receive in the coming round, with the server's buffers."""
        A = torch.tensor(clients, dtype=torch.int64)
        return broadcast(self.algorithm, self.state, self.rounds, A)

    def innovation(self, sent: Tensor, returned: Tensor, max_norm: float, max_statistics: float) -> Tensor:
        """What a client that was sent one vector and returned another contributes, [d + b]; refuses what is not fit."""
        G, last = innovation(self.layout, sent, returned, max_norm), self._buffers()
        check_statistics(self.layout, returned, last, bool(self.on.any()), max_statistics)
        # Of buffers what the server has counts, not what was sent: that may be of another dtype, and so rounded.
        return torch.cat([G, last - returned[self.layout.parameters :]])

    def _buffers(self) -> Tensor:
        return self.state.latest[self.layout.parameters :]

    def close(self, replies: Mapping[int, Reply]) -> str | None:
        """The round with these clients' replies; if its outcome is not fit, an empty round, and why."""
        A = torch.tensor(sorted(replies), dtype=torch.int64)
        state, why = self._after(A, upload_of([replies[i] for i in A.tolist()], self.state.latest))
        if why is not None and len(A):
            A = A[:0]
            state, also = self._after(A, upload_of([], self.state.latest))
            why = why if also is None else also
        if state is None:
            raise Diverged(f"round {self.rounds + 1}: {why}; lower the learning rate")
        self.state = state
        row = np.zeros((1, self.on.shape[1]), dtype=bool)
        row[0, A.numpy()] = True
        self._went(np.concatenate([self.on, row]))
        return why

    def _after(self, A: Tensor, upload: Upload) -> tuple[State | None, str | None]:
        """The state after a round in which the clients A returned this; None and why, if it is not fit."""
        try:
            state: State = absorb(self.algorithm, self.state, self.rounds, A, upload)
        except UserError as error:
            return None, str(error)
        models = [self.algorithm.model(state), state.latest, *further_models(self.algorithm, state).values()]
        found = (unfit(self.layout, x) for x in models)
        why = next((one for one in found if one is not None), None)
        if why is None and not all(torch.isfinite(one).all() for one in _tensors(state)):
            why = "the state of the algorithm would not be finite"
        return (state, None) if why is None else (None, why)

    def model(self) -> Tensor:
        """The model to evaluate or to ship, [d + b]."""
        return self.algorithm.model(self.state)

    def further(self) -> Mapping[str, Tensor]:
        """Further models that the algorithm has, such as FedAWE's last aggregate, [d + b] each."""
        return further_models(self.algorithm, self.state)

    @property
    def never_active(self) -> int:
        """How many clients have not been active in any round."""
        return self.state.m if self.past is None else int((self.past.last < 0).sum())

    def diagnostics(self) -> dict[str, float]:
        """How stale clients are after the last round, and what the algorithm says of its state."""
        assert self.past is not None
        return diagnostics(self.state, self.past) | dict(diagnostics_of(self.algorithm, self.state))

    @property
    def initial_share(self) -> float:
        """The share of the model that is the initial model, held by clients that were never active."""
        return initial_share(self.algorithm, self.state)


def _check_deployable(algorithm: Algorithm[Any], state: State) -> None:
    """Refuses an algorithm whose clients would have to return a gradient besides a model."""
    if broadcast(algorithm, state, 0, torch.tensor([0])).gradient:
        raise UserError(
            f"{name_of(algorithm)} asks its clients for gradients at the start of a round, which a deployment does not "
            "carry; choose another option, or simulate it"
        )


def _tensors(state: State) -> list[Tensor]:
    """The floating-point tensors of a state, except rows that are kept per client: those have been checked."""
    out: list[Tensor] = []
    for field in fields(state):
        value = getattr(state, field.name)
        if isinstance(value, State):
            out += _tensors(value)
        elif isinstance(value, Tensor) and value.is_floating_point():
            out.append(value)
    return out
