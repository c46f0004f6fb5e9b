"""What came out of an experiment, as an object."""

import os
from dataclasses import dataclass
from pathlib import Path

from fedawe.results import folder as folders


@dataclass(frozen=True)
class Results:
    """The runs of one folder."""

    runs: folders.Experiment


def load(folder: str | os.PathLike[str]) -> Results:
    """Read the folder of an experiment or of a deployment."""
    return Results(folders.load(Path(folder)))
