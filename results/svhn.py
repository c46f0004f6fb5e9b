"""Points of SVHN for the map of results/map.py: the audits of fleets, and the gains of algorithms over FedAvg.

The accuracies are those that conv.py, neighbours.py and fleets.py have stored; only the audits of the paper's dynamics
are computed here.

usage: python results/svhn.py audit    audit the dynamics, and write the table to results/svhn and docs/map.md
       python results/svhn.py          write the table again from the stored results

For the first, SVHN and CIFAR-10 must have been added with `fedawe data`.
"""

import sys
from collections.abc import Iterable, Mapping
from dataclasses import replace
from pathlib import Path

import conv
import fleets
import neighbours
import numpy as np
import pandas as pd
from map import bold
from tables import BySeed, markdown, mean, summary, write

from fedawe.audit import audit
from fedawe.experiments.build import experiment_of
from fedawe.paper.plan import NAMES
from fedawe.results.standings import paired

KEPT = Path(__file__).parent / "svhn"
BASELINE = "fedavg"
TITLES = {"svhn": "SVHN", "cifar10": "CIFAR-10"}
RULES = ("fedau", "fedawe:clip=0.5", "mifa", "fedvarp", "f3ast", "fedavg-known")
Accuracies = Mapping[str, BySeed]  # by algorithm: percent by seed


def runs() -> pd.DataFrame:
    """The stored runs with the paper's network at 16 x 16 pixels."""
    frame = pd.read_csv(conv.KEPT / "evaluations.csv.gz")
    return frame[frame.folder == "conv"]


def audited() -> pd.DataFrame:
    """The bias and label bias of FedAvg, and the advice, for every fleet and seed with a complete run of FedAvg.

    For the sine on SVHN, they are also computed after fewer rounds.
    """
    rows, last = [], max(conv.HORIZONS)
    frame = runs()
    whole = frame[(frame.label == conv.variants("equal")[BASELINE].label) & (frame.status == "complete")]
    for data, dynamics, seed in whole[["data", "dynamics", "seed"]].drop_duplicates().itertuples(index=False):
        settings = replace(neighbours.FINAL, task=data, dynamics=dynamics, rounds=last)
        population = experiment_of(settings, [BASELINE], (seed,)).population(seed)
        labels = np.asarray(population.task.frequencies)
        for rounds in conv.HORIZONS if (data, dynamics) == (conv.DATA, conv.DYNAMICS) else (last,):
            trace = population.trace.first(rounds)
            found = audit(trace)
            influence = found.influences[BASELINE]
            rows.append(
                {
                    "data": data,
                    "dynamics": dynamics,
                    "seed": seed,
                    "rounds": rounds,
                    "bias": influence.among(np.asarray(trace.on.any(0))),
                    "label_bias": np.abs(influence.shares @ labels - labels.mean(0)).sum() / 2,
                    "advice": found.advice.algorithm,
                }
            )
    return pd.DataFrame(rows)


def row(where: Mapping[str, object], said: pd.DataFrame, found: Accuracies) -> dict[str, object]:
    """The row of a fleet: its audit, and the gain of each algorithm over FedAvg."""
    base = found[BASELINE]
    return {
        **where,
        "seeds": len(base),
        "bias (%)": f"{100 * said.bias.mean():.1f}",
        "label bias (%)": f"{100 * said.label_bias.mean():.1f}",
        "the audit advises": named(said.advice.value_counts().index),
        "FedAvg (%)": f"{mean(base):.1f}",
        **{title(rule): bold(paired(found[rule], base)) if rule in found else "" for rule in RULES},
    }


def named(advice: Iterable[str]) -> str:
    """The display names of algorithms."""
    return ", ".join(NAMES[name] for name in advice)


def said_of(audits: pd.DataFrame, data: str, dynamics: str) -> pd.DataFrame:
    """The audits of one of the paper's dynamics on a data set."""
    return audits[(audits["data"] == data) & (audits.dynamics == dynamics)]


def fleet(data: str, dynamics: str) -> str:
    """The name of one of the paper's dynamics on a data set."""
    return f"the paper's {dynamics}" + ("" if data == conv.DATA else f", {TITLES[data]}")


def title(rule: str) -> str:
    """The display name of an algorithm with its options."""
    name, _, options = rule.partition(":")
    return NAMES[name] + (f", {options.replace('=', ' ')}" if options else "")


def of_conv(frame: pd.DataFrame, rounds: int) -> Accuracies:
    """Accuracies with the paper's network at equal rates."""
    known = conv.variants("equal")
    found = {rule: conv.at(frame, known[rule.partition(":")[0]], rounds) for rule in (BASELINE, *RULES)}
    return {rule: values for rule, values in found.items() if values}


def of_small(frame: pd.DataFrame, trials: pd.DataFrame, rules: Iterable[str] = (BASELINE, *RULES)) -> Accuracies:
    """Accuracies with the small network at rates that were chosen on validation data."""
    _, grids = neighbours.searched(lambda _: trials)
    labels = {rule: neighbours.label_of(text) for rule, text in neighbours.chosen(trials, grids).items()}
    wanted = [rule for rule in rules if rule in labels]
    found = {rule: summary(frame, labels[rule], "test_accuracy", conv.WINDOW) for rule in wanted}
    return {rule: values for rule, values in found.items() if values}


def table(audits: pd.DataFrame) -> list[dict[str, object]]:
    """The rows: the paper's sine by rounds and network, its other dynamics and data, and the recorded phones."""
    network = runs()
    small = pd.read_csv(neighbours.KEPT / "evaluations.csv.gz")
    phones = pd.read_csv(fleets.KEPT / "evaluations.csv.gz")
    of_phones = pd.read_csv(fleets.KEPT / "audit.csv")
    rows = []
    for data, dynamics in ((conv.DATA, conv.DYNAMICS), *conv.other_fleets(network)):
        ran, heard = conv.of_size(network, "conv", data, dynamics), said_of(audits, data, dynamics)
        for rounds in sorted(heard["rounds"].unique()):
            where = {"fleet": fleet(data, dynamics), "network": "the paper's", "rounds": rounds}
            rows.append(row(where, heard[heard["rounds"] == rounds], of_conv(ran, rounds)))
    rounds = neighbours.FINAL.rounds
    audits = said_of(audits, conv.DATA, conv.DYNAMICS)
    sine = of_small(small[small.folder == "sine"], small[small.folder == "sine-search"])
    where = {"fleet": "the paper's sine", "network": "small", "rounds": rounds}
    rows.append(row(where, audits[audits["rounds"] == rounds], sine))
    for assignment in fleets.ASSIGNMENTS:
        said = of_phones[(of_phones.assignment == assignment) & (of_phones.algorithm == BASELINE)]
        found = of_small(phones[phones.folder == assignment], small[small.folder == "phones-search"])
        rows.append(row({"fleet": f"phones, labels {assignment}", "network": "small", "rounds": rounds}, said, found))
    return rows


def main() -> None:
    """Audit if asked to, and write the table."""
    if sys.argv[1:] == ["audit"]:
        KEPT.mkdir(exist_ok=True)
        audited().to_csv(KEPT / "audit.csv", index=False, float_format="%.6f")
    write(KEPT, {"points.md": markdown(table(pd.read_csv(KEPT / "audit.csv")))})


if __name__ == "__main__":
    main()
