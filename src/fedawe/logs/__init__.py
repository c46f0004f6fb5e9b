"""Logs of real fleets as traces: check-ins, intervals, device events. What was wrong with a log is said with it."""

import io
import math
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl

from fedawe.errors import UserError
from fedawe.files import existing_file, read_npz, write_atomically
from fedawe.logs.checkins import Span, laid_out, read_rows, silences
from fedawe.logs.clock import Clock, known_timezone, seconds
from fedawe.logs.flash import Rule, read_events
from fedawe.logs.tables import Columns, Finding, first_lines, open_table
from fedawe.logs.times import Times
from fedawe.trace import Trace

__all__ = ["Clock", "Columns", "Finding", "Log", "Rule", "known_timezone", "read", "seconds"]


@dataclass(frozen=True)
class Log:
    """A fleet as its log has it."""

    trace: Trace
    clients: tuple[str, ...]  # their names, in the order of the trace's columns
    clock: Clock | None  # None: rounds are all that is known of time
    findings: tuple[Finding, ...]  # what was read otherwise than written, or left out
    rows: int | None = None  # of the log; None for a trace

    def save(self, path: str | Path) -> None:
        """Write it as a trace (.npz) that keeps the clients' names and the clock."""
        path = Path(path)
        if path.suffix != ".npz":
            raise UserError(f"{path}: a trace with names and a clock is written as .npz")
        arrays: dict[str, Any] = {"on": self.trace.on, "clients": np.array(self.clients)}
        if self.trace.p is not None:
            arrays["p"] = self.trace.p
        if self.clock is not None:
            arrays["round_seconds"] = self.clock.round_seconds
            arrays["timezone"] = self.clock.timezone
            if self.clock.start is not None:
                arrays["start"] = self.clock.start
        buffer = io.BytesIO()
        np.savez_compressed(buffer, **arrays)
        write_atomically(path, buffer.getvalue())


def read(
    path: str | Path,
    *,
    round_length: str | None = None,
    timezone: str | None = None,
    columns: Columns | None = None,
    time_format: str | None = None,
    since: str | None = None,
    until: str | None = None,
    roster: Sequence[str] = (),
    rule: Rule = "strict",
    days: int = 7,
) -> Log:
    """A trace (.npz, .csv), a log (CSV, JSON lines or parquet) or device events (a file or a folder), as a Log.

    round_length  how long a round is, for logs (default 10min)
    timezone      of times that do not say theirs, and of hours of the day (default UTC)
    columns       how the columns are called
    time_format   of times that are not ISO 8601, as in %d/%m/%Y %H:%M
    since, until  what part of a log to read
    roster        clients that belong to the fleet even if the log has never seen them
    rule, days    for device events: when a phone can train, and over how many days to lay them out
    """
    path = Path(path)
    zone = known_timezone(timezone or "UTC")
    clock = Clock(seconds(round_length or "10min", "the length of a round"), None, zone)
    if days < 1:
        raise UserError(f"days is {days}; expected a whole number from 1")
    if path.is_dir() or existing_file(path).name.endswith((".json", ".json.gz")):
        on, names, clock, findings, rows = read_events(path, rule, clock, days)
        return _log(on, names, clock, findings, rows, roster)
    if path.suffix == ".npz" or (path.suffix == ".csv" and _is_trace(path)):
        if round_length is not None and path.suffix == ".csv":
            raise UserError(f"{path}: is a trace, whose rounds are numbered; leave out --round")
        return _from_trace(path, round_length, timezone, roster)
    table = open_table(path, columns or Columns())
    times = Times(timezone, time_format, path)
    rows_, findings = read_rows(table, times, Span(_moment(since, zone), _moment(until, zone)), path)
    names = _ordered(rows_["client"].cast(pl.String).unique().to_list())
    on, clock = laid_out(rows_, names, clock, times.relative, findings, path)
    return _log(on, names, clock, [*findings, *silences(on, clock)], len(rows_), roster)


def _log(
    on: Any, names: list[str], clock: Clock | None, findings: list[Finding], rows: int, roster: Sequence[str]
) -> Log:
    return _with_roster(Log(Trace(on), tuple(names), clock, tuple(findings), rows), roster)


def _is_trace(path: Path) -> bool:
    first = [*first_lines(path, 1), ""][0]
    return first.startswith("# rounds=") or first.replace(" ", "") == "round,client"


def _from_trace(path: Path, round_length: str | None, timezone: str | None, roster: Sequence[str]) -> Log:
    trace = Trace.load(path)
    names = tuple(map(str, range(trace.clients)))
    clock = None
    if path.suffix == ".npz":
        arrays = read_npz(path)
        if "clients" in arrays:
            names = tuple(map(str, arrays["clients"].reshape(-1)))
        if "round_seconds" in arrays:
            clock = _clock_of(path, arrays, timezone)
    if clock is None and round_length is not None:
        clock = Clock(seconds(round_length, "the length of a round"), None, timezone or "UTC")
    if len(set(names)) != trace.clients:
        raise UserError(f"{path}: has {len(names)} names, not all different, for {trace.clients} clients")
    return _with_roster(Log(trace, names, clock, ()), roster)


def _clock_of(path: Path, arrays: dict[str, Any], timezone: str | None) -> Clock:
    """When the rounds of a trace were, as its file says."""
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


def _with_roster(log: Log, roster: Sequence[str]) -> Log:
    """The log with a column for every client of the roster that it has never seen."""
    known = set(log.clients)
    missing = [name for name in roster if name not in known]
    if not missing:
        return log
    if len(missing) == len(roster):
        of = f"none of the {len(roster)} clients of the roster"
        raise UserError(f"{of} ({missing[0]!r} ...) is in the log ({log.clients[0]!r} ...)")
    text = f"{len(missing)} clients of the roster never appear in the log ({', '.join(missing[:3])} ...)"
    on = np.concatenate([log.trace.on, np.zeros((log.trace.rounds, len(missing)), dtype=bool)], axis=1)
    findings = (*log.findings, Finding("never seen", len(missing), text))
    return Log(Trace(on), (*log.clients, *missing), log.clock, findings, log.rows)


def _ordered(names: list[str]) -> list[str]:
    """Numbers by size, other names by letter."""
    numbers = all(name.isascii() and name.isdigit() for name in names)
    return sorted(names, key=lambda name: (int(name), name)) if numbers else sorted(names)


def _moment(text: str | None, timezone: str) -> float | None:
    """A date and time, or a number of seconds, as seconds since 1970."""
    if text is None:
        return None
    try:
        return float(text)
    except ValueError:
        pass
    read_as = Times(timezone, None, Path(text))
    table = pl.DataFrame({"start": [text]}).select(read_as.raw("start", pl.String()))
    at = read_as.settle(table, ("start",))["start"][0]
    if at is None:
        raise UserError(f"cannot read the time {text!r}; expected something like 2024-05-01 or 2024-05-01T18:30")
    return float(at) / 1e6
