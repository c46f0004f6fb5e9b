"""The table of README.md: the gains of FedAWE and of the best algorithm over FedAvg in every stored comparison.

usage: python results/winning.py      write it to results/winning and README.md, from what other scripts have stored

FedAWE has the clip of the authors' code in every row.
"""

from collections.abc import Mapping
from pathlib import Path

import conv
import neighbours
import pandas as pd
import svhn
from tables import BySeed, interval, markdown, mean, write

from fedawe.paper.plan import NAMES
from fedawe.paper.readings import Evaluate, RateKind
from fedawe.results.standings import paired

KEPT = Path(__file__).parent / "winning"
OURS, BASELINE = "fedawe:clip=0.5", "fedavg"
NAMED = {**NAMES, "feddyn": "FedDyn", "fedadam": "FedAdam", "fedavgm": "FedAvgM", "mimic": "MimiC"}
AVERAGED = "with both models averaged over clients"
RATES: Mapping[RateKind, str] = {
    "paper": "the paper's",
    "equal": "equal",
    "tuned": "searched for",
}


def of_conv(frame: pd.DataFrame, kind: RateKind, evaluate: Evaluate = "mean") -> Mapping[str, BySeed]:
    """Accuracies by algorithm over the last rounds of complete runs with the paper's network."""
    found = {name: conv.last(frame, variant, evaluate) for name, variant in conv.whole(frame, kind).items()}
    return {OURS if name == "fedawe" else name: values for name, values in found.items()}


def row(
    where: str, rates: str, found: Mapping[str, BySeed], averaged: Mapping[str, BySeed] | None = None
) -> dict[str, object]:
    """The row of one comparison of the algorithms that have the same seeds as FedAvg.

    `averaged` has the accuracies of the mean over clients of the models received, if it was evaluated.
    """
    base = found[BASELINE]
    alike = {name: values for name, values in found.items() if values.keys() == base.keys()}
    best = max(alike, key=lambda name: mean(alike[name]))
    return {
        "network, data, availability, rounds": where,
        "learning rates": rates,
        "seeds": len(base),
        "FedAWE minus FedAvg": interval(paired(alike[OURS], base)),
        AVERAGED: interval(paired(averaged[OURS], averaged[BASELINE])) if averaged else "",
        "algorithms": len({name.partition(":")[0] for name in alike}),
        "most accurate, minus FedAvg": f"{NAMED[best.partition(':')[0]]}, {interval(paired(alike[best], base))}",
    }


def of_runs(where: str, frame: pd.DataFrame, kind: RateKind) -> dict[str, object]:
    """The row of runs with the paper's network."""
    return row(where, RATES[kind], of_conv(frame, kind), of_conv(frame, kind, "received"))


def table() -> list[dict[str, object]]:
    """The rows: the paper's network at three kinds of rates, under other dynamics, on other data, and in the paper's
    settings; then the small network."""
    frame = pd.read_csv(conv.KEPT / "evaluations.csv.gz")
    main = conv.of_size(frame, "conv")
    where = "the paper's at 16 x 16 pixels, SVHN, sine, 2000"
    rows = [of_runs(where, main, kind) for kind in conv.KINDS]
    for data, dynamics in conv.other_fleets(frame):
        runs = conv.of_size(frame, "conv", data, dynamics)
        if {OURS, BASELINE} <= of_conv(runs, "equal").keys():
            where = f"the paper's at 16 x 16 pixels, {svhn.TITLES[data]}, {dynamics}, 2000"
            rows.append(of_runs(where, runs, "equal"))
    rows.append(of_runs("the paper's at 32 x 32 pixels, SVHN, sine, 500", conv.of_size(frame, "paper"), "equal"))
    small = pd.read_csv(neighbours.KEPT / "evaluations.csv.gz")
    for fleet, said in (("sine", "sine"), ("phones", "a recorded trace of phones")):
        final, trials = (small[small.folder == name] for name in (fleet, f"{fleet}-search"))
        found = svhn.of_small(final, trials, neighbours.ALGORITHMS)
        rows.append(row(f"one hidden layer, SVHN, {said}, {neighbours.FINAL.rounds}", RATES["tuned"], found))
    return rows


if __name__ == "__main__":
    write(KEPT, {"readme.md": markdown(table())})
