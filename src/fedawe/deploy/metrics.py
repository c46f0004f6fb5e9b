"""What clients say of themselves, averaged; nobody's metrics can break a round or fill a disk."""

import math
from collections.abc import Iterable, Sequence
from itertools import islice
from typing import Any

from flwr.app import MetricRecord, RecordDict

from fedawe.deploy.wire import ROUND

MOST = 64  # metrics of a reply that are looked at
LONGEST = 64  # characters of a metric's name; a metric with a longer one is ignored


def finite_metrics(metrics: Iterable[tuple[str, Any]]) -> dict[str, float]:
    """The single finite numbers among the first metrics, under names that are short and printable."""
    return {
        name: value
        for name, value in islice(metrics, MOST)
        if isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)
        if name != ROUND and len(name) <= LONGEST and name.isprintable()
    }


def mean_metrics(replies: Sequence[RecordDict], weighted_by: str) -> MetricRecord | None:
    """The mean of every metric that all of them have, weighted by samples where all say how many; None if none."""
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
