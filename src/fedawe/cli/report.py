"""`fedawe report`: Write a page, figures or tables that compare the algorithms of an experiment."""

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from tyro.conf import Positional

from fedawe.experiments.flags import File, Names, Word

if TYPE_CHECKING:
    from rich.console import Console

    from fedawe.experiments.results import Results
    from fedawe.results.standings import Comparison
    from fedawe.results.tables import Table as ResultTable


@dataclass(frozen=True)
class ReportCommand:
    """Write a page that compares the algorithms of an experiment, or single figures and tables for a paper."""

    folder: Positional[Path]
    """a folder that `fedawe run` or a deployment wrote, or a folder of such folders"""
    format: Literal["html", "png", "pdf", "svg", "csv", "md", "tex"] = "html"
    """html: one page that needs no network; png, pdf, svg: figures; csv, md, tex: tables"""
    to: File = None
    """file of the page (default: FOLDER/report.html), or folder of figures or tables (default: FOLDER/figures,
    FOLDER/tables)"""
    baseline: Word = None
    """the algorithm that is subtracted in differences (default: FedAvg if it is in the experiment, else the first)"""
    metric: Word = None
    """the metric by which algorithms are compared (default: the deciding metric of the task)"""
    algorithms: Names = ()
    """the algorithms to compare, by label or display name (default: all)"""
    window: int = 50
    """the result of a run is the mean over its evaluations in this number of last rounds"""
    interval: Literal["student", "bootstrap"] = "student"
    """95 % intervals of paired differences: student, or bootstrap, which needs at least 10 seeds"""
    width: float = 5.5
    """width of a figure in inches"""
    font_size: float = 8.0
    """font size of a figure in points"""

    def run(self) -> None:
        """Write the page, figures or tables, and print their names."""
        from fedawe.report.page import write_page
        from fedawe.results.choice import Choice
        from fedawe.results.folder import load_all
        from fedawe.results.suites import compare_all

        choice = Choice(self.metric, self.baseline, self.algorithms, self.window, self.interval)
        comparisons = compare_all(load_all(self.folder), choice)
        if self.format == "html":
            print(write_page(comparisons, self.to or self.folder / "report.html"))
            return
        for comparison in comparisons:
            below = Path() if len(comparisons) == 1 else comparison.runs.path.relative_to(self.folder)
            for path in self._write(comparison, below):
                print(path)

    def _write(self, comparison: "Comparison", below: Path) -> list[Path]:
        if self.format in ("png", "pdf", "svg"):
            from fedawe.report import plots

            size = plots.Size(self.width, self.font_size)
            return plots.write_figures(comparison, (self.to or self.folder / "figures") / below, self.format, size)
        from fedawe.core.files import new_folder, write_atomically
        from fedawe.results.curves import speed_table
        from fedawe.results.participation import class_table
        from fedawe.results.summary import summary_table

        folder = new_folder((self.to or self.folder / "tables") / below)
        paths = []
        for table in (summary_table(comparison), speed_table(comparison), class_table(comparison)):
            if table is not None:
                paths.append(folder / f"{table.name}.{self.format}")
                write_atomically(paths[-1], str(table.export(self.format)).encode())  # type: ignore[arg-type]
        return paths


def print_summary(results: "Results", console: "Console | None" = None) -> None:
    """Print the result table, warnings and the main result."""
    from rich.console import Console

    from fedawe.report.words import words
    from fedawe.results.summary import summary_table

    console = console or Console()
    comparison = results.compare()
    said = words(comparison)
    print_table(summary_table(comparison), console)
    for line in (*said.warnings, said.headline):
        console.print(line, highlight=False, markup=False)


def print_table(table: "ResultTable", console: "Console") -> None:
    """Print a table; it fits a terminal of 80 columns."""
    from rich import box
    from rich.table import Table
    from rich.text import Text

    shown = Table(
        box=box.SIMPLE_HEAD,
        title=Text(table.caption, style="italic"),  # not text, which would be read as markup
        title_justify="left",
        show_edge=False,
        pad_edge=False,
    )
    for column in table.columns:
        shown.add_column(Text(column.title), justify="right" if column.numeric else "left")
    for row in table.rows:
        shown.add_row(*(Text(cell.text, style="bold" if cell.strong else "") for cell in row))
    console.print(shown)
    console.print()


VERB = ReportCommand
