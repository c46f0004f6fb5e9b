"""`fedawe report`: a page, figures or tables from records."""

from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from rich import box
from rich.console import Console
from rich.table import Table as RichTable
from rich.text import Text
from tyro.conf import Positional

from fedawe import report
from fedawe import results as compare
from fedawe.core.files import new_folder, write_atomically
from fedawe.experiments.flags import File
from fedawe.report.words import words


@dataclass(frozen=True)
class Report:
    """Sum up an experiment: a page in words, figures and tables, or single figures and tables for a paper."""

    folder: Positional[Path]
    """what `fedawe run` wrote, or a folder of such folders"""
    format: Literal["html", "png", "pdf", "svg", "csv", "md", "tex"] = "html"
    """html: one page that needs no network; png, pdf, svg: figures; csv, md, tex: tables"""
    to: File = None
    """file of the page (default FOLDER/report.html), or folder (default FOLDER/figures, FOLDER/tables)"""
    interval: compare.Interval = "student"
    """95 % intervals of paired differences: student, or bootstrap from 10 seeds on"""

    def run(self) -> None:
        """Write what was asked for, and say where."""
        if self.format == "html":
            print(report.write(self.folder, self.to, interval=self.interval))
            return
        several = compare.load_all(self.folder)
        for experiment in several:
            below = Path() if len(several) == 1 else experiment.path.relative_to(self.folder)
            for path in self._write(experiment, below):
                print(path)

    def _write(self, experiment: compare.Experiment, below: Path) -> list[Path]:
        if self.format in ("png", "pdf", "svg"):
            from fedawe.report import plots

            return plots.write_figures(experiment, (self.to or self.folder / "figures") / below, self.format)
        folder = new_folder((self.to or self.folder / "tables") / below)
        found = compare.compare(experiment, interval=self.interval)
        tables = [compare.summary_table(found), compare.speed_table(found), compare.class_table(found)]
        paths = []
        for table in tables:
            if table is not None:
                paths.append(folder / f"{table.name}.{self.format}")
                write_atomically(paths[-1], str(table.export(self.format)).encode())  # type: ignore[arg-type]
        return paths


def print_summary(experiment: compare.Experiment, console: Console | None = None) -> None:
    """The result table and what it says, for a terminal."""
    console = console or Console()
    found = compare.compare(experiment)
    table, said = compare.summary_table(found), words(found)
    shown = RichTable(
        box=box.SIMPLE_HEAD,
        title=table.caption,
        title_justify="left",
        title_style="italic",
        show_edge=False,
        pad_edge=False,  # 80 columns are enough
    )
    for column in table.columns:
        shown.add_column(column.title, justify="right" if column.numeric else "left")
    for row, label in zip(table.rows, table.labels, strict=True):
        style = "bold" if label == experiment.the("fedawe") else ""
        shown.add_row(*(Text(cell.text, style="bold" if cell.strong else style) for cell in row))
    console.print(shown)
    console.print()
    for line in (*said.warnings, said.headline):
        console.print(line, highlight=False, markup=False)


VERB = Report
