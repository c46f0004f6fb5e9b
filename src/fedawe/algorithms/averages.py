"""The averaging baselines: FedAvg over active, over all, with known probabilities, FedAU and F3AST.

All share x^{t+1} = x^t - eta_g clip(sum_A w_i G_i) and differ in the weights w_i alone. Their state is x [d] and, for
FedAU and F3AST, a few numbers per client. An empty round leaves x alone.
"""

from dataclasses import dataclass
from typing import Any, Literal, Protocol, runtime_checkable

import numpy as np
import torch
from torch import Tensor

from fedawe.algorithms.base import (
    OneGlobalModel,
    ServerState,
    check_rates,
    check_whole,
    clipped,
    first_model,
    known_clients,
    received,
    skipped_rounds_are_empty,
)
from fedawe.core.errors import UserError


@dataclass(frozen=True)
class FedAvg(OneGlobalModel[ServerState]):
    """FedAvg over the active clients (McMahan et al. 2017, arXiv:1602.05629): w_i = 1/|A|.

    The model is biased towards the clients that are active most often.

    >>> fedavg = FedAvg()
    >>> state = fedavg.init(torch.zeros(1), m=3)
    >>> state = fedavg.aggregate(state, 0, torch.tensor([0, 2]), torch.tensor([[1.0], [3.0]]))
    >>> fedavg.model(state)
    tensor([-2.])
    """

    name = "FedAvg"
    keeps = "nothing"
    sums_to_one = True

    eta_g: float = 1.0
    clip: float | None = None

    def __post_init__(self) -> None:
        check_rates(self.eta_g, self.clip)

    def init(self, x0: Tensor, m: int) -> ServerState:
        """x^0."""
        return ServerState(t=-1, m=m, x=first_model(x0, m))

    def aggregate(self, state: ServerState, t: int, A: Tensor, G: Tensor) -> ServerState:
        """The mean over A."""
        A, G = received(state, t, A, G)
        return self.apply(state, t, A, self.updates(state, t, A, G).mean(0)) if len(A) else state.after(t)

    def updates(self, state: ServerState, t: int, A: Tensor, G: Tensor) -> Tensor:
        """What the clients A add to the mean, [k, d]."""
        del state, t, A
        return G

    def apply(self, state: ServerState, t: int, A: Tensor, v: Tensor) -> ServerState:
        """The state after round t, in which the mean was v [d]."""
        del A
        return state.after(t, x=state.x - self.eta_g * clipped(v, self.clip))


@dataclass(frozen=True)
class FedAvgAll(OneGlobalModel[ServerState]):
    """FedAvg over all clients, in which an inactive client counts as a zero update: w_i = 1/m.

    Its steps are short, and the model is biased towards clients with a large p_i.

    >>> fedavg_all = FedAvgAll()
    >>> state = fedavg_all.init(torch.zeros(1), m=4)
    >>> state = fedavg_all.aggregate(state, 0, torch.tensor([0, 2]), torch.tensor([[1.0], [3.0]]))
    >>> fedavg_all.model(state)
    tensor([-1.])
    """

    name = "FedAvg-all"
    keeps = "nothing"

    eta_g: float = 1.0
    clip: float | None = None

    def __post_init__(self) -> None:
        check_rates(self.eta_g, self.clip)

    def init(self, x0: Tensor, m: int) -> ServerState:
        """x^0."""
        return ServerState(t=-1, m=m, x=first_model(x0, m))

    def aggregate(self, state: ServerState, t: int, A: Tensor, G: Tensor) -> ServerState:
        """The sum over A, over m."""
        A, G = received(state, t, A, G)
        return state.after(t, x=state.x - self.eta_g * clipped(G.sum(0) / state.m, self.clip))


@dataclass(frozen=True, eq=False)
class FedAvgKnown(OneGlobalModel[ServerState]):
    """FedAvg with known probabilities (Perazzone et al. 2022, arXiv:2201.07912): w_i = 1/(m p_i^t).

    p is [T, m]; None stands for the probabilities of the trace, which an experiment fills in seed by seed. The rule is
    unbiased, but p is known in simulations only, and the weights have no bound.

    >>> known = FedAvgKnown(p=torch.tensor([[0.5, 1.0]]))
    >>> state = known.init(torch.zeros(1), m=2)
    >>> state = known.aggregate(state, 0, torch.tensor([0, 1]), torch.tensor([[1.0], [3.0]]))    # (1/2) (1/.5 + 3)
    >>> known.model(state)
    tensor([-2.5000])
    """

    name = "FedAvg-known"
    keeps = "the true probabilities"
    needs_p = True

    p: Any = None
    eta_g: float = 1.0
    clip: float | None = None

    def __post_init__(self) -> None:
        check_rates(self.eta_g, self.clip)
        if self.p is None:
            return
        object.__setattr__(self, "p", probabilities(self.p))

    def init(self, x0: Tensor, m: int) -> ServerState:
        """x^0."""
        if self.p is None:
            raise UserError("FedAvgKnown needs the probabilities of every round; give p, an array [rounds, clients]")
        check_columns(self.p, m)
        return ServerState(t=-1, m=m, x=first_model(x0, m))

    def aggregate(self, state: ServerState, t: int, A: Tensor, G: Tensor) -> ServerState:
        """The sum over A of G_i / p_i^t, over m."""
        A, G = received(state, t, A, G)
        if len(A) == 0:
            return state.after(t)
        p = probabilities_of(self.p, t, A).to(G)  # p_i^t                                              [k]
        return state.after(t, x=state.x - self.eta_g * clipped((G / p[:, None]).sum(0) / state.m, self.clip))


@runtime_checkable
class Table(Protocol):
    """Probabilities [rounds, clients] of which a row is computed when it is asked for."""

    @property
    def shape(self) -> tuple[int, int]: ...
    def row(self, t: int) -> Any: ...
    def __len__(self) -> int: ...
    def __getitem__(self, t: int) -> Tensor: ...


def probabilities(given: Any) -> Tensor | Table:
    """Probabilities [rounds, clients], checked, as a tensor of our own; those of a trace that is drawn round by round
    stay a table whose rows are computed when asked for."""
    if isinstance(given, Table):
        return given
    try:
        p = given.clone() if isinstance(given, Tensor) else torch.from_numpy(np.array(given))
    except TypeError:
        raise UserError(f"p must be probabilities [rounds, clients], not {type(given).__name__}") from None
    if p.ndim != 2 or not p.is_floating_point():
        raise UserError(f"p must be probabilities [rounds, clients], not {p.dtype} of shape {list(p.shape)}")
    if not ((p >= 0) & (p <= 1)).all():
        raise UserError("p has entries outside [0, 1]")
    return p


def check_columns(p: Tensor | Table, m: int) -> None:
    """Refuses probabilities of another number of clients."""
    if p.shape[1] != m:
        raise UserError(f"p has {p.shape[1]} columns for {m} clients")


def probabilities_of(p: Tensor | Table, t: int, A: Tensor) -> Tensor:
    """p_i^t of the active clients A [k], none of which can be 0, [k]."""
    if t >= len(p):
        raise UserError(f"p covers rounds 0 to {len(p) - 1}, but this is round {t}")
    own = p[t].to(A.device)[A]
    if (own == 0).any():
        raise UserError(f"client {int(A[(own == 0).nonzero()[0]])} was active in round {t}, but its p is 0")
    return own


@dataclass(frozen=True)
class IntervalState(ServerState):
    """FedAU's state: for each client the running mean of its intervals between active rounds."""

    S: Tensor  # rounds since the last interval ended                      [m] int64
    M: Tensor  # number of intervals so far                                [m] int64
    omega: Tensor  # their mean, 1 before the first                        [m]


@dataclass(frozen=True)
class FedAU(OneGlobalModel[IntervalState]):
    """FedAU (Wang and Ji 2024, arXiv:2306.03401): w_i = omega_i/m.

    omega_i is the mean interval between the active rounds of client i, which is about 1/p_i.

    An interval that reaches K is cut there, so omega <= K. The interval that ends in round t is used from t+1 on.

    >>> fedau = FedAU(K=50)
    >>> state = fedau.init(torch.zeros(1), m=1)
    >>> one, g = torch.tensor([0]), torch.tensor([[1.0]])
    >>> state = fedau.aggregate(state, 0, one[:0], g[:0])    # missed
    >>> state = fedau.aggregate(state, 1, one, g)            # weight 1; an interval of 2 ends
    >>> state = fedau.aggregate(state, 2, one, g)            # weight 2; an interval of 1 ends
    >>> fedau.model(state), state.omega
    (tensor([-3.]), tensor([1.5000]))
    """

    name = "FedAU"
    keeps = "3 numbers per client"

    K: int = 50
    eta_g: float = 1.0
    clip: float | None = None

    def __post_init__(self) -> None:
        check_rates(self.eta_g, self.clip)
        check_whole("K", self.K)

    def init(self, x0: Tensor, m: int) -> IntervalState:
        """No interval seen, omega = 1."""
        x = first_model(x0, m)
        none = torch.zeros(m, dtype=torch.int64, device=x.device)
        return IntervalState(t=-1, m=m, x=x, S=none, M=none.clone(), omega=x.new_ones(m))

    def aggregate(self, state: IntervalState, t: int, A: Tensor, G: Tensor) -> IntervalState:
        """Use omega, then learn from this round."""
        A, G = received(state, t, A, G)
        state = skipped_rounds_are_empty(self, state, t)
        x = state.x - self.eta_g * clipped((state.omega[A, None] * G).sum(0) / state.m, self.clip)

        S, M, omega = intervals_after(state.S, state.M, state.omega, A, self.K)
        return state.after(t, x=x, S=S, M=M, omega=omega)


def intervals_after(S: Tensor, M: Tensor, omega: Tensor, A: Tensor, K: int) -> tuple[Tensor, Tensor, Tensor]:
    """S, M and omega after a round in which the clients A were active."""
    S = S + 1
    ends = S == K  # an interval ends because the client is active, or because it is cut               [m]
    ends[A] = True
    return torch.where(ends, 0, S), M + ends, torch.where(ends, (M * omega + S) / (M + 1), omega)


@dataclass(frozen=True)
class RateState(ServerState):
    """F3AST's state: how often each client was selected, as a moving average."""

    r: Tensor  # [m]


@dataclass(frozen=True)
class F3AST(OneGlobalModel[RateState]):
    """F3AST (Ribero, Vikalo and de Veciana 2022, arXiv:2205.06730), with all clients of equal weight.

        w_i = (1/r_i) / sum_S (1/r_j)

        r <- (1 - beta) r + beta 1{i in S}         before the weights, so r_i >= beta for the selected

    S is every available client, or the `capacity` of them with the smallest r (ties: the lowest number); the others are
    not asked to train.
    Which variant the FedAWE authors ran is not public. These are the published ones:

    r0         starting rates: 1 (the authors' FedPBC code), or any number; "share" is 1/m (the F3AST authors' code)
    normalise  "self": as above, which starts as FedAvg does and alone fits the FedAWE paper's Table 8;
               "clients": (1/m)/r_i, unbiased once r is right (the F3AST paper, and the FedPBC code);
               "capacity": that divided by the capacity too (the F3AST authors' code)

    >>> f3ast = F3AST(beta=0.5, normalise="clients")
    >>> state = f3ast.init(torch.zeros(1), m=2)
    >>> one, g = torch.tensor([0]), torch.tensor([[1.0]])
    >>> state = f3ast.aggregate(state, 0, one[:0], g[:0])    # r = .5, .5
    >>> state = f3ast.aggregate(state, 1, one, g)            # r = .75, .25: x = 0 - (1/2)/.75
    >>> f3ast.model(state), state.r
    (tensor([-0.6667]), tensor([0.7500, 0.2500]))
    """

    name = "F3AST"
    keeps = "1 number per client"

    beta: float = 0.001
    eta_g: float = 1.0
    capacity: int | None = None
    r0: float | Literal["share"] = 1.0
    normalise: Literal["self", "clients", "capacity"] = "self"
    clip: float | None = None

    def __post_init__(self) -> None:
        check_rates(self.eta_g, self.clip)
        if not 0 < self.beta <= 1:
            raise UserError(f"beta is {self.beta!r}; expected a number above 0 and at most 1")
        check_whole("capacity", self.capacity, ", or None for no limit")
        if self.r0 != "share" and not (isinstance(self.r0, float | int) and 0 < self.r0 <= 1):
            raise UserError(f"r0 is {self.r0!r}; expected a number above 0 and at most 1, or 'share'")
        if self.normalise not in ("self", "clients", "capacity"):
            raise UserError(f"normalise is {self.normalise!r}; expected 'self', 'clients' or 'capacity'")

    def init(self, x0: Tensor, m: int) -> RateState:
        """r = r0 for everyone."""
        x = first_model(x0, m)
        r0 = 1 / m if self.r0 == "share" else self.r0
        return RateState(t=-1, m=m, x=x, r=torch.full((m,), r0, dtype=x.dtype, device=x.device))

    @property
    def sums_to_one(self) -> bool:
        """Whether the weights of the selected clients sum to 1."""
        return self.normalise == "self"

    @property
    def chooses(self) -> bool:
        """Whether some of the available clients may be left out of a round."""
        return self.capacity is not None

    def choose(self, state: RateState, t: int, A: Tensor, draw: object) -> Tensor:
        """S, before anyone trains: the `capacity` of A with the smallest r, which is the largest p_k^2 / r_k^2."""
        del draw
        A = known_clients(A, state).sort().values
        state = skipped_rounds_are_empty(self, state, t)
        return A[self._selected(state, A)]

    def _selected(self, state: RateState, A: Tensor) -> Tensor:
        """Which rows of A, in their order; all of them if no more are available than the capacity."""
        capacity = len(A) if self.capacity is None else self.capacity
        return state.r[A].sort(stable=True).indices[:capacity].sort().values

    def aggregate(self, state: RateState, t: int, A: Tensor, G: Tensor) -> RateState:
        """Select if nobody has selected before training, update the rates, then weight."""
        A, G = received(state, t, A, G)
        state = skipped_rounds_are_empty(self, state, t)
        if self.capacity is not None and len(A) > self.capacity:
            chosen = self._selected(state, A)
            A, G = A[chosen], G[chosen]
        r = (1 - self.beta) * state.r
        r[A] += self.beta
        if len(A) == 0:
            return state.after(t, r=r)
        w = 1 / r[A]  # [k]
        w = w / (float(w.sum()) if self.normalise == "self" else state.m)
        if self.normalise == "capacity":
            w = w / (self.capacity or len(A))
        return state.after(t, x=state.x - self.eta_g * clipped((w[:, None] * G).sum(0), self.clip), r=r)
