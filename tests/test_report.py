"""The page and its words: nothing is claimed that the numbers do not show, and nothing makes the page fail."""

import io
import json
import re
import shutil
from collections.abc import Callable
from html.parser import HTMLParser
from pathlib import Path

import pytest
import samples
from hypothesis import given
from hypothesis import strategies as st
from rich.console import Console

from fedawe import report
from fedawe import results as compare
from fedawe.cli.report import Report, print_summary
from fedawe.core.errors import UserError
from fedawe.report.words import Words, suite_words, versus, words
from fedawe.results import METRICS, Standing

accuracy, distance = METRICS[0], METRICS[-1]


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return samples.experiment(tmp_path_factory.mktemp("whole") / "x")


@pytest.fixture
def own(whole: Path, tmp_path: Path) -> Path:
    """A copy that a test may spoil."""
    return Path(shutil.copytree(whole, tmp_path / "x"))


def said(out: Path) -> Words:
    return words(compare.compare(compare.load(out)))


def topics(found: Words) -> dict[str, str]:
    return {finding.topic: finding.text for finding in found.findings}


# ---- words


@given(
    st.lists(st.tuples(st.floats(0, 1), st.floats(0, 1)), min_size=1, max_size=6), st.sampled_from([accuracy, distance])
)
def test_an_advantage_is_claimed_only_where_the_interval_shows_one(
    pairs: list[tuple[float, float]], metric: object
) -> None:
    ours = Standing("fedawe", {seed: a for seed, (a, _) in enumerate(pairs)}, (), None, 1)
    theirs = Standing("fedavg", {seed: b for seed, (_, b) in enumerate(pairs)}, (), None, 2)
    d = compare.paired(ours.values, theirs.values)
    assert d is not None
    text = versus(metric, ours, theirs, d)  # type: ignore[arg-type]
    if d.low is None or d.high is None:
        assert "with one seed there is no interval" in text
        assert "ahead" not in text
        assert "behind" not in text
    elif d.low <= 0 <= d.high:
        assert text.startswith("FedAWE and FedAvg cannot be told apart")
        assert "contains zero" in text
    else:
        better = (d.low > 0) == (metric is accuracy)
        assert text.startswith(f"FedAWE is {'ahead of' if better else 'behind'} FedAvg: ")
    assert ("higher than" in text) == (d.mean > 0)
    assert ("lower than" in text) == (d.mean < 0)


def test_the_headline_is_about_fedawe_and_fedavg(whole: Path) -> None:
    found = compare.compare(compare.load(whole)).standing("fedawe")
    assert found is not None
    assert found.difference is not None
    text = said(whole).headline
    assert text.startswith("FedAWE is ahead of FedAvg: its test accuracy is ")
    assert f"{100 * found.difference.mean:.2f} points higher" in text
    assert "3 paired seeds" in text


def test_a_lead_of_the_other_is_told_too(tmp_path: Path) -> None:
    out = samples.experiment(tmp_path / "x", ["fedawe", "fedavg"], final={"fedawe": 0.5, "fedavg": 0.8})
    assert said(out).headline.startswith("FedAWE is behind FedAvg")


def test_findings_name_the_best_the_rival_and_the_last_aggregate(whole: Path) -> None:
    found = topics(said(whole))
    assert found["Best on average"].startswith("FedAWE with a test accuracy of 8")
    assert "FedVARP" in found["Against the best of the others"]
    assert "Ahead: " in found["The others against FedAvg"]
    assert "behind: F3AST and FedAvg-all" in found["The others against FedAvg"]
    latest = compare.compare(compare.load(whole)).standing("fedawe", latest=True)
    ours = compare.compare(compare.load(whole)).standing("fedawe")
    assert latest is not None
    assert ours is not None
    assert latest.mean is not None
    assert ours.mean is not None
    assert f"{100 * (ours.mean - latest.mean):.2f} points below x̄" in found["x̄ and the last aggregate"]
    assert "of 30 clients were there" in found["Availability"]


def test_known_probabilities_are_called_what_they_are(tmp_path: Path) -> None:
    out = samples.experiment(tmp_path / "x", ["fedavg", "fedavg-known"], final={"fedavg-known": 0.9})
    assert "nobody knows outside a simulation" in topics(said(out))["Best on average"]
    assert said(out).headline == "FedAWE is not part of this experiment."


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
        "Not ranked, because seeds are missing that others have: FedAU, F3AST and MIFA.",
    )


def test_no_common_seed_is_no_comparison(own: Path) -> None:
    for seed in (0, 1, 2):
        samples.diverge(own, "fedawe", seed)
    assert "no seed in which both completed" in said(own).headline


def test_method_names_the_interval_that_is_printed(tmp_path: Path) -> None:
    out = samples.experiment(tmp_path / "x", ["fedawe", "fedavg"], range(10))
    experiment = compare.load(out)
    student = " ".join(words(compare.compare(experiment)).method)
    bootstrap = " ".join(words(compare.compare(experiment, interval="bootstrap")).method)
    assert "Student t intervals" in student
    assert "n − 1" in student
    assert "bootstrap intervals (BCa" in bootstrap
    assert "Student" not in bootstrap


def test_a_suite_counts_where_fedawe_is_ahead(tmp_path: Path) -> None:
    for name, ours in (("ahead", 0.9), ("behind", 0.5)):
        samples.experiment(tmp_path / name, ["fedawe", "fedavg"], final={"fedawe": ours}, settings={"dynamics": name})
    comparisons = [compare.compare(experiment) for experiment in compare.load_all(tmp_path)]
    assert suite_words(comparisons, ["a", "b"]).headline == (
        "Of 2 settings, FedAWE is ahead of FedAvg in 1 (a), behind FedAvg in 1 (b)."
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
    return report.render(compare.load_all(out))


def test_the_page_needs_nothing_else(whole: Path) -> None:
    text = rendered(whole)
    page = Page(text)
    assert all(link.startswith("#") or link == "data:," for link in page.asked), page.asked
    assert sum(script.startswith("/**\n* plotly.js") for script in page.scripts) == 1
    assert "default-src 'none'" in text
    assert len(set(page.ids)) == len(page.ids)
    assert all(link[1:] in page.ids for link in page.asked if link.startswith("#"))


def test_the_page_says_what_the_numbers_say(whole: Path) -> None:
    found = compare.compare(compare.load(whole))
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
    curve = compare.curve(compare.load(out).complete("fedavg"), "test_accuracy")
    assert curve is not None
    places = [curve.rounds.tolist().index(n) for n in metric["rounds"]]
    assert metric["curves"]["fedavg"]["mean"] == pytest.approx((100 * curve.mean[places]).tolist(), rel=1e-4)
    assert metric["curves"]["fedavg"]["std"] == pytest.approx((100 * curve.std[places]).tolist(), rel=1e-4)
    trace = data["traces"][0]  # type: ignore[index]
    assert len(trace["order"]) == 100
    assert trace["columns"] <= 500
    assert trace["shares"] == sorted(trace["shares"], reverse=True)


def test_ninety_six_runs_stay_under_eight_megabytes(tmp_path: Path) -> None:
    for dynamics in ("stationary", "staircase", "sine", "interleaved"):
        samples.experiment(
            tmp_path / "suite" / dynamics, rounds=2000, every=10, clients=100, settings={"dynamics": dynamics}
        )
    path = report.write(tmp_path / "suite")
    assert path == tmp_path / "suite" / "report.html"
    assert path.stat().st_size < 8_000_000
    assert "Of 4 settings, FedAWE is ahead of FedAvg in 4" in path.read_text()


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
    print_summary(compare.load(own), Console(file=io.StringIO(), width=100))


def test_names_cannot_break_the_page(tmp_path: Path) -> None:
    odd = "fedau(x=<b onload='1'>&amp;\")"
    text = rendered(samples.experiment(tmp_path / "x", [odd, "fedavg", "fedawe"], settings={"task": "</script><b>"}))
    assert "<b>" not in text.split("<script>")[0]
    assert "<b onload" not in text.replace(json.dumps("<b onload"), "")
    assert figures_of(text)["e0"]["algorithms"][2]["key"] == odd  # type: ignore[index]


def test_the_page_of_a_recorded_trace_and_of_quadratics(tmp_path: Path) -> None:
    recorded = figures_of(rendered(samples.experiment(tmp_path / "r", recorded=True)))["e0"]
    assert recorded["probabilities"]["known"] is False  # type: ignore[index, call-overload]
    text = rendered(samples.experiment(tmp_path / "q", task="quadratic", final={"fedawe": 1, "fedavg": 9}))
    assert figures_of(text)["e0"]["classes"] is None
    assert "distance to the optimum" in text


# ---- the command


def test_the_command_writes_pages_tables_and_figures(own: Path, capsys: pytest.CaptureFixture[str]) -> None:
    Report(own).run()
    Report(own, format="csv").run()
    Report(own, format="tex", to=own / "t").run()
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
        Report(own, interval="bootstrap").run()
    assert not (own / "report.html").exists()


def test_a_wrong_folder_is_one_line_and_exit_code_two(
    tmp_path: Path, command: Callable[..., tuple[int, str, str]]
) -> None:
    assert command("report", tmp_path / "none") == (2, "", f"fedawe: {tmp_path / 'none'}: no such folder\n")


def test_the_terminal_gets_the_table_and_the_headline(whole: Path) -> None:
    console = Console(record=True, width=120, file=io.StringIO())
    print_summary(compare.load(whole), console)
    text = console.export_text()
    assert re.search(r"1 +FedAWE +3 +8\d\.\d\d ± 0\.\d\d +\+\d\.\d\d \[\d\.\d\d, \d\.\d\d\]", text)
    assert "FedAWE is ahead of FedAvg" in text
