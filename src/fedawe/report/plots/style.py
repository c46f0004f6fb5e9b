"""How figures look, and how they are written."""

import io
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Literal

import matplotlib as mpl
from matplotlib.figure import Figure

from fedawe.core.errors import UserError
from fedawe.core.files import write_atomically
from fedawe.core.palette import Look

ImageFormat = Literal["png", "pdf", "svg"]

WIDTH = 5.5  # inches, the text of a one-column page
STYLE: Any = {
    "font.size": 8,
    "axes.titlesize": 8,
    "axes.labelsize": 8,
    "legend.fontsize": 7.5,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.linewidth": 0.6,
    "axes.edgecolor": "#555555",
    "axes.grid": True,
    "axes.axisbelow": True,
    "grid.color": "#e4e4e4",
    "grid.linewidth": 0.5,
    "xtick.major.width": 0.6,
    "ytick.major.width": 0.6,
    "legend.frameon": False,
    "lines.solid_capstyle": "round",
    "pdf.fonttype": 42,  # real letters, as journals ask
    "svg.hashsalt": "fedawe",  # the same figure is the same file
    "figure.dpi": 300,
}
LINES = {"solid": "-", "dash": (0, (4, 1.6)), "dot": (0, (1.2, 1.4)), "dashdot": (0, (5, 1.4, 1.2, 1.4))}
BLUE = "#3b6ea5"


@contextmanager
def figure(height: float, rows: int = 1, columns: int = 1, **options: Any) -> Iterator[tuple[Figure, Any]]:
    """A figure of the page's width and its axes; whatever is drawn inside is drawn in our style."""
    with mpl.rc_context(STYLE):
        made = Figure(figsize=(WIDTH, height), layout="constrained")
        yield made, made.subplots(rows, columns, **options)


def line(look: Look) -> dict[str, Any]:
    """How the curve of an algorithm is drawn."""
    width, order = (2.2, 5) if look.strong else (1.2, 3)
    return {"color": look.light, "linestyle": LINES[look.dash], "linewidth": width, "zorder": order}


def save(figure: Figure, path: Path) -> None:
    """Write a figure as its suffix says; the same figure is the same file, without a date in it."""
    if path.suffix not in (".png", ".pdf", ".svg"):
        raise UserError(f"{path}: a figure is written as .png, .pdf or .svg")
    date = {".png": {}, ".pdf": {"CreationDate": None}, ".svg": {"Date": None}}[path.suffix]
    buffer = io.BytesIO()
    with mpl.rc_context(STYLE):
        figure.savefig(buffer, format=path.suffix[1:], metadata=date)
    write_atomically(path, buffer.getvalue())
