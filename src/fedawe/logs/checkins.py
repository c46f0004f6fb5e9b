"""From rows of a log to who was there in which round."""

from dataclasses import dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt
import polars as pl

from fedawe.availability import Mask
from fedawe.errors import UserError
from fedawe.logs.clock import Clock
from fedawe.logs.tables import Finding, Table, collected
from fedawe.logs.times import EARLIEST, LATEST, Times

MOST = 10**9  # entries [rounds, clients]; a larger table is a wrong date in some row, or rounds that are too short
MOST_ROUNDS = 10**6  # two years of rounds of one minute
SHOWN = 3  # examples in a message


@dataclass(frozen=True)
class Span:
    """What part of a log to read, in seconds since 1970 (or since the log's own zero)."""

    since: float | None = None
    until: float | None = None


def read_rows(table: Table, times: Times, span: Span, path: Path) -> tuple[pl.DataFrame, list[Finding]]:
    """Columns row, client, start and perhaps end (microseconds) of usable rows, and what became of the others."""
    schema = table.frame.collect_schema()
    raw = [expression for name in table.times for expression in times.raw(name, schema[name])]
    written = pl.concat_str([pl.col(name).cast(pl.String).fill_null("") for name in table.times], separator=" to ")
    # One pass over the file keeps 30 bytes a row; the text of a time is kept only where it could not be read.
    unread = pl.col("start_number").is_null() & pl.col("start_local").is_null()
    frame = (
        table.frame.with_columns(*raw)
        .with_columns(written=pl.when(unread).then(written))
        .drop(table.times)
        .with_columns(pl.col("client").cast(pl.Categorical), pl.col("broken").cast(pl.Categorical))
    )
    rows = collected(frame, path)
    if rows.is_empty():
        raise UserError(f"{path}: is empty: no row under the header")
    total = len(rows)
    rows = times.settle(rows, table.times)
    findings = [*table.findings, *times.findings]

    def without(bad: pl.Expr, kind: str, text: str, example: str | None = None) -> None:
        nonlocal rows
        left_out = rows.filter(bad)
        if len(left_out):
            where = _examples(left_out, example)
            findings.append(Finding(kind, len(left_out), f"{_rows(len(left_out))} {text}{where}; left out"))
            rows = rows.filter(~bad)

    for reason in rows["broken"].drop_nulls().unique().cast(pl.String).sort():
        without(pl.col("broken").cast(pl.String).eq_missing(pl.lit(reason)), "unreadable rows", reason)
    nameless = pl.col("client").is_null() | (pl.col("client").cast(pl.String) == "")
    without(nameless, "no client", "without a client")
    without(pl.col("start").is_null(), "unreadable times", "with a time that cannot be read", "written")
    if "end" in table.times:
        without(pl.col("end").is_null(), "no end", "whose end is missing or cannot be read")
        without(pl.col("end") <= pl.col("start"), "reversed intervals", "that end before they begin, or at once")
    if not times.relative:
        outside = ~pl.col("start").is_between(EARLIEST * 1_000_000, LATEST * 1_000_000)
        without(outside, "clock not set", "dated before 2000 or after 2100: a clock that was not set")
    elif rows["start"].len() and rows["start"].min() < 0:  # type: ignore[operator]
        without(pl.col("start") < 0, "negative times", "with a time below zero")
    if span.since is not None:
        without(pl.col("start") < round(span.since * 1e6), "before --since", "dated before --since")
    if span.until is not None:
        without(pl.col("start") >= round(span.until * 1e6), "after --until", "dated --until or later")
    if rows.is_empty():
        reasons = "; ".join(f.text for f in findings if f.text.endswith("left out")) or "it has none"
        raise UserError(f"{path}: no row of {total:,} can be used: {reasons}")
    findings += _jumps(rows)
    rows = rows.select("row", "client", *table.times)
    return _without_duplicates(rows, table.times, findings), findings


def _rows(n: int) -> str:
    return f"{n:,} row{'' if n == 1 else 's'}"


def _examples(rows: pl.DataFrame, column: str | None) -> str:
    some = rows.head(SHOWN)
    numbers = ", ".join(f"{row:,}" for row in some["row"])
    quoted = f", as {some[column][0]!r}" if column else ""
    return f" (row{'s' if len(rows) > 1 else ''} {numbers}{' ...' if len(rows) > SHOWN else ''}{quoted})"


def _jumps(rows: pl.DataFrame) -> list[Finding]:
    """Where a client's times go back although its rows are in order."""
    step = rows.select("row", "client", back=pl.col("start").diff().over("client")).filter(pl.col("back") < 0)
    if step.is_empty():
        return []
    if len(step) > 0.05 * len(rows):
        return [Finding("order", len(step), "rows are not in order of time; whether clocks jumped cannot be told")]
    most = Clock(1.0).lasting(-float(step["back"].min()) / 1e6)  # type: ignore[arg-type]
    often = f"{len(step):,} time{'' if len(step) == 1 else 's'}"
    text = f"a client's clock went back {often}, by up to {most}{_examples(step, None)}; taken as they are"
    return [Finding("clock jumps", len(step), text)]


def _without_duplicates(rows: pl.DataFrame, times: tuple[str, ...], findings: list[Finding]) -> pl.DataFrame:
    once = rows.unique(["client", *times], keep="first", maintain_order=True)
    if len(once) < len(rows):
        n = len(rows) - len(once)
        verb = "repeats another" if n == 1 else "repeat others"
        findings.append(Finding("duplicates", n, f"{_rows(n)} {verb} word for word; counted once"))
    return once


def laid_out(
    rows: pl.DataFrame, names: list[str], clock: Clock, relative: bool, findings: list[Finding], path: Path
) -> tuple[Mask, Clock]:
    """Who was there in which round [T, m], and the clock with its start set.

    A check-in means the round it falls in; an interval [start, end) the rounds whose beginning it contains. Rounds are
    laid from midnight of the first day.
    """
    who = rows["client"].cast(pl.String).cast(pl.Enum(names)).to_physical().to_numpy().astype(np.int64)
    start = rows["start"].to_numpy()
    length = round(clock.round_seconds * 1e6)
    origin = 0 if relative else _origin(int(start.min()), length, clock.timezone)
    if "end" in rows.columns:
        on = _from_intervals(rows, who, origin, length, len(names), findings, path)
    else:
        t = (start - origin) // length
        on = _nobody(int(t.max()) + 1, len(names), rows, path)
        on[t, who] = True
    return on, Clock(clock.round_seconds, None if relative else origin / 1e6, clock.timezone)


def _origin(first: int, length: int, timezone: str) -> int:
    """The beginning of the round in which the first time lies, when rounds are laid from that day's midnight."""
    local = pl.Series([first]).cast(pl.Datetime("us", "UTC")).dt.convert_time_zone(timezone)
    midnight = int(local.dt.truncate("1d").dt.epoch("us")[0])
    return midnight + (first - midnight) // length * length


def _from_intervals(
    rows: pl.DataFrame,
    who: npt.NDArray[np.int64],
    origin: int,
    length: int,
    m: int,
    findings: list[Finding],
    path: Path,
) -> Mask:
    order = np.lexsort((rows["end"].to_numpy(), rows["start"].to_numpy(), who))
    client, a, b = who[order], rows["start"].to_numpy()[order], rows["end"].to_numpy()[order]
    reach = pl.DataFrame({"client": client, "end": b}).select(
        pl.col("end").cum_max().shift(1).over("client").alias("reach")
    )["reach"]
    before = reach.fill_null(np.iinfo(np.int64).min).to_numpy()  # how far the client's earlier intervals reach
    overlaps = int((a < before).sum())
    if overlaps:
        text = f"{overlaps:,} intervals begin before another of the same client has ended; they were joined"
        findings.append(Finding("overlaps", overlaps, text))
    begin = -((origin - np.maximum(a, before)) // length)  # the first round at or after
    end = -((origin - b) // length)
    short = int((-((origin - a) // length) >= end).sum())
    if short:
        text = (
            f"{short:,} intervals contain no beginning of a round and count for nothing; shorter rounds would see them"
        )
        findings.append(Finding("short intervals", short, text))
    new = begin < end
    rounds = max(int(end.max()), 1)
    step = _nobody(rounds + 1, m, rows, path).view(np.int8)  # +1 where someone comes, -1 where someone goes
    np.add.at(step, (begin[new], client[new]), 1)
    np.add.at(step, (end[new], client[new]), -1)
    np.cumsum(step, axis=0, out=step)
    return step[:rounds].view(bool)


def _nobody(rounds: int, m: int, rows: pl.DataFrame, path: Path) -> Mask:
    if rounds * m > MOST or rounds > MOST_ROUNDS:
        first, last = (rows.sort("start").row(n, named=True) for n in (0, -1))
        said = " and ".join(
            f"{pl.Series([row['start']]).cast(pl.Datetime('us'))[0]:%Y-%m-%d} (row {row['row']:,})"
            for row in (first, last)
        )
        raise UserError(
            f"{path}: {rounds:,} rounds of {m:,} clients are too many; the log runs between {said}: take longer "
            "rounds, or --since and --until if a date is wrong"
        )
    return np.zeros((rounds, m), dtype=bool)


def silences(on: Mask, clock: Clock) -> list[Finding]:
    """Stretches of an hour or more in which nobody at all was there."""
    empty = np.flatnonzero(np.diff(np.concatenate(([0], ~on.any(1), [0])).astype(np.int8)))
    begin, end = empty[::2], empty[1::2]
    long = (end - begin) * clock.round_seconds >= 3600
    if not long.any():
        return []
    longest = int(np.argmax(end - begin))
    lasting, when = clock.lasting(int((end - begin)[longest])), clock.when(int(begin[longest]))
    text = (
        f"{int(long.sum())} gaps of an hour or more without any client, the longest {lasting} from {when}: "
        "an outage, or a part of the log that is missing"
    )
    return [Finding("gaps", int(long.sum()), text)]
