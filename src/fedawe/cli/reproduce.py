"""`fedawe reproduce`: Repeat the paper's tables and figures."""

import shlex
from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import accumulate
from pathlib import Path
from typing import TYPE_CHECKING

from tyro.conf import OmitArgPrefixes, Positional

from fedawe.core.errors import UserError
from fedawe.experiments.flags import File, Whole, Word
from fedawe.paper.presets import Name
from fedawe.paper.readings import Only, Readings

if TYPE_CHECKING:
    from rich.console import Console

    from fedawe.paper.estimate import Estimate
    from fedawe.paper.outcome import Outcome
    from fedawe.paper.plan import Planned
    from fedawe.results.tables import Table


@dataclass(frozen=True)
class ReproduceCommand:
    """Repeat one of the paper's tables or figures; the same command again resumes, without repeating finished runs."""

    item: Positional[Word] = None
    """a table or figure, as in table2 or fig7; or all (default: list them)"""
    preset: Name = "mini"
    """paper: exactly the paper's settings; conv: its networks on smaller images; mini: a small network, for two cores;
    smoke: the bundled digits, which take seconds"""
    readings: OmitArgPrefixes[Readings] = field(default_factory=Readings)
    only: OmitArgPrefixes[Only] = field(default_factory=Only)
    trace: File = None
    """a recorded trace (.npz or .csv) for the item beyond"""
    data: File = None
    """folder of the data sets added with `fedawe data` (default: $FEDAWE_DATA, or the user's cache)"""
    jobs: Whole = None
    """number of runs at once, one core each (default: all cores; 1 for smoke)"""
    out: Path = Path("runs/reproduce")
    """folder for runs, tables and figures; each preset has a folder of its own in it"""
    dry_run: bool = False
    """only list the runs, with an estimate of their time"""

    def run(self) -> None:
        """Execute the missing runs, then write the tables and figures."""
        from fedawe.cli.run import run_shown
        from fedawe.experiments.execution import Execution
        from fedawe.paper.estimate import estimates
        from fedawe.paper.items import ITEMS, made, needed
        from fedawe.paper.plan import Plan, merged
        from fedawe.paper.presets import presets
        from fedawe.training.engines import cores

        if self.item is None:
            print("\n".join(f"{name:<9} {item.about}" for name, item in ITEMS.items()))
            return
        if self.item not in (*ITEMS, "all"):
            raise UserError(f"unknown item {self.item!r}; choose from {', '.join(ITEMS)}, all")
        if self.trace is not None and self.item not in ("beyond", "all"):
            raise UserError(f"--trace is for beyond; {self.item} has no recorded trace")
        plan = Plan(presets()[self.preset], self.readings, self.only, self.trace, self.data)
        items = tuple(ITEMS) if self.item == "all" else (self.item,)
        out, planned = self.out / self.preset, merged([each for item in items for each in needed(item, plan)])
        # Training on the digits takes less time than starting a second process.
        jobs = self.jobs if self.jobs is not None else 1 if self.preset == "smoke" else cores()
        execution = Execution(jobs=jobs, checkpoint_every=100)
        execution.check()
        experiments = [(each, each.experiment()) for each in planned]  # options and traces are checked here
        if self.dry_run:
            _list(out, estimates(out / "runs", planned), jobs)
            return
        check_data(planned)
        for each, experiment in experiments:
            run_shown(experiment, out / "runs" / each.folder, execution)
        for item in items:
            write(out, item, made(item, plan, out / "runs"))
        if planned:
            print(f"all runs on one page: fedawe report {shlex.quote(str(out / 'runs'))}")


def check_data(planned: "Sequence[Planned]") -> None:
    """Refuses missing data sets before the first run of all, not before the first run that needs them."""
    from fedawe.tasks.named import NamedTask

    tasks = [each.experiment().task for each in planned]
    for name, folder in dict.fromkeys((task.name, task.folder) for task in tasks if isinstance(task, NamedTask)):
        NamedTask(name, folder=folder).data()


def write(out: Path, item: str, made: "Outcome") -> None:
    """Write tables as CSV, Markdown and LaTeX and figures as PNG and PDF; print small tables and all names."""
    from rich.console import Console

    from fedawe.core.files import new_folder, write_atomically
    from fedawe.report import plots

    console = Console()
    for table in made.tables:
        for kind in ("csv", "md", "tex"):
            path = new_folder(out / "tables") / f"{table.name}.{kind}"
            write_atomically(path, str(table.export(kind)).encode())
        left = show(table, console) if len(table.rows) <= 40 else len(table.columns)
        more = f" ({left} more column{'s' if left > 1 else ''} there)" if 0 < left < len(table.columns) else ""
        print(f"{item}: {out / 'tables' / table.name}.csv, .md, .tex{more}")
    for name, figure in made.figures:
        for suffix in ("png", "pdf"):
            path = new_folder(out / "figures") / f"{name}.{suffix}"
            plots.save(figure, path)
        print(f"{item}: {out / 'figures' / name}.png, .pdf")
    for sentence in made.words:
        console.print(sentence, highlight=False, markup=False)
    if made.words:
        text = "".join(f"{sentence}\n" for sentence in made.words)
        write_atomically(new_folder(out / "tables") / f"{item}.txt", text.encode())


def show(table: "Table", console: "Console") -> int:
    """Print the first columns of a table that fit the terminal; returns the number of columns left out."""
    from rich import box
    from rich.table import Table as RichTable
    from rich.text import Text

    shown = RichTable(box=box.SIMPLE_HEAD, pad_edge=False)
    widths = [max(len(c.title), *(len(row[n].text) for row in table.rows)) for n, c in enumerate(table.columns)]
    fits = max(1, sum(end <= console.width for end in accumulate(width + 3 for width in widths)))
    columns = table.columns[:fits]
    for column in columns:
        shown.add_column(Text(column.title), justify="right" if column.numeric else "left", no_wrap=True)
    for row in table.rows:
        shown.add_row(*(Text(cell.text, style="bold" if cell.strong else "") for cell in row[:fits]))
    console.print(table.caption, style="italic", highlight=False, markup=False)
    console.print(shown)
    return len(table.columns) - fits


def _list(out: Path, found: "Sequence[Estimate]", jobs: int) -> None:
    total = 0.0
    for each in found:
        left = each.total - each.complete
        about = "complete" if not left else f"about {_duration(each.seconds / jobs)}" if each.seconds else each.problem
        total += each.seconds or 0.0
        print(f"{each.planned.folder}: {each.total} runs, {left} to do, {about}")
    least = "at least" if any(each.seconds is None for each in found) else "about"
    print(f"in all {least} {_duration(total / jobs)} with {jobs} at once, in {out}")


def _duration(seconds: float) -> str:
    if seconds < 90:
        return f"{seconds:.0f} s"
    return f"{seconds / 60:.0f} min" if seconds < 5400 else f"{seconds / 3600:.1f} h"


VERB = ReproduceCommand
