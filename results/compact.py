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
