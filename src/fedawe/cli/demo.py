"""`fedawe demo`: the main job on bundled data, from nothing to a page."""

import time
from dataclasses import dataclass
from pathlib import Path

from fedawe import report
from fedawe import results as compare
from fedawe.algorithms import ALGORITHMS
from fedawe.cli.report import print_summary
from fedawe.cli.run import execute
from fedawe.experiments.schedule import Execution
from fedawe.experiments.settings import Settings
from fedawe.training.engines import cores


@dataclass(frozen=True)
class Demo:
    """Eight algorithms on real handwritten digits, 100 clients that come and go, three seeds; ends with a page."""

    out: Path = Path("demo")
    """folder of records and of report.html"""

    def run(self) -> None:
        """Run, compare, report."""
        began = time.perf_counter()
        execute(
            Settings(rounds=300).resolved(),
            tuple(ALGORITHMS),
            (0, 1, 2),
            self.out,
            Execution(jobs=cores(), device="cpu"),
        )
        page = report.write(self.out)
        print_summary(compare.load(self.out))
        print(f"report: {page}\ntook {time.perf_counter() - began:.0f} s")
