"""The header of a record: everything that defines a run, for simulations and deployments alike."""

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any

from fedawe.algorithms.facts import metrics_of, needs_probabilities
from fedawe.core.describe import described
from fedawe.core.environment import environment
from fedawe.core.metric import Metric
from fedawe.results.record import FORMAT, Line
from fedawe.tasks.layout import Layout
from fedawe.training import diagnostics

MAY_DIFFER = ("rounds", "versions", "executor_why", "models")  # fields that may change when a run is continued


def header_of(
    label: str,
    title: str,
    algorithm: Any,
    *,
    local: Any,
    shared: Mapping[str, Any],
    metrics: Sequence[Metric],
    parameters: Mapping[str, Sequence[int]],
    inputs: Sequence[int] | None,
    classes: int | None,
    clients: int,
    seed: int,
    stacked: bool,
    executor: str | None = None,
    executor_why: str | None = None,
) -> Line:
    """The first line of a record. `shared` has the fields of all runs of an experiment: task, availability, rounds."""
    return {
        "kind": "header",
        "format": FORMAT,
        "label": label,
        "name": title,
        "algorithm": described(algorithm),
        "local": described(local),
        **shared,
        "metrics": [dataclasses.asdict(metric) for metric in all_metrics(metrics, algorithm)],
        "needs_p": needs_probabilities(algorithm),
        "parameters": {name: list(shape) for name, shape in parameters.items()},
        "inputs": described(inputs),
        "classes": classes,
        "clients": clients,
        "seed": seed,
        "stacked": stacked,
        "executor": executor,
        "executor_why": executor_why,
        "versions": environment(),
    }


def all_metrics(of_task: Sequence[Metric], algorithm: Any) -> tuple[Metric, ...]:
    """The metrics in evaluations of the algorithm: those of the task, and diagnostics."""
    return (*of_task, *diagnostics.METRICS, *metrics_of(algorithm))


def shapes(layout: Layout | None, size: int) -> dict[str, list[int]]:
    """The shape of every parameter and buffer, in the order of the vector; without names there is one vector, x."""
    return {"x": [size]} if layout is None else {entry.name: list(entry.shape) for entry in layout.ordered}
