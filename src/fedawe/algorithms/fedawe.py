"""FedAWE: adaptive innovation echoing and implicit gossiping (Algorithm 1 of the paper)."""

from dataclasses import dataclass, field, replace
from typing import Literal

from torch import Tensor

from fedawe.algorithms.base import check_rates, check_whole, clipped, first_model, received, skipped_rounds_are_empty
from fedawe.algorithms.notebook import Shown
from fedawe.algorithms.versions import Versions
from fedawe.core.errors import UserError
from fedawe.core.metric import Metric


@dataclass(frozen=True)
class CarryState(Versions):
    """Versions, and the round up to which the echoes of each client account for the rounds that it missed."""

    paid: Tensor  # [m] int64


@dataclass(frozen=True)
class ActiveState(Versions):
    """Versions, and the round in which each client was last active itself; with `max_absence`, tau may be later."""

    last: Tensor  # -1 for a client that has never been active                            [m] int64


@dataclass(frozen=True)
class FedAWE(Shown):
    """FedAWE (Xiang, Ioannidis, Yeh, Joe-Wong and Su 2024, arXiv:2409.17446, Algorithm 1).

    Every active client starts from the model that it received last, and its innovation counts once for every round
    since then.

        x_i† = x_i^t - eta_g (t - tau_i) G_i          for i in A: the echo
        x^{t+1} = (1/|A|) sum_A x_i†                  the gossip: A, and only A, receive x^{t+1}

    `model` is x-bar, the mean of the models that all m clients hold. In it every client's innovations have the same
    weight, for every availability sequence (Proposition 1). `state.latest` is x^{t+1}. In an empty round no model
    changes, and all echoes grow by one.

    eta_g        the server's rate
    clip         largest norm of the averaged echoed update, before eta_g (0.5 in the authors' code; no such clip in the
                 paper)
    max_echo     largest echo; bounds the first step of a client that was unavailable for very long, but Proposition 1
                 no longer holds
    carry        the part of an echo that `max_echo` cuts off is added to the client's echoes in its next active rounds:
                 the echo is min(max_echo, t - e_i), where e_i is the last round for which the client's earlier echoes
                 account. Proposition 1 holds except for what has not been added yet
    max_absence  a client whose echo in the next round would exceed this holds the newest version from then on, as if it
                 had been active without an innovation in the round that made that version. This bounds the number of
                 versions. The innovations that the client missed are not made up for, so Proposition 1 holds only while
                 no echo would exceed this
    average      the clients over which `model` averages. "all": all m, the paper's x-bar. "active": those that have
                 been active at least once. Without `max_absence`, x-bar over n such clients is x^0 minus eta_g/n times
                 the sum of all echoed innovations, so Proposition 1 holds among these n. None: "all" in a simulation,
                 "active" in a deployment, where m may be far too large

    Example with two clients and d = 1, where G_i = 1 in every active round. Client 1 misses round 0, so its first
    innovation counts twice:

    >>> import torch
    >>> fedawe = FedAWE()
    >>> state = fedawe.init(torch.zeros(1), m=2)
    >>> state = fedawe.aggregate(state, 0, torch.tensor([0]), torch.tensor([[1.0]]))       # x^1 = 0 - 1
    >>> state = fedawe.aggregate(state, 1, torch.tensor([0, 1]), torch.tensor([[1.0], [1.0]]))  # mean(-1 - 1, 0 - 2)
    >>> state.latest, fedawe.model(state)
    (tensor([-2.]), tensor([-2.]))
    """

    name = "FedAWE"
    keeps = "the versions that clients hold (about 20 for 100 clients) and one integer per client"
    received_mean = True
    metrics = (
        Metric("live_versions", "FedAWE: versions held", better=None),
        Metric("consensus", "FedAWE: mean squared distance of clients' models from x̄", better=None),
    )

    eta_g: float = 1.0
    clip: float | None = None
    max_echo: int | None = None
    carry: bool = field(default=False, kw_only=True)
    max_absence: int | None = None
    average: Literal["all", "active"] | None = None

    def __post_init__(self) -> None:
        check_rates(self.eta_g, self.clip)
        check_whole("max_echo", self.max_echo, ", or None for no limit")
        check_whole("max_absence", self.max_absence, ", or None for no limit")
        if self.carry and (self.max_echo is None or self.max_absence is not None):
            raise UserError("carry is True; use it together with max_echo and without max_absence")
        if self.average not in ("all", "active", None):
            raise UserError(f"average is {self.average!r}; expected 'all' or 'active'")

    def init(self, x0: Tensor, m: int) -> Versions:
        """x_i^0 = x^0 and tau_i = -1 for every client."""
        held = Versions.of(first_model(x0, m), m)
        if self.carry:
            return CarryState(**vars(held), paid=held.tau.clone())
        if self.max_absence is not None and self.average == "active":
            return ActiveState(**vars(held), last=held.tau.clone())
        return held

    def start(self, state: Versions, A: Tensor) -> Tensor:
        """x_i^t, the model that each client received last, [k, d]."""
        return state[A]

    def aggregate(self, state: Versions, t: int, A: Tensor, G: Tensor) -> Versions:
        """The echo, then the gossip among A."""
        A, G = received(state, t, A, G)
        if self.max_absence is not None:
            state = skipped_rounds_are_empty(self, state, t)
        if len(A) == 0:
            return self._renewed(state.after(t))
        return self.apply(state, t, A, self.updates(state, t, A, G).mean(0))

    def updates(self, state: Versions, t: int, A: Tensor, G: Tensor) -> Tensor:
        """The echoed innovations, [k, d]."""
        return self._echo(state, t, A)[:, None] * G

    def _echo(self, state: Versions, t: int, A: Tensor) -> Tensor:
        """The echo of every client of A: t - tau_i(t), or t - e_i with `carry`, at most `max_echo`, [k]."""
        echo = t - (state.paid if isinstance(state, CarryState) else state.tau)[A]
        return echo if self.max_echo is None else echo.clamp(max=self.max_echo)

    def apply(self, state: Versions, t: int, A: Tensor, v: Tensor) -> Versions:
        """The state after round t, in which v [d] was the mean of the echoed innovations of A."""
        after = state.advance(t, A, state.mean(A) - self.eta_g * clipped(v, self.clip))
        if isinstance(after, CarryState):
            return replace(after, paid=after.paid.index_add(0, A, self._echo(state, t, A)))
        if isinstance(after, ActiveState):
            after = replace(after, last=after.last.index_fill(0, A, t))
        return self._renewed(after)

    def _renewed(self, state: Versions) -> Versions:
        return state if self.max_absence is None else state.renewed(self.max_absence)

    def model(self, state: Versions) -> Tensor:
        """x-bar = (1/m) sum_i x_i, or the mean over the clients that have been active, [d]."""
        if isinstance(state, ActiveState):
            active = (state.last >= 0).nonzero().flatten()
            return state.mean(active) if len(active) else state.latest.clone()
        return state.mean_of_active() if self.average == "active" else state.mean()

    def deployed(self) -> "FedAWE":
        """The form that is deployed: with average="active" unless `average` was given."""
        return replace(self, average=self.average or "active")

    def initial_share(self, state: Versions) -> float:
        """The weight of x^0 in `model`: the share of clients that still hold it; 0 if `model` leaves these out."""
        return 0.0 if self.average == "active" else state.holders.get(-1, 0) / state.m

    @property
    def linear(self) -> bool:
        """Whether the model is linear in the innovations; a clip is not."""
        return self.clip is None

    def also(self, state: Versions) -> dict[str, Tensor]:
        """The last aggregate."""
        return {"latest": state.latest}

    def diagnostics(self, state: Versions) -> dict[str, float]:
        """The number of models that are kept, and how far apart the clients' models are."""
        return {"live_versions": len(state.models), "consensus": state.consensus()}
