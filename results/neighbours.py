"""Compare FedAWE with other algorithms on SVHN, under a sine and on a recorded trace of 100 phones.

Every algorithm begins with the same number of trials: a grid of local rates times a grid of one rate (or coefficient)
of its server. The best trial is the one with the best mean validation accuracy over two seeds, which are not used
again. If it lies on the edge of the grid, the grid is extended on that side, by the same rule for every algorithm,
until the best trial is inside or the limit of `MOST` is reached. The best trial is then run with three other seeds.

usage: python results/neighbours.py OUT TRACE        run what is missing, and write the tables to results/neighbours

OUT is a folder for the runs; TRACE is the file flash_100_week_10min.npz, whose array avail_wifi_locked is read.
SVHN must have been added before, with `fedawe data`. The same command resumes.
"""

import sys
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import pandas as pd
from compact import keep
from tables import ORDER, by_class, interval, markdown, mean, over_classes, p_text, spread, summary, write

import fedawe
from fedawe.experiments.build import experiment_of
from fedawe.experiments.settings import Settings
from fedawe.results.significance import holm, p_value
from fedawe.results.standings import paired

KEPT = Path(__file__).parent / "neighbours"
LOCAL = (0.1, 0.2, 0.4)  # eta0
SERVER = (0.5, 1.0, 2.0, 4.0)  # eta_g
MOST = 8  # a grid is extended until its smallest or largest value has changed by this factor
# The rate that is searched instead of eta_g for algorithms that have none, or one on another scale.
OTHER: Mapping[str, tuple[str, tuple[float, ...]]] = {
    "feddyn": ("alpha", (0.01, 0.03, 0.1, 0.3)),
    "fedavgm": ("eta_s", (0.1, 0.25, 0.5, 1.0)),
    "fedadam": ("eta_s", (0.001, 0.003, 0.01, 0.03)),
}
ALGORITHMS = (
    "fedawe",
    "fedawe:clip=0.5",
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


@dataclass(frozen=True)
class Grid:
    """The values of both rates of an algorithm."""

    algorithm: str
    server: str  # the name of the rate of the server
    local: tuple[float, ...] = LOCAL
    values: tuple[float, ...] = SERVER

    @classmethod
    def first(cls, algorithm: str) -> "Grid":
        """The grid before it is extended."""
        server, values = OTHER.get(algorithm, ("eta_g", SERVER))
        return cls(algorithm, server, LOCAL, values)

    def text(self, eta0: float, value: float) -> str:
        """The spec of a trial for the command line."""
        joint = "," if ":" in self.algorithm else ":"
        return f"{self.algorithm}{joint}eta0={eta0},{self.server}={value}"

    @property
    def trials(self) -> dict[str, tuple[float, float]]:
        """The algorithm with every pair of rates."""
        return {self.text(eta0, value): (eta0, value) for eta0 in self.local for value in self.values}

    def extended(self, best: str) -> "Grid":
        """The grid with one more value on each side on which the best trial lies, if there is any."""
        eta0, value = self.trials[best]
        return replace(self, local=_beyond(self.local, eta0, LOCAL), values=_beyond(self.values, value, self._start))

    @property
    def _start(self) -> tuple[float, ...]:
        return Grid.first(self.algorithm).values


def _beyond(values: tuple[float, ...], best: float, start: tuple[float, ...]) -> tuple[float, ...]:
    """The values with one more, at the ratio of the last two, if the best value is the first or last."""
    if best == values[0] and values[0] > start[0] / MOST:
        return (float(f"{values[0] ** 2 / values[1]:.2g}"), *values)
    if best == values[-1] and values[-1] < start[-1] * MOST:
        return (*values, float(f"{values[-1] ** 2 / values[-2]:.2g}"))
    return values


def label_of(text: str) -> str:
    """The label of the runs of a spec."""
    return next(iter(experiment_of(SEARCH, [text], (0,)).algorithms))


def only(frame: pd.DataFrame, texts: Iterable[str]) -> pd.DataFrame:
    """The runs of these specs; a folder may have others from earlier grids."""
    return frame[frame.label.isin([label_of(text) for text in texts])]


def chosen(frame: pd.DataFrame, grids: Sequence[Grid]) -> dict[str, str]:
    """The best trial of every algorithm by validation accuracy, among those in which no seed diverged."""
    best = {}
    for grid in grids:
        found = {text: summary(frame, label_of(text), "validation_accuracy", 20) for text in grid.trials}
        whole = {text: np.mean(list(each.values())) for text, each in found.items() if len(each) == len(SEARCH_SEEDS)}
        best[grid.algorithm] = max(whole, key=whole.__getitem__)
    return best


def searched(found: Callable[[Sequence[Grid]], pd.DataFrame]) -> tuple[pd.DataFrame, list[Grid]]:
    """All trials of a fleet, and the grids after all extensions; `found` returns the runs of given grids."""
    grids = [Grid.first(algorithm) for algorithm in ALGORITHMS]
    while True:
        frame = found(grids)
        best = chosen(frame, grids)
        wider = [grid.extended(best[grid.algorithm]) for grid in grids]
        if wider == grids:
            return frame, grids
        grids = wider


def search(out: Path, dynamics: str) -> tuple[pd.DataFrame, list[Grid]]:
    """Run the search; returns all trials and the grids after all extensions."""

    def found(grids: Sequence[Grid]) -> pd.DataFrame:
        texts = [text for grid in grids for text in grid.trials]
        experiment_of(replace(SEARCH, dynamics=dynamics), texts, SEARCH_SEEDS).run(out, jobs=2, warn=print)
        return only(fedawe.load(out).frame(), texts)

    return searched(found)


def at_edge(grid: Grid, text: str) -> str:
    """The names of the rates of a trial that are the smallest or largest of their grid."""
    eta0, value = grid.trials[text]
    names = ("eta0" if eta0 in (grid.local[0], grid.local[-1]) else "",
             grid.server if value in (grid.values[0], grid.values[-1]) else "")  # fmt: skip
    return ", ".join(filter(None, names)) or "none"


def rows(frame: pd.DataFrame, best: Mapping[str, str], grids: Sequence[Grid]) -> list[dict[str, object]]:
    """The table: accuracy, worst class, paired difference to FedAvg, the best first."""
    values = {name: summary(frame, label_of(text), "test_accuracy", 50) for name, text in best.items()}
    p = holm({name: p_value(found, values["fedavg"]) for name, found in values.items() if name != "fedavg"})
    made = []
    for grid in grids:
        name, text = grid.algorithm, best[grid.algorithm]
        found, difference = values[name], paired(values[name], values["fedavg"])
        made.append(
            {
                "algorithm": name,
                "rates": text.removeprefix(name)[1:],
                "trials": len(grid.trials),
                "at the edge of the grid": at_edge(grid, text),
                "seeds": len(found),
                "test accuracy": spread(found),
                "worst class": f"{mean(over_classes(by_class(frame, label_of(text), 50), min)):.1f}",
                "minus FedAvg (95 %)": "" if name == "fedavg" else interval(difference),
                "p (Holm)": "" if name == "fedavg" else p_text(p[name]),
                ORDER: -mean(found),
            }
        )
    return sorted(made, key=lambda row: row[ORDER])  # type: ignore[arg-type,return-value]


def trials_table(frame: pd.DataFrame, best: Mapping[str, str], grids: Sequence[Grid]) -> list[dict[str, object]]:
    """The validation accuracy of every trial; the chosen one is bold."""
    made = []
    for grid in grids:
        for eta0 in grid.local:
            cells = []
            for value in grid.values:
                text = grid.text(eta0, value)
                found = summary(frame, label_of(text), "validation_accuracy", 20)
                shown = f"{np.mean(list(found.values())):.1f}" if len(found) == len(SEARCH_SEEDS) else "diverged"
                cells.append(f"{value:g}: **{shown}**" if best[grid.algorithm] == text else f"{value:g}: {shown}")
            made.append({"algorithm": grid.algorithm, "eta0": eta0, grid_title(): f"{grid.server} " + ", ".join(cells)})
    return made


def grid_title() -> str:
    """The heading of the column of trials."""
    return "rate of the server: validation accuracy (%)"


def tables(fleet: str, trials: pd.DataFrame, final: pd.DataFrame, grids: Sequence[Grid]) -> dict[str, str]:
    """The tables of a fleet, by the names of their files."""
    best = chosen(trials, grids)
    return {
        f"{fleet}.md": markdown(rows(final, best, grids)),
        f"{fleet}-search.md": markdown(trials_table(trials, best, grids)),
    }


def main() -> None:
    """Run the search, choose rates, run the comparison, and write the tables."""
    out, recorded = Path(sys.argv[1]), np.load(sys.argv[2])["avail_wifi_locked"].astype(bool)
    out.mkdir(parents=True, exist_ok=True)
    phones = out / "phones.npz"
    fedawe.Trace(recorded).save(phones)
    kept = []
    for fleet, dynamics in (("sine", "sine"), ("phones", str(phones))):
        began = time.monotonic()
        frame, grids = search(out / f"{fleet}-search", dynamics)
        best = chosen(frame, grids)
        experiment_of(replace(FINAL, dynamics=dynamics), list(best.values()), FINAL_SEEDS).run(
            out / fleet, jobs=2, warn=print
        )
        kept += [frame, only(fedawe.load(out / fleet).frame(), best.values())]
        write(KEPT, tables(fleet, kept[-2], kept[-1], grids))
        print(f"{fleet}: {time.monotonic() - began:.0f} s", flush=True)
    keep(kept, COLUMNS, KEPT / "evaluations.csv.gz")


if __name__ == "__main__":
    main()
