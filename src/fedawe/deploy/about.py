"""The header of the record of a federation: the fields of every record's header, as far as the server knows them."""

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from fedawe.algorithms.base import Algorithm
from fedawe.algorithms.facts import name_of
from fedawe.core.describe import described, short
from fedawe.core.errors import UserError
from fedawe.core.metric import Metric
from fedawe.deploy.wire import printable
from fedawe.experiments.header import header_of, shapes
from fedawe.results.record import Line
from fedawe.tasks.layout import Layout


@dataclass(frozen=True)
class About:
    """A description of a deployment for its record. Every field is optional; none may change when a run is continued.

    task     what is learned, as named fields
    local    how clients train
    metrics  the metrics that the server's evaluation returns
    inputs   the shape of one input
    classes  the number of classes
    seed     the seed of all random numbers
    config   the run configuration that the clients receive; a replay uses it
    """

    task: Any = None
    local: Any = None
    metrics: tuple[Metric, ...] = ()
    inputs: tuple[int, ...] | None = None
    classes: int | None = None
    seed: int = 0
    config: Mapping[str, Any] = field(default_factory=dict)


def deployment_header(
    about: About, given: Algorithm[Any], algorithm: Algorithm[Any], layout: Layout, clients: int, rounds: int
) -> Line:
    """The header of the record: the fields of a simulated run, and `deployment`.

    The run is named after `given`, the algorithm of the user; `algorithm` is its deployed form.
    """
    name = name_of(given)
    header = header_of(
        short(given, name.lower()),
        short(given, name).replace("(", " (", 1),
        algorithm,
        local=about.local,
        shared=shared(about, rounds),
        metrics=about.metrics,
        parameters=shapes(layout, 0),
        inputs=about.inputs,
        classes=about.classes,
        clients=clients,
        seed=about.seed,
        stacked=False,
    )
    header["deployment"] = {
        "config": described(about.config),
        "buffers": [entry.name for entry in layout.ordered if entry.kind == "buffer"],
        "aliases": dict(layout.aliases),
    }
    return header


def shared(about: About, rounds: int) -> Line:
    """The fields that an experiment shares among its runs; a deployment is an experiment with one run."""
    return {
        "task": described(about.task),
        "availability": {"class": "fedawe.availability.trace:Trace", "title": "deployment"},
        "p": None,
        "rounds": rounds,
        "evaluate_every": 1,
        "evaluate_last": None,
        "evaluate_received": False,
    }


def check_recordable(config: Mapping[str, Any]) -> None:
    """Refuses a configuration that cannot be written as JSON, before anything is written."""
    for name, value in config.items():
        try:
            json.dumps(value, allow_nan=False)
        except (TypeError, ValueError):
            raise UserError(
                f"train_config: {name} is {printable(repr(value), 40)}, which a record cannot hold; expected text, "
                "finite numbers or lists of them"
            ) from None
