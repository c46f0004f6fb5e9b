"""Records in, numbers out: what counts, what does not, and intervals against independent references."""

import csv
import io
import math
import shutil
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import samples
from scipy import stats

import fedawe
from fedawe.availability.trace import Trace
from fedawe.core.errors import UserError
from fedawe.core.rng import rng
from fedawe.results.choice import Choice
from fedawe.results.curves import Curve, curve, first_round, logarithmic, speed_table
from fedawe.results.folder import RunSet, load, load_all
from fedawe.results.metrics import deciding, metrics_of, variants_of
from fedawe.results.participation import by_class, class_availability, echo_counts, staleness_counts
from fedawe.results.standings import (
    Difference,
    Standing,
    compare,
    mean_ranks,
    paired,
    window,
    window_mean,
)
from fedawe.results.suites import compare_all, overview_table, titles
from fedawe.results.summary import summary_table
from fedawe.results.tables import Cell, Column, Table


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return samples.experiment(tmp_path_factory.mktemp("whole") / "x")


@pytest.fixture
def own(whole: Path, tmp_path: Path) -> Path:
    """A copy that a test may spoil."""
    return Path(shutil.copytree(whole, tmp_path / "x"))


def test_paired_interval_is_students() -> None:
    draw = np.random.default_rng(0)
    ours, theirs = draw.normal(size=5), draw.normal(size=5)
    found = paired(dict(enumerate(ours)), {**dict(enumerate(theirs)), 99: 1.0})
    expected = stats.ttest_rel(ours, theirs).confidence_interval(0.95)
    assert found is not None
    assert (found.low, found.high) == (pytest.approx(expected.low, abs=1e-12), pytest.approx(expected.high, abs=1e-12))
    assert found.seeds == (0, 1, 2, 3, 4)
    assert found.mean == pytest.approx((ours - theirs).mean())


def test_one_pair_has_no_interval_and_none_is_none() -> None:
    one = paired({0: 2.0, 1: 5.0}, {1: 4.0})
    assert one == Difference(1.0, None, None, (1,), "student")
    assert one.sign == 0
    assert paired({0: 1.0}, {1: 1.0}) is None


@pytest.mark.parametrize(
    ("differences", "sign"), [((1.0, 1.0), 1), ((-1.0, -1.0), -1), ((0.0, 0.0), 0), ((1.0, -1.0), 0)]
)
def test_sign_is_zero_unless_the_interval_leaves_zero_out(differences: tuple[float, float], sign: int) -> None:
    found = paired(dict(enumerate(differences)), {0: 0.0, 1: 0.0})
    assert found is not None
    assert found.sign == sign


def test_bootstrap_needs_ten_seeds_and_is_repeatable() -> None:
    values = dict(enumerate(rng(0, "test").normal(1.0, 1.0, 12)))
    zero = dict.fromkeys(values, 0.0)
    with pytest.raises(UserError, match="needs 10 seeds, here are 9"):
        paired({seed: values[seed] for seed in range(9)}, zero, "bootstrap")
    first, again = (paired(values, zero, "bootstrap") for _ in range(2))
    assert first == again
    assert first is not None
    assert first.low is not None
    assert first.high is not None
    assert first.low < first.mean < first.high
    half = 1.96 * np.std(list(values.values()), ddof=1) / math.sqrt(12)
    assert first.high - first.low == pytest.approx(2 * half, rel=0.25)


def test_window_is_the_last_fifty_rounds(tmp_path: Path) -> None:
    long = load(samples.experiment(tmp_path / "long", ["fedavg"], [0], rounds=110, every=12)).runs[0]
    assert window(long) == [72, 84, 96, 108, 110]  # 60 is the fifty-first from the end
    accuracies = [line["test_accuracy"] for line in long.record.evaluations if line["round"] > 60]
    assert window_mean(long, "test_accuracy") == pytest.approx(sum(accuracies) / 5)
    assert window_mean(long, "nonsense") is None
    short = load(samples.experiment(tmp_path / "short", ["fedavg"], [0], rounds=49, every=10)).runs[0]
    assert window(short) == [49]


def test_mean_and_deviation_over_seeds() -> None:
    standing = Standing("fedavg", "FedAvg", {0: 1.0, 1: 2.0, 5: 6.0}, (), None, 1)
    assert standing.mean == 3.0
    assert standing.std == pytest.approx(math.sqrt(7.0))  # (4 + 1 + 9) / (3 - 1)
    assert Standing("fedavg", "FedAvg", {0: 1.0}, (), None, 1).std is None


def test_standings_are_ranked_and_paired(whole: Path) -> None:
    found = compare(load(whole))
    assert [s.rank for s in found.ranked] == list(range(1, 9))
    means = [s.mean for s in found.ranked if s.mean is not None]
    assert means == sorted(means, reverse=True)
    ours, theirs = found.standing("fedawe"), found.standing("fedavg")
    assert ours is not None
    assert theirs is not None
    assert ours.difference == paired(ours.values, theirs.values)
    assert theirs.difference is None
    latest = found.standing("fedawe", variant="latest")
    assert latest is not None
    assert latest.rank is None
    assert latest.mean is not None
    assert ours.mean is not None
    assert latest.mean < ours.mean


def test_a_lower_distance_is_better(tmp_path: Path) -> None:
    out = samples.experiment(tmp_path / "q", ["fedawe", "fedavg"], task="quadratic", final={"fedawe": 1, "fedavg": 17})
    found = compare(load(out))
    assert found.metric.name == "distance"
    assert [s.label for s in found.ranked] == ["fedawe", "fedavg"]


@pytest.mark.parametrize(
    ("spoil", "status"),
    [(samples.diverge, "diverged"), (samples.interrupt, "unfinished"), (samples.damage, "damaged")],
)
def test_only_complete_runs_count(own: Path, spoil: object, status: str) -> None:
    before = compare(load(own)).standing("mifa")
    spoil(own, "mifa", 1)  # type: ignore[operator]
    experiment = load(own)
    assert [run.status for run in experiment.of("mifa")] == ["complete", status, "complete"]
    after = compare(experiment).standing("mifa")
    assert before is not None
    assert after is not None
    assert after.values == {seed: value for seed, value in before.values.items() if seed != 1}
    assert [run.seed for run in after.missing] == [1]
    assert after.rank is None  # its mean is over other seeds than the others'
    assert after.difference is not None
    assert after.difference.seeds == (0, 2)
    found = curve(experiment.complete("mifa"), "test_accuracy")
    assert found is not None
    assert found.seeds == (0, 2)


def test_a_run_with_fewer_rounds_than_others_does_not_count(own: Path) -> None:
    """As when only some algorithms are extended, or when the extension is interrupted."""
    for seed in (0, 1, 2):
        header, *rest = samples.lines(own, "fedawe", seed)
        samples.write(own, "fedawe", seed, [{**header, "rounds": 90}, *rest])
    experiment = load(own)
    assert {run.status for run in experiment.of("fedawe")} == {"complete"}
    others = [run for run in experiment.runs if run.label != "fedawe"]
    assert {run.status for run in others} == {"unfinished"}
    assert {run.message for run in others} == {"has 60 rounds, others have 90; extend it to 90"}
    found = compare(experiment)
    assert [s.label for s in found.ranked] == ["fedawe"]
    assert all(s.difference is None for s in found.main)


def test_algorithms_with_other_seeds_are_not_ranked_together(own: Path) -> None:
    for label, seed in (("fedawe", 2), ("fedavg", 0)):  # two seeds each, one of which both have
        shutil.rmtree(samples.record(own, label, seed).parent)
    found = compare(load(own), Choice(algorithms=("fedawe", "fedavg")))
    assert [len(s.values) for s in found.main] == [2, 2]
    assert found.ranked == []


def test_a_run_without_a_record_has_not_finished(own: Path) -> None:
    samples.record(own, "fedau", 2).unlink()
    samples.record(own, "fedau", 1).write_bytes(b"")
    runs = load(own).of("fedau")
    assert [run.status for run in runs] == ["complete", "damaged", "unfinished"]
    assert [run.rounds for run in runs] == [60, 0, 0]


def test_curves_are_taken_where_all_seeds_were_evaluated(own: Path) -> None:
    kept = [line for line in samples.lines(own, "fedavg", 1) if line.get("round") != 30]
    samples.write(own, "fedavg", 1, kept)
    found = curve(load(own).complete("fedavg"), "test_accuracy")
    assert found is not None
    assert found.rounds.tolist() == [n for n in range(0, 61, 5) if n != 30]
    assert found.by_seed.shape == (3, 12)
    assert found.std == pytest.approx(np.std(found.by_seed, axis=0, ddof=1))


def test_first_round_at_a_target() -> None:
    rising = Curve(np.array([0.0, 5.0, 10.0]), np.array([[0.1, 0.4, 0.8], [0.1, 0.6, 0.6]]), (0, 1))
    assert [first_round(rising, target) for target in (0.1, 0.5, 0.7, 0.71)] == [0, 5, 10, None]
    falling = Curve(rising.rounds, 1 - rising.by_seed, (0, 1))
    assert [first_round(falling, 1 - target, -1) for target in (0.1, 0.5, 0.71)] == [0, 5, None]


def test_speed_table_has_the_papers_targets(whole: Path) -> None:
    table = speed_table(compare(load(whole)))
    assert table is not None
    assert [column.title for column in table.columns] == ["algorithm", "20 %", "40 %", "60 %", "80 %"]
    assert dict(zip(table.labels, [row[-1].text for row in table.rows], strict=True))["fedavg-all"] == "never"


def test_staleness_and_echo_are_counted_right() -> None:
    on = rng(0, "test").random((40, 7)) < 0.3
    on[:, 6] = False  # one client never comes
    last, echoes, ages = [-1] * 7, [], []
    for t in range(40):
        for i in range(7):
            ages.append(t - last[i])
            if on[t, i]:
                echoes.append(t - last[i])
                last[i] = t
    assert echo_counts(Trace(on)).tolist() == np.bincount(echoes).tolist()
    assert staleness_counts(Trace(on)).tolist() == np.bincount(ages).tolist()


def test_the_staleness_of_very_many_rounds_takes_no_time() -> None:
    on = np.zeros((400_000, 2), dtype=bool)
    on[::2] = True
    began = time.perf_counter()
    assert staleness_counts(Trace(on)).tolist() == [0, 400_002, 399_998]
    assert time.perf_counter() - began < 5


def test_class_availability_is_the_mean_over_samples(whole: Path) -> None:
    experiment = load(whole)
    clients, trace = experiment.clients[1], experiment.traces[1]
    assert clients.frequencies is not None
    expected = []
    for c in range(samples.CLASSES):
        weights = [clients.frequencies[i, c] * clients.sizes[i] for i in range(trace.clients)]
        shares = [trace.on[:, i].mean() for i in range(trace.clients)]
        expected.append(sum(w * s for w, s in zip(weights, shares, strict=True)) / sum(weights))
    assert class_availability(experiment, 1) == pytest.approx(expected)


def test_classes_are_in_order_of_availability(whole: Path) -> None:
    experiment = load(whole)
    view = by_class(compare(experiment))["fedavg"]
    assert (np.diff(view.availability, axis=1) >= 0).all()
    run = experiment.of("fedavg")[2]
    accuracy, share = window_mean(run, "test_accuracy_by_class"), class_availability(experiment, 2)
    assert accuracy is not None
    assert share is not None
    often = sorted(range(10), key=lambda c: share[c])[5:]
    seldom = sorted(range(10), key=lambda c: share[c])[:5]
    assert view.gaps()[2] == pytest.approx(accuracy[often].mean() - accuracy[seldom].mean())


def test_classes_without_a_number_are_left_out(own: Path) -> None:
    """As a class that no test sample has: its accuracy is unknown, and not zero."""
    for label in ("fedawe", "fedavg"):
        for seed in (0, 1, 2):
            lines = samples.lines(own, label, seed)
            for line in lines[1:-1]:
                line["test_accuracy_by_class"][4] = None
            samples.write(own, label, seed, lines)
    view = by_class(compare(load(own), Choice(algorithms=("fedawe", "fedavg"))))["fedavg"]
    assert view.values.shape == view.classes.shape == (3, 9)
    assert (view.values > 0).all()
    assert all(set(classes) == set(range(10)) - {4} for classes in view.classes.tolist())
    assert (np.diff(view.availability, axis=1) >= 0).all()
    assert by_class(compare(load(own)))["mifa"].values.shape == (3, 9)  # all algorithms are compared on the same


def test_csv_has_the_bare_numbers(whole: Path) -> None:
    found = compare(load(whole))
    rows = list(csv.DictReader(io.StringIO(str(summary_table(found).export("csv")))))
    assert [row["algorithm"] for row in rows] == [s.name for s in found.standings]
    for row, standing in zip(rows, found.standings, strict=True):
        assert standing.mean is not None
        assert float(row["test_accuracy"]) == pytest.approx(100 * standing.mean, rel=1e-5)
        if standing.difference is not None and standing.difference.low is not None:
            assert float(row["difference_low"]) == pytest.approx(100 * standing.difference.low, rel=1e-5)
    assert rows[-1]["rank"] == ""


def test_latex_and_markdown_escape_what_they_must() -> None:
    table = Table(
        "t", "", (Column("a_b", ("a",), numeric=False),), ((Cell("x & y|z ± −1 %", ("x",), strong=True),),), ("",)
    )
    assert str(table.export("tex")).splitlines()[3:7] == [
        r"  a\_b \\",
        r"  \midrule",
        r"  \textbf{x \& y|z $\pm$ $-$1 \%} \\",
        r"  \bottomrule",
    ]
    assert str(table.export("md")).splitlines()[2] == "| **x & y\\|z ± −1 %** |"
    odd = Table("t", "", (Column("reward | x", ("a",)),), ((Cell("two\nlines, λ Ω µ Α", ("x",)),),), ("",))  # noqa: RUF001
    assert str(odd.export("md")).splitlines()[::2] == ["| reward \\| x |", "| two lines, λ Ω µ Α |"]  # noqa: RUF001
    assert str(odd.export("tex")).splitlines()[5] == r"  two lines, $\lambda$ $\Omega$ $\mu$ A \\"
    assert repr(odd).splitlines()[-1].strip() == "two lines, λ Ω µ Α"  # noqa: RUF001


def test_labels_are_in_the_order_of_the_experiment(tmp_path: Path) -> None:
    labels = ("fedau(K=20)", "fedau", "a/b", "fedavg(eta_g=0.5)", "fedawe")
    experiment = load(samples.experiment(tmp_path / "x", labels, [0, 1]))
    assert experiment.labels == labels
    assert list(experiment.names.values()) == ["FedAU (K=20)", "FedAU", "a/b", "FedAvg (eta_g=0.5)", "FedAWE"]
    assert compare(experiment).baseline == "fedavg(eta_g=0.5)"  # by its class


def test_the_baseline_is_fedavg_or_the_first_or_the_one_asked_for(tmp_path: Path) -> None:
    experiment = load(samples.experiment(tmp_path / "x", ["mifa", "new", "fedawe"], [0, 1]))
    assert compare(experiment).baseline == "mifa"
    for text in ("fedawe", "FedAWE", "FEDAWE"):
        found = compare(experiment, Choice(baseline=text))
        assert found.baseline == "fedawe"
        ours, theirs = found.standing("new"), found.standing("fedawe")
        assert ours is not None
        assert theirs is not None
        assert ours.difference == paired(ours.values, theirs.values)
    with pytest.raises(UserError, match=r"unknown algorithm 'fedavg' in .*; choose from mifa, new, fedawe"):
        compare(experiment, Choice(baseline="fedavg"))
    with pytest.raises(UserError, match=r"the baseline 'mifa' is not among the algorithms to compare, new, fedawe;"):
        compare(experiment, Choice(baseline="mifa", algorithms=("new", "fedawe")))
    assert compare(experiment.only(["new"])).baseline is None


def test_algorithms_and_window_can_be_chosen(whole: Path) -> None:
    experiment = load(whole)
    found = compare(experiment, Choice(algorithms=("MIFA", "fedau"), window=10))
    assert found.runs.labels == ("mifa", "fedau")
    assert found.baseline == "mifa"
    run = experiment.of("fedau")[0]
    last = [line["test_accuracy"] for line in run.record.evaluations if line["round"] in (55, 60)]
    standing = found.standing("fedau")
    assert standing is not None
    assert standing.values[run.seed] == pytest.approx(sum(last) / 2)
    with pytest.raises(UserError, match="window is 0; expected a whole number"):
        Choice(window=0)


# ---- metrics


def text(out: Path, task: str = "text", **more: object) -> RunSet:
    """Two algorithms and a perplexity, of which the first is lower; whatever else there is says the opposite."""
    final = {"new": 4.0, "fedavg": 9.0}
    return load(samples.experiment(out, ["fedavg", "new"], task=task, final=final, **more))  # type: ignore[arg-type]


def test_a_task_with_a_metric_of_its_own_is_ranked_by_it(tmp_path: Path) -> None:
    found = compare(text(tmp_path / "x"))
    assert (found.metric.name, found.metric.better, found.note) == ("test_perplexity", "lower", "")
    assert [(s.label, s.rank) for s in found.standings] == [("new", 1), ("fedavg", 2)]
    d = found.standings[0].difference
    assert d is not None
    assert d.low is not None
    assert d.high is not None
    assert d.low < d.mean < d.high < 0
    assert found.verdict(d) == 1
    assert [metric.name for metric in metrics_of(found.runs)] == ["test_perplexity", "consensus", "active"]
    assert "lower is better" in summary_table(found).caption


def test_without_a_metric_that_decides_the_first_with_a_direction_is_taken_and_it_is_said(tmp_path: Path) -> None:
    found = compare(text(tmp_path / "x", "undecided"))
    assert found.metric.name == "test_perplexity"  # not the diagnostic that is declared before it
    assert found.note.startswith("No metric is declared to decide; algorithms are ranked by test perplexity")
    assert [s.label for s in found.ranked] == ["new", "fedavg"]


def test_the_metric_that_decides_need_not_be_the_first(tmp_path: Path) -> None:
    declared = [samples.metric("loss", "lower"), samples.metric("distance", "lower", decides=True)]
    out = samples.experiment(tmp_path / "x", ["fedavg"], [0], task="quadratic", header={"metrics": declared})
    assert [metric.name for metric in metrics_of(load(out))][:2] == ["distance", "loss"]
    assert deciding(load(out))[1] == ""


def test_two_algorithms_of_one_name_are_called_by_their_labels(tmp_path: Path) -> None:
    out = samples.experiment(tmp_path / "x", ["a", "b", "fedavg"], [0], header={"name": "Same"})
    kept = samples.lines(out, "fedavg", 0)
    samples.write(out, "fedavg", 0, [{**kept[0], "name": "FedAvg"}, *kept[1:]])
    assert load(out).names == {"a": "a", "b": "b", "fedavg": "FedAvg"}


def test_nothing_is_ranked_by_what_has_no_direction(tmp_path: Path) -> None:
    undeclared = compare(text(tmp_path / "x", "undeclared"))
    assert undeclared.metric.better is None
    assert undeclared.note.startswith("Nothing is ranked: no metric declares")
    asked = compare(text(tmp_path / "y"), Choice(metric="consensus"))
    assert asked.note.startswith("Nothing is ranked by consensus")
    for found in (undeclared, asked):
        assert found.ranked == []
        assert [s.label for s in found.standings] == ["fedavg", "new"]
        assert found.verdict(found.standings[1].difference) == 0
        assert speed_table(found) is None


def test_a_metric_is_chosen_by_name_title_or_further_model(whole: Path) -> None:
    experiment = load(whole)
    assert deciding(experiment, "test_loss")[0].better == "lower"
    assert deciding(experiment, "train accuracy, uniform over clients")[0].name == "client_accuracy"
    assert variants_of(experiment) == ("latest",)
    latest = compare(experiment, Choice(metric="latest_test_loss"))
    assert latest.metric.title == "test loss, last aggregate"
    assert [s.label for s in latest.standings if s.values] == ["fedawe"]
    with pytest.raises(UserError, match=r"unknown metric 'accuracy' in .*; there are test_accuracy, test_loss, "):
        deciding(experiment, "accuracy")


def test_a_diagnostic_that_ends_like_a_metric_is_no_further_model(tmp_path: Path) -> None:
    out = samples.experiment(tmp_path / "x", ["fedavg"], [0], task="quadratic")
    kept = [
        {**line, "inner_distance": 1.0} if line["kind"] == "evaluation" else line
        for line in samples.lines(out, "fedavg", 0)
    ]
    samples.write(out, "fedavg", 0, kept)
    assert variants_of(load(out)) == ()  # there is no inner_loss
    assert "inner_distance" in [metric.name for metric in metrics_of(load(out))]


def test_further_models_are_those_that_the_header_names(tmp_path: Path) -> None:
    header = {"metrics": [samples.metric("distance", "lower", decides=True)]}
    for name, models in (("old", {}), ("none", {"models": []}), ("other", {"models": ["other"]})):
        out = samples.experiment(tmp_path / name, ["fedavg"], [0], task="quadratic", header=header | models)
        more = {"train_distance": 1.0, "other_distance": 2.0, "other_loss": 3.0, "other_size": 4.0}
        kept = [{**line, **more} if line["kind"] == "evaluation" else line for line in samples.lines(out, "fedavg", 0)]
        samples.write(out, "fedavg", 0, kept)
    assert variants_of(load(tmp_path / "old")) == ("train", "other")
    assert variants_of(load(tmp_path / "none")) == ()
    assert variants_of(load(tmp_path / "other")) == ("other",)
    shown = {metric.name for metric in metrics_of(load(tmp_path / "none"))}
    assert shown >= {"train_distance", "other_distance", "other_loss", "other_size"}
    shown = {metric.name for metric in metrics_of(load(tmp_path / "other"))}
    assert shown & set(more) == {"train_distance", "other_size"}


def test_very_small_and_very_large_numbers_have_an_exponent() -> None:
    gap = fedawe.Metric("gap", better="lower")
    assert [gap.show(value) for value in (1e-10, -2.5e-7, 1e21)] == ["1.000e−10", "−2.500e−07", "1.000e+21"]
    assert [gap.show(value) for value in (1e-6, 0.0, 123456789.0)] == ["0.00000100", "0", "123456789"]
    assert gap.show(3e-11, sign=True, like=2e-10) == "+3.000e−11"
    assert [gap.show(float(value)) for value in ("inf", "-inf", "nan")] == ["inf", "−inf", "nan"]


def test_speed_of_a_metric_that_falls(tmp_path: Path) -> None:
    table = speed_table(compare(text(tmp_path / "x", noise=0.0)))
    assert table is not None
    columns = {column.title: [row[n].values[0] for row in table.rows] for n, column in enumerate(table.columns)}
    assert columns.pop("algorithm") == ["FedAvg", "new"]
    targets = [float(title) for title in columns]
    assert targets == sorted(targets, reverse=True)
    for target, firsts in zip(targets, columns.values(), strict=True):
        for first, final in zip(firsts, (9.0, 4.0), strict=True):
            curve_of = [(n, 60 * math.exp(-n / 7.2) + final) for n in range(0, 61, 5)]
            assert first == next((n for n, value in curve_of if value <= target), None)
    assert list(columns.values())[-1][0] is None  # the worse one never gets to the best
    assert "at or below a target" in table.caption


def test_a_logarithmic_axis_is_for_positive_numbers_of_several_magnitudes() -> None:
    def of(*values: float) -> Curve:
        return Curve(np.arange(len(values), dtype=float), np.array([values]), (0,))

    loss, share = fedawe.Metric("loss", better="lower"), fedawe.Metric("accuracy", unit="%")
    assert logarithmic(loss, [of(50, 1), of(40, 2)])
    assert not logarithmic(loss, [of(5, 1), of(4, 2)])
    assert not logarithmic(loss, [of(50, 0), of(40, 2)])
    assert not logarithmic(share, [of(0.9, 0.01)])
    assert not logarithmic(loss, [])


# ---- the object


def test_results_speak_for_themselves(whole: Path) -> None:
    results = fedawe.load(whole)
    found = compare(load(whole))
    assert str(results.table()) == str(summary_table(found)) == repr(results)
    assert [line.split()[1] for line in str(results.table()).splitlines()[4:6]] == ["FedAWE", "FedVARP"]
    html = results._repr_html_()
    assert "<b>FedAWE</b>" in html
    assert html.count("<tr>") == 1 + len(found.standings)
    assert "minus MIFA [95 %]" in str(results.table(metric="test_loss", baseline="MIFA"))
    d, standing = results.difference("FedAWE", "fedavg"), found.standing("fedawe")
    assert standing is not None
    assert d == standing.difference
    assert str(d).startswith("FedAWE is better than FedAvg: its test accuracy is ")
    back = results.difference("fedavg", "FedAWE", metric="test_loss")
    assert back.mean > 0
    assert str(back).startswith("FedAvg is worse than FedAWE: its test loss is ")
    with pytest.raises(UserError, match="unknown option 'colour'; expected metric, baseline"):
        results.table(colour="red")
    with pytest.raises(UserError, match="unknown algorithm 'nobody'"):
        results.difference("nobody", "fedavg")


@pytest.mark.parametrize(
    ("choice", "message"),
    [
        ({"algorithms": "FedAWE"}, r"algorithms is 'FedAWE'; expected several names, as in \['FedAWE', 'FedAvg'\]"),
        ({"algorithms": 5}, "algorithms is 5; expected several names"),
        ({"baseline": fedawe.FedAvg()}, r"baseline is FedAvg\(eta_g=1.0, clip=None\); expected a name"),
        ({"metric": 5}, "metric is 5; expected a name"),
        ({"window": True}, "window is True; expected a whole number of rounds from 1"),
    ],
)
def test_a_choice_of_another_kind_is_refused(whole: Path, choice: dict[str, Any], message: str) -> None:
    with pytest.raises(UserError, match=message):
        fedawe.load(whole).table(**choice)


def test_a_choice_may_be_of_any_names_and_of_whole_numbers_of_numpy(whole: Path) -> None:
    results, names = fedawe.load(whole), {"fedawe": 1, "fedavg": 2}
    expected = str(results.table(algorithms=("fedawe", "fedavg"), window=20))
    assert str(results.table(algorithms=names, window=np.int64(20))) == expected


def test_several_experiments_are_not_one(tmp_path: Path) -> None:
    for name in ("a", "b"):
        samples.experiment(tmp_path / name, ["fedavg"], [0])
    with pytest.raises(UserError, match="holds 2 experiments; load one of them"):
        fedawe.load(tmp_path)


def test_the_folder_of_a_deployment_is_an_experiment_with_one_run(tmp_path: Path) -> None:
    """Beside evaluations its record has a line for every round."""
    out = samples.experiment(tmp_path / "x", ["fedawe"], [3], task="text")
    more = {"clients": [1, 4], "refused": {"late": 2}, "closed": "quorum", "bytes_down": 10, "bytes_up": 20}
    header, *evaluations, end = samples.lines(out, "fedawe", 3)
    rounds = [{"kind": "round", "round": n, **more, "round_seconds": 0.5} for n in range(1, 61)]
    between = sorted([*rounds, *evaluations], key=lambda line: (line["round"], line["kind"] == "evaluation"))
    samples.write(out, "fedawe", 3, [{**header, "deployment": {"config": {"lr": 0.1}}}, *between, end])
    found = fedawe.load(out)
    assert [(run.label, run.seed, run.status) for run in found.runs.runs] == [("fedawe", 3, "complete")]
    assert found.runs.traces[3].rounds == 60
    assert found.compare().metric.name == "test_perplexity"
    assert found.runs.runs[0].series("refused.late") == dict.fromkeys(range(5, 61, 5), 2)
    frame = found.frame()
    assert len(frame) == 13
    assert set(frame["refused.late"].dropna()) == {2}
    assert set(frame.closed.dropna()) == {"quorum"}
    assert set(frame.clients) == {30}  # of the header, not the list of a line
    assert set(frame["deployment.config.lr"]) == {0.1}
    assert found.report().read_text().count("<article") == 1
    alone = fedawe.load(out / "fedawe" / "seed-3")  # the folder of the run itself
    assert [(run.label, run.seed) for run in alone.runs.runs] == [("fedawe", 3)]


def test_a_suite_is_several_experiments(tmp_path: Path) -> None:
    for name, availability, ours in (("a", "sine", 0.9), ("b", "stationary", 0.5)):
        final = {"fedawe": ours}
        samples.experiment(tmp_path / "suite" / name, ["fedawe", "fedavg"], availability=availability, final=final)
    experiments = load_all(tmp_path / "suite")
    assert titles(experiments) == ["sine", "stationary"]
    comparisons = compare_all(experiments, Choice())
    assert mean_ranks(comparisons) == {"fedawe": 1.5, "fedavg": 1.5}
    table = overview_table(comparisons, titles(experiments))
    assert [[cell.strong for cell in row] for row in table.rows] == [
        [False, True, False, False],
        [False, False, True, False],
    ]
    assert titles([experiments[0], experiments[0]]) == ["a", "a"]  # nothing but their folders tells them apart
    for name in ("p/x", "q/x"):
        samples.experiment(tmp_path / "alike" / name, ["fedawe"], [0])
    assert titles(load_all(tmp_path / "alike")) == ["p/x", "q/x"]
    assert load_all(tmp_path / "suite" / "a")[0].settings["availability"] == "sine"


def test_a_choice_holds_for_all_of_a_suite_where_it_can(tmp_path: Path) -> None:
    for name, labels in (("a", ["fedawe", "fedavg", "mifa"]), ("b", ["fedawe", "fedau"]), ("c", ["f3ast"])):
        samples.experiment(tmp_path / name, labels, [0, 1])
    found = compare_all(load_all(tmp_path), Choice(algorithms=("mifa", "FedAWE"), baseline="mifa"))
    assert [(c.runs.labels, c.baseline) for c in found] == [(("mifa", "fedawe"), "mifa"), (("fedawe",), None)]
    with pytest.raises(UserError, match="unknown algorithm 'scaffold'; choose from fedawe, fedavg, mifa, fedau, f3ast"):
        compare_all(load_all(tmp_path), Choice(algorithms=("fedawe", "scaffold")))


def test_what_is_no_experiment_is_refused(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    (tmp_path / "empty").mkdir()
    for name, said in (("none", "no such folder"), ("file", "is a file"), ("empty", "holds no experiment")):
        with pytest.raises(UserError, match=said):
            load(tmp_path / name)


def test_damaged_files_beside_the_records_are_named(own: Path) -> None:
    text = (own / "experiment.json").read_text()
    (own / "experiment.json").write_text("{")
    (own / "traces" / "seed-0.npz").write_bytes(b"nonsense")
    (own / "clients" / "seed-1.npz").write_bytes(b"nonsense")
    experiment = load(own)
    assert experiment.settings["task"] == "digits"  # from a header
    assert experiment.labels == tuple(sorted(samples.ALGORITHMS))
    assert sorted(experiment.traces) == [1, 2]
    assert sorted(experiment.clients) == [0, 2]
    assert [Path(problem.split(":")[0]).name for problem in experiment.problems] == [
        "experiment.json",
        "seed-0.npz",
        "seed-1.npz",
    ]
    (own / "experiment.json").write_text(text.replace("digits", "digitS"))
    assert "is damaged" in load(own).problems[0]


def test_what_another_version_wrote_is_refused(own: Path) -> None:
    kept = samples.lines(own, "mifa", 1)
    samples.write(own, "mifa", 1, [{**kept[0], "format": 1}, *kept[1:]])
    with pytest.raises(
        UserError, match=r"mifa/seed-1/record.jsonl was written by another version of fedawe \(format 1"
    ):
        load(own)


def test_what_real_runs_write_can_be_read(tmp_path: Path, command: Callable[..., tuple[int, str, str]]) -> None:
    flags = "run --rounds 4 --evaluate-every 2 --clients 12 --alpha 1.0 --steps 1 --seeds 0 1"
    flags += f" --algorithms fedawe fedavg fedau:K=20 --out {tmp_path / 'x'}"
    assert command(*flags.split())[0] == 0
    experiment = load(tmp_path / "x")
    assert experiment.labels == ("fedawe", "fedavg", "fedau(K=20)")
    assert experiment.problems == ()
    assert {run.status for run in experiment.runs} == {"complete"}
    found = compare(experiment)
    assert found.standing("fedawe", variant="latest") is not None
    assert set(by_class(found)) == set(experiment.labels)
