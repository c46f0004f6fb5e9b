"""Figures for papers, drawn from records with matplotlib, in vector formats and with the colours of the page."""

from collections.abc import Callable
from pathlib import Path

from matplotlib.figure import Figure

from fedawe.core.files import new_folder
from fedawe.report.plots.bias import bias_figure
from fedawe.report.plots.outcome import class_figure, curve_figure, difference_figure, metrics_figure
from fedawe.report.plots.style import USUAL, ImageFormat, Size, save
from fedawe.report.plots.traces import (
    availability_figure,
    partition_figure,
    probability_figure,
    staleness_figure,
    stripes_figure,
)
from fedawe.results.standings import Comparison

__all__ = [
    "FIGURES",
    "ImageFormat",
    "Size",
    "availability_figure",
    "bias_figure",
    "class_figure",
    "curve_figure",
    "difference_figure",
    "metrics_figure",
    "partition_figure",
    "probability_figure",
    "save",
    "staleness_figure",
    "stripes_figure",
    "write_figures",
]

FIGURES: dict[str, Callable[[Comparison, Size], Figure | None]] = {
    "curves": curve_figure,
    "metrics": metrics_figure,
    "differences": difference_figure,
    "classes": class_figure,
    "bias": bias_figure,
    "partition": lambda comparison, size: partition_figure(comparison.runs, size),
    "probabilities": lambda comparison, size: probability_figure(comparison.runs, size),
    "availability": lambda comparison, size: availability_figure(comparison.runs, size),
    "stripes": lambda comparison, size: stripes_figure(comparison.runs, size),
    "staleness": lambda comparison, size: staleness_figure(comparison.runs, size),
}


def write_figures(comparison: Comparison, folder: Path, image: ImageFormat, size: Size = USUAL) -> list[Path]:
    """Write every figure for which the experiment has data, and return their paths."""
    made = {name: figure for name, make in FIGURES.items() if (figure := make(comparison, size)) is not None}
    paths = [new_folder(folder) / f"{name}.{image}" for name in made]
    for path, figure in zip(paths, made.values(), strict=True):
        save(figure, path)
    return paths
