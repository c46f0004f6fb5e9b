"""What a run was asked for and what it says of itself."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
from flwr.app import ArrayRecord, ConfigRecord, MetricRecord
from flwr.serverapp.strategy import Result
from torch import Tensor

from fedawe.availability.dynamics import Mask
from fedawe.results.record import Line

EvaluateFn = Callable[[int, ArrayRecord], MetricRecord | None]


@dataclass(frozen=True)
class Run:
    """The arguments of `start`."""

    num_rounds: int
    timeout: float
    train_config: ConfigRecord
    evaluate_config: ConfigRecord
    evaluate_fn: EvaluateFn | None


def recall(result: Result, lines: Sequence[Line]) -> None:
    """The metrics of rounds that were run before a restart."""
    kept = {
        "train": result.train_metrics_clientapp,
        "clients_evaluate": result.evaluate_metrics_clientapp,
        "evaluate": result.evaluate_metrics_serverapp,
    }
    for line in lines:
        for name, metrics in kept.items():
            if name in line:
                metrics[line["round"]] = MetricRecord(line[name])


def with_round(on: Mask, A: Tensor) -> Mask:
    """The trace with one more round, in which the clients A [k] were there."""
    row = np.zeros((1, on.shape[1]), dtype=bool)
    row[0, A.numpy()] = True
    return np.concatenate([on, row])
