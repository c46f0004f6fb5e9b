"""`Log`: the trace of a log that was read, with the names of clients, the clock, and findings about the data."""

import io
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from fedawe.audit.logs.findings import Finding, some
from fedawe.availability.clock import Clock
from fedawe.availability.dynamics import Mask
from fedawe.availability.trace import Trace
from fedawe.core.errors import UserError
from fedawe.core.files import write_atomically


@dataclass(frozen=True)
class Log:
    """A log that was read: its trace, the names of clients, its clock, and findings about the data."""

    trace: Trace
    clients: tuple[str, ...]  # names, in the order of the trace's columns
    clock: Clock | None  # None: the date and length of rounds are not known
    findings: tuple[Finding, ...]  # what was left out or reinterpreted, and what looks wrong
    rows: int | None = None  # number of usable rows; None for a trace
    repeats: npt.NDArray[np.int64] | None = None  # period in rounds with which each client repeats; None: never  [m]
    checkins: bool = False  # whether a client is available in a round if it checks in at any moment of that round

    @property
    def repeating(self) -> Mask:
        """Whether the availability of each client is repeated periodically within the trace, [m]."""
        return np.zeros(self.trace.clients, bool) if self.repeats is None else self.repeats < self.trace.rounds

    def rounds(self, first: int, end: int) -> "Log":
        """The rounds [first, end) of the log."""
        trace, clock = self.trace, self.clock
        part = Trace(trace.on[first:end], None if trace.p is None else trace.p[first:end])
        if trace.known is not None:
            part = part.knowing(trace.known[first:end])
        if clock is not None and clock.start is not None:
            clock = replace(clock, start=clock.start + first * clock.round_seconds)
        return replace(self, trace=part, clock=clock)

    def longer(self, times: int) -> "Log":
        """The same log in rounds that are so many times as long; a last round that is not complete is left out.

        A client is available in a longer round if it checks in at any moment of it; in a log of intervals, if it is
        available when the round begins.
        """
        trace, n = self.trace, len(self.trace.on) // times * times
        if n < times:
            raise UserError(f"the log has {len(trace.on)} rounds; none is {times} times as long")

        def merged(mask: Mask) -> Mask:
            return np.asarray(mask[:n].reshape(-1, times, mask.shape[1]).any(1) if self.checkins else mask[:n:times])

        part = Trace(merged(trace.on))
        if trace.known is not None:
            part = part.knowing(merged(trace.known))
        clock = None if self.clock is None else replace(self.clock, round_seconds=self.clock.round_seconds * times)
        repeats = None if self.repeats is None else np.maximum(self.repeats // times, 1)
        return replace(self, trace=part, clock=clock, repeats=repeats)

    def save(self, path: str | Path, **more: Any) -> None:
        """Write it as a trace (.npz) that keeps names, clock, and further arrays if they are given."""
        path = Path(path)
        if path.suffix != ".npz":
            raise UserError(f"{path}: a trace with names and a clock is written as .npz")
        arrays: dict[str, Any] = {**self.trace.arrays(), "clients": np.array(self.clients), **more}
        if self.repeats is not None:
            arrays["repeats"] = self.repeats
        if self.clock is not None:
            arrays["round_seconds"] = self.clock.round_seconds
            arrays["timezone"] = self.clock.timezone
            if self.clock.start is not None:
                arrays["start"] = self.clock.start
        if self.checkins:
            arrays["checkins"] = True
        buffer = io.BytesIO()
        np.savez_compressed(buffer, **arrays)
        write_atomically(path, buffer.getvalue())

    def with_roster(self, roster: Sequence[str]) -> "Log":
        """The log with another column for each client of the roster that is not in the log; it is never available."""
        known = set(self.clients)
        missing = [name for name in roster if name not in known]
        if not missing:
            return self
        if len(missing) == len(roster):
            of = f"none of the {len(roster)} clients in the table of clients"
            raise UserError(f"{of} ({some(missing)}) is in the log ({some(self.clients)})")
        m = len(missing)
        have = "client in the table of clients has" if m == 1 else "clients in the table of clients have"
        text = f"{m:,} {have} no row in the log ({some(missing)}); counted as never available"
        trace, repeats = self.trace, self.repeats
        on = np.concatenate([trace.on, np.zeros((trace.rounds, m), dtype=bool)], axis=1)
        p = None if trace.p is None else np.concatenate([trace.p, np.zeros((trace.rounds, m))], axis=1)
        more = Trace(on, p)
        if trace.known is not None:
            more = more.knowing(np.concatenate([trace.known, np.ones((trace.rounds, m), dtype=bool)], axis=1))
        if repeats is not None:
            repeats = np.concatenate([repeats, np.full(m, trace.rounds)])
        findings = (*self.findings, Finding("never seen", m, text))
        return replace(self, trace=more, clients=(*self.clients, *missing), findings=findings, repeats=repeats)

    def of_members(self) -> "Log":
        """The log without clients whose availability is unknown in every round; a finding names them."""
        trace = self.trace
        if trace.known is None or trace.known.any(0).all():
            return self
        member = np.flatnonzero(trace.known.any(0))
        kept = tuple(self.clients[n] for n in member)
        others = [self.clients[n] for n in np.flatnonzero(~trace.known.any(0))]
        belonged = "client that belonged" if len(others) == 1 else "clients that belonged"
        text = f"{len(others):,} {belonged} to the fleet in no round of the log ({some(others)}); not counted"
        part = Trace(trace.on[:, member], None if trace.p is None else trace.p[:, member])
        return replace(
            self,
            trace=part.knowing(np.ascontiguousarray(trace.known[:, member])),
            clients=kept,
            findings=(*self.findings, Finding("outside the log", len(others), text)),
            repeats=None if self.repeats is None else self.repeats[member],
        )
