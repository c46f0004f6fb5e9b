"""Reads the result of an SQL query as a log: Polars queries files, DuckDB and SQLite their databases."""

import csv
import sqlite3
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager
from pathlib import Path

import polars as pl

from fedawe.audit.logs.sources import files_of, kind_of
from fedawe.audit.logs.streams import collected, first_lines, said_by, said_plainly
from fedawe.audit.logs.tables import SEPARATORS
from fedawe.core.errors import UserError

DATABASES = (".duckdb", ".ddb", ".db", ".sqlite", ".sqlite3")
SQLITE = b"SQLite format 3\0"  # how a file of SQLite begins
ANY = "duckdb:"  # DuckDB without a database file: the query itself names the files to read
SAMPLE = 10_000  # first rows, from which the types of columns are inferred
DECIMAL = r"^-?(0|[1-9]\d{0,14})(\.\d+)?([eE][+-]\d+)?$"  # excludes 007, 1e5 and long digits, which may be names


def is_database(path: Path) -> bool:
    """Whether this path is queried as a database."""
    return str(path) == ANY or path.suffix.lower() in DATABASES


@contextmanager
def queried(paths: Sequence[Path], query: str) -> Iterator[pl.LazyFrame]:
    """The result of the query, as a lazy frame. Files are the table `log`; a database has its own tables."""
    if any(is_database(path) for path in paths):
        if len(paths) > 1:
            raise UserError(f"{paths[0]}: a database is queried alone, not together with {paths[1]}")
        with tempfile.TemporaryDirectory(prefix="fedawe-") as folder:
            read = _from_sqlite if _is_sqlite(paths[0]) else _from_duckdb
            yield read(paths[0], query, Path(folder))
        return
    files = files_of(paths)
    kind = kind_of(files[0])
    frame = _csv(files) if kind == "csv" else pl.scan_ndjson(files) if kind == "json" else pl.scan_parquet(files)
    try:
        result = pl.SQLContext(frames={"log": frame}).execute(query, eager=False)
        result.collect_schema()
    except (OSError, pl.exceptions.PolarsError) as error:
        raise UserError(f"{paths[0]}: --query: {said_by(error)} (the files are the table `log`)") from None
    collected(result.head(1), paths[0])
    yield result


def _csv(files: list[Path]) -> pl.LazyFrame:
    """The rows of CSV files; a column is of numbers only if the text of every row is as the number would be written."""
    separator = max(SEPARATORS, key="".join(first_lines(files[0], 1)).count)
    with said_plainly(files[0]):
        types = dict(pl.scan_csv(files, infer_schema_length=SAMPLE, separator=separator).collect_schema())
    text = pl.scan_csv(files, infer_schema=False, separator=separator)
    numbers = [name for name, dtype in types.items() if dtype.is_numeric()]
    if numbers:
        whole = pl.col(numbers).cast(pl.Int64, strict=False).cast(pl.String).eq_missing(pl.col(numbers)).all()
        decimal = pl.col(numbers).str.contains(DECIMAL).all()
        found = collected(text.select(whole.name.prefix("w"), decimal.name.prefix("d")), files[0])
        for name in numbers:
            types[name] = pl.Int64() if found[f"w{name}"][0] else pl.Float64() if found[f"d{name}"][0] else pl.String()
    return pl.scan_csv(files, schema_overrides=types, separator=separator)


def _is_sqlite(path: Path) -> bool:
    if not path.is_file():
        return False
    with path.open("rb") as file:
        return file.read(len(SQLITE)) == SQLITE


def _from_sqlite(path: Path, query: str, folder: Path) -> pl.LazyFrame:
    """The result from Python's SQLite, written to a CSV and read as text (DuckDB would download an extension)."""
    to = folder / "log.csv"
    try:
        with (
            closing(sqlite3.connect(f"{path.absolute().as_uri()}?mode=ro", uri=True)) as database,
            to.open("w", newline="", encoding="utf-8") as file,
        ):
            rows = database.execute(query)
            if rows.description is None:
                raise UserError(f"{path}: --query: expected a query that gives rows, as in SELECT ...")
            writer = csv.writer(file)
            writer.writerow(name for name, *_ in rows.description)
            writer.writerows(rows)
    except (sqlite3.Error, UnicodeEncodeError) as error:
        raise UserError(f"{path}: --query: {said_by(error)}") from None
    return pl.scan_csv(to, infer_schema=False)


def _from_duckdb(path: Path, query: str, folder: Path) -> pl.LazyFrame:
    to = folder / "log.parquet"
    try:
        import duckdb
    except ImportError:
        raise UserError(f"{path}: a query of a database needs DuckDB: pip install 'fedawe[logs]'") from None
    if str(path) != ANY and not path.is_file():
        raise UserError(f"{path}: no such file")
    try:
        connection = duckdb.connect() if str(path) == ANY else duckdb.connect(str(path), read_only=True)
        connection.execute("SET autoinstall_known_extensions = false")  # no query may download and run extensions
        target = str(to).replace("'", "''")
        connection.execute(f"COPY ({query.strip().rstrip(';')}) TO '{target}' (FORMAT parquet)")
        connection.close()
    except Exception as error:  # any error of the database or of the query
        raise UserError(f"{path}: --query: {said_by(error)}") from None
    return pl.scan_parquet(to)
