"""Opens logs as tables: finds the columns that are needed, and marks rows that are broken.

CSV and JSON lines are read as text, parquet with the types that it has. All are read in a stream. Values are converted
later, so that a value that cannot be converted can still be quoted.
"""

import csv
import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import polars as pl

from fedawe.audit.logs.findings import Finding, shown
from fedawe.audit.logs.sources import kind_of
from fedawe.audit.logs.states import state_column
from fedawe.audit.logs.streams import Unquoted, be_text, collected, first_lines, said_plainly
from fedawe.core.errors import UserError

BEYOND = "\x00beyond"  # an extra column: the first surplus field of a line that has more fields than the header
LINE = "\x00line"
ROW = "\x00row"
SEPARATORS = (",", ";", "\t", "|")
MOST_COLUMNS = 10_000
HEADER = 2**20  # characters of a first line
SAMPLE = 1000  # first rows, whose words decide which column has states
MET = ("1", "true", "yes", "y", "t", "on")  # values of a column of --require that meet the requirement


@dataclass(frozen=True)
class Columns:
    """The names of the columns of a log; nested fields are written with dots, as in detail.clientId."""

    client: str = "client"
    timestamp: str = "timestamp"
    start: str = "start"
    end: str = "end"
    state: str | None = None  # None: recognised by its words; "none": there is no such column
    on: tuple[str, ...] = ()  # words in the column of states that mean available; empty: those of states.py
    off: tuple[str, ...] = ()
    require: tuple[str, ...] = ()  # columns that must have a value of MET for a row to count

    def found(self, names: Sequence[str], path: Path) -> tuple[str, ...]:
        """(client, timestamp) or (client, start, end), whichever the table has."""
        missing = next((name for name in self.require if name not in names), None)
        for wanted in ((self.client, self.start, self.end), (self.client, self.timestamp)):
            if all(name in names for name in wanted):
                if missing is not None:
                    raise UserError(f"{path}: --require {missing}: found no such column, only {_listed(names)}")
                return wanted
        raise UserError(
            f"{path}: expected the columns {self.client}, {self.timestamp} or {self.client}, {self.start}, {self.end}; "
            f"found {_listed(names)}; give their names with --client-column, --timestamp-column, --start-column, "
            "--end-column"
        )

    def states(
        self, names: Sequence[str], used: tuple[str, ...], samples: Mapping[str, list[str]], path: Path
    ) -> str | None:
        """The column of states, if the log has one; only logs with one time per row can have one."""
        if self.state == "none" or (len(used) == 3 and self.state is None):
            return None
        if self.state is not None:
            if self.state not in names:
                raise UserError(f"{path}: --state-column {self.state}: found no such column, only {_listed(names)}")
            if len(used) == 3:
                raise UserError(f"{path}: has intervals, for which --state-column has no meaning; omit it")
            return self.state
        others = {name: samples[name] for name in samples if name not in used and name not in self.require}
        return state_column(others, path)


def _listed(names: Sequence[str]) -> str:
    return ", ".join(map(shown, names[:20])) + (" ..." if len(names) > 20 else "") or "nothing"


@dataclass(frozen=True)
class Table:
    """A log to be read.

    Its columns are row (from 1), client (text), broken (the reason, or null), one or two columns of times, and
    perhaps state (text) and unmet (whether a requirement is not met).
    """

    frame: pl.LazyFrame
    times: tuple[Literal["start"]] | tuple[Literal["start"], Literal["end"]]
    called: tuple[str, ...]  # the columns of times, as the file has them
    findings: tuple[Finding, ...]
    state: str | None = None  # the column of states, as the file has it


def open_table(path: Path, columns: Columns) -> Table:
    """The log as a table."""
    kind = kind_of(path)
    if path.stat().st_size == 0:
        raise UserError(f"{path}: is empty")
    if kind == "parquet":
        return typed(pl.scan_parquet(path, glob=False, hive_partitioning="=" in path.parent.name), columns, path)
    be_text(path)
    return _csv(path, columns) if kind == "csv" else _json_lines(path, columns)


def header(path: Path, complete: Callable[[set[str]], bool]) -> tuple[list[str], str]:
    """The columns of a CSV and their separator: the first for which `complete(columns)` is true, else the comma."""
    first = (first_lines(path, 1) or [""])[0]
    if len(first) > HEADER or max(map(first.count, SEPARATORS)) >= MOST_COLUMNS:
        raise UserError(f"{path}: the first line has more than {MOST_COLUMNS:,} columns; keep those of the log")
    read = {sign: [name.strip() for name in next(csv.reader([first], delimiter=sign), [])] for sign in SEPARATORS}
    separator = next((sign for sign in SEPARATORS if complete(set(read[sign]))), ",")
    return read[separator], separator


def _table(
    frame: pl.LazyFrame,
    fields: Mapping[str, pl.Expr],
    broken: pl.Expr,
    names: Sequence[str],
    used: tuple[str, ...],
    state: str | None,
    columns: Columns,
    findings: tuple[Finding, ...] = (),
) -> Table:
    """The table of the columns that are used, under the names of `Table`; `fields` has the columns of the file."""
    times: Any = ("start", "end") if len(used) == 3 else ("start",)
    made = {name: fields[column] for name, column in zip(times, used[1:], strict=True)}
    if state is not None:
        made["state"] = fields[state].cast(pl.String).str.strip_chars()
        made["unmet"] = pl.lit(False)
    if columns.require:
        said = [
            fields[name].cast(pl.String).str.strip_chars().str.to_lowercase().is_in(MET) for name in columns.require
        ]
        made["unmet"] = ~pl.all_horizontal(said).fill_null(False)
    client = fields[used[0]].cast(pl.String)
    damaged = pl.when(client.str.contains("\ufffd", literal=True)).then(pl.lit("with a client that is not UTF-8"))
    frame = frame.select(row=ROW, client=client.str.strip_chars(), broken=pl.coalesce(broken, damaged), **made)
    taken = {*used, *columns.require, state}
    others = [name for name in names if name not in taken and not any(str(t).startswith(f"{name}.") for t in taken)]
    if others:
        text = f"columns not used: {_listed([repr(shown(name)) for name in others[:21]])}"
        findings = (Finding("unknown columns", len(others), text), *findings)
    return Table(frame, times, used[1:], findings, state)


def _csv(path: Path, columns: Columns) -> Table:
    def complete(found: set[str]) -> bool:
        return {columns.client, columns.timestamp} <= found or {columns.client, columns.start, columns.end} <= found

    names, separator = header(path, complete)
    used = columns.found(names, path)
    twice = sorted({name for name in names if names.count(name) > 1})
    if set(twice) & {*used, *columns.require, columns.state}:
        raise UserError(f"{path}: the header has the column {twice[0]!r} twice; keep one")
    schema = {name if name not in twice else f"\x00{n}": pl.String for n, name in enumerate(names)}
    frame = _csv_frame(path, schema, separator, '"')
    findings: tuple[Finding, ...] = ()
    if _quotes_are_broken(frame, used, path):
        frame = _csv_frame(path, schema, separator, None)
        findings += (Finding("quotes", 1, "quotation marks do not match; they were read as ordinary characters"),)
    sample = collected(frame.head(SAMPLE), path)
    words = {name: sample[name].drop_nulls().unique().to_list() for name in schema if not name.startswith("\x00")}
    state = columns.states(names, used, words, path)
    rest = pl.all_horizontal(pl.col(name).is_null() for name in list(schema)[1:])
    many, few = (
        pl.lit(f"with more than {len(names)} fields"),
        pl.lit(f"with fewer than {len(used)} fields, or with empty fields"),
    )
    broken = pl.when(pl.col(BEYOND).is_not_null()).then(many).when(rest).then(few)
    empty = pl.all_horizontal(pl.col(name).is_null() for name in schema)
    fields = {name: pl.col(name) for name in schema}
    return _table(frame.filter(~empty), fields, broken, names, used, state, columns, findings)


def _csv_frame(path: Path, schema: Mapping[str, type[pl.String]], separator: str, quote: str | None) -> pl.LazyFrame:
    return pl.scan_csv(
        path,
        has_header=False,
        skip_lines=1,
        schema={**schema, BEYOND: pl.String},
        separator=separator,
        quote_char=quote,
        truncate_ragged_lines=True,
        missing_columns="insert",
        encoding="utf8-lossy",
        row_index_name=ROW,
        row_index_offset=1,
        glob=False,
    )


def _quotes_are_broken(frame: pl.LazyFrame, used: tuple[str, ...], path: Path) -> bool:
    """Whether a quotation mark is never closed, so that the lines that follow it are read as one field."""
    swallowed = pl.any_horizontal(pl.col(name).str.contains("\n", literal=True) for name in used)
    try:
        return bool(collected(frame.select(swallowed.any()), path).item())
    except Unquoted:
        return True


def _json_lines(path: Path, columns: Columns) -> Table:
    objects: list[dict[str, Any]] = []
    flat: list[dict[str, Any]] = []
    for line in first_lines(path, SAMPLE):
        try:
            found = json.loads(line)
            flattened = _flattened(found) if isinstance(found, dict) else None
        except (ValueError, RecursionError):
            continue
        if flattened is not None:
            objects.append(found)
            flat.append(flattened)
    words: dict[str, list[str]] = {}
    for each in flat:
        for name, value in each.items():
            words.setdefault(name, []).extend([] if value is None else [_written(value)])
    names = list(words)
    if not names:
        raise UserError(f"{path}: none of the first lines is a JSON object")
    used = columns.found(list(dict.fromkeys([*names, *(name for found in objects for name in found)])), path)
    for name in used:
        inner = [other for other in names if other.startswith(f"{name}.")]
        if inner and name not in names:
            flag = "client" if name == columns.client else "timestamp"
            raise UserError(
                f"{path}: the field {name!r} is an object with {_listed([other[len(name) + 1 :] for other in inner])}; "
                f"name one of them, as in --{flag}-column {inner[0]}"
            )
    state = columns.states(names, used, words, path)
    lines = pl.scan_csv(
        path,
        has_header=False,
        schema={LINE: pl.String},
        separator="\x01",  # never part of JSON text, so that a whole line is one field
        quote_char=None,
        truncate_ragged_lines=True,
        encoding="utf8-lossy",
        row_index_name=ROW,
        row_index_offset=1,
        glob=False,
    )
    whole = {name for found in objects for name in found}  # names that may have a dot themselves and are no paths
    fields = {
        name: pl.col(LINE).str.json_path_match(
            "$" + "".join(f"[{json.dumps(part)}]" for part in ([name] if name in whole else name.split(".")))
        )
        for name in dict.fromkeys([*used, *columns.require, *([] if state is None else [state])])
    }
    nothing = pl.all_horizontal(fields[name].is_null() for name in used)
    client = fields[used[0]].str.strip_chars_start()
    nested = client.str.starts_with("{") | client.str.starts_with("[")
    broken = (
        pl.when(nothing)
        .then(pl.lit("that cannot be read as a JSON object with these fields"))
        .when(nested)
        .then(pl.lit("whose client is a JSON object or list, not a name"))
    )
    tops = list(dict.fromkeys(name for found in objects for name in found))
    return _table(lines.filter(pl.col(LINE).is_not_null()), fields, broken, tops, used, state, columns)


def _flattened(found: Mapping[str, Any], before: str = "") -> dict[str, Any]:
    """The object with nested fields under their paths, as in a.b; lists are values."""
    out: dict[str, Any] = {}
    for name, value in found.items():
        if isinstance(value, dict) and value:
            out |= _flattened(value, f"{before}{name}.")
        else:
            out[f"{before}{name}"] = value
    return out


def _written(value: Any) -> str:
    return value if isinstance(value, str) else json.dumps(value)


def typed(frame: pl.LazyFrame, columns: Columns, path: Path) -> Table:
    """A table whose columns have types: parquet, or the result of a query."""
    with said_plainly(path):
        schema = frame.collect_schema()
    fields: dict[str, pl.Expr] = {}
    types: dict[str, pl.DataType] = {}

    def enter(name: str, dtype: pl.DataType, at: pl.Expr) -> None:
        fields[name], types[name] = at, dtype
        if isinstance(dtype, pl.Struct):
            for inner in dtype.fields:
                enter(f"{name}.{inner.name}", inner.dtype, at.struct.field(inner.name))  # type: ignore[arg-type]

    for name, dtype in schema.items():
        enter(name, dtype, pl.col(name))
    used = columns.found(list(fields), path)
    client = types[used[0]]
    if isinstance(client, pl.Struct):
        inner = f"{used[0]}.{client.fields[0].name}"
        raise UserError(f"{path}: the column {used[0]!r} is an object; name a field, as in --client-column {inner}")
    if client.is_nested() or client.is_float() or client.is_temporal():
        raise UserError(f"{path}: the column {used[0]!r} is {client}; expected names or whole numbers")
    wordy = [n for n, t in types.items() if t in (pl.String, pl.Boolean, pl.Categorical, pl.Enum) or t.is_integer()]
    sample = collected(frame.select(**{n: fields[n].cast(pl.String) for n in wordy}).head(SAMPLE), path)
    words = {name: sample[name].drop_nulls().unique().to_list() for name in wordy}
    state = columns.states(list(fields), used, words, path)
    return _table(
        frame.with_row_index(ROW, offset=1), fields, pl.lit(None, dtype=pl.String), list(schema), used, state, columns
    )
