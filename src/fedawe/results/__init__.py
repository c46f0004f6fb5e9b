"""Records in, tables out: who is better than whom, by how much, and whether that is more than chance."""

from fedawe.results.curves import Curve, curve, first_round, smoothed, speed_table
from fedawe.results.events import write_tensorboard
from fedawe.results.folder import Experiment, Run, display_name, load, load_all
from fedawe.results.frame import write_csv
from fedawe.results.metrics import METRICS, Metric, metrics_of
from fedawe.results.model import load_model
from fedawe.results.participation import ByClass, by_class, class_table, echo_counts, staleness_counts
from fedawe.results.standings import (
    Comparison,
    Difference,
    Interval,
    Standing,
    compare,
    mean_ranks,
    paired,
    summary_table,
    window_mean,
)
from fedawe.results.tables import Table

__all__ = [
    "METRICS",
    "ByClass",
    "Comparison",
    "Curve",
    "Difference",
    "Experiment",
    "Interval",
    "Metric",
    "Run",
    "Standing",
    "Table",
    "by_class",
    "class_table",
    "compare",
    "curve",
    "display_name",
    "echo_counts",
    "first_round",
    "load",
    "load_all",
    "load_model",
    "mean_ranks",
    "metrics_of",
    "paired",
    "smoothed",
    "speed_table",
    "staleness_counts",
    "summary_table",
    "window_mean",
    "write_csv",
    "write_tensorboard",
]
