"""`fedawe export`: records for the tools people already have."""

import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from tyro.conf import Positional

from fedawe import results as export
from fedawe.experiments.flags import File


@dataclass(frozen=True)
class Export:
    """Write all evaluations for other tools: one table as CSV, or TensorBoard's event files."""

    folder: Positional[Path]
    """what `fedawe run` wrote, or a folder of such folders"""
    format: Literal["csv", "tensorboard"] = "csv"
    """csv: one row per evaluation; tensorboard: a folder of event files for every run"""
    out: File = None
    """file of the table (default FOLDER/records.csv), or folder (default FOLDER/tensorboard)"""

    def run(self) -> None:
        """Write it, and say where."""
        if self.format == "csv":
            out = self.out or self.folder / "records.csv"
            export.write_csv(self.folder, out, _warn)
        else:
            out = self.out or self.folder / "tensorboard"
            export.write_tensorboard(self.folder, out, _warn)
        print(out)


def _warn(problem: str) -> None:
    print(f"fedawe: {problem}", file=sys.stderr)


VERB = Export
