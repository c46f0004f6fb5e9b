"""Random crops and flips, for each image or for a whole batch."""

from dataclasses import dataclass
from typing import Literal

import numpy as np
import torch
from torch import Tensor

PAD = 4


@dataclass(frozen=True)
class Augment:
    """Shift images by up to 4 pixels and mirror half of them; the border is filled with the mean colour.

    per   "image": every image by itself; "batch": all images of a batch alike, as in the authors' code
    flip  mirror left and right with probability one half
    """

    flip: bool
    per: Literal["image", "batch"] = "image"

    def draw(self, steps: int, size: int, generator: np.random.Generator) -> Tensor:
        """The shift (row, column) of every image of a client's round, and whether it is mirrored, [s, B, 3] int64."""
        shape = (steps, size if self.per == "image" else 1)
        shifts = generator.integers(2 * PAD + 1, size=(*shape, 2))
        mirror = generator.integers(2, size=(*shape, 1)) if self.flip else np.zeros((*shape, 1), dtype=np.int64)
        return torch.from_numpy(np.broadcast_to(np.concatenate([shifts, mirror], 2), (steps, size, 3)).copy())

    @staticmethod
    def apply(padded: Tensor, rows: Tensor, draws: Tensor) -> Tensor:
        """Crops [B, C, H, W] of the padded images [n, C, H + 8, W + 8] in these rows [B], by the draws [B, 3]."""
        if padded.device.type != "cpu":
            return gathered(padded, rows, draws)
        C, H, W = padded.shape[1], padded.shape[2] - 2 * PAD, padded.shape[3] - 2 * PAD
        source = padded.numpy()
        out = np.empty((len(rows), C, H, W), dtype=source.dtype)
        for n, (row, (y, x, mirror)) in enumerate(zip(rows.tolist(), draws.tolist(), strict=True)):
            window = source[row, :, y : y + H, x : x + W]
            out[n] = window[:, :, ::-1] if mirror else window
        return torch.from_numpy(out)


def gathered(padded: Tensor, rows: Tensor, draws: Tensor) -> Tensor:
    """The same in few large operations, for devices on which many small ones are slow."""
    (B,), C = rows.shape, padded.shape[1]
    H, W = padded.shape[2] - 2 * PAD, padded.shape[3] - 2 * PAD
    columns = torch.arange(W, device=padded.device)
    columns = torch.where(draws[:, 2:] == 1, W - 1 - columns, columns) + draws[:, 1:2]  # [B, W]
    lines = draws[:, :1] + torch.arange(H, device=padded.device)  # [B, H]
    source = (lines[:, :, None] * (W + 2 * PAD) + columns[:, None]).view(B, 1, H * W)
    return padded[rows].view(B, C, -1).gather(2, source.expand(B, C, H * W)).view(B, C, H, W)
