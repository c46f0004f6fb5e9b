"""Image sets: checked and converted once with `add`, then mapped into memory with `load`."""

import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import torch

from fedawe.core.errors import UserError
from fedawe.core.files import read_npz
from fedawe.tasks.data import cache, cifar10, cinic10, svhn
from fedawe.tasks.data.arrays import check_names, from_arrays
from fedawe.tasks.data.labelled import Data
from fedawe.tasks.data.sets import KNOWN, Known, Part, Reader, Report, published, silent

READERS: dict[str, Reader] = {"svhn": svhn, "cifar10": cifar10, "cinic10": cinic10}


def add(name: str, path: str | Path, folder: Path | None = None, report: Report = silent) -> cache.Entry:
    """Check the files under `path`, convert them, and keep them as `name`; an earlier set of that name is replaced.

    svhn, cifar10 and cinic10 are read as published, and as npz; any other name takes an npz.
    """
    cache.check_name(name)
    path, folder, known = Path(path), folder or cache.default_folder(), KNOWN.get(name)
    if path.suffix == ".npz":
        files, parts = [path], _npz(path, known)
    elif known is None:
        raise UserError(f"{path}: expected an .npz for {name!r}; other files are read for {', '.join(KNOWN)} alone")
    else:
        files = READERS[name].files(path)
        parts = READERS[name].read(files, known, report)
    genuine = known is not None and published(files, known)
    source = ", ".join(file.name for file in files)
    return cache.store(folder, name, parts, known, source, genuine, report)


def kept(name: str, folder: Path | None = None) -> cache.Entry:
    """The description of the set kept as `name` in `folder`; refuses a name that is not there."""
    folder = folder or cache.default_folder()
    found = cache.entry(folder, name)
    if found is None:
        raise UserError(
            f"the data set {name} is not in {folder}; "
            f"{'download it (fedawe data download ' + name + ') or ' if name in KNOWN else ''}"
            f"add it (fedawe data add {name} PATH); there: {', '.join(cache.names(folder)) or 'nothing'}"
        )
    return found


def load(name: str, folder: Path | None = None) -> Data:
    """The set kept as `name` in `folder`, in memory that the processes of a machine share; it must not be changed."""
    folder = folder or cache.default_folder()
    found = kept(name, folder)
    try:
        arrays = cache.mapped(folder, found)
    except UserError:
        newer = cache.entry(folder, name)
        if newer is None or newer.folder == found.folder:
            raise
        found, arrays = newer, cache.mapped(folder, newer)  # it was replaced after its description was read
    client = arrays.pop("client", None)
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="The given NumPy array is not writable")  # nobody writes to it
        tensors: dict[str, Any] = {key: torch.from_numpy(array) for key, array in arrays.items()}
    classes = len(found.counts["train"])
    return Data(name, **tensors, mean=found.mean, std=found.std, client=client, known_classes=classes)


def _npz(path: Path, known: Known | None) -> Iterator[Part]:
    """The parts of a user's npz; a known set must have the images that were published under its name."""
    arrays = read_npz(path)
    check_names(arrays, str(path))
    for key in ("x_train", "x_val", "x_test"):
        x = arrays.get(key)
        if x is not None and (x.dtype != np.uint8 or x.ndim not in (3, 4) or 0 in x.shape):
            raise UserError(
                f"{path}: {key} must be images, uint8 [N, H, W] or [N, H, W, C], not {x.dtype} of shape {list(x.shape)}"
            )
        if known is not None and x is not None and x.shape[1:] != (32, 32, 3):
            raise UserError(f"{path}: images of {key} have the shape {list(x.shape[1:])}; expected [32, 32, 3]")
    data = from_arrays(path.stem, arrays, str(path))
    if known is not None:
        known.check(path, "train", data.y_train.numpy())
        known.check(path, "test", data.y_test.numpy())
    yield Part("train", data.x_train.numpy(), data.y_train.numpy(), data.client)
    if data.x_val is not None and data.y_val is not None:
        yield Part("val", data.x_val.numpy(), data.y_val.numpy())
    yield Part("test", data.x_test.numpy(), data.y_test.numpy())
