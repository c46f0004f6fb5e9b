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

# In what torch says of a function that vmap does not know, or does not know for the mixed types of autocast.
UNSTACKED = ("vmap", "expected scalar type")


# A step of a small network takes as long as its calls of functions, which several clients share. A step of a large one
# takes as long as its products, and one client at a time has the better kernels. Measured for 24 networks.
LIGHT = 1_000_000  # floating-point operations of a training step for each sample
SMALL = 200_000  # parameters; those of several clients do not stay in the cache if there are more


class Differentiated(ABC):
    """What the executors that use autograd have in common."""

    light = LIGHT  # up to so many operations of a sample several clients are trained at once

    def __init__(self, layout: Layout, frozen: frozenset[str], loss: Loss) -> None:
        self.layout, self.frozen, self.per_sample = layout, frozen, loss
        self.d, self.b = layout.parameters, layout.buffers
        self.buffers = [entry.name for entry in layout.ordered if entry.kind == "buffer"]
        self.stackable = True  # until `vmap` says otherwise

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

        `alone`: it is not called under vmap.
        """

    @abstractmethod
    def fresh(self, x: Tensor) -> Kept:
        """What a client carries from step to step of a round, as it is before the first."""

    @abstractmethod
    def draw(self, x: Tensor, inputs: Tensor, seeds: Sequence[int] | None) -> list[Tensor]:
        """Whatever the clients draw for one step, [k, ...] each."""

    def stacked(self, x: Tensor, inputs: Tensor, targets: Tensor) -> bool:
        """On a device always, where every operation has a cost of its own; on a processor if the network is small.

        Not if torch cannot stack its clients, or would draw under one seed what each of them draws under its own.
        """
        if not self.stackable or (x.device.type == "cpu" and self.d > SMALL):
            return False
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # torch says which functions it does not compute at once
            try:
                operations, drew = self._tried(x, inputs, targets)
                if drew or (x.device.type == "cpu" and operations > self.light * len(inputs)):
                    return False
                two = [torch.stack([each, each]) for each in (x, inputs, targets)]
                self.gradients(two[0], (two[1], two[2], x.new_ones(2, len(inputs)), [0, 0]), {})
            except Exception:  # what is wrong with the network is told when it is trained
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
        """Where the network itself draws from torch's generators: these are seeded, and afterwards as before."""
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
                self.stackable = False  # one after another from now on
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
    """Says in words of ours what batch normalisation says of a batch of one sample, and oneDNN of a type it lacks."""
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
            "a client has a batch of one sample, of which batch normalisation can measure no variance; give every "
            "client at least two samples"
        ) from None
