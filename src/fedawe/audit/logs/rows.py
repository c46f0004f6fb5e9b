"""Which rows of a log can be used, what became of the others, and which clocks look wrong."""

from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

import polars as pl

from fedawe.audit.logs.findings import SHOWN, Finding, counted, shown, some
from fedawe.audit.logs.tables import Table, collected
from fedawe.audit.logs.times import EARLIEST, LATEST, RELATIVE, Times, moment
from fedawe.availability.clock import Clock
from fedawe.core.errors import UserError

SECOND = 1_000_000  # in microseconds
HOUR, DAY = 3600 * SECOND, 86400 * SECOND
NEAR = 21  # rows before, and as many that follow, whose medians say what time it is
DISORDER = 0.05  # of rows dated before the one above them: too many to be clocks


@dataclass(frozen=True)
class Span:
    """What part of a log to read, in seconds since 1970 (or since the log's own zero)."""

    since: float | None = None
    until: float | None = None

    @classmethod
    def of(cls, since: str | None, until: str | None, timezone: str, relative: bool) -> "Span":
        """From what the user wrote; a date where there are none, or a number that is no date, is refused."""
        ends: list[float | None] = []
        for flag, text in (("--since", since), ("--until", until)):
            if text is None:
                ends.append(None)
                continue
            at, dated = moment(text, flag, timezone)
            if dated and relative:
                raise UserError(f"{flag} {text}: times here count from the beginning; give a number of seconds")
            if not dated and not relative and not EARLIEST <= at <= LATEST:
                raise UserError(f"{flag} {text}: as a number that is seconds since 1970; write a date as in 2024-05-01")
            ends.append(at)
        if ends[0] is not None and ends[1] is not None and ends[0] >= ends[1]:
            raise UserError(f"--since {since} is not before --until {until}")
        return cls(*ends)


@dataclass
class _Sorting:
    """Rows being sorted out; whatever is left out is counted, and its clients are remembered."""

    rows: pl.DataFrame
    findings: list[Finding]
    reasons: dict[str, str]  # client -> why rows of it were left out, the last reason

    def without(self, bad: pl.Expr, kind: str, text: str, quote: str | None = None, named: bool = True) -> None:
        left_out = self.rows.filter(bad)
        if left_out.is_empty():
            return
        where = _where(left_out, quote)
        self.findings.append(Finding(kind, len(left_out), f"{counted(len(left_out), 'row')} {text}{where}; left out"))
        self.rows = self.rows.filter(~bad)
        if named:
            self.reasons |= dict.fromkeys(_clients(left_out), kind)


def read_rows(
    table: Table, times: Times, since: str | None, until: str | None, path: Path
) -> tuple[pl.DataFrame, list[str], list[Finding]]:
    """Usable rows (columns row, client, start and perhaps end, in microseconds), all clients, what is to be known."""
    rows = collected(_raw(table, times), path)
    if rows.is_empty():
        raise UserError(f"{path}: is empty: no row under the header")
    total = len(rows)
    rows = times.settle(rows, table.times)
    work = _Sorting(rows, [*table.findings, *times.findings], {})
    _leave_out_unreadable(work, table, times)
    known = _cut(work, table, Span.of(since, until, times.zone, times.relative))
    if work.rows.is_empty():
        said = "; ".join(f.text.removesuffix("; left out") for f in work.findings if f.text.endswith("left out"))
        raise UserError(f"{path}: no row of {total:,} can be used: {said}")
    work.findings += _wrong_clocks(work.rows, times)
    used = set(_clients(work.rows))
    gone = sorted(set(work.reasons) - used)
    work.findings += _gone(gone, work.reasons)
    work.findings += _outside(known - used - set(gone))
    rows = work.rows.select("row", "client", *table.times)
    return _without_duplicates(rows, table.times, work.findings), [*used, *gone], work.findings


def _raw(table: Table, times: Times) -> pl.LazyFrame:
    """One pass over the file keeps 30 bytes a row; the text of a time is kept only where it could not be read."""
    schema = table.frame.collect_schema()
    raw, written = [], []
    for name, called in zip(table.times, table.called, strict=True):
        raw += times.raw(name, schema[name], called)
        unread = pl.col(f"{name}_number").is_null() & pl.col(f"{name}_local").is_null()
        text = pl.col(name).cast(pl.String).fill_null("").str.strip_chars()
        written.append(pl.when(unread).then(text).alias(f"{name}_written"))
    return (
        table.frame.with_columns(*raw)
        .with_columns(*written)
        .drop(table.times)
        .with_columns(pl.col("client").cast(pl.Categorical), pl.col("broken").cast(pl.Categorical))
    )


def _leave_out_unreadable(work: _Sorting, table: Table, times: Times) -> None:
    for reason in work.rows["broken"].drop_nulls().unique().cast(pl.String).sort():
        broken = pl.col("broken").cast(pl.String).eq_missing(pl.lit(reason))
        work.without(broken, "unreadable rows", reason, "client", named=False)  # its client may be anything
    nameless = pl.col("client").is_null() | (pl.col("client").cast(pl.String) == "")
    work.without(nameless, "no client", "without a client", named=False)
    skipped = f"with a time that never happened in {times.zone}, where clocks were set forward"
    work.without(pl.col("skipped"), "skipped times", skipped)
    by = "" if times.format is None else f" by --time-format {times.format}"
    for name in table.times:
        what = "time" if len(table.times) == 1 else {"start": "beginning", "end": "end"}[name]
        empty = pl.col(name).is_null() & (pl.col(f"{name}_written") == "")
        work.without(empty, f"no {what}", f"without {'an' if what == 'end' else 'a'} {what}")
        unread = f"with {'an' if what == 'end' else 'a'} {what} that cannot be read{by}"
        work.without(pl.col(name).is_null(), "unreadable times", unread, f"{name}_written")
    if "end" in table.times:
        reversed_ = pl.col("end") <= pl.col("start")
        work.without(reversed_, "reversed intervals", "ending before they begin, or at once")
    if times.relative:
        work.without(pl.col("start") < 0, "negative times", "with a time below zero")
        since_1970 = pl.max_horizontal(table.times) >= int(RELATIVE) * SECOND
        work.without(since_1970, "another zero", "with times since 1970, where most count from the log's beginning")
    else:
        inside = [pl.col(name).is_between(EARLIEST * SECOND, LATEST * SECOND) for name in table.times]
        outside = ~pl.all_horizontal(inside)
        work.without(outside, "clock not set", "dated before 2000 or after 2100: a clock that was not set")


def _cut(work: _Sorting, table: Table, span: Span) -> set[str]:
    """Leaves out what is not in the span, cuts intervals at its ends; returns the clients there were before."""
    before = set(_clients(work.rows)) if (span.since, span.until) != (None, None) else set()
    end = table.times[-1]
    if span.since is not None:
        since = round(span.since * SECOND)
        early = pl.col("start") < since if end == "start" else pl.col("end") <= since
        work.without(early, "before --since", "dated before --since", named=False)
        _shorten(work, "start", pl.col("start") < since, since, "--since")
    if span.until is not None:
        until = round(span.until * SECOND)
        work.without(pl.col("start") >= until, "after --until", "dated --until or later", named=False)
        if end == "end":
            _shorten(work, "end", pl.col("end") > until, until, "--until")
    return before


def _shorten(work: _Sorting, name: str, beyond: pl.Expr, at: int, flag: str) -> None:
    n = int(work.rows.select(beyond.sum()).item())
    if n:
        work.findings.append(Finding(f"cut at {flag}", n, f"{counted(n, 'interval')} cut at {flag}"))
        work.rows = work.rows.with_columns(pl.when(beyond).then(at).otherwise(pl.col(name)).alias(name))


def _clients(rows: pl.DataFrame) -> list[str]:
    return rows["client"].unique().cast(pl.String).drop_nulls().to_list()


def _where(rows: pl.DataFrame, quote: str | None = None) -> str:
    """The numbers of the first rows, and what one of them says."""
    numbers = ", ".join(f"{row:,}" for row in rows["row"].head(SHOWN))
    more = " ..." if len(rows) > SHOWN else ""
    said = rows[quote].cast(pl.String)[0] if quote else None
    quoted = f", as {shown(said)!r}" if said else ""
    return f" (row{'s' if len(rows) > 1 else ''} {numbers}{more}{quoted})"


def _gone(gone: list[str], reasons: dict[str, str]) -> list[Finding]:
    if not gone:
        return []
    named = some([f"{shown(client)}: {reasons[client]}" for client in gone])
    have = "client has" if len(gone) == 1 else "clients have"
    text = f"{len(gone):,} {have} no row that can be used ({named}); in the fleet all the same, as never there"
    return [Finding("clients without rows", len(gone), text)]


def _outside(clients: set[str]) -> list[Finding]:
    if not clients:
        return []
    text = f"{counted(len(clients), 'client')} only outside --since and --until ({some(sorted(clients))}); not counted"
    return [Finding("clients outside", len(clients), text)]


def _wrong_clocks(rows: pl.DataFrame, times: Times) -> list[Finding]:
    back = rows.select("row", "client", step=pl.col("start").diff().over("client")).filter(pl.col("step") < 0)
    if len(back) > max(DISORDER * len(rows), 2):
        return [Finding("order", len(back), "rows are not in order of time; whether clocks jumped cannot be told")]
    found = []
    if len(back):
        often, most = counted(len(back), "time"), _lasting(-int(back["step"].min()))  # type: ignore[arg-type]
        text = f"a client's clock went back {often}, by up to {most}{_where(back)}; taken as they are"
        found.append(Finding("clock jumps", len(back), text))
    return [*found, *_ahead(rows), *_far_off(rows, times.relative), *(_odd_scale(rows) if times.relative else [])]


def _ahead(rows: pl.DataFrame) -> list[Finding]:
    """Rows dated over an hour after most that follow, and after most before: a clock that is fast or jumped forward.

    These are rows of the log, or of the same client if the log as a whole is not in order of time. Where two logs meet
    in one, the last rows of the first are ahead of what follows but not of what was before.
    """
    leaps_back = int((rows["start"].diff() < -HOUR).sum())
    by_client = leaps_back > DISORDER * len(rows)
    before = pl.col("start").rolling_median(NEAR, min_samples=3).shift(1)
    after = pl.col("start").reverse().rolling_median(NEAR, min_samples=3).shift(1).reverse()
    since_before, ahead = (pl.col("start") - (m.over("client") if by_client else m) for m in (before, after))
    fast = rows.select("row", "client", ahead=ahead, since_before=since_before.fill_null(ahead))
    fast = fast.filter((pl.col("ahead") > HOUR) & (pl.col("since_before") > pl.col("ahead") / 2))
    if fast.is_empty():
        return []
    most = _lasting(float(fast["ahead"].max()))  # type: ignore[arg-type]
    text = (
        f"{counted(len(fast), 'row')} dated ahead of the rows around, by up to {most} (of {some(_clients(fast))})"
        f"{_where(fast)}: a clock that jumped forward or is fast; taken as they are"
    )
    return [Finding("clock jumps ahead", len(fast), text)]


def _far_off(rows: pl.DataFrame, relative: bool) -> list[Finding]:
    """A few rows at either end that are further from all others than these are from each other: a wrong date."""
    if len(rows) < 20:
        return []
    few, reach = max(1, len(rows) // 1000), "end" if "end" in rows.columns else "start"
    first, last = rows.select(pl.col("start").min(), last=pl.col(reach).max()).row(0)
    out = []
    for name, side, flag, other_end in (("start", "before", "--since", last), (reach, "after", "--until", first)):
        extreme = rows.top_k(few + 1, by=name, reverse=side == "before").sort(name, descending=side == "after")
        gaps = extreme[name].diff().abs()[1:]
        n = int(gaps.arg_max() or 0) + 1  # so many rows are beyond the widest gap among these few
        gap, rest = int(gaps[n - 1]), abs(other_end - int(extreme[name][n]))
        if gap <= max(rest, DAY):
            continue
        limit, odd = int(extreme[name][n]) // SECOND + (side == "after"), extreme.head(n)
        when = str(limit) if relative else f"{datetime.fromtimestamp(limit, UTC):%Y-%m-%dT%H:%M:%SZ}"
        text = (
            f"{counted(n, 'row')} dated {_lasting(gap)} {side} all others, which lie within {_lasting(rest)} "
            f"(of {some(_clients(odd))}){_where(odd)}: a wrong date? {flag} {when} leaves such rows out"
        )
        out.append(Finding("far from all others", n, text))
    return out


def _odd_scale(rows: pl.DataFrame) -> list[Finding]:
    """Clients whose times since the beginning are a thousand times those of most others."""
    reach = rows.group_by("client").agg(pl.col("start").max())
    typical = float(reach["start"].median() or 0)  # type: ignore[arg-type]
    odd = reach.filter(pl.col("start").is_between(300 * typical, 3000 * typical)) if typical else reach.clear()
    if odd.is_empty():
        return []
    text = (
        f"{counted(len(odd), 'client')} with times about 1,000 times those of most others ({some(_clients(odd))}): "
        "milliseconds among seconds? taken as they are"
    )
    return [Finding("mixed units", len(odd), text)]


def _lasting(microseconds: float) -> str:
    return Clock(1.0).lasting(microseconds / SECOND)


def _without_duplicates(rows: pl.DataFrame, times: tuple[str, ...], findings: list[Finding]) -> pl.DataFrame:
    once = rows.unique(["client", *times], keep="first", maintain_order=True)
    if len(once) < len(rows):
        n = len(rows) - len(once)
        verb = "repeats another" if n == 1 else "repeat others"
        findings.append(Finding("duplicates", n, f"{counted(n, 'row')} {verb} word for word; counted once"))
    return once
