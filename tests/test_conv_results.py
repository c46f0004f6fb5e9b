"""The section on the paper's network: its tables follow from results/conv, also while runs are under way."""

import json
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pandas as pd
import pytest
import scipy.stats
import scripts
from scripts import rows

from fedawe.audit.cautions import SLOW
from fedawe.results import record as records

KEPT = scripts.RESULTS / "conv"
SECTION = scripts.page("results.md").partition("## The paper's network\n")[2].partition("\n## ")[0]
EVALUATED = sorted({*range(0, 2001, 20), *range(1952, 2001, 2)})
RATES = json.loads((scripts.ROOT / "src" / "fedawe" / "paper" / "rates.json").read_text(encoding="utf-8"))
FEDAWE, FEDAVG, EQUAL = "fedawe(clip=0.5,eta0=0.1)", "fedavg(eta0=0.05)", "fedavg(eta0=0.1)"


@pytest.fixture(scope="module")
def script() -> ModuleType:
    return scripts.script("conv")


@pytest.fixture(scope="module")
def evaluations() -> pd.DataFrame:
    return pd.read_csv(KEPT / "evaluations.csv.gz")


@pytest.fixture(scope="module")
def made(script: ModuleType, evaluations: pd.DataFrame) -> dict[str, str]:
    found: dict[str, str] = script.tables(evaluations)
    return found


def of_the_sine(evaluations: pd.DataFrame) -> pd.DataFrame:
    """The runs at 16 x 16 pixels on SVHN under the sine."""
    wanted = {"folder": "conv", "data": "svhn", "dynamics": "sine"}
    return evaluations[np.logical_and.reduce([evaluations[name] == value for name, value in wanted.items()])]


# What is kept


def test_every_table_follows_from_the_evaluations(made: dict[str, str]) -> None:
    assert made.keys() == {path.name for path in KEPT.glob("*.md")}
    for name, text in made.items():
        assert text == (KEPT / name).read_text(encoding="utf-8"), name


def test_every_decimal_number_of_the_section_is_in_a_table(made: dict[str, str]) -> None:
    """Apart from settings: rates and the clip."""
    known = scripts.decimals(" ".join(made.values())) | {"0.1", "0.05", "0.5"}
    assert scripts.decimals_of_sentences(SECTION) <= known


def test_what_is_kept_is_what_was_run(evaluations: pd.DataFrame, script: ModuleType) -> None:
    assert set(evaluations.folder) <= {"conv", "search", "paper"}
    trials = evaluations.folder == "search"
    assert set(evaluations[~trials].label) <= set(script.every_variant())
    assert set(evaluations["data"]) <= {"svhn", "cifar10"}
    assert set(evaluations[~trials].seed) <= {3, 4, 6}
    assert set(evaluations[trials].seed) <= {0, 1}
    assert evaluations[trials].test_accuracy.isna().all(), "rates were compared without a look at the test data"
    assert not evaluations.duplicated([*script.RUN, "round"]).any()
    whole = evaluations[(evaluations.status == "complete") & (evaluations.folder == "conv")]
    for _, run in whole.groupby(script.RUN):
        assert sorted(run["round"]) == EVALUATED
    assert sum(path.stat().st_size for path in KEPT.iterdir()) < 3_000_000


@pytest.mark.parametrize("kind", [kind for kind in ("paper", "equal", "tuned") if (KEPT / f"{kind}.md").exists()])
def test_accuracies_and_differences_are_what_numpy_says(
    evaluations: pd.DataFrame, made: dict[str, str], kind: str
) -> None:
    """Over rounds 1952, 1954, ..., 2000."""
    conv = of_the_sine(evaluations)

    def means(name: str, rate: str) -> dict[int, float]:
        label = f"{name.lower()}({'clip=0.5,' if name == 'FedAWE' else ''}eta0={rate.replace(', eta_g ', ',eta_g=')})"
        runs = conv[(conv.label == label) & (conv.status == "complete") & conv["round"].isin(range(1952, 2001, 2))]
        found = {int(str(seed)): one.test_accuracy.to_numpy() for seed, one in runs.groupby("seed")}
        assert {len(values) for values in found.values()} <= {25}
        return {seed: 100 * float(values.mean()) for seed, values in found.items()}

    table = rows(made[f"{kind}.md"])
    rate = {"paper": "0.05", "equal": "0.1", "tuned": "{:g}, eta_g {:g}".format(*RATES["conv"]["svhn"]["fedavg"])}[kind]
    base = means("FedAvg", rate)
    for row in table:
        own = means(row["algorithm"], row["eta0"])
        numbers = list(own.values())
        sd = f" ± {np.std(numbers, ddof=1):.1f}" if len(own) > 1 else ""
        assert row["test accuracy"] == f"{np.mean(numbers):.1f}{sd}"
        assert row["seeds"] == str(len(own))
        both = sorted(own.keys() & base.keys())
        if row["algorithm"] == "FedAvg" or not both:
            assert row["minus FedAvg (95 %)"] == row["pairs"] == row["p (Holm)"] == ""
            continue
        found = np.array([own[seed] - base[seed] for seed in both])
        assert row["pairs"] == str(len(both))
        if len(both) == 1:
            assert (row["minus FedAvg (95 %)"], row["p (Holm)"]) == (f"{found[0]:+.1f}", "")
        else:
            low, high = scipy.stats.ttest_1samp(found, 0).confidence_interval()
            assert row["minus FedAvg (95 %)"] == f"{found.mean():+.1f} ({low:+.1f} to {high:+.1f})"


def test_validation_accuracies_are_what_numpy_says(evaluations: pd.DataFrame, made: dict[str, str]) -> None:
    """Over rounds 152, 154, ..., 200 and both seeds; the rates that are used are those of the largest."""
    trials = evaluations[(evaluations.folder == "search") & evaluations["round"].isin(range(152, 201, 2))]
    best: dict[str, tuple[float, list[float]]] = {}
    for row in rows(made["search.md"]):
        algorithm, eta0, *cells = row.values()
        name, _, clipped = algorithm.lower().partition(", ")
        for eta_g, cell in zip((0.5, 1, 2, 4, 8), cells, strict=True):
            said = f"eta0={eta0}" + ("" if eta_g == 1 else f",eta_g={eta_g:g}")
            runs = trials[(trials.label == f"{name}({'clip=0.5,' if clipped else ''}{said})")]
            runs = runs[runs.status == "complete"]
            if runs.seed.nunique() < 2:
                assert cell == "—"
                continue
            assert runs.groupby("seed").size().to_list() == [25, 25]
            accuracy = 100 * float(runs.groupby("seed").validation_accuracy.mean().mean())
            assert cell.strip("*") == f"{accuracy:.1f}"
            best[algorithm.lower()] = max(best.get(algorithm.lower(), (0.0, [])), (accuracy, [float(eta0), eta_g]))
    assert {name: rates for name, (_, rates) in best.items()} == RATES.get("conv", {}).get("svhn", {})


def test_the_window_meets_ten_phases(script: ModuleType) -> None:
    """Five of them three times and five twice, as the page says; the last 40 rounds meet each twice."""
    window = [n for n in EVALUATED if n > 2000 - script.WINDOW]
    counts = np.unique([n % script.PERIOD for n in window], return_counts=True)[1]
    assert sorted(counts) == [2] * 5 + [3] * 5
    assert set(np.unique([n % 20 for n in window if n > 1960], return_counts=True)[1]) == {2}


def test_the_figure_shows_every_variant(script: ModuleType, evaluations: pd.DataFrame) -> None:
    drawn = script.curves(evaluations)
    conv = of_the_sine(evaluations)
    for ax, kind in zip(drawn.axes, script.begun(conv), strict=True):
        labels = {variant.label for variant in script.variants(kind).values()} & set(conv.label)
        assert len(ax.get_legend().get_texts()) == len(labels)
        assert len(ax.lines) == sum(1 + conv[conv.label == label].seed.nunique() for label in labels)


# Runs under way, and what is made of any runs


def run(
    label: str,
    seed: int,
    accuracy: Callable[[int], float],
    upto: int = 2000,
    status: str = "complete",
    fleet: tuple[str, str] = ("svhn", "sine"),
) -> str:
    """An invented run as JSON, so that it passes through the same types as what is kept."""
    lines = [
        {
            "folder": "conv", "data": fleet[0], "dynamics": fleet[1], "label": label, "seed": seed, "status": status,
            "round": n,
            "test_accuracy": accuracy(n), "latest_test_accuracy": accuracy(n) - 0.2 if "fedawe" in label else None,
            "received_test_accuracy": None if "fedawe" in label else accuracy(n) + 0.01,
            **{f"test_accuracy_class_{c}": accuracy(n) - c / 100 for c in range(10)}, "elapsed_seconds": 0.5 * n,
        }
        for n in EVALUATED if n <= upto
    ]  # fmt: skip
    return json.dumps(lines)


def frame(*runs: str) -> pd.DataFrame:
    return pd.DataFrame([line for text in runs for line in json.loads(text)])


def constant(value: float) -> Callable[[int], float]:
    return lambda n: value if n else 0.1


def test_runs_under_way_count_up_to_where_they_are(script: ModuleType) -> None:
    found = frame(
        run(FEDAWE, 3, constant(0.84)),
        run(FEDAWE, 4, constant(0.86), upto=1140, status="unfinished"),
        run(FEDAWE, 6, constant(0.99), upto=1000, status="diverged"),
        run(FEDAVG, 3, constant(0.80)),
        run(FEDAVG, 4, constant(0.81), upto=1140, status="unfinished"),
        run(EQUAL, 4, constant(0.82), upto=480, status="unfinished"),
    )
    made = script.tables(found)
    at_end = {row["algorithm"]: row for row in rows(made["paper.md"])}
    assert list(at_end) == ["FedAWE", "FedAvg"], "the best first"
    fedawe = at_end["FedAWE"]
    assert (fedawe["seeds"], fedawe["test accuracy"], fedawe["worst class"]) == ("1", "84.0", "75.0")
    assert (fedawe["minus FedAvg (95 %)"], fedawe["pairs"], fedawe["p (Holm)"]) == ("+4.0", "1", "")
    assert fedawe["the paper (32 x 32)"] == "85.6 ± 0.9"
    assert [row["algorithm"] for row in rows(made["equal.md"])] == ["FedAWE"], "FedAvg at this rate is under way"
    assert rows(made["equal.md"])[0]["minus FedAvg (95 %)"] == ""
    horizons = {(row["rates"], row["algorithm"], row["rounds"]): row for row in rows(made["horizons.md"])}
    assert horizons["the paper's rates", "FedAWE", "1000"]["test accuracy"] == "85.0 ± 1.4"
    assert horizons["the paper's rates", "FedAWE", "1000"]["minus FedAvg (95 %)"] == "+4.5 (-1.9 to +10.9)"
    assert horizons["the paper's rates", "FedAWE", "2000"]["seeds"] == "1"
    assert horizons["equal rates", "FedAWE", "300"]["minus FedAvg (95 %)"] == "+4.0"
    assert ("equal rates", "FedAvg", "500") not in horizons, "it is at round 480"
    models = {(row["rates"], row["algorithm"]): row for row in rows(made["models.md"])}
    assert models["the paper's rates", "FedAWE"]["last aggregate"] == "64.0"
    assert models["the paper's rates", "FedAWE"]["mean of the models received"] == "84.0"
    assert models["the paper's rates", "FedAvg"]["last aggregate"] == "80.0"
    assert models["the paper's rates", "FedAvg"]["mean of the models received"] == "81.0"
    assert models["the paper's rates", "FedAWE"]["mean of the models received: minus FedAvg (95 %)"] == "+3.0"
    assert "seed 4: 1140 (unfinished), seed 6: 1000 (diverged)" in made["runs.md"]
    assert made["full.md"] == script.NOTHING
    assert "FedAWE is 4.0 points ahead of FedAvg, with one seed, which says nothing about chance." in made["short.md"]
    assert "it is -16.0 for the last aggregate, and +3.0 for the mean of the models received." in made["short.md"]
    script.curves(found)


def test_other_data_and_dynamics_have_a_table_of_their_own(script: ModuleType) -> None:
    """And count nowhere else."""
    main = [run(FEDAWE, 3, constant(0.84)), run(EQUAL, 3, constant(0.83))]
    others = [
        run(FEDAWE, 3, constant(0.60), fleet=("cifar10", "sine")),
        run(EQUAL, 3, constant(0.62), fleet=("cifar10", "sine")),
        run(EQUAL, 3, constant(0.81), fleet=("svhn", "staircase")),
        run(FEDAWE, 3, lambda n: 0.70 if n < 900 else 0.82, fleet=("svhn", "staircase")),
        run(FEDAWE, 3, constant(0.90), upto=800, status="unfinished", fleet=("svhn", "stationary")),
    ]
    alone, made = script.tables(frame(*main)), script.tables(frame(*main, *others))
    assert {name for name in made if made[name] != alone[name]} == {"others.md", "runs.md"}
    assert alone["others.md"] == script.NOTHING
    found = {(row["data"], row["dynamics"], row["algorithm"]): row for row in rows(made["others.md"])}
    order = [("svhn", "staircase"), ("cifar10", "sine")]
    assert list(found) == [(*fleet, name) for fleet in order for name in ("FedAWE", "FedAvg")]
    fedawe = found["svhn", "staircase", "FedAWE"]
    assert (fedawe["test accuracy"], fedawe["minus FedAvg"], fedawe["last aggregate"]) == ("82.0", "+1.0", "62.0")
    assert (fedawe["after 300 rounds"], fedawe["after 1000 rounds"]) == ("-11.0", "+1.0")
    assert found["cifar10", "sine", "FedAWE"]["minus FedAvg"] == "-2.0"
    assert "conv, svhn, stationary | FedAWE | 0.1 | seed 3: 800 (unfinished)" in made["runs.md"]


def test_a_run_that_is_read_again_takes_the_place_of_what_was_kept(script: ModuleType, tmp_path: Path) -> None:
    before = frame(run(FEDAWE, 3, constant(0.84)), run(FEDAWE, 4, constant(0.80), upto=280, status="unfinished"))
    found = frame(run(FEDAWE, 4, constant(0.85)), run(FEDAWE, 3, constant(0.60), fleet=("cifar10", "sine")))
    path = tmp_path / "evaluations.csv.gz"
    assert script.merged(path, found, script.RUN) is found
    script.keep([before], script.COLUMNS, path)
    after = script.merged(path, found, script.RUN)
    ends = after.groupby(script.RUN).test_accuracy.agg(["size", "last"])
    assert ends.to_numpy().tolist() == [[len(EVALUATED), last] for last in (0.60, 0.84, 0.85)]


def test_the_search_names_the_best_rates_of_all_seeds(script: ModuleType) -> None:
    """The one of seed 0 alone is another; a trial of which a seed diverged does not count; the edge is named."""

    def trial(label: str, seed: int, accuracy: float, status: str = "complete") -> pd.DataFrame:
        found = frame(run(label, seed, constant(accuracy), upto=200, status=status))
        return found.assign(folder="search", validation_accuracy=found.test_accuracy, test_accuracy=None)

    grid = script.search_grid(
        pd.concat(
            [
                *(trial("fedavg(eta0=0.1)", seed, accuracy) for seed, accuracy in enumerate((0.7, 0.7))),
                *(trial("fedavg(eta0=0.1,eta_g=2)", seed, accuracy) for seed, accuracy in enumerate((0.8, 0.5))),
                trial("fedavg(eta0=0.2)", 0, 0.9),
                trial("fedavg(eta0=0.2)", 1, 0.9, status="diverged"),
                *(trial("fedawe(clip=0.5,eta0=0.05)", seed, 0.6) for seed in (0, 1)),
            ]
        )
    )
    assert grid.best() == {"fedavg": (0.1, 1.0), "fedawe, clipped": (0.05, 1.0)}
    assert grid.accuracies["fedavg"][0.1, 2.0] == pytest.approx(65)
    assert "the best eta0 lies on the edge of the grid for FedAWE, clipped" in grid.words()


def test_sentences_say_how_sure_they_are(script: ModuleType) -> None:
    base = {3: 80.0, 4: 81.0, 6: 82.0}
    assert script.standing({3: 82.0, 4: 83.1, 6: 83.9}, base).endswith("difference +1.8 to +2.2).")
    assert "behind FedAvg (3 seeds" in script.standing({3: 78.0, 4: 78.9, 6: 80.1}, base)
    assert script.standing({3: 80.0, 4: 83.0, 6: 83.0}, base).endswith("so that this may be chance).")
    assert script.standing({5: 80.0}, base) == "not compared yet: no seed has both runs."


def test_the_rate_of_fedavg_is_told_from_fedawe(script: ModuleType) -> None:
    made = script.tables(frame(run(FEDAVG, 3, constant(0.80)), run(EQUAL, 3, constant(0.83))))
    assert "FedAvg itself changes by +3.0 points when its eta0 goes from 0.05 to 0.1." in made["short.md"]


def test_table_8_counts_every_20th_round_of_complete_runs(script: ModuleType) -> None:
    made = script.tables(
        frame(
            run(FEDAWE, 3, lambda n: n / 2000),
            run(FEDAWE, 4, lambda n: n / 4000),
            run(FEDAWE, 6, constant(0.99), upto=900, status="unfinished"),
        )
    )
    row = rows(made["speed.md"])[0]
    assert [row[f"{target} %"] for target in (20, 40, 60, 80)] == ["540", "1080", "1600", "never"]
    assert [row[f"{target} %, the paper"] for target in (20, 40, 60, 80)] == ["40", "120", "200", "820"]


def test_the_audit_says_of_fedawe_what_was_found(made: dict[str, str]) -> None:
    """Less accurate than FedAvg at equal rates, on average, up to the number of rounds that the audit names."""
    found = [row for row in rows(made["horizons.md"]) if (row["rates"], row["algorithm"]) == ("equal rates", "FedAWE")]
    behind = [int(row["rounds"]) for row in found if row["minus FedAvg (95 %)"].startswith("-")]
    assert (behind[0], behind[-1]) == (int(found[0]["rounds"]), SLOW)


def test_one_phase_is_told_from_all(script: ModuleType) -> None:
    """Accuracy that swings with the period: 0.8 at phase 0, less at others."""
    (row,) = rows(script.tables(frame(run(FEDAWE, 3, lambda n: 0.8 - (n % 20) / 1000)))["phases.md"])
    assert (row["phase 0 alone"], row["least phase"], row["largest phase"]) == ("80.0", "78.2", "80.0")
    assert row["last 40, every phase twice"] == "79.1"


def text_of(lines: list[dict[str, Any]]) -> str:
    return "".join(records.seal(line) + "\n" for line in lines)


def test_records_are_read_while_they_are_written(script: ModuleType, tmp_path: Path) -> None:
    task = {"name": "svhn", "model": "paper", "image_size": 16}
    header: dict[str, Any] = {
        "kind": "header", "format": records.FORMAT, "label": FEDAVG, "seed": 3, "task": task, "local": {"batch": 32},
        "availability": {"title": "sine"},
    }  # fmt: skip
    lines: list[dict[str, Any]] = [header, *({"kind": "evaluation", "round": n, "test_accuracy": 0.5} for n in (0, 20))]
    others = {**header, "task": {**task, "image_size": None}, "local": {"batch": 128}}
    for place, text in {
        f"a/{FEDAVG}/seed-3": text_of(lines) + '{"kind":"evalua',
        f"b/{FEDAVG}/seed-4": text_of([others, *lines[1:], {"kind": "end", "status": "complete"}]),
        f"c/{FEDAVG}/seed-6": text_of([{**header, "task": {**task, "name": "cifar10"}}, *lines[1:2]]),
        f"d/{FEDAVG}/seed-6": text_of([{**header, "availability": {"title": "markov"}}, *lines[1:]]),
    }.items():
        path = tmp_path / place / "record.jsonl"
        path.parent.mkdir(parents=True)
        path.write_text(text, encoding="utf-8")
    found = script.read([tmp_path / name for name in "abcd"])
    assert found[[*script.RUN, "status", "round"]].to_numpy().tolist() == [
        ["conv", "svhn", "sine", FEDAVG, 3, "unfinished", 0],
        ["conv", "svhn", "sine", FEDAVG, 3, "unfinished", 20],
        ["paper", "svhn", "sine", FEDAVG, 4, "complete", 0],
        ["paper", "svhn", "sine", FEDAVG, 4, "complete", 20],
        ["conv", "cifar10", "sine", FEDAVG, 6, "unfinished", 0],
    ]
