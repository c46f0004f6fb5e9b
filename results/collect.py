"""Copy the results of `fedawe reproduce` to results/: its tables, and one row for every evaluation of every run.

usage: python results/collect.py runs/reproduce/mini

Results of other items that were copied before are kept. Tables that are marked on a page are written there too.
"""

import shutil
import sys
from pathlib import Path

import pandas as pd
from compact import keep, merged
from tables import interval, markdown, spread, summary, write

import fedawe
from fedawe.paper.plan import NAMES, Plan, Planned
from fedawe.paper.presets import DENSE, presets
from fedawe.paper.published import accuracy
from fedawe.paper.readings import Only
from fedawe.results.standings import paired

RUN = ["folder", "label", "seed"]
COLUMNS = [*RUN, "status", "round", "train_accuracy", "test_accuracy"]
COLUMNS += ["latest_test_accuracy", "received_test_accuracy", *(f"test_accuracy_class_{c}" for c in range(10))]


def collect(made: Path, kept: Path) -> None:
    """Copy from a folder OUT/PRESET of `fedawe reproduce` to `kept`."""
    kept.mkdir(parents=True, exist_ok=True)
    for table in sorted((made / "tables").glob("*.*")):
        if table.suffix in (".csv", ".md", ".txt"):
            shutil.copyfile(table, kept / table.name)
    frames = [fedawe.load(path.parent).frame() for path in sorted((made / "runs").glob("*/experiment.json"))]
    path = kept / "evaluations.csv.gz"
    keep([merged(path, pd.concat(frames), RUN)], [*COLUMNS, "validation_accuracy"], path)
    tables = {table.name: table.read_text(encoding="utf-8") for table in kept.glob("*.md")}
    write(kept, {**tables, **differences(pd.read_csv(path))})


def differences(frame: pd.DataFrame) -> dict[str, str]:
    """Tables 9 and 10 in short: test accuracies at the size `mini`, and differences to FedAvg here and in the paper."""
    plan = Plan(presets()["mini"], only=Only(datasets=("svhn",)))
    made = {"gamma.md": rows("table9", plan.table9(), frame), "alpha.md": rows("table10", plan.table10(), frame)}
    return {name: markdown(found) for name, found in made.items() if found}


def rows(item: str, settings: list[Planned], frame: pd.DataFrame) -> list[dict[str, object]]:
    """A row for every setting of a table of the paper and every algorithm that was run in it."""
    out: list[dict[str, object]] = []
    for planned in settings:
        runs = frame[frame.folder == planned.folder]
        found = {one.name: summary(runs, one.label, "test_accuracy", DENSE[0]) for one in planned.variants}
        place = planned.title.partition(" = ")[2]
        theirs = {name: accuracy(item, place, algorithm=name) for name in found}
        base = theirs["fedavg"]
        for name, values in found.items():
            if values and (own := theirs[name]) is not None and base is not None:
                plain = name == "fedavg"
                out.append(
                    {
                        "setting": planned.title,
                        "algorithm": NAMES[name],
                        "seeds": len(values),
                        "test accuracy": spread(values),
                        "minus FedAvg (95 %)": "" if plain else interval(paired(values, found["fedavg"])),
                        "minus FedAvg, the paper": "" if plain else f"{own.mean - base.mean:+.1f}",
                    }
                )
    return out


if __name__ == "__main__":
    source = Path(sys.argv[1])
    collect(source, Path(__file__).parent / source.name)
