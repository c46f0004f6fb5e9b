"""The protocol of executors: the gradients and steps of a network for one client, or for several at once."""

from collections.abc import Callable, Iterable, Sequence
from typing import Protocol

import torch
from torch import Tensor

Kept = dict[str, Tensor]
Loss = Callable[[Tensor, Tensor], Tensor]  # (outputs [B, ...], targets [B, ...]) -> one loss per sample [B]
# Inputs [k, B, ...], targets [k, B], weights [k, B], and a seed for each client where the network draws random numbers.
Batch = tuple[Tensor, Tensor, Tensor, Sequence[int] | None]


class Executor(Protocol):
    """Computes a network. All executors agree to rounding; the choice of one decides the last bits of a result."""

    name: str  # as users write it
    why: str  # a clause that says why this executor was chosen
    random: bool  # whether training draws random numbers, and needs a seed for every client and step
    mixes: bool  # whether the samples of a batch may influence each other, so that none may be padding

    def stacked(self, x: Tensor, inputs: Tensor, targets: Tensor) -> bool:
        """Whether several clients are trained at once: decided from x [d + b] and a few samples, never by timing."""

    def outputs(self, x: Tensor, inputs: Tensor) -> Tensor:
        """The outputs of the network x [d + b] for inputs [N, ...] in evaluation, [N, ...]."""

    def gradients(self, x: Tensor, batch: Batch, kept: Kept) -> Tensor:
        """The gradient of sum_b weights_b loss_b at each row of x [k, d + b], [k, d]; buffers change in place.

        `kept` is the state that an executor carries from step to step of a round; it is empty before the first step.
        """

    def descend(self, x: Tensor, batches: Iterable[Batch], rate: float) -> None:
        """x <- x - rate gradient for every batch of a round in turn, x [k, d + b] in place."""


def rounded_to(x: Tensor) -> torch.dtype | None:
    """The type to which `torch.autocast` rounds the operands of products on the device of x; None if it is off."""
    device = x.device.type
    return torch.get_autocast_dtype(device) if torch.is_autocast_enabled(device) else None


def masks(shapes: Sequence[torch.Size], p: Sequence[float], seeds: Sequence[int] | None, like: Tensor) -> list[Tensor]:
    """The scaled masks of each dropout layer, [k, B, ...]; all masks of a client are drawn at once under its seed."""
    if not shapes:
        return []
    assert seeds is not None, "dropout needs a seed for every client"
    samples, sizes = shapes[0][0], [shape[1:].numel() for shape in shapes]
    rows = []
    for seed in seeds:
        draw = torch.Generator().manual_seed(seed)
        rows.append(torch.rand(samples, sum(sizes), generator=draw).split(sizes, dim=1))
    return [
        torch.stack([(row[n] >= p[n]).to(like) / (1 - p[n] or 1) for row in rows]).view(len(rows), *shape)
        for n, shape in enumerate(shapes)
    ]
