"""Tables of features and a label: CSV and Parquet files, and polars data frames."""

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import lazy_loader
import numpy as np
import numpy.typing as npt

from fedawe.core.errors import UserError
from fedawe.core.files import brief, check_expansion, existing_file, stderr_silenced
from fedawe.core.rng import rng
from fedawe.tasks.data.arrays import Array, class_numbers, client_names, from_arrays, listed
from fedawe.tasks.data.labelled import Data

if TYPE_CHECKING:
    import polars as pl
else:
    pl = lazy_loader.load("polars")  # it starts threads, which a process that is to be forked must not have

MOST_COLUMNS = 10_000
HEADER = 2**20  # bytes in which the first line of a CSV file must end
SPLITS = {"train": "train", "test": "test", "val": "val", "validation": "val"}


def from_table(
    table: "str | Path | pl.DataFrame", *, label: str = "label", client: str = "client", split: str = "split"
) -> Data:
    """Data from a CSV or Parquet file, or a polars data frame.

    A row is a sample. Columns that are not named below are its inputs, which are numbers.

    label   the column of labels: class numbers from 0, or names
    client  the column that says which client has the sample; it may be missing
    split   the column that says what the sample is for: train, val or test. Where it is missing, one in five samples
            is for the test, the same ones under every seed
    """
    where = "the data frame" if isinstance(table, pl.DataFrame) else str(table)
    frame = table if isinstance(table, pl.DataFrame) else _frame(Path(table))
    name = "table" if isinstance(table, pl.DataFrame) else Path(table).stem
    features = [column for column in frame.columns if column not in (label, client, split)]
    if label not in frame.columns or not features:
        raise UserError(f"{where}: expected a column {label!r} and columns of numbers; it has {listed(frame.columns)}")
    if len(frame) == 0:
        raise UserError(f"{where}: has no rows; expected one for each sample")
    for column in frame.columns:
        kind = frame[column].dtype
        if column in features and not kind.is_numeric() and kind != pl.Boolean:
            raise UserError(f"{where}: the column {column!r} is {kind}; expected numbers")
        if column in (label, client) and kind in (pl.Int128, pl.UInt128):  # numpy has no such numbers
            raise UserError(f"{where}: the column {column!r} has numbers of 20 digits or more; write them as text")
        if frame[column].null_count():
            row = int(frame[column].is_null().arg_max() or 0) + 1
            raise UserError(f"{where}: row {row} has no {column!r}; fill in or omit rows that are incomplete")
    x = frame.select(pl.col(features).cast(pl.Float64)).to_numpy()
    y = class_numbers([frame[label].to_numpy()], where)[0]
    owners = client_names(frame[client].to_numpy()) if client in frame.columns else None
    arrays: dict[str, Array] = {}
    for part, rows in _split(frame, split, where).items():
        arrays |= {f"x_{part}": x[rows], f"y_{part}": y[rows]}
        if part == "train" and owners is not None:
            arrays["client"] = owners[rows]
    return from_arrays(name, arrays, where)


def columns_of(path: Path) -> list[str]:
    """The names of a file's columns, without reading its rows."""
    if path.suffix == ".parquet":
        return list(_polars(path, lambda: pl.read_parquet_schema(path)))
    with existing_file(path).open("rb") as file:
        first = file.readline(HEADER)
    if len(first) == HEADER or first.count(b",") >= MOST_COLUMNS:
        raise UserError(f"{path}: the first line has more than {MOST_COLUMNS:,} columns; use an npz file")
    found: list[str] = _polars(path, lambda: pl.read_csv(path, n_rows=0)).columns
    return found


def _frame(path: Path) -> "pl.DataFrame":
    existing_file(path)
    columns = columns_of(path)
    if path.suffix == ".csv":
        out: pl.DataFrame = _polars(path, lambda: pl.read_csv(path, infer_schema_length=None))
        return out
    if path.suffix != ".parquet":
        raise UserError(f"{path}: expected a .csv or .parquet file")
    rows = _polars(path, lambda: pl.scan_parquet(path).select(pl.len()).collect()).item()
    check_expansion(path, 8 * rows * len(columns), "write it without compression (compression='uncompressed')")
    read: pl.DataFrame = _polars(path, lambda: pl.read_parquet(path))
    return read


def _polars(path: Path, read: Callable[[], Any]) -> Any:
    """The result of a read by polars; for a damaged file, it can raise PanicException, which is no Exception."""
    try:
        with stderr_silenced():
            return read()
    except (Exception, pl.exceptions.PanicException) as error:
        raise UserError(f"{path}: cannot be read ({brief(error)})") from None


def _split(frame: "pl.DataFrame", split: str, where: str) -> dict[str, npt.NDArray[np.int64]]:
    """The rows of each part."""
    if split not in frame.columns:
        order = rng(0, "test").permutation(len(frame))
        test = max(len(order) // 5, 1)
        return {"train": np.sort(order[test:]), "test": np.sort(order[:test])}
    said = frame[split].cast(pl.String).to_numpy()
    if unknown := sorted(set(said) - set(SPLITS)):
        raise UserError(f"{where}: the column {split!r} has {unknown[0]!r}; expected {', '.join(SPLITS)}")
    part_of = np.array([SPLITS[each] for each in said])
    return {part: np.flatnonzero(part_of == part) for part in dict.fromkeys(SPLITS.values()) if (part_of == part).any()}
