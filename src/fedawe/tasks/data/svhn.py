"""SVHN, cropped digits: `train_32x32.mat` and `test_32x32.mat`, MATLAB version 5."""

import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

from fedawe.core.errors import UserError
from fedawe.core.files import existing_file
from fedawe.tasks.data.sets import PARTS, Known, Part, Report, unreadable

NAMES = ("train_32x32.mat", "test_32x32.mat")


def files(path: Path) -> list[Path]:
    """The two files, in the folder `path` or beside the file `path`."""
    folder = path if path.is_dir() else existing_file(path).parent
    missing = [name for name in NAMES if not (folder / name).is_file()]
    if missing:
        raise UserError(f"{folder}: lacks {' and '.join(missing)}; SVHN is {NAMES[0]} and {NAMES[1]} in one folder")
    return [folder / name for name in NAMES]


def read(files: list[Path], known: Known, report: Report) -> Iterator[Part]:
    """X [32, 32, 3, N] becomes [N, 32, 32, 3]; label 10 is the digit 0."""
    import scipy.io

    for n, (part, path) in enumerate(zip(PARTS, files, strict=True)):
        report("reading", n, len(files))
        found = {name: (shape, kind) for name, shape, kind in _ask(scipy.io.whosmat, path)}
        shape, kind = found.get("X", (None, None))
        if shape is None or len(shape) != 4 or shape[:3] != (32, 32, 3) or kind != "uint8":
            raise UserError(
                f"{path}: expected X, uint8 of shape [32, 32, 3, N], not {_said(shape, kind)}: this is not an SVHN file"
            )
        samples = shape[3]
        shape, kind = found.get("y", (None, None))
        if shape is None or tuple(shape) not in ((samples, 1), (1, samples)):
            raise UserError(f"{path}: expected y, one label for each of {samples:,} images, not {_said(shape, kind)}")
        if samples != sum(known.train if part == "train" else known.test):  # before it is read: it may be enormous
            known.check(path, part, np.zeros(samples, dtype=np.int64))
        arrays = _ask(scipy.io.loadmat, path, variable_names=["X", "y"])
        y = np.asarray(arrays["y"]).ravel()
        if y.dtype.kind not in "iuf" or not ((y >= 1) & (y <= 10) & (y == np.floor(y))).all():
            raise UserError(f"{path}: y must be labels 1 to 10, where 10 is the digit 0; the labels are wrong")
        labels = y.astype(np.int64) % 10
        known.check(path, part, labels)
        report("reading", n + 1, len(files))
        yield Part(part, arrays["X"].transpose(3, 0, 1, 2), labels)


def _ask(function: Any, path: Path, **options: Any) -> Any:
    """The result of a function of scipy; for a damaged file, its parser can raise nearly any exception."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            return function(path, appendmat=False, **options)
    except Exception as error:
        raise unreadable(path, error) from None


def _said(shape: Any, kind: Any) -> str:
    return "nothing of that name" if shape is None else f"{kind} of shape {list(shape)}"
