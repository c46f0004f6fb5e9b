"""A model of a fleet that is fitted to its log, to simulate similar fleets with more rounds or clients."""

from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt

from fedawe.availability.clock import Clock
from fedawe.availability.dynamics import Array, Dynamics, Mask
from fedawe.availability.trace import Trace
from fedawe.availability.variation import swings, variation
from fedawe.core.errors import UserError
from fedawe.core.rng import rng

Ints = npt.NDArray[np.int64]
FLOOR = 1e-4  # smallest probability in a score, so that a prediction that is wrong with certainty costs 13 bits
DRAWS = 9  # of the model, for the comparison with the held-out rounds


@dataclass(frozen=True, eq=False)
class Daily(Dynamics):
    """p_i^t = min(1, p_i f(hour of round t)), with persistence phi in [0, 1): available clients tend to stay available.

        P(available | available before)    = p^t + kappa (1 - p^{t-1})
        P(available | unavailable before)  = p^t - kappa p^{t-1}
        kappa = phi min(1, p^t / p^{t-1}, (1 - p^t) / (1 - p^{t-1}))

    For every phi, client i is available in round t with probability p_i^t; with phi = 0, rounds are independent. p_i^t
    is also multiplied by exp(slow z_i - slow^2 / 2), where z_i is a client's own autoregression from day to day with
    coefficient `memory`, and by exp(common w - common^2 / 2), where w is one autoregression from hour to hour with
    coefficient `common_memory` for all clients.
    A client is not enrolled at the beginning with probability `waiting`; it then enrols with probability `enrols` a
    day, and once enrolled it leaves for good with probability `leaves` a day.
    """

    independent_rounds = False
    independent_clients = False

    profile: Array  # f, of mean about 1                                                                     [24]
    persistence: float = 0.0
    clock: Clock = field(default_factory=lambda: Clock(3600.0))
    slow: float = 0.0
    memory: float = 0.0
    common: float = 0.0
    common_memory: float = 0.0
    waiting: float = 0.0
    enrols: float = 0.0
    leaves: float = 0.0
    _tables: dict[Any, Any] = field(default_factory=dict, init=False, repr=False)

    def __post_init__(self) -> None:
        if np.shape(self.profile) != (24,) or not (np.asarray(self.profile) >= 0).all():
            raise UserError(f"profile must be 24 numbers from 0, not of shape {list(np.shape(self.profile))}")
        if not 0 <= self.persistence < 1:
            raise UserError(f"persistence is {self.persistence!r}; expected a number from 0 and below 1")
        for name in ("memory", "common_memory", "waiting", "enrols", "leaves"):
            if not 0 <= getattr(self, name) <= 1:
                raise UserError(f"{name} is {getattr(self, name)!r}; expected a number from 0 to 1")
        if self.slow < 0 or self.common < 0:
            raise UserError(f"slow and common are {self.slow} and {self.common}; expected numbers from 0")

    @property
    def varies(self) -> bool:
        """Whether availability varies beyond rate, hour and persistence."""
        return self.slow > 0 or self.common > 0 or self.waiting > 0 or self.leaves > 0

    def _hour(self, t: npt.NDArray[np.int64]) -> Ints:
        """The hours of rounds t, from tables whose length doubles, so that asking round by round is cheap."""
        return self._table("hours", int(np.max(t, initial=0)))[t]

    def _table(self, kind: str, last: int) -> Ints:
        size = 1 << last.bit_length()
        if (kind, size) not in self._tables:
            self._tables[kind, size] = self.clock.hours(size) if kind == "hours" else self.clock.days(size)
        found: Ints = self._tables[kind, size]
        return found

    def trajectory(self, t: npt.NDArray[np.int64], p: Array) -> Array:
        return p * self.profile[self._hour(np.asarray(t))]

    def available(self, seed: int, t: int, p: Array, before: Mask | None) -> Mask:
        now = self._chance(seed, t, p)
        chance = now
        if before is not None:
            chance = stay_or_come(self._chance(seed, t - 1, p), now, self.persistence, before)
        on = rng(seed, "availability", t).random(len(p)) < chance
        return on & self._enrolled(seed, int(self._table("days", t)[t]), len(p)) if self.varies else on

    def _chance(self, seed: int, t: int, p: Array) -> Array:
        """p_i^t, given the state of every client and of the fleet."""
        if self.slow == 0 and self.common == 0:
            out: Array = self.probabilities(t, p)
            return out
        day, hour = int(self._table("days", t)[t]), int(t * self.clock.round_seconds // 3600)
        z = self._state(seed, "slow", day, len(p), self.memory)
        w = self._state(seed, "common", hour, 1, self.common_memory)
        factor = np.exp(self.slow * z - self.slow**2 / 2) * np.exp(self.common * w - self.common**2 / 2)
        return np.asarray(np.clip(self.trajectory(np.array([t]), p) * factor, 0.0, 1.0))

    def _state(self, seed: int, kind: str, step: int, size: int, memory: float) -> Array:
        """A standard autoregression after `step` steps; it depends on the seed and the step alone."""
        known: list[Array] = self._tables.setdefault((seed, kind, size), [])
        while len(known) <= step:
            fresh = rng(seed, "fit", kind, len(known)).normal(size=size)
            known.append(fresh if not known else memory * known[-1] + np.sqrt(1 - memory**2) * fresh)
        return known[step]

    def _enrolled(self, seed: int, day: int, m: int) -> Mask:
        """Whether each client is enrolled on a day, [m]."""
        known: list[tuple[Mask, Mask]] = self._tables.setdefault((seed, "enrolled", m), [])
        while len(known) <= day:
            draw = rng(seed, "fit", "churn", len(known)).random((2, m))
            if not known:
                known.append((draw[0] < self.waiting, np.zeros(m, dtype=bool)))
                continue
            waiting, gone = known[-1]
            gone = gone | (~waiting & (draw[1] < self.leaves))
            known.append((waiting & (draw[0] >= self.enrols), gone))
        waiting, gone = known[day]
        return ~waiting & ~gone


def stay_or_come(last: Array, now: Array, phi: float, before: Mask) -> Array:
    """The probability of being available, given which clients were available in the round before."""
    tiny = np.finfo(float).tiny
    room = np.minimum(now / np.maximum(last, tiny), (1 - now) / np.maximum(1 - last, tiny))
    kappa = phi * np.minimum(1.0, room)
    return np.where(before, now + kappa * (1 - last), now - kappa * last)


@dataclass(frozen=True, eq=False)
class Fit:
    """A fitted fleet: its dynamics and the base probabilities of its clients."""

    dynamics: Daily
    p: Array  # [m]

    def draw(self, rounds: int, clients: int | None = None, seed: int = 0) -> Trace:
        """A trace of a fleet with these dynamics.

        With more clients than in the log, each additional client has the rate of a random client of the log; with fewer
        clients, these are a random subset of the log.
        """
        drawn = Trace.draw(self.dynamics, self.p[self.taken(clients, seed)], rounds, seed)
        return Trace(drawn.on) if self.dynamics.varies else drawn  # the probabilities depend on hidden states

    def taken(self, clients: int | None, seed: int = 0) -> Ints:
        """The clients of the log whose rates the drawn clients have, [clients]; `draw` says which."""
        n = len(self.p)
        m = n if clients is None else clients
        if m < 1:
            raise UserError(f"clients is {m}; expected a whole number from 1")
        if m < n:
            return np.sort(rng(seed, "fit", "fewer").choice(n, m, replace=False))
        return np.concatenate([np.arange(n), rng(seed, "fit", "clients").integers(n, size=m - n)])


def fit(trace: Trace, clock: Clock | None = None) -> Fit:
    """Fit rates, profile, persistence and further variation; without a clock, only rates and persistence.

    The rate of a client is that of the rounds in which its availability is known, shrunk towards the mean rate of the
    fleet. The fewer independent observations there are of a client, the more its rate is shrunk.
    """
    hours, known = _hours(trace.rounds, clock), trace.known
    rounds = np.bincount(hours, minlength=24)
    watched = trace.known_rounds()
    mean = trace.on.sum() / max(watched.sum(), 1)
    if mean == 0:
        raise UserError("no client is ever available: there is nothing to fit")
    present = np.bincount(hours, trace.on.sum(1), minlength=24)
    possible = rounds * trace.clients if known is None else np.bincount(hours, known.sum(1), minlength=24)
    profile = np.where(possible > 0, (present + mean) / (possible + 1) / mean, 1.0)
    profile = profile / np.average(profile, weights=rounds)
    transitions = _Transitions.of(trace.on, hours, known)
    rates = trace.on.sum(0) / np.maximum(watched, 1)
    p = _base(np.clip(rates, FLOOR, 1 - FLOOR), profile, rounds)
    phi = transitions.best_persistence(p, profile)
    # Second pass: with persistence phi, (1 + phi) / (1 - phi) rounds have the information of one independent round.
    p = _base(_shrunk(rates, watched * (1 - phi) / (1 + phi)), profile, rounds)
    phi = transitions.best_persistence(p, profile)
    if clock is None:
        return Fit(Daily(np.ones(24), phi, Clock(3600.0)), p)
    return Fit(Daily(profile, phi, clock, **variation(trace, clock, p, profile, phi)), p)


def _shrunk(rates: Array, n: Array) -> Array:
    """Posterior mean under the Beta distribution whose mean and variance the rates have, n observations each."""
    mean, variance = rates.mean(), rates.var()
    weight = max(mean * (1 - mean) / max(variance, 1e-9) - 1, 0.5)
    return np.asarray(np.clip((rates * n + mean * weight) / (n + weight), FLOOR, 1 - FLOOR))


def _base(rates: Array, profile: Array, rounds: Ints) -> Array:
    """p_i such that the mean over rounds of min(1, p_i f) is the rate, by bisection, [m]."""
    f, w = profile[rounds > 0], rounds[rounds > 0] / rounds.sum()
    low, high = np.zeros_like(rates), np.full_like(rates, 1 / f.min())
    for _ in range(60):
        middle = (low + high) / 2
        less = (np.minimum(1.0, middle[:, None] * f) @ w) < rates
        low, high = np.where(less, middle, low), np.where(less, high, middle)
    return (low + high) / 2


@dataclass(frozen=True)
class _Transitions:
    """Counts of the transitions of each client between its two states, by the hours of the two rounds."""

    pairs: Ints  # (hour before, hour now)                                                                   [n, 2]
    counts: npt.NDArray[np.int64]  # [n, 2 before, 2 now, m]

    @classmethod
    def of(cls, on: Mask, hours: Ints, known: Mask | None = None) -> "_Transitions":
        pairs, which = np.unique(np.stack([hours[:-1], hours[1:]], 1), axis=0, return_inverse=True)
        counts = np.zeros((len(pairs), 2, 2, on.shape[1]), dtype=np.int64)
        for t, n in enumerate(which.ravel()):
            before, now = on[t], on[t + 1]
            seen = True if known is None else known[t] & known[t + 1]
            counts[n, 1, 1] += before & now & seen
            counts[n, 1, 0] += before & ~now & seen
            counts[n, 0, 1] += ~before & now & seen
            counts[n, 0, 0] += ~before & ~now & seen
        return cls(pairs, counts)

    def loss(self, p: Array, profile: Array, phi: float) -> float:
        """The score of a model on these transitions, in bits per client and round."""
        total = 0.0
        for (before, now), count in zip(self.pairs, self.counts, strict=True):
            last, this = np.clip(p * profile[before], 0, 1), np.clip(p * profile[now], 0, 1)
            for state in (0, 1):
                chance = np.clip(stay_or_come(last, this, phi, np.full(len(p), state == 1)), FLOOR, 1 - FLOOR)
                total -= float(count[state, 1] @ np.log2(chance) + count[state, 0] @ np.log2(1 - chance))
        return total / max(int(self.counts.sum()), 1)

    def best_persistence(self, p: Array, profile: Array) -> float:
        from scipy.optimize import minimize_scalar

        if self.counts.sum() == 0:
            return 0.0
        found = minimize_scalar(lambda phi: self.loss(p, profile, phi), bounds=(0.0, 0.9999), method="bounded")
        return float(found.x) if found.fun < self.loss(p, profile, 0.0) else 0.0


@dataclass(frozen=True)
class Quality:
    """How well a model fitted to the first part of a log describes the rest."""

    fitted_rounds: int
    held_out_rounds: int
    at_midnight: bool  # whether the held-out part begins at midnight
    clients: int  # number of scored clients, whose held-out part is new
    bits: dict[str, float]  # model -> bits per client and round on the held-out part
    real: dict[str, float]  # features of the held-out part
    simulated: dict[str, tuple[float, float]]  # smallest and largest value of each feature over draws

    @property
    def outside(self) -> list[str]:
        """The features of the held-out part that lie outside the range over all draws of the model."""
        return [key for key, (low, high) in self.simulated.items() if not low <= self.real[key] <= high]


def quality(
    trace: Trace, clock: Clock | None = None, repeating: Mask | None = None, draws: int = DRAWS
) -> Quality | None:
    """Fit to the first 70 % (with a clock, up to a midnight) and score on the rest; None if there is too little data.

    repeating   clients whose later rounds repeat earlier ones [m]; they are not scored, because the rest is not new
    """
    split, at_midnight = _split(trace.rounds, clock)
    own = np.ones(trace.clients, dtype=bool) if repeating is None else ~repeating
    if split is None or not own.any() or not trace.on[:split].any() or not trace.on[split:, own].any():
        return None
    first, hours = trace.first(split), _hours(trace.rounds, clock)
    fitted = fit(first, clock)
    mean = first.on.mean() if first.known is None else first.on.sum() / first.known.sum()
    known = None if trace.known is None else trace.known[split:, own]
    transitions = _Transitions.of(trace.on[split:, own], hours[split:], known)
    p, f, phi, flat = fitted.p[own], fitted.dynamics.profile, fitted.dynamics.persistence, np.ones(24)
    rates = fitted.dynamics.probabilities(np.arange(split), p).mean(0)  # shrunk like p, so that only the hour differs
    bits = {
        "the same rate for everyone": transitions.loss(np.full(len(p), mean), flat, 0.0),
        "a rate for each client": transitions.loss(rates, flat, 0.0),
        "rate x hour": transitions.loss(p, f, 0.0),
        "rate x hour with persistence": transitions.loss(p, f, phi),
    }
    days = None if clock is None else clock.days(trace.rounds)
    drawn = [_features(fitted.draw(trace.rounds, seed=seed).on[:, own], split, hours, days) for seed in range(draws)]
    simulated = {key: (min(d[key] for d in drawn), max(d[key] for d in drawn)) for key in drawn[0]}
    real = _features(trace.on[:, own], split, hours, days)
    return Quality(split, trace.rounds - split, at_midnight, int(own.sum()), bits, real, simulated)


def _hours(rounds: int, clock: Clock | None) -> Ints:
    """The hour of each round, [T]; without a clock, 0 for all rounds."""
    return np.zeros(rounds, dtype=np.int64) if clock is None else clock.hours(rounds)


def _split(T: int, clock: Clock | None) -> tuple[int | None, bool]:
    """The first round of the held-out part (None if there is too little data), and whether it begins at midnight."""
    if clock is not None:
        midnights = np.flatnonzero(np.diff(clock.days(T))) + 1
        if len(midnights) and midnights[0] < 0.9 * T:
            return int(midnights[np.argmin(np.abs(midnights - 0.7 * T))]), True
    return (int(0.7 * T), False) if T >= 20 else (None, False)


def _features(on: Mask, split: int, hours: Ints, days: Ints | None) -> dict[str, float]:
    """The features of the rounds from `split` on, by name; `on` has all rounds."""
    past, on, hour = on[:split], on[split:], hours[split:]
    ends = (on[:-1] & ~on[1:]).sum()
    share = (on / np.maximum(on.sum(1, keepdims=True), 1)).sum(0)
    share = share / max(share.sum(), 1e-12)
    out = {
        "share of clients available": float(on.mean()),
        "rounds for which a client is available": float(on.sum() / max(ends, 1)),
        "clients never available": float((~on.any(0)).sum()),
        "clients that vanish": float((past.any(0) & ~on.any(0)).sum()),
        "empty rounds": float((~on.any(1)).sum()),
        "variance of the number available, over binomial": swings(on, hour),
        "bias of fedavg": float(np.abs(share - 1 / on.shape[1]).sum() / 2),
    }
    if days is not None and len(np.unique(days[split:])) > 2:  # around their mean, two days always have correlation -1
        out["correlation of a client's days"] = _day_to_day(on, days[split:])
    return out


def _day_to_day(on: Mask, days: Ints) -> float:
    """The correlation of a client's availability on successive days, around its own mean."""
    which = np.unique(days)
    means = np.stack([on[days == day].mean(0) for day in which])
    means = means - means.mean(0)
    squares = float((means**2).sum()) / len(means)
    return float((means[1:] * means[:-1]).sum()) / (len(means) - 1) / squares if squares > 1e-12 else 0.0
