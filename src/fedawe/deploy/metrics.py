"""Averages of the clients' metrics, also by group; their number and size are limited, and only finite ones count."""

import math
from collections.abc import Iterable, Mapping, Sequence
from itertools import islice
from pathlib import Path
from typing import Any

from flwr.app import MetricRecord, RecordDict
from flwr.serverapp.strategy import Result

from fedawe.audit.groups import read_roster
from fedawe.core.errors import UserError
from fedawe.deploy.wire import ROUND
from fedawe.results.record import Record

MOST = 64  # metrics of a reply that are read
LONGEST = 64  # characters of a metric's name; a metric with a longer one is ignored


def finite_metrics(metrics: Iterable[tuple[str, Any]]) -> dict[str, float]:
    """The first metrics that are finite numbers (not lists) and have short printable names."""
    return {
        name: value
        for name, value in islice(metrics, MOST)
        if isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)
        if name != ROUND and len(name) <= LONGEST and name.isprintable()
    }


def finite(numbers: Mapping[str, float]) -> dict[str, float]:
    """The finite numbers, which a record can hold; numbers computed from clients' replies may overflow."""
    return {name: number for name, number in numbers.items() if math.isfinite(number)}


def mean_metrics(replies: Sequence[RecordDict], weighted_by: str) -> MetricRecord | None:
    """The mean of every metric that all replies have; None if there is none.

    It is weighted by the metric `weighted_by` if that is positive in all replies.
    """
    said = [finite_metrics(item for one in reply.metric_records.values() for item in one.items()) for reply in replies]
    names = [name for name in said[0] if name != weighted_by and all(name in one for one in said)] if said else []
    if not names:
        return None
    weights = [max(float(one.get(weighted_by, 0)), 0.0) for one in said]
    if min(weights) == 0 or not math.isfinite(sum(weights)):
        weights = [1.0] * len(said)
    total = sum(weights)
    return MetricRecord(
        {name: sum(w / total * one[name] for w, one in zip(weights, said, strict=True)) for name in names}
    )


def read_groups(path: str | Path, clients: int) -> dict[int, str]:
    """The group of every client in a CSV with the columns `client` (0, 1, ...) and `group`."""
    tables, _ = read_roster(Path(path)).placed([str(i) for i in range(clients)])
    table = next((one for one in tables if one.kind == "group"), None)
    if table is None or not table.parts.any():
        raise UserError(f"{path}: expected a column 'client' with numbers from 0 to {clients - 1} and a column 'group'")
    return {i: table.names[int(row.argmax())] for i, row in enumerate(table.parts) if row.any()}


def metrics_by_group(
    replies: Sequence[tuple[int, RecordDict]], groups: Mapping[int, str], weighted_by: str
) -> dict[str, float]:
    """Every metric of every group as METRIC_GROUP, and the largest difference between two groups as METRIC_gap."""
    found: dict[str, MetricRecord] = {}
    for group in sorted(set(groups.values())):
        mean = mean_metrics([reply for client, reply in replies if groups.get(client) == group], weighted_by)
        if mean is not None:
            found[group] = mean
    out: dict[str, float] = {}
    for name in sorted({name for mean in found.values() for name in mean}):
        values = {group: float(mean[name]) for group, mean in found.items() if name in mean}  # type: ignore[arg-type]
        out |= {f"{name}_{group}": value for group, value in values.items()}
        if len(values) > 1:
            out[f"{name}_gap"] = max(values.values()) - min(values.values())
    return finite(out)


def recalled(result: Result, record: Record, ours: set[str]) -> None:
    """Add the metrics of rounds before a restart to the result; `ours` names fields of a line that are not metrics."""
    by_group: dict[int, set[str]] = {}
    for line in record.rounds:
        if "train" in line:
            result.train_metrics_clientapp[line["round"]] = MetricRecord(line["train"])
        if "clients_evaluate" in line:
            result.evaluate_metrics_clientapp[line["round"]] = MetricRecord(line["clients_evaluate"])
        by_group[line["round"]] = set(line.get("groups", ()))
    for line in record.evaluations:
        others = {*ours, "echo_mean", "echo_max", *by_group.get(line["round"], ())}
        if metrics := {name: value for name, value in line.items() if name not in others}:
            result.evaluate_metrics_serverapp[line["round"]] = MetricRecord(metrics)
