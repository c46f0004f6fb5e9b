"""From usable rows of a log to who was there in which round."""

from pathlib import Path

import numpy as np
import numpy.typing as npt
import polars as pl

from fedawe.audit.logs.findings import Finding, counted
from fedawe.availability.clock import Clock
from fedawe.availability.dynamics import Mask
from fedawe.core.errors import UserError

MOST = 10**9  # entries [rounds, clients]; a larger table is a wrong date in some row, or rounds that are too short
MOST_ROUNDS = 10**6  # two years of rounds of one minute


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
        text = f"{counted(overlaps, 'interval')} beginning before another of the same client has ended; joined with it"
        findings.append(Finding("overlaps", overlaps, text))
    begin = -((origin - np.maximum(a, before)) // length)  # the first round at or after
    end = -((origin - b) // length)
    short = int((-((origin - a) // length) >= end).sum())
    if short:
        text = (
            f"{counted(short, 'interval')} without the beginning of a round inside, counting for nothing; shorter "
            "rounds would see more"
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
        reach = rows.columns[-1]  # end, or start where there is no end
        ends = (rows.sort("start").select("row", at="start").row(0), rows.sort(reach).select("row", at=reach).row(-1))
        said = " and ".join(f"{pl.Series([at]).cast(pl.Datetime('us'))[0]:%Y-%m-%d} (row {row:,})" for row, at in ends)
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
    n = int(long.sum())
    text = (
        f"{counted(n, 'gap')} of an hour or more without any client, the longest {lasting} from {when}: "
        "an outage, or a part of the log that is missing"
    )
    return [Finding("gaps", n, text)]
