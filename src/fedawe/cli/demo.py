"""`fedawe demo`: Show the bias of plain averaging on a small fleet, and which algorithms remove it, as a page."""

import time
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True)
class DemoCommand:
    """Show the bias of plain averaging on a fleet of 100 clients, and which of the paper's eight algorithms remove it.

    The clients that are available least hold mostly the first digits. An audit first computes how much influence each
    client would have. Training on real handwritten digits with three seeds follows, and then a page with the results.
    """

    out: Path = Path("demo")
    """folder for the fleet, the runs and report.html"""

    def run(self) -> None:
        """Audit the fleet, run the experiment, and write the report."""
        from rich.console import Console

        from fedawe.audit import audit
        from fedawe.cli.report import print_table
        from fedawe.cli.run import run_shown
        from fedawe.core.files import new_folder
        from fedawe.experiments.demo import demo, fleet, write_fleet
        from fedawe.experiments.execution import Execution
        from fedawe.report.words import words
        from fedawe.results.participation import class_table
        from fedawe.training.engines import cores

        began, path, console = time.perf_counter(), new_folder(self.out) / "fleet.npz", Console()
        write_fleet(path)
        console.print(f"The audit, before any training: {audit(fleet()).advice.headline}\n", highlight=False)
        results = run_shown(demo(path), self.out / "runs", Execution(jobs=cores(), device="cpu"))
        page = results.report(self.out / "report.html")
        comparison = results.compare()
        table = class_table(comparison)
        assert table is not None
        print_table(table, console)
        for finding in words(comparison).findings[:2]:
            console.print(f"{finding.topic}. {finding.text}", highlight=False, markup=False)
        print(f"report: {page}\ntook {time.perf_counter() - began:.0f} s")


VERB = DemoCommand
