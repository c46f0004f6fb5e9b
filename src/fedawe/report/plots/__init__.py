"""Figures fit for a paper, from records: matplotlib, vector formats, the same colours as the page."""

from collections.abc import Callable
from pathlib import Path

from matplotlib.figure import Figure

from fedawe.core.files import new_folder
from fedawe.report.plots.outcome import accuracy_figure, class_figure, difference_figure, training_figure
from fedawe.report.plots.style import ImageFormat, save
from fedawe.report.plots.traces import (
    availability_figure,
    partition_figure,
    probability_figure,
    staleness_figure,
    stripes_figure,
)
from fedawe.results.folder import Experiment

__all__ = [
    "FIGURES",
    "ImageFormat",
    "accuracy_figure",
    "availability_figure",
    "class_figure",
    "difference_figure",
    "partition_figure",
    "probability_figure",
    "save",
    "staleness_figure",
    "stripes_figure",
    "training_figure",
    "write_figures",
]

FIGURES: dict[str, Callable[[Experiment], Figure | None]] = {
    "accuracy": accuracy_figure,
    "training": training_figure,
    "differences": difference_figure,
    "classes": class_figure,
    "partition": partition_figure,
    "probabilities": probability_figure,
    "availability": availability_figure,
    "stripes": stripes_figure,
    "staleness": staleness_figure,
}


def write_figures(experiment: Experiment, folder: Path, image: ImageFormat) -> list[Path]:
    """Every figure that the experiment has data for."""
    made = {name: figure for name, make in FIGURES.items() if (figure := make(experiment)) is not None}
    paths = [new_folder(folder) / f"{name}.{image}" for name in made]
    for path, figure in zip(paths, made.values(), strict=True):
        save(figure, path)
    return paths
