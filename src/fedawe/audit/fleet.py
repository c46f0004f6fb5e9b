"""Statistics of a fleet: how often and how long clients are available, their dependence on each other, and changes."""

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from fedawe.audit.drift import Drift, drift_of
from fedawe.availability.clock import Clock
from fedawe.availability.dynamics import Array, Mask
from fedawe.availability.trace import Trace

Ints = npt.NDArray[np.int64]
OUTAGE = 5.0  # standard deviations below the number expected of independent clients


@dataclass(frozen=True)
class Distribution:
    """A distribution of whole numbers from 0."""

    histogram: Ints  # how often each number occurs

    @property
    def count(self) -> int:
        """The number of observations."""
        return int(self.histogram.sum())

    @property
    def mean(self) -> float:
        """The mean; NaN without observations."""
        return float(self.histogram @ np.arange(len(self.histogram)) / self.count) if self.count else float("nan")

    @property
    def most(self) -> int:
        """The largest observation; 0 without observations."""
        return int(np.flatnonzero(self.histogram)[-1]) if self.count else 0

    def quantile(self, q: float) -> int:
        """The smallest value that at least the share q of the observations does not exceed.

        >>> Distribution(np.array([0, 3, 0, 1])).quantile(0.5)
        1
        """
        return int(np.searchsorted(np.cumsum(self.histogram), q * self.count)) if self.count else 0

    def multiplier(self, most: int | None = None) -> float:
        """sum e^2 / sum e over echoes e, limited to `most`: the mean factor of updates, weighted by their influence.

        >>> Distribution(np.array([0, 2, 0, 1])).multiplier(), Distribution(np.array([0, 2, 0, 1])).multiplier(most=2)
        (2.2, 1.5)
        """
        e = np.arange(len(self.histogram), dtype=np.float64)
        e = e if most is None else np.minimum(e, most)
        total = float(self.histogram @ e)
        return float(self.histogram @ e**2) / total if total else float("nan")


@dataclass(frozen=True)
class Together:
    """How much clients tend to be available at the same time."""

    correlation: float  # mean over pairs, of their availability in the same round
    beyond_hour: float | None  # the same after each client's own rate at that hour is taken away
    outages: list[tuple[int, int]]  # (first round, rounds) with less than half and 5 sd fewer clients than expected


@dataclass(frozen=True)
class Fleet:
    """The statistics of a fleet."""

    rates: Array  # share of its known rounds in which each client is available; 0 if it has none            [m]
    watched: Array  # number of rounds in which it is known whether each client is available                 [m]
    k: Ints  # clients available in each round                                                               [T]
    longest_empty: int
    by_hour: Array | None  # mean share of clients available, by hour of the day; NaN for hours without rounds [24]
    unseen_hours: float | None  # share of (client, hour) pairs in which a client is never available
    echo: Distribution  # t - tau_i(t) of available clients: how stale their models are
    staleness: Distribution  # t - tau_i(t) of all clients in all rounds, as in Lemma 2
    on_runs: Distribution  # complete stretches of availability
    off_runs: Distribution  # complete stretches of unavailability
    mean_on: float  # mean stretch of availability in rounds; from all rounds, so that cut stretches count too
    mean_off: float  # the same for unavailability, of clients that are ever available
    longest_on: int  # longest stretch in rounds, including those cut by the ends of the log or by unknown rounds
    longest_off: int  # the same for unavailability, of clients that are ever available
    persistence: float  # mean over clients of the correlation between one round and the next
    persistence_beyond_hour: float | None  # the same after each client's own rate at that hour is taken away
    live_versions: Ints  # distinct tau_i after each round: the number of models FedAWE keeps                [T]
    drift: Drift | None  # None: not tested, as too few days or rounds, or all clients repeat
    together: Together

    @property
    def clients(self) -> int:
        """The number of clients m."""
        return len(self.rates)

    @property
    def rounds(self) -> int:
        """The number of rounds T."""
        return len(self.k)

    @property
    def never(self) -> list[int]:
        """The clients that are never available in a round in which that is known."""
        return np.flatnonzero((self.rates == 0) & self.members).tolist()

    @property
    def members(self) -> Mask:
        """Whether there is a round in which it is known if a client is available, [m]."""
        return self.watched > 0

    @property
    def rate(self) -> float:
        """The mean of the rates of members; NaN if there are none."""
        return float(self.rates[self.members].mean()) if self.members.any() else float("nan")

    @property
    def seen(self) -> Mask:
        """Whether each client is ever available, [m]."""
        return self.rates > 0

    @property
    def empty(self) -> int:
        """The number of rounds without an available client."""
        return int((self.k == 0).sum())

    @property
    def multiplier(self) -> float:
        """The mean factor by which FedAWE multiplies updates (see `Distribution.multiplier`)."""
        return self.echo.multiplier()

    @property
    def delta(self) -> float:
        """The smallest rate of a member: Assumption 1's delta if rates did not change within the trace."""
        return float(self.rates[self.members].min()) if self.members.any() else float("nan")


def describe(trace: Trace, clock: Clock | None = None, repeating: Mask | None = None) -> Fleet:
    """The statistics of a trace; with a clock also by hour of the day.

    Rates, stretches, dependence, outages and drift are computed from the rounds in which it is known whether a client
    was available (`trace.known`). Echoes, staleness and versions are those of FedAWE, which treats unknown as
    unavailable.

    repeating   clients whose availability repeats within the trace [m], which are not tested for changes of rates
    """
    on, known, (T, m) = trace.on, trace.known, trace.on.shape
    rates, runs = on.sum(0, dtype=np.float64), np.zeros((2, T + 2), np.int64)
    since = np.full(m, -1)  # the round in which the current stretch began, -1 if its beginning is cut
    pairs, stay_on, begins, ends = np.zeros(m), np.zeros(m), np.zeros(m), np.zeros(m)
    echo, staleness, k, last_holder = echoes_of(on)
    longest = _longest_stretches(on, known)
    for t in range(1, T):
        stay_on += on[t] & on[t - 1]
        turned = on[t] != on[t - 1]
        if known is not None:
            both = known[t] & known[t - 1]
            pairs += both
            since[~both] = -1
            turned &= both
        which = np.flatnonzero(turned)
        whole = which[since[which] >= 0]
        np.add.at(runs, (on[t - 1, whole].astype(np.int64), t - since[whole]), 1)
        since[which] = t
        begins[which] += on[t, which]
        ends[which] += on[t - 1, which]
    watched = trace.known_rounds()
    share = rates / np.maximum(watched, 1)
    hours = None if clock is None else clock.hours(T)
    hourly, rounds = _hourly(on, known, hours)
    reachable = np.full(T, float(m)) if known is None else known.sum(1).astype(np.float64)
    return Fleet(
        rates=share,
        watched=watched,
        k=k,
        longest_empty=_longest(k == 0),
        by_hour=None if hours is None else _mean_by_hour(k, reachable, hours),
        unseen_hours=None if hours is None else float((hourly == 0)[rounds > 0].mean()),
        echo=echo,
        staleness=staleness,
        on_runs=Distribution(runs[1]),
        off_runs=Distribution(runs[0]),
        mean_on=_ratio(rates.sum(), ends.sum()),
        mean_off=_ratio((watched - rates)[rates > 0].sum(), begins.sum()),
        longest_on=int(longest[1].max()),
        longest_off=int(longest[0][rates > 0].max(initial=0)),
        persistence=_persistence(share, stay_on, np.full(m, T - 1.0) if known is None else pairs),
        live_versions=_live(k, last_holder),
        persistence_beyond_hour=None if hours is None else _persistence_beyond(on, known, hourly, rounds, hours),
        drift=drift_of(on, clock, np.zeros(m, dtype=bool) if repeating is None else repeating, known),
        together=_together(on, known, k, share, hours, hourly),
    )


def echoes_of(on: Mask) -> tuple[Distribution, Distribution, Ints, Ints]:
    """The distributions of echoes and staleness, the number of available clients in each round [T], and for each
    version the round in which the last client that holds it gives it up [T + 1]."""
    T, m = on.shape
    tau, k, echo, last_holder = np.full(m, -1), on.sum(1), np.zeros(T + 2, dtype=np.int64), np.full(T + 1, -1)
    for t in range(T):
        A = np.flatnonzero(on[t])
        np.add.at(echo, t - tau[A], 1)
        last_holder[tau[A] + 1] = t  # clients A give up these versions; the last such round of a version remains
        tau[A] = t
    last_holder[np.unique(tau) + 1] = T
    # A client with an echo of e was 1, 2, ..., e rounds stale since its last active round; absences that last until the
    # end of the trace have no echo.
    absences = echo + np.bincount(T - 1 - tau, minlength=T + 2)
    stale = np.concatenate([[0], absences[:0:-1].cumsum()[::-1]])
    return Distribution(echo), Distribution(stale), k, last_holder


def _ratio(a: float, b: float) -> float:
    return float(a / b) if b else float("nan")


def _longest_stretches(on: Mask, known: Mask | None) -> Ints:
    """The longest stretches of known rounds in which each client is unavailable, and available, [2, m]."""
    m = on.shape[1]
    length, longest = np.zeros(m, dtype=np.int64), np.zeros((2, m), dtype=np.int64)
    for t in range(len(on)):
        if t:
            length[on[t] != on[t - 1]] = 0
        length += 1
        if known is not None:
            length[~known[t]] = 0
        for state, now in enumerate((~on[t], on[t])):
            np.maximum(longest[state], length, out=longest[state], where=now)
    return longest


def _longest(flags: Mask) -> int:
    """The length of the longest run of true flags."""
    edges = np.flatnonzero(np.diff(np.concatenate(([0], flags, [0])).astype(np.int8)))
    return int((edges[1::2] - edges[::2]).max(initial=0))


def _live(k: Ints, last_holder: Ints) -> Ints:
    """The number of versions held after each round, [T].

    Version v (0 is x0, t + 1 the aggregate of round t) is held from the round that makes it until the last client that
    holds it is active again.
    """
    T = len(k)
    change = np.zeros(T + 1, dtype=np.int64)
    made = np.concatenate(([0], np.flatnonzero(k) + 1))
    np.add.at(change, np.maximum(made - 1, 0), 1)
    np.add.at(change, last_holder[made], -1)
    return np.cumsum(change)[:T]


def _persistence(p: Array, stay_on: Array, pairs: Array) -> float:
    """The mean over clients of the correlation between one known round and the next."""
    some = (p > 0) & (p < 1) & (pairs >= 2)
    r = (stay_on[some] / pairs[some] - p[some] ** 2) / (p * (1 - p))[some]
    return float(r.mean()) if some.any() else float("nan")


def _persistence_beyond(on: Mask, known: Mask | None, hourly: Array, rounds: Array, hours: Ints) -> float:
    """The mean over clients of the lag-1 correlation of on_i - hourly_i.

    An hourly rate is the mean of the n rounds in that hour. Even if these are independent, the deviations of two of
    them from their mean have the covariance -v/(n - 1), v = rate (1 - rate). This bias is corrected.
    """
    if len(on) < 3:
        return float("nan")
    v = hourly * (1 - hourly) / np.maximum(rounds - 1, 1)  # [24, m]
    same = np.zeros_like(hourly)  # pairs of known rounds within an hour
    covariance, pairs = np.zeros(on.shape[1]), np.zeros(on.shape[1])
    last = on[0] - hourly[hours[0]]
    for t in range(1, len(on)):
        now = on[t] - hourly[hours[t]]
        both = 1.0 if known is None else known[t] & known[t - 1]
        covariance += now * last * both
        pairs += both
        if hours[t] == hours[t - 1]:
            same[hours[t]] += both
        last = now
    covariance += (same * v).sum(0)
    variance = (rounds * rounds * v).sum(0) / np.maximum(rounds.sum(0), 1)
    some = (variance > 1e-12) & (pairs > 0)
    return float((covariance[some] / pairs[some] / variance[some]).mean()) if some.any() else float("nan")


def _hourly(on: Mask, known: Mask | None, hours: Ints | None) -> tuple[Array, Array]:
    """Each client's rate at each hour, and the number of known rounds; without a clock all rounds are one hour."""
    n, m = (1 if hours is None else 24), on.shape[1]
    hour = np.zeros(len(on), dtype=np.int64) if hours is None else hours
    rates, rounds = np.zeros((n, m)), np.zeros((n, m))
    for h in np.unique(hour):
        at = np.flatnonzero(hour == h)
        rounds[h] = len(at) if known is None else known[at].sum(0)
        rates[h] = on[at].sum(0) / np.maximum(rounds[h], 1)
    return rates, rounds


def _mean_by_hour(k: Ints, reachable: Array, hours: Ints) -> Array:
    clients, total = np.bincount(hours, reachable, minlength=24), np.bincount(hours, k, minlength=24)
    return np.asarray(np.where(clients > 0, total / np.maximum(clients, 1), np.nan))


def _together(on: Mask, known: Mask | None, k: Ints, rates: Array, hours: Ints | None, hourly: Array) -> Together:
    hour = np.zeros(len(on), dtype=np.int64) if hours is None else hours
    if known is None:
        expected, spread = hourly.sum(1)[hour], np.sqrt((hourly * (1 - hourly)).sum(1))[hour]
    else:
        expected = np.array([known[t] @ hourly[h] for t, h in enumerate(hour)])
        spread = np.sqrt([known[t] @ (hourly[h] * (1 - hourly[h])) for t, h in enumerate(hour)])
    low = (k < expected - OUTAGE * spread) & (k < expected / 2)
    edges = np.flatnonzero(np.diff(np.concatenate(([0], low, [0])).astype(np.int8)))
    return Together(
        correlation=_correlation(on, known, rates[None], np.zeros(len(on), dtype=np.int64)),
        beyond_hour=None if hours is None else _correlation(on, known, hourly, hour),
        outages=[(int(a), int(b - a)) for a, b in zip(edges[::2], edges[1::2], strict=True)],
    )


def _correlation(on: Mask, known: Mask | None, hourly: Array, hour: Ints) -> float:
    """Mean over pairs of clients of the correlation of on_i - hourly_i, from the variance of their standardised sum."""
    share = np.bincount(hour, minlength=len(hourly)) / len(hour)
    variance = (share[:, None] * hourly * (1 - hourly)).sum(0)  # of client i around its hourly rate          [m]
    some = variance > 1e-12
    if some.sum() < 2:
        return float("nan")
    scale = np.where(some, 1 / np.sqrt(np.where(some, variance, 1.0)), 0.0)
    total, alone, pairs = 0.0, 0.0, 0.0  # sum of squared sums, the part of it from single clients, number of pairs
    for a in range(0, len(on), 256):
        off = (on[a : a + 256] - hourly[hour[a : a + 256]]) * scale
        n = np.full(len(off), float(some.sum()))
        if known is not None:
            off *= known[a : a + 256]
            n = (known[a : a + 256] & some).sum(1).astype(np.float64)
        total += float((off.sum(1) ** 2).sum())
        alone += float((off**2).sum())
        pairs += float((n * (n - 1)).sum())
    return (total - alone) / pairs if pairs else float("nan")
