"""Converts between Flower's named arrays and a vector x [d + b], and checks everything that clients send.

Names, dtypes, shapes and sizes are checked before anything is decoded, then the numbers.
"""

import io
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
import numpy.typing as npt
import torch
from flwr.app import Array, ArrayRecord, ConfigRecord, Message, RecordDict
from torch import Tensor

from fedawe.algorithms.exchange import Broadcast, Upload
from fedawe.core.errors import UserError
from fedawe.tasks.layout import Layout

Reason = Literal[
    "late",
    "duplicate",
    "malformed",
    "names",
    "shape",
    "dtype",
    "version",
    "non-finite",
    "norm",
    "statistics",
    "identity",
    "fields",
    "error",
]

HEADER = 4096  # largest number of bytes of an array besides its numbers
HUGE = 1e25  # an innovation of this norm, echoed and summed up, would overflow in float32
LARGEST_STATISTIC = 1e15  # limit for any `max_statistics`: squares of such means do not overflow in float32
UNMEASURED = 1e6  # assumed size of statistics before any client has measured them
DETAIL = 300  # characters of a reason that are logged
ROUND = "server-round"  # Flower's name for the round, from 1
SHIFT = "shift"  # the record with the vector that a client adds to its gradients
PROX, ROUNDS, LOSS = "fedawe-prox", "fedawe-rounds", "fedawe-loss"  # in the configuration sent to clients
APPLIED = "fedawe-applied"  # in a reply: which of these fields the client has applied
WEIGHT, RATE = "fedawe-weight", "fedawe-rate"  # in a reply: number of steps and learning rate
DTYPES = {torch.float16: "float16", torch.float32: "float32", torch.float64: "float64"}


class Refused(Exception):
    """The error for a refused reply. Text of the client in its message is shortened and printable."""

    def __init__(self, reason: Reason, detail: str) -> None:
        super().__init__(printable(detail))
        self.reason: Reason = reason


def printable(text: str, most: int = DETAIL) -> str:
    """The text in one line, cut to `most` characters.

    >>> printable("a" * 10 + chr(10), 8), printable(chr(27) + "[31m")
    ('aaaaaaaa...', '?[31m')
    """
    short = text[:most] + ("..." if len(text) > most else "")
    return "".join(character if character.isprintable() else "?" for character in short)


def layout_of(arrays: ArrayRecord) -> Layout:
    """The layout of the initial model; refuses arrays that numpy or torch cannot represent."""
    tensors: dict[str, Tensor] = {}
    for name, array in arrays.items():
        try:
            dtype = np.dtype(array.dtype)
        except TypeError:
            raise UserError(f"initial_arrays: {name} is {array.dtype}, which numpy does not know") from None
        try:
            tensors[name] = torch.from_numpy(_decoded(name, tuple(array.shape), dtype, array).copy())
        except Refused as error:
            raise UserError(f"initial_arrays: {error}") from None
        except TypeError:
            raise UserError(f"initial_arrays: {name} is {array.dtype}, which torch does not know") from None
    return Layout.of_tensors(tensors)


def checked_layout(layout: Layout | None, arrays: ArrayRecord) -> Layout:
    """The given layout, which must match the arrays; without one, the layout that follows from their names."""
    found = layout_of(arrays)
    if layout is not None:
        names = {entry.name: (entry.shape, entry.dtype) for entry in layout.entries}
        names |= {alias: names[name] for alias, name in layout.aliases.items()}
        if names != {entry.name: (entry.shape, entry.dtype) for entry in found.entries}:
            raise UserError("initial_arrays are not those of the layout; both must be made from the same module")
        found = layout
    if found.parameters == 0:
        raise UserError(f"initial_arrays has no floating-point parameters, only {list(arrays) or 'nothing'}")
    return found


def read(layout: Layout, arrays: ArrayRecord) -> Tensor:
    """The vector [d + b] of named arrays; refuses names, dtypes, shapes and sizes that differ from the layout."""
    entries = {entry.name: entry for entry in layout.entries}
    entries |= {alias: entries[name] for alias, name in layout.aliases.items()}
    if set(arrays) != set(entries):
        odd = sorted(set(arrays) ^ set(entries))
        raise Refused("names", f"arrays that are missing or unknown, first {odd[0][:80]!r}")
    for name, entry in entries.items():  # check all arrays before any is decoded
        _check(name, entry.shape, _numpy(entry.dtype), arrays[name])
    tensors: dict[str, Tensor] = {}
    for entry in layout.ordered:
        found = _decoded(entry.name, entry.shape, _numpy(entry.dtype), arrays[entry.name])
        tensors[entry.name] = torch.from_numpy(found.copy())
    return layout.vector(tensors)


def record(layout: Layout, x: Tensor) -> ArrayRecord:
    """The named arrays of a vector x [d + b]."""
    return ArrayRecord({name: Array(tensor.numpy()) for name, tensor in layout.state_dict(x).items()})


def _numpy(dtype: torch.dtype) -> np.dtype[Any]:
    return np.dtype(DTYPES.get(dtype, str(dtype).removeprefix("torch.")))


def _check(name: str, shape: tuple[int, ...], dtype: np.dtype[Any], array: Array) -> None:
    """Refuses an array by its description and length, without decoding it."""
    if array.dtype != dtype.name:
        raise Refused("dtype", f"{name} is {array.dtype[:20]!r}, not {dtype.name}")
    if tuple(array.shape) != shape:
        raise Refused("shape", f"{name} has {len(array.shape)} dimensions or sizes other than {shape}")
    nbytes = int(np.prod(shape, dtype=np.int64)) * dtype.itemsize
    if not nbytes <= len(array.data) <= nbytes + HEADER:
        raise Refused("shape", f"{name} has {len(array.data)} bytes; expected about {nbytes}")


def _decoded(name: str, shape: tuple[int, ...], dtype: np.dtype[Any], array: Array) -> npt.NDArray[Any]:
    """The numbers of an array in numpy's format; sizes in its header must equal the expected ones."""
    stream = io.BytesIO(array.data)
    try:
        if array.stype != "numpy.ndarray" or np.lib.format.read_magic(stream) != (1, 0):
            raise Refused("malformed", f"{name} is not in numpy's format 1.0")
        inside, by_column, kind = np.lib.format.read_array_header_1_0(stream)
    except (ValueError, TypeError, SyntaxError, EOFError) as error:
        raise Refused("malformed", f"{name} cannot be decoded ({type(error).__name__})") from None
    if kind != dtype:
        raise Refused("dtype", f"{name} is {kind} inside, not {dtype}")
    if inside != shape or len(array.data) - stream.tell() != int(np.prod(shape, dtype=np.int64)) * kind.itemsize:
        raise Refused("shape", f"{name} is of another shape inside than {shape}")
    values = np.frombuffer(array.data, kind, offset=stream.tell())
    return values.reshape(shape, order="F" if by_column else "C")


def returned(layout: Layout, reply: RecordDict) -> Tensor:
    """The vector [d + b] in a reply; refuses numbers that are not finite."""
    if len(reply.array_records) != 1:
        raise Refused("malformed", f"{len(reply.array_records)} records of arrays; expected one")
    x = read(layout, next(iter(reply.array_records.values())))
    if not torch.isfinite(x).all():
        raise Refused("non-finite", "numbers that are not finite")
    return x


def content(
    arrays: ArrayRecord, down: Broadcast, row: int, keys: tuple[str, str], said: Mapping[str, Any]
) -> RecordDict:
    """The message content for one client: its model as arrays, and the other fields of its row of the broadcast."""
    config: dict[str, Any] = dict(said)
    if down.prox:
        config[PROX] = down.prox
    if down.rounds is not None:
        config[ROUNDS] = int(down.rounds[row])
    if down.loss:
        config[LOSS] = True
    out = RecordDict({keys[0]: arrays, keys[1]: ConfigRecord(config)})
    if down.shift is not None:
        out[SHIFT] = ArrayRecord({SHIFT: Array(down.shift[row].numpy())})
    return out


def fields_of(sent: RecordDict) -> list[str]:
    """The fields of a broadcast, besides the model, in a message; a reply must say that it has applied them."""
    config = {key: value for one in sent.config_records.values() for key, value in one.items()}
    named = {"loss": LOSS, "prox": PROX, "rounds": ROUNDS}
    shift = ["shift"] if SHIFT in sent.array_records else []
    return shift + [name for name, key in named.items() if key in config]


@dataclass(frozen=True)
class Reply:
    """The contribution of one client to a round."""

    G: Tensor  # [d + b]
    weight: float = 1.0
    rate: float = 1.0
    loss: float | None = None
    samples: float | None = None


def upload_of(replies: Sequence[Reply], like: Tensor) -> Upload:
    """The upload of a round. If learning rates differ, the weights are scaled to the rate of the first reply."""
    if not replies:
        return Upload.of(like.new_empty((0, len(like))))
    rate = replies[0].rate
    weight = torch.tensor([one.weight * one.rate / rate for one in replies], dtype=torch.float64)
    loss, samples = _known([one.loss for one in replies]), _known([one.samples for one in replies])
    return Upload(torch.stack([one.G for one in replies]), weight, rate, loss, samples=samples)


def _known(values: list[float | None]) -> Tensor | None:
    known = [value for value in values if value is not None]
    return torch.tensor(known, dtype=torch.float64) if len(known) == len(values) else None


def samples_in(reply: RecordDict, name: str) -> float | None:
    """The number of samples in the metric `name` of a reply; None without a valid one."""
    for metrics in reply.metric_records.values():
        value = metrics.get(name)
        if isinstance(value, int | float) and 0 <= value < HUGE:
            return float(value)
    return None


def facts(sent: RecordDict, reply: RecordDict, needed: bool) -> dict[str, Any]:
    """Weight, rate and loss in a reply; refuses a reply that lacks one, or that ignored a field of the message."""
    said = {key: value for one in reply.config_records.values() for key, value in one.items()}
    applied = str(said.get(APPLIED, "")).split(",")
    ignored = [name for name in fields_of(sent) if name not in applied]
    if ignored:
        raise Refused("fields", f"the client app has not applied {', '.join(ignored)}; use a client app that does")
    if not needed:
        return {}
    names = {"weight": WEIGHT, "rate": RATE}
    if LOSS in {key for one in sent.config_records.values() for key in one}:
        names["loss"] = LOSS
    return {name: _number(name, said.get(key)) for name, key in names.items()}


def _number(name: str, value: Any) -> float:
    """A number in a reply; a loss may be any finite number, weight and rate must be positive."""
    if isinstance(value, bool) or not isinstance(value, int | float) or not abs(value) < HUGE:
        raise Refused("fields", f"the reply has {name} {value!r}; expected a number")
    if name != "loss" and value <= 0:
        raise Refused("fields", f"the reply has {name} {value!r}; expected a positive number")
    return float(value)


def innovation(layout: Layout, x: Tensor, returned: Tensor, max_norm: float) -> Tensor:
    """G = x - returned for the parameters, [d]; refuses one whose norm is above `max_norm`."""
    G = x[: layout.parameters] - returned[: layout.parameters]
    norm, limit = float(torch.linalg.vector_norm(G, dtype=torch.float64)), min(max_norm or HUGE, HUGE)
    if not norm <= limit:
        raise Refused("norm", f"an innovation of norm {norm:.4g}, above {limit:.4g}")
    return G


def check_statistics(layout: Layout, returned: Tensor, last: Tensor, measured: bool, max_statistics: float) -> None:
    """Refuses invalid buffers of a client; `last` [b] are the server's.

    A variance must not be negative. In every tensor of buffers the largest absolute value may be at most
    `max_statistics` times the server's (at least 1; at least a million before any client has measured them).
    """
    found, at = returned[layout.parameters :], 0
    if (found[layout.variances] < 0).any():
        raise Refused("statistics", "a value of running_var that is negative")
    for entry in layout.ordered:
        if entry.kind != "buffer":
            continue
        own, theirs = last[at : at + entry.size], found[at : at + entry.size]
        at += entry.size
        if entry.size == 0:
            continue
        scale = max(1.0 if measured else UNMEASURED, float(own.abs().max()))
        limit = min(max_statistics * scale if max_statistics else LARGEST_STATISTIC, LARGEST_STATISTIC)
        largest = float(theirs.abs().max())
        if largest > limit:
            raise Refused(
                "statistics",
                f"{entry.name} has a value of size {largest:.4g}, above {limit:.4g} (max-statistics times the "
                "server's value)",
            )


def why_invalid(layout: Layout, x: Tensor) -> str | None:
    """Why a vector [d + b] must not be sent as a model, checked in the dtypes in which it is sent; None if it may."""
    for name, tensor in layout.state_dict(x).items():
        if tensor.is_floating_point() and not torch.isfinite(tensor).all():
            return f"{name} would not be finite in {str(tensor.dtype).removeprefix('torch.')}"
    if (x[layout.parameters :][layout.variances] < 0).any():
        return "a running variance would be negative"
    return None


def check_round(reply: RecordDict, server_round: int, required: bool) -> None:
    """Refuses a reply that names another round, or none if `required`; client apps of this package always name it."""
    configs = [one[ROUND] for one in reply.config_records.values() if ROUND in one]
    said = configs + [one[ROUND] for one in reply.metric_records.values() if ROUND in one]
    if any(one != server_round for one in said) or (required and not said):
        first = said[0] if said and isinstance(said[0], int | float) else "that is not a number" if said else "unknown"
        raise Refused("version", f"a reply for round {first}, not {server_round}")


def payload(message: Message) -> int:
    """The number of bytes of the arrays in a message."""
    if not message.has_content():
        return 0
    return sum(len(array.data) for one in message.content.array_records.values() for array in one.values())
