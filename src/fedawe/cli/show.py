"""Progress of runs: bars on a terminal, plain lines elsewhere."""

import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

from fedawe.experiments import run

PERIOD_SECONDS = 60.0  # between two lines of progress without a terminal


class Shown:
    """Shows the progress of runs: bars on a terminal; otherwise a line per run, and one every minute."""

    def __init__(self, bars: Progress | None, total: int) -> None:
        self.bars, self.total, self.done = bars, total, 0
        self.worked = False  # whether any round was computed
        self.began = self.last = time.monotonic()
        if bars is not None:
            self.all = bars.add_task("all runs", total=total, facts="")
            self.one = bars.add_task("", total=None, facts="")

    def tell(self, at: run.Progress) -> None:
        """Show that a round is complete."""
        self.worked = True
        value = f"{at.deciding} {at.metrics[at.deciding]:.4g}" if at.deciding in at.metrics else ""
        ended = at.rounds == at.of
        self.done += ended
        if self.bars is None:
            now = time.monotonic()
            if ended or now - self.last > PERIOD_SECONDS:
                self.last = now
                place = f"run {self.done} of {self.total} ended: " if ended else ""
                minutes = (now - self.began) / 60
                print(
                    f"fedawe: {place}{at.run}, round {at.rounds} of {at.of}, {value} ({minutes:.1f} min)",
                    file=sys.stderr,
                    flush=True,
                )
            return
        speed = self.bars.tasks[self.one].speed
        facts = f"{speed or 0:5.0f} rounds/s  {at.active:4d} active  {value}"
        self.bars.update(self.one, description=at.run, completed=at.rounds, total=at.of, facts=facts)
        if ended:
            self.bars.update(self.all, advance=1)
            self.bars.reset(self.one)

    def warn(self, message: str) -> None:
        """Print a warning."""
        if self.bars is not None:
            self.bars.console.print(f"fedawe: {message}", style="yellow", highlight=False, markup=False)
        else:
            print(f"fedawe: {message}", file=sys.stderr)


@contextmanager
def progress(total: int) -> Iterator[Shown]:
    """Show the progress of `total` runs, with bars if standard error is a terminal."""
    console = Console(stderr=True)
    if not console.is_terminal:
        yield Shown(None, total)
        return
    columns = (
        TextColumn("{task.description:28}", markup=False),
        BarColumn(bar_width=24),
        MofNCompleteColumn(),
        TextColumn("{task.fields[facts]}", markup=False),
        TimeRemainingColumn(),
    )
    with Progress(*columns, console=console, transient=True) as bars:
        yield Shown(bars, total)
