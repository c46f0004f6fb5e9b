"""Copy the results of `fedawe reproduce` to results/: its tables, and one row for every evaluation of every run.

usage: python results/collect.py runs/reproduce/mini

Results of other items that were copied before are kept. Tables that are marked on a page are written there too.
"""

import shutil
import sys
from pathlib import Path

import pandas as pd
from compact import keep, merged
from tables import write

import fedawe

RUN = ["folder", "label", "seed"]
COLUMNS = [*RUN, "status", "round", "train_accuracy", "test_accuracy"]
COLUMNS += ["latest_test_accuracy", "received_test_accuracy", *(f"test_accuracy_class_{c}" for c in range(10))]


def collect(made: Path, kept: Path) -> None:
    """Copy from a folder OUT/PRESET of `fedawe reproduce` to `kept`."""
    kept.mkdir(parents=True, exist_ok=True)
    for table in sorted((made / "tables").glob("*.*")):
        if table.suffix in (".csv", ".md", ".txt"):
            shutil.copyfile(table, kept / table.name)
    write(kept, {table.name: table.read_text(encoding="utf-8") for table in kept.glob("*.md")})
    frames = [fedawe.load(path.parent).frame() for path in sorted((made / "runs").glob("*/experiment.json"))]
    path = kept / "evaluations.csv.gz"
    keep([merged(path, pd.concat(frames), RUN)], [*COLUMNS, "validation_accuracy"], path)


if __name__ == "__main__":
    source = Path(sys.argv[1])
    collect(source, Path(__file__).parent / source.name)
