"""`fedawe reproduce all --preset smoke`, once: every table and figure is there and says what the records say."""

import contextlib
import csv
import dataclasses
import io
import json
import re
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import matplotlib.image
import numpy as np
import pytest
import scipy.stats
import torch
from rich.console import Console

from fedawe.cli import reproduce as verb
from fedawe.cli.main import main
from fedawe.core.errors import UserError
from fedawe.experiments import run as runs
from fedawe.paper.items import ITEMS, made, needed
from fedawe.paper.outcome import Outcome
from fedawe.paper.plan import NAMES, Plan
from fedawe.paper.presets import presets
from fedawe.paper.readings import Only, Readings
from fedawe.results import record as records

SEEDS = (0, 1)
FEDAWE = "fedawe.algorithms.fedawe:FedAWE"
WITHOUT_FEDVARP = [name for name in NAMES if name != "fedvarp"]
DYNAMICS = ["stationary", "staircase", "sine", "interleaved"]
# rows and columns as people see them, and the columns of the CSV
TABLES = {
    "fig2": (9, 7, 7),
    "table2-digits": (4 * 8, 8, 2 + 2 * 6),
    "table2-orderings": (1, 5 + 8, 8 + 8),
    "table2-worst-class": (8, 1 + 4, 1 + 4 * 2),
    "table8-digits": (7, 1 + 4 * 2, 1 + 4 * 2),
    "table9": (3 * 7, 8, 14),
    "table10": (3 * 7, 8, 14),
    "search-digits": (9 * 2, 4, 4),
    **{f"fairness-{n}": (8, 3 + 3 * 2, 5 + 3 * 6) for n in range(1, 6)},
    "fairness-parts": (6, 4, 11),
    "beyond": (8, 1 + 3 * 2, 1 + 3 * 6),
    "fig3": (4, 1 + 4, 1 + 4 * 2),
}
WORDS = {"fig2", "fig3", "table2", "table9", "table10", "search", "fairness", "beyond"}
FIGURES = {"fig2", "fig3", "fig4", "fig5", "fig6", "fig7"}


def fedawe(*arguments: str, columns: int = 80) -> str:
    """What the command writes to a terminal of this width."""
    said = io.StringIO()
    with pytest.MonkeyPatch.context() as patch, contextlib.redirect_stdout(said):
        patch.setattr(sys, "argv", ["fedawe", *arguments])
        patch.setenv("COLUMNS", str(columns))
        main()
    return said.getvalue()


def contents(folder: Path, pattern: str = "*") -> dict[str, bytes]:
    found = {str(path.relative_to(folder)): path for path in folder.rglob(pattern) if path.is_file()}
    return {name: path.read_bytes() for name, path in found.items() if path.name != ".lock"}


@dataclass(frozen=True)
class Smoke:
    """The suite, run twice: its folder, what it said, and the files after the first time."""

    out: Path
    said: str
    said_again: str
    first: dict[str, bytes]

    def outcome(self, item: str, readings: Readings | None = None, only: Only | None = None) -> Outcome:
        return made(item, Plan(presets()["smoke"], readings or Readings(), only or Only()), self.out / "runs")

    def rows(self, name: str) -> list[dict[str, str]]:
        with (self.out / "tables" / f"{name}.csv").open(encoding="utf-8", newline="") as file:
            return list(csv.DictReader(file))

    def accuracy(self, folder: str, label: str, name: str = "test_accuracy") -> list[float]:
        """The last evaluation of each seed, in percent, from the bare JSON: six rounds have no window of fifty."""
        found = []
        for seed in SEEDS:
            lines = (self.out / "runs" / folder / label / f"seed-{seed}" / "record.jsonl").read_text().splitlines()
            evaluations = [line for text in lines if (line := json.loads(text))["kind"] == "evaluation"]
            found.append(100 * max(evaluations, key=lambda line: line["round"])[name])
        return found


@pytest.fixture(scope="module")
def smoke(tmp_path_factory: pytest.TempPathFactory) -> Smoke:
    out = tmp_path_factory.mktemp("smoke")
    call = ("reproduce", "all", "--preset", "smoke", "--jobs", "1", "--out", str(out))
    said = fedawe(*call)
    first = contents(out / "smoke")
    return Smoke(out / "smoke", said, fedawe(*call), first)


def label(name: str) -> str:
    return "fedawe(clip=0.5,eta0=0.1)" if name == "fedawe" else f"{name}(eta0=0.1)"


# Every file


def test_there_is_every_file_and_no_other(smoke: Smoke) -> None:
    tables = {f"{name}.{kind}" for name in TABLES for kind in ("csv", "md", "tex")} | {f"{name}.txt" for name in WORDS}
    assert {path.name for path in (smoke.out / "tables").iterdir()} == tables
    figures = {f"{name}.{kind}" for name in FIGURES for kind in ("png", "pdf")}
    assert {path.name for path in (smoke.out / "figures").iterdir()} == figures
    for name in TABLES:
        assert f"{smoke.out / 'tables' / name}.csv" in smoke.said
    for name in FIGURES:
        assert f"{smoke.out / 'figures' / name}.png" in smoke.said


def test_every_run_is_complete_and_evaluates_the_received_mean(smoke: Smoke) -> None:
    found = [records.read(path) for path in smoke.out.rglob(records.NAME)]
    assert len(found) == 16 * 2 + 34 + 12 + 3 * 16 + 5 * 14 + 9 * 4 * 2 + 3 * 16
    assert {record.status for record in found} == {"complete"}
    for record in found:
        kept = record.header["evaluate_received"] and record.header["algorithm"]["class"] != FEDAWE
        assert all(("received_test_accuracy" in line) == kept for line in record.evaluations)


def test_the_same_call_again_repeats_no_run_and_changes_no_file(smoke: Smoke) -> None:
    assert contents(smoke.out) == smoke.first
    assert smoke.said_again.count("(they were already)") == smoke.said_again.count("runs complete in") > 0
    assert "(they were already)" not in smoke.said
    assert smoke.said_again.replace(" (they were already)", "") == smoke.said


# Tables


@pytest.mark.parametrize("name", TABLES)
def test_a_table_has_its_rows_and_columns_in_every_format(smoke: Smoke, name: str) -> None:
    rows, shown, bare = TABLES[name]
    with (smoke.out / "tables" / f"{name}.csv").open(encoding="utf-8", newline="") as file:
        lines = list(csv.reader(file))
    assert len(lines) == 1 + rows
    assert {len(line) for line in lines} == {bare}
    assert len(set(lines[0])) == bare, "every column has a name of its own"
    markdown = (smoke.out / "tables" / f"{name}.md").read_text().splitlines()
    assert len(markdown) == 2 + rows
    assert {line.count("|") - line.count(r"\|") for line in markdown} == {shown + 1}
    assert re.fullmatch(r"\|(:--\||--:\|)+", markdown[1])
    tex = (smoke.out / "tables" / f"{name}.tex").read_text()
    columns = re.search(r"\\begin\{tabular\}\{([lr]+)\}", tex)
    assert columns is not None
    assert len(columns[1]) == shown
    body = tex.partition("\\midrule\n")[2].partition("  \\bottomrule")[0].splitlines()
    assert len(body) == rows
    for line in body:
        assert line.endswith(r" \\")
        assert len(re.findall(r"(?<!\\)&", line)) == shown - 1
        assert len(re.findall(r"(?<!\\)\$", line)) % 2 == 0
        assert not re.search(r"(?<!\\)[%#_]", line)
        depth = np.cumsum([(c == "{") - (c == "}") for c in re.sub(r"\\[{}]", "", line)])
        assert depth.min() >= 0
        assert depth[-1] == 0


FOLDERS = {
    "table2-digits": [(each, f"digits-{each}") for each in DYNAMICS],
    "table9": [
        ("γ = 0.3", "digits-sine"),
        ("γ = 0.2", "digits-sine-gamma=0.2"),
        ("γ = 0.1", "digits-sine-gamma=0.1"),
    ],
    "table10": [(f"α = {alpha}", f"digits-sine-alpha={alpha}") for alpha in ("0.05", "0.1", "1.0")],
}


@pytest.mark.parametrize("name", FOLDERS)
def test_settings_and_algorithms_say_what_their_records_say(smoke: Smoke, name: str) -> None:
    algorithms = list(NAMES) if name == "table2-digits" else WITHOUT_FEDVARP
    expected = [(setting, folder, each) for setting, folder in FOLDERS[name] for each in algorithms]
    rows = smoke.rows(name)
    assert [(row["setting"], row["algorithm"]) for row in rows] == [(s, NAMES[each]) for s, _, each in expected]
    for row, (_, folder, each) in zip(rows, expected, strict=True):
        for part in ("test", "train"):
            values = smoke.accuracy(folder, label(each), f"{part}_accuracy")
            assert float(row[f"{part}_here"]) == pytest.approx(sum(values) / 2, abs=1e-4)
            assert float(row[f"{part}_here_std"]) == pytest.approx(abs(values[0] - values[1]) / 2**0.5, abs=1e-4)
            assert row[f"{part}_here_seeds"] == "2"
            assert (
                row[f"{part}_paper"] == row[f"{part}_paper_std"] == row[f"{part}_difference"] == ""
            )  # no digits there


def test_the_best_of_a_setting_is_bold(smoke: Smoke) -> None:
    lines = (smoke.out / "tables" / "table2-digits.md").read_text().splitlines()[2:]
    rows = smoke.rows("table2-digits")
    for setting in DYNAMICS:
        best = max((row for row in rows if row["setting"] == setting), key=lambda row: float(row["test_here"]))
        bold = [line for line in lines if f"| {setting} |" in line and "**" in line.split("|")[4]]
        assert [line.split("|")[2].strip() for line in bold] == [best["algorithm"]]


def test_the_worst_class_is_the_one_with_the_least_accuracy(smoke: Smoke) -> None:
    for row, each in zip(smoke.rows("table2-worst-class"), NAMES, strict=True):
        for dynamics in DYNAMICS:
            found = []
            for seed in SEEDS:
                path = smoke.out / "runs" / f"digits-{dynamics}" / label(each) / f"seed-{seed}" / records.NAME
                found.append(100 * min(records.read(path).evaluations[-1]["test_accuracy_by_class"]))
            assert float(row[f"digits, {dynamics}"]) == pytest.approx(np.mean(found), abs=1e-4)


def test_table_8_never_is_where_only_round_0_is_a_20th(smoke: Smoke) -> None:
    rows = smoke.rows("table8-digits")
    assert [row["algorithm"] for row in rows] == [NAMES[each] for each in WITHOUT_FEDVARP]
    assert list(rows[0]) == ["algorithm", *(f"{who}_{at}" for at in (7.5, 15, 22.5, 30) for who in ("paper", "here"))]
    assert {row[f"here_{at}"] for row in rows for at in (7.5, 15, 22.5, 30)} == {""}
    assert (smoke.out / "tables" / "table8-digits.md").read_text().count(" never |") == 7 * 4


def test_the_search_has_every_pair_of_rates_and_says_which_is_best(smoke: Smoke) -> None:
    rows = smoke.rows("search-digits")
    names = [*NAMES.items(), ("fedawe, clipped", "FedAWE, clipped")]
    assert [(row["algorithm"], row["eta0"]) for row in rows] == [(t, eta0) for _, t in names for eta0 in ("0.1", "0.5")]
    best: dict[str, tuple[float, str]] = {}
    for row, name in zip(rows, [name for name, _ in names for _ in range(2)], strict=True):
        algorithm, _, clipped = name.partition(", ")
        for eta_g, option in (("1", []), ("1.5", ["eta_g=1.5"])):
            options = [*(["clip=0.5"] if clipped else []), f"eta0={row['eta0']}", *option]
            label = f"{algorithm}({','.join(options)})"
            mean = np.mean(smoke.accuracy("search-digits", label, "validation_accuracy"))
            assert float(row[f"eta_g_{eta_g}"]) == pytest.approx(mean, abs=1e-4)
            found = (float(mean), f"{row['algorithm']} ({row['eta0']}, {eta_g})")
            best[name] = max(best.get(name, (-1.0, "")), found, key=lambda pair: pair[0])
    (said,) = (smoke.out / "tables" / "search.txt").read_text().splitlines()
    assert said.startswith(f"search-digits: the best (eta0, eta_g) are {', '.join(text for _, text in best.values())};")
    assert said.endswith("; ".join(title for _, title in names) + "."), "two rates are both on the edge of a grid"


def test_fairness_evaluates_everyone_in_every_way(smoke: Smoke) -> None:
    clips = {f"fairness-{n}": ["fedawe"] for n in (1, 2, 3)} | {"fairness-4": [], "fairness-5": list(NAMES)}
    for table, clipped in clips.items():
        rows = smoke.rows(table)
        assert [row["algorithm"] for row in rows] == list(NAMES.values())
        assert {row["eta_g"] for row in rows} == {"1.0"}
        paper = [0.1 if each in ("fedawe", "fedavg-known") else 0.05 for each in NAMES]
        rates = paper if table == "fairness-1" else [0.1] * 8
        assert [float(row["eta0"]) for row in rows] == rates
        values, ps = {}, []
        for row, each, rate in zip(rows, NAMES, rates, strict=True):
            run = f"{each}({'clip=0.5,' if each in clipped else ''}eta0={rate})"
            for kind in ("mean", "latest", "received"):
                fedawe = each == "fedawe"
                prefix = {"mean": "", "latest": "latest_" * fedawe, "received": "received_" * (not fedawe)}[kind]
                found = smoke.accuracy("digits-sine", run, f"{prefix}test_accuracy")
                values[each, kind] = np.array(found)
                assert float(row[kind]) == pytest.approx(np.mean(found), abs=1e-4)
                if fedawe:
                    assert row[f"{kind}_lead"] == ""
                else:
                    difference = values["fedawe", kind] - values[each, kind]
                    half = 12.7062047 * abs(difference[0] - difference[1]) / 2  # t of one degree, sd/sqrt(2)
                    assert float(row[f"{kind}_lead"]) == pytest.approx(difference.mean(), abs=1e-4)
                    assert float(row[f"{kind}_lead_low"]) == pytest.approx(difference.mean() - half, abs=1e-3)
                    assert float(row[f"{kind}_lead_high"]) == pytest.approx(difference.mean() + half, abs=1e-3)
                    t = abs(difference.mean()) / (abs(difference[0] - difference[1]) / 2)
                    ps.append((1 - 2 / np.pi * np.arctan(t), float(row[f"{kind}_lead_p"])))  # Student's t is Cauchy's
        for n, (p, corrected) in enumerate(sorted(ps)):  # Holm: 21 times the smallest, 20 times the next, ...
            so_far = max(min(1, (len(ps) - k) * each) for k, (each, _) in enumerate(sorted(ps)[: n + 1]))
            assert corrected == pytest.approx(so_far, rel=1e-2)
            assert p <= corrected


def test_the_parts_of_fedawe_are_what_they_say(smoke: Smoke) -> None:
    expected = [
        ("fedavg(eta0=0.1)", "test_accuracy"),
        ("fedavg(eta0=0.1)", "received_test_accuracy"),
        ("fedawe(eta0=0.1,max_echo=1)", "test_accuracy"),
        ("fedawe(eta0=0.1)", "test_accuracy"),
        ("fedawe(clip=0.5,eta0=0.1)", "test_accuracy"),
        ("fedawe(clip=0.5,eta0=0.1)", "latest_test_accuracy"),
    ]
    rows = smoke.rows("fairness-parts")
    values = [np.mean(smoke.accuracy("digits-sine", *each)) for each in expected]
    assert [float(row["test"]) for row in rows] == pytest.approx(values, abs=1e-4)
    assert (rows[0]["difference"], rows[0]["step"]) == ("", "")
    for row, value, before in zip(rows[1:], values[1:], values, strict=False):
        assert float(row["difference"]) == pytest.approx(value - values[0], abs=1e-4)
        assert float(row["step"]) == pytest.approx(value - before, abs=1e-4)


def test_beyond_the_paper_everyone_is_run_everywhere(smoke: Smoke) -> None:
    rows = smoke.rows("beyond")
    assert [row["algorithm"] for row in rows] == list(NAMES.values())
    for row, each in zip(rows, NAMES, strict=True):
        for dynamics in ("markov", "cyclic", "outages"):
            values = smoke.accuracy(f"digits-{dynamics}", label(each))
            assert float(row[dynamics]) == pytest.approx(np.mean(values), abs=1e-4)


def test_ranks_are_those_of_the_table_whatever_else_was_run(smoke: Smoke) -> None:
    """The folder of sine has runs of the fairness study besides, which have no rank here."""
    ranks: dict[str, list[int]] = {name: [] for name in NAMES.values()}
    for setting in DYNAMICS:
        means = {
            row["algorithm"]: float(row["test_here"])
            for row in smoke.rows("table2-digits")
            if row["setting"] == setting
        }
        for name, mean in means.items():
            ranks[name].append(1 + sum(other > mean for other in means.values()))
    said = (smoke.out / "tables" / "table2.txt").read_text()
    listed = re.search(r"Mean rank over 4 settings \(1 is best\): (.*)\.\n", said)
    assert listed is not None
    found = {name: float(rank) for name, rank in (word.rsplit(" ", 1) for word in listed[1].split(", "))}
    assert found == {name: round(float(np.mean(values)), 1) for name, values in ranks.items()}
    assert list(found.values()) == sorted(found.values())
    assert "There is nothing yet to compare the paper's orderings with." in said


def test_the_readings_choose_what_is_evaluated(smoke: Smoke) -> None:
    for kind, fedawe, fedavg in (("latest", "latest_", ""), ("received", "", "received_")):
        table, *_ = smoke.outcome("table2", Readings(evaluate=kind)).tables  # type: ignore[arg-type]
        rows = {(row[0].text, row[1].text): row[3].values[0] for row in table.rows}
        for name, prefix in (("fedawe", fedawe), ("fedavg", fedavg)):
            values = smoke.accuracy("digits-sine", label(name), f"{prefix}test_accuracy")
            assert rows["sine", NAMES[name]] == pytest.approx(np.mean(values), abs=1e-4)


def test_what_has_not_been_run_is_missing_and_nothing_fails(tmp_path: Path) -> None:
    plan = Plan(presets()["smoke"])
    for item in ("table2", "table8", "table9", "table10", "search", "fairness", "beyond", "fig3", "fig7"):
        for table in made(item, plan, tmp_path).tables:
            numbers = [cell for row in table.rows for cell in row[1:] if cell.text not in NAMES.values()]
            known = {"fairness": {"0.1, 1", "0.05, 1"}, "search": {"0.1", "0.5"}}.get(item, set())
            assert {cell.text for cell in numbers} <= {"—"} | known, table.name
    assert list(tmp_path.iterdir()) == []


# Figures


@pytest.mark.parametrize("name", sorted(FIGURES))
def test_a_figure_is_an_image_with_something_in_it(smoke: Smoke, name: str) -> None:
    image = matplotlib.image.imread(smoke.out / "figures" / f"{name}.png")
    height, width, _ = image.shape
    assert width == 1650  # a page's text at 300 dots per inch
    assert 400 < height < 2200
    grey = image[..., :3].mean(2)
    assert 0.005 < (grey < 0.9).mean() < 0.95
    # Nothing is cut off at the edges.
    assert min(grey[0].min(), grey[-1].min(), grey[:, 0].min(), grey[:, -1].min()) > 0.9
    assert (smoke.out / "figures" / f"{name}.pdf").read_bytes().startswith(b"%PDF")


def test_figure_3_has_a_curve_for_each_p(smoke: Smoke) -> None:
    ((_, made),) = smoke.outcome("fig3").figures
    assert [ax.get_title() for ax in made.axes] == ["train accuracy (%)", "test accuracy (%)"]
    for ax, part in zip(made.axes, ("train", "test"), strict=True):
        curves = [(bars.get_label(), bars.lines[0]) for bars in ax.containers]
        assert [name for name, _ in curves] == ["p = 0.1", "p = 0.3", "p = 0.5", "p = 1"]
        for name, curve in curves:
            gammas = (0.1, 0.2, 0.3, 0.5)
            np.testing.assert_allclose(curve.get_xdata(), gammas, atol=0.05)
            folders = [f"digits-same-{name.replace(' ', '')}-gamma={gamma}" for gamma in gammas]
            values = [np.mean(smoke.accuracy(folder, "fedavg", f"{part}_accuracy")) for folder in folders]
            np.testing.assert_allclose(np.asarray(curve.get_ydata(), dtype=float), values, rtol=1e-9)


def test_figure_3_is_also_a_table_and_says_what_gamma_changes(smoke: Smoke) -> None:
    outcome = smoke.outcome("fig3")
    (table,) = outcome.tables
    for p, row, said in zip(("0.1", "0.3", "0.5", "1"), table.rows, outcome.words, strict=True):
        found = [
            smoke.accuracy(f"digits-same-p={p}-gamma={gamma}", "fedavg", "test_accuracy")
            for gamma in ("0.1", "0.2", "0.3", "0.5")
        ]
        assert [cell.text for cell in row] == [p, *(f"{np.mean(x):.1f} ± {np.std(x, ddof=1):.1f}" for x in found)]
        change = np.array(found[-1]) - np.array(found[0])
        half = scipy.stats.t.ppf(0.975, len(SEEDS) - 1) * np.std(change, ddof=1) / np.sqrt(len(SEEDS))
        low, high = change.mean() - half, change.mean() + half
        assert said == (
            f"p = {p}: from γ = 0.1 to γ = 0.5 FedAvg's test accuracy changes by {change.mean():+.1f} points "
            f"(95 % interval {low:+.1f} to {high:+.1f})."
        )


def test_figures_4_and_5_show_the_clients(smoke: Smoke) -> None:
    ((_, partition),) = smoke.outcome("fig4").figures
    (ax,) = partition.axes
    assert (ax.get_xlabel(), ax.get_ylabel()) == ("client", "class")
    (bubbles,) = ax.collections
    where = np.asarray(bubbles.get_offsets())
    assert set(where[:, 0]) == set(range(20))
    assert set(where[:, 1]) == set(range(10))
    ((_, histogram),) = smoke.outcome("fig5").figures
    assert sum(bar.get_height() for bar in histogram.axes[0].patches) == 20


def test_figure_6_shows_three_clients_under_four_dynamics(smoke: Smoke) -> None:
    ((_, made),) = smoke.outcome("fig6").figures
    titled = [ax for ax in made.axes if ax.get_title()]
    assert [ax.get_title() for ax in titled] == ["(a) stationary", "(b) staircase", "(c) sine", "(d) interleaved sine"]
    t = np.arange(80)
    sine = lambda gamma: gamma * np.sin(np.pi * t / 10) + 1 - gamma  # noqa: E731
    swing = {"a": np.ones(80), "b": np.where(t // 10 % 2 == 0, 1, 0.4), "c": sine(0.3), "d": sine(0.4)}
    for ax in titled:
        for p, curve in zip((0.1, 0.5, 0.9), ax.lines, strict=True):
            expected = p * swing[ax.get_title()[1]]
            if "(d)" in ax.get_title():
                expected = np.where(expected >= 0.2, expected, 0)
            np.testing.assert_allclose(np.asarray(curve.get_ydata(), dtype=float), expected, atol=1e-12)
    below = [ax for ax in made.axes if not ax.get_title()]
    assert len(below) == 4
    assert {ax.get_ylim() for ax in below} == {(-0.6, 2.6)}, "the rows of all panels are at the same height"
    assert {tuple(tick.get_text() for tick in ax.get_yticklabels()) for ax in below} == {("0.1", "0.5", "0.9")}


def test_figure_7_smooths_fedawe_alone(smoke: Smoke) -> None:
    ((_, made),) = smoke.outcome("fig7").figures
    assert [ax.get_title(loc="left") for ax in made.axes] == ["digits, raw"] * 2 + ["digits, FedAWE smoothed"] * 2
    assert [ax.get_yscale() for ax in made.axes] == ["log", "linear"] * 2
    raw, smooth = ({line.get_label(): line for line in ax.lines} for ax in (made.axes[1], made.axes[3]))
    assert list(raw) == list(smooth) == ["FedAWE", "FedAvg", "MIFA"]
    ys = {name: np.asarray(line.get_ydata(), dtype=float) for name, line in raw.items()}
    assert ys["FedAWE"][-1] == pytest.approx(np.mean(smoke.accuracy("digits-sine", label("fedawe"))))
    for name in ("FedAvg", "MIFA"):
        np.testing.assert_array_equal(smooth[name].get_ydata(), ys[name])
    y = ys["FedAWE"]
    w = 0.99**3  # three rounds between evaluations
    expected = [y[0], w * y[0] + (1 - w) * y[1], w * (w * y[0] + (1 - w) * y[1]) + (1 - w) * y[2]]
    np.testing.assert_allclose(np.asarray(smooth["FedAWE"].get_ydata(), dtype=float), expected)
    ((_, latest),) = smoke.outcome("fig7", Readings(evaluate="latest")).figures
    last = float(np.asarray(latest.axes[1].lines[0].get_ydata())[-1])
    assert last == pytest.approx(np.mean(smoke.accuracy("digits-sine", label("fedawe"), "latest_test_accuracy")))


def test_without_evaluations_on_training_data_there_are_still_tables_and_figures(
    smoke: Smoke, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As at the size conv: what is said of the test data is the same, and nothing is said of the training data."""
    known = presets()["smoke"]
    known = dataclasses.replace(known, settings=dataclasses.replace(known.settings, evaluate_on=("test",)))
    monkeypatch.setattr("fedawe.paper.presets.presets", lambda: {"smoke": known})
    only = ("--algorithms", "fedawe", "fedavg", "mifa")
    for item in ("table2", "table8", "fig7"):
        fedawe("reproduce", item, "--preset", "smoke", "--dynamics", "sine", *only, "--out", str(tmp_path))
    out = Smoke(tmp_path / "smoke", "", "", {})
    whole = {row["algorithm"]: row for row in smoke.rows("table2-digits") if row["setting"] == "sine"}
    for row in out.rows("table2-digits"):
        for name, value in row.items():
            assert value == ("" if name in ("train_here", "train_here_std") else whole[row["algorithm"]][name]) or (
                name == "train_here_seeds" and value == "0"
            )
    assert len(out.rows("table8-digits")) == 3
    plan = Plan(known, only=Only(dynamics=("sine",), algorithms=("fedawe", "fedavg", "mifa")))
    ((_, made_here),) = made("fig7", plan, out.out / "runs").figures
    ((_, made_there),) = smoke.outcome("fig7").figures
    assert [ax.get_ylabel() for ax in made_here.axes] == ["test loss", "test accuracy (%)"] * 2
    assert [ax.get_ylabel() for ax in made_there.axes] == ["train loss", "test accuracy (%)"] * 2
    for ax, other in zip(made_here.axes[1::2], made_there.axes[1::2], strict=True):
        assert len(ax.lines) == len(other.lines) == 3
        for line, same in zip(ax.lines, other.lines, strict=True):
            np.testing.assert_array_equal(line.get_ydata(), same.get_ydata())


# The terminal


@pytest.mark.parametrize("width", [80, 120])
def test_tables_fit_a_terminal(smoke: Smoke, width: int) -> None:
    for item in ("table2", "table8", "table9", "search", "fairness", "beyond"):
        for table in smoke.outcome(item).tables:
            shown = io.StringIO()
            left = verb.show(table, Console(file=shown, width=width))
            lines = shown.getvalue().splitlines()
            assert max(map(len, lines)) <= width
            assert "…" not in shown.getvalue()
            assert lines[0].startswith(table.caption[:60])
            heads = [column.title for column in table.columns[: len(table.columns) - left]]
            header = lines[2 if len(table.caption) <= width else 3].strip()
            assert re.split(r"\s{3,}", header) == heads
            assert sum(line.strip().startswith(row[0].text) for line in lines for row in table.rows[:1]) >= 1


def test_the_command_says_where_the_rest_of_a_wide_table_is(smoke: Smoke) -> None:
    assert f"fairness: {smoke.out / 'tables' / 'fairness-1'}.csv, .md, .tex (5 more columns there)" in smoke.said
    wide = fedawe(
        "reproduce", "fairness", "--preset", "smoke", "--jobs", "1", "--out", str(smoke.out.parent), columns=200
    )
    assert "more column" not in wide


# Listing, stopping, going on


def test_a_dry_run_lists_every_batch_and_writes_nothing(smoke: Smoke, tmp_path: Path) -> None:
    before = torch.get_num_threads()
    said = fedawe("reproduce", "all", "--preset", "smoke", "--dry-run", "--jobs", "2", "--out", str(tmp_path / "new"))
    torch.set_num_threads(before)
    assert list(tmp_path.iterdir()) == []
    *batches, last = said.splitlines()
    folders = {path.name: len(list(path.glob("*/seed-*/record.jsonl"))) for path in (smoke.out / "runs").iterdir()}
    listed = {}
    for line in batches:
        found = re.fullmatch(r"(\S+): (\d+) runs, (\d+) to do, about [\d.]+ (s|min|h)", line)
        assert found is not None, line
        assert found[2] == found[3]
        listed[found[1]] = int(found[2])
    assert listed == folders
    assert re.fullmatch(rf"in all about [\d.]+ (s|min|h) with 2 at once, in {tmp_path}/new/smoke", last)


def test_a_dry_run_of_what_is_there_has_nothing_to_do(smoke: Smoke) -> None:
    said = fedawe("reproduce", "table9", "--preset", "smoke", "--dry-run", "--out", str(smoke.out.parent))
    assert said.splitlines()[:3] == [
        "digits-sine: 16 runs, 0 to do, complete",
        "digits-sine-gamma=0.2: 14 runs, 0 to do, complete",
        "digits-sine-gamma=0.1: 14 runs, 0 to do, complete",
    ]


def stable(path: Path) -> list[str]:
    lines = [json.loads(line) for line in path.read_text().splitlines()]
    return [json.dumps({key: value for key, value in line.items() if not key.endswith("_seconds")}) for line in lines]


def test_an_interrupted_suite_goes_on_where_it_stopped(
    smoke: Smoke, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    call = ("reproduce", "fig3", "--preset", "smoke", "--jobs", "1", "--out", str(tmp_path))
    began: list[str] = []

    def interrupted(task: object, algorithm: object, *rest: object, **named: object) -> Iterator[object]:
        began.append(str(algorithm))
        for step in simulate(task, algorithm, *rest, **named):  # type: ignore[arg-type]
            if len(began) == 12 and step.t == 2:
                raise KeyboardInterrupt
            yield step

    simulate = runs.simulate
    monkeypatch.setattr(runs, "simulate", interrupted)
    with pytest.raises(SystemExit) as stopped:
        fedawe(*call)
    assert stopped.value.code == 130
    assert "the same command continues" in capsys.readouterr().err
    paths = sorted((tmp_path / "smoke").rglob(records.NAME))
    done = {path: path.read_bytes() for path in paths if records.read(path).end is not None}
    assert (len(paths), len(done)) == (12, 11)
    assert not (tmp_path / "smoke" / "figures").exists()
    fedawe(*call)
    assert len(began) == 12 + 32 - 11, "only what was not complete is run"
    assert all(path.read_bytes() == content for path, content in done.items())
    for path in (tmp_path / "smoke").rglob(records.NAME):
        assert stable(path) == stable(smoke.out / path.relative_to(tmp_path / "smoke"))
    assert contents(tmp_path / "smoke" / "figures")["fig3.png"] == contents(smoke.out / "figures")["fig3.png"]


def test_a_recorded_trace_is_one_more_column(tmp_path: Path) -> None:
    from fedawe.availability.trace import Trace

    Trace(np.random.default_rng(0).random((5, 20)) < 0.5).save(tmp_path / "phones.npz")
    plan = Plan(presets()["smoke"], trace=tmp_path / "phones.npz")
    planned = plan.beyond()[-1]
    assert planned.folder == "digits-trace-phones"
    experiment = planned.experiment()
    assert (experiment.population(0).task.clients, experiment.rounds) == (20, 5)
    assert planned.variant("fedavg-known") is None  # the trace does not say p
    call = ("--preset", "smoke", "--trace", str(tmp_path / "phones.npz"), "--out", str(tmp_path / "out"))
    fedawe("reproduce", "beyond", "--dynamics", "trace", *call)
    with (tmp_path / "out/smoke/tables/beyond.csv").open(encoding="utf-8", newline="") as file:
        rows = list(csv.DictReader(file))
    assert [bool(row["trace-phones"]) for row in rows] == [name != "fedavg-known" for name in NAMES]


def test_what_the_last_run_would_fail_for_is_refused_before_the_first(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked = []

    def stored(name: str, folder: Path | None) -> None:
        asked.append((name, folder))
        if name == "cifar10":
            raise UserError("the data set cifar10 is missing")

    monkeypatch.setattr("fedawe.tasks.named.load", stored)
    monkeypatch.setattr("fedawe.cli.run.run_shown", lambda *_: pytest.fail("a run was begun"))
    with pytest.raises(UserError, match="cifar10 is missing"):
        verb.ReproduceCommand("table2", "mini", out=tmp_path / "out", data=tmp_path).run()
    assert asked == [("svhn", tmp_path), ("cifar10", tmp_path)]
    assert list(tmp_path.iterdir()) == []


def test_a_dry_run_needs_no_data(tmp_path: Path) -> None:
    """The paper's data sets are missing here; what there would be to do is listed without a time."""
    call = ("reproduce", "table2", "--preset", "paper", "--dry-run", "--jobs", "1", "--data", str(tmp_path / "none"))
    *listed, last = fedawe(*call, "--out", str(tmp_path / "out")).splitlines()
    assert len(listed) == 3 * 4
    for line in listed:
        assert re.fullmatch(r"(svhn|cifar10|cinic10)-\w+: 24 runs, 24 to do, .*fedawe data.*", line), line
    assert last == f"in all at least 0 s with 1 at once, in {tmp_path}/out/paper"
    assert list(tmp_path.iterdir()) == []


def test_items_are_listed_and_an_unknown_one_is_refused() -> None:
    assert [line.split()[0] for line in fedawe("reproduce").splitlines()] == list(ITEMS)
    with pytest.raises(UserError, match="unknown item 'table3'; choose from fig2, "):
        verb.ReproduceCommand("table3").run()


# A part of an item


@pytest.mark.parametrize("item", [name for name, item in ITEMS.items() if item.needs(Plan(presets()["smoke"]))])
def test_any_item_can_be_narrowed_to_some_algorithms(item: str) -> None:
    only = Only(algorithms=("fedavg",))
    planned = needed(item, Plan(presets()["smoke"], only=only))
    assert planned
    assert {variant.name for each in planned for variant in each.variants} == {"fedavg"}


def test_a_narrowed_table_is_the_part_of_the_whole_one(smoke: Smoke) -> None:
    whole = smoke.outcome("table2").tables[0]
    part = smoke.outcome("table2", only=Only(dynamics=("sine", "staircase"), algorithms=("mifa", "fedawe"))).tables[0]
    expected = [
        [cell.text for cell in row]
        for row in whole.rows
        if row[0].text in ("staircase", "sine") and row[1].text in ("FedAWE", "MIFA")
    ]
    assert [[cell.text for cell in row] for row in part.rows] == expected
    assert len(expected) == 4


def test_a_table_of_one_seed_has_the_accuracies_of_that_seed(smoke: Smoke) -> None:
    only = Only(dynamics=("sine",), seeds=(1,))
    (each,) = needed("table2", Plan(presets()["smoke"], only=only))
    assert each.seeds == (1,)
    cells = {row[1].text: row[3] for row in smoke.outcome("table2", only=only).tables[0].rows}
    for variant in each.variants:
        record = records.read(smoke.out / "runs" / each.folder / variant.label / "seed-1" / records.NAME)
        accuracy = 100 * record.evaluations[-1]["test_accuracy"]
        assert cells[NAMES[variant.name]].values == (pytest.approx(accuracy, abs=1e-3), None, 1)


def test_data_sets_are_narrowed_too() -> None:
    plan = Plan(presets()["paper"], only=Only(datasets=("cinic10",)))
    assert [each.folder for each in needed("table8", plan)] == ["cinic10-sine"]
    assert {each.data for item in ("table2", "table9", "search", "beyond", "fig3") for each in needed(item, plan)} == {
        "cinic10"
    }


@pytest.mark.parametrize(
    ("only", "said"),
    [
        (Only(datasets=("mnist",)), "'mnist' is not among the data sets of smoke; choose from digits"),
        (Only(dynamics=("tides",)), "'tides' is not among the dynamics of smoke; choose from stationary, staircase, "),
        (Only(algorithms=("fedprox",)), "'fedprox' is not among the algorithms of smoke; choose from fedawe, fedavg, "),
        (Only(seeds=(7,)), "7 is not among the seeds of smoke; choose from 0, 1"),
    ],
)
def test_a_part_that_does_not_exist_is_refused(only: Only, said: str) -> None:
    with pytest.raises(UserError, match=re.escape(said)):
        Plan(presets()["smoke"], only=only)


def test_an_item_of_which_nothing_is_left_is_refused() -> None:
    with pytest.raises(UserError, match="no run of table9 is selected"):
        needed("table9", Plan(presets()["smoke"], only=Only(dynamics=("staircase",))))


def test_a_ninth_algorithm_enters_no_table(monkeypatch: pytest.MonkeyPatch) -> None:
    import fedawe.algorithms

    monkeypatch.setitem(fedawe.algorithms.ALGORITHMS, "ninth", fedawe.algorithms.FedAvg)
    plan = Plan(presets()["smoke"])
    assert {variant.name for each in needed("table2", plan) for variant in each.variants} == set(NAMES)
    assert len(NAMES) == 8
