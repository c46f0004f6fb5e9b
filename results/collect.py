"""Keep what `fedawe reproduce` found, compactly: its tables, and one row for every evaluation of every run.

usage: python results/collect.py runs/reproduce/mini
"""

import gzip
import shutil
import sys
from pathlib import Path

from fedawe.results.frame import below, frame

COLUMNS = ["folder", "label", "seed", "status", "round", "train_accuracy", "test_accuracy"]
COLUMNS += ["latest_test_accuracy", "received_test_accuracy", *(f"test_accuracy_class_{c}" for c in range(10))]


def collect(made: Path, kept: Path) -> None:
    """From a folder OUT/PRESET of `fedawe reproduce`; what was kept before goes."""
    kept.mkdir(parents=True, exist_ok=True)
    for old in kept.iterdir():
        old.unlink()
    for table in sorted((made / "tables").glob("*.*")):
        if table.suffix in (".csv", ".md", ".txt"):
            shutil.copyfile(table, kept / table.name)
    found = frame(below(made / "runs", print))[COLUMNS].sort_values(["folder", "label", "seed", "round"])
    text = found.to_csv(index=False, float_format="%.6f")
    (kept / "evaluations.csv.gz").write_bytes(gzip.compress(text.encode(), mtime=0))


if __name__ == "__main__":
    source = Path(sys.argv[1])
    collect(source, Path(__file__).parent / source.name)
