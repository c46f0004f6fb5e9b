"""The page and its words: nothing is claimed that the numbers do not show, and nothing makes the page fail."""

import io
import json
import re
import shutil
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pytest
import samples
import torch
from hypothesis import given
from hypothesis import strategies as st
from rich.console import Console

import fedawe
from fedawe.cli.report import ReportCommand, print_summary
from fedawe.core.errors import UserError
from fedawe.report import page
from fedawe.report.figures import end_range
from fedawe.report.influence import influences_of
from fedawe.report.words import Words, suite_words, versus, words
from fedawe.results.choice import Choice
from fedawe.results.curves import curve
from fedawe.results.folder import load, load_all
from fedawe.results.standings import Standing, compare, paired
from fedawe.results.suites import compare_all

accuracy = fedawe.Metric("test_accuracy", unit="%")
distance = fedawe.Metric("distance", better="lower")


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return samples.experiment(tmp_path_factory.mktemp("whole") / "x")


@pytest.fixture
def own(whole: Path, tmp_path: Path) -> Path:
    """A copy that a test may spoil."""
    return Path(shutil.copytree(whole, tmp_path / "x"))


def said(out: Path, **choice: object) -> Words:
    return words(compare(load(out), Choice(**choice)))  # type: ignore[arg-type]


def topics(found: Words) -> dict[str, str]:
    return {finding.topic: finding.text for finding in found.findings}


# ---- words


@given(
    st.lists(st.tuples(st.floats(0, 1), st.floats(0, 1)), min_size=1, max_size=6), st.sampled_from([accuracy, distance])
)
def test_an_advantage_is_claimed_only_where_the_interval_shows_one(
    pairs: list[tuple[float, float]], metric: object
) -> None:
    ours = Standing("fedawe", "FedAWE", {seed: a for seed, (a, _) in enumerate(pairs)}, (), None, 1)
    theirs = Standing("fedavg", "FedAvg", {seed: b for seed, (_, b) in enumerate(pairs)}, (), None, 2)
    d = paired(ours.values, theirs.values)
    assert d is not None
    text = versus(metric, ours, theirs, d)  # type: ignore[arg-type]
    if d.low is None or d.high is None:
        assert "with one seed there is no interval" in text
        assert "better" not in text
        assert "worse" not in text
    elif d.low <= 0 <= d.high:
        assert text.startswith("There is no significant difference between FedAWE and FedAvg")
        assert "contains zero" in text
    else:
        better = (d.low > 0) == (metric is accuracy)
        assert text.startswith(f"FedAWE is {'better' if better else 'worse'} than FedAvg: ")
    assert ("higher than" in text) == (d.mean > 0)
    assert ("lower than" in text) == (d.mean < 0)


def test_the_headline_is_the_best_against_the_baseline(whole: Path) -> None:
    found = compare(load(whole)).standing("fedawe")
    assert found is not None
    assert found.difference is not None
    text = said(whole).headline
    assert text.startswith("FedAWE is better than FedAvg: its test accuracy is ")
    assert f"{100 * found.difference.mean:.2f} points higher" in text
    assert "3 paired seeds" in text
    assert said(whole, baseline="fedawe").headline.startswith("FedVARP is worse than FedAWE")  # the next best
    assert said(whole, metric="test_loss", baseline="mifa").headline.startswith(
        "FedAWE is better than MIFA: its test loss"
    )
    assert "MIFA" in said(whole, algorithms=("mifa", "f3ast")).headline


def test_no_difference_is_called_significant_whose_interval_contains_zero(tmp_path: Path) -> None:
    final = {"fedawe": 0.7801, "fedavg": 0.78, "mifa": 0.9, "new": 0.2}
    out = samples.experiment(tmp_path / "x", ["fedawe", "fedavg", "mifa", "new"], noise=0.02, final=final)
    found = topics(said(out))["Against the baseline"]
    assert found == "Better than FedAvg: MIFA; worse: new; no significant difference: FedAWE."
    head = said(out, algorithms=("fedawe", "fedavg")).headline
    assert head.startswith("There is no significant difference between FedAWE and FedAvg")


def test_a_lead_of_the_baseline_is_told_too(tmp_path: Path) -> None:
    out = samples.experiment(tmp_path / "x", ["fedawe", "fedavg"], final={"fedawe": 0.5, "fedavg": 0.8})
    assert said(out).headline.startswith("FedAWE is worse than FedAvg")


def test_findings_name_the_best_the_baseline_and_the_last_aggregate(whole: Path) -> None:
    found = topics(said(whole))
    assert found["Best on average"].startswith("FedAWE with a test accuracy of 8")
    assert "worse: F3AST and FedAvg-all" in found["Against the baseline"]
    latest, ours = (compare(load(whole)).standing("fedawe", variant) for variant in ("latest", ""))
    assert latest is not None
    assert ours is not None
    assert latest.mean is not None
    assert ours.mean is not None
    amount = f"{100 * (ours.mean - latest.mean):.2f} points lower than that of FedAWE's model"
    assert found["Last aggregate"].startswith(f"Its test accuracy is {amount}")
    assert "of 30 clients were available" in found["Availability"]
    assert found["Memory"].startswith("Versions of the model, for 30 clients: FedAWE kept ")


def test_a_last_aggregate_that_is_the_model_is_called_the_same(whole: Path, tmp_path: Path) -> None:
    own = Path(shutil.copytree(whole, tmp_path / "x"))
    for seed in (0, 1, 2):
        lines = samples.lines(own, "fedawe", seed)
        for line in lines[1:-1]:
            line["latest_test_accuracy"] = line["test_accuracy"]
        samples.write(own, "fedawe", seed, lines)
    assert topics(said(own))["Last aggregate"].startswith("Its test accuracy is the same as that of FedAWE's model")


def test_known_probabilities_are_called_what_they_are(tmp_path: Path) -> None:
    out = samples.experiment(tmp_path / "x", ["fedavg", "fedavg-known"], final={"fedavg-known": 0.9})
    assert "not known outside a simulation" in topics(said(out))["Best on average"]


def test_one_algorithm_is_not_compared(tmp_path: Path) -> None:
    out = samples.experiment(tmp_path / "x", ["new"], noise=0.0, final={"new": 0.75})
    assert said(out).headline.startswith("There is no other algorithm to compare new with; its test accuracy is 7")


def test_a_perplexity_is_reported_with_title_direction_and_intervals(tmp_path: Path) -> None:
    """Six runs whose only metric falls; a diagnostic that says the opposite is shown and not ranked by."""
    out = samples.experiment(tmp_path / "x", ["fedavg", "new"], task="text", final={"fedavg": 9.0, "new": 4.0})
    found = compare(load(out))
    d = found.standings[0].difference
    assert d is not None
    assert d.low is not None
    assert d.high is not None
    bounds = f"−{abs(d.low):.3f} to −{abs(d.high):.3f}"
    assert words(found).headline == (
        f"new is better than FedAvg: its test perplexity is {abs(d.mean):.3f} lower than FedAvg's "
        f"(95 % interval of the difference {bounds}, 3 paired seeds)."
    )
    assert topics(words(found))["Best on average"].startswith("new with a test perplexity of ")
    text = rendered(out)
    assert "← lower (better) · higher →" in text
    assert text.count('class="line better"') == 1
    assert 'class="line worse"' not in text
    data = figures_of(text)["e0"]
    assert [metric["name"] for metric in data["metrics"]] == ["test_perplexity", "consensus", "active"]  # type: ignore[attr-defined]
    assert data["metrics"][0]["log"] is True  # type: ignore[index]
    low, high = data["metrics"][0]["end"]  # type: ignore[index]
    assert 0 < low < 4 < 9 < high
    console = Console(record=True, width=120, file=io.StringIO())
    print_summary(fedawe.load(out), console)
    assert re.search(r"1 +new +3 ", console.export_text())


def test_what_has_no_direction_is_shown_and_not_ranked(tmp_path: Path) -> None:
    out = samples.experiment(tmp_path / "x", ["fedavg", "new"], task="undeclared", final={"fedavg": 9.0, "new": 4.0})
    found = said(out)
    assert found.headline.startswith("Nothing is ranked by consensus, because no direction is declared")
    assert found.warnings[0].startswith("Nothing is ranked: no metric declares whether higher or lower is better.")
    assert not {"Best on average", "Against the baseline"} & set(topics(found))
    text = rendered(out)
    assert 'class="line better"' not in text
    assert {"active", "consensus", "test_perplexity"} == {m["name"] for m in figures_of(text)["e0"]["metrics"]}  # type: ignore[attr-defined]


def test_the_range_around_the_results_leaves_room_where_curves_come_from() -> None:
    assert end_range([80.0, 90.0], accuracy, log=False) == (65.0, 94.0)
    assert end_range([98.0, 99.0], accuracy, log=False)[1] == 100.0
    low, high = end_range([1.0, 10.0], distance, log=True)
    assert (low, high) == (pytest.approx(10**-0.4), pytest.approx(10**2.5))
    assert end_range([0.0, 0.0], distance, log=False)[0] < 0 < end_range([0.0, 0.0], distance, log=False)[1]


def test_one_seed_says_so(tmp_path: Path) -> None:
    found = said(samples.experiment(tmp_path / "x", seeds=[3]))
    assert "with one seed there is no interval" in found.headline
    assert any(line.startswith("One seed: ") for line in found.warnings)


def test_runs_that_do_not_count_are_named(own: Path) -> None:
    samples.diverge(own, "mifa", 1)
    samples.interrupt(own, "fedau", 0)
    samples.interrupt(own, "fedau", 2)
    samples.damage(own, "f3ast", 0)
    warnings = said(own).warnings
    assert warnings[:4] == (
        "1 of 24 runs diverged: MIFA (seed 1). No mean includes them.",
        "2 of 24 runs are not finished: FedAU (seeds 0, 2). No mean includes them.",
        "1 of 24 runs is damaged on the disk: F3AST (seed 0). No mean includes them.",
        "Not ranked, because they lack seeds that others have: FedAU, F3AST and MIFA.",
    )


def test_an_algorithm_without_a_complete_run_is_not_compared(own: Path) -> None:
    for seed in (0, 1, 2):
        samples.diverge(own, "fedawe", seed)
    assert said(own).headline.startswith("FedVARP is better than FedAvg")
    with pytest.raises(UserError, match="no test accuracy in a seed that both completed"):
        fedawe.load(own).difference("fedawe", "fedavg")


def test_method_names_baseline_window_and_interval(tmp_path: Path) -> None:
    out = samples.experiment(tmp_path / "x", ["fedawe", "fedavg"], range(10))
    student = " ".join(said(out).method)
    bootstrap = " ".join(said(out, interval="bootstrap", window=5, baseline="fedawe").method)
    assert "Student t intervals" in student
    assert "n − 1" in student
    assert "The baseline is FedAvg; choose another with --baseline." in student
    assert "rounds 15 to 60" in student
    assert "bootstrap intervals (BCa" in bootstrap
    assert "Student" not in bootstrap
    assert "The baseline is FedAWE." in bootstrap
    assert "evaluation after round 60" in bootstrap


def test_a_suite_counts_where_the_best_is_better_than_the_baseline(tmp_path: Path) -> None:
    for name, ours in (("better", 0.9), ("worse", 0.5)):
        final = {"fedawe": ours, "mifa": 0.3}
        samples.experiment(tmp_path / name, ["mifa", "fedawe", "fedavg"], final=final, availability=name)
    comparisons = compare_all(load_all(tmp_path), Choice())
    assert suite_words(comparisons, ["a", "b"]).headline == (
        "Of 2 settings, FedAWE, which has the best mean rank, is better than FedAvg in 1 (a), worse than FedAvg in "
        "1 (b)."
    )


# ---- the page


class Page(HTMLParser):
    """What a page asks for, and its scripts."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.asked: list[str] = []
        self.scripts: list[str] = []
        self.text: list[str] = []
        self.ids: list[str] = []
        self.inside: str | None = None
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.inside = tag
        self.asked += [value or "" for name, value in attrs if name in ("src", "href")]
        self.ids += [value or "" for name, value in attrs if name == "id"]

    def handle_endtag(self, tag: str) -> None:
        self.inside = None

    def handle_data(self, data: str) -> None:
        (self.scripts if self.inside == "script" else self.text).append(data)


def rendered(out: Path) -> str:
    return page.render(compare_all(load_all(out), Choice()))


def test_the_page_needs_nothing_else(whole: Path) -> None:
    text = rendered(whole)
    found = Page(text)
    assert all(link.startswith("#") or link == "data:," for link in found.asked), found.asked
    assert sum(script.startswith("/**\n* plotly.js") for script in found.scripts) == 1
    assert "default-src 'none'" in text
    assert len(set(found.ids)) == len(found.ids)
    assert all(link[1:] in found.ids for link in found.asked if link.startswith("#"))


def test_the_page_says_what_the_numbers_say(whole: Path) -> None:
    found = compare(load(whole))
    text = " ".join(Page(rendered(whole)).text)
    for standing in found.standings:
        assert standing.mean is not None
        assert f"{100 * standing.mean:.2f} ± " in text
    assert words(found).headline.replace(" %", "\u00a0%") in text
    assert "fedawe run --task digits --out runs/x" in text
    assert "2.13.0" in text


def figures_of(text: str) -> dict[str, dict[str, object]]:
    found = re.search(r'<script type="application/json" id="data">(.*?)</script>', text, re.DOTALL)
    assert found is not None
    return dict(json.loads(found.group(1)))


def test_figures_are_thinned_and_true(tmp_path: Path) -> None:
    out = samples.experiment(tmp_path / "x", ["fedawe", "fedavg"], rounds=1500, every=2, clients=230)
    data = figures_of(rendered(out))["e0"]
    metric = data["metrics"][0]  # type: ignore[index]
    assert len(metric["rounds"]) <= 201
    assert (metric["rounds"][0], metric["rounds"][-1]) == (0, 1500)
    found = curve(load(out).complete("fedavg"), "test_accuracy")
    assert found is not None
    places = [found.rounds.tolist().index(n) for n in metric["rounds"]]
    assert metric["curves"]["fedavg"]["mean"] == pytest.approx((100 * found.mean[places]).tolist(), rel=1e-4)
    assert metric["curves"]["fedavg"]["std"] == pytest.approx((100 * found.std[places]).tolist(), rel=1e-4)
    trace = data["traces"][0]  # type: ignore[index]
    assert len(trace["order"]) == 100
    assert trace["columns"] <= 500
    assert trace["shares"] == sorted(trace["shares"], reverse=True)


def test_ninety_six_runs_stay_under_eight_megabytes(tmp_path: Path) -> None:
    for dynamics in ("stationary", "staircase", "sine", "interleaved"):
        samples.experiment(tmp_path / "suite" / dynamics, rounds=2000, every=10, clients=100, availability=dynamics)
    ReportCommand(tmp_path / "suite").run()
    path = tmp_path / "suite" / "report.html"
    assert path.stat().st_size < 8_000_000
    assert "Of 4 settings, FedAWE, which has the best mean rank, is better than FedAvg in 4" in path.read_text()


def spoilt_everything(out: Path) -> None:
    for label in samples.ALGORITHMS:
        samples.interrupt(out, label, 0)
        samples.diverge(out, label, 1)
        samples.damage(out, label, 2)


def without_anything_beside(out: Path) -> None:
    shutil.rmtree(out / "traces")
    shutil.rmtree(out / "clients")
    (out / "experiment.json").write_text("not json")


def only_headers(out: Path) -> None:
    for label in samples.ALGORITHMS:
        for seed in (0, 1, 2):
            samples.write(out, label, seed, samples.lines(out, label, seed)[:1])


def no_headers(out: Path) -> None:
    for label in samples.ALGORITHMS:
        for seed in (0, 1, 2):
            samples.record(out, label, seed).write_bytes(b"\x00\xff\n")


def odd_evaluations(out: Path) -> None:
    kept = samples.lines(out, "mifa", 0)
    kept[-2] = {"kind": "evaluation", "round": 60}
    kept[3]["test_accuracy_by_class"] = [0.5]
    samples.write(out, "mifa", 0, kept)


@pytest.mark.parametrize(
    "spoil",
    [spoilt_everything, without_anything_beside, only_headers, no_headers, odd_evaluations],
    ids=lambda f: f.__name__,
)
def test_no_damage_makes_the_page_fail(own: Path, spoil: object) -> None:
    spoil(own)  # type: ignore[operator]
    text = rendered(own)
    figures_of(text)
    print_summary(fedawe.load(own), Console(file=io.StringIO(), width=100))


def test_names_cannot_break_the_page(tmp_path: Path) -> None:
    odd = "fedau(x=<b onload='1'>&amp;\")"
    task = {"class": "my:Task", "name": "</script><b>", "<b>": "<b>"}
    text = rendered(samples.experiment(tmp_path / "x", [odd, "fedavg", "fedawe"], header={"task": task}))
    assert "<b>" not in text.split("<script>")[0]
    assert "<b onload" not in text.replace(json.dumps("<b onload"), "")
    assert figures_of(text)["e0"]["algorithms"][0]["key"] == odd  # type: ignore[index]


def test_the_page_of_a_recorded_trace_and_of_quadratics(tmp_path: Path) -> None:
    recorded = figures_of(rendered(samples.experiment(tmp_path / "r", recorded=True)))["e0"]
    assert recorded["probabilities"]["known"] is False  # type: ignore[index, call-overload]
    text = rendered(samples.experiment(tmp_path / "q", task="quadratic", final={"fedawe": 1, "fedavg": 9}))
    assert figures_of(text)["e0"]["classes"] is None
    assert "distance to the optimum" in text


# ---- the command


def test_the_command_writes_pages_tables_and_figures(own: Path, capsys: pytest.CaptureFixture[str]) -> None:
    ReportCommand(own).run()
    ReportCommand(own, format="csv").run()
    ReportCommand(own, format="tex", to=own / "t").run()
    paths = [Path(line) for line in capsys.readouterr().out.splitlines()]
    names = [str(path.relative_to(own)) for path in paths]
    assert names == [
        "report.html",
        *(f"tables/{name}.csv" for name in ("results", "speed", "classes")),
        *(f"t/{name}.tex" for name in ("results", "speed", "classes")),
    ]
    assert all(path.stat().st_size > 100 for path in paths)


def test_too_few_seeds_for_a_bootstrap_write_nothing(own: Path) -> None:
    with pytest.raises(UserError, match="needs 10 seeds"):
        ReportCommand(own, interval="bootstrap").run()
    assert not (own / "report.html").exists()


def test_a_wrong_folder_is_one_line_and_exit_code_two(
    tmp_path: Path, command: Callable[..., tuple[int, str, str]]
) -> None:
    assert command("report", tmp_path / "none") == (2, "", f"fedawe: {tmp_path / 'none'}: no such folder\n")


def test_the_terminal_gets_the_table_and_the_headline(whole: Path) -> None:
    console = Console(record=True, width=120, file=io.StringIO())
    print_summary(fedawe.load(whole), console)
    text = console.export_text()
    assert re.search(r"1 +FedAWE +3 +8\d\.\d\d ± 0\.\d\d +\+\d\.\d\d \[\d\.\d\d, \d\.\d\d\]", text)
    assert "FedAWE is better than FedAvg" in text


@dataclass(frozen=True)
class OfTwo(fedawe.FedAvg):
    """A linear rule for vectors of two numbers and no others."""

    def aggregate(self, state: Any, t: int, A: Any, G: Any) -> Any:
        return super().aggregate(state, t, A, G @ torch.eye(2))


def test_a_rule_that_cannot_be_audited_is_named_and_the_others_are_shown(tmp_path: Path) -> None:
    results = fedawe.Experiment(
        task=fedawe.Quadratic(torch.zeros(3, 2)),
        algorithms={"FedAvg": fedawe.FedAvg(), "of two": OfTwo()},
        availability=fedawe.Stationary(),
        p=0.5,
        rounds=10,
        seeds=(0,),
    ).run(tmp_path / "x")
    found = influences_of(results.runs)
    assert found is not None
    assert (list(found.influences), found.omitted) == (["FedAvg"], ("of two",))
    assert "fedawe.load(...).report()</code>): of two." in results.report().read_text()


def test_names_are_no_markup_on_a_terminal(tmp_path: Path) -> None:
    out = samples.experiment(tmp_path / "x", ["mine [/b]", "FedAWE [clip=0.5]"], [0])
    console = Console(record=True, width=160, file=io.StringIO(), force_terminal=True)
    print_summary(fedawe.load(out), console)
    assert "minus mine [/b]" in console.export_text(clear=False)
    assert "FedAWE [clip=0.5]" in console.export_text()


@pytest.mark.parametrize("verb", ["report", "export"])
def test_help_loads_nothing_heavy(verb: str) -> None:
    code = f"""
import contextlib, io, sys
from fedawe.cli.main import main
sys.argv = ["fedawe", "{verb}", "--help"]
with contextlib.suppress(SystemExit), contextlib.redirect_stdout(io.StringIO()) as said:
    main()
assert "PATH" in said.getvalue()
print({{"torch", "plotly", "polars", "scipy", "matplotlib", "pandas"}} & set(sys.modules))
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "set()\n"
