"""One self-contained page that says what came out of an experiment."""

from pathlib import Path

from fedawe.core.files import write_atomically
from fedawe.report.page import render
from fedawe.results.folder import load_all
from fedawe.results.standings import Interval

__all__ = ["render", "write"]


def write(out: Path, target: Path | None = None, *, interval: Interval = "student") -> Path:
    """Read the experiment (or experiments) in the folder `out` and write the page; by default OUT/report.html."""
    page = render(load_all(out), interval)
    path = out / "report.html" if target is None else target
    write_atomically(path, page.encode())
    return path
