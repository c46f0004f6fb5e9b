"""The audit of a fleet: the influence that each client would have on the model, computed without training."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from fedawe.algorithms import PAPER, FedAWE, name_of
from fedawe.algorithms.facts import lacks_probabilities, with_probabilities
from fedawe.audit import theory
from fedawe.audit.assumption import Verdict, assumption_1
from fedawe.audit.drift import Drift
from fedawe.audit.fleet import Distribution, Fleet, describe
from fedawe.audit.groups import Groups, Roster, read_roster
from fedawe.audit.influence import Influence, by_identity, influence
from fedawe.audit.logs import Log, counted, some
from fedawe.audit.notebook import summary
from fedawe.audit.recommend import Advice, advise
from fedawe.availability.trace import Trace
from fedawe.core.errors import UserError

__all__ = [
    "Advice",
    "Audit",
    "Distribution",
    "Drift",
    "Fleet",
    "Groups",
    "Influence",
    "Log",
    "Roster",
    "Verdict",
    "audit",
    "by_identity",
    "describe",
    "display",
    "influence",
    "read_roster",
]

LATEST = "fedawe-latest"


def display(name: str) -> str:
    """The name of an algorithm in tables; of FedAWE it says which of its two models is meant."""
    return {"fedawe": "fedawe, x-bar", LATEST: "fedawe, last aggregate"}.get(name, name)


@dataclass(frozen=True)
class Audit:
    """The result of an audit."""

    log: Log
    fleet: Fleet
    influences: Mapping[str, Influence]  # of FedAWE, NAME is x-bar and NAME-latest the last aggregate
    groups: tuple[Groups, ...]
    assumption: tuple[Verdict, ...]
    advice: Advice
    rho: float | None  # of the implicit gossip among clients that are ever available; None for very large fleets
    notes: tuple[str, ...]  # how numbers were computed, where it is not obvious

    def _repr_html_(self) -> str:
        """The advice and bars of influence, for notebooks."""
        return summary(repr(self.log.trace), self.fleet.rates, self.influences, self.advice)


def audit(
    log: Log | Trace,
    *,
    algorithms: Mapping[str, Any] | None = None,
    groups: Roster | None = None,
    checkpoints: int = 24,
) -> Audit:
    """Audit a log or a trace: the influence of every client under every algorithm, facts of the fleet, and advice.

    algorithms   name -> object; the eight of the paper by default
    groups       a table of clients; pass it to the reader of the log as well, to count clients without rows
    checkpoints  how many times, evenly spaced over the log, the influence up to then is computed

    >>> on = [[1, 1], [1, 0], [1, 0], [1, 1]]
    >>> found = audit(Trace(on))
    >>> found.influences["fedavg"].fair.tolist(), found.influences["fedawe"].fair.tolist()
    ([1.5, 0.5], [1.0, 1.0])
    """
    if isinstance(log, Trace):
        log = Log(log, tuple(map(str, range(log.clients))), None, ())
    trace, notes = log.trace, []
    fleet = describe(trace, log.clock, log.repeating)
    if log.repeating.any():
        again = f"the days of {log.repeating.sum()} of {trace.clients} clients are repeated"
        notes.append(f"{again}, so that they are not tested for changes of their rates")
    elif fleet.drift is None:
        notes.append("the log has too few days or rounds to tell whether rates change")
    if algorithms is None:
        algorithms = {name_of(make).lower(): make() for make in PAPER}
    algorithms, note = knowing(algorithms, trace, fleet)
    notes += [note] if note else []
    after = np.linspace(0, trace.rounds, min(checkpoints, trace.rounds) + 1).astype(int).tolist()[1:]
    influences: dict[str, Influence] = {}
    for name, algorithm in algorithms.items():
        influences[name] = influence(algorithm, trace, after)
        if type(algorithm) is FedAWE and (name == "fedawe" or algorithm == FedAWE()):  # with options, x-bar alone
            influences[f"{name}-latest"] = influence(algorithm, trace, after, latest=True)
    placed: tuple[Groups, ...] = ()
    if groups is not None:
        placed, more = _placed(log, groups)
        notes += more
    return Audit(
        log,
        fleet,
        influences,
        placed,
        tuple(assumption_1(fleet)),
        advise(log, fleet, algorithms, influences, placed),
        _mixing(trace),
        tuple(notes),
    )


def knowing(algorithms: Mapping[str, Any], trace: Trace, fleet: Fleet) -> tuple[dict[str, Any], str | None]:
    """The algorithms, with probabilities for those that need them and have none; and a note about it, or None."""
    lacking = [name for name, one in algorithms.items() if lacks_probabilities(one)]
    if not lacking:
        return dict(algorithms), None
    p = np.broadcast_to(fleet.rates, trace.on.shape) if trace.p is None else trace.p
    out = {name: with_probabilities(one, p) for name, one in algorithms.items()}
    if trace.p is not None:
        return out, None
    over, then = "over the whole log", "it is then unbiased among active clients by construction"
    if (fleet.watched < fleet.rounds).any():
        over = "over the rounds in which its availability is known"
        then = "active clients then count in proportion to the number of these rounds"
    return out, f"{lacking[0]} was given each client's rate {over}, since the log has no probabilities: {then}"


def _placed(log: Log, groups: Roster) -> tuple[tuple[Groups, ...], list[str]]:
    """The groups with a row for each client of the log, and notes about clients without a group or labels."""
    placed, unplaced = groups.placed(log.clients)
    notes = []
    if len(unplaced) == log.trace.clients:
        said = f"({some(log.clients)}) is in the table of groups ({some(groups.clients)})"
        raise UserError(f"no client of the log {said}; the names must be the same")
    if unplaced:
        notes.append(f"{counted(len(unplaced), 'client')} in no group ({some(unplaced)})")
    for table in placed:
        empty = set(np.array(log.clients)[~table.parts.any(1)]) - set(unplaced)
        if empty:
            notes.append(f"{counted(len(empty), 'client')} without labels, in no class ({some(sorted(empty))})")
    return placed, notes


def _mixing(trace: Trace) -> float | None:
    """rho of the clients that are ever available; None if there are none or too many."""
    seen = trace.on.any(0)
    if not seen.any() or seen.sum() > theory.DENSE:
        return None
    return theory.rho_of_trace(Trace(trace.on[:, seen]))
