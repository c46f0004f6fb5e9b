"""The numbers that evaluations have, and how to print them."""

import math
from dataclasses import dataclass

from fedawe.results.folder import Experiment


@dataclass(frozen=True)
class Metric:
    """A number that evaluations have, and how to print it."""

    name: str
    title: str
    higher_is_better: bool
    share: bool  # a share of 1, printed in percent

    @property
    def heading(self) -> str:
        """With its unit."""
        return f"{self.title} (%)" if self.share else self.title

    def show(self, value: float, *, sign: bool = False, like: float | None = None) -> str:
        """The number without unit: two decimals of a percent, or as many as four figures of `like` have.

        >>> METRICS[0].show(0.81337), METRICS[0].show(-0.0042, sign=True)
        ('81.34', '−0.42')
        >>> METRICS[-1].show(17.74193), METRICS[-1].show(0.098264, like=17.74193)
        ('17.74', '0.10')
        """
        size = abs(value if like is None else like)
        decimals = 2 if self.share else 3 - math.floor(math.log10(size)) if size > 0 else 0
        text = f"{100 * value if self.share else value:{'+' if sign else ''}.{min(max(decimals, 0), 8)}f}"
        return text.replace("-", "−")

    def plain(self, value: float | None) -> float | None:
        """The number behind what is printed, for a CSV."""
        return None if value is None else float(f"{100 * value if self.share else value:.6g}")


METRICS = (
    Metric("test_accuracy", "test accuracy", True, True),
    Metric("test_loss", "test loss", False, False),
    Metric("train_accuracy", "train accuracy", True, True),
    Metric("train_loss", "train loss", False, False),
    Metric("client_accuracy", "train accuracy, uniform over clients", True, True),
    Metric("client_loss", "train loss, uniform over clients", False, False),
    Metric("received_test_accuracy", "test accuracy of the mean model received", True, True),
    Metric("consensus", "FedAWE: mean squared distance of clients' models from x̄", False, False),
    Metric("live_versions", "FedAWE: versions held", False, False),
    Metric("echo_mean", "mean echo of the clients that were there", False, False),
    Metric("staleness_mean", "mean rounds since a client was last there", False, False),
    Metric("loss", "objective", False, False),
    Metric("distance", "distance to the optimum", False, False),
)


def metrics_of(experiment: Experiment) -> tuple[Metric, ...]:
    """The metrics its evaluations have, the one that decides first."""
    ends = [line for run in experiment.runs for line in (*run.record.evaluations[:1], *run.record.evaluations[-1:])]
    names = {name for line in ends for name in line}
    found = [metric for metric in METRICS if metric.name in names]
    return tuple(sorted(found, key=lambda metric: metric.name not in ("test_accuracy", "distance")))
