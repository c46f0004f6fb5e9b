"""Labelled data in the one form that tasks use, and scikit-learn's handwritten digits."""

from dataclasses import dataclass, replace
from typing import Any, Literal

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor
from torch.nn.functional import pad

from fedawe.core.errors import UserError
from fedawe.core.rng import rng

Role = Literal["train", "validation", "test"]
TENSORS = ("x_train", "y_train", "x_test", "y_test", "x_val", "y_val")


@dataclass(frozen=True, eq=False)
class Data:
    """Inputs and labels to train and to test, perhaps also to validate, and which client has each training sample.

    name           shown to users; also selects the paper's network for its data sets
    x_...          inputs: [N, ...] float32 (images [N, channels, height, width]); images as they are stored, [N,
                   height, width, channels] uint8, which become floats only when used; or text, [N, length] int64
    y_...          labels [N] int64, or [N, length] where every position of a text has its own
    mean, std      of each channel: stored images are used as (pixel/255 - mean)/std; () leaves them in [0, 1]
    x_val, y_val   the validation set, on which rates are chosen; None if there is none
    client         which client has each training sample, [N] whole numbers or names; None if the data does not say
    text           whether the inputs are character codes
    known_classes  the number of classes; 0 to count them in the training labels
    """

    name: str
    x_train: Tensor
    y_train: Tensor
    x_test: Tensor
    y_test: Tensor
    mean: tuple[float, ...] = ()
    std: tuple[float, ...] = ()
    x_val: Tensor | None = None
    y_val: Tensor | None = None
    client: npt.NDArray[Any] | None = None
    text: bool = False
    known_classes: int = 0

    def __repr__(self) -> str:
        """The sizes of the data."""
        counts = [f"{len(self.y_train):,} to train", f"{len(self.y_test):,} to test"]
        if self.y_val is not None:
            counts.insert(1, f"{len(self.y_val):,} to validate")
        owners = "" if self.client is None else f", {len(np.unique(self.client))} clients"
        return f"Data({self.name}: {', '.join(counts)}; samples of {list(self.shape)}, {self.classes} classes{owners})"

    @property
    def classes(self) -> int:
        """C, counted from the training labels where it is not known otherwise."""
        return self.known_classes or int(self.y_train.max()) + 1

    @property
    def shape(self) -> torch.Size:
        """The shape of one input: [channels, height, width] for images."""
        shape = self.x_train.shape[1:]
        return torch.Size([shape[2], *shape[:2]]) if self.x_train.dtype == torch.uint8 else shape

    def checked(self) -> "Data":
        """The data with labels of type int64; refuses inputs or labels that are invalid or do not match."""
        validates = self.x_val is not None or self.y_val is not None
        parts = ("train", "test", "val") if validates else ("train", "test")
        for part in parts:
            self._check(part)
        labels = {f"y_{part}": getattr(self, f"y_{part}") for part in parts}
        for name, y in labels.items():
            if y.numel() and int(y.max()) >= self.classes:
                counted = "as known_classes says" if self.known_classes else "counted in y_train; give known_classes"
                raise UserError(
                    f"{self.name}: {name} has a class {int(y.max())}, but there are {self.classes} classes ({counted})"
                )
        other = {name: y.long() for name, y in labels.items() if y.dtype != torch.int64}
        return replace(self, **other) if other else self

    def _check(self, part: str) -> None:
        x, y = (getattr(self, f"{letter}_{part}") for letter in "xy")
        for name, found in ((f"x_{part}", x), (f"y_{part}", y)):
            if not isinstance(found, Tensor):
                raise UserError(
                    f"{self.name}: {name} is of type {type(found).__name__}; expected a torch.Tensor, as "
                    "torch.as_tensor makes it"
                )
        if y.is_floating_point() or y.is_complex() or y.dtype == torch.bool:
            raise UserError(f"{self.name}: y_{part} is {y.dtype}; expected class numbers from 0, torch.int64")
        one_each = y.ndim == 1 or (self.text and y.ndim == 2)
        if not one_each or x.shape[:1] != y.shape[:1]:
            raise UserError(
                f"{self.name}: y_{part} has the shape {list(y.shape)} and x_{part} {list(x.shape)}; expected one label "
                "for each sample, [N]"
            )
        if part == "train" and not len(y):
            raise UserError(f"{self.name}: x_train has no samples; expected one or more")
        if y.numel() and int(y.min()) < 0:
            raise UserError(f"{self.name}: y_{part} has a class {int(y.min())}; expected class numbers from 0")
        if x.dtype != self.x_train.dtype:
            raise UserError(f"{self.name}: x_train is {self.x_train.dtype}, x_{part} is {x.dtype}; expected one type")
        if x.dtype == torch.uint8 and x.ndim != 4:
            raise UserError(
                f"{self.name}: x_{part} is torch.uint8 of shape {list(x.shape)}; expected images [N, height, width, "
                "channels], or float32"
            )

    def part(self, name: Role) -> tuple[Tensor, Tensor]:
        """Inputs and labels of one part."""
        if name == "validation":
            assert self.x_val is not None
            assert self.y_val is not None
            return self.x_val, self.y_val
        return (self.x_test, self.y_test) if name == "test" else (self.x_train, self.y_train)

    def to(self, device: torch.device) -> "Data":
        """The data on another device."""
        found = {name: getattr(self, name) for name in TENSORS}
        return replace(self, **{name: tensor.to(device) for name, tensor in found.items() if tensor is not None})

    def shrunk(self, size: int) -> "Data":
        """The data with images of size x size, as floats: each new pixel is the mean of a square of pixels."""
        height, width = self.shape[1:] if len(self.shape) == 3 else (0, 0)
        if size < 1 or not height or height % size or width % size or height // size != width // size:
            raise UserError(
                f"image_size is {size}; expected a divisor of the height and width of images, and the samples of "
                f"{self.name} have the shape {list(self.shape)}"
            )

        def shrink(x: Tensor) -> Tensor:
            pieces = torch.arange(len(x), device=x.device).split(4096)
            return torch.cat([torch.nn.functional.avg_pool2d(self.inputs(x, rows), height // size) for rows in pieces])

        x_val = None if self.x_val is None else shrink(self.x_val)
        return replace(self, x_train=shrink(self.x_train), x_test=shrink(self.x_test), x_val=x_val)

    def inputs(self, x: Tensor, rows: Tensor, margin: int = 0) -> Tensor:
        """The rows [n] of x_train, x_val or x_test as the network sees them, [n, ...], with a margin of zeros."""
        # index_select is several times as fast as indexing with a tensor
        picked = x.index_select(0, rows)
        if picked.dtype != torch.uint8:
            return pad(picked, (margin,) * 4) if margin else picked
        pixels = picked.permute(0, 3, 1, 2).contiguous().to(torch.float32)
        n, C, H, W = pixels.shape
        out = pixels.new_zeros(n, C, H + 2 * margin, W + 2 * margin)
        inner = out[:, :, margin : margin + H, margin : margin + W]
        if not self.std:
            torch.div(pixels, 255, out=inner)
            return out
        std = torch.tensor(self.std, device=x.device)
        shift, scale = -torch.tensor(self.mean, device=x.device) / std, 1 / (255 * std)
        torch.addcmul(shift.view(-1, 1, 1), pixels, scale.view(-1, 1, 1), out=inner)
        return out


def digits() -> Data:
    """The 1,797 real handwritten digits of 8 x 8 pixels, bundled with scikit-learn; one in five is for the test."""
    from sklearn.datasets import load_digits

    x, y = load_digits(return_X_y=True)
    images = torch.from_numpy(x / 16).to(torch.float32).unflatten(1, (1, 8, 8))
    labels = torch.from_numpy(y.astype(np.int64))
    order = torch.from_numpy(rng(0, "digits").permutation(len(labels)))  # the same split for every seed
    test, train = order[: len(order) // 5], order[len(order) // 5 :]
    return Data("digits", images[train], labels[train], images[test], labels[test])
