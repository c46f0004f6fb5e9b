"""Variation in a fleet beyond rates, hours and persistence: churn, slow states of clients, and common swings.

The estimates use the method of moments: the variance of daily availability, or of the number of available clients,
minus the variance that rates, hours and persistence alone explain.
"""

import numpy as np
import numpy.typing as npt

from fedawe.availability.clock import Clock
from fedawe.availability.dynamics import Array, Mask
from fedawe.availability.trace import Trace

Ints = npt.NDArray[np.int64]
MOST = 1.5  # standard deviation of a logarithm; a larger estimate comes from too few data


def variation(trace: Trace, clock: Clock, p: Array, profile: Array, phi: float) -> dict[str, float]:
    """The fields of Daily beyond profile and persistence."""
    on, days, hours = trace.on, clock.days(trace.rounds), clock.hours(trace.rounds)
    known = np.ones_like(on) if trace.known is None else trace.known
    slow, memory = _slow(on, known, days, hours, p, profile, phi)
    common, common_memory = _common(on, known, clock, hours, p, profile, phi, slow)
    return {
        "slow": slow,
        "memory": memory,
        "common": common,
        "common_memory": common_memory,
        **_churn(known, days),
    }


def _slow(on: Mask, known: Mask, days: Ints, hours: Ints, p: Array, profile: Array, phi: float) -> tuple[float, float]:
    """Standard deviation and day-to-day autoregression coefficient of a client's own state."""
    which = [day for day in np.unique(days) if (days == day).sum() >= 0.5 * np.bincount(days).max()]
    if len(which) < 3:
        return 0.0, 0.0
    ratio, noise, weight = [], [], []
    for day in which:
        at = np.flatnonzero(days == day)
        chance = np.clip(p * profile[hours[at]][:, None], 0, 1) * known[at]
        expected = chance.sum(0)
        whole = known[at].all(0) & (expected > 0)
        stretch = (1 + phi) / (1 - phi)  # number of rounds that have the information of one independent round
        ratio.append(np.where(whole, on[at].sum(0) / np.maximum(expected, 1e-9), np.nan))
        noise.append(
            np.where(whole, (chance * (1 - chance)).sum(0) * stretch / np.maximum(expected, 1e-9) ** 2, np.nan)
        )
        weight.append(np.where(whole, expected, 0.0))
    r, v, w = np.stack(ratio), np.stack(noise), np.stack(weight)
    r = r - np.nansum(r * w, 0) / np.maximum(w.sum(0), 1e-9)
    total = max(float(w.sum()), 1e-9)
    variance = float(np.nansum((r**2 - v) * w)) / total
    pairs = np.sqrt(w[1:] * w[:-1])
    covariance = float(np.nansum(r[1:] * r[:-1] * pairs)) / max(float(pairs.sum()), 1e-9)
    if variance <= 0.01:
        return 0.0, 0.0
    memory, hidden = _autoregression(covariance / variance, len(which))
    return min(float(np.sqrt(np.log1p(variance / (1 - hidden)))), MOST), memory


def _autoregression(correlation: float, n: int) -> tuple[float, float]:
    """The coefficient c of an autoregression of n steps, from the correlation of neighbours around the sample mean.

    Also returns g(c), the share of the variance that is in the mean of the n steps and is lost when the mean is
    subtracted. The correlation of neighbours around the sample mean is about (c - g) / (1 - g).
    """
    grid = np.linspace(0.0, 0.95, 96)
    lags = np.arange(1, n)[:, None]
    g = (1 + 2 * ((1 - lags / n) * grid**lags).sum(0)) / n
    at = int(np.argmin(np.abs((grid - g) / (1 - g) - correlation)))
    return float(grid[at]), float(g[at])


def _common(
    on: Mask, known: Mask, clock: Clock, hours: Ints, p: Array, profile: Array, phi: float, slow: float
) -> tuple[float, float]:
    """Standard deviation and hour-to-hour autoregression coefficient of the state that all clients share."""
    per_hour = max(1, round(3600 / clock.round_seconds))
    blocks = len(on) // per_hour
    if blocks < 24:
        return 0.0, 0.0
    r, v = np.zeros(blocks), np.zeros(blocks)
    for n in range(blocks):
        at = np.arange(n * per_hour, (n + 1) * per_hour)
        chance = np.clip(p * profile[hours[at]][:, None], 0, 1) * known[at]
        expected = float(chance.sum()) / per_hour
        r[n] = on[at].sum() / per_hour / max(expected, 1e-9) - 1
        alone = (chance * (1 - chance)).mean(0).sum() + np.expm1(slow**2) * (chance.mean(0) ** 2).sum()
        v[n] = alone / max(expected, 1e-9) ** 2
    r -= r.mean()
    variance = float((r**2 - v).mean())
    if variance <= 0.1 * float(v.mean()):
        return 0.0, 0.0
    covariance = float((r[1:] * r[:-1]).mean()) - float(v.mean()) * phi**per_hour
    memory = float(np.clip(covariance / variance, 0.0, 0.99))
    return min(float(np.sqrt(np.log1p(variance))), MOST), memory


def _churn(known: Mask, days: Ints) -> dict[str, float]:
    """The share of clients that enrol later, their daily rate of enrolling, and the daily rate of leaving."""
    ever = known.any(0)
    if not ever.any():
        return {"waiting": 0.0, "enrols": 0.0, "leaves": 0.0}
    first = np.where(ever, days[known.argmax(0)], 0)
    last = np.where(ever, days[len(known) - 1 - known[::-1].argmax(0)], 0)
    late, gone = ever & ~known[0], ever & ~known[-1]
    waited, lived = float(np.maximum(first[late], 1).sum()), float((last - first + 1)[ever].sum())
    return {
        "waiting": float(late.sum() / ever.sum()),
        "enrols": float(min(late.sum() / waited, 1.0)) if late.any() else 0.0,
        "leaves": float(min(gone.sum() / max(lived, 1.0), 1.0)),
    }


def swings(on: Mask, hours: Ints) -> float:
    """The variance of the number of available clients around its hourly mean, over that of independent clients."""
    excess = binomial = 0.0
    for hour in np.unique(hours):
        part = on[hours == hour]
        rate = part.mean(0)
        excess += float(((part.sum(1) - rate.sum()) ** 2).sum())
        binomial += len(part) * float((rate * (1 - rate)).sum())
    return excess / binomial if binomial > 0 else 1.0
