"""Tests whether the rates of clients, and of the fleet as a whole, change within a log.

Each day is cut into blocks of equal length (in a long log a block is several days), and the mean over days is
subtracted from each block, so that the time of day has no effect. The statistic is the largest self-normalised CUSUM
over all places where a change may be (Shao and Zhang 2010): the squared difference between before and after, over the
variation of the partial sums on either side. It needs no estimate of a variance. With few days it is too large for
clients with long stretches of availability and unavailability. It is therefore compared with simulated on/off chains
that do not change and have the client's rate and number of stretches (for the fleet: with an autoregression that has
its correlation in time). docs/audit.md has power and false alarm rates, which benchmarks/drift.py measures.
"""

import functools
import itertools
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from fedawe.availability.clock import Clock
from fedawe.availability.dynamics import Array, Mask
from fedawe.availability.trace import Trace
from fedawe.core.rng import rng

Ints = npt.NDArray[np.int64]
BLOCKS = 42  # blocks at most: six per day over a week
WITHIN = 6  # blocks per day, unless there would be more than BLOCKS in all
FEWEST_DAYS, FEWEST_BLOCKS = 3, 5
FEWEST_STAYS = 3  # half the number of changes of state; a client with fewer is not tested
DRAWS = 499  # simulated chains in the null distribution for clients; the smallest p-value is 1/500
FLEET_DRAWS = 1999  # simulated series in the null distribution for the fleet
STEPS = 8  # steps of a simulated chain within a block
LEVEL = 0.05  # significance level of the test of a client
ALARM = 0.02  # significance level of the test of the fleet
OBSERVED = 0.8  # share of the blocks that must be known of a client


@dataclass(frozen=True)
class Drift:
    """The results of the tests whether the rates of the clients and of the fleet change."""

    blocks: int
    unit: str  # "blocks of 4 h, 6 a day", or "blocks of n rounds"
    days: int | None  # whole days; None without a clock
    p_values: Array  # of each client; NaN if it was not tested                                              [m]
    fleet_p: float  # p-value for the share of clients that is available; NaN if that share never varies
    change: int  # the round at which the fleet changes most

    @property
    def tested(self) -> int:
        """The number of clients that were tested."""
        return int(np.isfinite(self.p_values).sum())

    @property
    def changed(self) -> int:
        """The number of clients with p < 0.05, which includes one in twenty of the clients that do not change."""
        return int((self.p_values < LEVEL).sum())

    @property
    def by_chance(self) -> float:
        """The expected number of clients in `changed` if none changes."""
        return LEVEL * self.tested

    @property
    def fleet_changes(self) -> bool:
        """Whether the test of the fleet finds a change."""
        return bool(self.fleet_p < ALARM)

    @property
    def clients_change(self) -> bool:
        """Whether more clients change than chance explains (a normal approximation, three standard deviations)."""
        return bool(self.changed > self.by_chance + 3 * np.sqrt(LEVEL * (1 - LEVEL) * self.tested) + 0.5)


def drift_of(on: Mask, clock: Clock | None, repeating: Mask, known: Mask | None = None) -> Drift | None:
    """Tests for changes of rates; None with too few days (three with a clock) or rounds, or if every client repeats.

    repeating   clients whose availability repeats within the trace, which are not tested                    [m]
    known       where it is known whether a client was available (default: everywhere)                       [T, m]
    """
    laid = _cut(len(on), clock)
    if laid is None or repeating.all():
        return None
    edges, per_day, unit = laid
    B, m = len(edges) - 1, on.shape[1]
    p_values, total, counted = np.full(m, np.nan), np.zeros(B), np.zeros(B)
    for first in range(0, m, 1000):
        part = slice(first, first + 1000)
        mean, seen = _block_means(on[:, part], None if known is None else known[:, part], edges)
        x = _without_time_of_day(mean, seen, per_day)
        usable = ~repeating[part] & (seen.mean(0) >= OBSERVED)
        total += np.where(usable, x * seen, 0.0).sum(1)
        counted += np.where(usable, seen, 0.0).sum(1)
        p_values[part] = _of_clients(x, on[:, part], usable, B, per_day)
    fleet = total / np.maximum(counted, 1)
    days = None if clock is None else int(clock.days(int(edges[-1]))[-1] - clock.days(int(edges[0]) + 1)[-1] + 1)
    fleet_p, change = _of_fleet(fleet[:, None], per_day)
    return Drift(B, unit, days, p_values, fleet_p, int(edges[change]))


def _cut(T: int, clock: Clock | None) -> tuple[Ints, int, str] | None:
    """The edges of the blocks in rounds, the number of blocks per day, and what messages call the blocks."""
    if clock is None:
        B = min(BLOCKS, T // 10)
        return (
            (np.linspace(0, T, B + 1).astype(np.int64), 1, f"blocks of {T // B} rounds") if B >= FEWEST_BLOCKS else None
        )
    midnights = _whole_days(clock, T)
    days = len(midnights) - 1
    if days < FEWEST_DAYS:
        return None
    if days > BLOCKS:
        n = -(-days // BLOCKS)  # days in a block
        edges = midnights[: days // n * n + 1 : n]
        return edges, 1, f"blocks of {n} days"
    per_day = max(1, min(WITHIN, BLOCKS // days, int(np.diff(midnights).min())))
    if days * per_day < FEWEST_BLOCKS:
        return None
    inner = [np.linspace(a, b, per_day + 1)[:-1] for a, b in itertools.pairwise(midnights)]
    edges = np.append(np.concatenate(inner).round(), midnights[-1]).astype(np.int64)
    return edges, per_day, "days" if per_day == 1 else f"blocks of {24 / per_day:g} h"


def _whole_days(clock: Clock, T: int) -> Ints:
    """The rounds in which whole days begin, and the round in which the last one ends."""
    edges = np.flatnonzero(np.diff(clock.days(T))) + 1
    per_day = 86400 / clock.round_seconds
    if len(edges) == 0:
        return np.array([0, T] if per_day - 1e-9 <= T else [0], dtype=np.int64)
    if edges[0] >= per_day - 1e-9:
        edges = np.concatenate(([0], edges))
    if T - edges[-1] >= per_day - 1e-9:
        edges = np.append(edges, T)
    return np.asarray(edges, dtype=np.int64)


def _block_means(on: Mask, known: Mask | None, edges: Ints) -> tuple[Array, Array]:
    """The share of available rounds in each block [B, m], and 1 where at least half of the block is known, else 0."""
    width = np.diff(edges)[:, None]
    sums = np.add.reduceat(on[: edges[-1]], edges[:-1], axis=0, dtype=np.float64)
    if known is None:
        return sums / width, np.ones_like(sums)
    rounds = np.add.reduceat(known[: edges[-1]], edges[:-1], axis=0, dtype=np.float64)
    return sums / np.maximum(rounds, 1), (rounds >= width / 2).astype(np.float64)


def _without_time_of_day(mean: Array, seen: Array, per_day: int) -> Array:
    """Each client's blocks minus their mean over days, zero where nothing is known, [B, m]."""
    shape = (-1, per_day, mean.shape[1])
    value, weight = (mean * seen).reshape(shape), seen.reshape(shape)
    usual = value.sum(0) / np.maximum(weight.sum(0), 1)
    return np.asarray(((mean.reshape(shape) - usual) * weight).reshape(mean.shape))


def _largest(x: Array, at: int | None = None) -> Array:
    """The self-normalised CUSUM of each column, at its largest or before block `at`, [m]."""
    B, out = len(x), np.zeros(x.shape[1])
    S = np.concatenate([np.zeros((1, x.shape[1])), np.cumsum(x, 0)])  # [B + 1, m]
    for k in range(2, B - 1) if at is None else [at]:
        before = S[1 : k + 1] - np.arange(1, k + 1)[:, None] / k * S[k]
        rest = B - k
        after = S[k + 1 :] - S[k] - np.arange(1, rest + 1)[:, None] / rest * (S[B] - S[k])
        variation = np.einsum("bm,bm->m", before, before) + np.einsum("bm,bm->m", after, after)
        difference = (S[k] - k / B * S[B]) ** 2 * B
        out = np.maximum(out, np.where(variation > 1e-12, difference / np.maximum(variation, 1e-12), 0.0))
        out = np.where((variation <= 1e-12) & (difference > 1e-12), np.inf, out)
    return out


def _of_clients(x: Array, on: Mask, usable: Mask, B: int, per_day: int, at: int | None = None) -> Array:
    """The p-value of a change of each client, anywhere or before block `at`; NaN for clients not tested, [m]."""
    rate = on.mean(0)
    stays = (on[1:] != on[:-1]).sum(0) / 2
    tested = usable & (stays >= FEWEST_STAYS)
    out, statistic = np.full(len(rate), np.nan), _largest(x, at)
    # Clients with about the same rate and number of stays share a null distribution.
    uneven = np.round(np.abs(np.log(np.maximum(rate, 1e-9) / np.maximum(1 - rate, 1e-9))))
    often = np.round(2 * np.log2(np.maximum(stays, 1)))
    for kind in {(int(a), int(b)) for a, b in zip(uneven[tested], often[tested], strict=True)}:
        alike = tested & (uneven == kind[0]) & (often == kind[1])
        null = _chains(B, per_day, len(on), *kind, at)
        out[alike] = (1 + DRAWS - np.searchsorted(null, statistic[alike])) / (1 + DRAWS)
    return out


@functools.lru_cache(maxsize=512)
def _chains(B: int, per_day: int, T: int, uneven: int, often: int, at: int | None = None) -> Array:
    """The sorted statistics of simulated on/off chains that do not change.

    `uneven` is the rounded |log(rate / (1 - rate))| of the chains, `often` the rounded 2 log2 of their number of stays.
    """
    p, stays = 1 / (1 + np.exp(uneven)), 2 ** (often / 2)
    switching = min(stays / (T * p * (1 - p)), 1.0)  # 1 - phi of a round
    steps = min(STEPS, max(T // B, 1))
    phi = (1 - switching) ** (T / (B * steps))
    generator = rng(0, "audit", "drift", B, per_day, uneven, often)
    on = generator.random(DRAWS) < p
    x = np.zeros((B, DRAWS))
    for t in range(B * steps):
        on = generator.random(DRAWS) < p + phi * (on - p)
        x[t // steps] += on
    return np.sort(_largest(_without_time_of_day(x / steps, np.ones_like(x), per_day), at))


def _of_fleet(x: Array, per_day: int, at: int | None = None) -> tuple[float, int]:
    """The p-value of a change of x [B, 1], anywhere or before block `at`; and `at`, or the block of the largest one."""
    y, B = x[:, 0], len(x)
    if np.ptp(y) < 1e-12:
        return float("nan"), 0
    k = np.arange(1, B)
    most = int(np.argmax(np.abs(np.cumsum(y)[:-1] - k / B * y.sum()) / np.sqrt(k * (B - k)))) + 1
    change = most if at is None else at
    # The autocorrelation is that of the series without the change; short series underestimate it, which is corrected.
    left = np.concatenate([y[:change] - y[:change].mean(), y[change:] - y[change:].mean()])[:, None]
    left = _without_time_of_day(left, np.ones_like(left), per_day)[:, 0]
    squares = float(left @ left)
    phi = float(left[1:] @ left[:-1]) / squares if squares > 1e-15 else 0.0
    phi = float(np.clip(phi + 2 * (1 + 4 * phi) / B, 0.0, 0.97))
    noise = rng(0, "audit", "drift", "fleet").normal(size=(B, FLEET_DRAWS))
    for t in range(1, B):
        noise[t] = phi * noise[t - 1] + np.sqrt(1 - phi**2) * noise[t]
    null = _largest(_without_time_of_day(noise, np.ones_like(noise), per_day), at)
    observed = _largest(_without_time_of_day(x, np.ones_like(x), per_day), at)[0]
    return float((1 + (null >= observed).sum()) / (1 + FLEET_DRAWS)), change


def two_samples(
    before: tuple[Trace, Clock], after: tuple[Trace, Clock], groups: Array, repeating: Mask
) -> tuple[Array, float, list[float], str]:
    """Tests whether the rates of clients, fleet and groups differ between two logs of the same clients.

    Only whole days are used. They are cut into blocks as within one log; above 168 days in all, a block is several
    days, provided that both logs then have two blocks.

    groups      which part of each client belongs to which group                                           [m, g]
    repeating   clients whose availability repeats within a log, which are not tested                        [m]

    Returns p-values of clients [m], of the fleet, and of each group, NaN where there are too few days or changes; and
    the reason if no client was tested, else an empty text.
    """
    m, g = groups.shape
    nothing = np.full(m, np.nan), float("nan"), [float("nan")] * g
    midnights = [_whole_days(clock, trace.rounds) for trace, clock in (before, after)]
    days = [len(edges) - 1 for edges in midnights]
    if min(days) < 2:
        return *nothing, "two whole days are needed on either side"
    n = min(-(-sum(days) // (4 * BLOCKS)), min(days) // 2)  # days in a block; 1: a block is a day or a part of one
    midnights = [midnights[0][days[0] % n :: n], midnights[1][: days[1] // n * n + 1 : n]]  # omit days at the far ends
    days = [len(edges) - 1 for edges in midnights]
    per_day = max(1, min(WITHIN, BLOCKS // sum(days), *(int(np.diff(edges).min()) for edges in midnights)))
    at, B = days[0] * per_day, sum(days) * per_day
    means, seen, ons = [], [], []
    for (trace, _), whole in zip((before, after), midnights, strict=True):
        inner = [np.linspace(a, b, per_day + 1)[:-1] for a, b in itertools.pairwise(whole)]
        edges = np.append(np.concatenate(inner).round(), whole[-1]).astype(np.int64)
        on, known = trace.on[whole[0] : whole[-1]], trace.known
        one, other = _block_means(on, None if known is None else known[whole[0] : whole[-1]], edges - whole[0])
        means.append(one)
        seen.append(other)
        ons.append(on)
    mean, weight = np.concatenate(means), np.concatenate(seen)
    x = _without_time_of_day(mean, weight, per_day)
    usable = ~repeating & (weight[:at].mean(0) >= OBSERVED) & (weight[at:].mean(0) >= OBSERVED)
    if not usable.any():
        new = " and does not repeat its days" if repeating.any() else ""
        return *nothing, f"no client is known for {OBSERVED:.0%} of both periods{new}"
    p = _of_clients(x, np.concatenate(ons), usable, B, per_day, at)
    fleet = _of_fleet(x[:, usable].mean(1, keepdims=True), per_day, at)[0]
    parts = groups * usable[:, None]
    sizes = parts.sum(0)
    each = [
        _of_fleet((x @ parts[:, [n]]) / sizes[n], per_day, at)[0] if sizes[n] > 0 else float("nan") for n in range(g)
    ]
    hardly = "no client changes often enough between available and unavailable"
    return p, fleet, each, "" if np.isfinite(p).any() else hardly
