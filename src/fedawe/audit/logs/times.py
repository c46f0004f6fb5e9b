"""Times as logs write them, as microseconds since 1970 in UTC (or since the log's own zero)."""

import contextlib
import math
from dataclasses import dataclass, field
from pathlib import Path

import polars as pl

from fedawe.audit.logs.findings import Finding, counted, shown, some
from fedawe.core.errors import UserError

OFFSET = r"(?:[Zz]|UTC|GMT|[+-]\d{2}(?::?\d{2})?)"
EARLIEST, LATEST = 946684800, 4102444800  # 2000-01-01 and 2100-01-01: a clock outside was not set
RELATIVE = 1e8  # seconds; numbers below are no date since 1970 but time since the log began
UNITS = (  # by the size of what they give for today: from which number on, and how many microseconds one is
    ("seconds", RELATIVE, 1e6),
    ("milliseconds", 1e11, 1e3),
    ("microseconds", 1e14, 1.0),
    ("nanoseconds", 1e17, 1e-3),
)
LARGEST = 1e21


@dataclass
class Times:
    """Reads the columns of times of one log, and keeps count of what it met."""

    timezone: str | None  # of times that do not say theirs; None: UTC, and say so
    format: str | None  # of times that are not ISO 8601
    path: Path
    relative: bool = False  # whether times count from the log's own zero
    findings: list[Finding] = field(default_factory=list)

    @property
    def zone(self) -> str:
        """Where times are that do not say."""
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
        readable = pl.when(number.is_finite() & (number.abs() < LARGEST)).then(number)
        return [readable.alias(f"{name}_number"), local.alias(f"{name}_local"), offset.alias(f"{name}_offset")]

    def _text(self, text: pl.Expr) -> tuple[pl.Expr, pl.Expr]:
        if self.format is not None:
            given = text.str.to_datetime(self.format, strict=False, time_unit="us")
            if not any(code in self.format for code in ("%z", "%:z", "%#z", "%+")):
                return given, pl.lit(None, dtype=pl.Int64)
            utc = given.dt.convert_time_zone("UTC").dt.replace_time_zone(None)
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
        """Each column of times as microseconds, null where it cannot be read; `skipped` where it never happened."""
        self._look_at_numbers(table, names)
        naive = ambiguous = zoned = 0
        table = table.with_columns(skipped=pl.lit(False))
        for name in names:
            local, offset = pl.col(f"{name}_local"), pl.col(f"{name}_offset")
            first = local.dt.replace_time_zone(self.zone, ambiguous="earliest", non_existent="null").dt.epoch("us")
            last = local.dt.replace_time_zone(self.zone, ambiguous="latest", non_existent="null").dt.epoch("us")
            table = table.with_columns(
                first=first, last=last, naive=offset.is_null() & local.is_not_null(), zoned=offset.is_not_null()
            )
            naive += int(table["naive"].sum())
            zoned += int(table["zoned"].sum())
            ambiguous += int(table.select((pl.col("naive") & (pl.col("first") != pl.col("last"))).sum()).item())
            number, meant = _microseconds(pl.col(f"{name}_number")), pl.col("first")
            if name == "end":  # the first of two that is after the beginning, if there is one
                meant = pl.when(pl.col("first") > pl.col("start")).then("first").otherwise("last")
            said = local.dt.epoch("us") - offset * 1_000_000
            table = table.with_columns(
                pl.coalesce(number, said, meant).alias(name),
                skipped=pl.col("skipped") | (pl.col("naive") & pl.col("first").is_null()),
            ).drop(f"{name}_number", f"{name}_local", f"{name}_offset", "first", "last", "naive", "zoned")
        self._report(naive, ambiguous, zoned)
        return table

    def _look_at_numbers(self, table: pl.DataFrame, names: tuple[str, ...]) -> None:
        """Whether they count from the log's own zero, and in which unit each is, judged by its size."""
        numbers = table[f"{names[0]}_number"]
        middle = numbers.abs().median()
        if middle is None:
            return
        size = float(middle)  # type: ignore[arg-type]
        self.relative = size < RELATIVE and table[f"{names[0]}_local"].null_count() == len(table)
        if self.relative and _like_dates(numbers):
            raise UserError(
                f"{self.path}: times such as {numbers.drop_nulls()[0]:.0f} look like dates written as numbers; say so "
                "with --time-format %Y%m%d"
            )
        main = sum(size >= bound for _, bound, _ in UNITS[1:])
        word, since = UNITS[main][0], "the log began" if self.relative else "1970 (UTC)"
        text = f"times that are numbers were read as {word} since {since}"
        self.findings.append(Finding("numeric times", int(numbers.count()), text))
        bounds = [*(bound for _, bound, _ in UNITS), LARGEST]
        for n, (other, _, _) in enumerate(UNITS):
            low, high = bounds[n : n + 2]
            of_that_size = (pl.col(f"{name}_number").abs().is_between(low, high, closed="left") for name in names)
            odd = table.filter(pl.any_horizontal(of_that_size)) if n != main and not self.relative else table.clear()
            if len(odd):
                whose = some(sorted(odd["client"].cast(pl.String).drop_nulls().unique().to_list()))
                text = (
                    f"times in {other} by their size, where most are in {word} (of {whose}); each was read by its own"
                )
                self.findings.append(Finding("mixed units", len(odd), f"{counted(len(odd), 'row')} with {text}"))

    def _report(self, naive: int, ambiguous: int, zoned: int) -> None:
        if naive and self.timezone is None:
            text = f"{counted(naive, 'time')} without a time zone, read as UTC; --timezone says which it is"
            self.findings.append(Finding("time zone", naive, text))
        if naive and zoned:
            text = f"times with a time zone ({zoned:,}) and without one ({naive:,}, read as {self.zone}) are mixed"
            self.findings.append(Finding("mixed time zones", min(zoned, naive), text))
        if ambiguous:
            text = (
                f"{counted(ambiguous, 'time')} happened twice in {self.zone} (clocks were set back); the earlier one "
                "was taken"
            )
            self.findings.append(Finding("ambiguous times", ambiguous, text))


def _microseconds(number: pl.Expr) -> pl.Expr:
    scale = pl.lit(UNITS[0][2])
    for _, bound, unit in UNITS[1:]:
        scale = pl.when(number.abs() >= bound).then(unit).otherwise(scale)
    return (number * scale).round().cast(pl.Int64, strict=False)


def _like_dates(numbers: pl.Series) -> bool:
    """Whether all of them are 20000101 to 21001231."""
    return bool(numbers.drop_nulls().is_between(20000101, 21001231).all())


def moment(text: str, flag: str, timezone: str) -> tuple[float, bool]:
    """A date and time as seconds since 1970, or a number of seconds; and whether it was a date."""
    with contextlib.suppress(ValueError):
        if math.isfinite(number := float(text)):
            return number, False
    times = Times(timezone, None, Path(text))
    table = pl.DataFrame({"start": [text]}).select(times.raw("start", pl.String(), "start"))
    at = times.settle(table, ("start",))["start"][0]
    if at is None:
        raise UserError(
            f"{flag}: cannot read the time {shown(text)!r}; expected something like 2024-05-01 or 2024-05-01T18:30"
        )
    return float(at) / 1e6, True
