"""Any torch.nn.Module as a network: a function of one flat vector of its parameters and buffers."""

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn

from fedawe.core.errors import UserError
from fedawe.core.files import brief
from fedawe.core.rng import rng
from fedawe.tasks.data.labelled import Data
from fedawe.tasks.executors import Batch, Executor, ExecutorName, Kept, Loss, executor_of
from fedawe.tasks.executors.differentiated import checked_loss
from fedawe.tasks.layout import Layout


def cross_entropy(outputs: Tensor, targets: Tensor) -> Tensor:
    """One loss per sample, [B]."""
    return nn.functional.cross_entropy(outputs, targets, reduction="none")


class ModuleNetwork:
    """Any torch.nn.Module as a network: `make()` builds it, `loss(outputs, targets)` gives one loss per sample.

    make      builds the module
    loss      what is trained and what is evaluated
    executor  how the module is computed. "dense": a chain of linear layers in closed form, all clients at once.
              "layers": the usual layers, in the memory layout that suits the processor. "autograd": any module, by its
              own forward method. "auto": the first of these that can compute the module; they agree to rounding
    start     gives the initial vector [d + b] of a seed; None: the vector of a module that `make` builds, with torch's
              generators seeded for it

    Floating-point buffers, such as the running statistics of batch normalisation, are the last numbers of x [d + b]:
    training updates them and evaluation uses them. A parameter with `requires_grad=False` is not trained. Random
    numbers in training (dropout) are drawn under a seed named by (seed, t, client).
    """

    def __init__(
        self,
        make: Callable[[], nn.Module],
        loss: Loss = cross_entropy,
        executor: ExecutorName = "auto",
        start: Callable[[int], Tensor] | None = None,
    ) -> None:
        self.make, self.per_sample, self.asked, self.start = make, loss, executor, start
        if isinstance(make, nn.Module):
            kind = type(make).__name__
            raise UserError(
                f"make is the module {kind} itself; expected a function that builds it, as in lambda: {kind}(...)"
            )
        self.module = make()
        if not isinstance(self.module, nn.Module):
            raise UserError(f"make returned {type(self.module).__name__}; expected a torch.nn.Module")
        self.layout = Layout.of(self.module)
        self.executors: dict[int, Executor] = {}  # number of dimensions of an input -> executor

    def described(self) -> dict[str, Any]:
        """The fields that identify the network in the header of a record."""
        return {"make": self.make, "loss": self.per_sample, "executor": self.asked, "start": self.start}

    def executor(self, dimensions: int) -> Executor:
        """The executor of the network, for inputs that have this number of dimensions each."""
        if dimensions not in self.executors:
            exact = self.per_sample is cross_entropy
            self.executors[dimensions] = executor_of(
                self.module, self.layout, self.per_sample, exact, dimensions, self.asked
            )
        return self.executors[dimensions]

    def check_fits(self, data: Data) -> None:
        """Refuses data if the network fails on a sample, or does not return one number for each class.

        With a loss of the user's own, or with several labels for a sample, any output is accepted.
        """
        x = data.inputs(data.x_train, torch.zeros(1, dtype=torch.int64, device=data.x_train.device))
        try:
            found: Any = self.outputs(self.layout.vector(self.module.state_dict()).to(x.device), x)
        except (RuntimeError, ValueError, IndexError) as error:
            if x.is_floating_point() and x.dtype != self.layout.dtype:
                raise UserError(
                    f"{data.name}: inputs are {x.dtype}, the parameters of the network {self.layout.dtype}; expected "
                    f"one type, as x.to({self.layout.dtype}) makes it"
                ) from None
            raise UserError(
                f"{data.name}: the network cannot compute a sample of the shape {list(data.shape)} ({brief(error)})"
            ) from None
        if self.per_sample is not cross_entropy or data.y_train.ndim > 1:
            return
        if not isinstance(found, Tensor) or found.ndim != 2 or found.shape[1] < data.classes:
            got = f"a tensor of shape {list(found.shape)}" if isinstance(found, Tensor) else f"a {type(found).__name__}"
            raise UserError(
                f"{data.name}: the network returns {got} for one sample; expected a tensor [1, {data.classes}] with "
                "one number for each class"
            )

    def initial(self, seed: int) -> Tensor:
        """The initial vector of this seed, [d + b]; the global random state is restored afterwards."""
        if self.start is not None:
            x, size = self.start(seed), self.layout.parameters + self.layout.buffers
            if x.shape != (size,):
                raise UserError(f"start returned a tensor of shape {list(x.shape)}; expected [{size}], the whole model")
            return x
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(int(rng(seed, "init").integers(2**63)))
            return self.layout.vector(self.make().state_dict())

    def loss(self, outputs: Tensor, targets: Tensor) -> Tensor:
        """The loss of each sample, [B]."""
        return checked_loss(self.per_sample, outputs, targets)

    def outputs(self, x: Tensor, inputs: Tensor) -> Tensor:
        """The outputs of the network in evaluation mode, with the buffers in x [d + b]; [N, ...]."""
        return self.executor(inputs.ndim - 1).outputs(x, inputs)

    def gradients(self, x: Tensor, batch: Batch, kept: Kept | None = None) -> Tensor:
        """The gradient in training mode, [k, d]; the buffers in x [k, d + b] are updated in place.

        `kept` holds the state that is carried from step to step of a round; it is empty before the first step.
        """
        return self.executor(batch[0].ndim - 2).gradients(x, batch, {} if kept is None else kept)
