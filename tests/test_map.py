"""What docs/map.md shows is what lies in results/map, and that follows from the evaluations that lie there too."""

from itertools import product
from pathlib import Path
from types import ModuleType

import numpy as np
import pandas as pd
import pytest
import scripts

import fedawe
from fedawe.audit import audit

ROOT = Path(__file__).parent.parent
KEPT = ROOT / "results" / "map"
DYNAMICS = ("stationary", "staircase", "interleaved")
PAGE = (ROOT / "docs" / "map.md").read_text(encoding="utf-8")


@pytest.fixture(scope="module")
def script() -> ModuleType:
    return scripts.script("map")


@pytest.fixture(scope="module")
def evaluations() -> pd.DataFrame:
    return pd.read_csv(KEPT / "evaluations.csv.gz")


@pytest.fixture(scope="module")
def made(script: ModuleType, evaluations: pd.DataFrame) -> dict[str, str]:
    found: dict[str, str] = script.tables(evaluations, pd.read_csv(KEPT / "search.csv.gz"))
    return found


def test_every_table_follows_from_the_evaluations(made: dict[str, str]) -> None:
    assert made.keys() == {path.name for path in KEPT.glob("*.md")}
    for name, text in made.items():
        assert text == (KEPT / name).read_text(encoding="utf-8"), name


def points() -> str:
    """The table of SVHN."""
    return (ROOT / "results" / "svhn" / "points.md").read_text(encoding="utf-8")


def test_the_points_of_svhn_follow_from_what_is_kept() -> None:
    """Their gains are those of the pages that they come from, and the audit is the mean over seeds."""
    script, said = scripts.script("svhn"), pd.read_csv(ROOT / "results" / "svhn" / "audit.csv")
    made = script.table(said)
    assert script.markdown(made) == points()
    assert sorted(said.seed.unique()) == [3, 4, 6]
    horizons = (ROOT / "results" / "conv" / "horizons.md").read_text(encoding="utf-8")
    sine = said[(said["data"] == "svhn") & (said.dynamics == "sine")]
    for row in made[:4]:
        own = 100 * sine[sine["rounds"] == row["rounds"]][["bias", "label_bias"]].mean()
        assert (row["bias (%)"], row["label bias (%)"]) == (f"{own.bias:.1f}", f"{own.label_bias:.1f}")
        for name in ("FedAU", "MIFA", "FedVARP", "F3AST", "FedAvg-known"):
            (line,) = (
                one
                for one in horizons.splitlines()
                if one.startswith(f"| equal rates | {name} | 0.1 | {row['rounds']} |")
            )
            assert f"| {str(row[name]).strip('*')} (" in line
    others = said[(said["data"] != "svhn") | (said.dynamics != "sine")].set_index(["data", "dynamics"])
    for row, fleet in zip(made[4:8], (*product(["svhn"], DYNAMICS), ("cifar10", "sine")), strict=True):
        assert row["fleet"] == f"the paper's {fleet[1]}" + (", CIFAR-10" if fleet[0] == "cifar10" else "")
        assert (row["seeds"], row["rounds"]) == (1, 2000)
        own = 100 * others.loc[[fleet], ["bias", "label_bias"]].mean()
        assert (row["bias (%)"], row["label bias (%)"]) == (f"{own.bias:.1f}", f"{own.label_bias:.1f}")
    for row, page in zip(made[8:], ("neighbours/sine", "fleets/untied", "fleets/tied"), strict=True):
        lines = (ROOT / "results" / f"{page}.md").read_text(encoding="utf-8").splitlines()
        for rule, name in {
            "mifa": "MIFA",
            "fedau": "FedAU",
            "fedvarp": "FedVARP",
            "fedawe:clip=0.5": "FedAWE, clip 0.5",
        }.items():
            (line,) = (one for one in lines if one.startswith(f"| {rule} |"))
            assert f"| {str(row[name]).strip('*')} (" in line


def test_every_number_in_the_sentences_is_in_a_table_or_a_setting(script: ModuleType, made: dict[str, str]) -> None:
    """Numbers with a decimal or a sign are results, and stand in a table; the others are settings or counts."""
    settings = {f"{value:g}" for value in (*script.SPREADS.values(), script.MEAN, script.LEAST, script.VALIDATION)}
    settings |= {f"{value:g}" for grid in (*script.LOCAL.values(), *script.SERVER.values()) for value in grid}
    settings |= {f"{fleet.alpha:g}" for fleet in script.FLEETS} | {
        f"{script.MIDDLE[data].alpha:g}" for data in script.MIDDLE
    }
    settings.add(f"{fedawe.F3AST().beta:g}")
    found = scripts.decimals_of_sentences(PAGE)
    assert found
    assert found <= scripts.decimals(" ".join([*made.values(), points()])) | settings


def test_every_cell_is_whole_and_has_a_seed_of_its_own(script: ModuleType, evaluations: pd.DataFrame) -> None:
    fleets = {fleet.name: fleet for fleet in script.FLEETS}
    assert len(fleets) == len(script.FLEETS)
    for (name, seed, _), own in evaluations.groupby(["fleet", "seed", "rounds"]):
        assert seed in script.seeds_of(fleets[name])
        assert sorted(own.algorithm) == sorted(script.ALGORITHMS)
    seeds = [seed for fleet in script.FLEETS for seed in script.seeds_of(fleet)]
    assert len(set(seeds)) == len(seeds)
    assert not set(seeds) & set(script.SEARCH_SEEDS)


@pytest.mark.parametrize("name", ["digits-0.1-equal", "digits-0.1-extreme-tied", "synthetic-1-extreme-tied"])
def test_the_bias_is_what_the_audit_says(script: ModuleType, evaluations: pd.DataFrame, name: str) -> None:
    fleet = next(each for each in script.FLEETS if each.name == name)
    seed = script.seeds_of(fleet)[0]
    population = script.experiment_at(fleet, seed, ["fedavg"]).population(seed)
    trace = population.trace.first(100)
    found = audit(trace)
    row = evaluations[(evaluations.fleet == name) & (evaluations.seed == seed) & (evaluations["rounds"] == 100)].iloc[0]
    seen = trace.on.any(0)
    assert row.bias == pytest.approx(found.influences["fedavg"].among(seen), abs=1e-5)
    assert row.advice == found.advice.algorithm
    labels = population.task.frequencies
    influence = sum(on / max(on.sum(), 1) for on in trace.on.astype(float))  # every round has one unit to share
    counted = sum(share * own for share, own in zip(influence / influence.sum(), labels, strict=True))
    assert row.label_bias == pytest.approx(sum(abs(counted - labels.mean(0))) / 2, abs=1e-5)


def test_fleets_have_the_same_probabilities_in_another_order(script: ModuleType) -> None:
    tied, permuted = (script.Fleet("digits", 0.1, "extreme", tied) for tied in (True, False))
    p = {each: script.experiment_at(each, 5, ["fedavg"]).population(5).p for each in (tied, permuted)}
    np.testing.assert_array_equal(np.sort(p[tied]), np.sort(p[permuted]))
    rule = script.experiment_at(script.Fleet("digits", 0.1, "paper", True), 5, ["fedavg"]).population(5).p
    order = np.argsort(rule, kind="stable")
    assert (np.diff(p[tied][order]) >= 0).all()
    assert not (np.diff(p[permuted][order]) >= 0).all()
    for spread in script.SPREADS:
        assert script.base_probabilities(spread).mean() == pytest.approx(script.MEAN, abs=0.01)


def test_the_window_meets_every_phase_of_the_period_once(script: ModuleType) -> None:
    for rounds in script.HORIZONS:
        window = [n for n in range(rounds - script.WINDOW + 1, rounds + 1) if n % script.EVERY == 0]
        assert sorted(n % 20 for n in window) == list(range(20))


def test_accuracy_on_synthetic_is_a_mean_over_clients(script: ModuleType) -> None:
    data = script.synthetic(5, 1.0, 1.0)
    assert len(data.y_test) == script.CLIENTS * script.HELD["test"]
    assert len(data.y_val) == script.CLIENTS * script.HELD["val"]
    assert np.bincount(data.client).max() <= script.MOST
    rows = {tuple(row) for part in (data.x_train, data.x_val, data.x_test) for row in part.tolist()}
    assert len(rows) == len(data.y_train) + len(data.y_val) + len(data.y_test)


def test_the_figure_is_small_and_shows_every_fleet(script: ModuleType, evaluations: pd.DataFrame) -> None:
    assert (KEPT / "map.svg").stat().st_size < 300_000
    assert sum(path.stat().st_size for path in KEPT.iterdir()) < 1_000_000
    assert (ROOT / "docs" / "map.svg").read_bytes() == (KEPT / "map.svg").read_bytes()
    drawn = script.figure(evaluations)
    for ax, rule in zip(drawn.axes, script.RULES, strict=False):
        assert ax.get_title() == script.NAMES[rule]
        assert len(ax.containers) == evaluations.fleet.nunique()
