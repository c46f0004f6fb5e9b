"""What docs/results.md shows is what lies in results/, and that follows from the evaluations that lie there too."""

import re
from pathlib import Path

import pandas as pd
import pytest

from fedawe.paper.plan import DYNAMICS, NAMES, Plan
from fedawe.paper.presets import presets

ROOT = Path(__file__).parent.parent
KEPT = ROOT / "results" / "mini"
PAGE = (ROOT / "docs" / "results.md").read_text(encoding="utf-8")
DATA = ("svhn", "cifar10")


@pytest.fixture(scope="module")
def evaluations() -> pd.DataFrame:
    return pd.read_csv(KEPT / "evaluations.csv.gz")


def window(frame: pd.DataFrame, folder: str, label: str, metric: str = "test_accuracy") -> pd.Series:
    """Percent by seed: the mean over the evaluations of the last 50 rounds."""
    runs = frame[(frame.folder == folder) & (frame.label == label) & (frame.status == "complete")]
    last = runs[runs["round"] > runs["round"].max() - 50]
    return 100 * last.groupby("seed")[metric].mean()


def labels(data: str, dynamics: str) -> dict[str, str]:
    return {each.name: each.label for each in Plan(presets()["mini"]).planned(data, dynamics).variants}


def test_every_table_on_the_page_is_the_one_that_was_made() -> None:
    shown = re.findall(r"<!-- (\S+\.md) -->\n(.*?)\n<!-- end -->", PAGE, flags=re.DOTALL)
    assert {f"table2-{data}.md" for data in DATA} <= {name for name, _ in shown}
    for name, text in shown:
        assert text.strip() == (KEPT / name).read_text(encoding="utf-8").strip(), name


def test_every_sentence_quoted_on_the_page_was_said() -> None:
    said = " ".join(path.read_text(encoding="utf-8") for path in KEPT.glob("*.txt")).split()
    quotes = [line.removeprefix("> ") for line in PAGE.splitlines() if line.startswith("> ")]
    assert quotes
    for quote in quotes:
        assert quote in " ".join(said), quote


@pytest.mark.parametrize("data", DATA)
def test_table_2_follows_from_the_evaluations(evaluations: pd.DataFrame, data: str) -> None:
    table = pd.read_csv(KEPT / f"table2-{data}.csv").set_index(["setting", "algorithm"])
    for dynamics in DYNAMICS:
        for name, label in labels(data, dynamics).items():
            row = table.loc[dynamics, NAMES[name]]
            values = window(evaluations, f"{data}-{dynamics}", label)
            assert len(values) == row.test_here_seeds
            if len(values):
                assert row.test_here == pytest.approx(values.mean(), abs=2e-4)
            if len(values) > 1:
                assert row.test_here_std == pytest.approx(values.std(), abs=2e-4)


def test_all_runs_of_table_2_are_there(evaluations: pd.DataFrame) -> None:
    for data in DATA:
        for dynamics in DYNAMICS:
            runs = evaluations[evaluations.folder == f"{data}-{dynamics}"]
            for label in labels(data, dynamics).values():
                assert sorted(runs[runs.label == label].seed.unique()) == [3, 4, 6]
