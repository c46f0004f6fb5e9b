"""Leaves out rows of a log; each reason is counted, with the numbers of its first rows."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

import polars as pl

from fedawe.audit.logs.clocks import clients_of
from fedawe.audit.logs.findings import SHOWN, UNREADABLE, Finding, counted, shown
from fedawe.core.errors import UserError

FILE = 1 << 40  # row numbers of file n (from 0) begin after n * FILE


@dataclass
class _LeftOut:
    """The rows that were left out for one reason."""

    text: str
    count: int = 0
    rows: list[int] = field(default_factory=list)  # numbers of the first few
    quote: str | None = None  # the value in the first of them
    remedy: str | None = None  # what the user can do
    fate: str = "left out"  # what was done with the rows


@dataclass
class Sorting:
    """Leaves out rows, batch by batch; counts them by reason and remembers their clients."""

    files: Sequence[Path]
    rows: pl.DataFrame = field(default_factory=pl.DataFrame)
    left_out: dict[tuple[str, str], _LeftOut] = field(default_factory=dict)  # by (kind, text)
    cut: dict[str, int] = field(default_factory=dict)  # flag -> number of intervals cut there
    reasons: dict[str, str] = field(default_factory=dict)  # client -> the last reason for which a row was left out
    what: str = "row"

    def without(
        self,
        bad: pl.Expr,
        kind: str,
        text: str,
        quote: str | None = None,
        named: bool = True,
        remedy: str | None = None,
    ) -> None:
        """Leave out the `bad` rows. `quote` is the column to quote in the finding; `named`: remember their clients."""
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
        """Make events that do not meet a requirement say that the client is unavailable."""
        begun = self.rows.filter(unmet & pl.col("on"))
        if len(begun):
            self._count(begun, "requirements", _LeftOut(text, fate="read as unavailable from then on"))
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
        return f"{counted(one.count, self.what)} {one.text} ({numbered(one.rows, one.count, self.files)}{quoted})"

    def check(self, path: Path, total: int, used: int) -> None:
        """Refuse a log that has no usable row, or in which more than half of the rows cannot be read."""
        unread = {key: one for key, one in self.left_out.items() if key[0] in UNREADABLE}
        n = sum(one.count for one in unread.values())
        if used and n <= total / 2:
            return
        reasons = unread if used else self.left_out
        remedies = dict.fromkeys(one.remedy for one in reasons.values() if one.remedy)
        said = "; ".join([*map(self._said, reasons.values()), *remedies])
        if not used:
            raise UserError(f"{path}: no row of {total:,} can be used: {said}")
        todo = "" if remedies else "; correct or delete these rows"
        raise UserError(f"{path}: {n:,} of {total:,} rows cannot be read: {said}{todo}")


def numbered(rows: Sequence[int], count: int, files: Sequence[Path]) -> str:
    """The numbers of rows in words, with the names of files if there are several."""
    names = [
        f"{row % FILE:,}" if len(files) < 2 else f"{row % FILE:,} of {shown(files[row // FILE].name)}" for row in rows
    ]
    return f"row{'s' if count > 1 else ''} {', '.join(names)}{' ...' if count > len(rows) else ''}"
