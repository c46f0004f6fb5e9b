"""`fedawe export`: Write all evaluations as one CSV table or as event files for TensorBoard."""

import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from tyro.conf import Positional

from fedawe.core.errors import UserError
from fedawe.experiments.flags import File


@dataclass(frozen=True)
class ExportCommand:
    """Write all evaluations for other tools: one table as CSV, or event files for TensorBoard."""

    folder: Positional[Path]
    """a folder that `fedawe run` or a deployment wrote, or a folder of such folders"""
    format: Literal["csv", "tensorboard"] = "csv"
    """csv: one row per evaluation; tensorboard: a folder of event files for every run"""
    out: File = None
    """csv: file of the table (default: FOLDER/records.csv); tensorboard: folder (default: FOLDER/tensorboard)"""

    def run(self) -> None:
        """Write the file or folder, and print its name."""
        if self.format == "csv":
            from fedawe.results.frame import write_csv

            out = self.out or self.folder / "records.csv"
            if out.suffix not in ("", ".csv"):
                raise UserError(f"--out {out}: a table is written as CSV; give a name that ends in .csv")
            write_csv(self.folder, out, _warn)
        else:
            from fedawe.results.events import write_tensorboard

            out = self.out or self.folder / "tensorboard"
            write_tensorboard(self.folder, out, _warn)
        print(out)


def _warn(problem: str) -> None:
    print(f"fedawe: {problem}", file=sys.stderr)


VERB = ExportCommand
