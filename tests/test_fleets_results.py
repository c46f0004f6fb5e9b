"""The section on phones whose labels are tied to availability: its tables follow from results/fleets."""

from pathlib import Path
from types import ModuleType

import numpy as np
import pandas as pd
import pytest
import scripts

import fedawe
from fedawe.core.rng import rng

KEPT = scripts.RESULTS / "fleets"
SECTION = (
    scripts.page("results.md").partition("## Phones whose labels are tied to availability\n")[2].partition("\n## ")[0]
)


@pytest.fixture(scope="module")
def script() -> ModuleType:
    return scripts.script("fleets")


@pytest.fixture(scope="module")
def evaluations() -> pd.DataFrame:
    return pd.read_csv(KEPT / "evaluations.csv.gz")


@pytest.fixture(scope="module")
def audits() -> pd.DataFrame:
    return pd.read_csv(KEPT / "audit.csv")


@pytest.fixture(scope="module")
def made(script: ModuleType, evaluations: pd.DataFrame, audits: pd.DataFrame) -> dict[str, str]:
    found: dict[str, str] = script.tables(evaluations, audits)
    return found


def test_every_table_follows_from_the_evaluations(made: dict[str, str]) -> None:
    assert made.keys() == {path.name for path in KEPT.glob("*.md")}
    for name, text in made.items():
        assert text == (KEPT / name).read_text(encoding="utf-8"), name


def test_every_decimal_number_of_the_section_is_in_a_table(made: dict[str, str]) -> None:
    found = scripts.decimals_of_sentences(SECTION)
    assert found
    assert found <= scripts.decimals(" ".join(made.values())) | {"0.1"}  # alpha of the partition


def test_every_run_is_complete_and_evaluated_on_the_test_data(evaluations: pd.DataFrame, script: ModuleType) -> None:
    assert set(evaluations.status) == {"complete"}
    runs = evaluations.groupby(["folder", "label", "seed"]).size()
    assert len(runs) == 2 * len(script.ALGORITHMS) * 3
    assert set(evaluations.seed) == {3, 4, 6}
    assert set(evaluations.folder) == {"untied", "tied"}


@pytest.mark.parametrize("assignment", ["untied", "tied"])
def test_accuracies_are_what_numpy_says(
    evaluations: pd.DataFrame, audits: pd.DataFrame, script: ModuleType, made: dict[str, str], assignment: str
) -> None:
    for row in scripts.rows(made[f"{assignment}.md"]):
        joint = "," if ":" in row["algorithm"] else ":"
        label = script.neighbours.label_of(f"{row['algorithm']}{joint}{row['rates']}")
        runs = evaluations[(evaluations.folder == assignment) & (evaluations.label == label)]
        window = runs[runs["round"] > 250]
        assert len(window) == 3 * 25
        by_seed = window.groupby("seed").mean(numeric_only=True)
        rare = by_seed[[f"test_accuracy_class_{digit}" for digit in (7, 8, 9)]].mean(axis=1)
        for name, values in (("test accuracy", by_seed.test_accuracy), ("digits 7 to 9", rare)):
            assert row[name] == f"{100 * values.mean():.1f} ± {100 * values.std():.1f}"
        said = audits[(audits.assignment == assignment) & (audits.algorithm == row["algorithm"])]
        assert row["bias (%)"].split()[0] == f"{100 * said.bias.mean():.1f}"


def test_the_untied_runs_are_those_of_the_comparison_of_neighbours(evaluations: pd.DataFrame) -> None:
    """The same settings and seeds, run again: every evaluation is the same."""
    before = pd.read_csv(scripts.RESULTS / "neighbours" / "evaluations.csv.gz")
    key = ["label", "seed", "round"]
    both = evaluations[evaluations.folder == "untied"].merge(before[before.folder == "phones"], on=key)
    assert len(both) == len(evaluations[evaluations.folder == "untied"])
    np.testing.assert_array_equal(both.test_accuracy_x, both.test_accuracy_y)


def test_tied_parts_are_the_same_parts(script: ModuleType) -> None:
    """Exchanged among the phones that are ever available: the more of the digits 7 to 9, the less available."""
    labels = np.random.default_rng(0).integers(10, size=5000)
    parts = list(fedawe.dirichlet_partition(labels, 100, 0.1, rng(3, "partition")))
    available = np.where(np.arange(100) % 4 == 0, 0.0, np.random.default_rng(1).random(100))
    tied = script.exchanged(parts, labels, available)
    assert sorted(tuple(part) for part in tied) == sorted(tuple(part) for part in parts)
    for phone in np.flatnonzero(available == 0):
        np.testing.assert_array_equal(tied[phone], parts[phone])
    phones = np.flatnonzero(available)
    phones = phones[np.argsort(available[phones])]
    held = [np.isin(labels[tied[phone]], (7, 8, 9)).mean() for phone in phones]
    assert held == sorted(held, reverse=True)
    assert held[0] > 0.9 > 0.01 > held[-1]


def test_the_partition_can_be_given_by_name(script: ModuleType, tmp_path: Path) -> None:
    labels = np.random.default_rng(0).integers(10, size=5000)
    trace = fedawe.Trace(np.random.default_rng(2).random((30, 100)) < np.linspace(0.05, 0.9, 100))
    path = tmp_path / "phones.npz"
    trace.save(path)
    parts = list(fedawe.dirichlet_partition(labels, 100, 0.1, rng(4, "partition")))
    expected = script.exchanged(parts, labels, trace.on[:10].mean(0))
    for one, other in zip(script.tied(labels, 4, str(path), 10), expected, strict=True):
        np.testing.assert_array_equal(one, other)


def test_tying_labels_changes_the_bias_of_labels_alone(audits: pd.DataFrame) -> None:
    both = audits.pivot_table(index=["algorithm", "seed"], columns="assignment", values=["bias", "label_bias"])
    np.testing.assert_allclose(both["bias"]["tied"], both["bias"]["untied"], atol=1e-6)
    assert (both["label_bias"]["tied"] > both["label_bias"]["untied"]).loc["fedavg"].all()


def test_the_audit_says_what_the_page_says(audits: pd.DataFrame) -> None:
    assert set(audits.advice) == {"mifa"}
    assert set(audits.never) == {25}
