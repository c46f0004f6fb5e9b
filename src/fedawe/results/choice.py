"""How algorithms are compared, as a reader may choose it; a parser needs nothing heavier than this."""

from dataclasses import dataclass
from typing import Literal

from fedawe.core.errors import UserError

WINDOW = 50  # rounds, as in the paper
Interval = Literal["student", "bootstrap"]


@dataclass(frozen=True)
class Choice:
    """How algorithms are compared.

    metric      by which metric, by its name; None: the one that the task declares to decide
    baseline    the algorithm to which differences are taken; None: FedAvg if it takes part, else the first
    algorithms  which take part, in this order; none named: all
    window      a run is summed up by the mean over the evaluations of so many last rounds
    interval    how the 95 % intervals of paired differences are computed
    """

    metric: str | None = None
    baseline: str | None = None
    algorithms: tuple[str, ...] = ()
    window: int = WINDOW
    interval: Interval = "student"

    def __post_init__(self) -> None:
        if isinstance(self.window, bool) or not isinstance(self.window, int) or self.window < 1:
            raise UserError(f"window is {self.window!r}; expected a whole number of rounds from 1")
        if self.interval not in ("student", "bootstrap"):
            raise UserError(f"interval is {self.interval!r}; expected student or bootstrap")
