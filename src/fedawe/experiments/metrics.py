"""Check the metrics that a task's `evaluate` returns: numbers by name, including all that the task declares."""

import math
from collections.abc import Collection, Mapping, Sequence
from typing import Any

import numpy as np
from torch import Tensor

from fedawe.core.errors import UserError
from fedawe.core.metric import Metric, as_metrics, check_names
from fedawe.results import record as records
from fedawe.results.record import Line


def check_declared(declared: Any, task: str) -> None:
    """Refuses a task whose declared metrics are invalid, or of which several have `decides`."""
    declared = as_metrics(declared, f"{task}.metrics")
    decide = [metric.name for metric in declared if metric.decides]
    if len(decide) > 1:
        raise UserError(f"{task}.metrics: {', '.join(decide)} all have decides=True; expected one of them")
    check_names((metric.name for metric in declared), f"{task}.metrics")


def checked(found: Any, declared: Sequence[Metric], task: str) -> Line:
    """The metrics as plain numbers for the record; refuses other values, and the lack of a declared metric."""
    if not isinstance(found, Mapping):
        raise UserError(f"{task}.evaluate returned {type(found).__name__}; expected a dict of numbers by name")
    out = {str(name): _plain(value, f"{task}.evaluate: {name}") for name, value in found.items()}
    check_names(out, f"{task}.evaluate")
    missing = [metric.name for metric in declared if metric.name not in out]
    if missing:
        raise UserError(
            f"{task} declares the metrics {', '.join(missing)}, which evaluate does not return; it returned "
            f"{', '.join(out) or 'nothing'}"
        )
    for metric in declared:
        if metric.better is not None and isinstance(found := out[metric.name], list):
            raise UserError(
                f"{task}.evaluate: {metric.name} has {len(found)} numbers; expected one, by which algorithms are ranked"
            )
    return out


def joined(found: Line, more: Mapping[str, Any], where: str) -> Line:
    """The metrics of both arguments; refuses a name that is in both."""
    if twice := [name for name in more if name in found]:
        raise UserError(f"{where}: {', '.join(twice)} is also the name of another metric; rename one of them")
    return {**found, **more}


def _plain(value: Any, where: str) -> float | int | list[float | int]:
    """A number or a list of numbers as Python types; refuses anything else."""
    if isinstance(value, Tensor | np.ndarray | np.generic):
        value = value.tolist()
    numbers = value if isinstance(value, list) else [value]
    if not all(isinstance(each, int | float) for each in numbers):
        raise UserError(f"{where} is {value!r}; expected a number")
    return value  # type: ignore[no-any-return]


def finite(found: Line, declared: Collection[str], models: Collection[str]) -> tuple[Line, str | None]:
    """The metrics with None for undeclared values that are not finite, and the name of a declared one that is not.

    The metric of a further model counts as declared if the metric itself is. An undeclared metric may have no value in
    some rounds or for some classes, such as the accuracy on a class without test samples.
    """
    names = {*declared, *(f"{model}_{name}" for model in models for name in declared)}
    out = dict(found)
    for name, value in found.items():
        if records.not_finite({name: value}) is not None:
            if name in names:
                return found, name
            known = [each if math.isfinite(each) else None for each in value] if isinstance(value, list) else None
            out[name] = known if known and any(each is not None for each in known) else None
    return out, None
