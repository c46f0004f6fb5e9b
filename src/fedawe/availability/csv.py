"""Traces as CSV: `round,client` lines, or `client,start,end` intervals in seconds. Every error names file and line.

`rounds_of` converts intervals to rounds, for these files and for logs (fedawe.audit.logs).
"""

import csv
import itertools
import math
from collections.abc import Iterator
from decimal import Decimal
from pathlib import Path

import numpy as np
import numpy.typing as npt

from fedawe.availability.dynamics import Mask
from fedawe.core.errors import UserError
from fedawe.core.files import check_expansion
from fedawe.core.memory import MOST, check_room

Ints = npt.NDArray[np.int64]
MICROSECONDS = 1_000_000
SIZE = "# rounds={} clients={}"  # first line of the files written here; empty rounds at the end have no line


def to_csv(on: Mask) -> str:
    """The trace [T, m] as `round,client` lines under its size."""
    lines = [SIZE.format(*on.shape), "round,client"]
    return "\n".join(lines + [f"{t},{i}" for t, i in np.argwhere(on)]) + "\n"


def read_csv(path: Path, round_seconds: float | None, rounds: int | None, clients: int | None) -> Mask:
    """The trace [T, m] in the file; sizes given in the call replace those in the file."""
    lines = _lines(path)
    number, header = next(lines, (1, []))
    if header and header[0].startswith("# rounds="):
        said = dict(word.split("=") for word in header[0].removeprefix("# ").split() if word.count("=") == 1)
        rounds = rounds or _whole(said.get("rounds", ""), "rounds", path, number)
        clients = clients or _whole(said.get("clients", ""), "clients", path, number)
        number, header = next(lines, (number, []))
    if header == ["round", "client"]:
        check_no_seconds(path, round_seconds)
        return _from_rounds(path, lines, rounds, clients)
    if header == ["client", "start", "end"]:
        if round_seconds is None or not 0 < round_seconds < math.inf:
            raise UserError(f"{path}: intervals in seconds need the length of a round; received {round_seconds}")
        return _from_intervals(path, lines, round_seconds, rounds, clients)
    got = ",".join(header)[:80] or "nothing"
    raise UserError(
        f"{path}:{number}: expected a header 'round,client' or 'client,start,end', not {got!r}; a log of another form "
        "becomes a trace with fedawe audit LOG --save trace.npz"
    )


def check_no_seconds(path: Path, round_seconds: float | None) -> None:
    """Refuses the length of a round for a trace that is given round by round."""
    if round_seconds is not None:
        raise UserError(
            f"{path}: round_seconds is {round_seconds:g}, but the trace has rounds and not intervals in seconds; omit "
            "round_seconds (--round-seconds)"
        )


def _lines(path: Path) -> Iterator[tuple[int, list[str]]]:
    """The non-empty lines as (line number, fields)."""
    try:
        with path.open(newline="", encoding="utf-8-sig") as file:  # some programs write a byte order mark
            reader = csv.reader(file)
            for fields in reader:
                if fields:
                    yield reader.line_num, [field.strip() for field in fields]
    except (OSError, UnicodeDecodeError, csv.Error) as error:
        raise UserError(f"{path}: cannot be read as CSV ({error})") from None


def _from_rounds(path: Path, lines: Iterator[tuple[int, list[str]]], rounds: int | None, clients: int | None) -> Mask:
    seen: dict[tuple[int, int], int] = {}
    for number, fields in lines:
        t, i = (
            _whole(f, what, path, number)
            for f, what in zip(_fields(fields, 2, path, number), ("round", "client"), strict=True)
        )
        _known(t, rounds, "round", path, number)
        _known(i, clients, "client", path, number)
        if (t, i) in seen:
            raise UserError(f"{path}:{number}: client {i} in round {t} again; it was already in line {seen[t, i]}")
        seen[t, i] = number
    if not seen and not (rounds and clients):
        raise UserError(f"{path}: is empty: no line under the header")
    on = _nobody(path, rounds or 1 + max(t for t, _ in seen), clients or 1 + max(i for _, i in seen))
    for t, i in seen:
        on[t, i] = True
    return on


def rounds_of(start: Ints, end: Ints, origin: int, length: int) -> tuple[Ints, Ints]:
    """The rounds [begin, end) that begin within intervals [start, end), all in microseconds; round 0 is at `origin`."""
    return -((origin - start) // length), -((origin - end) // length)


def available(client: Ints, begin: Ints, end: Ints, nobody: Mask) -> Mask:
    """The trace of clients that are available in rounds [begin, end), which must not overlap.

    `nobody` [T + 1, m], all False, is overwritten and is the memory of the result.
    """
    step = nobody.view(np.int8)  # +1 where a client's rounds begin, -1 where they end
    some = begin < end
    np.add.at(step, (begin[some], client[some]), 1)
    np.add.at(step, (end[some], client[some]), -1)
    np.cumsum(step, axis=0, out=step)
    return step[:-1].view(bool)


def _from_intervals(
    path: Path, lines: Iterator[tuple[int, list[str]]], seconds: float, rounds: int | None, clients: int | None
) -> Mask:
    """The trace [T, m]; without `clients`, columns are the clients in the file, by increasing number."""
    length = _microseconds(Decimal(repr(float(seconds))))
    if length < 1:
        raise UserError(f"{path}: a round of {seconds:g} s is too short; expected a microsecond or more")
    found: list[tuple[int, int, int, int]] = []
    for number, fields in lines:
        who, start, end = _fields(fields, 3, path, number)
        client = _whole(who, "client", path, number)
        _known(client, clients, "client", path, number)
        a, b = _seconds(start, "start", path, number), _seconds(end, "end", path, number)
        if b <= a:
            raise UserError(f"{path}:{number}: the interval ends at {end}, not after its start {start}")
        if b / length >= MOST:
            raise UserError(f"{path}:{number}: end {end} is too large for rounds of {seconds:g} s; count from 0")
        found.append((client, a, b, number))
    if not found:
        raise UserError(f"{path}: is empty: no line under the header")
    found.sort()
    for (one, _, b, first), (other, a, _, second) in itertools.pairwise(found):
        if one == other and a < b:
            raise UserError(f"{path}:{max(first, second)}: overlaps the interval of line {min(first, second)}")
    numbers, a_, b_, _ = (np.array(column, dtype=np.int64) for column in zip(*found, strict=True))
    names, which = np.unique(numbers, return_inverse=True)
    begin, end_ = rounds_of(a_, b_, 0, length)
    T = rounds or int(end_.max())
    who_, m = (which, len(names)) if clients is None else (numbers, clients)
    return available(who_, np.minimum(begin, T), np.minimum(end_, T), _nobody(path, T + 1, m))


def _fields(fields: list[str], expected: int, path: Path, number: int) -> list[str]:
    if len(fields) != expected:
        raise UserError(f"{path}:{number}: expected {expected} fields, found {len(fields)}")
    return fields


def _whole(field: str, what: str, path: Path, number: int) -> int:
    if not (field.isascii() and field.isdigit()):
        raise UserError(f"{path}:{number}: {what} {field!r} is not a whole number from 0")
    if len(field) > 18 or int(field) >= MOST:
        raise UserError(f"{path}:{number}: {what} {field} is too large; number from 0, without large gaps")
    return int(field)


def _nobody(path: Path, rounds: int, clients: int) -> Mask:
    """An empty trace; refused if a small file claims a size that is far too large, or if there is no memory."""
    check_expansion(
        path,
        rounds * clients,
        f"it has {rounds:,} rounds of {clients:,} clients; number both from 0 without large gaps, or save it as .npz",
    )
    check_room(f"{path}: {rounds:,} rounds of {clients:,} clients", rounds * clients, "use fewer rounds or clients")
    return np.zeros((rounds, clients), dtype=bool)


def _seconds(field: str, what: str, path: Path, number: int) -> int:
    """Decimal seconds in microseconds, without floats: in floats, 2.1 is not seven times 0.3."""
    try:
        value = float(field)
    except ValueError:
        value = math.nan
    if not 0 <= value < 1e12:
        raise UserError(
            f"{path}:{number}: {what} {field!r} is not a number of seconds from 0; a log with dates becomes a trace "
            "with fedawe audit LOG --save trace.npz"
        )
    return _microseconds(Decimal(field))


def _microseconds(seconds: Decimal) -> int:
    return round(seconds * MICROSECONDS)


def _known(value: int, size: int | None, what: str, path: Path, number: int) -> None:
    if size is not None and value >= size:
        raise UserError(f"{path}:{number}: {what} {value} is unknown: there are {size}")
