"""Real phones whose labels depend on availability, or not: compare the accuracies of training with the audit.

100 phones that FLASH recorded, SVHN at 16 x 16 pixels and a small network, as in neighbours.py. Under both assignments
the samples are divided into the same parts, and the phones that are never available have the same parts. Untied: every
phone has the part of its number. Tied: the phones that are available at some time exchange their parts, so that the
parts with the largest share of the digits 7, 8 and 9 go to the phones that are available least.

The rates are those that neighbours.py chose on validation data for these phones, under the untied assignment.

usage: python results/fleets.py OUT TRACE      run what is missing, and write the tables to results/fleets
       python results/fleets.py                write the tables again from the stored evaluations

OUT is a folder for the runs; TRACE is the file flash_100_week_10min.npz, whose array avail_wifi_locked is read.
SVHN must have been added before, with `fedawe data`. The same command resumes.
"""

import sys
import time
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import neighbours
import numpy as np
import numpy.typing as npt
import pandas as pd
from compact import keep
from tables import BySeed, by_class, interval, markdown, over_classes, p_text, spread, summary, write

import fedawe
from fedawe.audit import audit
from fedawe.core.rng import rng
from fedawe.experiments.build import experiment_of
from fedawe.results.significance import holm, p_value
from fedawe.results.standings import paired

KEPT = Path(__file__).parent / "fleets"
BASELINE = "fedavg"
ALGORITHMS = (BASELINE, "fedau", "mifa", "fedvarp", "fedawe:max_echo=15", "fedawe:clip=0.5")
ASSIGNMENTS = ("untied", "tied")
RARE = (7, 8, 9)  # the digits of the phones that are rarely available
ALPHA, CLIENTS, WINDOW = 0.1, 100, 50
SEEDS = neighbours.FINAL_SEEDS
Parts = list[npt.NDArray[np.int64]]


def tied(labels: Any, seed: int, trace: str, rounds: int) -> Parts:
    """The Dirichlet partition of the seed, with parts exchanged among the phones that are available at some time.

    trace   the file of the recorded trace
    rounds  number of first rounds in which availability is counted
    """
    y = np.asarray(labels)
    parts = list(fedawe.dirichlet_partition(y, CLIENTS, ALPHA, rng(seed, "partition")))
    return exchanged(parts, y, fedawe.Trace.load(Path(trace)).on[:rounds].mean(0))


def exchanged(parts: Parts, labels: npt.NDArray[np.int64], available: npt.NDArray[np.float64]) -> Parts:
    """The parts, exchanged so that phones with more of the rare digits are available less; the phones that are never
    available keep theirs."""
    phones = np.flatnonzero(available)
    rarest_first = phones[np.argsort(available[phones], kind="stable")]
    held = np.array([np.isin(labels[parts[phone]], RARE).mean() for phone in phones])
    most_first = phones[np.argsort(-held, kind="stable")]
    out = list(parts)
    for phone, source in zip(rarest_first, most_first, strict=True):
        out[phone] = parts[source]
    return out


def texts() -> dict[str, str]:
    """The algorithms with the rates that were chosen on validation data for the phones."""
    trials = pd.read_csv(neighbours.KEPT / "evaluations.csv.gz")
    trials = trials[trials.folder == "phones-search"]
    _, grids = neighbours.searched(lambda _: trials)
    best = neighbours.chosen(trials, grids)
    return {name: best[name] for name in ALGORITHMS}


def experiment(assignment: str, trace: Path, chosen: Mapping[str, str]) -> fedawe.Experiment:
    """The experiment of an assignment."""
    settings = replace(neighbours.FINAL, dynamics=str(trace))
    if assignment == "tied":
        own = f"{Path(__file__).resolve()}:tied:trace={trace},rounds={settings.rounds}"
        settings = replace(settings, partition=own, clients=None, alpha=None)
    return experiment_of(settings, list(chosen.values()), SEEDS)


def audited(assignment: str, made: fedawe.Experiment) -> pd.DataFrame:
    """The audit of the runs: one row for every algorithm and seed.

    bias        among the phones that are available at some time; FedAWE is without clip, which cannot be audited
    label_bias  distance in total variation between the mean label frequencies of these phones, weighted by influence,
                and their plain mean
    """
    rules: dict[str, Any] = {
        "fedavg": fedawe.FedAvg(),
        "fedau": fedawe.FedAU(),
        "mifa": fedawe.MIFA(),
        "fedvarp": fedawe.FedVARP(),
        "fedawe:max_echo=15": fedawe.FedAWE(max_echo=15),
        "fedawe:clip=0.5": fedawe.FedAWE(),
    }
    rows = []
    for seed in SEEDS:
        population = made.population(seed)
        trace = population.trace.first(neighbours.FINAL.rounds or population.trace.rounds)
        found, seen = audit(trace, algorithms=rules), np.asarray(trace.on.any(0))
        labels = np.asarray(population.task.frequencies)[seen]
        for name in ALGORITHMS:
            shares = found.influences[name].shares[seen]
            moved = np.abs(shares / shares.sum() @ labels - labels.mean(0)).sum() / 2
            rows.append(
                {
                    "assignment": assignment,
                    "algorithm": name,
                    "seed": seed,
                    "bias": found.influences[name].among(seen),
                    "label_bias": moved,
                    "advice": audit(trace).advice.algorithm,
                    "never": int((~seen).sum()),
                }
            )
    return pd.DataFrame(rows)


def rare_accuracy(frame: pd.DataFrame, label: str, rare: bool = True) -> BySeed:
    """Percent by seed: the mean of the accuracies on the digits of rarely available phones, or on the other digits."""
    classes = by_class(frame, label, WINDOW)
    return over_classes([one for digit, one in enumerate(classes) if (digit in RARE) == rare], _mean)


def _mean(values: list[float]) -> float:
    return float(np.mean(values))


def assignment_table(
    frame: pd.DataFrame, audits: pd.DataFrame, chosen: Mapping[str, str], assignment: str
) -> list[dict[str, object]]:
    """A row per algorithm: its audit, accuracy on all digits and on the rare ones, and differences to FedAvg."""
    runs, said = frame[frame.folder == assignment], audits[audits.assignment == assignment]
    labels = {name: neighbours.label_of(text) for name, text in chosen.items()}
    every = {name: summary(runs, label, "test_accuracy", WINDOW) for name, label in labels.items()}
    rare = {name: rare_accuracy(runs, label) for name, label in labels.items()}
    others = [name for name in chosen if name != BASELINE]
    p = holm(
        {("all", name): p_value(every[name], every[BASELINE]) for name in others}
        | {("rare", name): p_value(rare[name], rare[BASELINE]) for name in others}
    )
    rows = []
    for name, text in chosen.items():
        own, unclipped = said[said.algorithm == name], " (without the clip)" if "clip" in name else ""
        row: dict[str, object] = {
            "algorithm": name,
            "rates": text.removeprefix(name)[1:],
            "bias (%)": f"{100 * own.bias.mean():.1f}{unclipped}",
            "label bias (%)": f"{100 * own.label_bias.mean():.1f}{unclipped}",
            "seeds": len(every[name]),
            "test accuracy": spread(every[name]),
            "digits 7 to 9": spread(rare[name]),
            "other digits": spread(rare_accuracy(runs, labels[name], rare=False)),
        }
        for kind, title, values in (("all", "all digits", every), ("rare", "digits 7 to 9", rare)):
            own_p = p.get((kind, name))
            row[f"minus FedAvg, {title} (95 %)"] = (
                "" if name == BASELINE else interval(paired(values[name], values[BASELINE]))
            )
            row[f"p (Holm), {title}"] = p_text(own_p)
        rows.append(row)
    return rows


def change_table(frame: pd.DataFrame, chosen: Mapping[str, str]) -> list[dict[str, object]]:
    """The effect of tying labels to availability on every algorithm: tied minus untied, paired by seed."""
    metrics: dict[str, Callable[[pd.DataFrame, str], BySeed]] = {
        "all digits": lambda runs, label: summary(runs, label, "test_accuracy", WINDOW),
        "digits 7 to 9": rare_accuracy,
        "other digits": lambda runs, label: rare_accuracy(runs, label, rare=False),
    }
    rows = []
    for name, text in chosen.items():
        row: dict[str, object] = {"algorithm": name}
        for title, of in metrics.items():
            found = {each: of(frame[frame.folder == each], neighbours.label_of(text)) for each in ASSIGNMENTS}
            row[f"tied minus untied, {title} (95 %)"] = interval(paired(found["tied"], found["untied"]))
        rows.append(row)
    return rows


def tables(frame: pd.DataFrame, audits: pd.DataFrame) -> dict[str, str]:
    """All tables, by the names of their files."""
    chosen = texts()
    made = {f"{each}.md": markdown(assignment_table(frame, audits, chosen, each)) for each in ASSIGNMENTS}
    return {**made, "change.md": markdown(change_table(frame, chosen))}


def write_all() -> None:
    """Write the tables from the stored evaluations."""
    frame, audits = pd.read_csv(KEPT / "evaluations.csv.gz"), pd.read_csv(KEPT / "audit.csv")
    write(KEPT, tables(frame, audits))


def main() -> None:
    """Run the experiments, audit them, and write the tables."""
    if len(sys.argv) == 1:
        write_all()
        return
    out, recorded = Path(sys.argv[1]).resolve(), np.load(sys.argv[2])["avail_wifi_locked"].astype(bool)
    out.mkdir(parents=True, exist_ok=True)
    KEPT.mkdir(exist_ok=True)
    trace = out / "phones.npz"
    fedawe.Trace(recorded).save(trace)
    chosen, frames, audits = texts(), [], []
    for assignment in ASSIGNMENTS:
        began, made = time.monotonic(), experiment(assignment, trace, chosen)
        made.run(out / assignment, jobs=1, warn=print)
        frames.append(neighbours.only(fedawe.load(out / assignment).frame(), chosen.values()))
        audits.append(audited(assignment, made))
        print(f"{assignment}: {time.monotonic() - began:.0f} s", flush=True)
    keep(frames, neighbours.COLUMNS, KEPT / "evaluations.csv.gz")
    pd.concat(audits).to_csv(KEPT / "audit.csv", index=False, float_format="%.6f")
    write_all()


if __name__ == "__main__":
    main()
