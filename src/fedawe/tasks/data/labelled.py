"""Labelled data: scikit-learn's handwritten digits, or a user's own npz."""

from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor
from torch.nn.functional import pad

from fedawe.core.errors import UserError
from fedawe.core.files import read_npz
from fedawe.core.rng import rng


@dataclass(frozen=True)
class Data:
    """Inputs and labels [N] int64, to train and to test.

    Inputs are [N, ...] float32 (images [N, channels, height, width]), or images as they are stored, [N, height, width,
    channels] uint8, which become floats only when they are looked at: (pixel/255 - mean)/std.
    """

    name: str
    x_train: Tensor
    y_train: Tensor
    x_test: Tensor
    y_test: Tensor
    mean: tuple[float, ...] = ()
    std: tuple[float, ...] = ()

    @property
    def classes(self) -> int:
        """C, counted from the training labels."""
        return int(self.y_train.max()) + 1

    @property
    def shape(self) -> torch.Size:
        """Of one input: [channels, height, width] for images."""
        shape = self.x_train.shape[1:]
        return torch.Size([shape[2], *shape[:2]]) if self.x_train.dtype == torch.uint8 else shape

    def to(self, device: torch.device) -> "Data":
        """The same on another device."""
        names = ("x_train", "y_train", "x_test", "y_test")
        return replace(self, **{name: getattr(self, name).to(device) for name in names})

    def shrunk(self, size: int) -> "Data":
        """Images of size x size, as floats: the means of squares of pixels."""
        height, width = self.shape[1:] if len(self.shape) == 3 else (0, 0)
        if size < 1 or not height or height % size or width % size or height // size != width // size:
            raise UserError(
                f"image_size is {size}; expected a divisor of the height and width of images, and the samples of "
                f"{self.name} have the shape {list(self.shape)}"
            )

        def shrink(x: Tensor) -> Tensor:
            pieces = torch.arange(len(x), device=x.device).split(4096)
            return torch.cat([torch.nn.functional.avg_pool2d(self.inputs(x, rows), height // size) for rows in pieces])

        return replace(self, x_train=shrink(self.x_train), x_test=shrink(self.x_test))

    def inputs(self, x: Tensor, rows: Tensor, margin: int = 0) -> Tensor:
        """The rows [n] of x_train or x_test as the network sees them, [n, ...] float32, with a margin of zeros."""
        # index_select is several times as fast as indexing with a tensor
        picked = x.index_select(0, rows)
        if picked.dtype != torch.uint8:
            return pad(picked, (margin,) * 4) if margin else picked
        std = torch.tensor(self.std, device=x.device)
        shift, scale = -torch.tensor(self.mean, device=x.device) / std, 1 / (255 * std)
        pixels = picked.permute(0, 3, 1, 2).contiguous().to(torch.float32)
        n, C, H, W = pixels.shape
        out = pixels.new_zeros(n, C, H + 2 * margin, W + 2 * margin)
        inner = out[:, :, margin : margin + H, margin : margin + W]
        torch.addcmul(shift.view(-1, 1, 1), pixels, scale.view(-1, 1, 1), out=inner)
        return out


def digits() -> Data:
    """1,797 real handwritten digits of 8 x 8 pixels, bundled with scikit-learn; one in five is kept for the test."""
    from sklearn.datasets import load_digits

    x, y = load_digits(return_X_y=True)
    images = torch.from_numpy(x / 16).to(torch.float32).unflatten(1, (1, 8, 8))
    labels = torch.from_numpy(y.astype(np.int64))
    order = torch.from_numpy(rng(0, "digits").permutation(len(labels)))  # the same split for every seed
    test, train = order[: len(order) // 5], order[len(order) // 5 :]
    return Data("digits", images[train], labels[train], images[test], labels[test])


def from_npz(path: str | Path) -> Data:
    """A file with x_train, y_train, x_test, y_test; uint8 becomes [0, 1]; [N, H, W] and [N, H, W, C] are images."""
    path = Path(path)
    arrays = read_npz(path)
    missing = {"x_train", "y_train", "x_test", "y_test"} - set(arrays)
    if missing:
        raise UserError(f"{path}: lacks {', '.join(sorted(missing))}; it has {sorted(arrays)}")
    out: dict[str, Tensor] = {}
    for part in ("train", "test"):
        x, y = arrays[f"x_{part}"], arrays[f"y_{part}"]
        out[f"x_{part}"], out[f"y_{part}"] = _inputs(path, f"x_{part}", x), _labels(path, f"y_{part}", y, len(x))
    if out["x_train"].shape[1:] != out["x_test"].shape[1:]:
        shapes = [list(arrays[f"x_{part}"].shape[1:]) for part in ("train", "test")]
        raise UserError(f"{path}: samples of x_train have the shape {shapes[0]}, those of x_test {shapes[1]}")
    data = Data(path.stem, out["x_train"], out["y_train"], out["x_test"], out["y_test"])
    if int(data.y_test.max()) >= data.classes:
        raise UserError(f"{path}: y_test has class {int(data.y_test.max())}, which y_train does not know")
    return data


def _inputs(path: Path, name: str, x: npt.NDArray[Any]) -> Tensor:
    if x.ndim < 2 or 0 in x.shape or x.dtype.kind not in "fiu":
        raise UserError(
            f"{path}: {name} must be numbers [N, ...] with N from 1, not {x.dtype} of shape {list(x.shape)}"
        )
    inputs = torch.from_numpy(x.astype(np.float32) / (255 if x.dtype == np.uint8 else 1))
    if not torch.isfinite(inputs).all():
        raise UserError(f"{path}: {name} has entries that are not finite")
    if inputs.ndim == 3:
        inputs = inputs[:, None]
    elif inputs.ndim == 4:
        inputs = inputs.permute(0, 3, 1, 2).contiguous()
    return inputs


def _labels(path: Path, name: str, y: npt.NDArray[Any], samples: int) -> Tensor:
    if y.shape != (samples,):
        raise UserError(f"{path}: {name} must have one label for each of {samples} samples, not shape {list(y.shape)}")
    if y.dtype.kind not in "iu" or y.min() < 0:
        raise UserError(f"{path}: {name} must be class numbers from 0, not {y.dtype}")
    if y.max() >= 10_000:
        raise UserError(f"{path}: {name} has a class number {y.max()}; classes are numbered from 0 without large gaps")
    return torch.from_numpy(y.astype(np.int64))
