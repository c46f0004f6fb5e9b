"""CIFAR-10, the python version: `cifar-10-python.tar.gz`, or the folder of batches in it.

The batches are pickles, which may call any function when they are read. Here they can call none: each call is only
recorded, and the arrays are built from the arguments of the recorded calls.
"""

import io
import pickle
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from fedawe.core.errors import UserError
from fedawe.tasks.data.archive import members
from fedawe.tasks.data.sets import PARTS, Known, Part, Report, unreadable

BATCHES = tuple(f"data_batch_{n}" for n in range(1, 6))
TEST = "test_batch"
NAMES = (*BATCHES, TEST)
FOLDER = "cifar-10-batches-py"
ADMITTED = {  # what the pickle of an array of bytes calls, by numpy 1 and by numpy 2
    ("numpy", "ndarray"),
    ("numpy", "dtype"),
    ("numpy.core.multiarray", "_reconstruct"),
    ("numpy._core.multiarray", "_reconstruct"),
}
LARGEST = 64 * 2**20  # bytes; a published batch has 31 million

Batch = tuple[npt.NDArray[np.uint8], npt.NDArray[np.int64]]


def files(path: Path) -> list[Path]:
    """The archive, or the six batches in the folder `path` or in its `cifar-10-batches-py`."""
    if path.is_file():
        return [path]
    if not path.is_dir():
        raise UserError(f"{path}: no such file or folder")
    folder = path / FOLDER if (path / FOLDER).is_dir() else path
    _complete(folder, {name for name in NAMES if (folder / name).is_file()})
    return [folder / name for name in NAMES]


def read(files: list[Path], known: Known, report: Report) -> Iterator[Part]:
    """The five batches in their order, and the test batch."""
    where = files[0] if len(files) == 1 else files[0].parent
    batches: dict[str, Batch] = {}
    for name, label, content in _contents(files):
        batches[name] = parse(content, label)
        report("reading", len(batches), len(NAMES))
    _complete(where, set(batches))
    for part in PARTS:
        mine = [batches.pop(name) for name in (BATCHES if part == "train" else (TEST,))]
        labels = np.concatenate([labels for _, labels in mine])
        known.check(where, part, labels)
        yield Part(part, np.concatenate([images for images, _ in mine]), labels)


def _contents(files: list[Path]) -> Iterator[tuple[str, str, bytes]]:
    """The batches as (name, name in messages, bytes)."""
    if len(files) > 1:
        for path in files:
            try:
                with path.open("rb") as file:
                    yield path.name, str(path), file.read(LARGEST)
            except OSError as error:
                raise unreadable(path, error) from None
        return
    for name, content in members(files[0], lambda parts: parts[-1] in NAMES, LARGEST):
        yield name.rpartition("/")[2], f"{files[0]}: {name}", content


def _complete(where: Path, found: set[str]) -> None:
    missing = [name for name in NAMES if name not in found]
    if missing:
        raise UserError(f"{where}: lacks {', '.join(missing)}; CIFAR-10 (python version) is {', '.join(NAMES)}")


def parse(content: bytes, where: str) -> Batch:
    """A batch: images [n, 32, 32, 3] and labels [n]."""
    try:
        batch = _Recorder(io.BytesIO(content), encoding="bytes").load()
    except UserError as error:
        raise UserError(f"{where}: {error}") from None
    except Exception as error:  # a damaged pickle can make the unpickler raise nearly anything
        raise unreadable(where, error) from None
    if not isinstance(batch, dict):
        raise UserError(f"{where}: expected a dictionary with data and labels, not {type(batch).__name__}")
    named = {key.encode() if isinstance(key, str) else key: value for key, value in batch.items()}
    rows = _array(named.get(b"data"), where)
    labels = named.get(b"labels")
    if not isinstance(labels, list) or not all(type(label) is int and 0 <= label <= 9 for label in labels):
        raise UserError(f"{where}: expected labels, a list of class numbers 0 to 9; the labels are wrong")
    if len(labels) != len(rows):
        raise UserError(f"{where}: {len(labels):,} labels for {len(rows):,} images")
    images = rows.reshape(-1, 3, 32, 32).transpose(0, 2, 3, 1)  # a row is red, green, blue, each line by line
    return images, np.array(labels, dtype=np.int64)


class _Call:
    """A recorded call of a pickle."""

    def __init__(self, name: str, arguments: tuple[Any, ...]) -> None:
        self.name, self.arguments = name, arguments
        self.state: Any = None

    def __setstate__(self, state: Any) -> None:
        self.state = state


class _Recorder(pickle.Unpickler):
    """Admits the names that pickled arrays of bytes call, and records the calls instead of making them."""

    def find_class(self, module: str, name: str) -> Callable[..., Any]:
        # A new function each time, since a pickle can change its attributes.
        if (module, name) == ("_codecs", "encode"):  # how Python 3 writes bytes for Python 2
            return lambda text, _: str.encode(text, "latin1")
        if (module, name) in ADMITTED:
            return lambda *arguments: _Call(name, arguments)
        raise UserError(f"asks for {f'{module}.{name}'!a}, which no CIFAR-10 batch needs; nothing of it was executed")


def _array(call: Any, where: str) -> npt.NDArray[np.uint8]:
    """The rows [n, 3072] of a recorded array, whose state is (version, shape, dtype, Fortran order or not, bytes)."""
    match call:
        case _Call(
            name="_reconstruct",
            state=(_, (int(n), 3072), _Call(name="dtype", arguments=("u1" | b"u1", *_)), fortran, bytes(content)),
        ) if n > 0 and len(content) == n * 3072:
            return np.frombuffer(content, dtype=np.uint8).reshape((n, 3072), order="F" if fortran else "C")
    raise UserError(f"{where}: expected data, uint8 of shape [n, 3072]: this is not a CIFAR-10 batch")
