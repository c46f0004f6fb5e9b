"""Logs of real fleets as traces: check-ins, intervals, device events. What was wrong with a log is said with it."""

import io
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from fedawe.audit.logs.checkins import laid_out, silences
from fedawe.audit.logs.findings import Finding, counted, shown, some
from fedawe.audit.logs.flash import Rule, read_events
from fedawe.audit.logs.rows import Span, read_rows
from fedawe.audit.logs.tables import Columns, first_lines, open_table
from fedawe.audit.logs.times import Times
from fedawe.availability.clock import Clock, known_timezone, seconds
from fedawe.availability.dynamics import Mask
from fedawe.availability.trace import Trace
from fedawe.core.errors import UserError
from fedawe.core.files import existing_file, read_npz, write_atomically

__all__ = [
    "Clock",
    "Columns",
    "Finding",
    "Log",
    "Rule",
    "counted",
    "known_timezone",
    "read",
    "seconds",
    "shown",
    "some",
]


DAYS = 7  # over which device events are laid out


@dataclass(frozen=True)
class Log:
    """A fleet as its log has it."""

    trace: Trace
    clients: tuple[str, ...]  # their names, in the order of the trace's columns
    clock: Clock | None  # None: rounds are all that is known of time
    findings: tuple[Finding, ...]  # what was read otherwise than written, or left out
    rows: int | None = None  # of the log; None for a trace
    repeats: npt.NDArray[np.int64] | None = None  # rounds after which each client repeats itself; None: never   [m]

    @property
    def repeating(self) -> Mask:
        """Whether each client repeats itself within the trace, [m]."""
        return np.zeros(self.trace.clients, bool) if self.repeats is None else self.repeats < self.trace.rounds

    def save(self, path: str | Path) -> None:
        """Write it as a trace (.npz) that keeps the clients' names and the clock."""
        path = Path(path)
        if path.suffix != ".npz":
            raise UserError(f"{path}: a trace with names and a clock is written as .npz")
        arrays: dict[str, Any] = {"on": self.trace.on, "clients": np.array(self.clients)}
        if self.trace.p is not None:
            arrays["p"] = self.trace.p
        if self.repeats is not None:
            arrays["repeats"] = self.repeats
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
    days: int = DAYS,
) -> Log:
    """A trace (.npz, .csv), a log (CSV, JSON lines or parquet) or device events (a file or a folder), as a Log.

    round_length  how long a round is, for logs (default 10min)
    timezone      of times that do not say theirs, and of hours of the day (default UTC)
    columns       how the columns are called
    time_format   of times that are not ISO 8601, as in %d/%m/%Y %H:%M
    since, until  what part to read, of a log or of a trace with a clock
    roster        clients that belong to the fleet even if the log has never seen them
    rule, days    for device events: when a phone can train, and over how many days to lay them out
    """
    path = Path(path)
    known_timezone(timezone or "UTC")
    length = seconds(round_length or "10min", "the length of a round")
    if days < 1:
        raise UserError(f"days is {days}; expected a whole number from 1")
    if path.is_dir() or existing_file(path).name.endswith((".json", ".json.gz")):
        _refuse(path, "device events", {"--since": since, "--until": until, "--time-format": time_format})
        found = read_events(path, rule, length, timezone, days)
        log = Log(Trace(found.on), tuple(found.names), found.clock, tuple(found.findings), found.events, found.watched)
        nobody = f"no device could train at the beginning of any round under --rule {rule}"
    elif path.suffix == ".npz" or (path.suffix == ".csv" and _is_trace(path)):
        _refuse(path, "a trace", {"--time-format": time_format, **_for_events(rule, days)})
        log = _part(_from_trace(path, round_length, timezone), path, since, until)
        nobody = "nobody is there in any round"
    else:
        _refuse(path, "a log", _for_events(rule, days))
        table = open_table(path, columns or Columns())
        times = Times(timezone, time_format, path)
        rows, clients, findings = read_rows(table, times, since, until, path)
        names = _ordered(clients)
        on, clock = laid_out(rows, names, Clock(length, None, times.zone), times.relative, findings, path)
        log = Log(Trace(on), tuple(names), clock, (*findings, *silences(on, clock)), len(rows))
        nobody = f"no interval contains the beginning of a round of {clock.lasting(1)}; take shorter rounds (--round)"
    if not log.trace.on.any():
        raise UserError(f"{path}: {nobody}")
    return _with_roster(log, roster)


def _refuse(path: Path, kind: str, flags: Mapping[str, str | None]) -> None:
    for flag, value in flags.items():
        if value is not None:
            raise UserError(f"{path}: is {kind}, for which {flag} means nothing; leave it out")


def _for_events(rule: Rule, days: int) -> dict[str, str | None]:
    """The flags of device events that were given."""
    return {"--rule": None if rule == "strict" else rule, "--days": None if days == DAYS else str(days)}


def _is_trace(path: Path) -> bool:
    first = [*first_lines(path, 1), ""][0]
    return first.startswith("# rounds=") or first.replace(" ", "") == "round,client"


def _from_trace(path: Path, round_length: str | None, timezone: str | None) -> Log:
    trace = Trace.load(path)
    names = tuple(map(str, range(trace.clients)))
    clock = repeats = None
    if path.suffix == ".npz":
        arrays = read_npz(path)
        if "clients" in arrays:
            names = tuple(map(str, arrays["clients"].reshape(-1)))
        if "round_seconds" in arrays:
            clock = _clock_of(path, arrays, timezone)
        repeats = _repeats_of(path, arrays, trace.clients)
    if len(set(names)) != trace.clients:
        raise UserError(f"{path}: has {len(names)} names, not all different, for {trace.clients} clients")
    if clock is not None and round_length is not None:
        raise UserError(f"{path}: is a trace with rounds of {clock.lasting(1)}; leave out --round")
    if clock is None and round_length is not None:
        clock = Clock(seconds(round_length, "the length of a round"), None, timezone or "UTC")
    if clock is None and timezone is not None:
        raise UserError(f"{path}: is a trace without a clock, for which --timezone means nothing; leave it out")
    return Log(trace, names, clock, (), repeats=repeats)


def _part(log: Log, path: Path, since: str | None, until: str | None) -> Log:
    """The rounds of a trace that begin in that time."""
    if since is None and until is None:
        return log
    if log.clock is None:
        raise UserError(f"{path}: is a trace without a clock, for which --since and --until mean nothing")
    clock, trace = log.clock, log.trace
    span = Span.of(since, until, clock.timezone, relative=clock.start is None)
    begins = (clock.start or 0.0) + np.arange(trace.rounds) * clock.round_seconds  # [T]
    kept = np.ones(trace.rounds, dtype=bool)
    kept &= begins >= (-math.inf if span.since is None else span.since)
    kept &= begins < (math.inf if span.until is None else span.until)
    if not kept.any():
        raise UserError(f"{path}: no round begins in that time; the first begins {clock.when(0)}")
    first = int(kept.argmax())
    part = Trace(trace.on[kept], None if trace.p is None else trace.p[kept])
    if clock.start is None and first * clock.round_seconds % 86400:
        raise UserError(f"{path}: its times count from the beginning; --since must be whole days (of 86400 seconds)")
    start = None if clock.start is None else float(begins[first])
    findings = (
        Finding("cut", trace.rounds, f"{part.rounds:,} of {trace.rounds:,} rounds begin in the time asked for"),
    )
    return replace(log, trace=part, clock=replace(clock, start=start), findings=findings)


def _repeats_of(path: Path, arrays: dict[str, Any], m: int) -> npt.NDArray[np.int64] | None:
    if "repeats" not in arrays:
        return None
    repeats = arrays["repeats"]
    if repeats.shape != (m,) or repeats.dtype.kind not in "iu" or (repeats < 1).any():
        raise UserError(f"{path}: repeats must be whole numbers of rounds, one for each of {m} clients")
    return np.asarray(repeats, dtype=np.int64)


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
        raise UserError(f"{of} ({some(missing)}) is in the log ({some(log.clients)})")
    m = len(missing)
    text = f"{counted(m, 'client')} of the roster never in the log ({some(missing)})"
    trace, repeats = log.trace, log.repeats
    on = np.concatenate([trace.on, np.zeros((trace.rounds, m), dtype=bool)], axis=1)
    p = None if trace.p is None else np.concatenate([trace.p, np.zeros((trace.rounds, m))], axis=1)
    if repeats is not None:
        repeats = np.concatenate([repeats, np.full(m, trace.rounds)])
    findings = (*log.findings, Finding("never seen", m, text))
    return Log(Trace(on, p), (*log.clients, *missing), log.clock, findings, log.rows, repeats)


def _ordered(names: list[str]) -> list[str]:
    """Numbers by size, other names by letter."""
    numbers = all(name.isascii() and name.isdigit() for name in names)
    return sorted(names, key=lambda name: (int(name), name)) if numbers else sorted(names)
