"""Converts times of logs to microseconds since 1970 in UTC, or since the beginning of the log."""

import contextlib
import math
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path

import polars as pl

from fedawe.audit.logs.findings import Finding, counted, shown, some
from fedawe.core.errors import UserError

OFFSET = r"(?:[Zz]|UTC|GMT|[+-]\d{2}(?::?\d{2})?)"
EARLIEST, LATEST = 946684800, 4102444800  # 2000-01-01 and 2100-01-01: dates outside come from a clock that was not set
RELATIVE = 1e8  # seconds; smaller numbers count from the beginning of the log, not from 1970
UNITS = (  # units of dates since 1970: the smallest number that is read in the unit, and its length in microseconds
    ("seconds", RELATIVE, 1e6),
    ("milliseconds", 1e11, 1e3),
    ("microseconds", 1e14, 1.0),
    ("nanoseconds", 1e17, 1e-3),
)
LARGEST = 1e21
NAMED = {"seconds": 1e6, "milliseconds": 1e3, "microseconds": 1.0, "nanoseconds": 1e-3}  # --time-unit, in microseconds
NAMED |= {"minutes": 60e6, "hours": 3600e6, "days": 86400e6, "excel": 86400e6}
EXCEL = 25569  # the day 1970-01-01 in spreadsheets
LONGEST = 400 * 86400  # seconds since the log began; larger numbers are probably in another unit
EMPTY = ("", "null", "none", "nan", "nat", "-", "n/a", "open")  # values of an end that is not known yet
FAR = 221845392000 * 1_000_000  # the year 9000 in microseconds: databases write 9999-12-31 for "not yet"


@dataclass
class Times:
    """Reads the columns of times of one log, batch by batch, and counts cases that are worth a finding."""

    timezone: str | None  # of times without an offset; None: UTC, with a finding
    format: str | None  # of times that are not ISO 8601
    path: Path
    unit: str | None = None  # of times that are numbers; None: inferred from their size
    relative: bool = False  # whether times count from the beginning of the log
    counts: Counter[str] = field(default_factory=Counter)
    _main: int | None = None  # the index in UNITS of the unit of most numbers in the first batch
    _odd: dict[str, set[str]] = field(default_factory=dict)  # another unit -> the clients with times in it

    @property
    def zone(self) -> str:
        """The time zone of times without an offset."""
        return self.timezone or "UTC"

    def raw(self, name: str, dtype: pl.DataType, called: str) -> list[pl.Expr]:
        """The column as {name}_number, {name}_local (date and time as written) and {name}_offset (seconds, or null)."""
        column = pl.col(name)
        none = pl.lit(None)
        number, local, offset = none.cast(pl.Float64), none.cast(pl.Datetime("us")), none.cast(pl.Int64)
        if dtype == pl.String:
            text = column.str.strip_chars()
            number = number if self.format is not None else text.cast(pl.Float64, strict=False)
            local, offset = self._text(text)
        elif dtype.is_numeric():
            number = column.cast(pl.Float64)
        elif isinstance(dtype, pl.Datetime):
            zoned = dtype.time_zone is not None
            local = (column.dt.convert_time_zone("UTC").dt.replace_time_zone(None) if zoned else column).cast(
                pl.Datetime("us")
            )
            offset = pl.lit(0 if zoned else None, dtype=pl.Int64)
        elif dtype == pl.Date:
            local = column.cast(pl.Datetime("us"))
        else:
            raise UserError(f"{self.path}: the column {called!r} is {dtype}; expected dates and times, text or numbers")
        if self.unit == "excel":  # local dates and times, handled like text without an offset
            days = pl.when(number.is_between(1, 1e6)).then(number)
            since = ((days - EXCEL) * NAMED["excel"] / 1e3).round().cast(pl.Int64, strict=False) * 1000
            local, number = pl.coalesce(local, since.cast(pl.Datetime("us"))), none.cast(pl.Float64)
        readable = pl.when(number.is_finite() & (number.abs() < LARGEST)).then(number)
        return [readable.alias(f"{name}_number"), local.alias(f"{name}_local"), offset.alias(f"{name}_offset")]

    def _text(self, text: pl.Expr) -> tuple[pl.Expr, pl.Expr]:
        if self.format is not None:
            given = text.str.to_datetime(self.format, strict=False, time_unit="us")
            codes = self.format.replace("%%", "")
            zoned = any(code in codes for code in ("%z", "%:z", "%#z", "%+"))
            if not zoned and "%s" not in codes:
                return given, pl.lit(None, dtype=pl.Int64)
            utc = given.dt.convert_time_zone("UTC").dt.replace_time_zone(None) if zoned else given  # %s is since 1970
            return utc, pl.when(utc.is_not_null()).then(pl.lit(0, dtype=pl.Int64))
        said = text.str.extract(rf":\d{{2}}(?:[.,]\d+)?\s*({OFFSET})$")
        bare = text.str.replace(rf"(:\d{{2}}(?:[.,]\d+)?)\s*{OFFSET}$", "$1")
        bare = bare.str.replace("[Tt]", " ").str.replace(",", ".", literal=True)
        local = pl.coalesce(
            bare.str.to_datetime("%Y-%m-%d %H:%M:%S%.f", strict=False, time_unit="us"),
            bare.str.to_datetime("%Y-%m-%d %H:%M", strict=False, time_unit="us"),
            bare.str.to_date("%Y-%m-%d", strict=False).cast(pl.Datetime("us")),
        )
        sign = pl.when(said.str.starts_with("-")).then(-1).otherwise(1)
        hours = said.str.extract(r"^[+-](\d{2})").cast(pl.Int64)
        minutes = said.str.extract(r"^[+-]\d{2}:?(\d{2})$").cast(pl.Int64).fill_null(0)
        offset = pl.when(said.is_in(["Z", "z", "UTC", "GMT"])).then(0).otherwise(sign * (hours * 60 + minutes) * 60)
        return local, offset.cast(pl.Int64)

    def settle(self, table: pl.DataFrame, names: tuple[str, ...]) -> pl.DataFrame:
        """Each column of times in microseconds, null if unreadable; `skipped` marks times that never happened."""
        self._look_at_numbers(table, names)
        table = table.with_columns(skipped=pl.lit(False))
        for name in names:
            local, offset = pl.col(f"{name}_local"), pl.col(f"{name}_offset")
            first = local.dt.replace_time_zone(self.zone, ambiguous="earliest", non_existent="null").dt.epoch("us")
            last = local.dt.replace_time_zone(self.zone, ambiguous="latest", non_existent="null").dt.epoch("us")
            table = table.with_columns(
                first=first, last=last, naive=offset.is_null() & local.is_not_null(), zoned=offset.is_not_null()
            )
            self.counts["naive"] += int(table["naive"].sum())
            self.counts["zoned"] += int(table["zoned"].sum())
            twice = pl.col("naive") & (pl.col("first") != pl.col("last"))
            self.counts["ambiguous"] += int(table.select(twice.sum()).item())
            number, meant = self._microseconds(pl.col(f"{name}_number")), pl.col("first")
            if name == "end":  # of two possible times, the first that is after the start, if there is one
                meant = pl.when(pl.col("first") > pl.col("start")).then("first").otherwise("last")
            said = local.dt.epoch("us") - offset * 1_000_000
            table = table.with_columns(
                pl.coalesce(number, said, meant).alias(name),
                skipped=pl.col("skipped") | (pl.col("naive") & pl.col("first").is_null()),
            ).drop(f"{name}_number", f"{name}_local", f"{name}_offset", "first", "last", "naive", "zoned")
        return table

    def _microseconds(self, number: pl.Expr) -> pl.Expr:
        return _microseconds(number, None if self.unit is None else NAMED[self.unit])

    def _look_at_numbers(self, table: pl.DataFrame, names: tuple[str, ...]) -> None:
        """Decide whether numbers count from the beginning of the log, and the unit of each, by their size."""
        numbers = table[f"{names[0]}_number"].drop_nulls()
        if not len(numbers):
            return
        self.counts["numbers"] += len(numbers)
        if self._main is None:
            scale = 1.0 if self.unit is None else NAMED[self.unit] / 1e6
            size = float(numbers.abs().median() or 0.0) * scale  # type: ignore[arg-type]
            dated = table[f"{names[0]}_local"].null_count() < len(table)
            self.relative = not dated and size < RELATIVE
            if not dated and self.unit is None:
                self._refuse_ambiguous(numbers, size)
            self._main = sum(size >= bound for _, bound, _ in UNITS[1:])
        if self.unit is not None or self.relative:
            return
        bounds = [*(bound for _, bound, _ in UNITS), LARGEST]
        for n, (other, _, _) in enumerate(UNITS):
            low, high = bounds[n : n + 2]
            of_that_size = (pl.col(f"{name}_number").abs().is_between(low, high, closed="left") for name in names)
            odd = table.filter(pl.any_horizontal(of_that_size)) if n != self._main else table.clear()
            if len(odd):
                self.counts[other] += len(odd)
                self._odd.setdefault(other, set()).update(odd["client"].cast(pl.String).drop_nulls().unique())

    def _refuse_ambiguous(self, numbers: pl.Series, size: float) -> None:
        """Refuse numbers whose unit is ambiguous; `size` is their median in seconds."""
        if self.relative and _like_dates(numbers):
            raise UserError(
                f"{self.path}: times such as {numbers[0]:.0f} look like dates written as numbers; say so with "
                "--time-format %Y%m%d"
            )
        small = numbers.filter(numbers < RELATIVE) if self.relative else numbers
        low, high = float(small.min()), float(small.max())  # type: ignore[arg-type]
        known = {"excel": (EXCEL, 86400), "minutes": (0, 60), "hours": (0, 3600), "days": (0, 86400)}
        could = [
            unit
            for unit, (zero, length) in known.items()
            if (low - zero) * length >= EARLIEST and (high - zero) * length <= LATEST
        ]
        said = f"{self.path}: times from {low:.15g} to {high:.15g}"
        if self.relative and could and low > high - low:
            ways = ", ".join(f"--time-unit {unit}" for unit in could)
            raise UserError(
                f"{said} may be dates in another unit ({ways}) or seconds since the log began (--time-unit seconds); "
                "say which"
            )
        if (self.relative and high > LONGEST) or (not self.relative and size < EARLIEST):
            raise UserError(
                f"{said}: as seconds since the log began these are {high / 86400:,.0f} days, and they are not dates; "
                "give their unit with --time-unit milliseconds, or --time-unit seconds"
            )

    def findings(self) -> list[Finding]:
        """The findings about the times that were read."""
        out, n = [], self.counts
        if n["numbers"]:
            word, since = UNITS[self._main or 0][0], "the log began" if self.relative else "1970 (UTC)"
            word, way = (word, "; if that is wrong, use --time-unit") if self.unit is None else (self.unit, "")
            text = f"times that are numbers were read as {word} since {since}{way}"
            out.append(Finding("numeric times", n["numbers"], text))
        for other, whose in self._odd.items():
            most = f"while most are in {UNITS[self._main or 0][0]} (of {some(sorted(whose))})"
            text = f"{counted(n[other], 'row')} with times in {other}, {most}; each was read in the unit of its size"
            out.append(Finding("mixed units", n[other], text))
        if n["naive"] and self.timezone is None:
            text = f"{counted(n['naive'], 'time')} without a time zone, read as UTC; if that is wrong, use --timezone"
            out.append(Finding("time zone", n["naive"], text))
        if n["naive"] and n["zoned"]:
            without = f"without one ({n['naive']:,}, read as {self.zone})"
            text = f"times with a time zone ({n['zoned']:,}) and {without} are mixed"
            out.append(Finding("mixed time zones", min(n["zoned"], n["naive"]), text))
        if n["ambiguous"]:
            said = f"{counted(n['ambiguous'], 'time')} happened twice in {self.zone} (clocks were set back)"
            text = f"{said}; the earlier one was taken"
            out.append(Finding("ambiguous times", n["ambiguous"], text))
        return out


def _microseconds(number: pl.Expr, unit: float | None) -> pl.Expr:
    scale = pl.lit(UNITS[0][2] if unit is None else unit)
    for _, bound, length in UNITS[1:] if unit is None else ():
        scale = pl.when(number.abs() >= bound).then(length).otherwise(scale)
    return (number * scale).round().cast(pl.Int64, strict=False)


def _like_dates(numbers: pl.Series) -> bool:
    """Whether all numbers are between 20000101 and 21001231."""
    return bool(numbers.drop_nulls().is_between(20000101, 21001231).all())


def moment(text: str, flag: str, timezone: str) -> tuple[float, bool]:
    """A date and time as seconds since 1970, or a number of seconds as it is; and whether the text was a date."""
    found = moments([text], timezone)[text]
    if found is None:
        raise UserError(
            f"{flag}: cannot read the time {shown(text)!r}; expected something like 2024-05-01 or 2024-05-01T18:30"
        )
    return found


def moments(texts: Iterable[str], timezone: str) -> dict[str, tuple[float, bool] | None]:
    """Like `moment` for many texts at once, with None for a text that cannot be read."""
    found: dict[str, tuple[float, bool] | None] = dict.fromkeys(texts)
    for text in found:
        with contextlib.suppress(ValueError):
            if math.isfinite(number := float(text)):
                found[text] = number, False
    dates = [text for text, at in found.items() if at is None]
    times = Times(timezone, None, Path())
    table = pl.DataFrame({"start": dates}, schema={"start": pl.String}).select(times.raw("start", pl.String(), "start"))
    for text, at in zip(dates, times.settle(table, ("start",))["start"], strict=True):
        found[text] = None if at is None else (float(at) / 1e6, True)
    return found
