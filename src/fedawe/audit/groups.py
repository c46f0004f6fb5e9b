"""Groups of clients, or the classes of the labels they hold, and the influence of each relative to its fair share."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

import numpy as np
import polars as pl

from fedawe.audit.logs.findings import shown
from fedawe.audit.logs.streams import be_text, said_by
from fedawe.audit.logs.tables import header
from fedawe.availability.dynamics import Array
from fedawe.core.errors import UserError
from fedawe.core.files import existing_file

WINDOW = ("enrolled", "left")  # columns of dates


@dataclass(frozen=True, eq=False)
class Groups:
    """Which part of each client belongs to which group or class; a client in none has a row of zeros."""

    kind: Literal["group", "class"]
    names: tuple[str, ...]
    parts: Array  # 1 in its group, or label frequencies nu_i                                              [m, g]

    def fair(self, shares: Array) -> Array:
        """The influence of each group divided by what it would be if all clients had the same, [g].

        >>> halves = Groups("group", ("a", "b"), np.array([[1.0, 0.0], [1.0, 0.0], [0.0, 1.0], [0.0, 1.0]]))
        >>> halves.fair(np.array([0.4, 0.4, 0.1, 0.1])).round(3).tolist()
        [1.6, 0.4]
        """
        sizes = self.parts.mean(0)
        return np.where(sizes > 0, shares @ self.parts / np.where(sizes > 0, sizes, 1.0), np.nan)

    def over_time(self, shares: Array) -> Array:
        """The same for shares after several numbers of rounds [C, m]; returns [C, g]."""
        return np.stack([self.fair(row) for row in shares])

    @property
    def sizes(self) -> Array:
        """The number of clients in each group, where parts of clients count as fractions, [g]."""
        return np.asarray(self.parts.sum(0))


@dataclass(frozen=True, eq=False)
class Roster:
    """A table of clients: their names, groups or label counts, and dates of enrolling and leaving."""

    clients: tuple[str, ...]
    tables: tuple[Groups, ...]  # rows in the order of `clients`
    enrolled: Mapping[str, tuple[str | None, str | None]] = field(default_factory=dict)  # client -> enrolled, left

    def placed(self, clients: Sequence[str]) -> tuple[tuple[Groups, ...], list[str]]:
        """The groups with a row for each of these clients, and the clients that are not in the table."""
        row = {name: n for n, name in enumerate(self.clients)}
        index = np.array([row.get(name, -1) for name in clients])
        found = (index >= 0)[:, None]
        placed = tuple(Groups(g.kind, g.names, np.where(found, g.parts[index], 0.0)) for g in self.tables)
        return placed, [name for name in clients if name not in row]


def read_roster(path: Path, column: str = "client") -> Roster:
    """Read a CSV with a column of clients and a column `group`, or columns of label counts (one per class), or both.

    Columns `enrolled` and `left` say when a client joined the fleet and when it left; empty: it belonged throughout.
    """
    be_text(existing_file(path))
    columns, separator = header(path, lambda found: column in found)
    if column not in columns:
        raise UserError(
            f"{path}: expected a column {column!r} and a column 'group' or columns of label counts; "
            f"found {', '.join(map(shown, columns)) or 'nothing'}"
        )
    twice = [name for name in columns if columns.count(name) > 1]
    if twice:
        raise UserError(f"{path}: the header has the column {shown(twice[0])!r} twice; keep one")
    try:
        table = pl.read_csv(path, infer_schema=False, separator=separator)
    except (OSError, pl.exceptions.PolarsError) as error:
        raise UserError(f"{path}: cannot be read as CSV ({said_by(error)})") from None
    table.columns = columns
    blank = table.select(pl.all_horizontal(pl.all().is_null())).to_series()
    rows = pl.Series(range(1, len(table) + 1)).filter(~blank)
    table = table.filter(~blank)
    if table.is_empty():
        raise UserError(f"{path}: has no row below the header")
    names = table[column].str.strip_chars().fill_null("")
    if (names == "").any():
        raise UserError(f"{path}: row {rows.filter(names == '')[0]} has no client")
    if names.n_unique() < len(names):
        raise UserError(f"{path}: the client {shown(names.filter(names.is_duplicated())[0])!r} has more than one row")
    tables = []
    if "group" in table.columns:
        of = table["group"].str.strip_chars().fill_null("?")
        groups = sorted(of.unique().to_list())
        tables.append(Groups("group", tuple(groups), (of.to_numpy()[:, None] == np.array(groups)).astype(float)))
    enrolled = {name: tuple(_moments(table, part, at) for part in WINDOW) for at, name in enumerate(names)}
    windowed = any(name in table.columns for name in WINDOW)
    classes = [name for name in table.columns if name not in (column, "group", *WINDOW)]
    if classes:
        tables.append(_labels(table, classes, names, path))
    if not tables and not windowed:
        raise UserError(f"{path}: has clients only; expected a column 'group' or columns of label counts")
    return Roster(tuple(names), tuple(tables), enrolled if windowed else {})  # type: ignore[arg-type]


def _moments(table: pl.DataFrame, column: str, row: int) -> str | None:
    return (table[column][row] or "").strip() or None if column in table.columns else None


def _labels(table: pl.DataFrame, classes: list[str], names: pl.Series, path: Path) -> Groups:
    counts = np.zeros((len(table), len(classes)))
    for c, name in enumerate(classes):
        numbers = table[name].str.strip_chars().cast(pl.Float64, strict=False)
        wrong = (numbers.is_null() | ~numbers.is_finite() | (numbers < 0)).fill_null(True)
        if wrong.any():
            row = int(wrong.arg_true()[0])
            raise UserError(
                f"{path}: client {shown(names[row])!r} has {shown(str(table[name][row] or ''))!r} in the column "
                f"{shown(name)!r}; expected a label "
                "count from 0 (columns beside the clients and 'group' are classes)"
            )
        counts[:, c] = numbers.to_numpy()
    totals = counts.sum(1, keepdims=True)
    return Groups("class", tuple(classes), counts / np.where(totals > 0, totals, 1))
