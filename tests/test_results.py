"""What pages show of results is what lies in results/, and that follows from the evaluations that lie there too."""

from types import ModuleType

import numpy as np
import pandas as pd
import pytest
import scripts

KEPT = scripts.RESULTS
FLEETS = ("sine", "phones")
BANDS = ("digits", "synthetic", "worst")


@pytest.fixture(scope="module")
def evaluations() -> pd.DataFrame:
    return pd.read_csv(KEPT / "neighbours" / "evaluations.csv.gz")


@pytest.fixture(scope="module")
def script() -> ModuleType:
    return scripts.script("neighbours")


def test_every_table_on_a_page_is_the_one_that_was_made() -> None:
    """And every one that was made is on a page, but for those of a figure and long ones."""
    marks = [mark for path in scripts.PAGES for mark in scripts.TABLES.findall(path.read_text(encoding="utf-8"))]
    for name, text in marks:
        assert text.strip() == (KEPT / name).read_text(encoding="utf-8").strip(), name
    made = {str(path.relative_to(KEPT)) for path in KEPT.glob("*/*.md")}
    elsewhere = {"fig2/fig2.md", *(f"map/bands-{name}.md" for name in BANDS)}
    elsewhere |= {"mini/table9.md", "mini/table10.md"}  # a page has their short forms
    assert made - {name for name, _ in marks} == elsewhere


def test_every_sentence_quoted_on_the_page_was_said() -> None:
    said = " ".join(path.read_text(encoding="utf-8") for path in KEPT.glob("*/*.txt")).split()
    quotes = [line.removeprefix("> ") for line in scripts.page("results.md").splitlines() if line.startswith("> ")]
    assert quotes
    for quote in quotes:
        assert quote in " ".join(said), quote


@pytest.mark.parametrize("fleet", FLEETS)
def test_the_tables_follow_from_the_evaluations(evaluations: pd.DataFrame, script: ModuleType, fleet: str) -> None:
    trials, final = (evaluations[evaluations.folder == name] for name in (f"{fleet}-search", fleet))
    _, grids = script.searched(lambda _: trials)
    made = script.tables(fleet, trials, final, grids)
    assert set(made) == {f"{fleet}.md", f"{fleet}-search.md"}
    for name, table in made.items():
        assert table == (KEPT / "neighbours" / name).read_text(encoding="utf-8")


@pytest.mark.parametrize("fleet", FLEETS)
def test_accuracies_are_means_over_the_last_rounds(evaluations: pd.DataFrame, script: ModuleType, fleet: str) -> None:
    """Computed anew with numpy, from the rates that the table names."""
    lines = (KEPT / "neighbours" / f"{fleet}.md").read_text(encoding="utf-8").splitlines()
    heads = [cell.strip() for cell in lines[0].strip("|").split("|")]
    assert len(lines) == 2 + len(script.ALGORITHMS)
    for line in lines[2:]:
        row = dict(zip(heads, (cell.strip() for cell in line.strip("|").split("|")), strict=True))
        joint = "," if ":" in row["algorithm"] else ":"
        label = script.label_of(f"{row['algorithm']}{joint}{row['rates']}")
        runs = evaluations[(evaluations.folder == fleet) & (evaluations.label == label)]
        means = []
        for seed in (3, 4, 6):
            one = runs[runs.seed == seed]
            window = one[one["round"] > 250]
            assert len(window) == 25
            assert len({n % 20 for n in window["round"]}) == 10
            means.append(100 * window.test_accuracy.mean())
        assert row["test accuracy"] == f"{np.mean(means):.1f} ± {np.std(means, ddof=1):.1f}"


def test_no_trial_was_evaluated_on_the_test_set(evaluations: pd.DataFrame) -> None:
    trials = evaluations[evaluations.folder.str.endswith("-search")]
    assert trials.test_accuracy.isna().all()
    assert trials.validation_accuracy.notna().all()
    assert set(trials.seed) == {0, 1}
    assert set(evaluations[evaluations.folder.isin(FLEETS)].seed) == {3, 4, 6}


SETTINGS = {"0.05", "0.1", "0.2", "0.3", "0.4", "0.5", "0.001"}  # of the runs


@pytest.mark.parametrize("page", ["results.md", "details.md", "protocol.md"])
def test_every_number_in_the_sentences_is_in_a_table(page: str) -> None:
    """With one digit after the point, as the tables have them."""
    tables = " ".join(path.read_text(encoding="utf-8") for path in KEPT.glob("*/*.[mt][dx]*"))
    assert scripts.decimals_of_sentences(scripts.page(page)) <= scripts.decimals(tables) | SETTINGS


@pytest.mark.parametrize(("page", "end"), [("README.md", "\n## "), ("docs/faq.md", "\n\n")])
def test_what_other_pages_say_about_winning_is_in_a_table_too(page: str, end: str) -> None:
    text = (scripts.ROOT / page).read_text(encoding="utf-8").partition("Does FedAWE win?")[2].partition(end)[0]
    assert "results.md" in text
    tables = " ".join(path.read_text(encoding="utf-8") for path in KEPT.glob("*/*.md"))
    assert scripts.decimals(text) <= scripts.decimals(tables)
