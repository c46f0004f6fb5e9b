"""Keep what `fedawe reproduce` found, compactly: its tables, and one row for every evaluation of every run.

usage: python results/collect.py runs/reproduce/mini
"""

import shutil
import sys
from pathlib import Path

from compact import keep

import fedawe

COLUMNS = ["folder", "label", "seed", "status", "round", "train_accuracy", "test_accuracy"]
COLUMNS += ["latest_test_accuracy", "received_test_accuracy", *(f"test_accuracy_class_{c}" for c in range(10))]


def collect(made: Path, kept: Path) -> None:
    """From a folder OUT/PRESET of `fedawe reproduce`; what was kept before is deleted."""
    kept.mkdir(parents=True, exist_ok=True)
    for old in kept.iterdir():
        old.unlink()
    for table in sorted((made / "tables").glob("*.*")):
        if table.suffix in (".csv", ".md", ".txt"):
            shutil.copyfile(table, kept / table.name)
    frames = [fedawe.load(path.parent).frame() for path in sorted((made / "runs").glob("*/experiment.json"))]
    keep(frames, [*COLUMNS, "validation_accuracy"], kept / "evaluations.csv.gz")


if __name__ == "__main__":
    source = Path(sys.argv[1])
    collect(source, Path(__file__).parent / source.name)
