"""What the verbs print: progress on a terminal, plain lines elsewhere."""

import sys
from collections.abc import Iterator
from contextlib import contextmanager

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

from fedawe.experiments import folder as runs


class Shown:
    """Where the rounds of a run are told; a bar on a terminal, nothing elsewhere."""

    def __init__(self, progress: Progress | None, total: int) -> None:
        self.progress = progress
        self.worked = False  # whether any round was computed
        if progress is not None:
            self.all = progress.add_task("all runs", total=total, facts="")
            self.one = progress.add_task("", total=None, facts="")

    def tell(self, at: runs.Progress) -> None:
        """One more round."""
        self.worked = True
        if self.progress is None:
            return
        value = next((f"{k} {at.metrics[k]:.4g}" for k in ("test_accuracy", "distance") if k in at.metrics), "")
        speed = self.progress.tasks[self.one].speed
        facts = f"{speed or 0:5.0f} rounds/s  {at.active:4d} active  {value}"
        self.progress.update(self.one, description=at.run, completed=at.rounds, total=at.of, facts=facts)

    def done(self) -> None:
        """One more run."""
        if self.progress is not None:
            self.progress.update(self.all, advance=1)
            self.progress.reset(self.one)

    def warn(self, message: str) -> None:
        """Something was mended; say so."""
        if self.progress is not None:
            self.progress.console.print(f"fedawe: {message}", style="yellow", highlight=False)
        else:
            print(f"fedawe: {message}", file=sys.stderr)


@contextmanager
def progress(total: int) -> Iterator[Shown]:
    """Bars on standard error if that is a terminal."""
    console = Console(stderr=True)
    if not console.is_terminal:
        yield Shown(None, total)
        return
    columns = (
        TextColumn("{task.description:28}"),
        BarColumn(bar_width=24),
        MofNCompleteColumn(),
        TextColumn("{task.fields[facts]}"),
        TimeRemainingColumn(),
    )
    with Progress(*columns, console=console, transient=True) as bars:
        yield Shown(bars, total)
