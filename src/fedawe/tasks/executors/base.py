"""What every executor can do: the gradients and steps of a network for one client, or for several at once."""

from collections.abc import Callable, Iterable, Sequence
from typing import Protocol

import torch
from torch import Tensor

Kept = dict[str, Tensor]
Loss = Callable[[Tensor, Tensor], Tensor]  # (outputs [B, ...], targets [B, ...]) -> one loss per sample [B]
# Inputs [k, B, ...], targets [k, B], weights [k, B], and a seed for each client where the network draws something.
Batch = tuple[Tensor, Tensor, Tensor, Sequence[int] | None]


class Executor(Protocol):
    """Computes a network. All executors agree to rounding; which one it is decides the last bits of a result."""

    name: str  # as users write it
    why: str  # a clause that says why this one was chosen
    random: bool  # whether training draws something, and wants a seed for every client and step
    mixes: bool  # whether the samples of a batch may have an influence on each other, so that none may be padding

    def stacked(self, x: Tensor, inputs: Tensor, targets: Tensor) -> bool:
        """Whether several clients are trained at once: decided by x [d + b] and a few samples, never by a clock."""

    def outputs(self, x: Tensor, inputs: Tensor) -> Tensor:
        """What the network x [d + b] gives for inputs [N, ...] in evaluation, [N, ...]."""

    def gradients(self, x: Tensor, batch: Batch, kept: Kept) -> Tensor:
        """The gradient of sum_b weights_b loss_b at each row of x [k, d + b], [k, d]; buffers change in place.

        `kept` is what an executor carries from step to step of a round; it is empty before the first.
        """

    def descend(self, x: Tensor, batches: Iterable[Batch], rate: float) -> None:
        """x <- x - rate gradient for every batch of a round in turn, x [k, d + b] in place."""


def rounded_to(x: Tensor) -> torch.dtype | None:
    """To which type `torch.autocast` rounds the operands of products on the device of x; None: it is not in force."""
    device = x.device.type
    return torch.get_autocast_dtype(device) if torch.is_autocast_enabled(device) else None


def masks(shapes: Sequence[torch.Size], p: Sequence[float], seeds: Sequence[int] | None, like: Tensor) -> list[Tensor]:
    """What each dropout layer keeps, scaled, [k, B, ...] each; all of a client's are drawn at once under its seed."""
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
