"""Checks Assumption 1 of the paper against a log."""

from dataclasses import dataclass
from typing import Literal

import numpy as np

from fedawe.audit.fleet import Fleet
from fedawe.audit.logs.findings import counted


@dataclass(frozen=True)
class Verdict:
    """A verdict on one part of Assumption 1: p_i^t >= delta > 0, independent across clients and across rounds."""

    part: str
    holds: Literal["plausible", "doubtful", "no"]
    reason: str


def assumption_1(fleet: Fleet) -> list[Verdict]:
    """A verdict on each of the three parts of Assumption 1."""
    return [_positive(fleet), _rounds(fleet), _clients(fleet)]


def _positive(fleet: Fleet) -> Verdict:
    part = "every client can be available in every round"
    if fleet.never:
        return Verdict(
            part, "no", f"{len(fleet.never)} of {fleet.clients} clients were never available, so that delta = 0"
        )
    if fleet.unseen_hours:
        share = "fewer than 1%" if fleet.unseen_hours < 0.01 else f"{fleet.unseen_hours:.0%}"
        reason = f"in {share} of the pairs (client, hour of the day) the client was never available"
        return Verdict(part, "doubtful", f"{reason}; the smallest rate is {fleet.delta:.3g}")
    return Verdict(part, "plausible", f"the smallest rate is delta = {fleet.delta:.3g}")


def _rounds(fleet: Fleet) -> Verdict:
    part = "each round is independent of the one before"
    phi, hour = _persistence(fleet)
    if not np.isfinite(phi):
        return Verdict(part, "doubtful", "too few rounds to tell")
    said = f"the correlation between one round and the next is {round(phi, 2) + 0.0:.2f}{hour}"
    if rounds_depend(fleet):
        stays = f"a client that is available stays so for {fleet.mean_on:.1f} rounds on average"
        return Verdict(part, "no", f"{said}: {stays}")
    return Verdict(part, "plausible", said)


def rounds_depend(fleet: Fleet) -> bool:
    """Whether the availability in a round depends on the round before, more than chance explains."""
    # The standard error of a mean of m correlations over T rounds is about 1/sqrt(T m).
    noise = 4 / np.sqrt(fleet.rounds * max(fleet.clients - len(fleet.never), 1))
    return bool(_persistence(fleet)[0] > max(noise, 0.05))


def _persistence(fleet: Fleet) -> tuple[float, str]:
    """The correlation from one round to the next, and words that say what it excludes.

    The hour of the day is accounted for if it is known, because a daily rhythm is a p_i^t that changes over time and
    not a dependence between rounds.
    """
    if fleet.persistence_beyond_hour is None:
        return fleet.persistence, ""
    return fleet.persistence_beyond_hour, " beyond what the hour of the day explains"


def _clients(fleet: Fleet) -> Verdict:
    part, together = "clients are independent of each other", fleet.together
    r = together.correlation if together.beyond_hour is None else together.beyond_hour
    if not np.isfinite(r):
        return Verdict(part, "doubtful", "too few clients whose availability changes")
    phi = float(np.clip(np.nan_to_num(_persistence(fleet)[0]), 0.0, 0.999))
    worth = fleet.rounds * (1 - phi) / (1 + phi)  # effective number of independent rounds
    noise = 4 * np.sqrt(2 / worth) / max(fleet.clients - len(fleet.never), 2)
    beyond = "" if together.beyond_hour is None else " beyond what the hour of the day explains"
    said = f"the mean correlation of two clients is {round(r, 3) + 0.0:.3f}{beyond}"
    if together.outages:
        n = counted(len(together.outages), "outage")
        return Verdict(part, "no", f"{said}, with {n} in which far fewer clients were available than expected")
    if r > max(noise, 0.005):
        return Verdict(part, "no", said)
    if together.beyond_hour is not None and together.correlation > max(noise, 0.005):
        return Verdict(part, "plausible", f"{said} ({together.correlation:.3f} if the hour is ignored)")
    return Verdict(part, "plausible", said)
