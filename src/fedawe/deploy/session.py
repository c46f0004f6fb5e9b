"""The state of a federation: the algorithm's state, the active clients of every round, and the nodes of clients."""

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
from fedawe.deploy.wire import Reply, check_statistics, innovation, upload_of, why_invalid
from fedawe.results.record import Line
from fedawe.tasks.layout import Layout
from fedawe.training.diagnostics import diagnostics


@dataclass(frozen=True)
class Progress:
    """The part of a session that a checkpoint contains."""

    state: Any
    on: Mask  # which clients were active in which round                                         [rounds, m]
    roster: dict[str, Any]
    lines: Sequence[Line]  # the record's lines of the last round

    @property
    def rounds(self) -> int:
        """The number of completed rounds."""
        return len(self.on)


class Session:
    """Runs the algorithm on the clients of one federation; the state never contains a model that cannot be sent."""

    def __init__(self, algorithm: Algorithm[Any], layout: Layout, x0: Tensor, roster: Roster) -> None:
        self.algorithm, self.layout, self.roster = algorithm, layout, roster
        self.state: State = first_state(algorithm, x0, roster.clients)
        self.on: Mask = np.zeros((0, roster.clients), dtype=bool)
        self.past: Past | None = None  # statistics of `on`, updated with it; None before the first round
        if (why := why_invalid(layout, x0)) is not None:
            raise UserError(f"initial_arrays: {why}")
        check_trained(algorithm, layout.frozen)
        _check_deployable(algorithm, self.state)

    def progress(self, lines: Sequence[Line] = ()) -> Progress:
        """The progress for a checkpoint; `lines` are the record's lines of the last round."""
        return Progress(self.state, self.on, self.roster.to_json(), lines)

    def restore(self, progress: Progress) -> None:
        """Continue from the progress in a checkpoint."""
        self.state = progress.state
        self._set_activity(progress.on)
        self.roster.restore(progress.roster)

    def _set_activity(self, on: Mask) -> None:
        """Set which clients were active in the rounds so far, [rounds, m]."""
        self.on = on
        if len(on):
            trace = Trace(on)
            self.past = self.past or Past(trace)
            self.past.trace = trace
            self.past.through(len(on) - 1)

    @property
    def rounds(self) -> int:
        """The number of completed rounds."""
        return len(self.on)

    def chosen(self, available: Sequence[int], seed: int) -> list[int]:
        """The clients that the algorithm chooses for the next round among the available ones."""
        A = torch.tensor(sorted(available), dtype=torch.int64)
        return choose(self.algorithm, self.state, self.rounds, A, rng(seed, "choose", self.rounds)).tolist()

    def broadcast(self, clients: Sequence[int]) -> Broadcast:
        """What the clients receive in the next round, with the server's buffers."""
        A = torch.tensor(clients, dtype=torch.int64)
        return broadcast(self.algorithm, self.state, self.rounds, A)

    def innovation(self, sent: Tensor, returned: Tensor, max_norm: float, max_statistics: float) -> Tensor:
        """The innovation of a client that received `sent` and returned `returned`, [d + b]; refuses invalid numbers."""
        G, last = innovation(self.layout, sent, returned, max_norm), self._buffers()
        check_statistics(self.layout, returned, last, bool(self.on.any()), max_statistics)
        # For buffers the server's own values count: those that were sent may be rounded to another dtype.
        return torch.cat([G, last - returned[self.layout.parameters :]])

    def _buffers(self) -> Tensor:
        return self.state.latest[self.layout.parameters :]

    def close(self, replies: Mapping[int, Reply]) -> str | None:
        """Complete the round with these clients' replies.

        If the resulting state would be invalid, the round is empty instead; returns the reason, otherwise None.
        """
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
        self._set_activity(np.concatenate([self.on, row]))
        return why

    def _after(self, A: Tensor, upload: Upload) -> tuple[State | None, str | None]:
        """The state after a round with the upload of the clients A, and None; if it is invalid, None and the reason."""
        try:
            state: State = absorb(self.algorithm, self.state, self.rounds, A, upload)
        except UserError as error:
            return None, str(error)
        models = [self.algorithm.model(state), state.latest, *further_models(self.algorithm, state).values()]
        found = (why_invalid(self.layout, x) for x in models)
        why = next((one for one in found if one is not None), None)
        if why is None and not all(torch.isfinite(one).all() for one in _tensors(state)):
            why = "the state of the algorithm would not be finite"
        return (state, None) if why is None else (None, why)

    def model(self) -> Tensor:
        """The model to evaluate or to deploy, [d + b]."""
        return self.algorithm.model(self.state)

    def further(self) -> Mapping[str, Tensor]:
        """Further models of the algorithm by name, such as FedAWE's last aggregate, [d + b] each."""
        return further_models(self.algorithm, self.state)

    @property
    def never_active(self) -> int:
        """The number of clients that have not been active in any round."""
        return self.state.m if self.past is None else int((self.past.last < 0).sum())

    def diagnostics(self) -> dict[str, float]:
        """The staleness of clients after the last round, and the algorithm's own diagnostics."""
        assert self.past is not None
        return diagnostics(self.state, self.past) | dict(diagnostics_of(self.algorithm, self.state))

    @property
    def initial_share(self) -> float:
        """The share of the model that is the initial model, held by clients that were never active."""
        return initial_share(self.algorithm, self.state)


def _check_deployable(algorithm: Algorithm[Any], state: State) -> None:
    """Refuses an algorithm that asks clients for a gradient in addition to a model."""
    if broadcast(algorithm, state, 0, torch.tensor([0])).gradient:
        raise UserError(
            f"{name_of(algorithm)} asks its clients for gradients at the start of a round, which a deployment cannot "
            "transfer; choose another option, or simulate it"
        )


def _tensors(state: State) -> list[Tensor]:
    """The floating-point tensors of a state, except the rows of clients or versions, which have been checked."""
    out: list[Tensor] = []
    for field in fields(state):
        value = getattr(state, field.name)
        if isinstance(value, State):
            out += _tensors(value)
        elif isinstance(value, Tensor) and value.is_floating_point():
            out.append(value)
    return out
