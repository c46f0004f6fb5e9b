"""What the numbers mean, in words: whether Assumption 1 is plausible, what to run, and what to beware of."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np

from fedawe.audit.fleet import Fleet
from fedawe.audit.groups import Groups
from fedawe.audit.influence import Influence
from fedawe.logs import Clock

ENOUGH = 0.05  # of the influence in the wrong hands, among clients that ever come: small
LONG_ECHO = 50  # an echo that multiplies one innovation by more deserves a word
CHEAP = 0.02  # what a limit on the echo may add to the influence in the wrong hands


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
    part, phi = "a round does not depend on the one before", fleet.persistence
    if not np.isfinite(phi):
        return Verdict(part, "doubtful", "too few rounds to tell")
    # The standard error of a mean of m correlations over T rounds is about 1/sqrt(T m).
    noise = 4 / np.sqrt(fleet.rounds * max(fleet.clients - len(fleet.never), 1))
    said = f"the correlation between one round and the next is {phi:.2f}"
    if phi > max(noise, 0.05):
        return Verdict(part, "no", f"{said}: who is there tends to stay, {fleet.mean_on:.1f} rounds on average")
    return Verdict(part, "plausible", said)


def _clients(fleet: Fleet) -> Verdict:
    part, together = "clients do not depend on each other", fleet.together
    r = together.correlation if together.beyond_hour is None else together.beyond_hour
    if not np.isfinite(r):
        return Verdict(part, "doubtful", "too few clients that come and go")
    phi = float(np.clip(np.nan_to_num(fleet.persistence), 0.0, 0.999))
    worth = fleet.rounds * (1 - phi) / (1 + phi)  # rounds as good as independent
    noise = 4 * np.sqrt(2 / worth) / max(fleet.clients - len(fleet.never), 2)
    beyond = "" if together.beyond_hour is None else " beyond what the hour of the day explains"
    said = f"the mean correlation of two clients is {r:.3f}{beyond}"
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


def advise(
    fleet: Fleet,
    influences: Mapping[str, Influence],
    groups: Sequence[Groups],
    clock: Clock | None,
    capped: tuple[int, float] | None,
) -> Advice:
    """The advice that follows from the numbers; `capped` is a limit on the echo and FedAWE's distance with it."""
    if not fleet.seen.any():
        return Advice("none", "Nobody was ever there: no algorithm can learn from this fleet.", ())
    away = {name: found.among(fleet.seen) for name, found in influences.items()}
    cautions = (*_unfair(groups, influences, fleet), *_cautions(fleet, clock, capped, away))
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
    rivals = {name: away[name] for name in PRACTICAL if name in away}
    best = min(rivals, key=lambda name: rivals[name])
    if rivals["fedawe"] <= rivals[best] + ENOUGH:
        also = [name for name in ("mifa", "fedvarp") if name in rivals and rivals[name] <= rivals["fedawe"] + ENOUGH]
        reason = (
            f"Run fedawe and evaluate x-bar ({away['fedawe']:.1%} off): it needs no probabilities and keeps "
            f"{fleet.live_versions.mean():.0f} models on average, {fleet.live_versions.max()} at most"
        )
        if also:
            count = " and ".join(f"{name} ({away[name]:.1%} off)" for name in also)
            reason += f"; {count} would keep {fleet.clients} and count old answers again and again"
        return Advice("fedawe", f"{bias} {reason}.", cautions)
    reason = (
        f"On this trace {best} comes closest ({away[best]:.1%} off); fedawe is at {away['fedawe']:.1%} because clients "
        "that are away at the end still owe it the rounds they missed."
    )
    return Advice(best, f"{bias} {reason}", cautions)


def _unfair(groups: Sequence[Groups], influences: Mapping[str, Influence], fleet: Fleet) -> Iterator[str]:
    """The group and the class that plain averaging forgets most, of those of which anyone comes."""
    if "fedavg" not in influences or "fedawe" not in influences:
        return
    for table in groups:
        plain, ours = (table.fair(influences[name].shares) for name in ("fedavg", "fedawe"))
        comes = fleet.seen @ table.parts > 0
        if not comes.any():
            continue
        worst = int(np.argmin(np.where(comes, plain, np.inf)))
        if plain[worst] < 0.9:
            said = f"counts {plain[worst]:.2f} of its fair share under fedavg, {ours[worst]:.2f} under fedawe"
            yield f"The {table.kind} {table.names[worst]} {said}."


def _cautions(
    fleet: Fleet, clock: Clock | None, capped: tuple[int, float] | None, away: Mapping[str, float]
) -> tuple[str, ...]:
    out = []
    if fleet.never:
        out.append(
            f"{len(fleet.never)} of {fleet.clients} clients never came. No rule can count them: find out why, or the "
            "model is for the others."
        )
    if fleet.echo.most > LONG_ECHO and "fedawe" in away:
        limit = "no limit on the echo comes cheap here; a clip bounds the step"
        if capped is not None:
            limit = f"max_echo={capped[0]} would bound it, at {capped[1]:.1%} instead of {away['fedawe']:.1%}"
        lasting = f" ({clock.lasting(fleet.echo.most)})" if clock is not None else ""
        out.append(
            f"Some client comes after {fleet.echo.most} rounds{lasting}, and fedawe multiplies its answer by as much: "
            f"that one carries {fleet.echo.most / fleet.rounds:.0%} of all the client will count. Longer rounds make "
            f"echoes shorter; {limit}."
        )
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
