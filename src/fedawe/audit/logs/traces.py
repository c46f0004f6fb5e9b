"""Reads traces as logs, with names of clients and a clock, and takes parts of them."""

import math
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from fedawe.audit.logs.findings import Finding
from fedawe.audit.logs.log import Log
from fedawe.audit.logs.span import Span
from fedawe.audit.logs.streams import first_lines
from fedawe.availability.clock import Clock, seconds
from fedawe.availability.trace import Trace
from fedawe.core.errors import UserError
from fedawe.core.files import read_npz


def is_trace(path: Path) -> bool:
    """Whether a file is a trace, by its suffix and its first line."""
    if path.suffix != ".csv":
        return path.suffix == ".npz"
    first = [*first_lines(path, 1), ""][0]
    return first.startswith("# rounds=") or first.replace(" ", "") == "round,client"


def from_trace(path: Path, round_length: str | None, timezone: str | None) -> Log:
    """The trace as a log."""
    trace = Trace.load(path)
    names = tuple(map(str, range(trace.clients)))
    clock = repeats = None
    checkins = False
    if path.suffix == ".npz":
        arrays = read_npz(path)
        if "clients" in arrays:
            names = tuple(map(str, arrays["clients"].reshape(-1)))
        if "round_seconds" in arrays:
            clock = _clock_of(path, arrays, timezone)
        repeats = _repeats_of(path, arrays, trace.clients)
        checkins = "checkins" in arrays
    if len(set(names)) != trace.clients:
        raise UserError(f"{path}: has {len(names)} names, not all different, for {trace.clients} clients")
    if clock is not None and round_length is not None:
        raise UserError(f"{path}: is a trace with rounds of {clock.lasting(1)}; omit --round")
    if clock is None and round_length is not None:
        clock = Clock(seconds(round_length, "the length of a round"), None, timezone or "UTC")
    if clock is None and timezone is not None:
        raise UserError(f"{path}: is a trace without a clock, for which --timezone has no meaning; omit it")
    return Log(trace, names, clock, (), repeats=repeats, checkins=checkins)


def part_of(log: Log, path: Path, since: str | None, until: str | None) -> Log:
    """The rounds of a trace that begin from `since` on and before `until`."""
    if since is None and until is None:
        return log
    if log.clock is None:
        raise UserError(f"{path}: is a trace without a clock, for which --since and --until have no meaning")
    clock, trace = log.clock, log.trace
    span = Span.of(since, until, clock.timezone, relative=clock.start is None)
    begins = (clock.start or 0.0) + np.arange(trace.rounds) * clock.round_seconds  # [T]
    kept = np.ones(trace.rounds, dtype=bool)
    kept &= begins >= (-math.inf if span.since is None else span.since)
    kept &= begins < (math.inf if span.until is None else span.until)
    if not kept.any():
        raise UserError(f"{path}: no round begins between --since and --until; the first begins {clock.when(0)}")
    first = int(kept.argmax())
    if clock.start is None and first * clock.round_seconds % 86400:
        raise UserError(
            f"{path}: times count from the beginning of the log; --since must be whole days (of 86400 seconds)"
        )
    text = f"{kept.sum():,} of {trace.rounds:,} rounds begin between --since and --until"
    return replace(log.rounds(first, first + int(kept.sum())), findings=(Finding("cut", trace.rounds, text),))


def _repeats_of(path: Path, arrays: dict[str, Any], m: int) -> npt.NDArray[np.int64] | None:
    if "repeats" not in arrays:
        return None
    repeats = arrays["repeats"]
    if repeats.shape != (m,) or repeats.dtype.kind not in "iu" or (repeats < 1).any():
        raise UserError(f"{path}: repeats must be whole numbers of rounds, one for each of {m} clients")
    return np.asarray(repeats, dtype=np.int64)


def _clock_of(path: Path, arrays: dict[str, Any], timezone: str | None) -> Clock:
    """The clock of a trace, as its file says."""
    try:
        length = float(arrays["round_seconds"])
        start = float(arrays["start"]) if "start" in arrays else None
    except (TypeError, ValueError):
        raise UserError(f"{path}: round_seconds and start must be single numbers of seconds") from None
    if not 0 < length < math.inf or (start is not None and not math.isfinite(start)):
        raise UserError(f"{path}: round_seconds is {length:g} and start {start}; expected seconds, the former above 0")
    zone = timezone or (str(arrays["timezone"]) if "timezone" in arrays else "UTC")
    try:
        return Clock(length, start, zone)
    except UserError as error:
        raise UserError(f"{path}: {error}") from None
