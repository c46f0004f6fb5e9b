"""An experiment that a Python file defines."""

from pathlib import Path

from fedawe.core.errors import UserError
from fedawe.experiments.experiment import Experiment
from fedawe.experiments.names import module_from


def experiment_in(path: Path) -> Experiment:
    """The `Experiment` that the file defines; if it defines several, the one named `experiment`."""
    if path.suffix != ".py":
        raise UserError(f"{path}: expected a Python file that defines a fedawe.Experiment")
    found = {name: value for name, value in vars(module_from(str(path))).items() if isinstance(value, Experiment)}
    if "experiment" in found:
        return found["experiment"]
    if len(found) != 1:
        what = f"defines several: {', '.join(found)}; call one of them" if found else "defines none; add one called"
        raise UserError(f"{path} must define one fedawe.Experiment, but {what} experiment")
    return next(iter(found.values()))
