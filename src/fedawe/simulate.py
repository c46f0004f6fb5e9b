"""The round loop."""

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import Generic

from torch import Tensor

from fedawe.algorithms.base import Algorithm, S
from fedawe.errors import UserError
from fedawe.local import Local, innovations
from fedawe.tasks.base import Task
from fedawe.trace import Trace


@dataclass(frozen=True)
class Round(Generic[S]):
    """What round t left behind; its state is all that `simulate` needs to go on from here."""

    t: int
    A: Tensor  # who was there                                                     [k]
    state: S
    algorithm: Algorithm[S]

    @cached_property
    def x(self) -> Tensor:
        """The model to evaluate, [d]; computed when asked for."""
        return self.algorithm.model(self.state)


def simulate(
    task: Task, algorithm: Algorithm[S], trace: Trace, local: Local, *, seed: int, resume: S | None = None
) -> Iterator[Round[S]]:
    """Run the algorithm on the task round by round, as the trace has it; from the start, or on from the state `resume`.

    Two calls with the same arguments give the same numbers, and so does a call that goes on from any round of another.
    """
    if trace.clients != task.clients:
        raise UserError(f"the trace has {trace.clients} clients, the task {task.clients}")
    state = algorithm.init(task.initial(seed), task.clients) if resume is None else resume
    for t in range(state.t + 1, trace.rounds):
        A = trace.active(t)
        X = algorithm.start(state, A)  # x_i^t                                     [k, d]
        G = innovations(task, local, X, A, t, seed)  # x_i^t - x_i^(t,s)           [k, d]
        state = algorithm.aggregate(state, t, A, G)
        yield Round(t, A, state, algorithm)
