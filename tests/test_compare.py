"""Records in, numbers out: what counts, what does not, and intervals against independent references."""

import csv
import io
import json
import math
import shutil
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import samples
from scipy import stats

from fedawe import results as compare
from fedawe.availability.trace import Trace
from fedawe.core.errors import UserError
from fedawe.core.rng import rng
from fedawe.results.folder import algorithm
from fedawe.results.participation import class_availability
from fedawe.results.standings import Standing, window
from fedawe.results.suites import overview_table, titles
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
    found = compare.paired(dict(enumerate(ours)), {**dict(enumerate(theirs)), 99: 1.0})
    expected = stats.ttest_rel(ours, theirs).confidence_interval(0.95)
    assert found is not None
    assert (found.low, found.high) == (pytest.approx(expected.low, abs=1e-12), pytest.approx(expected.high, abs=1e-12))
    assert found.seeds == (0, 1, 2, 3, 4)
    assert found.mean == pytest.approx((ours - theirs).mean())


def test_one_pair_has_no_interval_and_none_is_none() -> None:
    one = compare.paired({0: 2.0, 1: 5.0}, {1: 4.0})
    assert one == compare.Difference(1.0, None, None, (1,), "student")
    assert one.sign == 0
    assert compare.paired({0: 1.0}, {1: 1.0}) is None


@pytest.mark.parametrize(
    ("differences", "sign"), [((1.0, 1.0), 1), ((-1.0, -1.0), -1), ((0.0, 0.0), 0), ((1.0, -1.0), 0)]
)
def test_sign_is_zero_unless_the_interval_leaves_zero_out(differences: tuple[float, float], sign: int) -> None:
    found = compare.paired(dict(enumerate(differences)), {0: 0.0, 1: 0.0})
    assert found is not None
    assert found.sign == sign


def test_bootstrap_needs_ten_seeds_and_is_repeatable() -> None:
    values = dict(enumerate(rng(0, "test").normal(1.0, 1.0, 12)))
    zero = dict.fromkeys(values, 0.0)
    with pytest.raises(UserError, match="needs 10 seeds, here are 9"):
        compare.paired({seed: values[seed] for seed in range(9)}, zero, "bootstrap")
    first, again = (compare.paired(values, zero, "bootstrap") for _ in range(2))
    assert first == again
    assert first is not None
    assert first.low is not None
    assert first.high is not None
    assert first.low < first.mean < first.high
    half = 1.96 * np.std(list(values.values()), ddof=1) / math.sqrt(12)
    assert first.high - first.low == pytest.approx(2 * half, rel=0.25)


def test_window_is_the_last_fifty_rounds(tmp_path: Path) -> None:
    long = compare.load(samples.experiment(tmp_path / "long", ["fedavg"], [0], rounds=110, every=12)).runs[0]
    assert window(long) == [72, 84, 96, 108, 110]  # 60 is the fifty-first from the end
    accuracies = [line["test_accuracy"] for line in long.record.evaluations if line["round"] > 60]
    assert compare.window_mean(long, "test_accuracy") == pytest.approx(sum(accuracies) / 5)
    assert compare.window_mean(long, "nonsense") is None
    short = compare.load(samples.experiment(tmp_path / "short", ["fedavg"], [0], rounds=49, every=10)).runs[0]
    assert window(short) == [49]


def test_mean_and_deviation_over_seeds() -> None:
    standing = Standing("fedavg", {0: 1.0, 1: 2.0, 5: 6.0}, (), None, 1)
    assert standing.mean == 3.0
    assert standing.std == pytest.approx(math.sqrt(7.0))  # (4 + 1 + 9) / (3 - 1)
    assert Standing("fedavg", {0: 1.0}, (), None, 1).std is None


def test_standings_are_ranked_and_paired(whole: Path) -> None:
    found = compare.compare(compare.load(whole))
    assert [s.rank for s in found.ranked] == list(range(1, 9))
    means = [s.mean for s in found.ranked if s.mean is not None]
    assert means == sorted(means, reverse=True)
    ours, theirs = found.standing("fedawe"), found.standing("fedavg")
    assert ours is not None
    assert theirs is not None
    assert ours.difference == compare.paired(ours.values, theirs.values)
    assert theirs.difference is None
    latest = found.standing("fedawe", latest=True)
    assert latest is not None
    assert latest.rank is None
    assert latest.mean is not None
    assert ours.mean is not None
    assert latest.mean < ours.mean


def test_a_lower_distance_is_better(tmp_path: Path) -> None:
    out = samples.experiment(tmp_path / "q", ["fedawe", "fedavg"], task="quadratic", final={"fedawe": 1, "fedavg": 17})
    found = compare.compare(compare.load(out))
    assert found.metric.name == "distance"
    assert [s.label for s in found.ranked] == ["fedawe", "fedavg"]


@pytest.mark.parametrize(
    ("spoil", "status"),
    [(samples.diverge, "diverged"), (samples.interrupt, "unfinished"), (samples.damage, "damaged")],
)
def test_only_complete_runs_count(own: Path, spoil: object, status: str) -> None:
    before = compare.compare(compare.load(own)).standing("mifa")
    spoil(own, "mifa", 1)  # type: ignore[operator]
    experiment = compare.load(own)
    assert [run.status for run in experiment.of("mifa")] == ["complete", status, "complete"]
    after = compare.compare(experiment).standing("mifa")
    assert before is not None
    assert after is not None
    assert after.values == {seed: value for seed, value in before.values.items() if seed != 1}
    assert [run.seed for run in after.missing] == [1]
    assert after.rank is None  # its mean is over other seeds than the others'
    assert after.difference is not None
    assert after.difference.seeds == (0, 2)
    curve = compare.curve(experiment.complete("mifa"), "test_accuracy")
    assert curve is not None
    assert curve.seeds == (0, 2)


def test_a_run_without_a_record_has_not_finished(own: Path) -> None:
    samples.record(own, "fedau", 2).unlink()
    samples.record(own, "fedau", 1).write_bytes(b"")
    runs = compare.load(own).of("fedau")
    assert [run.status for run in runs] == ["complete", "damaged", "unfinished"]
    assert [run.rounds for run in runs] == [60, 0, 0]


def test_curves_are_taken_where_all_seeds_were_evaluated(own: Path) -> None:
    kept = [line for line in samples.lines(own, "fedavg", 1) if line.get("round") != 30]
    samples.write(own, "fedavg", 1, kept)
    curve = compare.curve(compare.load(own).complete("fedavg"), "test_accuracy")
    assert curve is not None
    assert curve.rounds.tolist() == [n for n in range(0, 61, 5) if n != 30]
    assert curve.by_seed.shape == (3, 12)
    assert curve.std == pytest.approx(np.std(curve.by_seed, axis=0, ddof=1))


def test_first_round_at_a_target() -> None:
    curve = compare.Curve(np.array([0.0, 5.0, 10.0]), np.array([[0.1, 0.4, 0.8], [0.1, 0.6, 0.6]]), (0, 1))
    assert [compare.first_round(curve, target) for target in (0.1, 0.5, 0.7, 0.71)] == [0, 5, 10, None]


def test_speed_table_has_the_papers_targets(whole: Path) -> None:
    table = compare.speed_table(compare.compare(compare.load(whole)))
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
    assert compare.echo_counts(Trace(on)).tolist() == np.bincount(echoes).tolist()
    assert compare.staleness_counts(Trace(on)).tolist() == np.bincount(ages).tolist()


def test_class_availability_is_the_mean_over_samples(whole: Path) -> None:
    experiment = compare.load(whole)
    clients, trace = experiment.clients[1], experiment.traces[1]
    assert clients.frequencies is not None
    expected = []
    for c in range(samples.CLASSES):
        weights = [clients.frequencies[i, c] * clients.sizes[i] for i in range(trace.clients)]
        shares = [trace.on[:, i].mean() for i in range(trace.clients)]
        expected.append(sum(w * s for w, s in zip(weights, shares, strict=True)) / sum(weights))
    assert class_availability(experiment, 1) == pytest.approx(expected)


def test_classes_are_in_order_of_availability(whole: Path) -> None:
    experiment = compare.load(whole)
    view = compare.by_class(experiment)["fedavg"]
    assert (np.diff(view.availability, axis=1) >= 0).all()
    run = experiment.of("fedavg")[2]
    accuracy, share = compare.window_mean(run, "test_accuracy_by_class"), class_availability(experiment, 2)
    assert accuracy is not None
    assert share is not None
    often = sorted(range(10), key=lambda c: share[c])[5:]
    seldom = sorted(range(10), key=lambda c: share[c])[:5]
    assert view.gaps()[2] == pytest.approx(accuracy[often].mean() - accuracy[seldom].mean())


def test_csv_has_the_bare_numbers(whole: Path) -> None:
    found = compare.compare(compare.load(whole))
    rows = list(csv.DictReader(io.StringIO(str(compare.summary_table(found).export("csv")))))
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


def test_numbers_keep_their_decimals() -> None:
    distance = compare.METRICS[-1]
    assert [distance.show(value) for value in (0.0, 1234.5678, 0.00123456)] == ["0", "1235", "0.001235"]


def test_variants_are_labels_of_their_own(tmp_path: Path) -> None:
    out = samples.experiment(tmp_path / "x", ["fedau(K=20)", "fedau", "fedavg(eta_g=0.5)", "new", "fedawe"], [0, 1])
    experiment = compare.load(out)
    assert experiment.labels == ("fedawe", "fedavg(eta_g=0.5)", "fedau", "fedau(K=20)", "new")
    assert compare.display_name("fedavg(eta_g=0.5)") == "FedAvg (eta_g=0.5)"
    assert algorithm("new") == "new"
    assert compare.compare(experiment).reference == "fedavg(eta_g=0.5)"


def test_a_suite_is_several_experiments(tmp_path: Path) -> None:
    for name, dynamics, ours in (("a", "sine", 0.9), ("b", "stationary", 0.5)):
        samples.experiment(
            tmp_path / "suite" / name, ["fedawe", "fedavg"], settings={"dynamics": dynamics}, final={"fedawe": ours}
        )
    experiments = compare.load_all(tmp_path / "suite")
    assert titles(experiments) == ["sine", "stationary"]
    comparisons = [compare.compare(experiment) for experiment in experiments]
    assert compare.mean_ranks(comparisons) == {"fedawe": 1.5, "fedavg": 1.5}
    table = overview_table(comparisons, titles(experiments))
    assert [[cell.strong for cell in row] for row in table.rows] == [
        [False, True, False, False],
        [False, False, True, False],
    ]
    assert titles([experiments[0], experiments[0]]) == ["a", "a"]  # told by nothing but their folders
    assert compare.load_all(tmp_path / "suite" / "a")[0].settings["dynamics"] == "sine"


def test_what_is_no_experiment_is_refused(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    (tmp_path / "empty").mkdir()
    for name, said in (("none", "no such folder"), ("file", "is a file"), ("empty", "holds no experiment")):
        with pytest.raises(UserError, match=said):
            compare.load(tmp_path / name)


def test_damaged_files_beside_the_records_are_named(own: Path) -> None:
    (own / "experiment.json").write_text("{")
    (own / "traces" / "seed-0.npz").write_bytes(b"nonsense")
    (own / "clients" / "seed-1.npz").write_bytes(b"nonsense")
    experiment = compare.load(own)
    assert experiment.settings["task"] == "digits"  # from a header
    assert sorted(experiment.traces) == [1, 2]
    assert sorted(experiment.clients) == [0, 2]
    assert [Path(problem.split(":")[0]).name for problem in experiment.problems] == [
        "experiment.json",
        "seed-0.npz",
        "seed-1.npz",
    ]
    (own / "experiment.json").write_text(json.dumps({"settings": 3}))
    assert "is damaged" in compare.load(own).problems[0]


def test_what_real_runs_write_can_be_read(tmp_path: Path, command: Callable[..., tuple[int, str, str]]) -> None:
    flags = "run --rounds 4 --evaluate-every 2 --clients 12 --alpha 1.0 --steps 1 --seeds 0 1"
    flags += f" --algorithms fedawe fedavg fedau:K=20 --out {tmp_path / 'x'}"
    assert command(*flags.split())[0] == 0
    experiment = compare.load(tmp_path / "x")
    assert experiment.labels == ("fedawe", "fedavg", "fedau(K=20)")
    assert experiment.problems == ()
    assert {run.status for run in experiment.runs} == {"complete"}
    found = compare.compare(experiment)
    assert found.standing("fedawe", latest=True) is not None
    assert set(compare.by_class(experiment)) == set(experiment.labels)
