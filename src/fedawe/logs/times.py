"""Times as logs write them, as microseconds since 1970 in UTC (or since the log's own zero)."""

from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import polars as pl

from fedawe.errors import UserError
from fedawe.logs.tables import Finding

OFFSET = r"(?:Z|UTC|[+-]\d{2}:?\d{2})"
EARLIEST, LATEST = 946684800, 4102444800  # 2000-01-01 and 2100-01-01: a clock outside was not set
RELATIVE = 1e8  # seconds; numbers below are no date since 1970 but time since the log began


@dataclass
class Times:
    """Reads the columns of times of one log, and keeps count of what it met."""

    timezone: str | None  # of times that do not say theirs; None: UTC, and say so
    format: str | None  # of times that are not ISO 8601
    path: Path
    relative: bool = False  # whether times count from the log's own zero
    findings: list[Finding] = field(default_factory=list)

    def raw(self, name: str, dtype: pl.DataType) -> list[pl.Expr]:
        """The column as {name}_number, {name}_local (date and time as written) and {name}_offset (seconds, or null)."""
        column = pl.col(name)
        none = pl.lit(None)
        if dtype == pl.String:
            text = column.str.strip_chars()
            number = text.cast(pl.Float64, strict=False)
            local, offset = self._text(text)
        elif dtype.is_numeric():
            number, local, offset = column.cast(pl.Float64), none.cast(pl.Datetime("us")), none.cast(pl.Int64)
        elif isinstance(dtype, pl.Datetime):
            number = none.cast(pl.Float64)
            zoned = dtype.time_zone is not None
            local = (column.dt.convert_time_zone("UTC").dt.replace_time_zone(None) if zoned else column).cast(
                pl.Datetime("us")
            )
            offset = pl.lit(0 if zoned else None, dtype=pl.Int64)
        elif dtype == pl.Date:
            number, local, offset = none.cast(pl.Float64), column.cast(pl.Datetime("us")), none.cast(pl.Int64)
        else:
            raise UserError(f"{self.path}: the column {name!r} is {dtype}; expected dates and times, text or numbers")
        finite = pl.when(number.is_finite()).then(number)
        return [finite.alias(f"{name}_number"), local.alias(f"{name}_local"), offset.alias(f"{name}_offset")]

    def _text(self, text: pl.Expr) -> tuple[pl.Expr, pl.Expr]:
        if self.format is not None:
            given = text.str.to_datetime(self.format, strict=False, time_unit="us")
            return given, pl.lit(None, dtype=pl.Int64)
        said = text.str.extract(rf":\d{{2}}(?:\.\d+)?\s*({OFFSET})$")
        bare = text.str.replace(rf"\s*{OFFSET}$", "").str.replace("T", " ", literal=True)
        local = pl.coalesce(
            bare.str.to_datetime("%Y-%m-%d %H:%M:%S%.f", strict=False, time_unit="us"),
            bare.str.to_datetime("%Y-%m-%d %H:%M", strict=False, time_unit="us"),
            bare.str.to_date("%Y-%m-%d", strict=False).cast(pl.Datetime("us")),
        )
        sign = pl.when(said.str.starts_with("-")).then(-1).otherwise(1)
        minutes = said.str.extract(r"(\d{2}):?\d{2}").cast(pl.Int64) * 60 + said.str.extract(r"(\d{2})$").cast(pl.Int64)
        offset = pl.when(said.is_in(["Z", "UTC"])).then(0).otherwise(sign * minutes * 60)
        return local, offset.cast(pl.Int64)

    def settle(self, table: pl.DataFrame, names: tuple[str, ...]) -> pl.DataFrame:
        """Each column of times as microseconds, null where it cannot be read."""
        unit = self._unit(table, names)
        zone = self.timezone or "UTC"
        met = np.zeros(4, dtype=np.int64)  # without a zone, ambiguous, skipped, with a zone
        for name in names:
            local, offset = pl.col(f"{name}_local"), pl.col(f"{name}_offset")
            first = local.dt.replace_time_zone(zone, ambiguous="earliest", non_existent="null").dt.epoch("us")
            last = local.dt.replace_time_zone(zone, ambiguous="latest", non_existent="null").dt.epoch("us")
            naive = offset.is_null() & local.is_not_null()
            counts = table.select(
                naive.sum().alias("naive"),
                (naive & (first != last)).sum().alias("ambiguous"),
                (naive & first.is_null()).sum().alias("skipped"),
                offset.is_not_null().sum().alias("zoned"),
            ).row(0)
            met += np.array(counts)
            number = (pl.col(f"{name}_number") * unit).round().cast(pl.Int64, strict=False)
            said = local.dt.epoch("us") - offset * 1_000_000
            table = table.with_columns(pl.coalesce(number, said, first).alias(name)).drop(
                f"{name}_number", f"{name}_local", f"{name}_offset"
            )
        self._report(*met.tolist())
        return table

    def _unit(self, table: pl.DataFrame, names: tuple[str, ...]) -> float:
        """How many microseconds one is, judged by the middle of all numbers."""
        middle = table[f"{names[0]}_number"].median()
        if middle is None:
            return 1.0
        size = abs(float(middle))  # type: ignore[arg-type]
        self.relative = size < RELATIVE and table[f"{names[0]}_local"].null_count() == len(table)
        scales = ((1e11, "seconds", 1e6), (1e14, "milliseconds", 1e3), (1e17, "microseconds", 1.0))
        word, unit = next(((word, unit) for bound, word, unit in scales if size < bound), ("nanoseconds", 1e-3))
        since = "the log began" if self.relative else "1970 (UTC)"
        count = int(table[f"{names[0]}_number"].count())
        self.findings.append(
            Finding("numeric times", count, f"times that are numbers were read as {word} since {since}")
        )
        return unit

    def _report(self, unzoned: int, ambiguous: int, skipped: int, zoned: int) -> None:
        zone = self.timezone or "UTC"
        if unzoned and self.timezone is None:
            text = f"{unzoned:,} times do not say their time zone and were read as UTC; --timezone says which it is"
            self.findings.append(Finding("time zone", unzoned, text))
        if unzoned and zoned:
            text = f"{zoned:,} times say their time zone and {unzoned:,} do not (read as {zone})"
            self.findings.append(Finding("mixed time zones", min(zoned, unzoned), text))
        if ambiguous:
            text = f"{ambiguous:,} times happened twice in {zone} (clocks were set back); the earlier one was taken"
            self.findings.append(Finding("ambiguous times", ambiguous, text))
        if skipped:
            text = f"{skipped:,} times never happened in {zone} (clocks were set forward); they were left out"
            self.findings.append(Finding("skipped times", skipped, text))
