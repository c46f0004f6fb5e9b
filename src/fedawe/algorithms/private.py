"""Client-level differential privacy: clipped updates, and Gaussian noise on their sum."""

import importlib.util
import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor

from fedawe.algorithms.base import (
    Algorithm,
    State,
    check_fraction,
    check_positive,
    is_whole,
    skipped_rounds_are_empty,
)
from fedawe.algorithms.exchange import Upload, first_state, in_order
from fedawe.algorithms.facts import is_private, name_of
from fedawe.algorithms.fedavg import FedAvg
from fedawe.algorithms.robust import bounded
from fedawe.algorithms.wrapper import NestedState, Wrapper, check_averages
from fedawe.core.errors import UserError
from fedawe.core.metric import Metric
from fedawe.core.rng import rng


@dataclass(frozen=True)
class PrivateState(NestedState):
    """The rule's state, and the number of rounds in which each client was active."""

    active: Tensor  # [m] int64


@dataclass(frozen=True)
class Private(Wrapper[PrivateState]):
    """A rule with noise that hides the updates of any one client (DP-FedAvg, McMahan et al. 2018, arXiv:1710.06963).

        v = (sum_A clip_C(U_i) + z C xi) / n,     xi standard normal [d]

    replaces the rule's mean of the updates U_i: G_i in FedAvg and FedProx, the echoed (t - tau_i) G_i in FedAWE. U_i is
    clipped after the echo, so that one client changes the sum by at most C. With a clip on G_i it could change the sum
    by C times its echo, which grows while the client is inactive. docs/privacy.md derives what is guaranteed, and what
    is not.

    rule         one that averages the active clients: FedAvg, FedProx or FedAWE
    clip         C, the largest norm of a client's update in a round
    noise        z, the standard deviation of the noise in units of C
    denominator  n, a public number such as the expected number of active clients. Noise is then added in every round,
                 also in empty ones, so that it is also protected which clients are active. Not for FedAWE, whose models
                 reveal which clients were active. None: the number of active clients; which clients are active is then
                 taken to be public
    delta        the delta for which the record gives `epsilon`
    seed         of the noise; it must stay secret, because whoever knows it can subtract the noise. None: in a
                 simulation the seed of the run, which is not secret; in a deployment a secret one, which is new
                 whenever the server app starts and is never stored

    >>> private = Private(FedAvg(), clip=1.0, noise=1.0, seed=7)
    >>> state = private.init(torch.zeros(2), m=3)
    >>> state = private.aggregate(state, 0, torch.tensor([0, 2]), torch.tensor([[3.0, 4.0], [0.0, 0.5]]))
    >>> state.active, round(private.diagnostics(state)["epsilon"], 3)    # one Gaussian mechanism with z = 1
    (tensor([1, 0, 1]), 4.377)
    """

    keeps = "1 number per client, and what the rule keeps"
    linear = False
    weightable = False
    private = True
    needs_seed = True

    rule: Algorithm[Any] = field(default_factory=FedAvg)
    clip: float = 1.0
    noise: float = 1.0
    denominator: float | None = None
    delta: float = 1e-5
    seed: int | None = field(default=None, repr=False)

    def __post_init__(self) -> None:
        check_averages(self.rule, "differential privacy")
        check_positive("clip", self.clip)
        check_positive("noise", self.noise)
        check_fraction("delta", self.delta, zero=False)
        if self.denominator is not None:
            check_positive("denominator", self.denominator)
        if self.seed is not None and not is_whole(self.seed):
            raise UserError("seed must be a whole number; the value is not shown, because it may be secret")
        if importlib.util.find_spec("dp_accounting") is None:
            raise UserError("differential privacy needs the package dp-accounting; pip install 'fedawe[privacy]'")

    @property
    def name(self) -> str:
        """The rule's name after "Private"."""
        return f"Private {name_of(self.rule)}"

    @property
    def metrics(self) -> tuple[Metric, ...]:
        """The rule's diagnostics, and epsilon."""
        return (*super().metrics, Metric("epsilon", f"privacy spent: ε at δ = {self.delta:g}", better=None))

    def init(self, x0: Tensor, m: int) -> PrivateState:
        """No client has been active."""
        own: State = first_state(self.rule, x0, m)
        if self.denominator is not None and not hasattr(own, "x"):
            raise UserError(
                f"denominator is {self.denominator:g}, but {name_of(self.rule)} averages the models that its active "
                "clients hold, so that its models reveal which clients were active; omit the denominator"
            )
        return PrivateState(own.t, m, own, torch.zeros(m, dtype=torch.int64, device=own.latest.device))

    def absorb(self, state: PrivateState, t: int, A: Tensor, upload: Upload) -> PrivateState:
        """The rule's round with v in place of the mean."""
        A, up = in_order(state, t, A, upload)
        state = skipped_rounds_are_empty(self, state, t)
        rule: Any = self.rule
        active = state.active.clone()
        active[A] += 1
        if len(A) == 0 and self.denominator is None:
            return state.after(t, own=rule.aggregate(state.own, t, A, up.G), active=active)
        total = bounded(rule.updates(state.own, t, A, up.G.double()), self.clip).sum(0)  # [d]
        v = (total + self.noise * self.clip * self._standard_normal(t, total)) / (self.denominator or len(A))
        return state.after(t, own=rule.apply(state.own, t, A, v.to(up.G.dtype)), active=active)

    def _standard_normal(self, t: int, like: Tensor) -> Tensor:
        """xi, [d]."""
        if self.seed is None:
            raise UserError("Private has no seed for its noise; give seed, a large secret number")
        return torch.from_numpy(rng(self.seed, "noise", t).standard_normal(len(like))).to(like.device)

    def diagnostics(self, state: PrivateState) -> Mapping[str, float]:
        """The rule's diagnostics, and epsilon: for the most active client, or with a denominator for all rounds."""
        releases = int(state.active.max()) if self.denominator is None else state.t + 1
        return {**super().diagnostics(state), "epsilon": epsilon(self.noise, releases, self.delta)}


def check_trained(algorithm: Any, frozen: Iterable[str]) -> None:
    """Refuses noise on a model with parameters that are not trained; `frozen` has their names."""
    first = next(iter(frozen), None)
    if first is not None and is_private(algorithm):
        raise UserError(
            f"{first} is not trained (requires_grad=False), but differential privacy adds noise to every parameter "
            "of a model; train it, or make it a buffer outside the state_dict (register_buffer with persistent=False)"
        )


def epsilon(noise: float, releases: int, delta: float) -> float:
    """The epsilon, at delta, of n = `releases` Gaussian mechanisms with the noise multiplier z = `noise`.

    Together they are exactly one mechanism with the noise multiplier z/sqrt(n), also if each depends on the results of
    the earlier ones (Dong, Roth and Su 2022, Corollary 3.3). Clients are not assumed to be sampled at random, so there
    is no amplification by sampling.

    >>> round(epsilon(10.0, 100, 1e-5), 3)
    4.377
    """
    from dp_accounting import get_epsilon_gaussian  # an optional package that is slow to import

    return 0.0 if releases == 0 else float(get_epsilon_gaussian(noise / math.sqrt(releases), delta))
