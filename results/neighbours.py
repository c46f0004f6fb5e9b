"""Compare algorithms of the field on SVHN, under a sine and on a recorded trace of 100 phones.

Every algorithm has as many trials: a grid of local rates times a grid of one rate (or coefficient) of its server. The
trial with the best validation accuracy, over two seeds that are not used again, is run with three other seeds.

usage: python results/neighbours.py OUT TRACE        run what is missing, and write the tables to results/neighbours

OUT is a folder for the runs; TRACE is the file flash_100_week_10min.npz, whose array avail_wifi_locked is read.
SVHN must have been added before, with `fedawe data`. The same command resumes.
"""

import sys
import time
from collections.abc import Mapping
from pathlib import Path

import numpy as np
import pandas as pd
from compact import keep

import fedawe
from fedawe.experiments.build import experiment_of
from fedawe.experiments.settings import Settings
from fedawe.results.significance import holm, p_value
from fedawe.results.standings import Difference, paired

KEPT = Path(__file__).parent / "neighbours"
LOCAL = (0.1, 0.2, 0.4)  # eta0
SERVER = (0.5, 1.0, 2.0, 4.0)  # eta_g
# What takes the place of eta_g where an algorithm has none, or one of another scale.
OTHER: Mapping[str, tuple[str, tuple[float, ...]]] = {
    "feddyn": ("alpha", (0.01, 0.03, 0.1, 0.3)),
    "fedavgm": ("eta_s", (0.1, 0.25, 0.5, 1.0)),
    "fedadam": ("eta_s", (0.001, 0.003, 0.01, 0.03)),
}
ALGORITHMS = (
    "fedawe",
    "fedawe:max_echo=15",
    "fedavg",
    "fedau",
    "f3ast",
    "mifa",
    "fedvarp",
    "scaffold",
    "feddyn",
    "fedavgm",
    "fedadam",
    "fedstale",
    "mimic",
)
SEARCH = Settings(
    task="svhn", model="mlp", image_size=16, clients=100, alpha=0.1, batch=32, augment="none", validation=0.1,
    rounds=100, evaluate_every=100, evaluate_last=(20, 4), evaluate_on=("validation",),
)  # fmt: skip
FINAL = Settings(
    task="svhn", model="mlp", image_size=16, clients=100, alpha=0.1, batch=32, augment="none",
    rounds=300, evaluate_every=50, evaluate_last=(50, 2), evaluate_on=("test",),
)  # fmt: skip
SEARCH_SEEDS, FINAL_SEEDS = (0, 1), (3, 4, 6)
COLUMNS = ["folder", "label", "seed", "status", "round", "validation_accuracy", "test_accuracy"]
COLUMNS += [f"test_accuracy_class_{label}" for label in range(10)]


def trials(algorithm: str) -> list[str]:
    """The algorithm with every pair of rates."""
    server, values = OTHER.get(algorithm, ("eta_g", SERVER))
    joint = "," if ":" in algorithm else ":"
    return [f"{algorithm}{joint}eta0={eta0},{server}={value}" for eta0 in LOCAL for value in values]


def label_of(text: str) -> str:
    """The label of its runs."""
    return next(iter(experiment_of(SEARCH, [text], (0,)).algorithms))


def summary(frame: pd.DataFrame, label: str, metric: str, window: int) -> dict[int, float]:
    """Percent by seed: the mean over the evaluations of the last rounds of every complete run."""
    runs = frame[(frame.label == label) & (frame.status == "complete")]
    last = runs[runs["round"] > runs["round"].max() - window]
    return {int(str(seed)): 100 * float(value) for seed, value in last.groupby("seed")[metric].mean().items()}


def chosen(frame: pd.DataFrame) -> dict[str, str]:
    """The best trial of every algorithm by validation accuracy; a trial of which a seed diverged is none."""
    best = {}
    for algorithm in ALGORITHMS:
        found = {text: summary(frame, label_of(text), "validation_accuracy", 20) for text in trials(algorithm)}
        whole = {text: np.mean(list(each.values())) for text, each in found.items() if len(each) == len(SEARCH_SEEDS)}
        best[algorithm] = max(whole, key=whole.__getitem__)
    return best


def at_edge(algorithm: str, text: str) -> str:
    """Which of the two rates is the smallest or largest of its grid."""
    place = trials(algorithm).index(text)
    values = len(OTHER.get(algorithm, ("", SERVER))[1])
    names = (
        "eta0" if place // values in (0, len(LOCAL) - 1) else "",
        "server" if place % values in (0, values - 1) else "",
    )
    return ", ".join(filter(None, names)) or "none"


def rows(frame: pd.DataFrame, best: Mapping[str, str]) -> list[dict[str, object]]:
    """The table: accuracy, worst class, paired difference to FedAvg, the best first."""
    values = {name: summary(frame, label_of(text), "test_accuracy", 50) for name, text in best.items()}
    p = holm({name: p_value(found, values["fedavg"]) for name, found in values.items() if name != "fedavg"})
    made = []
    for name, text in best.items():
        found, difference = values[name], paired(values[name], values["fedavg"])
        classes = [summary(frame, label_of(text), f"test_accuracy_class_{label}", 50) for label in range(10)]
        worst = [min(each[seed] for each in classes) for seed in found]
        made.append(
            {
                "algorithm": name,
                "rates": text.removeprefix(name)[1:],
                "at the edge of the grid": at_edge(name, text),
                "seeds": len(found),
                "test accuracy": f"{np.mean(list(found.values())):.1f} ± {np.std(list(found.values()), ddof=1):.1f}",
                "worst class": f"{np.mean(worst):.1f}",
                "minus FedAvg (95 %)": "" if name == "fedavg" else interval(difference),
                "p (Holm)": "" if name == "fedavg" else f"{p[name]:.2f}",
                "order": -float(np.mean(list(found.values()))),
            }
        )
    return sorted(made, key=lambda row: row["order"])  # type: ignore[arg-type,return-value]


def grid(frame: pd.DataFrame, best: Mapping[str, str]) -> list[dict[str, object]]:
    """What every trial came to on validation data; the one that was chosen is bold."""
    made = []
    for algorithm in ALGORITHMS:
        name, values = OTHER.get(algorithm, ("eta_g", SERVER))
        texts = iter(trials(algorithm))
        for eta0 in LOCAL:
            row: dict[str, object] = {
                "algorithm": algorithm,
                "eta0": eta0,
                "the other rate": f"{name} = " + ", ".join(map(str, values)),
            }
            for n in range(len(values)):
                text = next(texts)
                found = summary(frame, label_of(text), "validation_accuracy", 20)
                shown = f"{np.mean(list(found.values())):.1f}" if len(found) == len(SEARCH_SEEDS) else "diverged"
                row[f"{n + 1}."] = f"**{shown}**" if best[algorithm] == text else shown
            made.append(row)
    return made


def interval(difference: Difference | None) -> str:
    """A difference as people read it."""
    return "" if difference is None else f"{difference.mean:+.1f} ({difference.low:+.1f} to {difference.high:+.1f})"


def markdown(made: list[dict[str, object]]) -> str:
    """The rows as a table."""
    names = [name for name in made[0] if name != "order"]
    lines = [names, ["--"] * len(names), *([str(row[name]) for name in names] for row in made)]
    return "".join(f"| {' | '.join(line)} |\n" for line in lines)


def main() -> None:
    """Run, choose, run, write."""
    out, recorded = Path(sys.argv[1]), np.load(sys.argv[2])["avail_wifi_locked"].astype(bool)
    out.mkdir(parents=True, exist_ok=True)
    phones = out / "phones.npz"
    fedawe.Trace(recorded).save(phones)
    KEPT.mkdir(exist_ok=True)
    kept = []
    for fleet, dynamics in (("sine", "sine"), ("phones", str(phones))):
        began = time.monotonic()
        texts = [text for algorithm in ALGORITHMS for text in trials(algorithm)]
        experiment_of(Settings(**{**vars(SEARCH), "dynamics": dynamics}), texts, SEARCH_SEEDS).run(
            out / f"{fleet}-search", jobs=2, warn=print
        )
        kept.append(fedawe.load(out / f"{fleet}-search").frame())
        best = chosen(kept[-1])
        experiment_of(Settings(**{**vars(FINAL), "dynamics": dynamics}), list(best.values()), FINAL_SEEDS).run(
            out / fleet, jobs=2, warn=print
        )
        kept.append(fedawe.load(out / fleet).frame())
        (KEPT / f"{fleet}.md").write_text(markdown(rows(kept[-1], best)), encoding="utf-8")
        (KEPT / f"{fleet}-search.md").write_text(markdown(grid(kept[-2], best)), encoding="utf-8")
        print(f"{fleet}: {time.monotonic() - began:.0f} s", flush=True)
    keep(kept, COLUMNS, KEPT / "evaluations.csv.gz")


if __name__ == "__main__":
    main()
