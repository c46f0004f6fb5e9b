"""Gradients by autograd, for one client, or for several at once under vmap."""

import warnings
from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial

import torch
from torch import Tensor
from torch.func import grad, vmap
from torch.utils.flop_counter import FlopCounterMode

from fedawe.core.errors import UserError
from fedawe.tasks.executors.base import Batch, Kept, Loss
from fedawe.tasks.layout import Layout

# Words in torch's errors for functions that vmap does not support at all, or not with the mixed types of autocast.
UNSTACKED = ("vmap", "expected scalar type")


# The time of a step of a small network is that of calling functions, and several clients can share the calls. The time
# of a step of a large one is that of its products, whose kernels are faster for one client. Measured for 24 networks.
LIGHT = 1_000_000  # floating-point operations of a training step for each sample
SMALL = 200_000  # parameters; with more, those of several clients do not fit into the cache


class Differentiated(ABC):
    """The base class of the executors that use autograd."""

    light = LIGHT  # several clients are trained at once up to this many operations for each sample

    def __init__(self, layout: Layout, frozen: frozenset[str], loss: Loss) -> None:
        self.layout, self.frozen, self.per_sample = layout, frozen, loss
        self.d, self.b = layout.parameters, layout.buffers
        self.buffers = [entry.name for entry in layout.ordered if entry.kind == "buffer"]
        self.stackable = True  # False once vmap has failed

    @abstractmethod
    def loss(
        self,
        parameters: Tensor,
        buffers: Tensor,
        kept: Kept,
        inputs: Tensor,
        targets: Tensor,
        weights: Tensor,
        *drawn: Tensor,
        alone: bool,
    ) -> tuple[Tensor, tuple[Tensor, Kept]]:
        """The loss of one client's batch, and its buffers [b] and `kept` afterwards; those given do not change.

        `alone`: whether it is called outside of vmap.
        """

    @abstractmethod
    def fresh(self, x: Tensor) -> Kept:
        """The state that a client carries from step to step of a round, before the first step."""

    @abstractmethod
    def draw(self, x: Tensor, inputs: Tensor, seeds: Sequence[int] | None) -> list[Tensor]:
        """The random numbers of the clients for one step, tensors [k, ...]."""

    def stacked(self, x: Tensor, inputs: Tensor, targets: Tensor) -> bool:
        """On a GPU always, where every operation has a fixed cost; on a CPU if the network is small.

        Never if vmap does not support the network, or if its clients, which have seeds of their own, would draw random
        numbers under one seed.
        """
        if not self.stackable or (x.device.type == "cpu" and self.d > SMALL):
            return False
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # torch warns of functions that it computes client by client
            try:
                operations, drew = self._tried(x, inputs, targets)
                if drew or (x.device.type == "cpu" and operations > self.light * len(inputs)):
                    return False
                two = [torch.stack([each, each]) for each in (x, inputs, targets)]
                self.gradients(two[0], (two[1], two[2], x.new_ones(2, len(inputs)), [0, 0]), {})
            except Exception:  # an error in the network is reported when it is trained
                return False
        return self.stackable

    def _tried(self, x: Tensor, inputs: Tensor, targets: Tensor) -> tuple[int, bool]:
        """The floating-point operations of one training step, and whether the network drew from torch's generators."""
        drawn = [each[0] for each in self.draw(x[None], inputs[None], [0])]
        row, kept = x[: self.d].detach().requires_grad_(), self.fresh(x)
        with self.seeded(0, x.device), torch.enable_grad(), FlopCounterMode(display=False) as counter:
            before = _generator_state(x.device)
            loss, _ = self.loss(row, x[self.d :], kept, inputs, targets, x.new_ones(len(inputs)), *drawn, alone=False)
            torch.autograd.grad(loss, row)
            drew = not torch.equal(before, _generator_state(x.device))
        return counter.get_total_flops(), drew

    @contextmanager
    def seeded(self, seed: int, device: torch.device) -> Iterator[None]:
        """Seeds torch's generators if the network draws from them, and restores them afterwards; here: nothing."""
        del seed, device
        yield

    def gradients(self, x: Tensor, batch: Batch, kept: Kept) -> Tensor:
        inputs, targets, weights, seeds = batch
        if not kept:
            kept.update({name: one.expand(len(x), *one.shape).clone() for name, one in self.fresh(x).items()})
        seeds = [0] * len(x) if seeds is None else seeds
        drawn = self.draw(x, inputs, seeds)
        if len(x) > 1 and self.stackable:
            try:
                with self.seeded(seeds[0], x.device):
                    gradients = vmap(grad(partial(self.loss, alone=False), has_aux=True), randomness="different")
                    g: Tensor
                    g, (buffers, new) = gradients(
                        x[:, : self.d], x[:, self.d :], dict(kept), inputs, targets, weights, *drawn
                    )
            except RuntimeError as error:
                if not any(words in str(error) for words in UNSTACKED):
                    raise
                self.stackable = False  # clients are computed one after another from now on
            else:
                if self.b:
                    x[:, self.d :] = buffers
                kept.update(new)
                return g
        rows = []
        for n in range(len(x)):
            row, own = x[n, : self.d].detach().requires_grad_(), {name: one[n] for name, one in kept.items()}
            with self.seeded(seeds[n], x.device), torch.enable_grad():
                batch_n = (inputs[n], targets[n], weights[n], *(each[n] for each in drawn))
                loss, (buffers, new) = self.loss(row, x[n, self.d :], own, *batch_n, alone=True)
                rows.append(torch.autograd.grad(loss, row)[0])
            if self.b:
                x[n, self.d :] = buffers
            for name, tensor in new.items():
                kept[name][n] = tensor
        return torch.stack(rows)

    def descend(self, x: Tensor, batches: Iterable[Batch], rate: float) -> None:
        if len(x) == 1:
            self.descend_alone(x[0], batches, rate)
            return
        kept: Kept = {}
        for batch in batches:
            g = self.gradients(x, batch, kept)
            x[:, : self.d].sub_(g, alpha=rate)

    @abstractmethod
    def descend_alone(self, x: Tensor, batches: Iterable[Batch], rate: float) -> None:
        """The same for one client, x [d + b] in place, with a leading dimension of 1 in the batches."""

    def weighted(self, outputs: Tensor, targets: Tensor, weights: Tensor) -> Tensor:
        """The loss of a batch from the losses of its samples."""
        return (weights * checked_loss(self.per_sample, outputs, targets)).sum()


def step(loss: Tensor, parameters: Sequence[Tensor], rate: float) -> None:
    """parameters <- parameters - rate gradient, in place; a parameter that has no part in the loss stays."""
    steps = torch.autograd.grad(loss, parameters, allow_unused=True)
    pairs = [(parameter, each) for parameter, each in zip(parameters, steps, strict=True) if each is not None]
    with torch.no_grad():
        torch._foreach_sub_([parameter for parameter, _ in pairs], [each for _, each in pairs], alpha=rate)


def _generator_state(device: torch.device) -> Tensor:
    return torch.cuda.get_rng_state(device) if device.type == "cuda" else torch.get_rng_state()


def checked_loss(loss: Loss, outputs: Tensor, targets: Tensor) -> Tensor:
    """One loss per sample, [B]."""
    found = loss(outputs, targets)
    if found.shape != targets.shape[:1]:
        raise UserError(
            f"loss gives a tensor of shape {list(found.shape)} for {len(targets)} samples; expected one loss per "
            "sample, as with reduction='none'"
        )
    return found


@contextmanager
def explained() -> Iterator[None]:
    """Explains two errors: of batch normalisation for a batch of one sample, and of oneDNN for a missing type."""
    try:
        yield
    except RuntimeError as error:
        # oneDNN has LSTMs in bfloat16 for some processors only.
        if "could not create a primitive" not in str(error) or not torch.is_autocast_enabled("cpu"):
            raise
        raise UserError(
            "precision is bfloat16, in which this processor cannot compute the network; use float32"
        ) from None
    except ValueError as error:
        if "more than 1 value per channel" not in str(error):
            raise
        raise UserError(
            "a client has a batch of one sample, for which batch normalisation cannot compute a variance; give every "
            "client at least two samples"
        ) from None
