"""Computes from the usable rows of a log which clients were available in which round."""

from pathlib import Path

import numpy as np
import numpy.typing as npt
import polars as pl

from fedawe.audit.logs.findings import Finding, counted
from fedawe.audit.logs.rows import Rows
from fedawe.availability.clock import Clock
from fedawe.availability.csv import MICROSECONDS, available, rounds_of
from fedawe.availability.dynamics import Mask
from fedawe.core.errors import UserError

MOST = 10**9  # entries [rounds, clients]; more mean a wrong date in some row, or rounds that are too short
MOST_ROUNDS = 10**6  # two years of rounds of one minute
CHUNK = 10_000_000  # rows that are processed at once


def laid_out(rows: Rows, names: list[str], clock: Clock, path: Path) -> tuple[Mask, Clock, list[Finding]]:
    """Which clients were available in which round [T, m], the clock with its start set, and findings.

    A client is available in the rounds in which it checks in, or whose beginning lies in one of its intervals
    [start, end). Rounds are counted from midnight of the first day. A log of events covers the time from the first
    event to the last, other logs the time in which clients are available.
    """
    place = _positions(rows.names, names)
    length = round(clock.round_seconds * MICROSECONDS)
    start = rows.frame["start"].to_numpy()
    first = int(start.min()) if rows.covered is None else rows.covered[0]
    origin = 0 if rows.relative else _origin(first, length, clock.timezone)
    clock = Clock(clock.round_seconds, None if rows.relative else origin / MICROSECONDS, clock.timezone)
    if "end" in rows.frame.columns:
        on, findings = _from_intervals(rows, place, origin, length, path)
        return on, clock, findings
    on = _nobody(int((start.max() - origin) // length) + 1, len(names), rows, path)
    client = rows.frame["client"].to_numpy()
    for at in range(0, len(start), CHUNK):
        part = slice(at, at + CHUNK)
        on[(start[part] - origin) // length, place[client[part]]] = True
    return on, clock, []


def _positions(given: list[str], ordered: list[str]) -> npt.NDArray[np.int64]:
    """The position of each given name in the ordered names."""
    position = {name: n for n, name in enumerate(ordered)}
    return np.array([position[name] for name in given], dtype=np.int64)


def _origin(first: int, length: int, timezone: str) -> int:
    """The beginning of the round that contains the time `first`, with rounds counted from midnight of its day."""
    local = pl.Series([first]).cast(pl.Datetime("us", "UTC")).dt.convert_time_zone(timezone)
    midnight = int(local.dt.truncate("1d").dt.epoch("us")[0])
    return midnight + (first - midnight) // length * length


def _from_intervals(
    rows: Rows, place: npt.NDArray[np.int64], origin: int, length: int, path: Path
) -> tuple[Mask, list[Finding]]:
    findings: list[Finding] = []
    who, a, b = place[rows.frame["client"].to_numpy()], rows.frame["start"].to_numpy(), rows.frame["end"].to_numpy()
    order = np.lexsort((b, a, who))
    client, a, b = who[order], a[order], b[order]
    reach = pl.DataFrame({"client": client, "end": b}).select(
        pl.col("end").cum_max().shift(1).over("client").alias("reach")
    )["reach"]
    before = reach.fill_null(np.iinfo(np.int64).min).to_numpy()  # the latest end of the client's earlier intervals
    overlaps = int((a < before).sum())
    if overlaps:
        text = f"{counted(overlaps, 'interval')} beginning before another of the same client has ended; joined with it"
        findings.append(Finding("overlaps", overlaps, text))
    begin, end = rounds_of(np.maximum(a, before), b, origin, length)
    short = int((rounds_of(a, b, origin, length)[0] >= end).sum())
    if short:
        text = (
            f"{counted(short, 'interval')} in which no round begins, so that the client does not count as available; "
            "use shorter rounds if there are many"
        )
        findings.append(Finding("short intervals", short, text))
    T = max(int(end.max()), 1)
    if rows.covered is not None:
        T = max(T, -((origin - rows.covered[1]) // length))
    return available(client, begin, np.maximum(end, begin), _nobody(T + 1, len(rows.names), rows, path)), findings


def _nobody(rounds: int, m: int, rows: Rows, path: Path) -> Mask:
    if rounds * m > MOST or rounds > MOST_ROUNDS:
        raise UserError(
            f"{path}: {rounds:,} rounds of {m:,} clients are too many; the log has dates between {rows.between}; use "
            "longer rounds, or --since and --until if a date is wrong"
        )
    return np.zeros((rounds, m), dtype=bool)


def silences(on: Mask, clock: Clock) -> list[Finding]:
    """A finding about gaps of an hour or more in which no client was available."""
    empty = np.flatnonzero(np.diff(np.concatenate(([0], ~on.any(1), [0])).astype(np.int8)))
    begin, end = empty[::2], empty[1::2]
    long = (end - begin) * clock.round_seconds >= 3600
    if not long.any():
        return []
    longest = int(np.argmax(end - begin))
    lasting, when = clock.lasting(int((end - begin)[longest])), clock.when(int(begin[longest]))
    n = int(long.sum())
    text = (
        f"{counted(n, 'gap')} of an hour or more without any client, the longest {lasting} from {when}: "
        "an outage, or a part of the log that is missing"
    )
    return [Finding("gaps", n, text)]
