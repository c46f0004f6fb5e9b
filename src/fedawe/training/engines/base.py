"""How client work is executed: what every engine can do, and the engine that does it here and now."""

from collections.abc import Sequence
from typing import Any, Protocol, runtime_checkable

from torch import Tensor

from fedawe.algorithms.exchange import Broadcast, Upload
from fedawe.tasks.base import Metrics, Task
from fedawe.training.local import Local
from fedawe.training.shares import is_stacked, trained


class Engine(Protocol):
    """An engine trains clients and evaluates models.

    The numbers depend on the task and on how clients are grouped, never on the engine: `simulate` and `Experiment.run`
    let every process use one thread.
    """

    def train(self, down: Broadcast, A: Tensor, t: int, seed: int, visits: Tensor) -> Upload:
        """What the clients A [k] return in round t when they receive `down`, one row for each.

        They were active in `visits` [k] rounds before. The tensors may be overwritten by the next round.
        """

    def evaluate(self, x: Tensor) -> Metrics:
        """How good the model x [d] is."""

    def use(self, task: Task, local: Local, stacked: bool | None = None) -> None:
        """From now on another task, or another way to train; `stacked` says whether several clients are trained at
        once (None leaves it to the task), which decides the last bits of a result."""

    def close(self) -> None:
        """Give back what it holds."""


@runtime_checkable
class Divisible(Protocol):
    """A task whose evaluation falls into pieces that can be asked apart."""

    def pieces(self) -> Sequence[Any]:
        """The pieces."""

    def ask(self, x: Tensor, piece: Any) -> Tensor:
        """The answers of one piece."""

    def summary(self, answers: Sequence[Tensor]) -> Metrics:
        """All answers, in the order of the pieces, summed up."""


class Inline:
    """An engine that does everything in this process."""

    def __init__(self, task: Task, local: Local, stacked: bool | None = None) -> None:
        self.use(task, local, stacked)

    def train(self, down: Broadcast, A: Tensor, t: int, seed: int, visits: Tensor) -> Upload:
        return trained(self.task, self.local, down, A, t, seed, visits, self.stacked)

    def evaluate(self, x: Tensor) -> Metrics:
        return self.task.evaluate(x)

    def close(self) -> None:
        """Nothing to give back."""

    def use(self, task: Task, local: Local, stacked: bool | None = None) -> None:
        self.task, self.local, self.stacked = task, local, is_stacked(task, local, stacked)
