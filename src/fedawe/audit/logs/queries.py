"""Logs by a query: over files with Polars, in a database with DuckDB."""

import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import polars as pl

from fedawe.audit.logs.sources import files_of, kind_of
from fedawe.audit.logs.streams import collected, said_by
from fedawe.core.errors import UserError

DATABASES = (".duckdb", ".ddb", ".db")
ANY = "duckdb:"  # a path that names no file: the query says what to read


def is_database(path: Path) -> bool:
    """Whether a query of this path is for DuckDB."""
    return str(path) == ANY or path.suffix.lower() in DATABASES


@contextmanager
def queried(paths: Sequence[Path], query: str) -> Iterator[pl.LazyFrame]:
    """What the query gives, in a stream. Files are the table `log`; a database has its own."""
    if any(is_database(path) for path in paths):
        if len(paths) > 1:
            raise UserError(f"{paths[0]}: a database is queried alone, not together with {paths[1]}")
        with tempfile.TemporaryDirectory(prefix="fedawe-") as folder:
            yield _from_database(paths[0], query, Path(folder) / "log.parquet")
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
    return pl.scan_csv(files, infer_schema_length=10_000, try_parse_dates=False)


def _from_database(path: Path, query: str, to: Path) -> pl.LazyFrame:
    try:
        import duckdb
    except ImportError:
        raise UserError(f"{path}: a query of a database needs DuckDB: pip install 'fedawe[logs]'") from None
    if str(path) != ANY and not path.is_file():
        raise UserError(f"{path}: no such file")
    try:
        connection = duckdb.connect() if str(path) == ANY else duckdb.connect(str(path), read_only=True)
        target = str(to).replace("'", "''")
        connection.execute(f"COPY ({query.strip().rstrip(';')}) TO '{target}' (FORMAT parquet)")
        connection.close()
    except Exception as error:  # whatever the database has to say about the query
        raise UserError(f"{path}: --query: {said_by(error)}") from None
    return pl.scan_parquet(to)
