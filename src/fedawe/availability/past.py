"""Counts of a trace up to a round, updated from round to round."""

from typing import Self

import numpy as np
import numpy.typing as npt

from fedawe.availability.trace import Trace

Ints = npt.NDArray[np.int64]


class Past:
    """The number of rounds up to t in which each client was available, and the last of them.

    >>> past = Past(Trace([[1, 1], [1, 0], [1, 1]])).through(2)
    >>> past.counts.tolist(), past.last.tolist(), past.away().tolist()
    ([3, 2], [2, 2], [1, 2])
    """

    def __init__(self, trace: Trace) -> None:
        self.trace, self.t = trace, -1
        self.counts: Ints = np.zeros(trace.clients, dtype=np.int64)  # [m]
        self.last: Ints = np.full(trace.clients, -1, dtype=np.int64)  # -1 if never               [m]
        self.active: Ints = np.zeros(0, dtype=np.int64)  # the clients of round t                   [k]
        self.before: Ints = np.zeros(0, dtype=np.int64)  # their last round before t               [k]

    def through(self, t: int) -> Self:
        """Advance to the end of round t and return this object; an earlier t changes nothing."""
        for q in range(self.t + 1, t + 1):
            self.active = np.flatnonzero(self.trace.row(q))
            self.before = self.last[self.active]
            self.counts[self.active] += 1
            self.last[self.active] = q
        self.t = max(self.t, t)
        return self

    def away(self) -> Ints:
        """t - tau_i(t) of all clients, with tau_i(t) the last round before t, [m]."""
        away = self.t - self.last
        away[self.active] = self.t - self.before
        return away
