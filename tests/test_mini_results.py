"""Figure 3, and availability that the paper does not have: tables and sentences follow from what results/mini keeps."""

import csv
import io

import numpy as np
import pandas as pd
import pytest
import scipy.stats
import scripts

KEPT = scripts.RESULTS / "mini"
LABELS = {"FedAWE": "fedawe(clip=0.5,eta0=0.1)", "FedAvg": "fedavg(eta0=0.1)", "MIFA": "mifa(eta0=0.1)"}
PS, GAMMAS = ("0.1", "0.3", "0.5", "1"), ("0.1", "0.2", "0.3", "0.5")


@pytest.fixture(scope="module")
def evaluations() -> pd.DataFrame:
    return pd.read_csv(KEPT / "evaluations.csv.gz")


def means(evaluations: pd.DataFrame, p: str, gamma: str) -> list[float]:
    """Percent, for seeds 3, 4 and 6: over rounds 352, 354, ..., 400."""
    runs = evaluations[evaluations.folder == f"svhn-same-p={p}-gamma={gamma}"]
    assert sorted(runs.seed.unique()) == [3, 4, 6]
    assert set(runs.status) == {"complete"}
    last = runs[runs["round"].isin(range(352, 401, 2))].groupby("seed").test_accuracy
    assert last.size().to_list() == [25] * 3
    return [100 * float(value) for value in last.mean()]


def test_every_accuracy_is_what_numpy_says(evaluations: pd.DataFrame) -> None:
    table = list(csv.DictReader(io.StringIO((KEPT / "fig3.csv").read_text(encoding="utf-8"))))
    assert [row["p"] for row in table] == ["0.1", "0.3", "0.5", "1.0"]
    for p, row in zip(PS, table, strict=True):
        for gamma in GAMMAS:
            found = means(evaluations, p, gamma)
            assert float(row[gamma]) == pytest.approx(np.mean(found), abs=1e-3)
            assert float(row[f"{gamma}_std"]) == pytest.approx(np.std(found, ddof=1), abs=1e-3)


def test_every_change_is_what_scipy_says(evaluations: pd.DataFrame) -> None:
    said = (KEPT / "fig3.txt").read_text(encoding="utf-8").splitlines()
    assert len(said) == len(PS)
    for p, sentence in zip(PS, said, strict=True):
        change = np.subtract(means(evaluations, p, GAMMAS[-1]), means(evaluations, p, GAMMAS[0]))
        low, high = scipy.stats.ttest_1samp(change, 0).confidence_interval()
        assert f"p = {p}:" in sentence
        assert f"{change.mean():+.1f} points (95 % interval {low:+.1f} to {high:+.1f})" in sentence


def table(name: str) -> list[dict[str, str]]:
    return list(csv.DictReader(io.StringIO((KEPT / name).read_text(encoding="utf-8"))))


def last_50(evaluations: pd.DataFrame, folder: str, algorithm: str) -> list[float]:
    """Percent, for seeds 3, 4 and 6: over rounds 752, 754, ..., 800."""
    runs = evaluations[(evaluations.folder == folder) & (evaluations.label == LABELS[algorithm])]
    assert set(runs.status) == {"complete"}
    last = runs[runs["round"].isin(range(752, 801, 2))].groupby("seed").test_accuracy
    assert last.size().to_dict() == {3: 25, 4: 25, 6: 25}
    return [100 * float(value) for value in last.mean()]


def test_other_availability_is_what_scipy_says(evaluations: pd.DataFrame) -> None:
    rows = table("beyond.csv")
    assert [row["algorithm"] for row in rows] == list(LABELS)
    for dynamics in ("markov", "cyclic", "outages"):
        ours = last_50(evaluations, f"svhn-{dynamics}", "FedAWE")
        for row in rows:
            found = last_50(evaluations, f"svhn-{dynamics}", row["algorithm"])
            assert float(row[dynamics]) == pytest.approx(np.mean(found), abs=1e-3)
            if row["algorithm"] != "FedAWE":
                lead = np.subtract(ours, found)
                low, high = scipy.stats.ttest_1samp(lead, 0).confidence_interval()
                said = [float(row[f"{dynamics}_lead{end}"]) for end in ("", "_low", "_high")]
                assert said == pytest.approx([lead.mean(), low, high], abs=1e-3)


def test_what_the_page_says_of_other_availability(evaluations: pd.DataFrame) -> None:
    for dynamics in ("markov", "cyclic", "outages"):
        means = {name: np.mean(last_50(evaluations, f"svhn-{dynamics}", name)) for name in LABELS}
        assert max(means, key=lambda name: float(means[name])) == "MIFA"
    least, middle, most = sorted(last_50(evaluations, "svhn-cyclic", "FedAWE"))
    assert middle - least > 5 * (most - middle)


FOLDERS = {  # of tables 9 and 10
    "table9": {"γ = 0.3": "svhn-sine", "γ = 0.2": "svhn-sine-gamma=0.2", "γ = 0.1": "svhn-sine-gamma=0.1"},
    "table10": {"α = 0.05": "svhn-sine-alpha=0.05", "α = 0.1": "svhn-sine", "α = 1.0": "svhn-sine-alpha=1.0"},
}


def labelled(evaluations: pd.DataFrame, name: str) -> str:
    """The label of an algorithm of table 9 or 10 at equal rates."""
    text = f"{name.lower()}({'clip=0.5,' if name == 'FedAWE' else ''}eta0=0.1)"
    assert text in set(evaluations.label)
    return text


@pytest.mark.parametrize("name", FOLDERS)
def test_tables_9_and_10_are_what_numpy_says(evaluations: pd.DataFrame, name: str) -> None:
    rows = table(f"{name}.csv")
    assert {row["setting"] for row in rows} == FOLDERS[name].keys()
    for row in rows:
        runs = evaluations[evaluations.folder == FOLDERS[name][row["setting"]]]
        runs = runs[(runs.label == labelled(evaluations, row["algorithm"])) & runs["round"].isin(range(752, 801, 2))]
        assert set(runs.status) == {"complete"}
        for metric in ("test", "train"):
            found = 100 * runs.groupby("seed")[f"{metric}_accuracy"].mean()
            assert len(found) == int(row[f"{metric}_here_seeds"]) == 3
            assert float(row[f"{metric}_here"]) == pytest.approx(found.mean(), abs=1e-3)
            assert float(row[f"{metric}_here_std"]) == pytest.approx(found.std(ddof=1), abs=1e-3)


@pytest.mark.parametrize(("short", "name"), [("gamma.md", "table9"), ("alpha.md", "table10")])
def test_their_short_forms_are_what_scipy_says(evaluations: pd.DataFrame, short: str, name: str) -> None:
    def by_seed(setting: str, algorithm: str) -> np.ndarray:
        runs = evaluations[evaluations.folder == FOLDERS[name][setting]]
        runs = runs[(runs.label == labelled(evaluations, algorithm)) & runs["round"].isin(range(752, 801, 2))]
        return 100 * runs.groupby("seed").test_accuracy.mean().to_numpy()

    rows = scripts.rows((KEPT / short).read_text(encoding="utf-8"))
    printed = {(row["setting"], row["algorithm"]): row for row in table(f"{name}.csv")}
    assert {(row["setting"], row["algorithm"]) for row in rows} == printed.keys()
    for row in rows:
        found, base = by_seed(row["setting"], row["algorithm"]), by_seed(row["setting"], "FedAvg")
        assert row["test accuracy"] == f"{found.mean():.1f} ± {found.std(ddof=1):.1f}"
        if row["algorithm"] != "FedAvg":
            low, high = scipy.stats.ttest_1samp(found - base, 0).confidence_interval()
            assert row["minus FedAvg (95 %)"] == f"{(found - base).mean():+.1f} ({low:+.1f} to {high:+.1f})"
            theirs = [float(printed[row["setting"], each]["test_paper"]) for each in (row["algorithm"], "FedAvg")]
            assert row["minus FedAvg, the paper"] == f"{theirs[0] - theirs[1]:+.1f}"
