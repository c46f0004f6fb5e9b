"""Figures: each is made from what it needs, is left out where that is missing, and is the same file every time."""

import itertools
from pathlib import Path

import numpy as np
import pytest
import samples

from fedawe import results as compare
from fedawe.core.errors import UserError
from fedawe.core.palette import LOOKS
from fedawe.report import plots

# Machado, Oliveira and Fernandes (2009), severity 1, on linear RGB.
SIGHT = {
    "all": np.eye(3),
    "protanopia": [[0.152286, 1.052583, -0.204868], [0.114503, 0.786281, 0.099216], [-0.003882, -0.048116, 1.051998]],
    "deuteranopia": [[0.367322, 0.860646, -0.227968], [0.280085, 0.672501, 0.047413], [-0.011820, 0.042940, 0.968881]],
    "tritanopia": [[1.255528, -0.076749, -0.178779], [-0.078411, 0.930809, 0.147602], [0.004733, 0.691367, 0.303900]],
}


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> compare.Experiment:
    return compare.load(samples.experiment(tmp_path_factory.mktemp("whole") / "x"))


@pytest.mark.parametrize(("image", "magic"), [("png", b"\x89PNG"), ("pdf", b"%PDF"), ("svg", b"<?xml")])
def test_every_figure_is_written(
    whole: compare.Experiment, tmp_path: Path, image: plots.ImageFormat, magic: bytes
) -> None:
    paths = plots.write_figures(whole, tmp_path / "figures", image)
    assert [path.stem for path in paths] == list(plots.FIGURES)
    assert all(path.read_bytes().startswith(magic) for path in paths)


def test_the_same_figure_is_the_same_file(whole: compare.Experiment, tmp_path: Path) -> None:
    for name in ("a.svg", "b.svg"):
        plots.save(plots.accuracy_figure(whole), tmp_path / name)
    assert (tmp_path / "a.svg").read_bytes() == (tmp_path / "b.svg").read_bytes()


def test_an_unknown_format_is_refused(whole: compare.Experiment, tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"written as \.png, \.pdf or \.svg"):
        plots.save(plots.accuracy_figure(whole), tmp_path / "x.gif")
    assert list(tmp_path.iterdir()) == []


def test_what_an_experiment_lacks_is_left_out(tmp_path: Path) -> None:
    out = samples.experiment(tmp_path / "q", task="quadratic", recorded=True, final={"fedawe": 1.0})
    names = {name for name, make in plots.FIGURES.items() if make(compare.load(out)) is not None}
    assert names == {"accuracy", "differences", "availability", "stripes", "staleness"}


def test_no_complete_run_is_said(tmp_path: Path) -> None:
    out = samples.experiment(tmp_path / "x", ["fedawe", "fedavg"], [0])
    samples.interrupt(out, "fedawe", 0)
    samples.diverge(out, "fedavg", 0)
    figure = plots.accuracy_figure(compare.load(out))
    assert [text.get_text() for text in figure.axes[0].texts] == ["no run is complete"]


def test_the_curves_end_in_labels_with_the_window_means(whole: compare.Experiment) -> None:
    axes = plots.accuracy_figure(whole).axes[0]
    expected = {
        f"{compare.display_name(s.label)} {100 * s.mean:.1f}"
        for s in compare.compare(whole).standings
        if s.mean is not None and not s.latest
    }
    assert {text.get_text() for text in axes.texts} == expected
    assert len(axes.lines) == 8
    curve = compare.curve(whole.complete("fedawe"), "test_accuracy")
    assert curve is not None
    drawn = next(line for line in axes.lines if line.get_label() == "FedAWE")
    assert np.asarray(drawn.get_ydata()) == pytest.approx(100 * curve.mean)


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
