"""Paired t-tests, with p-values corrected for multiple comparisons by Holm's method."""

from collections.abc import Hashable, Mapping
from typing import TypeVar

import lazy_loader
import numpy as np

scipy = lazy_loader.load("scipy")  # imported with the first interval: it takes a second
K = TypeVar("K", bound=Hashable)
LEVEL = 0.05


def p_value(ours: Mapping[int, float], theirs: Mapping[int, float]) -> float | None:
    """The p-value of the two-sided paired t-test on the seeds that both have; None for fewer than two seeds.

    >>> round(p_value({0: 3.0, 1: 5.0, 2: 4.0}, {0: 1.0, 1: 2.0, 2: 3.0, 3: 9.0}), 4)    # t = 2 / (1 / sqrt(3))
    0.0742
    """
    d = np.array([ours[seed] - theirs[seed] for seed in sorted(set(ours) & set(theirs))])
    if len(d) < 2:
        return None
    if np.ptp(d) == 0:  # the standard deviation is zero
        return 1.0 if d[0] == 0 else 0.0
    t = d.mean() / (d.std(ddof=1) / np.sqrt(len(d)))
    return float(2 * scipy.stats.t.sf(abs(t), len(d) - 1))


def holm(p: Mapping[K, float | None]) -> dict[K, float | None]:
    """The p-values, corrected for the number of comparisons (Holm 1979); None stays None.

    The smallest of n is multiplied by n, the next by n - 1, and so on, and none becomes smaller than the one before it.
    If those below 0.05 are called significant, the probability of at least one false positive is at most 0.05.

    >>> holm({"a": 0.01, "b": 0.04, "c": 0.03, "d": None})
    {'a': 0.03, 'b': 0.06, 'c': 0.06, 'd': None}
    """
    known = sorted((value, place) for place, value in enumerate(p.values()) if value is not None)
    out: list[float | None] = [None] * len(p)
    largest = 0.0
    for rank, (value, place) in enumerate(known):
        largest = max(largest, min(1.0, (len(known) - rank) * value))
        out[place] = largest
    return dict(zip(p, out, strict=True))
