"""Points of SVHN on the map of results/map.py: what the audit says of fleets, and what rules gain there over FedAvg.

The accuracies are those that conv.py, neighbours.py and fleets.py have kept; only the audit of the paper's sine is
computed here.

usage: python results/svhn.py audit    audit the sine, and write the table to results/svhn and docs/map.md
       python results/svhn.py          write the table anew from what is kept

For the first, SVHN must have been added with `fedawe data`.
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
RULES = ("fedau", "fedawe:clip=0.5", "mifa", "fedvarp", "f3ast", "fedavg-known")
Accuracies = Mapping[str, BySeed]  # by algorithm: percent by seed


def audited() -> pd.DataFrame:
    """The bias and the label bias of FedAvg, and the advice, for every seed after more and more rounds of the sine."""
    rows = []
    settings = replace(neighbours.FINAL, dynamics=conv.DYNAMICS, rounds=max(conv.HORIZONS))
    for seed in neighbours.FINAL_SEEDS:
        population = experiment_of(settings, [BASELINE], (seed,)).population(seed)
        labels = np.asarray(population.task.frequencies)
        for rounds in conv.HORIZONS:
            trace = population.trace.first(rounds)
            found = audit(trace)
            influence = found.influences[BASELINE]
            rows.append(
                {
                    "seed": seed,
                    "rounds": rounds,
                    "bias": influence.among(np.asarray(trace.on.any(0))),
                    "label_bias": np.abs(influence.shares @ labels - labels.mean(0)).sum() / 2,
                    "advice": found.advice.algorithm,
                }
            )
    return pd.DataFrame(rows)


def row(where: Mapping[str, object], said: pd.DataFrame, found: Accuracies) -> dict[str, object]:
    """A fleet: what the audit says of it, and what each rule has over FedAvg."""
    base = found[BASELINE]
    return {
        **where,
        "bias (%)": f"{100 * said.bias.mean():.1f}",
        "label bias (%)": f"{100 * said.label_bias.mean():.1f}",
        "the audit advises": named(said.advice.value_counts().index),
        "FedAvg (%)": f"{mean(base):.1f}",
        **{title(rule): bold(paired(found[rule], base)) if rule in found else "" for rule in RULES},
    }


def named(advice: Iterable[str]) -> str:
    """Algorithms as people write them."""
    return ", ".join(NAMES[name] for name in advice)


def title(rule: str) -> str:
    """A rule as people write it."""
    name, _, options = rule.partition(":")
    return NAMES[name] + (f", {options.replace('=', ' ')}" if options else "")


def of_conv(frame: pd.DataFrame, rounds: int) -> Accuracies:
    """The paper's network at equal rates."""
    known = conv.variants("equal")
    found = {rule: conv.at(frame, known[rule.partition(":")[0]], rounds) for rule in (BASELINE, *RULES)}
    return {rule: values for rule, values in found.items() if values}


def of_small(frame: pd.DataFrame, trials: pd.DataFrame, rules: Iterable[str] = (BASELINE, *RULES)) -> Accuracies:
    """The small network with rates that were chosen on validation data."""
    _, grids = neighbours.searched(lambda _: trials)
    labels = {rule: neighbours.label_of(text) for rule, text in neighbours.chosen(trials, grids).items()}
    wanted = [rule for rule in rules if rule in labels]
    found = {rule: summary(frame, labels[rule], "test_accuracy", conv.WINDOW) for rule in wanted}
    return {rule: values for rule, values in found.items() if values}


def table(audits: pd.DataFrame) -> list[dict[str, object]]:
    """The paper's sine by rounds and network, and the recorded phones."""
    network = conv.of_size(pd.read_csv(conv.KEPT / "evaluations.csv.gz"), "conv")
    small = pd.read_csv(neighbours.KEPT / "evaluations.csv.gz")
    phones = pd.read_csv(fleets.KEPT / "evaluations.csv.gz")
    of_phones = pd.read_csv(fleets.KEPT / "audit.csv")
    rows = [
        row(
            {"fleet": "the paper's sine", "network": "the paper's", "rounds": rounds},
            audits[audits["rounds"] == rounds],
            of_conv(network, rounds),
        )
        for rounds in conv.HORIZONS
    ]
    rounds = neighbours.FINAL.rounds
    sine = of_small(small[small.folder == "sine"], small[small.folder == "sine-search"])
    where = {"fleet": "the paper's sine", "network": "small", "rounds": rounds}
    rows.append(row(where, audits[audits["rounds"] == rounds], sine))
    for assignment in fleets.ASSIGNMENTS:
        said = of_phones[(of_phones.assignment == assignment) & (of_phones.algorithm == BASELINE)]
        found = of_small(phones[phones.folder == assignment], small[small.folder == "phones-search"])
        rows.append(row({"fleet": f"phones, labels {assignment}", "network": "small", "rounds": rounds}, said, found))
    return rows


def main() -> None:
    """Audit, write."""
    if sys.argv[1:] == ["audit"]:
        KEPT.mkdir(exist_ok=True)
        audited().to_csv(KEPT / "audit.csv", index=False, float_format="%.6f")
    write(KEPT, {"points.md": markdown(table(pd.read_csv(KEPT / "audit.csv")))})


if __name__ == "__main__":
    main()
