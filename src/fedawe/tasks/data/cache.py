"""Stored data sets: arrays that any number of processes map into memory, and a JSON file that describes them.

    FOLDER/svhn.json              shapes, class counts, sha256 of the arrays; names the folder of the arrays
    FOLDER/svhn.1f3a9c2e/*.npy    x_train, x_test: uint8 [N, H, W, C]; y_train, y_test: int64 [N];
                                  perhaps x_val, y_val, and client: which client has each training image [N]

A set is replaced in one step, with its JSON file: a crash leaves the old set or the new one.
"""

import hashlib
import json
import math
import os
import re
import shutil
import sys
import uuid
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
from filelock import FileLock

from fedawe.core.errors import UserError
from fedawe.core.files import new_folder, write_atomically
from fedawe.tasks.data.arrays import OPTIONAL, REQUIRED
from fedawe.tasks.data.sets import PARTS, Known, Part, Report

NAME = re.compile(r"[a-z0-9][a-z0-9_-]{0,80}")
CHUNK = 4096  # images written or hashed at once


@dataclass(frozen=True)
class Array:
    """What the file of an array must contain."""

    shape: tuple[int, ...]
    dtype: str
    sha256: str  # of the numbers, in order


@dataclass(frozen=True)
class Entry:
    """The description of a stored data set."""

    name: str
    folder: str
    arrays: dict[str, Array]
    counts: dict[str, tuple[int, ...]]  # images of each class, to train and to test
    mean: tuple[float, ...]
    std: tuple[float, ...]
    source: str  # the names of the files it was made from
    published: bool  # whether those are the published files, byte for byte


def default_folder() -> Path:
    """FEDAWE_DATA, or a folder where this system keeps caches: ~/.cache/fedawe on Linux."""
    if named := os.environ.get("FEDAWE_DATA"):
        return Path(named).expanduser()
    try:
        if sys.platform == "win32":
            return Path(os.environ.get("LOCALAPPDATA") or Path.home() / "AppData" / "Local") / "fedawe" / "Cache"
        if sys.platform == "darwin":
            return Path.home() / "Library" / "Caches" / "fedawe"
        return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "fedawe"
    except RuntimeError:
        raise UserError("there is no home folder to keep data sets in; name one with --data or FEDAWE_DATA") from None


def check_name(name: str) -> str:
    """The name, unchanged; refuses what cannot be the name of a data set."""
    if not NAME.fullmatch(name):
        raise UserError(f"a data set cannot be called {name!r}; use lower-case letters, digits, - and _")
    return name


def names(folder: Path) -> list[str]:
    """The names of the stored data sets."""
    return sorted(path.stem for path in folder.glob("*.json") if NAME.fullmatch(path.stem))


def entry(folder: Path, name: str) -> Entry | None:
    """The description of a stored data set; None if there is none."""
    path = folder / f"{check_name(name)}.json"
    try:
        found = json.loads(path.read_bytes())
        keys = [*REQUIRED, *(key for key in OPTIONAL if key in found["arrays"])]
        arrays = {key: Array(tuple(found["arrays"][key].pop("shape")), **found["arrays"][key]) for key in keys}
        counts = {part: tuple(found["counts"][part]) for part in PARTS}
        mean, std = tuple(found["mean"]), tuple(found["std"])
        made = Entry(**{**found, "arrays": arrays, "counts": counts, "mean": mean, "std": std})
    except FileNotFoundError:
        return None
    except OSError as error:
        raise UserError(f"{path}: cannot be read ({error.strerror})") from None
    except (ValueError, KeyError, TypeError, AttributeError):
        raise _damaged(folder, name, path, "it does not describe a data set") from None
    if made.name != name or not re.fullmatch(re.escape(name) + r"\.[0-9a-f]{8}", made.folder):
        raise _damaged(folder, name, path, f"it describes {made.name!r} in {made.folder!r}")
    return made


def mapped(folder: Path, found: Entry) -> dict[str, npt.NDArray[Any]]:
    """The arrays of a set, read-only and mapped into memory; refuses arrays that are not as described."""
    arrays = {}
    for key, expected in found.arrays.items():
        path = folder / found.folder / f"{key}.npy"
        try:
            array = np.load(path, mmap_mode="r", allow_pickle=False)
        except (OSError, ValueError, EOFError) as error:
            raise _damaged(folder, found.name, path, str(getattr(error, "strerror", None) or error)) from None
        if array.shape != expected.shape or array.dtype != np.dtype(expected.dtype):
            raise _damaged(folder, found.name, path, f"it has {array.dtype} of shape {list(array.shape)}")
        arrays[key] = array
    return arrays


def verify(folder: Path, found: Entry, report: Report) -> None:
    """Compute the checksums again, and refuse a set that is no longer what was stored."""
    for key, array in mapped(folder, found).items():
        sha256 = hashlib.sha256()
        for done in range(0, len(array), CHUNK):
            sha256.update(np.ascontiguousarray(array[done : done + CHUNK]).data)
            report(f"checking {found.name}", done, len(array))
        if sha256.hexdigest() != found.arrays[key].sha256:
            path = folder / found.folder / f"{key}.npy"
            raise _damaged(folder, found.name, path, f"its sha256 should be {found.arrays[key].sha256}")


def store(
    folder: Path, name: str, parts: Iterable[Part], known: Known | None, source: str, published: bool, report: Report
) -> Entry:
    """Write a set and make it the one that is kept under `name`."""
    check_name(name)
    with locked(folder, name):
        fresh = folder / f"{name}.{uuid.uuid4().hex[:8]}"
        try:
            fresh.mkdir()
            made = _write(fresh, name, parts, known, source, published, report)
            write_atomically(folder / f"{name}.json", (json.dumps(asdict(made), indent=1) + "\n").encode())
        except BaseException as error:
            shutil.rmtree(fresh, ignore_errors=True)
            if isinstance(error, OSError):
                raise UserError(f"cannot write {fresh}: {error.strerror or error}") from None
            raise
        for old in folder.glob(f"{name}.*"):  # the previous set, and folders that were left by crashes
            if old != fresh and re.fullmatch(re.escape(name) + r"\.[0-9a-f]{8}", old.name):
                shutil.rmtree(old, ignore_errors=True)
    return made


@contextmanager
def locked(folder: Path, name: str) -> Iterator[None]:
    """A lock: only one process at a time works on the data set or file `name`."""
    lock = FileLock(new_folder(folder) / f".{name}.lock")
    try:
        lock.acquire()
    except OSError as error:
        raise UserError(f"cannot write to {folder}: {error.strerror or error}") from None
    try:
        yield
    finally:
        lock.release()


def _write(
    fresh: Path, name: str, parts: Iterable[Part], known: Known | None, source: str, published: bool, report: Report
) -> Entry:
    arrays: dict[str, Array] = {}
    counts: dict[str, tuple[int, ...]] = {}
    mean, std = (known.mean, known.std) if known else ((), ())
    for part, images, labels, client in parts:
        if part != "val":  # test labels may lack the last classes; they are counted all the same
            counts[part] = tuple(np.bincount(labels, minlength=len(counts.get("train", ()))).tolist())
        if part == "train" and not known:
            mean, std = statistics(images)
        arrays[f"x_{part}"] = _save(fresh / f"x_{part}.npy", images, f"writing {part} images", report)
        arrays[f"y_{part}"] = _save(fresh / f"y_{part}.npy", labels, f"writing {part} labels", report)
        if client is not None:
            arrays["client"] = _save(fresh / "client.npy", client, "writing clients", report)
    return Entry(name, fresh.name, arrays, counts, mean, std, source, published)


def _save(path: Path, array: npt.NDArray[Any], what: str, report: Report) -> Array:
    """Write an array in pieces: a view need not be copied as a whole, and a full disk is an error and not a crash."""
    dtype = array.dtype.newbyteorder("<")
    sha256 = hashlib.sha256()
    with path.open("xb") as file:
        header = {"descr": np.lib.format.dtype_to_descr(dtype), "fortran_order": False, "shape": array.shape}
        np.lib.format.write_array_header_1_0(file, header)
        for done in range(0, len(array), CHUNK):
            piece = np.ascontiguousarray(array[done : done + CHUNK], dtype=dtype)
            sha256.update(piece.data)
            file.write(piece.data)
            report(what, min(done + CHUNK, len(array)), len(array))
        file.flush()
        os.fsync(file.fileno())
    return Array(array.shape, str(dtype), sha256.hexdigest())


def statistics(images: npt.NDArray[np.uint8]) -> tuple[tuple[float, ...], tuple[float, ...]]:
    """Mean and standard deviation of each channel of images [N, H, W, C] in [0, 1]; 1 where a channel never changes.

    >>> statistics(np.array([[[[0, 7]], [[255, 7]]]], dtype=np.uint8))
    ((0.5, 0.027450980392156862), (0.5, 1.0))
    """
    means, stds = [], []
    for channel in range(images.shape[3]):
        n = total = squares = 0  # whole numbers: exact
        for done in range(0, len(images), CHUNK):
            counts = np.bincount(images[done : done + CHUNK, ..., channel].ravel(), minlength=256)
            n += int(counts.sum())
            total += int(counts @ np.arange(256))
            squares += int(counts @ np.arange(256) ** 2)
        means.append(total / n / 255)
        stds.append(math.sqrt(n * squares - total**2) / n / 255 or 1.0)
    return tuple(means), tuple(stds)


def _damaged(folder: Path, name: str, path: Path, what: str) -> UserError:
    return UserError(
        f"{path}: {what}; the data set is damaged: add it again (fedawe data add {name} PATH --data {folder})"
    )
