"""Compares two periods of a fleet: clients that vanished or appeared, and changes of rates and of influence."""

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from fedawe.algorithms import FedAvg
from fedawe.audit.drift import LEVEL, two_samples
from fedawe.audit.groups import Roster
from fedawe.audit.influence import influence
from fedawe.audit.logs import Clock, Finding, Log
from fedawe.audit.logs.findings import DOUBTFUL
from fedawe.audit.logs.times import moment
from fedawe.availability.dynamics import Array, Mask
from fedawe.availability.trace import Trace
from fedawe.core.errors import UserError

MOVED = 8  # clients with the largest change of influence that are listed


@dataclass(frozen=True)
class GroupChange:
    """The change of a group."""

    name: str
    size: float
    rates: tuple[float, float]  # share of clients available, before and after; NaN if it is not known
    fair: tuple[float, float]  # influence under plain averaging over the fair share, before and after
    p: float  # p-value of the test whether its rate changed; NaN if it could not be tested


@dataclass(frozen=True, eq=False)
class Change:
    """What changed between two periods."""

    clients: tuple[str, ...]  # of both periods
    vanished: tuple[str, ...]  # active before and never after
    appeared: tuple[str, ...]  # active after and never before
    rates: tuple[float, float]  # share of clients available, before and after
    fleet_p: float  # p-value of the test whether this share changed; NaN if there are too few days
    p_values: Array  # of each client; NaN if it could not be tested                                              [m]
    client_rates: tuple[Array, Array]  # of each client, before and after                                         [m]
    fair: tuple[Array, Array]  # influence under plain averaging over the fair share                              [m]
    groups: tuple[GroupChange, ...]
    findings: tuple[Finding, ...] = ()  # about the second log, if the periods are two logs
    untested: str = ""  # the reason if no client was tested

    @property
    def cautions(self) -> tuple[str, ...]:
        """Findings about the second log that put the comparison in doubt."""
        return tuple(f"In the other log: {finding.text}." for finding in self.findings if finding.kind in DOUBTFUL)

    @property
    def tested(self) -> int:
        """The number of clients that were tested."""
        return int(np.isfinite(self.p_values).sum())

    @property
    def changed(self) -> list[int]:
        """The clients whose rate changed with p < 0.05, the largest change first."""
        which = np.flatnonzero(self.p_values < LEVEL)
        difference = np.abs(self.client_rates[1] - self.client_rates[0])[which]
        return [int(i) for i in which[np.argsort(-difference, kind="stable")]]

    @property
    def moved(self) -> list[int]:
        """The clients whose influence changed most, of those that are active in both periods."""
        both = np.flatnonzero((self.client_rates[0] > 0) & (self.client_rates[1] > 0))
        difference = np.abs(self.fair[1] - self.fair[0])[both]
        return [int(i) for i in both[np.argsort(-difference, kind="stable")][:MOVED]]


def split(log: Log, at: str) -> tuple[Log, Log]:
    """The log before and after a moment; the findings stay with the first part."""
    if log.clock is None:
        raise UserError("--split: a trace without a clock has no dates; --round says how long a round is")
    when, dated = moment(at, "--split", log.clock.timezone)
    if dated and log.clock.start is None:
        raise UserError(f"--split {at}: times here count from the beginning; give a number of seconds")
    first = int(np.ceil((when - (log.clock.start or 0.0)) / log.clock.round_seconds - 1e-9))
    if not 0 < first < log.trace.rounds:
        end = log.clock.when(log.trace.rounds)
        raise UserError(f"--split {at}: is outside of the log, which runs from {log.clock.when(0)} to {end}")
    rest = log.rounds(first, log.trace.rounds)
    if log.clock.start is None:  # hours of the day count from the beginning of the whole log, also in the second part
        rest = replace(rest, clock=Clock(log.clock.round_seconds, first * log.clock.round_seconds))
    # A client that repeats within the whole log counts as repeating in both parts.
    again = None if log.repeats is None else np.where(log.repeating, 1, log.trace.rounds)
    return replace(log.rounds(0, first), repeats=again), replace(rest, findings=(), repeats=again)


def compare(before: Log, after: Log, roster: Roster | None = None) -> Change:
    """The changes from one log to the other; clients are matched by name."""
    if before.clock is None or after.clock is None:
        raise UserError(
            "two periods are compared by days, for which the logs need a clock; --round says how long one is"
        )
    if before.clock.round_seconds != after.clock.round_seconds:
        lengths = f"{before.clock.lasting(1)} and {after.clock.lasting(1)}"
        raise UserError(f"the two logs have rounds of {lengths}; read both in rounds of one length")
    names = tuple(dict.fromkeys([*before.clients, *after.clients]))
    one, other = _aligned(before, names), _aligned(after, names)
    rates = tuple(_rates(log.trace) for log in (one, other))
    active = [log.trace.on.any(0) for log in (one, other)]
    repeating = one.repeating | other.repeating
    p, fleet_p, group_p, untested = two_samples(
        (one.trace, before.clock), (other.trace, after.clock), _parts(roster, names), repeating
    )
    fair = tuple(influence(FedAvg(), log.trace).fair for log in (one, other))
    groups: list[GroupChange] = []
    if roster is not None:
        tables, _ = roster.placed(names)
        at = 0
        for table in tables:
            for g, name in enumerate(table.names):
                ratio = tuple(_share(log.trace, table.parts[:, g]) for log in (one, other))
                influences = tuple(float(table.fair(f / len(names))[g]) for f in fair)
                groups.append(GroupChange(name, float(table.sizes[g]), ratio, influences, group_p[at]))  # type: ignore[arg-type]
                at += 1
    return Change(
        names,
        tuple(names[i] for i in np.flatnonzero(active[0] & ~active[1])),
        tuple(names[i] for i in np.flatnonzero(~active[0] & active[1])),
        (_share(one.trace, np.ones(len(names))), _share(other.trace, np.ones(len(names)))),
        fleet_p,
        p,
        rates,  # type: ignore[arg-type]
        fair,  # type: ignore[arg-type]
        tuple(groups),
        after.findings,
        untested,
    )


def _aligned(log: Log, names: Sequence[str]) -> Log:
    """The log with a column for each of these clients; the availability of clients not in the log is unknown."""
    column = {name: n for n, name in enumerate(log.clients)}
    index = np.array([column.get(name, -1) for name in names])
    have = index >= 0
    on = np.where(have, log.trace.on[:, index], False)
    known: Mask = np.broadcast_to(have, on.shape) if log.trace.known is None else log.trace.known[:, index] & have
    repeats = None if log.repeats is None else np.where(have, log.repeats[index], log.trace.rounds)
    return replace(log, trace=Trace(on).knowing(np.ascontiguousarray(known)), clients=tuple(names), repeats=repeats)


def _rates(trace: Trace) -> Array:
    return np.asarray(trace.on.sum(0) / np.maximum(trace.known_rounds(), 1))


def _share(trace: Trace, parts: Array) -> float:
    """The share of clients available, of the known rounds, where each client counts by its part in `parts` [m]."""
    known = float(trace.known_rounds() @ parts)
    return float(trace.on.sum(0) @ parts / known) if known > 0 else float("nan")


def _parts(roster: Roster | None, names: Sequence[str]) -> Array:
    """Which part of each client belongs to which group, of all tables, [m, g]."""
    if roster is None:
        return np.zeros((len(names), 0))
    tables, _ = roster.placed(names)
    return np.concatenate([table.parts for table in tables], axis=1) if tables else np.zeros((len(names), 0))
