"""FedAWE's state: the version of the model that each client holds, instead of a copy per client."""

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Annotated, Generic, Self, TypeVar

import torch
from torch import Tensor

from fedawe.algorithms.base import State, known_clients
from fedawe.algorithms.notebook import Shown

Held = Annotated[Mapping[int, Tensor], "one model for each version that some client holds"]


@dataclass(frozen=True)
class Versions(State):
    """Client i holds x_i^t = x^{tau_i + 1}, the aggregate of its last active round, so the m models are a few versions.

    A version is numbered by the round that made it (-1 is x0) and is kept as long as some client holds it. One round
    costs O(k) operations on versions and one copy of m integers.
    """

    tau: Tensor  # last active round of each client, -1 if never                              [m] int64
    models: Held  # tau -> x^{tau + 1}, for every tau that some client has   [d] each
    holders: Mapping[int, int]  # tau -> number of clients that have it

    @classmethod
    def of(cls, x0: Tensor, m: int) -> "Versions":
        """The state in which every client holds x0."""
        return cls(t=-1, m=m, tau=torch.full((m,), -1, device=x0.device), models={-1: x0}, holders={-1: m})

    @property
    def latest(self) -> Tensor:
        """The last aggregate, [d]; the clients that were active in that round still hold it."""
        return self.models[max(self.models)]

    def __getitem__(self, A: Tensor) -> Tensor:
        """x_i^t for the clients A [k], [k, d]."""
        held = self.tau[known_clients(A, self)].tolist()
        return torch.stack([self.models[v] for v in held]) if held else self.latest.new_empty((0, len(self.latest)))

    def mean(self, A: Tensor | None = None) -> Tensor:
        """The mean of x_i^t over the clients A [k], or over all m, from the distinct versions, [d]."""
        holders, n = (self.holders, self.m) if A is None else (Counter(self.tau[A].tolist()), len(A))
        mean = torch.zeros_like(self.latest)
        for v in sorted(holders):
            mean.add_(self.models[v], alpha=holders[v] / n)
        return mean

    def mean_of_active(self) -> Tensor:
        """The mean of x_i^t over the clients that no longer hold x0; x0 while nobody has been active, [d]."""
        never = self.holders.get(-1, 0)
        if never in (0, self.m):
            return self.mean()
        mean = torch.zeros_like(self.latest)
        for v in sorted(set(self.holders) - {-1}):
            mean.add_(self.models[v], alpha=self.holders[v] / (self.m - never))
        return mean

    def renewed(self, max_absence: int) -> Self:
        """The state in which clients whose echo in the next round would exceed `max_absence` hold the newest version.

        >>> import fedawe
        >>> algorithm = fedawe.FedAWE(max_absence=2)
        >>> state = algorithm.init(torch.zeros(1), m=2)
        >>> for t in range(3):
        ...     state = algorithm.aggregate(state, t, torch.tensor([0]), torch.ones(1, 1))
        >>> state.tau, sorted(state.models)    # client 1 was never active; its echo in round 2 would have been 3
        (tensor([2, 1]), [1, 2])
        """
        newest = max(self.models)
        absent = (self.t + 1 - self.tau > max_absence) & (self.tau < newest)
        if not absent.any():
            return self
        tau = self.tau.clone()
        tau[absent] = newest
        holders = dict(Counter(tau.tolist()))
        models = {version: model for version, model in self.models.items() if version in holders}
        return replace(self, tau=tau, models=models, holders=holders)

    def consensus(self) -> float:
        """(1/m) sum_i ||x_i - x-bar||^2, which says how far apart the clients' models are."""
        centre = self.mean()
        return sum(n * float(torch.sum((self.models[v] - centre) ** 2)) for v, n in self.holders.items()) / self.m

    def advance(self, t: int, A: Tensor, x: Tensor) -> Self:
        """The state after round t, in which the clients A [k], and only they, received x^{t+1} = x [d]."""
        tau, models, holders = self.tau.clone(), {**self.models, t: x}, {**self.holders, t: len(A)}
        for v, n in Counter(self.tau[A].tolist()).items():  # the versions that A no longer hold
            holders[v] -= n
            if holders[v] == 0:
                del holders[v], models[v]
        tau[A] = t
        return self.after(t, tau=tau, models=models, holders=holders)


V = TypeVar("V", bound=Versions)


class HeldModel(Shown, Generic[V]):
    """`start` and `model` of an algorithm whose clients begin at the model that they received when last active."""

    clip: float | None

    @property
    def linear(self) -> bool:
        """Whether the model is linear in the innovations; a clip is not."""
        return self.clip is None

    def start(self, state: V, A: Tensor) -> Tensor:
        """The model that each client holds, [k, d]."""
        return state[A]

    def model(self, state: V) -> Tensor:
        """The last aggregate, [d]."""
        return state.latest.clone()
