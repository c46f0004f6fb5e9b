"""Models on the wire: Flower's named arrays on one side, a flat vector x [d] on the other, and nothing else let in."""

import io
import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
import numpy.typing as npt
import torch
from flwr.app import Array, ArrayRecord, Message, RecordDict
from torch import Tensor

from fedawe.core.errors import UserError

Reason = Literal[
    "late", "duplicate", "malformed", "names", "shape", "dtype", "version", "non-finite", "norm", "identity", "error"
]
Part = Literal["parameter", "statistic", "constant"]

HEADER = 4096  # bytes that a description of an array may have besides its numbers
HUGE = 1e25  # an innovation of this norm, echoed and summed up, would leave the range of float32
STATISTICS = ("running_mean", "running_var")  # what batch normalisation measures, as torch calls it
ROUND = "server-round"  # Flower's name for the round, from 1


class Refused(Exception):
    """A reply that is not let in, and why."""

    def __init__(self, reason: Reason, detail: str) -> None:
        super().__init__(detail)
        self.reason: Reason = reason


@dataclass(frozen=True)
class Entry:
    """One named array."""

    name: str
    shape: tuple[int, ...]
    dtype: str
    part: Part

    @property
    def size(self) -> int:
        """How many numbers."""
        return math.prod(self.shape)


@dataclass(frozen=True)
class Layout:
    """How named arrays and flat vectors correspond, in the order of the record that the server began with.

    parameters  floating point: x, what the algorithm sees
    statistics  running means and variances of batch normalisation: the mean over whoever answered
    constants   whatever is not floating point (num_batches_tracked): as the server has it
    """

    entries: tuple[Entry, ...]
    constants: Mapping[str, Array]

    @classmethod
    def of(cls, arrays: ArrayRecord) -> "Layout":
        """The layout of a model; refuses what cannot be averaged."""
        entries = tuple(Entry(name, tuple(one.shape), one.dtype, _part(name, one)) for name, one in arrays.items())
        if not any(entry.part == "parameter" for entry in entries):
            raise UserError(f"initial_arrays has no floating-point parameters, only {list(arrays) or 'nothing'}")
        return cls(entries, {entry.name: arrays[entry.name] for entry in entries if entry.part == "constant"})

    def described(self) -> list[list[Any]]:
        """As a checkpoint keeps it, to know whether it is for the same model."""
        return [[entry.name, list(entry.shape), entry.dtype] for entry in self.entries]

    def read(self, arrays: ArrayRecord) -> tuple[Tensor, Tensor]:
        """Parameters [d] and statistics [b]; refuses names, dtypes, shapes and sizes that are not these."""
        if set(arrays) != {entry.name for entry in self.entries}:
            odd = sorted(set(arrays) ^ {entry.name for entry in self.entries})
            raise Refused("names", f"arrays that are missing or unknown, first {odd[0][:80]!r}")
        for entry in self.entries:  # all of it before anything is decoded
            _check(entry, arrays[entry.name])
        found = {entry.name: _decoded(entry, arrays[entry.name]) for entry in self.entries if entry.part != "constant"}
        return self._joined("parameter", found), self._joined("statistic", found)

    def record(self, x: Tensor, statistics: Tensor) -> ArrayRecord:
        """The named arrays of parameters x [d] and statistics [b]."""
        rest = {"parameter": x, "statistic": statistics}
        arrays: dict[str, Array] = {}
        for entry in self.entries:
            if entry.part == "constant":
                arrays[entry.name] = self.constants[entry.name]
                continue
            values, rest[entry.part] = rest[entry.part][: entry.size], rest[entry.part][entry.size :]
            arrays[entry.name] = Array(values.numpy().astype(entry.dtype).reshape(entry.shape))
        return ArrayRecord(arrays)

    def _joined(self, part: Part, found: Mapping[str, npt.NDArray[Any]]) -> Tensor:
        pieces = [found[entry.name].reshape(-1) for entry in self.entries if entry.part == part]
        if not pieces:
            return torch.empty(0, dtype=self.dtype)
        return torch.cat([torch.from_numpy(piece.astype(self._numpy, copy=True)) for piece in pieces])

    @property
    def dtype(self) -> torch.dtype:
        """Of the flat vectors: float64 if anything is, else float32."""
        return torch.float64 if self._numpy == np.float64 else torch.float32

    @property
    def _numpy(self) -> type[np.floating[Any]]:
        return np.float64 if any(entry.dtype == "float64" for entry in self.entries) else np.float32


def _part(name: str, array: Array) -> Part:
    try:
        kind = np.dtype(array.dtype).kind
    except TypeError:
        raise UserError(f"initial_arrays: {name} is {array.dtype}, which numpy does not know") from None
    if kind != "f":
        return "constant"
    return "statistic" if name.endswith(STATISTICS) else "parameter"


def _check(entry: Entry, array: Array) -> None:
    """What can be said without decoding anything."""
    if array.dtype != entry.dtype:
        raise Refused("dtype", f"{entry.name} is {array.dtype[:20]!r}, not {entry.dtype}")
    if tuple(array.shape) != entry.shape:
        raise Refused("shape", f"{entry.name} has {len(array.shape)} dimensions or sizes other than {entry.shape}")
    nbytes = entry.size * np.dtype(entry.dtype).itemsize
    if not nbytes <= len(array.data) <= nbytes + HEADER:
        raise Refused("shape", f"{entry.name} has {len(array.data)} bytes; expected about {nbytes}")


def _decoded(entry: Entry, array: Array) -> npt.NDArray[Any]:
    """The numbers, from numpy's format, by a reader that believes no size that the header claims."""
    stream = io.BytesIO(array.data)
    try:
        if array.stype != "numpy.ndarray" or np.lib.format.read_magic(stream) != (1, 0):
            raise Refused("malformed", f"{entry.name} is not in numpy's format 1.0")
        shape, by_column, dtype = np.lib.format.read_array_header_1_0(stream)
    except (ValueError, TypeError, SyntaxError, EOFError) as error:
        raise Refused("malformed", f"{entry.name} cannot be decoded ({type(error).__name__})") from None
    if dtype != np.dtype(entry.dtype):
        raise Refused("dtype", f"{entry.name} is {dtype} inside, not {entry.dtype}")
    if shape != entry.shape or len(array.data) - stream.tell() != entry.size * dtype.itemsize:
        raise Refused("shape", f"{entry.name} is of another shape inside than {entry.shape}")
    values = np.frombuffer(array.data, dtype, offset=stream.tell())
    return values.reshape(shape, order="F" if by_column else "C")


def innovation(layout: Layout, reply: RecordDict, x: Tensor, max_norm: float) -> tuple[Tensor, Tensor]:
    """G = x - what the client returned [d], and its statistics [b]; refuses what must not touch the model."""
    if len(reply.array_records) != 1:
        raise Refused("malformed", f"{len(reply.array_records)} records of arrays; expected one")
    returned, statistics = layout.read(next(iter(reply.array_records.values())))
    G = x - returned
    if not (torch.isfinite(G).all() and torch.isfinite(statistics).all()):
        raise Refused("non-finite", "numbers that are not finite")
    norm, limit = float(torch.linalg.vector_norm(G, dtype=torch.float64)), min(max_norm or HUGE, HUGE)
    if norm > limit:
        raise Refused("norm", f"an innovation of norm {norm:.4g}, above {limit:.4g}")
    return G, statistics


def check_round(reply: RecordDict, server_round: int, required: bool) -> None:
    """A reply that says which round it is for must be for this one; our own client apps always say it."""
    configs = [record[ROUND] for record in reply.config_records.values() if ROUND in record]
    said = configs + [record[ROUND] for record in reply.metric_records.values() if ROUND in record]
    if any(one != server_round for one in said) or (required and not said):
        raise Refused("version", f"a reply for round {said[0] if said else 'unknown'!r}, not {server_round}")


def payload(message: Message) -> int:
    """Bytes of arrays that a message carries."""
    if not message.has_content():
        return 0
    return sum(len(array.data) for record in message.content.array_records.values() for array in record.values())
