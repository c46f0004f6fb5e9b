"""How client work is executed: the protocol of every engine, and the engine that works in this process."""

from collections.abc import Sequence
from typing import Any, Protocol, runtime_checkable

import torch
from torch import Tensor

from fedawe.algorithms.exchange import Broadcast, Upload
from fedawe.tasks.base import Metrics, Task
from fedawe.training.local import Local
from fedawe.training.shares import trained
from fedawe.training.stacking import is_stacked


class Engine(Protocol):
    """An engine trains clients and evaluates models.

    The numbers depend on the task and on how clients are grouped, never on the engine: `simulate` and `Experiment.run`
    let every process use one thread.
    """

    def train(self, down: Broadcast, A: Tensor, t: int, seed: int, visits: Tensor) -> Upload:
        """What the clients A [k] upload in round t after receiving `down`, one row per client.

        The clients were active in `visits` [k] rounds before. The tensors may be overwritten by the next round.
        """

    def evaluate(self, x: Tensor) -> Metrics:
        """The metrics of the model x [d]."""

    def use(self, task: Task, local: Local, stacked: bool | None = None) -> None:
        """Switch to another task or another kind of local training.

        `stacked` says whether several clients are trained at once; None leaves it to the task. The last bits of a
        result depend on it.
        """

    def close(self) -> None:
        """Release processes and memory."""


@runtime_checkable
class Divisible(Protocol):
    """A task whose evaluation consists of pieces that can be computed separately."""

    def pieces(self) -> Sequence[Any]:
        """The pieces."""

    def ask(self, x: Tensor, piece: Any) -> Tensor:
        """Evaluate the model x [d] on one piece."""

    def summary(self, answers: Sequence[Tensor]) -> Metrics:
        """The metrics, from the answers of all pieces in order."""


class Inline:
    """An engine that does everything in this process."""

    def __init__(self, task: Task, local: Local, stacked: bool | None = None) -> None:
        self.use(task, local, stacked)

    def train(self, down: Broadcast, A: Tensor, t: int, seed: int, visits: Tensor) -> Upload:
        return trained(self.task, self.local, down, A, t, seed, visits, self.stacked)

    def evaluate(self, x: Tensor) -> Metrics:
        return self.task.evaluate(x)

    def close(self) -> None:
        """Nothing to release."""

    def use(self, task: Task, local: Local, stacked: bool | None = None) -> None:
        self.task, self.local, self.stacked = task, local, is_stacked(task, local, stacked)


def innovations(
    task: Task,
    local: Local,
    X: Tensor,
    A: Tensor,
    t: int,
    seed: int,
    visits: Tensor | None = None,
    stacked: bool | None = None,
) -> Tensor:
    """G = x^(t,0) - x^(t,s) of the clients A [k], which start round t from the rows of X [k, d]; [k, d]."""
    visits = torch.zeros_like(A) if visits is None else visits
    return Inline(task, local, stacked).train(Broadcast(X), A, t, seed, visits).G
