"""When unbiased rules are worth it: the gain of each rule over FedAvg, against the bias that the audit computes.

A fleet is a data set divided among 100 clients, and base probabilities with a mean of about 0.3: with a small or large
spread, and assigned to clients by their labels or at random. Every fleet has three seeds that no other fleet has, so
that the cells of the map are independent. The rates of every rule were chosen once for each data set, on a fleet in the
middle of the map, by validation accuracy; every rule has the same number of trials.

usage: python results/map.py OUT [ROUNDS]    run what is missing, and write the results to results/map
       python results/map.py                 write tables and figure again from the stored evaluations

OUT is a folder for the runs. The same command resumes. ROUNDS limits the rounds of all runs; a later call without it
extends them.
"""

import dataclasses
import functools
import gzip
import itertools
import shutil
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import matplotlib
import numpy as np
import numpy.typing as npt
import pandas as pd
import scipy.stats
from matplotlib.figure import Figure
from tables import PAGES, interval, markdown, write

import fedawe
from fedawe.audit import audit
from fedawe.core.rng import rng
from fedawe.experiments.build import experiment_of
from fedawe.experiments.settings import Settings
from fedawe.results.standings import Difference, paired
from fedawe.tasks.classification import Classification, classification
from fedawe.tasks.data.labelled import Data, Role
from fedawe.tasks.synthetic import Synthetic

KEPT = Path(__file__).parent / "map"
Array = npt.NDArray[np.float64]
BASELINE = "fedavg"
RULES = ("fedau", "fedawe", "fedawe:clip=0.5", "mifa", "fedvarp", "f3ast", "fedavg-known")
ALGORITHMS = (BASELINE, *RULES)
NAMES = {
    "fedavg": "FedAvg",
    "fedau": "FedAU",
    "fedawe": "FedAWE",
    "fedawe:clip=0.5": "FedAWE, clip 0.5",
    "mifa": "MIFA",
    "fedvarp": "FedVARP",
    "f3ast": "F3AST",
    "fedavg-known": "FedAvg-known",
}
CLIENTS, MEAN = 100, 0.3
SPREADS = {"equal": 0.0, "mild": 0.1, "strong": 0.2, "extreme": 0.3}  # standard deviation of the base probabilities
LEAST = 0.02  # the least base probability
LOCAL = {"digits": (0.4, 0.8, 1.6), "synthetic": (0.03, 0.1, 0.3, 1.0, 3.0)}  # eta0
SERVER = {"digits": (0.25, 0.5, 1.0, 2.0, 4.0), "synthetic": (1.0, 2.0, 4.0, 8.0)}  # eta_g
WINDOW, EVERY = 60, 3  # 20 evaluations, one at each phase of the period of 20
HORIZONS = (100, 300, 1000)
STEPS, BATCH, VALIDATION, SEARCH_ROUNDS = 5, 8, 0.2, 150
SEARCH_SEEDS = (0, 1)
SAFE = 5  # points of validation accuracy by which the next larger rate may be worse
SEEDS = 3
BANDS = ((3, "below 3 %"), (8, "3 to 8 %"), (15, "8 to 15 %"), (101, "15 % and more"))
HALVES = (("below 8 %", 0.0, 0.08), ("8 % and more", 0.08, 2.0))
LIMITS = (-15, 18)  # of the vertical axis of the figure, in points
# Samples of each client of Synthetic: for validation and test, and at most for training.
HELD, MOST = {"val": 5, "test": 10}, 100


@dataclass(frozen=True)
class Fleet:
    """Clients with data and base probabilities.

    data    digits or synthetic
    alpha   of the Dirichlet partition; for synthetic, alpha and beta of the data
    spread  of the base probabilities; "paper": p_i = <nu_i, phi>, whatever their mean
    tied    whether the clients with the labels that the paper's rule prefers are available most
    rounds  number of rounds
    """

    data: str
    alpha: float
    spread: str
    tied: bool
    rounds: int = 300

    @property
    def name(self) -> str:
        """The name of its folder."""
        how = "" if self.spread in ("equal", "paper") else "-tied" if self.tied else "-permuted"
        return f"{self.data}-{self.alpha:g}-{self.spread}{how}"


MIDDLE = {
    "digits": Fleet("digits", 0.3, "strong", True, SEARCH_ROUNDS),
    "synthetic": Fleet("synthetic", 0.5, "strong", True, SEARCH_ROUNDS),
}
FLEETS = (
    Fleet("digits", 0.1, "equal", False),
    Fleet("digits", 0.1, "extreme", True),
    Fleet("synthetic", 1.0, "extreme", True),
    Fleet("synthetic", 1.0, "equal", False),
    Fleet("digits", 0.1, "strong", True),
    Fleet("digits", 0.1, "extreme", False),
    Fleet("synthetic", 1.0, "extreme", False),
    Fleet("digits", 1.0, "extreme", True),
    Fleet("digits", 0.1, "paper", True),
    Fleet("synthetic", 1.0, "strong", True),
    Fleet("digits", 10.0, "extreme", True),
    Fleet("digits", 0.1, "mild", True),
    Fleet("synthetic", 0.0, "extreme", True),
    Fleet("digits", 1.0, "extreme", False),
    Fleet("digits", 10.0, "equal", False),
    Fleet("synthetic", 0.0, "equal", False),
    Fleet("synthetic", 0.0, "extreme", False),
    Fleet("digits", 1.0, "strong", True),
    Fleet("digits", 0.1, "strong", False),
    Fleet("synthetic", 0.0, "strong", True),
    Fleet("digits", 10.0, "extreme", False),
    Fleet("digits", 1.0, "equal", False),
)


def seeds_of(fleet: Fleet) -> tuple[int, ...]:
    """The seeds of a fleet, which no other fleet and no search has."""
    first = 100 + SEEDS * FLEETS.index(fleet)
    return tuple(range(first, first + SEEDS))


def base_probabilities(spread: str) -> Array:
    """The base probabilities of a fleet in increasing order: quantiles of a beta distribution, [m]."""
    deviation = SPREADS[spread]
    if deviation == 0:
        return np.full(CLIENTS, MEAN)
    total = MEAN * (1 - MEAN) / deviation**2 - 1
    found = scipy.stats.beta.ppf((np.arange(CLIENTS) + 0.5) / CLIENTS, MEAN * total, (1 - MEAN) * total)
    return np.asarray(np.maximum(found, LEAST))


@functools.lru_cache(maxsize=1)
def synthetic(seed: int, alpha: float, beta: float) -> Data:
    """Synthetic(alpha, beta) with the same number of test samples for all clients: accuracy is a mean over clients."""
    data = Synthetic(CLIENTS, alpha, beta).data(seed)
    owner = np.asarray(data.client)
    sizes = np.bincount(owner)
    kept: dict[str, list[int]] = {"train": [], "val": [], "test": []}
    for end, size in zip(np.cumsum(sizes), sizes, strict=True):
        first = end - size
        kept["train"] += range(first, first + min(size - HELD["val"] - HELD["test"], MOST))
        kept["val"] += range(end - HELD["val"] - HELD["test"], end - HELD["test"])
        kept["test"] += range(end - HELD["test"], end)
    rows: dict[str, Any] = {f"x_{part}": data.x_train[at] for part, at in kept.items()}
    rows |= {f"y_{part}": data.y_train[at] for part, at in kept.items()}
    return dataclasses.replace(data, client=owner[kept["train"]], **rows)


def even(seed: int, alpha: float, beta: float, evaluate_on: Sequence[Role]) -> Classification:
    """The task: a softmax network on these data."""
    return classification(synthetic(seed, alpha, beta), "softmax", seed=seed, evaluate_on=evaluate_on)


def settings_of(fleet: Fleet, searching: bool) -> Settings:
    """The settings of all runs of a fleet, except for the base probabilities."""
    own: dict[str, Any] = {"task": fleet.data, "clients": CLIENTS}
    if fleet.data == "digits":
        own |= {"alpha": fleet.alpha, "evaluate_on": ("validation",) if searching else ("test",)}
        own |= {"validation": VALIDATION} if searching else {}
    last = (WINDOW, EVERY) if searching else None
    every = fleet.rounds if searching else EVERY
    return Settings(**own, rounds=fleet.rounds, steps=STEPS, batch=BATCH, evaluate_every=every, evaluate_last=last)


def experiment_at(fleet: Fleet, seed: int, texts: Sequence[str], searching: bool = False) -> fedawe.Experiment:
    """The experiment of one seed; each seed has base probabilities that depend on the labels of its clients."""
    found = experiment_of(settings_of(fleet, searching), texts, (seed,))
    if fleet.data == "synthetic":
        parts: tuple[Role, ...] = ("validation",) if searching else ("test",)
        task = functools.partial(even, alpha=fleet.alpha, beta=fleet.alpha, evaluate_on=parts)
        found = dataclasses.replace(found, task=task)
    if fleet.spread == "paper":
        return found
    by_labels = found.population(seed).p  # the paper's rule
    assert by_labels is not None
    order = np.argsort(by_labels, kind="stable") if fleet.tied else rng(seed, "permuted").permutation(CLIENTS)
    p = np.empty(CLIENTS)
    p[order] = base_probabilities(fleet.spread)
    return dataclasses.replace(found, p=p)


def audited(fleet: Fleet, seed: int, rounds: int) -> dict[str, Any]:
    """The audit of the fleet after this number of rounds.

    advice      the rule that the audit advises
    bias        of FedAvg, among clients that are ever active; bias_... of other rules (a clip cannot be audited)
    label_bias  distance in total variation between the mean label frequencies of clients, weighted by their influence
                under FedAvg, and their plain mean
    never       number of clients that are never active
    """
    population = experiment_at(fleet, seed, [BASELINE]).population(seed)
    trace = population.trace.first(rounds)
    found = audit(trace)
    seen = np.asarray(trace.on.any(0))
    labels = np.asarray(population.task.frequencies)
    moved = np.abs(found.influences[BASELINE].shares @ labels - labels.mean(0)).sum() / 2
    biases = {f"bias_{rule}": found.influences[rule].among(seen) for rule in RULES if rule in found.influences}
    return {
        "advice": found.advice.algorithm,
        "bias": found.influences[BASELINE].among(seen),
        **biases,
        "label_bias": float(moved),
        "never": int((~seen).sum()),
    }


def grid_of(data: str) -> list[tuple[float, float]]:
    """All pairs of eta0 and eta_g."""
    return list(itertools.product(LOCAL[data], SERVER[data]))


def trials(data: str, algorithm: str) -> list[str]:
    """The algorithm with every pair of rates."""
    return [text_of(algorithm, f"{eta0} {eta_g}") for eta0, eta_g in grid_of(data)]


@functools.cache
def label_of(text: str) -> str:
    """The label of the runs of a spec."""
    return next(iter(experiment_of(Settings(), [text], (0,)).algorithms))


def window_means(folder: Path, rounds: int) -> pd.DataFrame:
    """The mean of every metric over the evaluations of the last rounds up to `rounds`, for every complete run."""
    frame = fedawe.load(folder).frame()
    after = frame["round"]
    inside = frame[(frame.status == "complete") & (after > rounds - WINDOW) & (after <= rounds) & (after % EVERY == 0)]
    metrics = [name for name in inside if "_accuracy" in str(name)]
    return inside.groupby(["label", "seed"])[metrics].mean().reset_index()


def search(out: Path, data: str) -> pd.DataFrame:
    """Run the search for rates: one row for every trial and seed, except for those that diverged."""
    fleet, found = MIDDLE[data], []
    texts = {(name, text): label_of(text) for name in ALGORITHMS for text in trials(data, name)}
    for seed in SEARCH_SEEDS:
        folder = out / f"{data}-search" / str(seed)
        experiment_at(fleet, seed, [text for _, text in texts], searching=True).run(folder, jobs=1, warn=print)
        found.append(window_means(folder, fleet.rounds))
    known = {label: pair for pair, label in texts.items()}
    frame = pd.concat(found)
    frame = frame[frame.label.isin(known)].copy()  # the folder may have other trials, from an earlier grid
    frame["algorithm"] = [known[label][0] for label in frame.label]
    frame["rates"] = [known[label][1].rpartition("eta0=")[2].replace(",eta_g=", " ") for label in frame.label]
    return frame.assign(data=data)[["data", "algorithm", "rates", "seed", "validation_accuracy"]]


def chosen(searched: pd.DataFrame, data: str) -> dict[str, str]:
    """The rates of every algorithm, "eta0 eta_g": the best by validation accuracy of those that are safe.

    Rates are safe if the accuracy at the next larger eta0 and at the next larger eta_g of the grid is at most `SAFE`
    points less, because they are used on other fleets too. A trial in which a seed diverged has accuracy 0.
    """
    best = {}
    for algorithm in ALGORITHMS:
        own = searched[(searched.data == data) & (searched.algorithm == algorithm)]
        found = own.groupby("rates").validation_accuracy.agg(["mean", "size"])
        whole = found[found["size"] == len(SEARCH_SEEDS)]["mean"].to_dict()
        accuracy = {rates: 100 * whole.get(f"{rates[0]} {rates[1]}", 0.0) for rates in grid_of(data)}
        safe = {rates: value for rates, value in accuracy.items() if _is_safe(accuracy, data, *rates)}
        eta0, eta_g = max(safe, key=lambda rates: safe[rates])
        best[algorithm] = f"{eta0} {eta_g}"
    return best


def _is_safe(accuracy: Mapping[tuple[float, float], float], data: str, eta0: float, eta_g: float) -> bool:
    larger = [(each, eta_g) for each in LOCAL[data] if each > eta0][:1]
    larger += [(eta0, each) for each in SERVER[data] if each > eta_g][:1]
    return all(accuracy[rates] >= accuracy[eta0, eta_g] - SAFE for rates in larger)


def text_of(algorithm: str, rates: str) -> str:
    """The spec of the algorithm with its rates for the command line."""
    eta0, eta_g = rates.split()
    return f"{algorithm}{',' if ':' in algorithm else ':'}eta0={eta0},eta_g={eta_g}"


def horizons(fleet: Fleet) -> list[int]:
    """The numbers of rounds after which the runs of a fleet are read."""
    return [rounds for rounds in HORIZONS if rounds <= fleet.rounds]


def run(out: Path, fleet: Fleet, seed: int, best: Mapping[str, str]) -> pd.DataFrame:
    """Run one seed of a fleet: one row for every algorithm and number of rounds."""
    texts = {label_of(text_of(name, rates)): name for name, rates in best.items()}
    folder, found = out / fleet.name / str(seed), []
    experiment_at(fleet, seed, [text_of(*pair) for pair in best.items()]).run(folder, jobs=1, warn=print)
    for rounds in horizons(fleet):
        frame = window_means(folder, rounds)
        frame["algorithm"] = [texts[label] for label in frame.label]
        found.append(frame.assign(rounds=rounds, **audited(fleet, seed, rounds)))
    fields = {name: getattr(fleet, name) for name in ("data", "alpha", "spread", "tied")}
    return pd.concat(found).drop(columns="label").rename(columns=short).assign(fleet=fleet.name, **fields)


def short(column: str) -> str:
    """The short name of a column of evaluations."""
    return column.replace("test_accuracy_class_", "class_")


def gains(frame: pd.DataFrame) -> pd.DataFrame:
    """One row for every fleet, seed, number of rounds and rule: its gain in points of accuracy over FedAvg.

    `worst_gain` is the same for the class with the least accuracy, which may be a different class for each rule.
    """
    cell = ["fleet", "seed", "rounds"]
    classes = [name for name in frame if str(name).startswith("class_")]
    own = frame.assign(worst=100 * frame[classes].min(axis=1), accuracy=100 * frame.test_accuracy)
    base = own[own.algorithm == BASELINE].set_index(cell)[["accuracy", "worst"]].add_suffix("_fedavg")
    rules = own[own.algorithm != BASELINE].join(base, on=cell, how="inner")
    return rules.assign(gain=rules.accuracy - rules.accuracy_fedavg, worst_gain=rules.worst - rules.worst_fedavg)


def mean_of(values: pd.Series) -> Difference | None:
    """The mean of the values with a 95 % interval (Student's t)."""
    return paired(dict(enumerate(values)), dict.fromkeys(range(len(values)), 0.0))


def band_of(label_bias: float) -> str:
    """The band in which a label bias lies."""
    return next(text for limit, text in BANDS if 100 * label_bias < limit)


def bold(difference: Difference | None) -> str:
    """A mean without its interval, in bold if the interval does not contain zero."""
    if difference is None:
        return ""
    return f"**{difference.mean:+.1f}**" if difference.sign else f"{difference.mean:+.1f}"


def rates_table(searched: pd.DataFrame) -> list[dict[str, str]]:
    """The rates that were chosen, whether they are on the edge of their grid, and their validation accuracy."""
    made = []
    for data in MIDDLE:
        best = chosen(searched, data)
        for algorithm, rates in best.items():
            eta0, eta_g = map(float, rates.split())
            ends = {"eta0": (eta0, LOCAL[data]), "eta_g": (eta_g, SERVER[data])}
            at = [name for name, (value, grid) in ends.items() if value in (grid[0], grid[-1])]
            own, base = validated(searched, data, algorithm, rates), validated(searched, data, BASELINE, best[BASELINE])
            made.append(
                {
                    "data": data,
                    "rule": NAMES[algorithm],
                    "eta0": f"{eta0:g}",
                    "eta_g": f"{eta_g:g}",
                    "at the edge of the grid": ", ".join(at) or "none",
                    "validation accuracy (%)": f"{np.mean(list(own.values())):.1f}",
                    "minus FedAvg, seed by seed": ", ".join(f"{own[seed] - base[seed]:+.1f}" for seed in own)
                    if algorithm != BASELINE
                    else "",
                }
            )
    return made


def validated(searched: pd.DataFrame, data: str, algorithm: str, rates: str) -> dict[int, float]:
    """The validation accuracy of a trial in percent, by seed."""
    own = searched[(searched.data == data) & (searched.algorithm == algorithm) & (searched.rates == rates)]
    return {int(seed): 100 * float(value) for seed, value in zip(own.seed, own.validation_accuracy, strict=True)}


def fleets_table(frame: pd.DataFrame, rounds: int) -> list[dict[str, str]]:
    """A row per fleet: its audit, FedAvg's accuracy, and the gain of each rule over it; the least label bias first."""
    found, made = gains(frame), []
    base = frame[(frame.algorithm == BASELINE) & (frame["rounds"] == rounds)]
    order = base.groupby(["data", "fleet"]).label_bias.mean().sort_values()
    for data, fleet in sorted(order.index, key=lambda pair: (pair[0], order[pair])):
        own = base[base.fleet == fleet]
        one = own.iloc[0]
        row = {
            "data": data,
            "rounds": str(rounds),
            "seeds": str(len(own)),
            "alpha": f"{one.alpha:g}",
            "spread of p": one.spread,
            "p tied to labels": "" if one.spread == "equal" else "yes" if one.tied else "no",
            "bias (%)": f"{100 * own.bias.mean():.1f}",
            "label bias (%)": f"{100 * own.label_bias.mean():.1f}",
            "the audit advises": advised(own.advice),
            "FedAvg (%)": f"{100 * own.test_accuracy.mean():.1f}",
        }
        mine = found[(found.fleet == fleet) & (found["rounds"] == rounds)]
        made.append({**row, **{NAMES[rule]: bold(mean_of(mine[mine.algorithm == rule].gain)) for rule in RULES}})
    return made


def advised(advice: pd.Series) -> str:
    """The algorithms that the audit advises over the seeds, the most frequent first."""
    return ", ".join(NAMES[name] for name in advice.value_counts().index)


def rest_table(frame: pd.DataFrame, rounds: int) -> list[dict[str, str]]:
    """The bias of every rule, by the spread of base probabilities."""
    own = frame[(frame.algorithm == BASELINE) & (frame["rounds"] == rounds)]
    made = []
    for spread in (*SPREADS, "paper"):
        cells = own[own.spread == spread]
        if cells.empty:
            continue
        row = {
            "rounds": str(rounds),
            "spread of p": spread,
            "cells": str(len(cells)),
            NAMES[BASELINE]: f"{100 * cells.bias.mean():.1f}",
        }
        audited = [rule for rule in RULES if f"bias_{rule}" in cells]
        made.append(row | {NAMES[rule]: f"{100 * cells[f'bias_{rule}'].mean():.1f}" for rule in audited})
    return made


def bands_table(frame: pd.DataFrame, rounds: int, data: str, metric: str = "gain") -> list[dict[str, str]]:
    """The gain of every rule, by bands of label bias: means over the cells of all fleets in a band."""
    found = gains(frame)
    found = found[(found.data == data) & (found["rounds"] == rounds)]
    bands = found.label_bias.map(band_of)
    made = []
    for _, band in BANDS:
        own = found[bands == band]
        if len(own):
            cells = own.drop_duplicates(["fleet", "seed"])
            row = {
                "rounds": str(rounds),
                "label bias": band,
                "cells": str(len(cells)),
                "bias (%)": f"{100 * cells.bias.mean():.0f}",
            }
            each = {NAMES[rule]: interval(mean_of(own[own.algorithm == rule][metric])) for rule in RULES}
            made.append(row | each)
    return made


def numbers_table(frame: pd.DataFrame, rounds: int) -> list[dict[str, str]]:
    """How well each number of the audit predicts the gain of each rule: squared correlation over cells, and slopes."""
    found, made = gains(frame), []
    for data, rule in itertools.product(MIDDLE, RULES):
        own = found[(found.data == data) & (found["rounds"] == rounds) & (found.algorithm == rule)]
        if own.fleet.nunique() < 3:
            continue
        row = {"data": data, "rounds": str(rounds), "rule": NAMES[rule]}
        for name, said in (("bias", "bias"), ("label_bias", "label bias")):
            line = scipy.stats.linregress(10 * own[name], own.gain)
            half = scipy.stats.t.ppf(0.975, len(own) - 2) * line.stderr
            row[f"R2, {said}"] = f"{line.rvalue**2:.2f}"
            row[f"gain for 10 points of {said}"] = interval(
                Difference(line.slope, line.slope - half, line.slope + half, (), "student")
            )
        made.append(row)
    return made


def horizons_table(frame: pd.DataFrame) -> list[dict[str, str]]:
    """The gain after several numbers of rounds, for fleets with little and with much label bias."""
    found, made = gains(frame), []
    biased = found[found["rounds"] == common(frame)].groupby("fleet").label_bias.mean()
    for data, (said, low, high) in itertools.product(MIDDLE, HALVES):
        fleets = biased[(biased >= low) & (biased < high)].index
        for rounds in HORIZONS:
            own = found[(found.data == data) & (found["rounds"] == rounds) & found.fleet.isin(fleets)]
            if len(own):
                row = {"data": data, "label bias": said, "rounds": str(rounds), "fleets": str(own.fleet.nunique())}
                each = {NAMES[rule]: bold(mean_of(own[own.algorithm == rule].gain)) for rule in RULES}
                made.append(row | each)
    return made


def common(frame: pd.DataFrame) -> int:
    """The largest number of rounds for which all cells have results."""
    return int(frame.groupby(["fleet", "seed"])["rounds"].max().min())


def tables(frame: pd.DataFrame, searched: pd.DataFrame) -> dict[str, str]:
    """All tables, by the names of their files."""
    rounds = common(frame)
    made = {
        "rates": rates_table(searched),
        "fleets": fleets_table(frame, rounds),
        "rest": rest_table(frame, rounds),
        "bands-digits": bands_table(frame, rounds, "digits"),
        "bands-synthetic": bands_table(frame, rounds, "synthetic"),
        "bands-worst": bands_table(frame, rounds, "digits", "worst_gain"),
        "numbers": numbers_table(frame, rounds),
        "horizons": horizons_table(frame),
    }
    return {f"{name}.md": markdown(rows) for name, rows in made.items() if rows}


def figure(frame: pd.DataFrame) -> Figure:
    """A panel for every rule: its gain over FedAvg against the label bias, a point with its interval for each fleet."""
    found, rounds = gains(frame), common(frame)
    found = found[found["rounds"] == rounds]
    made = Figure(figsize=(10, 5.4), layout="constrained")
    panels = made.subplots(2, 4, sharex=True, sharey=True).ravel()
    kinds = {(data, tied): None for data in MIDDLE for tied in (True, False)}
    colours = dict(zip(kinds, ("#1b6ca8", "#7fb8dd", "#c1440e", "#f0a57e"), strict=True))
    for ax, rule in zip(panels, RULES, strict=False):
        ax.axhline(0, color="0.3", linewidth=0.8)
        for _, own in found[found.algorithm == rule].groupby("fleet"):
            one, difference = own.iloc[0], mean_of(own.gain)
            assert difference is not None
            marker = "o" if one.data == "digits" else "s"
            ax.errorbar(
                100 * own.label_bias.mean(), difference.mean, fmt=marker, markersize=4, linewidth=0.9,
                yerr=None if difference.high is None else difference.high - difference.mean,
                color=colours[one.data, bool(one.tied)],
            )  # fmt: skip
        ax.set_title(NAMES[rule], fontsize=10)
        ax.grid(alpha=0.25)
    panels[0].set_ylim(*LIMITS)
    for ax in panels[:4]:
        ax.tick_params(labelbottom=False)
    panels[3].tick_params(labelbottom=True)
    made.supxlabel("label bias of FedAvg (%)", fontsize=10)
    made.supylabel(f"test accuracy minus FedAvg's after {rounds} rounds (points)", fontsize=10)
    panels[-1].axis("off")
    said = {True: "p tied to labels", False: "p equal, or permuted"}
    for data, tied in kinds:
        marker = "o" if data == "digits" else "s"
        panels[-1].plot([], [], marker, color=colours[data, tied], label=f"{data}: {said[tied]}", markersize=5)
    panels[-1].legend(
        loc="center",
        frameon=False,
        fontsize=9,
        title="one point for each fleet, with a\n95 % interval where it has 3 seeds",
    )
    return made


def write_all() -> None:
    """Write tables and figure from the stored evaluations, and the tables of the page."""
    frame, searched = pd.read_csv(KEPT / "evaluations.csv.gz"), pd.read_csv(KEPT / "search.csv.gz")
    write(KEPT, tables(frame, searched))
    drawn = figure(frame)
    drawn.savefig(KEPT / "map.png", dpi=130)
    with matplotlib.rc_context({"svg.hashsalt": "map", "svg.fonttype": "none"}):
        drawn.savefig(KEPT / "map.svg", metadata={"Date": None})
    shutil.copyfile(KEPT / "map.svg", PAGES / "map.svg")


def main() -> None:
    """Search for rates, run one seed of every fleet, then the next seed of every fleet, and write the results."""
    if len(sys.argv) == 1:
        write_all()
        return
    out, limit = Path(sys.argv[1]), int(sys.argv[2]) if len(sys.argv) > 2 else max(HORIZONS)
    KEPT.mkdir(exist_ok=True)
    began, searched, kept, best = time.process_time(), [], [], {}
    for data in MIDDLE:
        searched.append(search(out, data))
        best[data] = chosen(searched[-1], data)
        print(f"{data}: {best[data]}, {time.process_time() - began:.0f} s", flush=True)
    save(pd.concat(searched), "search.csv.gz")
    for number, fleet in itertools.product(range(SEEDS), FLEETS):
        seed, now = seeds_of(fleet)[number], dataclasses.replace(fleet, rounds=min(fleet.rounds, limit))
        kept.append(run(out, now, seed, best[fleet.data]))
        save(pd.concat(kept), "evaluations.csv.gz")
        print(f"{fleet.name}, seed {seed}: {time.process_time() - began:.0f} s", flush=True)
    write_all()


def save(frame: pd.DataFrame, name: str) -> None:
    """Write compressed CSV, with the same bytes for the same numbers."""
    text = frame.to_csv(index=False, float_format="%.5f")
    (KEPT / name).write_bytes(gzip.compress(text.encode(), mtime=0))


if __name__ == "__main__":
    main()
