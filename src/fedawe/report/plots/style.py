"""The style of figures, and writing them to files."""

import io
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import matplotlib as mpl
from matplotlib.figure import Figure

from fedawe.core.errors import UserError
from fedawe.core.files import write_atomically
from fedawe.core.palette import Look

ImageFormat = Literal["png", "pdf", "svg"]

STYLE: Any = {
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
    "pdf.fonttype": 42,  # TrueType fonts, which journals require
    "svg.hashsalt": "fedawe",  # the same figure gives the same file
    "figure.dpi": 300,
}
LINES = {"solid": "-", "dash": (0, (4, 1.6)), "dot": (0, (1.2, 1.4)), "dashdot": (0, (5, 1.4, 1.2, 1.4))}
MARKERS = "osD^xP*v"
BLUE = "#3b6ea5"
USUAL_WIDTH = 5.5  # inches


@dataclass(frozen=True)
class Size:
    """The size of a figure and of its letters.

    width  width in inches; 5.5 is the text width of a one-column page
    font   font size in points
    """

    width: float = USUAL_WIDTH
    font: float = 8.0

    def __post_init__(self) -> None:
        for name, value, least, most in (("width", self.width, 1, 40), ("font_size", self.font, 3, 40)):
            if not least <= value <= most:
                unit = "inches" if name == "width" else "points"
                raise UserError(f"{name} is {value:g}; expected {least} to {most} {unit}")

    @property
    def style(self) -> Any:
        """The matplotlib settings for this size."""
        small = 0.94 * self.font
        sizes = {"font.size": self.font, "axes.titlesize": self.font, "axes.labelsize": self.font}
        ticks = {"xtick.labelsize": small, "ytick.labelsize": small, "legend.fontsize": small}
        return {**STYLE, **sizes, **ticks}

    def height(self, usual: float) -> float:
        """The height of a figure that is `usual` inches high at the usual width; narrow ones are relatively higher."""
        return usual * float((self.width / USUAL_WIDTH) ** 0.5)


USUAL = Size()


@contextmanager
def figure(
    height: float, rows: int = 1, columns: int = 1, *, size: Size = USUAL, **options: Any
) -> Iterator[tuple[Figure, Any]]:
    """A figure and its axes, `height` inches high at the usual width; in this context, drawing uses our style."""
    with mpl.rc_context(size.style):
        made = Figure(figsize=(size.width, size.height(height)), layout="constrained")
        yield made, made.subplots(rows, columns, **options)


def literal(text: str) -> str:
    """The text for matplotlib, so that `$` begins no formula and a leading `_` does not hide it from the legend.

    >>> literal("_cost in $")
    ' _cost in \\\\$'
    """
    return f"{' ' if text.startswith('_') else ''}{text}".replace("$", r"\$")


def line(look: Look, strong: bool = False) -> dict[str, Any]:
    """The matplotlib options of an algorithm's curve."""
    width, order = (2.2, 5) if strong else (1.2, 3)
    return {"color": look.light, "linestyle": LINES[look.dash], "linewidth": width, "zorder": order}


def save(figure: Figure, path: Path) -> None:
    """Write a figure in the format of the suffix; the file has no date, so the same figure gives the same file."""
    if path.suffix not in (".png", ".pdf", ".svg"):
        raise UserError(f"{path}: a figure is written as .png, .pdf or .svg")
    date = {".png": {}, ".pdf": {"CreationDate": None}, ".svg": {"Date": None}}[path.suffix]
    buffer = io.BytesIO()
    with mpl.rc_context(STYLE):
        figure.savefig(buffer, format=path.suffix[1:], metadata=date)
    write_atomically(path, buffer.getvalue())
