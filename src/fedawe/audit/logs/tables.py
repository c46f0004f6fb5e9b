"""Logs as tables: which columns there are, and every row as text, number or date, with what was wrong with it.

CSV and JSON lines are read as text and parquet as it is, all of them in a stream; nothing is converted here, so that
nothing can be lost on the way.
"""

import contextlib
import csv
import gzip
import io
import json
import os
import sys
import zlib
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO, Literal, cast

import polars as pl

from fedawe.audit.logs.findings import Finding, shown
from fedawe.core.errors import UserError

BEYOND = "\x00beyond"  # holds the first field beyond the header's, where a line has too many
LINE = "\x00line"
SEPARATORS = (",", ";", "\t", "|")


@dataclass(frozen=True)
class Columns:
    """How the columns of a log are called."""

    client: str = "client"
    timestamp: str = "timestamp"
    start: str = "start"
    end: str = "end"

    def found(self, names: list[str], path: Path) -> tuple[str, ...]:
        """(client, timestamp) or (client, start, end), whichever the table has."""
        for wanted in ((self.client, self.start, self.end), (self.client, self.timestamp)):
            if all(name in names for name in wanted):
                return wanted
        got = ", ".join(map(shown, names[:20])) + (" ..." if len(names) > 20 else "") or "nothing"
        raise UserError(
            f"{path}: expected the columns {self.client}, {self.timestamp} or {self.client}, {self.start}, {self.end}; "
            f"found {got}; say which are meant with --client-column, --timestamp-column, --start-column, --end-column"
        )


@dataclass(frozen=True)
class Table:
    """A log to be read: columns row (from 1), client (text), broken (why, or null) and one or two columns of times."""

    frame: pl.LazyFrame
    times: tuple[Literal["start"]] | tuple[Literal["start"], Literal["end"]]
    called: tuple[str, ...]  # the columns of times, as the file has them
    findings: tuple[Finding, ...]


def open_table(path: Path, columns: Columns) -> Table:
    """The log as a table."""
    kind = _kind(path)
    if path.stat().st_size == 0:
        raise UserError(f"{path}: is empty")
    if kind == "parquet":
        return _parquet(path, columns)
    be_text(path)
    return _csv(path, columns) if kind == "csv" else _json_lines(path, columns)


def _kind(path: Path) -> str:
    suffixes = [suffix.lower() for suffix in path.suffixes]
    if suffixes[-1:] == [".gz"]:
        suffixes.pop()
    kind = {".csv": "csv", ".tsv": "csv", ".jsonl": "json", ".ndjson": "json", ".parquet": "parquet"}
    if not suffixes or suffixes[-1] not in kind or (kind[suffixes[-1]] == "parquet" and path.suffix == ".gz"):
        raise UserError(
            f"{path}: expected a trace (.npz, .csv), a log (.csv, .tsv, .jsonl, .ndjson, also .gz, or .parquet), or "
            "device events in FLASH's format (.json, .json.gz or a folder of them)"
        )
    return kind[suffixes[-1]]


def be_text(path: Path) -> None:
    """Refuse what is no text, or text of another encoding, before it shows up as odd characters."""
    with _opened(path) as raw:
        first = raw.read(4096).split(b"\n")[0]  # zeros further down are rows that a crash left behind
    zeros = max(first[::2].count(0), first[1::2].count(0))
    if first.startswith((b"\xff\xfe", b"\xfe\xff")) or zeros > len(first) / 4:
        raise UserError(f"{path}: is UTF-16 text; save it as UTF-8")
    if zeros:
        raise UserError(f"{path}: is not a text file (it has zero bytes)")


@contextlib.contextmanager
def _opened(path: Path) -> Iterator[BinaryIO]:
    try:
        with gzip.open(path, "rb") if path.suffix == ".gz" else path.open("rb") as raw:
            yield cast(BinaryIO, raw)
    except (OSError, EOFError, zlib.error) as error:
        raise UserError(f"{path}: cannot be read ({said_by(error)})") from None


def first_lines(path: Path, n: int) -> list[str]:
    """The first n lines of a text file, compressed or not."""
    with _opened(path) as raw:
        text = io.TextIOWrapper(raw, encoding="utf-8-sig", errors="replace", newline=None)
        return [line.rstrip("\n") for line, _ in zip(text, range(n), strict=False)]


def header(path: Path, complete: Callable[[set[str]], bool]) -> tuple[list[str], str]:
    """The columns of a CSV and what separates them: the first that makes them complete, else the comma."""
    first = (first_lines(path, 1) or [""])[0]
    read = {sign: [name.strip() for name in next(csv.reader([first], delimiter=sign), [])] for sign in SEPARATORS}
    separator = next((sign for sign in SEPARATORS if complete(set(read[sign]))), ",")
    return read[separator], separator


def _unknown(names: list[str], used: tuple[str, ...]) -> tuple[Finding, ...]:
    others = [name for name in names if name not in used]
    if not others:
        return ()
    return (Finding("unknown columns", len(others), f"columns not used: {', '.join(map(repr, map(shown, others)))}"),)


def _named(
    used: tuple[str, ...],
) -> tuple[list[pl.Expr], tuple[Literal["start"], Literal["end"]] | tuple[Literal["start"]]]:
    """The columns of times under our names."""
    if len(used) == 3:
        return [pl.col(used[1]).alias("start"), pl.col(used[2]).alias("end")], ("start", "end")
    return [pl.col(used[1]).alias("start")], ("start",)


def _csv(path: Path, columns: Columns) -> Table:
    def complete(found: set[str]) -> bool:
        return {columns.client, columns.timestamp} <= found or {columns.client, columns.start, columns.end} <= found

    names, separator = header(path, complete)
    used = columns.found(names, path)
    twice = sorted({name for name in names if names.count(name) > 1})
    if set(twice) & set(used):
        raise UserError(f"{path}: the header has the column {twice[0]!r} twice; keep one")
    schema = {name if name in used else f"\x00{n}": pl.String for n, name in enumerate(names)}
    quoted = _csv_frame(path, schema, separator, '"')
    findings = _unknown(names, used)
    if _quotes_are_broken(quoted, used, path):
        quoted = _csv_frame(path, schema, separator, None)
        findings += (Finding("quotes", 1, "quotation marks do not match; they were read as letters"),)
    rest = pl.all_horizontal(pl.col(name).is_null() for name in list(schema)[1:])
    many, few = (
        pl.lit(f"with more than {len(names)} fields"),
        pl.lit(f"with fewer than {len(used)} fields, or nothing in them"),
    )
    broken = pl.when(pl.col(BEYOND).is_not_null()).then(many).when(rest).then(few)
    empty = pl.all_horizontal(pl.col(name).is_null() for name in schema)
    times, kinds = _named(used)
    frame = quoted.filter(~empty).select("row", pl.col(used[0]).alias("client"), *times, broken=broken)
    return Table(_with_replaced(frame), kinds, used[1:], findings)


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
        row_index_name="row",
        row_index_offset=1,
        glob=False,
    )


def _quotes_are_broken(frame: pl.LazyFrame, used: tuple[str, ...], path: Path) -> bool:
    """A quotation mark that nobody closes swallows the lines that follow, or the whole file."""
    swallowed = pl.any_horizontal(pl.col(name).str.contains("\n", literal=True) for name in used)
    try:
        return bool(collected(frame.select(swallowed.any()), path).item())
    except _Unquoted:
        return True


class _Unquoted(UserError):
    """A quotation mark is open at the end of the file."""


def collected(frame: pl.LazyFrame, path: Path) -> pl.DataFrame:
    """The table, read in a stream; what the reader cannot read is the user's to know."""
    try:
        with _panics_unheard() if path.suffix == ".parquet" else contextlib.nullcontext():
            return frame.collect(engine="streaming")
    except pl.exceptions.PanicException:
        raise UserError(f"{path}: cannot be read (it is damaged, or a part of it is missing)") from None
    except (OSError, pl.exceptions.PolarsError) as error:
        quotes = any(said in str(error) for said in ("not properly escaped", "CSV malformed", 'could not parse `"'))
        raise (_Unquoted if quotes else UserError)(f"{path}: cannot be read ({said_by(error)})") from None


@contextlib.contextmanager
def _panics_unheard() -> Iterator[None]:
    """Damaged parquet makes threads of the reader panic, who say so at length on the process's own stderr."""
    sys.stderr.flush()
    kept = os.dup(2)
    try:
        with open(os.devnull, "wb") as nowhere:
            os.dup2(nowhere.fileno(), 2)
        yield
    finally:
        os.dup2(kept, 2)
        os.close(kept)


def said_by(error: Exception) -> str:
    """The first line of what a reader says of a file, in printable words."""
    return shown((str(error).strip().splitlines() or [type(error).__name__])[0])


def _json_lines(path: Path, columns: Columns) -> Table:
    names: list[str] = []
    for line in first_lines(path, 1000):
        try:
            object_ = json.loads(line)
        except ValueError:
            continue
        names += [name for name in object_ if name not in names] if isinstance(object_, dict) else []
    if not names:
        raise UserError(f"{path}: none of the first lines is a JSON object")
    used = columns.found(names, path)
    lines = pl.scan_csv(
        path,
        has_header=False,
        schema={LINE: pl.String},
        separator="\x01",  # never part of JSON text, so that a line is a field
        quote_char=None,
        truncate_ragged_lines=True,
        encoding="utf8-lossy",
        row_index_name="row",
        row_index_offset=1,
        glob=False,
    )
    fields = {name: pl.col(LINE).str.json_path_match(f"$[{json.dumps(name)}]") for name in used}
    frame = lines.filter(pl.col(LINE).is_not_null()).select("row", LINE, **fields)
    times, kinds = _named(used)
    nothing = pl.all_horizontal(pl.col(name).is_null() for name in used)
    broken = pl.when(nothing).then(pl.lit("that cannot be read as a JSON object with these fields"))
    frame = frame.select("row", pl.col(used[0]).alias("client"), *times, broken=broken)
    return Table(_with_replaced(frame), kinds, used[1:], _unknown(names, used))


def _with_replaced(frame: pl.LazyFrame) -> pl.LazyFrame:
    damaged = pl.col("client").str.contains("\ufffd", literal=True)
    said = pl.when(damaged).then(pl.lit("with a client that is not UTF-8"))
    return frame.with_columns(pl.col("client").str.strip_chars(), broken=pl.coalesce("broken", said))


def _parquet(path: Path, columns: Columns) -> Table:
    frame = pl.scan_parquet(path, glob=False)
    try:
        schema = frame.collect_schema()
    except (OSError, pl.exceptions.PolarsError) as error:
        raise UserError(f"{path}: cannot be read as parquet ({said_by(error)})") from None
    used = columns.found(list(schema), path)
    client = schema[used[0]]
    if client.is_nested() or client.is_float() or client.is_temporal():
        raise UserError(f"{path}: the column {used[0]!r} is {client}; expected names or whole numbers")
    times, kinds = _named(used)
    frame = frame.with_row_index("\x00row", offset=1).select(
        pl.col("\x00row").alias("row"),
        pl.col(used[0]).cast(pl.String).str.strip_chars().alias("client"),
        *times,
        broken=pl.lit(None, dtype=pl.String),
    )
    return Table(frame, kinds, used[1:], _unknown(list(schema), used))
