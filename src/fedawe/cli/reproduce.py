"""`fedawe reproduce`: the paper's tables and figures."""

import shlex
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import accumulate
from pathlib import Path
from typing import Literal, get_args

from rich import box
from rich.console import Console
from rich.table import Table as RichTable
from rich.text import Text
from tyro.conf import Positional

from fedawe.cli.run import execute
from fedawe.core.errors import UserError
from fedawe.core.files import new_folder, write_atomically
from fedawe.experiments.flags import File, Whole
from fedawe.experiments.schedule import Execution
from fedawe.experiments.settings import stored
from fedawe.paper import Batch, Estimate, Item, Outcome, Plan, Readings, estimates, merged, outcome, presets
from fedawe.paper.plan import Clip, Evaluate, Whom
from fedawe.report import plots
from fedawe.results import Table
from fedawe.training.engines import cores

ALL: tuple[Item, ...] = get_args(Item)


@dataclass(frozen=True)
class Reproduce:
    """Repeat one of the paper's tables or figures; the same call again resumes, and no finished run is repeated."""

    item: Positional[
        Literal[
            "fig2", "fig3", "fig4", "fig5", "fig6", "fig7", "table2", "table8", "table9", "table10", "search",
            "fairness", "beyond", "all",
        ]
    ]  # fmt: skip
    """which; search: the learning-rate grid; fairness: does FedAWE still win when everyone is treated alike; beyond:
    Markov, cyclic and correlated availability, and a recorded trace"""
    preset: Literal["paper", "mini", "smoke"] = "mini"
    """paper: exactly the paper's settings; mini: sized for two cores; smoke: seconds, on the bundled digits"""
    clip: Clip = "update"
    """update: the averaged update is clipped to norm 0.5 (the authors' code); gradient: every stochastic gradient is
    (their text); none"""
    clip_whom: Whom = "fedawe"
    """only FedAWE (the authors' code), or all"""
    evaluate: Evaluate = "mean"
    """mean: each method's own model, x-bar for FedAWE; latest: the last aggregate for all; received: for all the mean
    of the models that clients received last, which x-bar is"""
    augment: Literal["image", "batch"] | None = None
    """random crops of each image (text) or of a batch alike (code) (default: image for paper, none for the others)"""
    trace: File = None
    """a recorded trace for beyond (.npz or .csv)"""
    data: File = None
    """folder of the data sets added with `fedawe data` (default: $FEDAWE_DATA, or the user's cache)"""
    jobs: Whole = None
    """runs at once, one core each (default: all cores; 1 for smoke)"""
    out: Path = Path("runs/reproduce")
    """folder of runs, tables and figures; each preset has its own below it"""
    dry_run: bool = False
    """only list the runs, and how long they will take"""

    def run(self) -> None:
        """Run what is missing, then write the tables and figures."""
        readings = Readings(self.clip, self.clip_whom, self.evaluate, self.augment)
        plan = Plan(presets()[self.preset], readings, self.trace)
        if self.trace is not None and self.item not in ("beyond", "all"):
            raise UserError(f"--trace is for beyond; {self.item} has no recorded trace")
        items = ALL if self.item == "all" else (self.item,)
        out, batches = self.out / self.preset, merged([batch for item in items for batch in plan.of(item)])
        # Digits are trained sooner than a second process has started.
        jobs = self.jobs if self.jobs is not None else 1 if self.preset == "smoke" else cores()
        how = Execution(jobs=jobs, checkpoint_every=100, data=self.data)
        how.check()
        check_inputs(batches, self.data)
        if self.dry_run:
            _list(out, estimates(out / "runs", batches, self.data), jobs)
            return
        for batch in batches:
            execute(batch.settings.resolved(), batch.algorithms, batch.seeds, out / "runs" / batch.folder, how)
        for item in items:
            write(out, item, outcome(item, plan, out / "runs", self.data))
        if batches:
            print(f"all runs on one page: fedawe report {shlex.quote(str(out / 'runs'))}")


def check_inputs(batches: Sequence[Batch], data: Path | None) -> None:
    """Refuses what the last of many runs would fail for, before the first of them: options, traces, data sets."""
    for batch in batches:
        batch.settings.resolved()
    for task in dict.fromkeys(batch.settings.task for batch in batches if batch.settings.is_image_set()):
        stored(task, data)


def write(out: Path, item: str, made: Outcome) -> None:
    """Tables as CSV, Markdown and LaTeX, figures as PNG and PDF; both shown or named."""
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


def show(table: Table, console: Console) -> int:
    """A table for a terminal: as many of its first columns as fit; how many are left for the files to show."""
    shown = RichTable(box=box.SIMPLE_HEAD, pad_edge=False)
    widths = [max(len(c.title), *(len(row[n].text) for row in table.rows)) for n, c in enumerate(table.columns)]
    fits = max(1, sum(end <= console.width for end in accumulate(width + 3 for width in widths)))
    columns = table.columns[:fits]
    for column in columns:
        shown.add_column(column.title, justify="right" if column.numeric else "left", no_wrap=True)
    for row in table.rows:
        shown.add_row(*(Text(cell.text, style="bold" if cell.strong else "") for cell in row[:fits]))
    console.print(table.caption, style="italic", highlight=False, markup=False)
    console.print(shown)
    return len(table.columns) - fits


def _list(out: Path, found: Sequence[Estimate], jobs: int) -> None:
    total = 0.0
    for each in found:
        total += each.seconds
        left = each.total - each.complete
        about = f"about {_duration(each.seconds / jobs)}" if left else "complete"
        print(f"{each.batch.folder}: {each.total} runs, {left} to do, {about}")
    print(f"in all about {_duration(total / jobs)} with {jobs} at once, in {out}")


def _duration(seconds: float) -> str:
    if seconds < 90:
        return f"{seconds:.0f} s"
    return f"{seconds / 60:.0f} min" if seconds < 5400 else f"{seconds / 3600:.1f} h"


VERB = Reproduce
