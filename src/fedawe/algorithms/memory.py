"""The baselines that remember every client's last innovation: MIFA and FedVARP. Memory m x d."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor

from fedawe.algorithms.base import (
    OneGlobalModel,
    ServerState,
    check_rates,
    clipped,
    first_model,
    received,
    skipped_rounds_are_empty,
)
from fedawe.core.errors import UserError

Rate = Callable[[int], float]


@dataclass(frozen=True)
class MemoryState(ServerState):
    """The last innovation y_i of each client seen so far (zero for the others) and their mean over all m."""

    y: Mapping[int, Tensor]  # client -> y_i                                                       [d] each
    y_bar: Tensor  # (1/m) sum_i y_i                                                               [d]

    @classmethod
    def of(cls, x0: Tensor, m: int) -> "MemoryState":
        """Nothing remembered."""
        return cls(t=-1, m=m, x=x0, y={}, y_bar=torch.zeros_like(x0))

    def remembered(self, A: Tensor) -> Tensor:
        """y_i for the clients A, [k, d]."""
        nothing = torch.zeros_like(self.x)
        rows = [self.y.get(i, nothing) for i in A.tolist()]
        return torch.stack(rows) if rows else self.x.new_empty((0, len(self.x)))

    def with_rows(self, A: Tensor, rows: Tensor) -> Mapping[int, Tensor]:
        """The memory in which the clients A have new rows [k, d]; a row is a copy, so that it keeps no batch alive."""
        return {**self.y, **{i: row.clone() for i, row in zip(A.tolist(), rows, strict=True)}}


@dataclass(frozen=True)
class MIFA(OneGlobalModel[MemoryState]):
    """MIFA (Gu et al. 2021): x^{t+1} = x^t - eta_g (1/m) sum_i y_i, y_i the last innovation of client i, zero before.

    The model moves in empty rounds too. Default is the form in the FedAWE authors' code; MIFA's own paper differs:

    memory_rate  None: innovations are remembered as they came. The local schedule t -> eta_l(t): remembered divided by
                 the rate of their round and applied with the present one, so that old memories shrink with the rate
    warmup       "none": the model moves from the first round; "all-seen": only once everyone has been there

    >>> mifa = MIFA()
    >>> state = mifa.init(torch.zeros(1), m=2)
    >>> state = mifa.aggregate(state, 0, torch.tensor([0]), torch.tensor([[2.0]]))
    >>> state = mifa.aggregate(state, 1, torch.tensor([1]), torch.tensor([[4.0]]))    # 0 - 2/2 - (2 + 4)/2
    >>> mifa.model(state)
    tensor([-4.])
    """

    name = "MIFA"
    keeps = "one model per client"

    eta_g: float = 1.0
    clip: float | None = None
    memory_rate: Rate | None = None
    warmup: Literal["none", "all-seen"] = "none"

    def __post_init__(self) -> None:
        check_rates(self.eta_g, self.clip)
        if self.warmup not in ("none", "all-seen"):
            raise UserError(f"warmup is {self.warmup!r}; expected 'none' or 'all-seen'")

    def init(self, x0: Tensor, m: int) -> MemoryState:
        """Nothing remembered."""
        return MemoryState.of(first_model(x0, m), m)

    def aggregate(self, state: MemoryState, t: int, A: Tensor, G: Tensor) -> MemoryState:
        """Remember, then move by the mean of all memories."""
        A, G = received(state, t, A, G)
        state = skipped_rounds_are_empty(self, state, t)
        rate = 1.0 if self.memory_rate is None else self.memory_rate(t)
        new = G / rate
        y_bar = state.y_bar + (new - state.remembered(A)).sum(0) / state.m
        y = state.with_rows(A, new)
        moves = self.warmup == "none" or len(y) == state.m
        x = state.x - self.eta_g * clipped(rate * y_bar, self.clip) if moves else state.x
        return state.after(t, x=x, y=y, y_bar=y_bar)


@dataclass(frozen=True)
class FedVARP(OneGlobalModel[MemoryState]):
    """FedVARP (Jhunjhunwala et al. 2022): v = (1/|A|) sum_A (G_i - y_i) + (1/m) sum_j y_j, x^{t+1} = x^t - eta_g v.

    Then y_i = G_i for i in A. Default is the form in the FedAWE authors' code: an empty round changes nothing, and
    innovations are remembered as they came. `memory_rate` as in MIFA is the form of FedVARP's own paper.

    >>> fedvarp = FedVARP()
    >>> state = fedvarp.init(torch.zeros(1), m=2)
    >>> state = fedvarp.aggregate(state, 0, torch.tensor([0]), torch.tensor([[2.0]]))
    >>> state = fedvarp.aggregate(state, 1, torch.tensor([1]), torch.tensor([[4.0]]))    # 0 - 2 - ((4 - 0) + 2/2)
    >>> fedvarp.model(state)
    tensor([-7.])
    """

    name = "FedVARP"
    keeps = "one model per client"

    eta_g: float = 1.0
    clip: float | None = None
    memory_rate: Rate | None = None

    def __post_init__(self) -> None:
        check_rates(self.eta_g, self.clip)

    def init(self, x0: Tensor, m: int) -> MemoryState:
        """Nothing remembered."""
        return MemoryState.of(first_model(x0, m), m)

    def aggregate(self, state: MemoryState, t: int, A: Tensor, G: Tensor) -> MemoryState:
        """Correct the mean of the memories by what is new, then remember."""
        A, G = received(state, t, A, G)
        if len(A) == 0:
            return state.after(t)
        rate = 1.0 if self.memory_rate is None else self.memory_rate(t)
        new = G / rate
        change = new - state.remembered(A)  # G_i - y_i                                              [k, d]
        v = rate * (change.mean(0) + state.y_bar)
        y_bar = state.y_bar + change.sum(0) / state.m
        x = state.x - self.eta_g * clipped(v, self.clip)
        return state.after(t, x=x, y=state.with_rows(A, new), y_bar=y_bar)
