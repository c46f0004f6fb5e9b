"""What the numbers mean, in words: whether Assumption 1 is plausible, what to run, and what to beware of."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np

from fedawe.algorithms import FedAWE
from fedawe.audit.fleet import Fleet
from fedawe.audit.groups import Groups
from fedawe.audit.influence import Influence, influence
from fedawe.audit.logs import Clock
from fedawe.availability.trace import Trace

ENOUGH = 0.05  # of the influence in the wrong hands, among clients that ever come: small
CALM = 15  # a multiplier up to which training with fedawe went well on real fleets (docs/audit.md)
LONGER = (2, 3, 4, 6, 8, 12, 18, 24, 36, 48, 72, 144)  # times as long as a round is now
CHEAP = 0.02  # what a limit on the echo, or mifa instead of fedvarp, may add to the influence in the wrong hands


@dataclass(frozen=True)
class Verdict:
    """On one part of Assumption 1: p_i^t >= delta > 0, independent across clients and across rounds (line 256)."""

    part: str
    holds: Literal["plausible", "doubtful", "no"]
    reason: str


def assumption_1(fleet: Fleet) -> list[Verdict]:
    """Whether the log looks as the paper's Assumption 1 has it."""
    return [_positive(fleet), _rounds(fleet), _clients(fleet)]


def _positive(fleet: Fleet) -> Verdict:
    part = "every client can come in every round"
    if fleet.never:
        return Verdict(part, "no", f"{len(fleet.never)} of {fleet.clients} clients never came, so that delta = 0")
    if fleet.unseen_hours:
        reason = f"in {fleet.unseen_hours:.0%} of the pairs (client, hour of the day) the client was never there"
        return Verdict(part, "doubtful", f"{reason}; the smallest rate is {fleet.delta:.3g}")
    return Verdict(part, "plausible", f"the smallest rate is delta = {fleet.delta:.3g}")


def _rounds(fleet: Fleet) -> Verdict:
    part = "a round does not depend on the one before"
    phi, hour = _persistence(fleet)
    if not np.isfinite(phi):
        return Verdict(part, "doubtful", "too few rounds to tell")
    # The standard error of a mean of m correlations over T rounds is about 1/sqrt(T m).
    noise = 4 / np.sqrt(fleet.rounds * max(fleet.clients - len(fleet.never), 1))
    said = f"the correlation between one round and the next is {round(phi, 2) + 0.0:.2f}{hour}"
    if phi > max(noise, 0.05):
        return Verdict(part, "no", f"{said}: who is there tends to stay, {fleet.mean_on:.1f} rounds on average")
    return Verdict(part, "plausible", said)


def _persistence(fleet: Fleet) -> tuple[float, str]:
    """From one round to the next, and beyond what: a rhythm of the day is a p_i^t that changes, no dependence."""
    if fleet.persistence_beyond_hour is None:
        return fleet.persistence, ""
    return fleet.persistence_beyond_hour, " beyond what the hour of the day explains"


def _clients(fleet: Fleet) -> Verdict:
    part, together = "clients do not depend on each other", fleet.together
    r = together.correlation if together.beyond_hour is None else together.beyond_hour
    if not np.isfinite(r):
        return Verdict(part, "doubtful", "too few clients that come and go")
    phi = float(np.clip(np.nan_to_num(_persistence(fleet)[0]), 0.0, 0.999))
    worth = fleet.rounds * (1 - phi) / (1 + phi)  # rounds as good as independent
    noise = 4 * np.sqrt(2 / worth) / max(fleet.clients - len(fleet.never), 2)
    beyond = "" if together.beyond_hour is None else " beyond what the hour of the day explains"
    said = f"the mean correlation of two clients is {round(r, 3) + 0.0:.3f}{beyond}"
    if together.outages:
        return Verdict(part, "no", f"{said}, with {len(together.outages)} stretches of far too few clients at once")
    if r > max(noise, 0.005):
        return Verdict(part, "no", said)
    if together.beyond_hour is not None and together.correlation > max(noise, 0.005):
        return Verdict(part, "plausible", f"given the hour: {said} ({together.correlation:.3f} without it)")
    return Verdict(part, "plausible", said)


@dataclass(frozen=True)
class Advice:
    """What to run and why, what to beware of."""

    algorithm: str
    text: str
    cautions: tuple[str, ...]


PRACTICAL = ("fedawe", "fedau", "f3ast", "mifa", "fedvarp")  # what one can run without knowing probabilities
REMEMBER = ("mifa", "fedvarp")  # those that keep the last answer of every client


def advise(
    trace: Trace, fleet: Fleet, influences: Mapping[str, Influence], groups: Sequence[Groups], clock: Clock | None
) -> Advice:
    """The advice that follows from the numbers."""
    if not fleet.seen.any():
        return Advice("none", "Nobody was ever there: no algorithm can learn from this fleet.", ())
    away = {name: found.among(fleet.seen) for name, found in influences.items()}
    cautions = (*_unfair(groups, influences, fleet), *_cautions(trace, fleet, clock, away))
    if "fedavg" not in away or "fedawe" not in away:
        best = min(away, key=lambda name: away[name])
        return Advice(best, f"Of those audited, {best} is closest to uniform ({away[best]:.1%} off).", cautions)
    whom = f"among the {fleet.seen.sum()} clients that ever come, " if fleet.never else ""
    if away["fedavg"] < ENOUGH:
        text = f"Plain averaging will do: {whom}fedavg puts {away['fedavg']:.1%} of the influence into the wrong hands"
        return Advice("fedavg", f"{text}, fedawe {away['fedawe']:.1%}.", cautions)
    fair = influences["fedavg"].fair[fleet.seen]
    bias = (
        f"Plain averaging would be biased: {whom}fedavg puts {away['fedavg']:.0%} of the influence into the wrong "
        f"hands. A client counts between {fair.min():.2f} and {fair.max():.2f} of a fair share, as if the fleet had "
        f"{influences['fedavg'].effective_clients:.0f} clients instead of {fleet.clients}."
    )
    algorithm, reason = _remedy(fleet, {name: away[name] for name in PRACTICAL if name in away})
    return Advice(algorithm, f"{bias} {reason}", cautions)


def _remedy(fleet: Fleet, away: Mapping[str, float]) -> tuple[str, str]:
    """What to run instead of fedavg: fedawe if it is close and its echoes are bearable, else the closest other."""
    memory = f"{fleet.live_versions.mean():.0f} models on average, {fleet.live_versions.max()} at most"
    ours, close = away["fedawe"], away["fedawe"] <= min(away.values()) + ENOUGH
    if close and fleet.multiplier <= CALM:
        also = [f"{name} ({away[name]:.1%} off)" for name in REMEMBER if away.get(name, 1) <= ours + ENOUGH]
        rest = f"; {' and '.join(also)} would keep {fleet.clients}" if also else ""
        return "fedawe", f"Run fedawe and evaluate x-bar ({ours:.1%} off): it keeps {memory}{rest}."
    others = {name: distance for name, distance in away.items() if name != "fedawe"}
    if not others:
        return "fedawe", f"Of those audited only fedawe mends that ({ours:.1%} off); mind its echoes."
    # Whoever keeps little goes before whoever keeps an answer of every client, if about as close. Of those mifa goes
    # first: what fedvarp takes back of an old answer it divides by those present: less stable (docs/results.md).
    best = min(others, key=lambda name: others[name] + ENOUGH * (name in REMEMBER) + CHEAP * (name == "fedvarp"))
    keeps = f", at the price of keeping an answer of each of the {fleet.clients} clients" if best in REMEMBER else ""
    if close:
        why = (
            f"fedawe would be {ours:.1%} off with {memory}, but absences here are so long that its influence comes "
            f"multiplied by {fleet.multiplier:.0f} on average; training suffered above {CALM} or so"
        )
    else:
        why = f"fedawe is {ours:.1%} off, because clients that are away at the end still owe it the rounds they missed"
    return best, f"Run {best} ({others[best]:.1%} off){keeps}. {why}."


def _unfair(groups: Sequence[Groups], influences: Mapping[str, Influence], fleet: Fleet) -> Iterator[str]:
    """The group and the class that plain averaging forgets most, against what can be had of them."""
    if "fedavg" not in influences or "fedawe" not in influences:
        return
    for table in groups:
        plain, ours = (table.fair(influences[name].shares) for name in ("fedavg", "fedawe"))
        comes = fleet.seen @ table.parts > 0
        ratio = np.where(comes, plain / np.where(comes, ours, 1.0), np.inf)
        worst = int(np.argmin(ratio))
        if ratio[worst] < 0.9:
            said = f"counts {plain[worst]:.2f} of its fair share under fedavg, {ours[worst]:.2f} under fedawe"
            yield f"The {table.kind} {table.names[worst]} {said}."


def _echoes(trace: Trace, fleet: Fleet, clock: Clock | None, away: float) -> str:
    """How large fedawe's steps would be, and what makes them smaller."""
    lasting = f" ({clock.lasting(fleet.echo.most)})" if clock is not None else ""
    said = (
        f"fedawe multiplies an answer by the rounds its client was away: up to {fleet.echo.most}{lasting} here, and "
        f"{fleet.multiplier:.0f} on average of its influence."
    )
    remedies = []
    calmer = next(((n, found) for n in LONGER if (found := _multiplier_if_longer(trace, n)) <= CALM), None)
    if calmer is not None:
        length = f" ({clock.lasting(calmer[0])})" if clock is not None else ""
        remedies.append(f"rounds {calmer[0]} times as long{length} bring that to {calmer[1]:.0f}")
    limit = fleet.echo.most // 2
    price = influence(FedAWE(max_echo=limit), trace).among(fleet.seen)
    while limit > 2 and price <= away + CHEAP:
        smaller = influence(FedAWE(max_echo=limit // 2), trace).among(fleet.seen)
        if smaller > away + CHEAP:
            break
        limit, price = limit // 2, smaller
    if price <= away + CHEAP:
        remedies.append(f"max_echo={limit} bounds it at {price:.1%} instead of {away:.1%} off")
    remedies.append("a clip bounds the step")
    return f"{said} {'; '.join(remedies).capitalize()}."


def _multiplier_if_longer(trace: Trace, times: int) -> float:
    """Fleet.multiplier if rounds were so many times as long and met who is there when they begin; inf if too few."""
    on = trace.on[::times]
    if len(on) < 20 or not on.any():
        return float("inf")
    tau, first, second = np.full(on.shape[1], -1), 0.0, 0.0
    for t, there in enumerate(on):
        e = (t - tau[there]).astype(np.float64)
        first, second = first + e.sum(), second + (e**2).sum()
        tau[there] = t
    return second / first


def _cautions(trace: Trace, fleet: Fleet, clock: Clock | None, away: Mapping[str, float]) -> tuple[str, ...]:
    out = []
    if fleet.never:
        out.append(
            f"{len(fleet.never)} of {fleet.clients} clients never came. No rule can count them: find out why, or the "
            "model is for the others."
        )
    if fleet.multiplier > CALM and "fedawe" in away:
        out.append(_echoes(trace, fleet, clock, away["fedawe"]))
    if fleet.empty:
        lasting = f" ({clock.lasting(fleet.longest_empty)})" if clock is not None else ""
        out.append(f"{fleet.empty} of {fleet.rounds} rounds are empty, up to {fleet.longest_empty} in a row{lasting}.")
    drift = fleet.drift
    if drift is not None and np.isfinite(drift.fleet_p) and drift.fleet_p < 0.01:
        when = f"round {drift.change}" if clock is None else clock.when(drift.change)
        out.append(
            f"The fleet changes (p = {drift.fleet_p:.3f}), most around {when}: fedau and f3ast weigh by past rates."
        )
    elif drift is not None and drift.tested and drift.changed > max(0.1 * drift.tested, 3):
        out.append(
            f"{drift.changed} of {drift.tested} clients change their rates between {drift.unit} "
            f"({0.05 * drift.tested:.0f} would seem to by chance): fedau and f3ast weigh by past rates."
        )
    for first, rounds in sorted(fleet.together.outages, key=lambda outage: -outage[1])[:1]:
        when = f"round {first}" if clock is None else clock.when(first)
        lasting = f"{rounds} rounds" if clock is None else clock.lasting(rounds)
        out.append(f"Many clients vanish at once, for longest from {when} ({lasting}): an outage rather than chance.")
    return tuple(out)
