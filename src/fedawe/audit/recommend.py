"""The advice of an audit: which algorithm to run, why, remedies that were computed on the log, and cautions."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from fedawe.algorithms import FedAvg, FedAWE
from fedawe.algorithms.facts import needs_probabilities
from fedawe.audit.candidates import CALM, CHEAP, ENOUGH, Candidate, candidates, choose
from fedawe.audit.cautions import FEWEST_ROUNDS, about_fleet, about_groups, about_log, about_speed
from fedawe.audit.fleet import Fleet, describe
from fedawe.audit.groups import Groups
from fedawe.audit.influence import Influence, influence
from fedawe.audit.logs.findings import counted, shown
from fedawe.audit.logs.log import Log

LONGER = (2, 3, 4, 6, 8, 12, 18, 24, 36, 48, 72, 144)  # factors of the length of a round that are tried
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


def advise(
    log: Log,
    fleet: Fleet,
    algorithms: Mapping[str, Any],
    influences: Mapping[str, Influence],
    groups: Sequence[Groups],
) -> Advice:
    """The advice that follows from the numbers."""
    doubts, cautions = tuple(about_log(log, fleet)), tuple(about_fleet(fleet, log.clock))
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
    unfair = () if baseline is None else about_groups(fleet, influences, groups, baseline.name, chosen.name)
    every = (*doubts, *about_speed(found, chosen), *unfair, *cautions)
    return Advice(chosen.name, headline, text, tuple(remedies), every)


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
