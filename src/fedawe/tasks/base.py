"""What can be learned: clients with data, a loss, and a way to evaluate a model."""

from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, Literal

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from fedawe.core.metric import Metric
from fedawe.tasks.layout import Layout

Metrics = Mapping[str, float | list[float]]
Rule = Literal["iid", "epochs"]


@dataclass(frozen=True)
class Work:
    """What k clients have to do in round t. Everything random in it is named by (seed, t, client) or, for epochs, by
    (seed, client) and the number of rounds in which the client was active before."""

    A: Tensor  # the clients                                                       [k]
    t: int
    seed: int
    steps: int
    size: int  # samples per step
    rule: Rule
    visits: Tensor  # in how many rounds before t each of them was active          [k]

    def rows(self, rows: slice) -> "Work":
        """The same for some of the clients."""
        return replace(self, A=self.A[rows], visits=self.visits[rows])


class Task(ABC):
    """A learning problem whose models are flat vectors x [d]; k clients are handled at once, one row each.

    Subclass it for a task of your own: `clients`, `initial`, `batches`, `gradients` and `evaluate` are required,
    everything else has a default. Everything random in a round is in its batches, and is drawn by name.

    metrics      what `evaluate` returns: titles, units, which direction is better, and which metric decides
    stacked      whether several clients are trained faster at once than one after another
    buffers      b: how many of the last numbers of a model are buffers, such as the running statistics of batch
                 normalisation, and not parameters. A model is then a vector [d + b]. Buffers are not trained:
                 `gradients` updates them in place, and the server averages them over the active clients
    layout       names and shapes of parameters and buffers; None where they have none
    frequencies  how often each class occurs at each client [m, C]; None where there are no classes
    sizes        how many samples each client has [m]; None where that has no meaning
    input_shape  the shape of one input; None where that has no meaning
    """

    metrics: tuple[Metric, ...] = ()
    stacked: bool = False
    buffers: int = 0
    layout: Layout | None = None
    frequencies: npt.NDArray[np.float64] | None = None
    sizes: npt.NDArray[np.int64] | None = None
    input_shape: tuple[int, ...] | None = None

    @property
    @abstractmethod
    def clients(self) -> int:
        """m."""

    @abstractmethod
    def initial(self, seed: int) -> Tensor:
        """x^0 and its buffers, [d + b]."""

    @abstractmethod
    def batches(self, work: Work) -> Any:
        """The data that the clients use in the steps of a round, in any form that `gradients` understands."""

    @abstractmethod
    def gradients(self, x: Tensor, batches: Any, step: int) -> Tensor:
        """The stochastic gradient of each client at its row of x [k, d + b], [k, d].

        Where there are buffers, it updates the last b columns of x in place, as a forward pass in training does.
        """

    def descend(self, x: Tensor, batches: Any, steps: int, eta: float, clip: float | None = None) -> None:
        """x <- x - eta gradient, step by step for every client, in place; a task that can fuse these does so here.

        `clip` is the largest norm of one client's gradient; None for no clip.
        """
        parameters = x[:, : x.shape[1] - self.buffers]  # a view                                     [k, d]
        for step in range(steps):
            g = self.gradients(x, batches, step)
            if clip is not None:
                g = g * (clip / torch.linalg.vector_norm(g, dim=1, keepdim=True).clamp(min=clip))
            parameters.sub_(g, alpha=eta)

    @abstractmethod
    def evaluate(self, x: Tensor) -> Metrics:
        """How good the model x [d + b] is: numbers by name, or lists of numbers."""
