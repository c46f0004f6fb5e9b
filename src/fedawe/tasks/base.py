"""What can be learned: clients with data, a loss, and a way to evaluate a model."""

from collections.abc import Mapping
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt
from torch import Tensor

Metrics = Mapping[str, float | list[float]]


class Task(Protocol):
    """Models are flat vectors x [d]; k clients are handled at once, one row each. Subclass it for a task of your own.

    Everything random in a round is in its batches, and depends on (seed, t, client) alone.
    """

    @property
    def clients(self) -> int:
        """m."""

    @property
    def stacked(self) -> bool:
        """Whether `gradients` takes several clients at once; otherwise they are trained one by one."""

    def initial(self, seed: int) -> Tensor:
        """x^0, [d]."""

    def batches(self, A: Tensor, t: int, steps: int, size: int, seed: int) -> Any:
        """What the clients A [k] will look at in the steps of round t; whatever `gradients` understands."""

    def gradients(self, x: Tensor, batches: Any, step: int) -> Tensor:
        """The stochastic gradient of each client at its row of x [k, d], [k, d]."""

    def descend(self, x: Tensor, batches: Any, step: int, eta: float) -> None:
        """x <- x - eta gradient for every client, in place; a task that can fuse the two does so here."""
        x.sub_(self.gradients(x, batches, step), alpha=eta)

    def evaluate(self, x: Tensor) -> Metrics:
        """How good the model x [d] is, by name."""

    @property
    def frequencies(self) -> npt.NDArray[np.float64] | None:
        """How often each class occurs at each client, [m, C]; None where there are no classes."""
