"""The numbers that `fedawe theory` prints, for given probabilities or for a trace."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from fedawe.audit import theory
from fedawe.audit.assumption import rounds_depend
from fedawe.audit.fleet import describe
from fedawe.availability.dynamics import Array, Dynamics
from fedawe.availability.trace import Trace
from fedawe.core.errors import UserError

SMALL = 8  # with more clients, M is not printed
ROUNDS = 2000  # default for given probabilities


def numbers(asked: Any, defaults: Mapping[str, Any], build: Callable[[str], Any]) -> dict[str, Any]:
    """The numbers for the flags `asked`.

    defaults   the defaults of the flags that are not allowed together with a trace
    build      makes dynamics from a name with options

    Clients of a trace that are never available are left out and counted, since every bound is infinite for them. Rates
    are computed from the rounds in which it is known which clients were available; algorithms treat unknown as
    unavailable.
    """
    trace = None if asked.trace is None else _recorded(asked, defaults)
    never, unknown = 0, 0.0
    if trace is not None:
        active = trace.on.any(0)
        never = int((~active).sum())
        if not active.any():
            raise UserError(f"{asked.trace}: no client is available in any round")
        known = np.ones_like(trace.on) if trace.known is None else trace.known
        trace = Trace(trace.on[:, active]).knowing(np.ascontiguousarray(known[:, active]))
        unknown = 1 - float(trace.known_rounds().mean()) / trace.rounds
    rounds = asked.rounds if asked.rounds is not None else ROUNDS if trace is None else trace.rounds
    if rounds < 1 or asked.parameters < 1:
        raise UserError(f"rounds and parameters must be at least 1, not {rounds} and {asked.parameters}")
    p = _probabilities(asked, rounds, build) if trace is None else _shares(trace)  # [T', m]
    m, delta = p.shape[1], float(p.min())
    worst, exact = theory.worst_round(p)
    found: dict[str, Any] = {
        "m": m,
        "never": never,
        "unknown": unknown,
        "delta": delta,
        "delta_max": float(p.max()),
        "rho": {"exact": exact, "round": worst, **_rho(p, delta, trace)},
        "M": theory.Mixing.of(p[worst]).matrix() if m <= SMALL else None,
        "staleness": _staleness(p, delta, rounds),
        "trace": None if trace is None else _measured(trace),
        "rates": {},
        "smallest_T": {},
        "bounds": {},
        "costs": _costs(p, trace, rounds, asked.parameters),
    }
    constants = (asked.steps, asked.smoothness, asked.beta, found["delta_max"], asked.sigma, asked.zeta, asked.gap)
    for name in ("exact", "delta", "paper") if delta > 0 else ():
        problem = theory.Problem(m, delta, found["rho"][name], *constants)
        found["smallest_T"][name] = problem.smallest_T()
        if name == "exact":
            eta_l, eta_g = problem.corollary_1(rounds)
            found["rates"] = {"T": rounds, "eta_l": eta_l, "eta_g": eta_g, "largest": problem.largest_rates()}
            found["bounds"] = {of: problem.bound(rounds, eta_l, eta_g, of) for of in theory.CONSTANTS}
    return found


def _recorded(asked: Any, defaults: Mapping[str, Any]) -> Trace:
    """The trace; refuses flags for probabilities, which a trace replaces."""
    for flag, default in defaults.items():
        if getattr(asked, flag) != default:
            raise UserError(f"--trace says which clients were available; omit --{flag}")
    trace = Trace.load(asked.trace)
    return trace if asked.rounds is None else trace.first(asked.rounds)


def _shares(trace: Trace) -> Array:
    """The share of its known rounds in which each client is available, [1, m]."""
    return np.asarray(trace.on.sum(0) / trace.known_rounds())[None]


def _probabilities(asked: Any, rounds: int, build: Callable[[str], Any]) -> Array:
    """The probabilities of all rounds and clients that the flags describe, [T, m]."""
    m = asked.clients if asked.clients is not None else len(asked.p) if len(asked.p) > 1 else 100
    if m < 1:
        raise UserError(f"clients is {m}; expected a whole number from 1")
    if len(asked.p) not in (1, m):
        raise UserError(f"p has {len(asked.p)} numbers for {m} clients; give one for all or one for each")
    if not all(0 <= p <= 1 for p in asked.p):
        raise UserError(f"p is {' '.join(map(str, asked.p))}; expected probabilities in [0, 1]")
    dynamics, name = build(asked.dynamics), asked.dynamics.partition(":")[0]
    for fact, what in (("independent_rounds", "rounds"), ("independent_clients", "clients")):
        if not getattr(dynamics, fact, True):
            raise UserError(
                f"{what} of {name} depend on each other, which Assumption 1 excludes; draw a trace and use --trace"
            )
    out: Array = dynamics.probabilities(np.arange(rounds), np.broadcast_to(asked.p, m))
    return out


def _rho(p: Array, delta: float, trace: Trace | None) -> dict[str, Any]:
    m = p.shape[1]
    equal = float(np.ptp(p, axis=1).max()) == 0
    return {
        "trace": theory.rho_of_trace(trace) if trace is not None and m <= theory.DENSE else None,
        "equal": max(theory.rho_equal(float(row[0]), m) for row in np.unique(p, axis=0)) if equal else None,
        "delta": theory.rho_simple(delta),
        "paper": theory.rho_paper(delta, m),
    }


def _staleness(p: Array, delta: float, rounds: int) -> dict[str, Any]:
    """The largest moments of staleness for independent rounds, and their bounds."""
    long = p if len(p) > 1 else np.broadcast_to(p, (rounds, p.shape[1]))
    first, second = theory.staleness(long)
    bounds = theory.staleness_bounds(delta) if delta > 0 else (float("inf"), float("inf"))
    return {
        "mean": float(first.max()),
        "square": float(second.max()),
        "mean_bound": bounds[0],
        "square_bound": bounds[1],
    }


def _measured(trace: Trace) -> dict[str, Any]:
    """The largest moments of staleness of a client in the trace, and the dependence between rounds."""
    first, second = theory.staleness_of_trace(trace)
    fleet = describe(trace)
    return {
        "mean": float(first.max()),
        "square": float(second.max()),
        "persistence": fleet.persistence,
        "dependent": rounds_depend(fleet),
    }


def _costs(p: Array, trace: Trace | None, rounds: int, d: int) -> dict[str, Any]:
    m = p.shape[1]
    fleet = describe(Trace.draw(_As(p), np.ones(m), min(rounds, ROUNDS), seed=0) if trace is None else trace)
    versions = int(fleet.live_versions.max())
    k = float(p.mean(0).sum()) if trace is None else float(fleet.k.mean())
    return {
        name: {
            "server_bytes": 4 * d * cost.server + 8 * cost.scalars,
            "client_bytes": 4 * d * cost.client,
            "round_bytes": 4 * d * (cost.down + cost.up),
        }
        for name, cost in theory.costs(m, k, versions).items()
    } | {"live_versions": versions, "k": k, "d": d}


@dataclass(frozen=True)
class _As(Dynamics):
    """Given probabilities [T', m] as dynamics; the last row is repeated for later rounds."""

    given: Array

    def trajectory(self, t: npt.NDArray[np.int64], p: Array) -> Array:
        return np.asarray(self.given[np.minimum(t[..., 0], len(self.given) - 1)] * p)
