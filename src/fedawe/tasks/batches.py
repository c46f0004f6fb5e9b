"""The samples of a round: which client uses which of them in which step."""

from dataclasses import dataclass, field
from functools import cached_property

from torch import Tensor


@dataclass(frozen=True)
class Batches:
    """Which samples the k active clients use, step by step; weights sum to 1 over a client's batch (0: padding)."""

    inputs: Tensor  # of all samples of the round, [n, ...]
    targets: Tensor  # [n]
    samples: Tensor  # rows of inputs and targets, [s, k, B] int64
    weights: Tensor  # [k, B]
    sizes: list[int]  # how many of the B are no padding, [k]
    draws: Tensor | None  # how each image is shifted and mirrored, [s, k, B, 3]
    seeds: list[list[int]] | None  # for dropout and other random numbers of the network, [s][k]
    kept: dict[str, Tensor] = field(default_factory=dict)  # what an executor carries from step to step of the round

    @property
    def padded(self) -> bool:
        """Whether some client has fewer samples than the width of a batch."""
        return len(self.sizes) > 1 and min(self.sizes) < self.samples.shape[2]

    @cached_property
    def alone(self) -> list["Batches"]:
        """The batches of each client by itself, [k]."""
        return [
            Batches(
                self.inputs,
                self.targets,
                self.samples[:, n : n + 1],
                self.weights[n : n + 1],
                [size],
                None if self.draws is None else self.draws[:, n : n + 1],
                None if self.seeds is None else [[row[n]] for row in self.seeds],
            )
            for n, size in enumerate(self.sizes)
        ]
