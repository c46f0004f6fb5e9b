"""`fedawe theory`: what the paper's theory says about given probabilities, in numbers."""

import json
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
from rich.console import Console
from rich.table import Table

from fedawe.audit import theory
from fedawe.audit.as_json import plain
from fedawe.audit.fleet import describe
from fedawe.audit.logs import counted
from fedawe.availability.dynamics import DYNAMICS, Array, Dynamics
from fedawe.availability.trace import Trace
from fedawe.core.errors import UserError
from fedawe.experiments import names
from fedawe.experiments.flags import File, Numbers, Whole

SMALL = 8  # clients up to which M is printed


@dataclass(frozen=True)
class Theory:
    """Print mixing, staleness, learning-rate conditions, bounds and costs, with the paper's lines and tighter ones."""

    p: Numbers = (0.1,)
    """base probabilities: one for all clients or one for each"""
    clients: Whole = None
    """how many (default: as many as p has, or 100)"""
    dynamics: str = "stationary"
    """stationary, staircase, sine, interleaved, with options as in sine:gamma=0.2,period=40"""
    trace: File = None
    """take the rates of a trace (.npz or .csv) instead, and what its rho really was"""
    rounds: int = 2000
    """T"""
    steps: int = 10
    """s, local steps"""
    smoothness: float = 1.0
    """L"""
    beta: float = 0.0
    """of Assumption 4: gradients of clients against that of all"""
    sigma: float = 1.0
    """standard deviation of stochastic gradients"""
    zeta: float = 1.0
    """of Assumption 4: divergence of clients' gradients"""
    gap: float = 1.0
    """F(x0) - F*"""
    parameters: int = 273_706
    """d, for memory and bytes sent (default: the paper's network for SVHN)"""
    json: bool = False
    """print JSON and nothing else"""

    def run(self) -> None:
        """Compute and tell."""
        told = self.numbers()
        if self.json:
            print(json.dumps(plain(told), allow_nan=False))
            return
        console = Console(highlight=False, markup=False)
        for table in _tables(told):
            console.print(table)
            console.print()

    def numbers(self) -> dict[str, Any]:
        """All of it."""
        if self.rounds < 1 or self.parameters < 1:
            raise UserError(f"rounds and parameters must be at least 1, not {self.rounds} and {self.parameters}")
        trace = None if self.trace is None else self._recorded()
        p = self._probabilities() if trace is None else trace.on.mean(0)[None]  # [T', m]
        m, delta = p.shape[1], float(p.min())
        worst, exact = theory.worst_round(p)
        found: dict[str, Any] = {
            "m": m,
            "delta": delta,
            "delta_max": float(p.max()),
            "rho": {"exact": exact, "round": worst, **_rho(p, delta, trace)},
            "M": theory.Mixing.of(p[worst]).matrix() if m <= SMALL else None,
            "staleness": self._staleness(p, delta),
            "rates": {},
            "smallest_T": {},
            "bounds": {},
            "costs": self._costs(p, trace),
        }
        if delta > 0:
            for name in ("exact", "delta", "paper"):
                rho = found["rho"][name]
                problem = theory.Problem(
                    m,
                    delta,
                    rho,
                    self.steps,
                    self.smoothness,
                    self.beta,
                    found["delta_max"],
                    self.sigma,
                    self.zeta,
                    self.gap,
                )
                found["smallest_T"][name] = problem.smallest_T()
                if name == "exact":
                    eta_l, eta_g = problem.corollary_1(self.rounds)
                    found["rates"] = {
                        "T": self.rounds,
                        "eta_l": eta_l,
                        "eta_g": eta_g,
                        "largest": problem.largest_rates(),
                    }
                    found["bounds"] = {of: problem.bound(self.rounds, eta_l, eta_g, of) for of in theory.CONSTANTS}
        return found

    def _recorded(self) -> Trace:
        """The trace, which says what the flags of probabilities would."""
        assert self.trace is not None
        for flag in ("p", "clients", "dynamics"):
            if getattr(self, flag) != getattr(Theory, flag):
                raise UserError(f"--trace says who was there; leave out --{flag}")
        return Trace.load(self.trace)

    def _probabilities(self) -> Array:
        m = self.clients if self.clients is not None else len(self.p) if len(self.p) > 1 else 100
        if m < 1 or len(self.p) not in (1, m):
            raise UserError(f"p has {len(self.p)} numbers for {m} clients; give one for all or one for each")
        if not all(0 <= p <= 1 for p in self.p):
            raise UserError(f"p is {' '.join(map(str, self.p))}; expected probabilities in [0, 1]")
        spec = names.parse(self.dynamics, "availability", DYNAMICS)
        if spec.name in ("markov", "cyclic"):
            raise UserError(
                f"rounds of {spec.name} depend on each other, which Assumption 1 excludes; draw a trace and use --trace"
            )
        dynamics = spec.build()
        out: Array = dynamics.probabilities(np.arange(self.rounds), np.broadcast_to(self.p, m))
        return out

    def _staleness(self, p: Array, delta: float) -> dict[str, Any]:
        long = p if len(p) > 1 else np.broadcast_to(p, (self.rounds, p.shape[1]))
        first, second = theory.staleness(long)
        bounds = theory.staleness_bounds(delta) if delta > 0 else (float("inf"), float("inf"))
        return {
            "mean": float(first.max()),
            "square": float(second.max()),
            "mean_bound": bounds[0],
            "square_bound": bounds[1],
        }

    def _costs(self, p: Array, trace: Trace | None) -> dict[str, Any]:
        m, k = p.shape[1], float(p.mean(0).sum())
        fleet = describe(Trace.draw(_As(p), np.ones(m), min(self.rounds, 2000), seed=0) if trace is None else trace)
        versions = int(fleet.live_versions.max())
        d = self.parameters
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
    """Given probabilities [T', m] as dynamics; the last row goes on."""

    given: Array

    def trajectory(self, t: npt.NDArray[np.int64], p: Array) -> Array:
        return np.asarray(self.given[np.minimum(t[..., 0], len(self.given) - 1)] * p)


def _rho(p: Array, delta: float, trace: Trace | None) -> dict[str, Any]:
    m = p.shape[1]
    equal = float(np.ptp(p, axis=1).max()) == 0
    return {
        "trace": theory.rho_of_trace(trace) if trace is not None and m <= theory.DENSE else None,
        "equal": max(theory.rho_equal(float(row[0]), m) for row in np.unique(p, axis=0)) if equal else None,
        "delta": theory.rho_simple(delta),
        "paper": theory.rho_paper(delta, m),
    }


def _tables(told: dict[str, Any]) -> list[Table]:
    out = [_mixing(told), _stale(told)]
    if told["M"] is not None:
        out.insert(1, _matrix(told["M"], told["rho"]["round"]))
    return [*out, *([_rates(told), _bounds(told)] if told["rates"] else []), _cost_table(told["costs"])]


def _table(title: str, *columns: str) -> Table:
    table = Table(*columns, title=title, title_justify="left", title_style="bold", box=None, padding=(0, 2, 0, 0))
    table.columns[0].no_wrap = True
    return table


def _mixing(told: dict[str, Any]) -> Table:
    rho, m = told["rho"], told["m"]
    table = _table(f"Mixing of {counted(m, 'client')}, delta = {told['delta']:.4g}", "", "rho", "")
    table.add_row("exact, independent clients", _digits(rho["exact"]), "lambda_2 of M = E[W^2] = E[W] (lines 464, 493)")
    if rho["trace"] is not None:
        table.add_row("in this trace", _digits(rho["trace"]), "lambda_2 of the mean of W, whatever depends on what")
    if rho["equal"] is not None:
        table.add_row("+ equal p, closed form", _digits(rho["equal"]), "(1 - p) (m - (1 - p)^(m-1)) / (m - 1)")
    table.add_row("+ bound", _digits(rho["delta"]), "1 - delta^2")
    table.add_row("paper's bound, Lemma 4", _digits(rho["paper"]), "1 - delta^4 (1 - (1 - delta)^m)^2 / 8 (line 807)")
    if told["delta"] == 0:
        table.caption = "delta = 0: Assumption 1 (line 256) fails, and with it every bound that follows"
        table.caption_justify = "left"
    return table


def _matrix(M: Array, t: int) -> Table:
    table = _table(f"M in round {t}, whose rho that is", *[""] * len(M))
    for row in M:
        table.add_row(*(f"{entry:.4f}" for entry in row))
    return table


def _stale(told: dict[str, Any]) -> Table:
    s = told["staleness"]
    table = _table("Staleness, the worst client in the worst round", "", "exact", "Lemma 2 (line 674)")
    table.add_row("E[t - tau]", f"{s['mean']:.4g}", f"{s['mean_bound']:.4g} = 1/delta")
    table.add_row("E[(t - tau)^2]", f"{s['square']:.4g}", f"{s['square_bound']:.4g} = 2/delta^2")
    return table


def _rates(told: dict[str, Any]) -> Table:
    rates = told["rates"]
    chosen = f"eta_l = {rates['eta_l']:.3g}, eta_g = {rates['eta_g']:.3g}"
    table = _table(
        f"Learning rates; Corollary 1 (line 926) takes {chosen} for T = {rates['T']}",
        "condition",
        "eta_l eta_g at most",
        "eta_l at most",
        "Corollary 1 meets it",
    )
    step = rates["eta_l"] * rates["eta_g"]
    for name, (both, local) in rates["largest"].items():
        met = "yes" if step <= both and rates["eta_l"] <= local else "no"
        table.add_row(name, f"{both:.3g}", f"{local:.3g}", met)
    T = told["smallest_T"]
    table.caption = (
        f"+ it meets (11) from T = {T['exact']:.2g} on with the exact rho ({T['delta']:.2g} with 1 - delta^2, "
        f"{T['paper']:.2g} with the paper's bound); the paper says from T = 1 (line 928)"
    )
    table.caption_justify = "left"
    return table


def _bounds(told: dict[str, Any]) -> Table:
    title = "Bounds on the means of ||grad F||^2 and, last, of ||x_i - x-bar||^2 at these rates"
    table = _table(title, "", "start", "noise", "mixing", "zeta", "sum")
    for of, name in (
        ("z-bar", "z-bar (Thm 1, line 3827)"),
        ("x-bar", "x-bar (Cor 2, line 3976)"),
        ("x_i", "x_i (Cor 3, line 4182)"),
    ):
        terms = told["bounds"][of]
        table.add_row(name, *(f"{term:.3g}" for term in (*terms, sum(terms))))
    unproven = [
        *(["do not meet (11)"] if told["rates"]["T"] < told["smallest_T"]["exact"] else []),
        *(["have eta_g below 1"] if told["rates"]["eta_g"] < 1 else []),
    ]
    if unproven:
        why = " and ".join(unproven)
        table.caption = f"the rates {why}, so that these numbers are not proven; they show what dominates"
        table.caption_justify = "left"
    return table


def _cost_table(costs: dict[str, Any]) -> Table:
    title = (
        f"Memory and traffic for d = {costs['d']:,} (4 bytes each), {costs['k']:.1f} clients in a round, "
        f"{costs['live_versions']} live versions at most"
    )
    table = _table(title, "", "server keeps", "each client keeps", "sent in a round")
    for name, cost in costs.items():
        if isinstance(cost, dict):
            keeps = (cost["server_bytes"], cost["client_bytes"], cost["round_bytes"])
            table.add_row(name, *(_bytes(n) for n in keeps))
    return table


def _digits(value: float) -> str:
    """As many digits as it takes to tell it from 1."""
    return f"{value:.4f}" if value < 0.999 else f"1 - {1 - value:.3g}" if value < 1 else "1"


def _bytes(n: float) -> str:
    for unit in ("B", "kB", "MB", "GB"):
        if n < 1000 or unit == "GB":
            return f"{n:.3g} {unit}"
        n /= 1000
    raise AssertionError


VERB = Theory
