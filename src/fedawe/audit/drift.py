"""Whether clients and fleets change over time."""

import itertools
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from fedawe.audit.logs import Clock
from fedawe.availability.dynamics import Array, Mask
from fedawe.core.rng import rng

Ints = npt.NDArray[np.int64]
SHUFFLES = 499  # of the test; the smallest p-value is 1/500


@dataclass(frozen=True)
class Drift:
    """Whether rates change from block to block: largest CUSUM of block means against the same blocks shuffled."""

    blocks: int
    unit: str  # "days", or "blocks of n rounds"
    p_values: Array  # of each client; NaN where its blocks are all alike                                    [m]
    fleet_p: float  # of the whole fleet's rate
    change: int  # the round at which the fleet's CUSUM is largest

    @property
    def tested(self) -> int:
        """Clients that were tested."""
        return int(np.isfinite(self.p_values).sum())

    @property
    def changed(self) -> int:
        """Clients with p < 0.05; of those that never change, one in twenty is among them."""
        return int((self.p_values < 0.05).sum())


def drift_of(on: Mask, clock: Clock | None, repeating: Mask) -> Drift | None:
    """By days with a clock, else by blocks of rounds; None if there are too few, or if everyone repeats itself."""
    T, m = on.shape
    if repeating.all():
        return None
    if clock is not None and (whole := _whole_days(clock, T)) is not None and len(whole) > 5:
        edges, unit = whole, "days"
    elif T >= 50:
        edges = np.linspace(0, T, min(20, T // 10) + 1).astype(np.int64)
        unit = f"blocks of {T // (len(edges) - 1)} rounds"
    else:
        return None
    means = np.stack([on[a:b].mean(0, dtype=np.float64) for a, b in itertools.pairwise(edges)])  # [B, m]
    fleet = means[:, ~repeating].mean(1, keepdims=True)
    means[:, repeating] = 0.0
    means = np.concatenate([means, fleet], axis=1)  # the last column is the fleet
    centred = means - means.mean(0)
    cusum = np.abs(np.cumsum(centred, 0))
    observed = cusum.max(0)
    varies = np.ptp(means, axis=0) > 1e-12
    generator, larger = rng(0, "audit", "drift"), np.zeros(m + 1)
    for _ in range(SHUFFLES):
        shuffled = centred[generator.permutation(len(centred))]
        larger += np.abs(np.cumsum(shuffled, 0)).max(0) >= observed - 1e-12
    p = np.where(varies, (1 + larger) / (1 + SHUFFLES), np.nan)
    return Drift(len(means), unit, p[:m], float(p[m]), int(edges[int(cusum[:-1, m].argmax()) + 1]))


def _whole_days(clock: Clock, T: int) -> Ints | None:
    """Where whole days begin and end, in rounds; None if there is none."""
    days = clock.days(T)
    edges = np.flatnonzero(np.diff(days)) + 1
    per_day = 86400 / clock.round_seconds
    if len(edges) and edges[0] >= per_day - 1e-9:
        edges = np.concatenate(([0], edges))
    if len(edges) and T - edges[-1] >= per_day - 1e-9:
        edges = np.append(edges, T)
    return edges if len(edges) > 1 else None
