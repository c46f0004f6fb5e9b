"""Figures: each is made from what it needs, is left out where that is missing, and is the same file every time."""

import itertools
from pathlib import Path

import numpy as np
import pytest
import samples

from fedawe.algorithms import PAPER
from fedawe.availability.trace import Trace
from fedawe.core.describe import path_of
from fedawe.core.errors import UserError
from fedawe.core.palette import DASHES, LOOKS, looks
from fedawe.report import plots
from fedawe.results.choice import Choice
from fedawe.results.curves import curve
from fedawe.results.folder import RunSet, load
from fedawe.results.standings import Comparison, compare

# Machado, Oliveira and Fernandes (2009), severity 1, on linear RGB.
SIGHT = {
    "all": np.eye(3),
    "protanopia": [[0.152286, 1.052583, -0.204868], [0.114503, 0.786281, 0.099216], [-0.003882, -0.048116, 1.051998]],
    "deuteranopia": [[0.367322, 0.860646, -0.227968], [0.280085, 0.672501, 0.047413], [-0.011820, 0.042940, 0.968881]],
    "tritanopia": [[1.255528, -0.076749, -0.178779], [-0.078411, 0.930809, 0.147602], [0.004733, 0.691367, 0.303900]],
}


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Comparison:
    return compare(load(samples.experiment(tmp_path_factory.mktemp("whole") / "x")))


@pytest.mark.parametrize(("image", "magic"), [("png", b"\x89PNG"), ("pdf", b"%PDF"), ("svg", b"<?xml")])
def test_every_figure_is_written(whole: Comparison, tmp_path: Path, image: plots.ImageFormat, magic: bytes) -> None:
    paths = plots.write_figures(whole, tmp_path / "figures", image)
    assert [path.stem for path in paths] == list(plots.FIGURES)
    assert all(path.read_bytes().startswith(magic) for path in paths)


@pytest.mark.parametrize("rounds", [4, 30])
def test_a_client_that_is_always_available_is_drawn_so(rounds: int) -> None:
    trace = Trace(np.ones((rounds, 1), dtype=bool))
    made = plots.availability_figure(RunSet(Path(), (), (), traces={0: trace}))
    assert made is not None
    assert made.axes[0].lines[0].get_ydata().tolist() == [1.0] * rounds


def test_the_same_figure_is_the_same_file(whole: Comparison, tmp_path: Path) -> None:
    for name in ("a.svg", "b.svg"):
        plots.save(plots.curve_figure(whole), tmp_path / name)
    assert (tmp_path / "a.svg").read_bytes() == (tmp_path / "b.svg").read_bytes()


def test_no_name_is_a_formula_or_missing_from_a_legend(tmp_path: Path) -> None:
    title = "$x_$"
    header = {"metrics": [{**each, "title": f"{title} {each['name']}"} for each in samples.METRICS["digits"]]}
    found = compare(load(samples.experiment(tmp_path / "x", ["fedawe", "_mine", "a $_$ b"], header=header)))
    for label in ("_mine", "a $_$ b"):  # their names are their labels
        assert found.runs.names[label] == label
    plots.write_figures(found, tmp_path / "figures", "png")
    for figure in (plots.metrics_figure(found), plots.class_figure(found)):
        assert figure is not None
        names = [text.get_text() for legend in figure.legends for text in legend.get_texts()]
        assert sorted(name.strip().replace("\\", "") for name in names) == ["FedAWE", "_mine", "a $_$ b"]


def test_an_unknown_format_is_refused(whole: Comparison, tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"written as \.png, \.pdf or \.svg"):
        plots.save(plots.curve_figure(whole), tmp_path / "x.gif")
    assert list(tmp_path.iterdir()) == []


def test_what_an_experiment_lacks_is_left_out(tmp_path: Path) -> None:
    out = samples.experiment(tmp_path / "q", task="quadratic", recorded=True, final={"fedawe": 1.0})
    found = compare(load(out))
    names = {name for name, make in plots.FIGURES.items() if make(found, plots.Size()) is not None}
    assert names == {"curves", "metrics", "differences", "availability", "stripes", "staleness"}
    only = compare(load(samples.experiment(tmp_path / "t", ["new"], [0], task="text")))
    assert plots.metrics_figure(only) is None
    assert plots.difference_figure(only) is None


def test_no_complete_run_is_said(tmp_path: Path) -> None:
    out = samples.experiment(tmp_path / "x", ["fedawe", "fedavg"], [0])
    samples.interrupt(out, "fedawe", 0)
    samples.diverge(out, "fedavg", 0)
    figure = plots.curve_figure(compare(load(out)))
    assert [text.get_text() for text in figure.axes[0].texts] == ["no run is complete"]


def test_the_curves_are_named_at_their_ends_and_contained(whole: Comparison) -> None:
    figure = plots.curve_figure(whole)
    axes = figure.axes[0]
    assert {text.get_text() for text in axes.texts} == set(whole.runs.names.values())
    assert axes.get_title() == axes.get_title("left") == ""
    assert figure.texts == []  # no footnote
    assert len(axes.lines) == 8
    found = curve(whole.runs.complete("fedawe"), "test_accuracy")
    assert found is not None
    drawn = next(line for line in axes.lines if line.get_label() == "FedAWE")
    assert np.asarray(drawn.get_ydata()) == pytest.approx(100 * found.mean)
    low, high = axes.get_ylim()
    assert all(low <= y <= high for line in axes.lines for y in np.asarray(line.get_ydata()))


def test_the_curves_of_one_seed_are_named_at_their_ends_too(tmp_path: Path) -> None:
    found = compare(load(samples.experiment(tmp_path / "x", seeds=[0])))
    made = plots.curve_figure(found)
    made.draw_without_rendering()  # refused where the names leave no room for the axes
    assert all(-0.01 <= text.xy[1] <= 1.01 for text in made.axes[0].texts)


def test_a_metric_that_falls_is_drawn_inside_a_logarithmic_axis(tmp_path: Path) -> None:
    final = {"fedavg": 9.0, "new": 0.5}
    out = samples.experiment(tmp_path / "x", ["fedavg", "new"], task="text", final=final, noise=0.2)
    axes = plots.curve_figure(compare(load(out))).axes[0]
    assert axes.get_yscale() == "log"
    low, high = axes.get_ylim()
    ends = [y for line in axes.lines for y in np.asarray(line.get_ydata())]
    assert 0 < min(ends) / 4 < low < min(ends) < max(ends) < high  # a band that reaches zero does not stretch the axis
    assert axes.get_ylabel() == "test perplexity"


def test_algorithms_width_and_letters_can_be_chosen(whole: Comparison) -> None:
    some = compare(whole.runs, Choice(algorithms=("mifa", "fedau")))
    figure = plots.curve_figure(some, plots.Size(width=3.3, font=6))
    assert figure.get_figwidth() == 3.3
    axes = figure.axes[0]
    assert [line.get_label() for line in axes.lines] == ["MIFA", "FedAU"]
    assert axes.xaxis.label.get_fontsize() == 6
    for size in ((0.5, 8), (5.5, 0)):
        with pytest.raises(UserError, match=r"(width|font_size) is .*; expected"):
            plots.Size(*size)


def test_classes_are_not_joined_by_lines(whole: Comparison) -> None:
    figure = plots.class_figure(whole)
    assert figure is not None
    drawn = figure.axes[0].lines
    assert {line.get_linestyle() for line in drawn} == {"None"}
    assert len({(line.get_color(), line.get_marker()) for line in drawn}) == 8


def test_every_algorithm_of_the_paper_has_a_look() -> None:
    assert set(LOOKS) == {path_of(algorithm) for algorithm in PAPER}


def test_names_without_a_look_take_what_is_free() -> None:
    fedavg, fedau = (path_of(algorithm) for algorithm in (PAPER[1], PAPER[4]))
    found = looks({"a": "my:A", "FedAvg": fedavg, "b": "my:B", "tuned": fedavg, "fedau": fedau, "same": "my:A"})
    assert list(found) == ["a", "FedAvg", "b", "tuned", "fedau", "same"]
    assert (found["FedAvg"], found["fedau"]) == (LOOKS[fedavg], LOOKS[fedau])
    assert len({look.light for look in found.values()}) == 6
    many = looks({f"{n}": f"my:{n}" for n in range(8 * len(DASHES))})
    assert len(set(many.values())) == 32
    assert len({look.light for look in list(many.values())[:8]}) == 8
    assert len(looks({f"{n}": fedavg for n in range(40)})) == 40


def lab(colour: str, sight: str) -> np.ndarray:
    """CIELAB of a colour as seen."""
    srgb = np.array([int(colour[n : n + 2], 16) for n in (1, 3, 5)]) / 255
    linear = np.where(srgb <= 0.04045, srgb / 12.92, ((srgb + 0.055) / 1.055) ** 2.4)
    seen = np.clip(np.array(SIGHT[sight]) @ linear, 0, 1)
    xyz = np.array([[0.4124, 0.3576, 0.1805], [0.2126, 0.7152, 0.0722], [0.0193, 0.1192, 0.9503]]) @ seen
    f = np.cbrt(np.maximum(xyz / [0.9505, 1.0, 1.0888], 0.008856))
    return np.array([116 * f[1] - 16, 500 * (f[0] - f[1]), 200 * (f[1] - f[2])])


@pytest.mark.parametrize("sight", SIGHT)
@pytest.mark.parametrize("paper", ["light", "dark"])
def test_colours_are_told_apart_by_everyone(sight: str, paper: str) -> None:
    for (a, one), (b, other) in itertools.combinations(LOOKS.items(), 2):
        distance = float(np.linalg.norm(lab(getattr(one, paper), sight) - lab(getattr(other, paper), sight)))
        assert distance > 10, f"{a} and {b}"  # 2.3 is just noticeable
        assert distance > 20 or one.dash != other.dash, f"{a} and {b} are near, so their dashes must differ"
