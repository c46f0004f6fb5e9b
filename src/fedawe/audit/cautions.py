"""The cautions of an audit: about the log, the fleet, the advised algorithm, and groups of clients."""

from collections.abc import Iterator, Mapping, Sequence

import numpy as np

from fedawe.algorithms import FedAvg, FedAvgAll
from fedawe.audit.candidates import ENOUGH, Candidate
from fedawe.audit.fleet import Fleet
from fedawe.audit.groups import Groups
from fedawe.audit.influence import Influence
from fedawe.audit.logs.findings import DOUBTFUL, counted, shown
from fedawe.audit.logs.log import Log
from fedawe.availability.clock import Clock

SLOW = 1000  # rounds until FedAWE was as accurate as FedAvg (docs/results.md)
FEWEST_ROUNDS = 20  # with fewer, a log does not show how often clients are available


def about_log(log: Log, fleet: Fleet) -> Iterator[str]:
    """Cautions about a log that may not represent the fleet."""
    if fleet.rounds < FEWEST_ROUNDS:
        yield (
            f"The log has {counted(fleet.rounds, 'round')} only, fewer than {FEWEST_ROUNDS}: too few to tell how often "
            "clients are available, and whether plain averaging is fair to them."
        )
    if fleet.seen.sum() == 1:
        yield "Only one client is ever available: there is no other to compare it with."
    yield from (f"In the log: {finding.text}." for finding in log.findings if finding.kind in DOUBTFUL)


def about_fleet(fleet: Fleet, clock: Clock | None) -> Iterator[str]:
    """Cautions about the fleet: clients that are never available, empty rounds, changes and outages."""
    if fleet.never:
        were = "was" if len(fleet.never) == 1 else "were"
        yield (
            f"{len(fleet.never)} of {fleet.clients} clients {were} never available. No algorithm can include them: "
            "find out why, or the model is trained on the others alone."
        )
    late = int((fleet.watched < fleet.rounds).sum())
    if late:
        yield (
            f"{counted(late, 'client')} belonged to the fleet for a part of the log only. Rates are of that part; an "
            "algorithm counts them as unavailable in the rest."
        )
    if fleet.empty:
        lasting = f" ({clock.lasting(fleet.longest_empty)})" if clock is not None else ""
        were = "is" if fleet.empty == 1 else "are"
        yield f"{fleet.empty} of {fleet.rounds} rounds {were} empty, up to {fleet.longest_empty} in a row{lasting}."
    yield from _changes(fleet, clock)
    outages = sorted(fleet.together.outages, key=lambda outage: -outage[1])
    if outages:
        first, rounds = outages[0]
        when = f"round {first}" if clock is None else clock.when(first)
        lasting = counted(rounds, "round") if clock is None else clock.lasting(rounds)
        yield (
            f"{counted(len(outages), 'outage')}: far fewer clients were available than chance explains; the longest "
            f"began at {when} and lasted {lasting}."
        )


def _changes(fleet: Fleet, clock: Clock | None) -> Iterator[str]:
    """A caution if the fleet or more clients than expected change their rates."""
    drift = fleet.drift
    if drift is None:
        return
    if drift.fleet_changes:
        when = f"round {drift.change}" if clock is None else clock.when(drift.change)
        weekly = ""
        if drift.days is not None and drift.days < 14:
            weekly = f" With {drift.days} days, a change cannot be distinguished from a weekly rhythm."
        yield (
            f"The fleet changes within this log (p = {drift.fleet_p:.3f}), most around {when}. Rules that weight "
            f"clients by past rates, such as fedau and f3ast, lag behind.{weekly}"
        )
    elif drift.clients_change:
        yield (
            f"The rates of {drift.changed} of {drift.tested} clients change ({drift.by_chance:.0f} expected by chance)."
            " Rules that weight clients by past rates, such as fedau and f3ast, lag behind."
        )


def about_speed(found: Sequence[Candidate], chosen: Candidate) -> Iterator[str]:
    """A caution for a rule with echoes: it may learn slowly. It names rules without echoes that are about as fair."""
    if chosen.multiplier is not None:
        others = [one for one in found if one.multiplier is None and not isinstance(one.algorithm, FedAvg | FedAvgAll)]
        near = ", ".join(one.said for one in others if one.bias <= chosen.bias + ENOUGH)
        fair = f" These rules count the clients about as evenly; compare them on your task: {near}." if near else ""
        yield (
            "A small bias does not mean that a rule learns fast: on SVHN, at equal learning rates, FedAWE was less "
            f"accurate than FedAvg for about {SLOW} rounds (docs/results.md).{fair}"
        )


def about_groups(
    fleet: Fleet, influences: Mapping[str, Influence], groups: Sequence[Groups], plain: str, chosen: str
) -> Iterator[str]:
    """For each table, the group with the least influence under plain averaging, and its influence under the advice."""
    for table in groups:
        before, then = (table.fair(influences[name].shares) for name in (plain, chosen))
        active = fleet.seen @ table.parts > 0
        worst = int(np.argmin(np.where(active, before, np.inf)))
        if before[worst] < 0.9:
            said = (
                f"The {table.kind} {shown(table.names[worst])} has {before[worst]:.2f} of its fair share under {plain}"
            )
            yield f"{said}, {then[worst]:.2f} under {chosen}." if plain != chosen else f"{said}."
