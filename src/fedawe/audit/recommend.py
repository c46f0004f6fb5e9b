"""The advice of an audit: which algorithm to run, why, remedies that were computed on the log, and cautions."""

import dataclasses
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch

from fedawe.algorithms import FedAvg, FedAvgAll, FedAWE, FedVARP
from fedawe.algorithms.facts import needs_probabilities
from fedawe.audit.fleet import Fleet, describe
from fedawe.audit.groups import Groups
from fedawe.audit.influence import Influence, influence
from fedawe.audit.logs.findings import DOUBTFUL, counted, shown
from fedawe.audit.logs.log import Log
from fedawe.availability.clock import Clock

ENOUGH = 0.05  # a bias among clients that are ever active is small below this
CALM = 15  # a multiplier up to which training with FedAWE went well on the bundled digits (docs/audit.md)
SLOW = 1000  # rounds until FedAWE was as accurate as FedAvg (docs/results.md)
LONGER = (2, 3, 4, 6, 8, 12, 18, 24, 36, 48, 72, 144)  # factors of the length of a round that are tried
FEWEST_ROUNDS = 20  # with fewer, a log does not show how often clients are available
CHEAP = 0.02  # FedVARP is preferred to a more stable rule only if its bias is lower by this
TENTH = 0.1  # share of the clients that the headline is about
NOTHING = 1e-3  # a smaller fraction of the fair share is called no influence
SMALL = 0.02  # a group with a smaller share of the clients is not in the headline


@dataclass(frozen=True)
class Advice:
    """Which algorithm to run, and why."""

    algorithm: str  # its name in the audit, or "none"
    headline: str  # the effect of plain averaging, in one sentence
    text: str  # which algorithm to run
    remedies: tuple[str, ...]  # changes with which FedAWE would be usable; each was computed on this log
    cautions: tuple[str, ...]


@dataclass(frozen=True)
class Candidate:
    """An algorithm that was audited."""

    name: str
    algorithm: Any
    bias: float  # among clients that are ever active
    multiplier: float | None  # mean factor by which its echoes multiply updates; None: it has no echoes

    @property
    def calm(self) -> bool:
        """Whether its multiplier is at most CALM."""
        return self.multiplier is None or self.multiplier <= CALM

    @property
    def keeps_models(self) -> bool:
        """Whether the server keeps a model or an update of every client, measured on states for 4 and 8 clients."""
        return _numbers_kept(self.algorithm, 8) - _numbers_kept(self.algorithm, 4) >= 4 * 64

    @property
    def said(self) -> str:
        """Its name and its bias, for a message."""
        return f"{self.name} (bias {self.bias:.1%})"


def _numbers_kept(algorithm: Any, m: int, d: int = 64) -> int:
    """The size of its state, in numbers, after a round in which all m clients were active."""
    A = torch.arange(m)
    state = algorithm.aggregate(algorithm.init(torch.zeros(d), m), 0, A, torch.ones(m, d))
    return _size(state)


def _size(value: Any) -> int:
    """The number of entries of all tensors in a state."""
    if isinstance(value, torch.Tensor):
        return value.numel()
    if dataclasses.is_dataclass(value):
        return sum(_size(getattr(value, field.name)) for field in dataclasses.fields(value))
    if isinstance(value, Mapping):
        return sum(map(_size, value.values()))
    return sum(map(_size, value)) if isinstance(value, list | tuple) else 0


def candidates(fleet: Fleet, algorithms: Mapping[str, Any], influences: Mapping[str, Influence]) -> list[Candidate]:
    """The audited algorithms without those that need known probabilities."""
    out = []
    for name, algorithm in algorithms.items():
        if needs_probabilities(algorithm):
            continue
        echoes = fleet.echo.multiplier(algorithm.max_echo) if isinstance(algorithm, FedAWE) else None
        out.append(Candidate(name, algorithm, influences[name].among(fleet.seen), echoes))
    return out


def choose(found: Sequence[Candidate]) -> Candidate:
    """The algorithm to run.

    Plain averaging if its bias is small. Else an algorithm with echoes, if its multiplier is at most CALM and its bias
    within ENOUGH of the smallest. Else the least biased of the others, where an algorithm that keeps a model of every
    client must have a bias that is lower by ENOUGH.
    """
    plain = [one for one in found if type(one.algorithm) is FedAvg and one.bias < ENOUGH]
    if plain:
        return min(plain, key=lambda one: one.bias)
    others = [one for one in found if not isinstance(one.algorithm, FedAvg | FedAvgAll)] or list(found)
    least = min(one.bias for one in others)
    echoing = [one for one in others if one.multiplier is not None and one.calm and one.bias <= least + ENOUGH]
    if echoing:
        return min(echoing, key=lambda one: one.bias)
    calm = [one for one in others if one.multiplier is None] or others
    return min(
        calm,
        # On a trace with long absences FedVARP was less accurate than MIFA (docs/results.md).
        key=lambda one: one.bias + ENOUGH * one.keeps_models + CHEAP * isinstance(one.algorithm, FedVARP),
    )


def advise(
    log: Log,
    fleet: Fleet,
    algorithms: Mapping[str, Any],
    influences: Mapping[str, Influence],
    groups: Sequence[Groups],
) -> Advice:
    """The advice that follows from the numbers."""
    doubts, cautions = tuple(_doubts(log, fleet)), tuple(_cautions(fleet, log.clock))
    if not fleet.seen.any():
        text = "No client was ever available: no algorithm can learn from this fleet."
        return Advice("none", text, "", (), (*doubts, *cautions))
    found = candidates(fleet, algorithms, influences)
    if not found:
        text = "Every audited algorithm needs known probabilities, which a real fleet does not have; audit others too."
        return Advice("none", "", text, (), (*doubts, *cautions))
    chosen = choose(found)
    baseline = next((one for one in found if type(one.algorithm) is FedAvg), None)
    headline = _headline(fleet, baseline, influences, groups)
    text, remedies = _reason(log, fleet, algorithms, found, chosen, baseline)
    unfair = () if baseline is None else _unfair(fleet, influences, groups, baseline.name, chosen.name)
    return Advice(chosen.name, headline, text, tuple(remedies), (*doubts, *_slow(found, chosen), *unfair, *cautions))


def _slow(found: Sequence[Candidate], chosen: Candidate) -> Iterator[str]:
    """A caution for a rule with echoes: it may learn slowly. It names rules without echoes that are about as fair."""
    if chosen.multiplier is not None:
        others = [one for one in found if one.multiplier is None and not isinstance(one.algorithm, FedAvg | FedAvgAll)]
        near = ", ".join(one.said for one in others if one.bias <= chosen.bias + ENOUGH)
        fair = f" These rules count the clients about as evenly; compare them on your task: {near}." if near else ""
        yield (
            "A small bias does not mean that a rule learns fast: on SVHN, at equal learning rates, FedAWE was less "
            f"accurate than FedAvg for about {SLOW} rounds (docs/results.md).{fair}"
        )


def _unfair(
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


def _headline(
    fleet: Fleet, baseline: Candidate | None, influences: Mapping[str, Influence], groups: Sequence[Groups]
) -> str:
    """One sentence about the clients that plain averaging would neglect."""
    if baseline is None:
        return ""
    shares = influences[baseline.name].shares
    if baseline.bias < ENOUGH:
        return f"Plain averaging would count the clients of this fleet about equally: its bias is {baseline.bias:.1%}."
    for table in groups:
        fair = np.where(fleet.seen @ table.parts > 0, table.fair(shares), np.inf)
        fair = np.where(table.sizes >= max(2, SMALL * fleet.clients), fair, np.inf)  # single clients are no headline
        worst = int(np.argmin(fair))
        if fair[worst] < 0.9:
            of = f"Clients of the {table.kind} {shown(table.names[worst])}"
            return _fewer(of, float(fair[worst]))
    seen = np.flatnonzero(fleet.seen)
    rare = seen[np.argsort(fleet.rates[seen], kind="stable")][: max(1, round(TENTH * len(seen)))]
    fair = influences[baseline.name].fair[rare].mean()
    if fair >= 0.95:
        return (
            f"Plain averaging would count the clients of this fleet unequally (its bias is {baseline.bias:.1%}), but "
            "those that are available least would not count less."
        )
    who = "The client that is" if len(rare) == 1 else f"The {counted(len(rare), 'client')} that are"
    return _fewer(f"{who} available least", float(fair), "its" if len(rare) == 1 else "their")


def _fewer(who: str, fair: float, their: str = "their") -> str:
    said = f"{who} would have {_less(fair)} on a model trained by plain averaging"
    return f"{said}." if fair < NOTHING else f"{said} than {their} share of the fleet."


def _less(fair: float) -> str:
    """An influence in words, given its fraction of the fair share.

    >>> _less(0.25), _less(0.0), _less(0.8)
    ('4.0 times less influence', 'no influence', '1.2 times less influence')
    """
    if fair < NOTHING:
        return "no influence"
    times = 1 / fair
    return f"{times:.1f} times less influence" if times < 10 else f"{times:.0f} times less influence"


def _reason(
    log: Log,
    fleet: Fleet,
    algorithms: Mapping[str, Any],
    found: Sequence[Candidate],
    chosen: Candidate,
    baseline: Candidate | None,
) -> tuple[str, list[str]]:
    its = f"Among the {fleet.seen.sum()} clients that are ever active, its" if fleet.never else "Its"
    if chosen is baseline:
        return f"Run {chosen.name}, plain averaging: no other rule is needed.", []
    bias = "" if baseline is None else f", against {baseline.bias:.1%} with {baseline.name}"
    if chosen.multiplier is not None and chosen.calm:
        memory = f"{fleet.live_versions.mean():.0f} models on average, {fleet.live_versions.max()} at most"
        return (
            f"Run {chosen.name} and deploy x-bar, its average over all clients. {its} bias is "
            f"{chosen.bias:.1%}{bias}; the server keeps {memory}.",
            [],
        )
    keeps = f"; the server keeps a model of each of the {fleet.clients} clients" if chosen.keeps_models else ""
    text = f"Run {chosen.name}. {its} bias is {chosen.bias:.1%}{bias}{keeps}."
    ours = min((one for one in found if one.multiplier is not None), key=lambda one: one.bias, default=None)
    if ours is None or ours is chosen:
        return text, []
    if ours.bias > min(one.bias for one in found) + ENOUGH:
        why = f"{ours.name} has a bias of {ours.bias:.1%}: clients that are unavailable when the log ends count less."
        return f"{text} {why}", []
    away = fleet.echo.most - 1  # an echo counts the round of the return too
    lasting = f" ({log.clock.lasting(away)})" if log.clock is not None else ""
    most = min(fleet.echo.most, ours.algorithm.max_echo or fleet.echo.most)
    why = (
        f"{ours.name} has a bias of {ours.bias:.1%} only, but clients here are unavailable for up to "
        f"{counted(away, 'round')}{lasting} before they return, and it multiplies an update by up to {most}, on "
        f"average by {ours.multiplier:.0f} (the multiplier, weighted by influence). On the bundled digits, training "
        f"became worse with a multiplier above about {CALM}."
    )
    remedies = [*_longer_rounds(log, algorithms, ours), *_limited_echo(log, fleet, ours, chosen)]
    return f"{text} {why}", remedies or ["Neither longer rounds nor a limit on the echo would change that."]


def _longer_rounds(log: Log, algorithms: Mapping[str, Any], ours: Candidate) -> Iterator[str]:
    """A remedy: the shortest rounds with which the advice would be a rule with echoes."""
    usable = {name: one for name, one in algorithms.items() if not needs_probabilities(one)}
    for times in LONGER:
        if log.trace.rounds // times < FEWEST_ROUNDS:
            return
        other = log.longer(times)
        fleet = describe(other.trace)
        if not fleet.seen.any() or fleet.echo.multiplier(ours.algorithm.max_echo) > CALM:
            continue
        again = choose(candidates(fleet, usable, {name: influence(one, other.trace) for name, one in usable.items()}))
        if again.multiplier is not None:
            length = f" ({log.clock.lasting(times)})" if log.clock is not None else ""
            yield (
                f"With rounds {times} times as long{length} the advice would be {again.said}, with a multiplier of "
                f"{again.multiplier:.0f} and {fleet.seen.sum()} of {fleet.clients} clients active."
            )
            return


def _limited_echo(log: Log, fleet: Fleet, ours: Candidate, chosen: Candidate) -> Iterator[str]:
    """A remedy: the largest max_echo with a multiplier of at most CALM, if the bias is then about that of `chosen`."""
    low, high = 1, fleet.echo.most
    while low < high:
        middle = (low + high + 1) // 2
        low, high = (middle, high) if fleet.echo.multiplier(middle) <= CALM else (low, middle - 1)
    bias = influence(FedAWE(eta_g=ours.algorithm.eta_g, max_echo=low), log.trace).among(fleet.seen)
    if low > 1 and bias <= max(chosen.bias, ENOUGH) + CHEAP:
        multiplier = f"{fleet.echo.multiplier(low):.0f}"
        yield f"With fedawe:max_echo={low}, the multiplier would be {multiplier} and the bias {bias:.1%}."


def _doubts(log: Log, fleet: Fleet) -> Iterator[str]:
    """Cautions about a log that may not represent the fleet."""
    if fleet.rounds < FEWEST_ROUNDS:
        yield (
            f"The log has {counted(fleet.rounds, 'round')} only, fewer than {FEWEST_ROUNDS}: too few to tell how often "
            "clients are available, and whether plain averaging is fair to them."
        )
    if fleet.seen.sum() == 1:
        yield "Only one client is ever available: there is no other to compare it with."
    yield from (f"In the log: {finding.text}." for finding in log.findings if finding.kind in DOUBTFUL)


def _cautions(fleet: Fleet, clock: Clock | None) -> Iterator[str]:
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
