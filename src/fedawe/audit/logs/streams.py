"""Reads files in a stream: first lines, tables, and batches of rows; errors of readers become one-line messages."""

import contextlib
import gzip
import io
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO, cast

import polars as pl

from fedawe.audit.logs.findings import shown
from fedawe.core.errors import UserError
from fedawe.core.files import stderr_silenced

LONGEST = 2**25  # characters of a line


class Unquoted(UserError):
    """A quotation mark is open at the end of the file."""


def be_text(path: Path) -> None:
    """Refuse a file that is not text, or that is in UTF-16."""
    if path.suffix.lower() == ".zst":
        first_lines(path, 1)  # fails if the file is not compressed
        return
    with _opened(path) as raw:
        first = raw.read(4096).split(b"\n")[0]  # zero bytes in later lines are damaged rows, which are left out
    zeros = max(first[::2].count(0), first[1::2].count(0))
    if first.startswith((b"\xff\xfe", b"\xfe\xff")) or zeros > len(first) / 4:
        raise UserError(f"{path}: is UTF-16 text; save it as UTF-8")
    if zeros:
        raise UserError(f"{path}: is not a text file (it has zero bytes)")


@contextlib.contextmanager
def _opened(path: Path) -> Iterator[BinaryIO]:
    try:
        with gzip.open(path, "rb") if path.suffix.lower() == ".gz" else path.open("rb") as raw:
            yield cast(BinaryIO, raw)
    except (OSError, EOFError, zlib.error) as error:
        raise UserError(f"{path}: cannot be read ({said_by(error)})") from None


def first_lines(path: Path, n: int) -> list[str]:
    """The first n lines of a text file, compressed or not."""
    if path.suffix.lower() == ".zst":
        lines = pl.scan_csv(
            path,
            has_header=False,
            schema={"line": pl.String},
            separator="\x01",
            quote_char=None,
            encoding="utf8-lossy",
            truncate_ragged_lines=True,
            glob=False,
        )
        return [line.removeprefix("\ufeff") for line in collected(lines.head(n), path)["line"].fill_null("")]
    with _opened(path) as raw:
        text = io.TextIOWrapper(raw, encoding="utf-8-sig", errors="replace", newline=None)
        found: list[str] = []
        while len(found) < n and (line := text.readline(LONGEST)):
            if len(line) == LONGEST:
                raise UserError(f"{path}: line {len(found) + 1} has {LONGEST:,} characters or more; is it a log?")
            found.append(line.rstrip("\n"))
        return found


def collected(frame: pl.LazyFrame, path: Path) -> pl.DataFrame:
    """The table, read in a stream; a file that cannot be read is a UserError."""
    with said_plainly(path):
        return frame.collect(engine="streaming")


def batches(frame: pl.LazyFrame, path: Path, size: int) -> Iterator[pl.DataFrame]:
    """The table in parts of about so many rows, in order."""
    with said_plainly(path):
        gathered: list[pl.DataFrame] = []
        n = 0
        for part in frame.collect_batches(chunk_size=min(size, 250_000), maintain_order=True, engine="streaming"):
            gathered.append(part)
            n += len(part)
            if n >= size:
                yield pl.concat(gathered)
                gathered, n = [], 0
        if gathered:
            yield pl.concat(gathered)


@contextlib.contextmanager
def said_plainly(path: Path) -> Iterator[None]:
    """Turns errors and panics of polars about a file that it cannot read into a UserError of one line."""
    try:
        with stderr_silenced() if path.suffix.lower() in (".parquet", ".pq", ".zst") else contextlib.nullcontext():
            yield
    except pl.exceptions.PanicException:
        raise UserError(f"{path}: cannot be read (it is damaged, or a part of it is missing)") from None
    except (OSError, pl.exceptions.PolarsError) as error:
        quotes = any(said in str(error) for said in ("not properly escaped", "CSV malformed", 'could not parse `"'))
        raise (Unquoted if quotes else UserError)(f"{path}: cannot be read ({said_by(error)})") from None


def said_by(error: Exception) -> str:
    """The first line of an error's message, with printable characters only."""
    said = (str(error).strip().splitlines() or [type(error).__name__])[0]
    return "it is not UTF-8; save it as UTF-8" if "utf-8" in said.lower() else shown(said)
