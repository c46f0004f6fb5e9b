"""Choosing among the available clients before training, around any rule."""

import math
from dataclasses import dataclass, field, replace
from typing import Any, Protocol

import numpy as np
import torch
from torch import Tensor

from fedawe.algorithms.base import Algorithm, State, check_fraction, check_whole, known_clients
from fedawe.algorithms.exchange import Broadcast, Upload, absorb, choose, first_state, in_order, some_of
from fedawe.algorithms.facts import is_linear, is_private, name_of
from fedawe.algorithms.fedavg import FedAvg
from fedawe.algorithms.wrapper import NestedState, Wrapper, check_rule
from fedawe.core.errors import UserError


@dataclass(frozen=True)
class ChosenState(NestedState):
    """The rule's state, and what choosers use about every client."""

    tau: Tensor  # last active round of each client, -1 if never                                  [m] int64
    active: Tensor  # number of rounds in which each client was active                            [m] int64
    loss: Tensor  # the last loss that each client reported, -1 before the first                  [m]


class Chooser(Protocol):
    """A way to choose the clients that are asked to train.

    k          the largest number of clients that are chosen
    linear     whether the choice does not depend on models or losses. Default: False
    asks_loss  whether the clients are asked for their losses. Default: False
    """

    @property
    def k(self) -> int:
        """The largest number of clients that are chosen."""

    def pick(self, state: ChosenState, t: int, A: Tensor, draw: np.random.Generator) -> Tensor:
        """Some of the available clients A [n], in any order; called if n is more than k."""


@dataclass(frozen=True)
class Uniform:
    """Choose k of the available clients uniformly at random, without replacement."""

    linear = True
    asks_loss = False

    k: int = 10

    def __post_init__(self) -> None:
        check_whole("k", self.k)

    def pick(self, state: ChosenState, t: int, A: Tensor, draw: np.random.Generator) -> Tensor:
        """The first k of a random permutation of A."""
        del state, t
        return A[torch.from_numpy(draw.permutation(len(A))[: self.k])]


@dataclass(frozen=True)
class LongestAbsent:
    """Choose the k available clients that have been inactive longest; ties go to the lowest number."""

    linear = True
    asks_loss = False

    k: int = 10

    def __post_init__(self) -> None:
        check_whole("k", self.k)

    def pick(self, state: ChosenState, t: int, A: Tensor, draw: np.random.Generator) -> Tensor:
        """The k clients of A with the smallest tau."""
        del t, draw
        return A[state.tau[A].sort(stable=True).indices[: self.k]]


@dataclass(frozen=True)
class PowerOfChoice:
    """Choose, of d available clients, the k with the largest loss (Cho, Wang and Joshi 2020, arXiv:2010.01243).

    The loss of a client is the one that it reported when it was last active (the paper's variant rpow-d); a client that
    has not been active counts as infinite. The choice depends on losses, so the audit refuses it.
    """

    linear = False
    asks_loss = True

    d: int = 20
    k: int = 10

    def __post_init__(self) -> None:
        check_whole("d", self.d)
        check_whole("k", self.k)
        if self.d < self.k:
            raise UserError(f"d is {self.d} and k {self.k}; expected at least as many candidates as are chosen")

    def pick(self, state: ChosenState, t: int, A: Tensor, draw: np.random.Generator) -> Tensor:
        """The k largest losses among d random candidates; their random order decides ties."""
        del t
        candidates = A[torch.from_numpy(draw.permutation(len(A))[: self.d])]
        loss = torch.where(state.active == 0, math.inf, state.loss)[candidates]
        return candidates[loss.sort(stable=True, descending=True).indices[: self.k]]


@dataclass(frozen=True)
class Oort:
    """Choose k clients by statistical utility, some of them never active before (Lai et al. 2021, arXiv:2010.06081).

        utility_i = loss_i, clipped at the 95th percentile and scaled to [0, 1], + sqrt(0.1 ln(t + 1) / (tau_i + 1))

    A share of the k clients is drawn uniformly from those that have never been active. The share is `explore` in round
    0 and is multiplied by 0.98 each round, down to 0.2. The n others are drawn with probabilities in proportion to
    utility, among the clients whose utility is at least 0.95 times the n-th largest. Durations are not simulated, so
    the paper's penalty for slow clients is omitted.
    """

    linear = False
    asks_loss = True

    k: int = 10
    explore: float = 0.9

    def __post_init__(self) -> None:
        check_whole("k", self.k)
        check_fraction("explore", self.explore, one=True)

    def pick(self, state: ChosenState, t: int, A: Tensor, draw: np.random.Generator) -> Tensor:
        """Clients that were never active, then clients by utility; if one group is too small, more of the other."""
        tried = (state.active[A] > 0).cpu().numpy()
        clients = A.cpu().numpy()
        new, known = clients[~tried], clients[tried]
        share = max(min(0.2, self.explore), self.explore * 0.98**t)
        fresh = min(len(new), max(round(share * self.k), self.k - len(known)))
        explored = draw.permutation(new)[:fresh]
        return torch.from_numpy(np.concatenate([explored, self._exploited(state, t, known, self.k - fresh, draw)]))

    def _exploited(self, state: ChosenState, t: int, known: Any, number: int, draw: np.random.Generator) -> Any:
        if number == 0 or len(known) <= number:
            return known[:number]
        loss = state.loss.cpu().numpy()[known].astype(np.float64)
        loss = np.minimum(loss, np.quantile(loss, 0.95))
        spread = loss.max() - loss.min()
        scaled = (loss - loss.min()) / spread if spread > 0 else np.ones_like(loss)
        utility = scaled + np.sqrt(0.1 * math.log(t + 1) / (state.tau.cpu().numpy()[known] + 1))
        good = utility >= 0.95 * np.sort(utility)[-number]
        weight = np.maximum(utility[good], 1e-12)
        return draw.choice(known[good], number, replace=False, p=weight / weight.sum())


@dataclass(frozen=True)
class Chosen(Wrapper[ChosenState]):
    """A rule for which the server asks only some of the available clients to train.

    `chooser` is Uniform(k), LongestAbsent(k), PowerOfChoice(d, k) or Oort(k). Its random numbers depend on the seed and
    t alone. For the rule the chosen clients are the active ones.

    >>> chosen = Chosen(FedAvg(), LongestAbsent(1))
    >>> state = chosen.init(torch.zeros(1), m=3)
    >>> state = chosen.aggregate(state, 0, torch.tensor([0]), torch.ones(1, 1))
    >>> chosen.choose(state, 1, torch.tensor([0, 2]), np.random.default_rng(0))
    tensor([2])
    """

    keeps = "3 numbers per client, and what the rule keeps"
    chooses = True

    rule: Algorithm[Any] = field(default_factory=FedAvg)
    chooser: Chooser = field(default_factory=Uniform)

    def __post_init__(self) -> None:
        check_rule(self.rule)
        is_class = isinstance(self.chooser, type)
        if is_class or not callable(getattr(self.chooser, "pick", None)):
            lack = "is a class" if is_class else "has no method pick(state, t, A, draw)"
            raise UserError(f"chooser is {self.chooser!r}, which {lack}; expected an object such as fedawe.Uniform(20)")
        if is_private(self.rule) and getattr(self.chooser, "asks_loss", False):
            raise UserError(
                f"{type(self.chooser).__name__} chooses by losses, which clients would send without noise; with "
                "differential privacy choose by Uniform(k) or LongestAbsent(k)"
            )

    @property
    def name(self) -> str:
        """The rule's name."""
        return name_of(self.rule)

    @property
    def linear(self) -> bool:
        """Whether the rule is linear and the choice does not depend on models or losses."""
        return is_linear(self.rule) and bool(getattr(self.chooser, "linear", False))

    def init(self, x0: Tensor, m: int) -> ChosenState:
        """No client has been active."""
        own: State = first_state(self.rule, x0, m)
        tau = torch.full((m,), -1, dtype=torch.int64, device=own.latest.device)
        return ChosenState(own.t, m, own, tau, torch.zeros_like(tau), own.latest.new_full((m,), -1.0))

    def choose(self, state: ChosenState, t: int, A: Tensor, draw: np.random.Generator) -> Tensor:
        """The clients that the chooser chooses from A and the rule from these, in increasing order."""
        A = known_clients(A, state).sort().values
        if len(A) > self.chooser.k:
            picked = self.chooser.pick(state, t, A, draw)
            A = some_of(A, picked, t, f"{type(self.chooser).__name__}.pick").sort().values
        return choose(self.rule, state.own, t, A, draw)

    def broadcast(self, state: ChosenState, t: int, A: Tensor) -> Broadcast:
        """The rule's broadcast; the clients are asked for their losses if the chooser needs them."""
        down = super().broadcast(state, t, A)
        return replace(down, loss=True) if getattr(self.chooser, "asks_loss", False) else down

    def absorb(self, state: ChosenState, t: int, A: Tensor, upload: Upload) -> ChosenState:
        """The rule's round; then tau, the counts and the losses of the clients A."""
        A, up = in_order(state, t, A, upload)
        own: State = absorb(self.rule, state.own, t, A, up)
        tau, active, loss = state.tau.clone(), state.active.clone(), state.loss.clone()
        tau[A], active[A] = t, active[A] + 1
        if up.loss is not None:
            loss[A] = up.loss.to(loss)
        return state.after(t, own=own, tau=tau, active=active, loss=loss)

    def visits(self, state: ChosenState) -> Tensor:
        """The number of rounds in which each client was active, [m]."""
        return state.active


CHOOSERS = {"uniform": Uniform, "longest-absent": LongestAbsent, "power-of-choice": PowerOfChoice, "oort": Oort}
