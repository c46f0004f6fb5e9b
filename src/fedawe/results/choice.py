"""The options of a comparison of algorithms, in a module of their own that is fast to import."""

from collections.abc import Iterable
from dataclasses import dataclass
from numbers import Integral
from typing import Literal

from fedawe.core.errors import UserError

WINDOW = 50  # rounds, as in the paper
Interval = Literal["student", "bootstrap"]


@dataclass(frozen=True)
class Choice:
    """How algorithms are compared.

    metric      name of the metric; None: the one that the task declares to decide
    baseline    the algorithm to which differences are taken; None: FedAvg if it is compared, else the first
    algorithms  the algorithms to compare, in this order; none named: all
    window      number of last rounds; the score of a run is the mean over the evaluations in them
    interval    how the 95 % intervals of paired differences are computed
    """

    metric: str | None = None
    baseline: str | None = None
    algorithms: tuple[str, ...] = ()
    window: int = WINDOW
    interval: Interval = "student"

    def __post_init__(self) -> None:
        for name, value in (("metric", self.metric), ("baseline", self.baseline)):
            if value is not None and not isinstance(value, str):
                raise UserError(f"{name} is {value!r}; expected a name")
        if isinstance(self.algorithms, str) or not isinstance(self.algorithms, Iterable):
            raise UserError(f"algorithms is {self.algorithms!r}; expected several names, as in ['FedAWE', 'FedAvg']")
        object.__setattr__(self, "algorithms", tuple(self.algorithms))
        if isinstance(self.window, bool) or not isinstance(self.window, Integral) or self.window < 1:
            raise UserError(f"window is {self.window!r}; expected a whole number of rounds from 1")
        if self.interval not in ("student", "bootstrap"):
            raise UserError(f"interval is {self.interval!r}; expected student or bootstrap")
