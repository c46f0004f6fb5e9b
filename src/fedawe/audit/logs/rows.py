"""Separates the usable rows of a log from the others, which are counted; works in batches, for logs of any size."""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import polars as pl

from fedawe.audit.logs.clocks import SECOND, clients_of, wrong_clocks
from fedawe.audit.logs.findings import SHOWN, Finding, counted, shown
from fedawe.audit.logs.names import alike, outside, without_rows
from fedawe.audit.logs.sorting import FILE, Sorting, numbered
from fedawe.audit.logs.span import Span
from fedawe.audit.logs.states import Words, closed
from fedawe.audit.logs.streams import batches
from fedawe.audit.logs.tables import Columns, Table
from fedawe.audit.logs.times import EARLIEST, EMPTY, FAR, LATEST, RELATIVE, Times
from fedawe.core.errors import UserError

BATCH = 4_000_000  # rows that are converted at once
CHECKED = 20_000_000  # at most so many rows are checked for their order and for duplicates


@dataclass(frozen=True)
class Rows:
    """The usable rows of a log, whatever the length of a round will be."""

    frame: pl.DataFrame  # client (index into names), start and perhaps end, in microseconds
    names: list[str]
    relative: bool  # whether times count from the log's own zero
    findings: list[Finding]
    count: int  # number of usable rows
    between: str  # the first and the last date of the log, with their row numbers
    covered: tuple[int, int] | None = None  # times of the first and last event, available clients or not; events only
    heard: dict[str, tuple[int, int]] = field(default_factory=dict)  # client -> times of its first and last row


def read_rows(
    tables: Sequence[Table],
    files: Sequence[Path],
    times: Times,
    columns: Columns,
    since: str | None,
    until: str | None,
    path: Path,
) -> Rows:
    """The usable rows of all files, the names of all clients, and the findings."""
    shapes = {(table.times, table.state is None) for table in tables}
    if len(shapes) > 1:
        other = next(
            file
            for file, one in zip(files, tables, strict=True)
            if one.times != tables[0].times or (one.state is None) != (tables[0].state is None)
        )
        raise UserError(
            f"{files[0]} and {other}: have different columns ({_named(tables[0])}); read them one at a time"
        )
    table, work, span = tables[0], Sorting(files), None
    codes: dict[str, int] = {}
    before: set[str] = set()
    parts: list[pl.DataFrame] = []
    words = None if table.state is None else Words(table.state, columns.on, columns.off, path)
    total = 0
    for batch in _batches(tables, files, times):
        total += len(batch)
        work.rows = times.settle(batch, table.times)
        if span is None:
            span = Span.of(since, until, times.zone, times.relative)
        if words is not None:
            work.rows = words.with_meaning(work.rows)
        _leave_out_unreadable(work, table, columns, times)
        if table.state is None:  # events are cut after they became intervals, which may begin before --since
            before |= _cut(work, span)
        parts.append(_coded(work.rows, codes, [*table.times, *(["on", "unmet"] if table.state is not None else [])]))
    if not total:
        raise UserError(f"{path}: is empty: it has no row below the header")
    if words is not None:
        words.check()
    findings = [*_merged(tables), *times.findings(), *work.findings()]
    rows = pl.concat(parts)
    work.check(path, total, len(rows))
    names = list(codes)
    _look_at_order(rows, names, times.relative, findings, files)
    count, between, covered = len(rows), _between(rows, table.times[-1], files), None
    heard = _heard(rows, names, span or Span()) if words is not None else {}
    if words is not None:
        events, rows, before = rows, words.intervals(_oldest_first(rows), findings), set(names)
        if "end" in rows.columns:
            covered = _covered(events, span or Span())
        rows, names = _part(rows, events, names, span or Span(), files, findings)
        if rows.is_empty():
            raise UserError(f"{path}: the {total:,} events have no interval within --since and --until")
    elif "end" in rows.columns:
        after = int(rows.select(pl.max_horizontal(pl.col("start") + 1, "end").max()).item())
        rows = closed(rows, after if span is None or span.until is None else round(span.until * SECOND), findings)
        heard = _heard(rows, names, Span())
    gone = sorted(set(work.reasons) - set(names))
    findings += [*without_rows(gone, work.reasons), *outside(before - set(names) - set(gone)), *alike([*names, *gone])]
    return Rows(rows.drop("row"), [*names, *gone], times.relative, findings, count, between, covered, heard)


def _between(rows: pl.DataFrame, reach: str, files: Sequence[Path]) -> str:
    """The first time and the last time in the column `reach`, each with its row number, for a message."""
    ends = ((rows["start"].arg_min(), "start"), (rows[reach].arg_max(), reach))
    said = [(rows[name][at], numbered([rows["row"][at]], 1, files)) for at, name in ends if at is not None]
    return " and ".join(f"{pl.Series([at]).cast(pl.Datetime('us'))[0]:%Y-%m-%d} ({row})" for at, row in said)


def _named(table: Table) -> str:
    return ", ".join(["client", *table.called, *([table.state] if table.state else [])])


def _merged(tables: Sequence[Table]) -> list[Finding]:
    """The findings of all tables, without repetitions."""
    return list(dict.fromkeys(finding for table in tables for finding in table.findings))


def _batches(tables: Sequence[Table], files: Sequence[Path], times: Times) -> Iterable[pl.DataFrame]:
    """The rows of all files, in batches; the text of a time is kept only where it could not be read."""
    for n, (table, file) in enumerate(zip(tables, files, strict=True)):
        schema = table.frame.collect_schema()
        raw, written = [], []
        for name, called in zip(table.times, table.called, strict=True):
            raw += times.raw(name, schema[name], called)
            unread = pl.col(f"{name}_number").is_null() & pl.col(f"{name}_local").is_null()
            text = pl.col(name).cast(pl.String).fill_null("").str.strip_chars()
            written.append(pl.when(unread).then(text).alias(f"{name}_written"))
        frame = (
            table.frame.with_columns(*raw)
            .with_columns(*written, row=pl.col("row").cast(pl.Int64) + n * FILE)
            .drop(table.times)
        )
        yield from batches(frame, file, BATCH)


def _coded(rows: pl.DataFrame, codes: dict[str, int], columns: list[str]) -> pl.DataFrame:
    """The rows with clients as numbers; `codes` maps names to numbers, and new names are added to it."""
    for name in rows["client"].unique(maintain_order=True):
        codes.setdefault(name, len(codes))
    client = rows["client"].replace_strict(list(codes), list(codes.values()), return_dtype=pl.UInt32)
    return rows.select("row", client, *columns)


def _oldest_first(rows: pl.DataFrame) -> pl.DataFrame:
    """The rows with files whose times descend reversed, because there the lower of two simultaneous events is first."""
    file, row = pl.col("row") // FILE, pl.col("row")
    descends = pl.col("start").diff().sign().sum().over(file) < 0
    if not rows.select(descends.any()).item():
        return rows
    return rows.sort(pl.when(descends).then((2 * file + 1) * FILE - row).otherwise(row))


def _covered(events: pl.DataFrame, span: Span) -> tuple[int, int]:
    """The time from the first event to the last, within the span, in which the states of clients are known."""
    first, last = (int(at) for at in events.select(pl.min("start"), last=pl.max("start")).row(0))
    since = first if span.since is None else max(first, round(span.since * SECOND))
    return since, last if span.until is None else min(last, round(span.until * SECOND))


def _heard(rows: pl.DataFrame, names: list[str], span: Span) -> dict[str, tuple[int, int]]:
    """The times of each client's first and last row within the span, including rows that say it is unavailable."""
    if span.since is not None:
        rows = rows.filter(pl.col("start") >= round(span.since * SECOND))
    if span.until is not None:
        rows = rows.filter(pl.col("start") < round(span.until * SECOND))
    last = pl.max("end" if "end" in rows.columns else "start").alias("last")
    found = rows.group_by("client").agg(pl.min("start"), last)
    return {names[client]: (start, last) for client, start, last in found.iter_rows()}


def _part(
    rows: pl.DataFrame, events: pl.DataFrame, names: list[str], span: Span, files: Sequence[Path], out: list[Finding]
) -> tuple[pl.DataFrame, list[str]]:
    """The intervals within the span, and the clients that have an interval or an event there.

    Events are joined to intervals before they are cut: an interval may have begun before --since.
    """
    if span == Span():
        return rows, names
    work = Sorting(files, _by_name(rows, names), what="interval" if "end" in rows.columns else "row")
    _cut(work, span)
    out += work.findings()
    codes: dict[str, int] = {}
    rows = _coded(work.rows, codes, [name for name in ("start", "end") if name in rows.columns])
    inside = Sorting(files, _by_name(events, names))
    _cut(inside, span)
    return rows, list(dict.fromkeys([*codes, *clients_of(inside.rows)]))


def _by_name(rows: pl.DataFrame, names: list[str]) -> pl.DataFrame:
    return rows.with_columns(client=pl.Series(names, dtype=pl.String).gather(rows["client"]))


def _leave_out_unreadable(work: Sorting, table: Table, columns: Columns, times: Times) -> None:
    for reason in work.rows["broken"].drop_nulls().unique().sort():
        remedy = "save the file as UTF-8" if "UTF-8" in reason else None
        broken = pl.col("broken").eq_missing(pl.lit(reason))
        work.without(broken, "unreadable rows", reason, "client", named=False, remedy=remedy)
    work.without(pl.col("client").fill_null("") == "", "no client", "without a client", named=False)
    if columns.require:
        without = f"that do not meet --require {' '.join(columns.require)}"
        if table.state is None:
            work.without(pl.col("unmet"), "requirements", without)
        else:
            work.ending(pl.col("unmet"), without)
    if table.state is not None:
        said = f"whose {shown(table.state)!r} means neither available nor unavailable"
        work.without(pl.col("on").is_null(), "other events", said, "state")
    skipped = f"with a time that does not exist in {times.zone}, because clocks were set forward"
    work.without(pl.col("skipped"), "skipped times", skipped)
    by = "" if times.format is None else f" by --time-format {times.format}"
    remedy = "say how times are written with --time-format" if times.format is None else None
    open_ = pl.lit(False)
    if "end" in table.times:
        open_ = pl.col("end_written").str.to_lowercase().is_in(EMPTY).fill_null(False) | (
            pl.col("end") >= FAR
        ).fill_null(False)
        work.rows = work.rows.with_columns(end=pl.when(open_).then(None).otherwise(pl.col("end")), open=open_)
        open_ = pl.col("open")
    for name in table.times:
        what = "time" if len(table.times) == 1 else {"start": "beginning", "end": "end"}[name]
        if name == "start":
            empty = pl.col(name).is_null() & (pl.col(f"{name}_written") == "")
            work.without(empty, f"no {what}", f"without a {what}")
        unread = f"with {'an' if what == 'end' else 'a'} {what} that cannot be read{by}"
        wrong = pl.col(name).is_null() & (~open_ if name == "end" else pl.lit(True))
        work.without(wrong, "unreadable times", unread, f"{name}_written", remedy=remedy)
    if "end" in table.times:
        reversed_ = (pl.col("end") <= pl.col("start")).fill_null(False)
        work.without(reversed_, "reversed intervals", "with an end before the beginning, or at the same moment")
    if times.relative:
        work.without(pl.col("start") < 0, "negative times", "with a time below zero")
        since_1970 = pl.max_horizontal(table.times) >= int(RELATIVE) * SECOND
        work.without(since_1970, "another zero", "with times since 1970, where most count from the log's beginning")
    else:
        inside = [pl.col(name).is_between(EARLIEST * SECOND, LATEST * SECOND).fill_null(True) for name in table.times]
        outside = ~pl.all_horizontal(inside)
        work.without(outside, "clock not set", "dated before 2000 or after 2100: a clock that was not set")


def _cut(work: Sorting, span: Span) -> set[str]:
    """Leaves out rows outside the span and cuts intervals at its ends; returns the clients of all rows before that."""
    if (span.since, span.until) == (None, None):
        return set()
    before = set(clients_of(work.rows))
    has_end = "end" in work.rows.columns
    if span.since is not None:
        since = round(span.since * SECOND)
        early = (pl.col("end") <= since).fill_null(False) if has_end else pl.col("start") < since
        work.without(early, "before --since", "dated before --since", named=False)
        _shorten(work, "start", pl.col("start") < since, since, "--since")
    if span.until is not None:
        until = round(span.until * SECOND)
        work.without(pl.col("start") >= until, "after --until", "dated at --until or later", named=False)
        if has_end:
            _shorten(work, "end", (pl.col("end") > until).fill_null(False), until, "--until")
    return before


def _shorten(work: Sorting, name: str, beyond: pl.Expr, at: int, flag: str) -> None:
    n = int(work.rows.select(beyond.sum()).item())
    if n:
        work.cut[flag] = work.cut.get(flag, 0) + n
        work.rows = work.rows.with_columns(pl.when(beyond).then(at).otherwise(pl.col(name)).alias(name))


def _look_at_order(
    rows: pl.DataFrame, names: list[str], relative: bool, findings: list[Finding], files: Sequence[Path]
) -> None:
    """Adds findings about wrong clocks and repeated rows; of a very large log, only the first rows are checked."""
    n = len(rows)
    if n > CHECKED:
        text = f"only the first {CHECKED:,} of {n:,} rows were checked for wrong clocks and repeated rows"
        findings.append(Finding("checked in part", n - CHECKED, text))
        rows = rows.head(CHECKED)
    named = _by_name(rows, names).with_columns(pl.col("client").cast(pl.Categorical))
    findings += wrong_clocks(named, relative, _where(files))
    repeated = len(rows) - rows.select(pl.struct(pl.exclude("row")).n_unique()).item()
    if repeated:
        verb = "repeats another" if repeated == 1 else "repeat others"
        findings.append(
            Finding("duplicates", repeated, f"{counted(repeated, 'row')} {verb} word for word; counted once")
        )


def _where(files: Sequence[Path]) -> Callable[[pl.DataFrame], str]:
    return lambda rows: f" ({numbered(rows['row'].head(SHOWN).to_list(), len(rows), files)})"
