"""Store the evaluations of runs as compressed CSV, for the scripts of this folder."""

import gzip
from collections.abc import Sequence
from pathlib import Path

import pandas as pd


def keep(frames: Sequence[pd.DataFrame], columns: Sequence[str], path: Path) -> None:
    """Write one row for every evaluation of every run, with the columns that exist; equal frames give equal bytes."""
    frame = pd.concat(list(frames))
    order = [name for name in ("folder", "data", "dynamics", "label", "seed", "round") if name in columns]
    kept = frame[[name for name in columns if name in frame]].sort_values(order)
    text = kept.to_csv(index=False, float_format="%.6f")
    path.write_bytes(gzip.compress(text.encode(), mtime=0))


def merged(path: Path, found: pd.DataFrame, run: Sequence[str]) -> pd.DataFrame:
    """The evaluations in the file, if there is one, and those in `found`, which replace others of the same run.

    `run` has the columns that identify a run.
    """
    if not path.exists():
        return found
    before = pd.read_csv(path)
    again = pd.MultiIndex.from_frame(before[list(run)]).isin(pd.MultiIndex.from_frame(found[list(run)]))
    return pd.concat([before[~again], found])
