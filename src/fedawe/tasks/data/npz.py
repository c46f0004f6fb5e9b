"""A user's own images: one npz with x_train, y_train, x_test, y_test; uint8 [N, H, W] or [N, H, W, C]."""

import zipfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from fedawe.core.errors import UserError
from fedawe.core.files import existing_file
from fedawe.tasks.data.sets import PARTS, Known, Part, Report, unreadable

MOST_CLASSES = 10_000


def files(path: Path) -> list[Path]:
    """The file."""
    return [existing_file(path)]


def read(files: list[Path], known: Known | None, report: Report) -> Iterator[Part]:
    """The parts; without a known set, the classes are those of y_train and any size of image will do."""
    (path,) = files
    shape: tuple[int, ...] | None = (32, 32, 3) if known else None
    classes = len(known.classes) if known else MOST_CLASSES
    for n, part in enumerate(PARTS):
        report("reading", n, len(PARTS))
        images, labels = _load(path, f"x_{part}"), _load(path, f"y_{part}")
        if images.dtype != np.uint8 or images.ndim not in (3, 4) or 0 in images.shape:
            raise UserError(
                f"{path}: x_{part} must be images, uint8 [N, H, W] or [N, H, W, C], not {images.dtype} of shape "
                f"{list(images.shape)}"
            )
        images = images if images.ndim == 4 else images[..., None]
        if shape is not None and images.shape[1:] != shape:
            raise UserError(
                f"{path}: images of x_{part} have the shape {list(images.shape[1:])}; expected {list(shape)}"
            )
        if labels.shape != (len(images),) or labels.dtype.kind not in "iu":
            raise UserError(
                f"{path}: y_{part} must be one class number for each of {len(images):,} images, not {labels.dtype} of "
                f"shape {list(labels.shape)}"
            )
        if labels.min() < 0 or labels.max() >= classes:
            raise UserError(
                f"{path}: y_{part} has labels {labels.min()} to {labels.max()}; expected 0 to at most {classes - 1}"
            )
        labels = labels.astype(np.int64)
        if known:
            known.check(path, part, labels)
        shape, classes = images.shape[1:], classes if known else int(labels.max()) + 1
        report("reading", n + 1, len(PARTS))
        yield part, images, labels


def _load(path: Path, name: str) -> npt.NDArray[Any]:
    try:
        if not zipfile.is_zipfile(path):
            raise UserError(f"{path}: is not a complete npz file; it is truncated, damaged or of another kind")
        with path.open("rb") as stream, np.load(stream, allow_pickle=False) as file:
            if name not in file:
                raise UserError(f"{path}: lacks {name}; it has {', '.join(sorted(file)) or 'nothing'}")
            return np.asarray(file[name])
    except UserError:
        raise
    except Exception as error:  # a damaged archive or header can make numpy raise nearly anything
        raise unreadable(path, error) from None
