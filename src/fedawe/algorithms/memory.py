"""Rules that remember every client's last innovation: MIFA, FedVARP and ClusterFedVARP."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal

import torch
from torch import Tensor

from fedawe.algorithms.base import (
    OneGlobalModel,
    ServerState,
    check_rates,
    check_whole,
    clipped,
    first_model,
    is_whole,
    received,
    skipped_rounds_are_empty,
)
from fedawe.algorithms.exchange import positive_rate
from fedawe.algorithms.rows import Rows, rows_of, with_rows
from fedawe.core.errors import UserError

Rate = Callable[[int], float]
Place = Literal["server", "client"]
KEEPS = {"server": "one model per client", "client": "one vector; every client keeps its own last innovation"}


def check_memory(memory: str, rate: Any) -> None:
    """Refuses a memory other than "server" or "client", and a rate that is not a schedule."""
    if memory not in KEEPS:
        raise UserError(f"memory is {memory!r}; expected 'server' or 'client'")
    if rate is not None and not callable(rate):
        raise UserError(f"memory_rate is {rate!r}; expected the local schedule, such as fedawe.Rate(0.1), or None")


@dataclass(frozen=True)
class MemoryState(ServerState):
    """The last innovation y_i of each client seen so far (zero for the others) and their mean over all m."""

    y: Rows  # client -> y_i                                                       [d] each
    y_bar: Tensor  # (1/m) sum_i y_i                                                               [d]

    @classmethod
    def of(cls, x0: Tensor, m: int) -> "MemoryState":
        """The state before round 0: no innovation is remembered."""
        return cls(t=-1, m=m, x=x0, y={}, y_bar=torch.zeros_like(x0))


@dataclass(frozen=True)
class MIFA(OneGlobalModel[MemoryState]):
    """MIFA (Gu et al. 2021, arXiv:2106.04159): the mean of the last innovation y_i of every client.

        x^{t+1} = x^t - eta_g (1/m) sum_i y_i,     y_i = G_i for i in A; zero before the first round of client i

    The model moves in empty rounds too. The default is the form in the FedAWE authors' code. The options give the form
    of MIFA's own paper:

    memory_rate  None: innovations are remembered as they are. The local schedule t -> eta_l(t): innovations are divided
                 by the rate of their round when they are remembered, and multiplied by the current rate when they are
                 used, so that old innovations shrink with the rate
    warmup       "none": the model moves from the first round; "all-seen": only once every client has been active
    memory       where y_i is kept. "server": all of them at the server. "client": each at its client, which uploads
                 G_i - y_i; the server then keeps only their mean. The results are the same

    >>> mifa = MIFA()
    >>> state = mifa.init(torch.zeros(1), m=2)
    >>> state = mifa.aggregate(state, 0, torch.tensor([0]), torch.tensor([[2.0]]))
    >>> state = mifa.aggregate(state, 1, torch.tensor([1]), torch.tensor([[4.0]]))    # 0 - 2/2 - (2 + 4)/2
    >>> mifa.model(state)
    tensor([-4.])
    """

    name = "MIFA"

    eta_g: float = 1.0
    clip: float | None = None
    memory_rate: Rate | None = None
    warmup: Literal["none", "all-seen"] = "none"
    memory: Place = "server"

    def __post_init__(self) -> None:
        check_rates(self.eta_g, self.clip)
        check_memory(self.memory, self.memory_rate)
        if self.warmup not in ("none", "all-seen"):
            raise UserError(f"warmup is {self.warmup!r}; expected 'none' or 'all-seen'")

    @property
    def keeps(self) -> str:
        """What the server keeps besides the model."""
        return KEEPS[self.memory]

    def init(self, x0: Tensor, m: int) -> MemoryState:
        """No innovation is remembered."""
        return MemoryState.of(first_model(x0, m), m)

    def aggregate(self, state: MemoryState, t: int, A: Tensor, G: Tensor) -> MemoryState:
        """Remember the new innovations, then move by the mean of all y_i."""
        A, G = received(state, t, A, G)
        state = skipped_rounds_are_empty(self, state, t)
        rate = 1.0 if self.memory_rate is None else positive_rate(self.memory_rate(t), t, self)
        new = G / rate
        y_bar = state.y_bar + (new - rows_of(state.y, A, state.x)).sum(0) / state.m
        y = with_rows(state.y, A, new)
        moves = self.warmup == "none" or len(y) == state.m
        x = state.x - self.eta_g * clipped(rate * y_bar, self.clip) if moves else state.x
        return state.after(t, x=x, y=y, y_bar=y_bar)


@dataclass(frozen=True)
class FedVARP(OneGlobalModel[MemoryState]):
    """FedVARP (Jhunjhunwala et al. 2022, arXiv:2207.14130): FedAvg corrected by every client's last innovation y_i.

        v = (1/|A|) sum_A (G_i - y_i) + (1/m) sum_j y_j,     x^{t+1} = x^t - eta_g v,     then y_i = G_i for i in A

    The default is the form in the FedAWE authors' code: an empty round changes nothing, and innovations are remembered
    as they are. The options `memory_rate` (the form of FedVARP's own paper) and `memory` are those of MIFA.

    >>> fedvarp = FedVARP()
    >>> state = fedvarp.init(torch.zeros(1), m=2)
    >>> state = fedvarp.aggregate(state, 0, torch.tensor([0]), torch.tensor([[2.0]]))
    >>> state = fedvarp.aggregate(state, 1, torch.tensor([1]), torch.tensor([[4.0]]))    # 0 - 2 - ((4 - 0) + 2/2)
    >>> fedvarp.model(state)
    tensor([-7.])
    """

    name = "FedVARP"

    eta_g: float = 1.0
    clip: float | None = None
    memory_rate: Rate | None = None
    memory: Place = "server"

    def __post_init__(self) -> None:
        check_rates(self.eta_g, self.clip)
        check_memory(self.memory, self.memory_rate)

    @property
    def keeps(self) -> str:
        """What the server keeps besides the model."""
        return KEEPS[self.memory]

    def init(self, x0: Tensor, m: int) -> MemoryState:
        """No innovation is remembered."""
        return MemoryState.of(first_model(x0, m), m)

    def aggregate(self, state: MemoryState, t: int, A: Tensor, G: Tensor) -> MemoryState:
        """The step v, then the new y_i."""
        A, G = received(state, t, A, G)
        if len(A) == 0:
            return state.after(t)
        rate = 1.0 if self.memory_rate is None else positive_rate(self.memory_rate(t), t, self)
        new = G / rate
        change = new - rows_of(state.y, A, state.x)  # G_i - y_i                                              [k, d]
        v = rate * (change.mean(0) + state.y_bar)
        y_bar = state.y_bar + change.sum(0) / state.m
        x = state.x - self.eta_g * clipped(v, self.clip)
        return state.after(t, x=x, y=with_rows(state.y, A, new), y_bar=y_bar)


@dataclass(frozen=True, eq=False)
class ClusterFedVARP(OneGlobalModel[MemoryState]):
    """ClusterFedVARP (Jhunjhunwala et al. 2022, arXiv:2207.14130): one memory for each cluster c(i) of similar clients.

        v = (1/|A|) sum_A (G_i - y_c(i)) + (1/m) sum_j y_c(j),   x^{t+1} = x^t - eta_g v
        y_c <- the mean of G_i over the active clients of cluster c, where there are any

    One cluster per client is FedVARP. An empty round changes nothing.

    clusters  the cluster of every client [m], numbered from 0; or the number n of clusters: client i is then in
              cluster i mod n

    >>> varp = ClusterFedVARP(clusters=[0, 0])
    >>> state = varp.init(torch.zeros(1), m=2)
    >>> state = varp.aggregate(state, 0, torch.tensor([0]), torch.tensor([[2.0]]))
    >>> state = varp.aggregate(state, 1, torch.tensor([1]), torch.tensor([[4.0]]))    # 0 - 2 - ((4 - 2) + 2)
    >>> varp.model(state)
    tensor([-6.])
    """

    name = "ClusterFedVARP"
    keeps = "one model per cluster and one integer per client"

    clusters: int | Any = 10
    eta_g: float = 1.0
    clip: float | None = None

    def __post_init__(self) -> None:
        check_rates(self.eta_g, self.clip)
        if is_whole(self.clusters):
            check_whole("clusters", self.clusters)
            return
        try:
            clusters = torch.as_tensor(self.clusters).clone()
        except (TypeError, ValueError, RuntimeError):
            raise UserError(f"clusters is {self.clusters!r}; expected a number, or one per client") from None
        if clusters.ndim != 1 or clusters.dtype.is_floating_point or bool((clusters < 0).any()):
            raise UserError(f"clusters must be whole numbers from 0, one per client, not {self.clusters!r}")
        object.__setattr__(self, "clusters", clusters.to(torch.int64))

    def _of(self, m: int) -> Tensor:
        """The cluster of every client, [m]."""
        clusters: Any = self.clusters
        return torch.arange(m) % clusters if is_whole(clusters) else clusters

    def init(self, x0: Tensor, m: int) -> MemoryState:
        """No innovation is remembered."""
        state = MemoryState.of(first_model(x0, m), m)
        if len(self._of(m)) != m:
            raise UserError(f"clusters has {len(self._of(m))} numbers for {m} clients")
        return state

    def aggregate(self, state: MemoryState, t: int, A: Tensor, G: Tensor) -> MemoryState:
        """The step v, then the new y_c of every active cluster."""
        A, G = received(state, t, A, G)
        if len(A) == 0:
            return state.after(t)
        of = self._of(state.m).to(A.device)
        v = (G - rows_of(state.y, of[A], state.x)).mean(0) + state.y_bar
        C, member = of[A].unique(return_inverse=True)  # the active clusters, and the row of each client's cluster in C
        counts = torch.bincount(member, minlength=len(C))
        new = G.new_zeros((len(C), G.shape[1])).index_add_(0, member, G) / counts[:, None].to(G)
        share = torch.bincount(of, minlength=int(of.max()) + 1)[C].to(G) / state.m  # |cluster| / m          [c]
        y_bar = state.y_bar + (share[:, None] * (new - rows_of(state.y, C, state.x))).sum(0)
        x = state.x - self.eta_g * clipped(v, self.clip)
        return state.after(t, x=x, y=with_rows(state.y, C, new), y_bar=y_bar)
