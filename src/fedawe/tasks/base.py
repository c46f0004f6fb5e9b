"""The base class of tasks: clients with data, a loss, and a way to evaluate a model."""

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal, Protocol

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from fedawe.core.errors import UserError
from fedawe.core.metric import Metric
from fedawe.tasks.layout import Layout

Metrics = Mapping[str, float | list[float]]
Rule = Literal["iid", "epochs"]


@dataclass(frozen=True)
class Work:
    """The local work of k clients in round t.

    All its random numbers are drawn by name: by (seed, t, client) or, for the rule "epochs", by (seed, client) and the
    number of earlier rounds in which the client was active.
    """

    A: Tensor  # the clients                                                       [k]
    t: int
    seed: int
    steps: int
    size: int  # samples per step
    rule: Rule
    visits: Tensor  # in how many rounds before t each client was active            [k]
    counts: Tensor | None = None  # steps of each client, where they differ; `steps` is the largest  [k]

    def steps_of(self, row: int) -> int:
        """The number of steps of the client in this row."""
        return self.steps if self.counts is None else int(self.counts[row])


class Optimiser(Protocol):
    """A local optimiser, which turns gradients into steps.

    Its state is created at the start of a round and dropped at its end.
    """

    def begin(self, parameters: Tensor, rate: float) -> Callable[[Tensor], None]:
        """Begin a round: returns a function that takes gradients [k, d] and changes the parameters [k, d] in place."""


@dataclass(frozen=True)
class Update:
    """What k clients do with every stochastic gradient g of a round: y <- y - rate (clip(g) + shift + prox (y - x)).

    y is the local iterate, x where the client began. An optimiser, if any, takes clip(g) + shift + prox (y - x) as its
    gradient and makes the step itself.
    """

    rate: float  # eta_l(t)
    clip: float | None = None  # largest norm of g; None for no clip
    shift: Tensor | None = None  # [k, d]
    prox: float = 0.0
    optimiser: Optimiser | None = None  # None for plain SGD
    counts: Tensor | None = None  # steps of each client, where they differ; a client with fewer stops early   [k]

    @property
    def plain(self) -> bool:
        """Whether every step is y <- y - rate g for all clients, so that gradient and step may be one operation."""
        only_rate = self.clip is None and self.shift is None and self.prox == 0
        return only_rate and self.optimiser is None and self.counts is None

    def begin(self, parameters: Tensor) -> Callable[[Tensor], None]:
        """Begin a round: returns a function that takes gradients g [k, d] and changes the parameters [k, d] in place.

        The parameters must be x when this is called.
        """
        x = parameters.clone() if self.prox else parameters
        optimise = None if self.optimiser is None else self.optimiser.begin(parameters, self.rate)

        def move(g: Tensor) -> None:
            if self.clip is not None:
                g = g * (self.clip / torch.linalg.vector_norm(g, dim=1, keepdim=True).clamp(min=self.clip))
            if self.shift is not None:
                g = g + self.shift
            if self.prox:
                g = g + self.prox * (parameters - x)
            if optimise is None:
                parameters.sub_(g, alpha=self.rate)
            else:
                optimise(g)

        return move


class Task(ABC):
    """A learning problem whose models are flat vectors x [d]; k clients are handled at once, one row each.

    Subclass it for a task of your own: `clients`, `initial`, `batches`, `gradients` and `evaluate` are required,
    everything else has a default. Everything random in a round is in its batches, and is drawn by name.

    clients      m: an attribute of the class or of the object, or a property
    metrics      what `evaluate` returns: titles, units, which direction is better, and which metric decides
    stacked      whether several clients are trained at once, as groups of rows of x, or one after another. None: at
                 once, if models are small and a trial gives the same results as training them one after another
    buffers      b: how many of the last numbers of a model are buffers, such as the running statistics of batch
                 normalisation, and not parameters. A model is then a vector [d + b]. Buffers are not trained:
                 `gradients` updates them in place, and the server averages them over the active clients
    layout       names and shapes of parameters and buffers; None where they have no names
    frequencies  how often each class occurs at each client [m, C]; None where there are no classes
    sizes        how many samples each client has [m]; None where that has no meaning
    input_shape  the shape of one input; None where that has no meaning
    executor     name of the executor that computes the network, where there is a choice, and `executor_why` the reason
                 for the choice; the executor decides the last bits of results
    mixed        whether `gradients` may run under `torch.autocast`, which rounds the operands of products; without it
                 `Local(precision="bfloat16")` is refused
    """

    metrics: tuple[Metric, ...] = ()
    stacked: bool | None = None
    buffers: int = 0
    layout: Layout | None = None
    frequencies: npt.NDArray[np.float64] | None = None
    sizes: npt.NDArray[np.int64] | None = None
    input_shape: tuple[int, ...] | None = None
    executor: str | None = None
    executor_why: str | None = None
    mixed: bool = False

    if TYPE_CHECKING:  # read-only for type checkers: an attribute may override a property, but not the reverse

        @property
        def clients(self) -> int:
            """m."""

    else:
        clients: int

    @abstractmethod
    def initial(self, seed: int) -> Tensor:
        """x^0 and its buffers, [d + b]."""

    @abstractmethod
    def batches(self, work: Work) -> Any:
        """The data that the clients use in the steps of a round, in any form that `gradients` understands."""

    @abstractmethod
    def gradients(self, x: Tensor, batches: Any, step: int) -> Tensor:
        """The stochastic gradient of each client at its row of x [k, d + b], [k, d].

        Where there are buffers, it also updates the last b columns of x in place, as a forward pass in training does.
        """

    def descend(self, x: Tensor, batches: Any, steps: int, update: Update) -> None:
        """Makes the steps of every client, each a gradient and an update; x [k, d + b] changes in place.

        A task that can compute gradient and step in one operation may override this method for updates that are
        `plain`, and should call it for all others. Parameters that are not trained according to the layout do not
        change, whatever the update adds to gradients.
        """
        move = update.begin(x[:, : x.shape[1] - self.buffers])
        frozen = [x[:, at] for at in self.layout.frozen.values()] if self.layout is not None else []  # views
        sent = [one.clone() for one in frozen]
        for step in range(steps):
            done = None if update.counts is None else (update.counts <= step).nonzero().flatten()
            ends = None if done is None else x[done]  # a copy
            g = self.gradients(x, batches, step)
            if step == 0:
                self._check_gradients(g, x)
            move(g)
            for one, was in zip(frozen, sent, strict=True):
                one.copy_(was)
            if done is not None and ends is not None:
                x[done] = ends

    def _check_gradients(self, g: Any, x: Tensor) -> None:
        """Refuses gradients that are not one row [d] for each row of x [k, d + b]."""
        expected = [len(x), x.shape[1] - self.buffers]
        if not isinstance(g, Tensor) or list(g.shape) != expected:
            got = f"a tensor of shape {list(g.shape)}" if isinstance(g, Tensor) else type(g).__name__
            raise UserError(
                f"{type(self).__name__}.gradients returned {got} for x of shape {list(x.shape)}; expected one gradient "
                f"for each row of x, {expected}"
            )

    def losses(self, x: Tensor, batches: Any) -> Tensor:
        """The mean loss of each client at its row of x [k, d + b], on the batch of its first step, [k].

        Optional: for rules that choose clients by their losses.
        """
        del x, batches
        raise UserError(
            f"{type(self).__name__} does not tell the losses of its clients, which the algorithm needs to choose "
            "clients; give it a method losses(x, batches)"
        )

    @abstractmethod
    def evaluate(self, x: Tensor) -> Metrics:
        """The metrics of the model x [d + b]: by name, a number or a list of numbers each."""
