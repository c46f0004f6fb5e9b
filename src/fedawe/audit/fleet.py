"""What a fleet is like: who is there how often and when, for how long, together with whom, and whether that changes."""

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from fedawe.audit.drift import Drift, drift_of
from fedawe.audit.logs import Clock
from fedawe.availability.dynamics import Array, Mask
from fedawe.availability.trace import Trace

Ints = npt.NDArray[np.int64]
OUTAGE = 5.0  # standard deviations below what independent clients would give


@dataclass(frozen=True)
class Distribution:
    """Of whole numbers from 0, by how often each occurs."""

    histogram: Ints

    @property
    def count(self) -> int:
        """How many there are."""
        return int(self.histogram.sum())

    @property
    def mean(self) -> float:
        """NaN if there are none."""
        return float(self.histogram @ np.arange(len(self.histogram)) / self.count) if self.count else float("nan")

    @property
    def most(self) -> int:
        """The largest, 0 if there are none."""
        return int(np.flatnonzero(self.histogram)[-1]) if self.count else 0

    def quantile(self, q: float) -> int:
        """The smallest value that at least the part q of all does not exceed.

        >>> Distribution(np.array([0, 3, 0, 1])).quantile(0.5)
        1
        """
        return int(np.searchsorted(np.cumsum(self.histogram), q * self.count)) if self.count else 0


@dataclass(frozen=True)
class Together:
    """Whether clients come and go together, beyond the time of day if the clock is known."""

    correlation: float  # mean over pairs, of what they do in the same round
    beyond_hour: float | None  # the same after each client's own rate at that hour is taken away
    outages: list[tuple[int, int]]  # (first round, rounds) with less than half and 5 sd fewer clients than expected


@dataclass(frozen=True)
class Fleet:
    """The facts."""

    rates: Array  # share of rounds in which each client is there                                            [m]
    k: Ints  # clients in each round                                                                         [T]
    longest_empty: int
    by_hour: Array | None  # mean share of clients there, by hour of the day; NaN for hours without rounds   [24]
    unseen_hours: float | None  # share of (client, hour) pairs in which a client is never there
    echo: Distribution  # t - tau_i(t) of clients that are there: how stale they come
    staleness: Distribution  # t - tau_i(t) of all clients in all rounds, as in Lemma 2
    on_runs: Distribution  # complete stretches of presence
    off_runs: Distribution  # complete stretches of absence
    mean_on: float  # rounds; from all rounds, cut stretches too
    mean_off: float  # of clients that are there at some time
    persistence: float  # mean over clients of the correlation between one round and the next
    persistence_beyond_hour: float | None  # the same after each client's own rate at that hour is taken away
    live_versions: Ints  # distinct tau_i after each round: what FedAWE keeps                                [T]
    drift: Drift | None  # None: too few rounds to tell
    together: Together

    @property
    def clients(self) -> int:
        """m."""
        return len(self.rates)

    @property
    def rounds(self) -> int:
        """T."""
        return len(self.k)

    @property
    def never(self) -> list[int]:
        """The clients that are never there."""
        return np.flatnonzero(self.rates == 0).tolist()

    @property
    def seen(self) -> Mask:
        """Whether each client is ever there, [m]."""
        return self.rates > 0

    @property
    def empty(self) -> int:
        """Rounds without anyone."""
        return int((self.k == 0).sum())

    @property
    def multiplier(self) -> float:
        """sum e^2 / sum e over all echoes e: by how much fedawe's influence comes multiplied on average; 1 at best."""
        e = np.arange(len(self.echo.histogram), dtype=np.float64)
        total = float(self.echo.histogram @ e)
        return float(self.echo.histogram @ e**2) / total if total else float("nan")

    @property
    def delta(self) -> float:
        """The smallest rate: Assumption 1's delta if rates did not change within the trace."""
        return float(self.rates.min())


def describe(trace: Trace, clock: Clock | None = None, repeating: Mask | None = None) -> Fleet:
    """The facts of a trace; with a clock also by hour of the day.

    repeating   clients that repeat themselves within the trace [m], so that they cannot tell whether rates change
    """
    on, (T, m) = trace.on, trace.on.shape
    k, rates = np.zeros(T, dtype=np.int64), np.zeros(m)
    echo, runs = np.zeros(T + 2, dtype=np.int64), np.zeros((2, T + 2), np.int64)
    tau, since = np.full(m, -1), np.full(m, -1)  # since: when the present stretch began, -1 for the first, which is cut
    stay_on, last_holder = np.zeros(m), np.full(T + 1, -1)
    for t in range(T):
        A = np.flatnonzero(on[t])
        k[t] = len(A)
        rates[A] += 1
        np.add.at(echo, t - tau[A], 1)
        last_holder[tau[A] + 1] = t  # versions given up: whoever gives one up last ends it
        tau[A] = t
        if t:
            stay_on += on[t] & on[t - 1]
            turned = np.flatnonzero(on[t] != on[t - 1])
            whole = turned[since[turned] >= 0]
            np.add.at(runs, (on[t - 1, whole].astype(np.int64), t - since[whole]), 1)
            since[turned] = t
    last_holder[np.unique(tau) + 1] = T
    # An absence of e rounds has clients 1, 2, ... e rounds stale; those that last until the end were not echoed.
    absences = echo + np.bincount(T - 1 - tau, minlength=T + 2)
    stale = np.concatenate([[0], absences[:0:-1].cumsum()[::-1]])
    ends = rates - stay_on - on[-1]  # stretches of presence that ended, [m]
    begins = rates - stay_on - on[0]
    hours = None if clock is None else clock.hours(T)
    hourly = _hourly(on, hours)
    return Fleet(
        rates=rates / T,
        k=k,
        longest_empty=_longest(k == 0),
        by_hour=None if hours is None else _mean_by_hour(k / m, hours),
        unseen_hours=None if hours is None else float((hourly[np.unique(hours)] == 0).mean()),
        echo=Distribution(echo),
        staleness=Distribution(stale),
        on_runs=Distribution(runs[1]),
        off_runs=Distribution(runs[0]),
        mean_on=_ratio(rates.sum(), ends.sum()),
        mean_off=_ratio(T * int((rates > 0).sum()) - rates.sum(), begins.sum()),
        persistence=_persistence(rates, stay_on, on),
        live_versions=_live(k, last_holder),
        persistence_beyond_hour=None if hours is None else _persistence_beyond(on, hourly, hours),
        drift=drift_of(on, clock, np.zeros(m, dtype=bool) if repeating is None else repeating),
        together=_together(on, k, rates / T, hours, hourly),
    )


def _ratio(a: float, b: float) -> float:
    return float(a / b) if b else float("nan")


def _longest(flags: Mask) -> int:
    edges = np.flatnonzero(np.diff(np.concatenate(([0], flags, [0])).astype(np.int8)))
    return int((edges[1::2] - edges[::2]).max(initial=0))


def _live(k: Ints, last_holder: Ints) -> Ints:
    """Version v (0 is x0, t + 1 the aggregate of round t) lives from its making until its last holder's next round."""
    T = len(k)
    change = np.zeros(T + 1, dtype=np.int64)
    made = np.concatenate(([0], np.flatnonzero(k) + 1))
    np.add.at(change, np.maximum(made - 1, 0), 1)
    np.add.at(change, last_holder[made], -1)
    return np.cumsum(change)[:T]


def _persistence(counts: Array, stay_on: Array, on: Mask) -> float:
    T = len(on)
    if T < 3:
        return float("nan")
    p = counts / T
    some = (p > 0) & (p < 1)
    r = (stay_on / (T - 1) - p**2)[some] / (p * (1 - p))[some]
    return float(r.mean()) if some.any() else float("nan")


def _persistence_beyond(on: Mask, hourly: Array, hours: Ints) -> float:
    """The mean over clients of the lag-1 correlation of on_i - hourly_i.

    An hourly rate is the mean of n rounds, to which those rounds belong: two of them have the covariance -v/(n - 1)
    around it even if they are independent, v = rate (1 - rate). That is put right.
    """
    if len(on) < 3:
        return float("nan")
    n = np.bincount(hours, minlength=24)[:, None]
    v = hourly * (1 - hourly) / np.maximum(n - 1, 1)  # [24, m]
    same = np.bincount(hours[1:][hours[1:] == hours[:-1]], minlength=24)[:, None]  # pairs of rounds within an hour
    covariance, last = (same * v).sum(0), on[0] - hourly[hours[0]]
    for there, hour in zip(on[1:], hours[1:], strict=True):
        now = there - hourly[hour]
        covariance += now * last
        last = now
    variance = (n / len(on) * n * v).sum(0)
    some = variance > 1e-12
    return float((covariance / (len(on) - 1))[some] @ (1 / variance[some]) / some.sum()) if some.any() else float("nan")


def _hourly(on: Mask, hours: Ints | None) -> Array:
    """Each client's rate at each hour; without a clock all rounds are one hour, [H, m]."""
    if hours is None:
        return np.asarray(on.mean(0, dtype=np.float64)[None])
    out = np.zeros((24, on.shape[1]))
    for hour in np.unique(hours):
        out[hour] = on[hours == hour].mean(0, dtype=np.float64)
    return out


def _mean_by_hour(present: Array, hours: Ints) -> Array:
    rounds = np.bincount(hours, minlength=24)
    total = np.bincount(hours, present, minlength=24)
    return np.asarray(np.where(rounds > 0, total / np.maximum(rounds, 1), np.nan))


def _together(on: Mask, k: Ints, rates: Array, hours: Ints | None, hourly: Array) -> Together:
    flat = rates[None]
    hour = np.zeros(len(on), dtype=np.int64) if hours is None else hours
    expected, spread = hourly.sum(1)[hour], np.sqrt((hourly * (1 - hourly)).sum(1))[hour]
    low = (k < expected - OUTAGE * spread) & (k < expected / 2)
    edges = np.flatnonzero(np.diff(np.concatenate(([0], low, [0])).astype(np.int8)))
    return Together(
        correlation=_correlation(on, flat, np.zeros(len(on), dtype=np.int64)),
        beyond_hour=None if hours is None else _correlation(on, hourly, hour),
        outages=[(int(a), int(b - a)) for a, b in zip(edges[::2], edges[1::2], strict=True)],
    )


def _correlation(on: Mask, hourly: Array, hour: Ints) -> float:
    """Mean over pairs of clients of the correlation of on_i - hourly_i, from the variance of their standardised sum."""
    share = np.bincount(hour, minlength=len(hourly)) / len(hour)
    variance = (share[:, None] * hourly * (1 - hourly)).sum(0)  # of client i around its hourly rate          [m]
    some = variance > 1e-12
    n = int(some.sum())
    if n < 2:
        return float("nan")
    scale = np.where(some, 1 / np.sqrt(np.where(some, variance, 1.0)), 0.0)
    total = np.concatenate([on[a : a + 256] @ scale for a in range(0, len(on), 256)]) - (hourly @ scale)[hour]
    return float(((total**2).mean() - n) / (n * (n - 1)))
