"""Which rows of a log can be used, and what became of the others; read in batches, so that a log may be of any size."""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import polars as pl

from fedawe.audit.logs.clocks import SECOND, clients_of, wrong_clocks
from fedawe.audit.logs.findings import SHOWN, UNREADABLE, Finding, counted, shown
from fedawe.audit.logs.names import alike, outside, without_rows
from fedawe.audit.logs.span import Span
from fedawe.audit.logs.states import Words, closed
from fedawe.audit.logs.streams import batches
from fedawe.audit.logs.tables import Columns, Table
from fedawe.audit.logs.times import EARLIEST, EMPTY, FAR, LATEST, RELATIVE, Times
from fedawe.core.errors import UserError

BATCH = 4_000_000  # rows that are converted at once
CHECKED = 20_000_000  # rows whose order and repetitions are looked at
FILE = 1 << 40  # rows of the n-th file are numbered from n times this


@dataclass(frozen=True)
class Rows:
    """The usable rows of a log, whatever the length of a round will be."""

    frame: pl.DataFrame  # client (index into names), start and perhaps end, in microseconds
    names: list[str]
    relative: bool  # whether times count from the log's own zero
    findings: list[Finding]
    count: int  # rows of the log that are used
    between: str  # its first and its last date, with their rows
    covered: tuple[int, int] | None = None  # of events: from the first until the last, also if no client is available


@dataclass
class _LeftOut:
    """One reason for which rows were left out."""

    text: str
    count: int = 0
    rows: list[int] = field(default_factory=list)  # the first few
    quote: str | None = None  # what the first of them says
    remedy: str | None = None  # what to do about it
    fate: str = "left out"


@dataclass
class _Sorting:
    """Rows being sorted out, batch by batch; whatever is left out is counted, and its clients are remembered."""

    files: Sequence[Path]
    rows: pl.DataFrame = field(default_factory=pl.DataFrame)
    left_out: dict[tuple[str, str], _LeftOut] = field(default_factory=dict)
    cut: dict[str, int] = field(default_factory=dict)  # flag -> intervals cut there
    reasons: dict[str, str] = field(default_factory=dict)  # client -> why rows of it were left out, the last reason

    def without(
        self,
        bad: pl.Expr,
        kind: str,
        text: str,
        quote: str | None = None,
        named: bool = True,
        remedy: str | None = None,
    ) -> None:
        left_out = self.rows.filter(bad)
        if left_out.is_empty():
            return
        self._count(left_out, kind, _LeftOut(text, remedy=remedy), quote)
        self.rows = self.rows.filter(~bad)
        if named:
            self.reasons |= dict.fromkeys(clients_of(left_out), kind)

    def _count(self, rows: pl.DataFrame, kind: str, first: _LeftOut, quote: str | None = None) -> None:
        entry = self.left_out.setdefault((kind, first.text), first)
        if quote and entry.quote is None:
            entry.quote = rows[quote].cast(pl.String)[0]
        entry.count += len(rows)
        entry.rows += rows["row"].head(SHOWN - len(entry.rows)).to_list() if len(entry.rows) < SHOWN else []

    def ending(self, unmet: pl.Expr, text: str) -> None:
        """Events that do not meet a requirement say that the client is unavailable, whatever else they say."""
        begun = self.rows.filter(unmet & pl.col("on"))
        if len(begun):
            self._count(begun, "requirements", _LeftOut(text, fate="read as the client being unavailable from then on"))
        self.rows = self.rows.with_columns(on=pl.col("on") & ~(unmet & pl.col("on").is_not_null()))

    def findings(self) -> list[Finding]:
        out = [
            Finding(kind, one.count, "; ".join(filter(None, (self._said(one), one.fate, one.remedy))))
            for (kind, _), one in self.left_out.items()
        ]
        cuts = (Finding(f"cut at {flag}", n, f"{counted(n, 'interval')} cut at {flag}") for flag, n in self.cut.items())
        return [*out, *cuts]

    def _said(self, one: _LeftOut) -> str:
        quoted = f", as {shown(one.quote)!r}" if one.quote else ""
        return f"{counted(one.count, 'row')} {one.text} ({numbered(one.rows, one.count, self.files)}{quoted})"

    def check(self, path: Path, total: int, used: int) -> None:
        """Refuse a log without a row that can be used, or most of whose rows cannot be read."""
        unread = {key: one for key, one in self.left_out.items() if key[0] in UNREADABLE}
        n = sum(one.count for one in unread.values())
        if used and n <= total / 2:
            return
        reasons = unread if used else self.left_out
        remedies = dict.fromkeys(one.remedy for one in reasons.values() if one.remedy)
        said = "; ".join([*map(self._said, reasons.values()), *remedies])
        if not used:
            raise UserError(f"{path}: no row of {total:,} can be used: {said}")
        todo = "" if remedies else "; mend these rows or leave them out"
        raise UserError(f"{path}: {n:,} of {total:,} rows cannot be read: {said}{todo}")


def numbered(rows: Sequence[int], count: int, files: Sequence[Path]) -> str:
    """Rows by their numbers, with their files where there are several."""
    names = [
        f"{row % FILE:,}" if len(files) < 2 else f"{row % FILE:,} of {shown(files[row // FILE].name)}" for row in rows
    ]
    return f"row{'s' if count > 1 else ''} {', '.join(names)}{' ...' if count > len(rows) else ''}"


def read_rows(
    tables: Sequence[Table],
    files: Sequence[Path],
    times: Times,
    columns: Columns,
    since: str | None,
    until: str | None,
    path: Path,
) -> Rows:
    """The usable rows of all files, every client, and what is to be known."""
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
    table, work, span = tables[0], _Sorting(files), None
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
            work.rows = words.understood(work.rows)
        _leave_out_unreadable(work, table, columns, times)
        if table.state is None:  # an interval that began before --since is known by its first event alone
            before |= _cut(work, table, span)
        parts.append(_coded(work.rows, codes, [*table.times, *(["on", "unmet"] if table.state is not None else [])]))
    if not total:
        raise UserError(f"{path}: is empty: no row under the header")
    if words is not None:
        words.check()
    findings = [*_merged(tables), *times.findings(), *work.findings()]
    rows = pl.concat(parts)
    work.check(path, total, len(rows))
    names = list(codes)
    _look_at_order(rows, names, times.relative, findings, files)
    gone = sorted(set(work.reasons) - set(names))
    findings += [*without_rows(gone, work.reasons), *outside(before - set(names) - set(gone)), *alike([*names, *gone])]
    count, between, covered = len(rows), _between(rows, table.times[-1], files), None
    if words is not None:
        events, rows = rows, words.intervals(rows, findings)
        if "end" in rows.columns:
            covered, rows = _covered(events, span or Span()), _within(rows, span or Span())
        if rows.is_empty():
            raise UserError(f"{path}: no interval of {total:,} events is in the time asked for")
    elif "end" in rows.columns:
        after = int(rows.select(pl.max_horizontal(pl.col("start") + 1, "end").max()).item())
        rows = closed(rows, after if span is None or span.until is None else round(span.until * SECOND), findings)
    return Rows(rows.drop("row"), [*names, *gone], times.relative, findings, count, between, covered)


def _between(rows: pl.DataFrame, reach: str, files: Sequence[Path]) -> str:
    ends = ((rows["start"].arg_min(), "start"), (rows[reach].arg_max(), reach))
    said = [(rows[name][at], numbered([rows["row"][at]], 1, files)) for at, name in ends if at is not None]
    return " and ".join(f"{pl.Series([at]).cast(pl.Datetime('us'))[0]:%Y-%m-%d} ({row})" for at, row in said)


def _named(table: Table) -> str:
    return ", ".join(["client", *table.called, *([table.state] if table.state else [])])


def _merged(tables: Sequence[Table]) -> list[Finding]:
    """What was found of the tables, once for all files that have it."""
    return list(dict.fromkeys(finding for table in tables for finding in table.findings))


def _batches(tables: Sequence[Table], files: Sequence[Path], times: Times) -> Iterable[pl.DataFrame]:
    """A pass over the files; the text of a time is kept only where it could not be read."""
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
    """Clients by their numbers; new ones get the next."""
    for name in rows["client"].unique(maintain_order=True):
        codes.setdefault(name, len(codes))
    client = rows["client"].replace_strict(list(codes), list(codes.values()), return_dtype=pl.UInt32)
    return rows.select("row", client, *columns)


def _covered(events: pl.DataFrame, span: Span) -> tuple[int, int]:
    """From when until when the states of clients are known: between the first event and the last, within the span."""
    first, last = (int(at) for at in events.select(pl.min("start"), last=pl.max("start")).row(0))
    since = first if span.since is None else max(first, round(span.since * SECOND))
    return since, last if span.until is None else min(last, round(span.until * SECOND))


def _within(rows: pl.DataFrame, span: Span) -> pl.DataFrame:
    """The parts of intervals that are within the span."""
    if span.since is not None:
        rows = rows.with_columns(start=pl.max_horizontal("start", pl.lit(round(span.since * SECOND))))
    if span.until is not None:
        rows = rows.with_columns(end=pl.min_horizontal("end", pl.lit(round(span.until * SECOND))))
    return rows.filter(pl.col("start") < pl.col("end"))


def _leave_out_unreadable(work: _Sorting, table: Table, columns: Columns, times: Times) -> None:
    for reason in work.rows["broken"].drop_nulls().unique().sort():
        remedy = "save the file as UTF-8" if "UTF-8" in reason else None
        broken = pl.col("broken").eq_missing(pl.lit(reason))
        work.without(broken, "unreadable rows", reason, "client", named=False, remedy=remedy)
    work.without(pl.col("client").fill_null("") == "", "no client", "without a client", named=False)
    if columns.require:
        without = f"without {' and '.join(columns.require)}"
        if table.state is None:
            work.without(pl.col("unmet"), "requirements", without)
        else:
            work.ending(pl.col("unmet"), without)
    if table.state is not None:
        said = f"whose {shown(table.state)!r} says neither that the client is available nor that it is not"
        work.without(pl.col("on").is_null(), "other events", said, "state")
    skipped = f"with a time that never happened in {times.zone}, where clocks were set forward"
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


def _cut(work: _Sorting, table: Table, span: Span) -> set[str]:
    """Leaves out what is not in the span, cuts intervals at its ends; returns the clients there were before."""
    if (span.since, span.until) == (None, None):
        return set()
    before = set(clients_of(work.rows))
    has_end = table.times[-1] == "end"
    if span.since is not None:
        since = round(span.since * SECOND)
        early = (pl.col("end") <= since).fill_null(False) if has_end else pl.col("start") < since
        work.without(early, "before --since", "dated before --since", named=False)
        _shorten(work, "start", pl.col("start") < since, since, "--since")
    if span.until is not None:
        until = round(span.until * SECOND)
        work.without(pl.col("start") >= until, "after --until", "dated --until or later", named=False)
        if has_end:
            _shorten(work, "end", (pl.col("end") > until).fill_null(False), until, "--until")
    return before


def _shorten(work: _Sorting, name: str, beyond: pl.Expr, at: int, flag: str) -> None:
    n = int(work.rows.select(beyond.sum()).item())
    if n:
        work.cut[flag] = work.cut.get(flag, 0) + n
        work.rows = work.rows.with_columns(pl.when(beyond).then(at).otherwise(pl.col(name)).alias(name))


def _look_at_order(
    rows: pl.DataFrame, names: list[str], relative: bool, findings: list[Finding], files: Sequence[Path]
) -> None:
    """Clocks that look wrong, and rows that repeat others, of the first rows of a very large log."""
    n = len(rows)
    if n > CHECKED:
        text = f"clocks and repeated rows were looked for in the first {CHECKED:,} of {n:,} rows only"
        findings.append(Finding("checked in part", n - CHECKED, text))
        rows = rows.head(CHECKED)
    named = rows.with_columns(
        client=pl.col("client")
        .cast(pl.String)
        .replace_strict([str(code) for code in range(len(names))], names)
        .cast(pl.Categorical)
    )
    findings += wrong_clocks(named, relative, _where(files))
    repeated = len(rows) - rows.select(pl.struct(pl.exclude("row")).n_unique()).item()
    if repeated:
        verb = "repeats another" if repeated == 1 else "repeat others"
        findings.append(
            Finding("duplicates", repeated, f"{counted(repeated, 'row')} {verb} word for word; counted once")
        )


def _where(files: Sequence[Path]) -> Callable[[pl.DataFrame], str]:
    return lambda rows: f" ({numbered(rows['row'].head(SHOWN).to_list(), len(rows), files)})"
