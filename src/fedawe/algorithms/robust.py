"""Robust aggregation: a rule in which a few hostile clients have bounded influence on the mean over active clients."""

import math
from dataclasses import dataclass, field
from typing import Any, Protocol

import torch
from torch import Tensor

from fedawe.algorithms.base import Algorithm, State, check_positive, skipped_rounds_are_empty
from fedawe.algorithms.exchange import Upload, first_state, in_order
from fedawe.algorithms.facts import name_of
from fedawe.algorithms.fedavg import FedAvg
from fedawe.algorithms.wrapper import NestedState, Wrapper, check_averages
from fedawe.core.errors import UserError


class Aggregator(Protocol):
    """A statistic that replaces the mean.

    coordinatewise  whether every coordinate is aggregated by itself, as is needed for running statistics
    """

    coordinatewise: bool

    def combine(self, rows: Tensor) -> Tensor:
        """The aggregate of the updates of k >= 1 clients, [k, d] -> [d]."""


@dataclass(frozen=True)
class Trimmed:
    """In every coordinate the mean without the b = floor(share k) largest and the b smallest of k values.

    If at most a share `share` of the active clients is hostile, every coordinate lies between the smallest and the
    largest value of an honest client, whatever the hostile clients send. With fewer than 1/share active clients b is 0,
    and the result is the mean.

    >>> Trimmed(0.25).combine(torch.tensor([[1.0], [2.0], [3.0], [1e9]]))
    tensor([2.5000])
    """

    coordinatewise = True

    share: float = 0.1

    def __post_init__(self) -> None:
        if not isinstance(self.share, int | float) or not 0 < self.share < 0.5:
            raise UserError(f"share is {self.share!r}; expected a number above 0 and below 0.5; 0.5 is the median")

    def combine(self, rows: Tensor) -> Tensor:
        """The trimmed mean; b is rounded such that a share of 0.29 of 100 clients is 29, despite rounding errors."""
        return _middle(rows, math.floor(self.share * len(rows) + 1e-9))


@dataclass(frozen=True)
class Median:
    """In every coordinate the median; of an even number of values, the mean of the two in the middle.

    It lies between the values of honest clients as long as fewer than half of the active clients are hostile.

    >>> Median().combine(torch.tensor([[1.0], [2.0], [1e9]]))
    tensor([2.])
    """

    coordinatewise = True

    def combine(self, rows: Tensor) -> Tensor:
        """The median of every coordinate."""
        return _middle(rows, len(rows))


@dataclass(frozen=True)
class NormBound:
    """The mean of the updates, each scaled to norm c if its norm is larger.

    If h of k active clients are hostile, they change the mean by at most 2 c h/k, compared with honest clients in their
    place.

    >>> NormBound(5.0).combine(torch.tensor([[0.0, 1.0], [300.0, 400.0]]))
    tensor([1.5000, 2.5000])
    """

    coordinatewise = False

    c: float = 1.0

    def __post_init__(self) -> None:
        check_positive("c", self.c)

    def combine(self, rows: Tensor) -> Tensor:
        """The mean of the scaled updates."""
        return bounded(rows, self.c).mean(0).to(rows.dtype)


def bounded(rows: Tensor, c: float) -> Tensor:
    """The rows, each scaled to norm c if its norm is larger, in float64, [k, d]."""
    rows = rows.double()
    norms: Tensor = torch.linalg.vector_norm(rows, dim=1, keepdim=True)
    return rows * (c / norms).clamp(max=1.0)


def _middle(rows: Tensor, b: int) -> Tensor:
    """The mean of each coordinate without its b largest and b smallest values; b is lowered so that some remain."""
    b = min(b, (len(rows) - 1) // 2)
    kept = rows.sort(0).values[b : len(rows) - b]
    # Without the clamp, rounding could move the mean out of the range of the values.
    return kept.double().mean(0).to(rows.dtype).clamp(kept[0], kept[-1])


@dataclass(frozen=True)
class Robust(Wrapper[NestedState]):
    """A rule in which `by` replaces the mean over active clients (Yin et al. 2018, arXiv:1803.01498).

    rule  one that averages the active clients: FedAvg, FedProx, or FedAWE, whose updates are the echoed innovations
          (the models that clients hold come from the server and need no protection)
    by    Trimmed(share), Median() or NormBound(c)

    Robust aggregation is not linear in the updates, so the audit refuses it, and Proposition 1 does not hold for it.
    Every update that is far from the others is treated as hostile. This includes the updates of honest clients with
    unusual data, and updates that FedAWE multiplies by a large echo after many missed rounds.

    >>> robust = Robust(FedAvg(), Median())
    >>> state = robust.init(torch.zeros(1), m=3)
    >>> state = robust.aggregate(state, 0, torch.tensor([0, 1, 2]), torch.tensor([[1.0], [2.0], [-1e9]]))
    >>> robust.model(state)
    tensor([-1.])
    """

    keeps = "what the rule keeps"
    linear = False
    weightable = False

    rule: Algorithm[Any] = field(default_factory=FedAvg)
    by: Aggregator = field(default_factory=Trimmed)

    def __post_init__(self) -> None:
        check_averages(self.rule, "robust aggregation")
        if not callable(getattr(self.by, "combine", None)) or isinstance(self.by, type):
            raise UserError(f"by is {self.by!r}; expected an object such as fedawe.Trimmed(0.1)")

    @property
    def name(self) -> str:
        """The rule's name after "Robust"."""
        return f"Robust {name_of(self.rule)}"

    def init(self, x0: Tensor, m: int) -> NestedState:
        """The rule's state."""
        own: State = first_state(self.rule, x0, m)
        return NestedState(own.t, m, own)

    def absorb(self, state: NestedState, t: int, A: Tensor, upload: Upload) -> NestedState:
        """The rule's round with `by` in place of the mean."""
        A, up = in_order(state, t, A, upload)
        state = skipped_rounds_are_empty(self, state, t)
        rule: Any = self.rule
        if len(A) == 0:
            return state.after(t, own=rule.aggregate(state.own, t, A, up.G))
        rows = rule.updates(state.own, t, A, up.G.double())  # an echoed update may exceed the range of float32
        return state.after(t, own=rule.apply(state.own, t, A, self.by.combine(rows).to(up.G.dtype)))

    def statistics(self, ends: Tensor) -> Tensor:
        """The new running statistics: aggregated by `by` if it treats every coordinate by itself, else their mean."""
        return self.by.combine(ends) if self.by.coordinatewise else ends.mean(0)


AGGREGATORS = {"trimmed": Trimmed, "median": Median, "norm-bound": NormBound}
