"""The section on figure 3: its table and its sentences follow from the evaluations that results/mini keeps."""

import csv
import io

import numpy as np
import pandas as pd
import pytest
import scipy.stats
import scripts

KEPT = scripts.RESULTS / "mini"
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
