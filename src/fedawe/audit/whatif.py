"""--what-if: the same log with other round lengths, cohorts and requirements, a row of numbers for each."""

import itertools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from fedawe.algorithms import PAPER, FedAWE, name_of
from fedawe.algorithms.facts import needs_probabilities
from fedawe.audit.candidates import Candidate, choose
from fedawe.audit.fleet import echoes_of
from fedawe.audit.influence import influence
from fedawe.audit.logs import Log, Reader, seconds
from fedawe.availability.trace import Trace
from fedawe.core.errors import UserError
from fedawe.core.rng import rng

KEYS = ("round", "choose", "require")
NOW = "as now"


@dataclass(frozen=True)
class Scenario:
    """The results for one combination of round length, cohort and requirements."""

    round: str
    choose: str  # how many of the available clients the server asks, or "all"
    require: str
    rounds: int
    never: int  # clients that are never active
    clients: int
    updates_per_day: float | None  # None without a clock
    bias: Mapping[str, float]  # algorithm -> bias among clients that are ever active
    staleness: float  # mean t - tau over all clients and rounds
    multiplier: float  # of FedAWE's echoes
    advised: str
    empty: float  # share of rounds without any active client


def parse(words: Sequence[str]) -> dict[str, list[str]]:
    """`round=1h,3h choose=50,all require=charging` as lists of values.

    >>> parse(["round=1h,3h", "choose=50"])
    {'round': ['1h', '3h'], 'choose': ['50']}
    """
    out: dict[str, list[str]] = {}
    for word in words:
        key, equals, values = word.partition("=")
        if key not in KEYS or not equals or not all(values.split(",")):
            raise UserError(f"--what-if {word}: expected round=1h,3h or choose=50,all or require=charging,none")
        if key in out:
            raise UserError(f"--what-if: {key} is named twice; write {key}={','.join([*out[key], values])}")
        out[key] = values.split(",")
    for length in out.get("round", []):
        seconds(length, "--what-if round")
    for number in out.get("choose", []):
        if number != "all" and not (number.isascii() and number.isdigit() and int(number) > 0):
            raise UserError(f"--what-if choose={number}: expected a whole number from 1, or all")
    return out


def scenarios(
    reader: Reader,
    round_length: str | None,
    asked: Mapping[str, list[str]],
    algorithms: Mapping[str, Any],
) -> list[Scenario]:
    """The results for every combination of the given values; keys that are not given stay as they are."""
    found = []
    for require, length in itertools.product(asked.get("require", [NOW]), asked.get("round", [NOW])):
        other = reader if require == NOW else reader.requiring(() if require == "none" else require.split("+"))
        log = _in_rounds(other, round_length if length == NOW else length, length == NOW)
        for number in asked.get("choose", ["all"]):
            trace = log.trace if number == "all" else chosen(log.trace, int(number))
            found.append(_scenario(log, trace, length, number, require, algorithms))
    return found


def _in_rounds(reader: Reader, length: str | None, now: bool) -> Log:
    """The log in rounds of that length; for a trace it must be a multiple of its own length."""
    if now or reader.kind != "a trace":
        return reader.read(length)
    log = reader.read(None)
    if log.clock is None:
        raise UserError(f"{reader.path}: is a trace without a clock, for which --what-if round has no meaning")
    times = seconds(str(length)) / log.clock.round_seconds
    if times < 1 or abs(times - round(times)) > 1e-9:
        raise UserError(
            f"{reader.path}: is a trace with rounds of {log.clock.lasting(1)}; --what-if round={length} is no multiple"
        )
    return log.longer(round(times))


def chosen(trace: Trace, most: int) -> Trace:
    """The trace if the server asks at most `most` of the available clients, drawn uniformly in every round."""
    on = trace.on.copy()
    for t, row in enumerate(on):
        available = np.flatnonzero(row)
        if len(available) > most:
            on[t] = False
            on[t, rng(0, "audit", "choose", t).choice(available, most, replace=False)] = True
    out = Trace(on)
    return out if trace.known is None else out.knowing(trace.known)


def _scenario(
    log: Log, trace: Trace, length: str, number: str, require: str, algorithms: Mapping[str, Any]
) -> Scenario:
    echo, staleness, k, _ = echoes_of(trace.on)
    seen = np.asarray(trace.on.any(0))
    bias, found = {}, []
    for name, algorithm in algorithms.items():
        if needs_probabilities(algorithm):
            continue
        bias[name] = influence(algorithm, trace).among(seen)
        echoes = echo.multiplier(algorithm.max_echo) if isinstance(algorithm, FedAWE) else None
        found.append(Candidate(name, algorithm, bias[name], echoes))
    per_day = None if log.clock is None else 86400 / log.clock.round_seconds
    now = "" if log.clock is None else log.clock.lasting(1)
    return Scenario(
        round=now if length == NOW else length,
        choose=number,
        require=require,
        rounds=trace.rounds,
        never=int((~seen).sum()),
        clients=trace.clients,
        updates_per_day=None if per_day is None else float(k.mean() * per_day),
        bias=bias,
        staleness=staleness.mean,
        multiplier=echo.multiplier(),
        advised=choose(found).name if seen.any() and found else "none",
        empty=float((k == 0).mean()),
    )


def default_algorithms() -> dict[str, Any]:
    """Plain averaging, and the rules of the paper that need no probabilities."""
    return {name_of(make).lower(): make() for make in PAPER if not needs_probabilities(make)}
