"""Finds clocks that look wrong: they went back, are ahead of others, or count in another unit."""

from collections.abc import Callable
from datetime import UTC, datetime

import polars as pl

from fedawe.audit.logs.findings import Finding, counted, some
from fedawe.availability.clock import Clock

SECOND = 1_000_000  # in microseconds
HOUR, DAY = 3600 * SECOND, 86400 * SECOND
Where = Callable[[pl.DataFrame], str]  # the numbers of the first rows of a table, in words
NEAR = 21  # rows before, and rows after; their medians are the expected time of a row
DISORDER = 0.05  # above this share of rows that are dated before the row above, the log is not in order of time


def wrong_clocks(rows: pl.DataFrame, relative: bool, where: Where) -> list[Finding]:
    """Findings about the times of these rows (row, client, start, perhaps end), given in the order of the log."""
    back = rows.select("row", "client", step=pl.col("start").diff().over("client")).filter(pl.col("step") < 0)
    if len(back) > max(DISORDER * len(rows), 2):
        return [Finding("order", len(back), "rows are not in order of time, so jumps of clocks cannot be detected")]
    found = []
    if len(back):
        often, most = counted(len(back), "time"), _lasting(-int(back["step"].min()))  # type: ignore[arg-type]
        text = f"a client's clock went back {often}, by up to {most}{where(back)}; its times were not changed"
        found.append(Finding("clock jumps", len(back), text))
    return [*found, *_ahead(rows, where), *_far_off(rows, relative, where), *(_odd_scale(rows) if relative else [])]


def _ahead(rows: pl.DataFrame, where: Where) -> list[Finding]:
    """Rows dated over an hour after most rows around them: a clock that is fast or jumped forward.

    A row is compared with those before and those after it; with rows of the same client only, if the log is not in
    order of time or is sorted by client. Rows must be ahead of both sides: where one log was appended to another, the
    last rows of the first are ahead of the rows that follow, but not of those before.
    """
    leaps_back = int((rows["start"].diff() < -HOUR).sum())
    changes = int((rows["client"] != rows["client"].shift(1)).sum())
    by_client = leaps_back > DISORDER * len(rows) or changes <= 2 * rows["client"].n_unique()
    before = pl.col("start").rolling_median(NEAR, min_samples=3).shift(1)
    after = pl.col("start").reverse().rolling_median(NEAR, min_samples=3).shift(1).reverse()
    since_before, ahead = (pl.col("start") - (m.over("client") if by_client else m) for m in (before, after))
    fast = rows.select("row", "client", ahead=ahead, since_before=since_before.fill_null(ahead))
    fast = fast.filter((pl.col("ahead") > HOUR) & (pl.col("since_before") > pl.col("ahead") / 2))
    if fast.is_empty():
        return []
    most = _lasting(float(fast["ahead"].max()))  # type: ignore[arg-type]
    text = (
        f"{counted(len(fast), 'row')} dated after the rows around, by up to {most} (of {some(clients_of(fast))})"
        f"{where(fast)}: a clock that jumped forward or is fast; the times were not changed"
    )
    return [Finding("clock jumps ahead", len(fast), text)]


def _far_off(rows: pl.DataFrame, relative: bool, where: Where) -> list[Finding]:
    """A few rows, earliest or latest, that are further from all others than these are from each other: wrong dates."""
    reach = "end" if "end" in rows.columns else "start"
    rows = rows.drop_nulls(["start", reach])
    if len(rows) < 20:
        return []
    few = max(1, len(rows) // 1000)
    first, last = rows.select(pl.col("start").min(), last=pl.col(reach).max()).row(0)
    out = []
    for name, side, flag, other_end in (("start", "before", "--since", last), (reach, "after", "--until", first)):
        extreme = rows.top_k(few + 1, by=name, reverse=side == "before").sort(name, descending=side == "after")
        gaps = extreme[name].diff().abs()[1:]
        n = int(gaps.arg_max() or 0) + 1  # number of rows beyond the widest gap
        gap, rest = int(gaps[n - 1]), abs(other_end - int(extreme[name][n]))
        if gap <= max(rest, DAY):
            continue
        limit, odd = int(extreme[name][n]) // SECOND + (side == "after"), extreme.head(n)
        when = str(limit) if relative else f"{datetime.fromtimestamp(limit, UTC):%Y-%m-%dT%H:%M:%SZ}"
        text = (
            f"{counted(n, 'row')} dated {_lasting(gap)} {side} all others, which lie within {_lasting(rest)} "
            f"(of {some(clients_of(odd))}){where(odd)}: a wrong date? {flag} {when} leaves such rows out"
        )
        out.append(Finding("far from all others", n, text))
    return out


def _odd_scale(rows: pl.DataFrame) -> list[Finding]:
    """Clients whose times since the beginning of the log are about 1,000 times those of most others."""
    reach = rows.group_by("client").agg(pl.col("start").max())
    typical = float(reach["start"].median() or 0)  # type: ignore[arg-type]
    odd = reach.filter(pl.col("start").is_between(300 * typical, 3000 * typical)) if typical else reach.clear()
    if odd.is_empty():
        return []
    text = (
        f"{counted(len(odd), 'client')} with times about 1,000 times those of most others ({some(clients_of(odd))}): "
        "milliseconds among seconds? the times were not changed"
    )
    return [Finding("mixed units", len(odd), text)]


def _lasting(microseconds: float) -> str:
    return Clock(1.0).lasting(microseconds / SECOND)


def clients_of(rows: pl.DataFrame) -> list[str]:
    """The different clients of these rows."""
    return rows["client"].unique().cast(pl.String).drop_nulls().to_list()
