"""Random crops and flips, for each image or for a whole batch."""

from dataclasses import dataclass
from typing import Literal

import numpy as np
import torch
from torch import Tensor
from torch.nn.functional import pad

PAD = 4


@dataclass(frozen=True)
class Augment:
    """Shift by up to 4 pixels (zeros come in, which is the mean colour after normalisation) and perhaps mirror.

    per   "image": every image by itself; "batch": all images of a batch alike, as in the authors' code
    flip  mirror left and right with probability one half
    """

    flip: bool
    per: Literal["image", "batch"] = "image"

    def draw(self, steps: int, size: int, generator: np.random.Generator) -> Tensor:
        """Row, column and mirror of every image of a client's round, [s, B, 3] int64."""
        shape = (steps, size if self.per == "image" else 1)
        shifts = generator.integers(2 * PAD + 1, size=(*shape, 2))
        mirror = generator.integers(2, size=(*shape, 1)) if self.flip else np.zeros((*shape, 1), dtype=np.int64)
        return torch.from_numpy(np.broadcast_to(np.concatenate([shifts, mirror], 2), (steps, size, 3)).copy())

    @staticmethod
    def padded(images: Tensor) -> Tensor:
        """images [n, C, H, W] with a margin to crop from."""
        return pad(images, (PAD, PAD, PAD, PAD))

    @staticmethod
    def apply(padded: Tensor, draws: Tensor) -> Tensor:
        """Crops [B, C, H, W] of padded images [B, C, H + 8, W + 8], as draws [B, 3] say."""
        B, C = padded.shape[:2]
        H, W = padded.shape[2] - 2 * PAD, padded.shape[3] - 2 * PAD
        columns = torch.arange(W, device=padded.device)
        columns = torch.where(draws[:, 2:] == 1, W - 1 - columns, columns) + draws[:, 1:2]  # [B, W]
        rows = draws[:, :1] + torch.arange(H, device=padded.device)  # [B, H]
        source = (rows[:, :, None] * (W + 2 * PAD) + columns[:, None]).view(B, 1, H * W)
        return padded.view(B, C, -1).gather(2, source.expand(B, C, H * W)).view(B, C, H, W)
