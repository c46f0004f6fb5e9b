"""What the scripts of this folder keep of their runs: evaluations as compressed CSV."""

import gzip
from collections.abc import Sequence
from pathlib import Path

import pandas as pd


def keep(frames: Sequence[pd.DataFrame], columns: Sequence[str], path: Path) -> None:
    """One row for every evaluation of every run, with those of the columns that there are; the same bytes each time."""
    frame = pd.concat(list(frames))
    order = [name for name in ("folder", "data", "dynamics", "label", "seed", "round") if name in columns]
    kept = frame[[name for name in columns if name in frame]].sort_values(order)
    text = kept.to_csv(index=False, float_format="%.6f")
    path.write_bytes(gzip.compress(text.encode(), mtime=0))


def merged(path: Path, found: pd.DataFrame, run: Sequence[str]) -> pd.DataFrame:
    """What is kept there, if anything, and what was found; a run that is in both as it was found.

    `run` are the columns that tell runs apart.
    """
    if not path.exists():
        return found
    before = pd.read_csv(path)
    again = pd.MultiIndex.from_frame(before[list(run)]).isin(pd.MultiIndex.from_frame(found[list(run)]))
    return pd.concat([before[~again], found])
