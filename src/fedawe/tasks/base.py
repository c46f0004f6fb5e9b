"""What can be learned: clients with data, a loss, and a way to evaluate a model."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, Literal, Protocol

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from fedawe.tasks.layout import Layout

Metrics = Mapping[str, float | list[float]]
Rule = Literal["iid", "epochs"]


@dataclass(frozen=True)
class Work:
    """What k clients have to do in round t. Everything random in it is named by (seed, t, client) or, for epochs, by
    (seed, client) and how often the client was there before."""

    A: Tensor  # the clients                                                       [k]
    t: int
    seed: int
    steps: int
    size: int  # samples per step
    rule: Rule
    visits: Tensor  # in how many rounds before t each of them was there           [k]

    def rows(self, rows: slice) -> "Work":
        """The same for some of the clients."""
        return replace(self, A=self.A[rows], visits=self.visits[rows])


class Task(Protocol):
    """Models are flat vectors x [d]; k clients are handled at once, one row each. Subclass it for a task of your own.

    A model with b buffers is a vector [d + b], the parameters first.

    Everything random in a round is in its batches, and is drawn by name.
    """

    @property
    def clients(self) -> int:
        """m."""

    @property
    def stacked(self) -> bool:
        """Whether several clients at once are the better way to train them; otherwise one after another."""

    @property
    def layout(self) -> Layout | None:
        """The names and shapes behind a model's numbers; None where they have no names."""
        return None

    @property
    def buffers(self) -> int:
        """b, how many of a model's last numbers are buffers, such as the running statistics of batch normalisation.

        They are not trained: `gradients` updates them in place, and the server averages them over the active clients.
        """
        return 0

    def initial(self, seed: int) -> Tensor:
        """x^0 and its buffers, [d + b]."""

    def batches(self, work: Work) -> Any:
        """What the clients will look at in the steps of the round; whatever `gradients` understands."""

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

    def evaluate(self, x: Tensor) -> Metrics:
        """How good the model x [d + b] is, by name."""

    @property
    def frequencies(self) -> npt.NDArray[np.float64] | None:
        """How often each class occurs at each client, [m, C]; None where there are no classes."""
