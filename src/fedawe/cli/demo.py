"""`fedawe demo`: Compare the paper's algorithms on bundled data, from nothing to a report."""

import time
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True)
class DemoCommand:
    """Compare the paper's eight algorithms on real handwritten digits: 100 clients, three seeds, and a report."""

    out: Path = Path("demo")
    """folder of records and of report.html"""

    def run(self) -> None:
        """Run, compare, report."""
        from fedawe.cli.report import print_summary
        from fedawe.cli.run import run_shown
        from fedawe.experiments.build import experiment_of
        from fedawe.experiments.execution import Execution
        from fedawe.experiments.settings import Settings
        from fedawe.training.engines import cores

        began = time.perf_counter()
        results = run_shown(experiment_of(Settings(rounds=300)), self.out, Execution(jobs=cores(), device="cpu"))
        page = results.report()
        print_summary(results)
        print(f"report: {page}\ntook {time.perf_counter() - began:.0f} s")


VERB = DemoCommand
