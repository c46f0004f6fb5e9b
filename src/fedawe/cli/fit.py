"""`fedawe fit`: Fit a model of availability to a log, and draw longer or larger traces from it."""

import json
from collections.abc import Iterator
from dataclasses import asdict, dataclass

from rich.console import Console, RenderableType
from rich.table import Table

from fedawe.audit.logs import Log
from fedawe.audit.text import bars
from fedawe.availability.fit import DRAWS, Quality, fit, quality
from fedawe.availability.fit import Fit as Fitted
from fedawe.availability.trace import Trace
from fedawe.cli.reading import Reading
from fedawe.core.errors import UserError
from fedawe.core.files import new_folder
from fedawe.experiments.flags import File, Whole

VARIATION = ("persistence", "slow", "memory", "common", "common_memory", "waiting", "enrols", "leaves")


@dataclass(frozen=True)
class Fit(Reading):
    """Fit a model of availability to a log, compare it with held-out rounds, and draw a trace from it."""

    out: File = None
    """write a trace drawn from the model (.npz or .csv)"""
    rounds: Whole = None
    """number of rounds to draw (default: as many as the log has)"""
    clients: Whole = None
    """number of clients to draw (default: as in the log); additional clients take the rate of a client of the log,
    fewer clients are chosen at random from it"""
    seed: int = 0
    """seed of the drawn trace"""
    json: bool = False
    """print JSON and nothing else"""

    def run(self) -> None:
        """Fit the model, score it, and draw a trace if `out` is given."""
        if self.out is not None and self.out.suffix not in (".npz", ".csv"):
            raise UserError(f"{self.out}: a trace is written as .npz or .csv")
        if self.seed < 0:
            raise UserError(f"a seed is a whole number from 0, not {self.seed}")
        if self.out is None and (self.rounds is not None or self.clients is not None or self.seed):
            raise UserError("--rounds, --clients and --seed describe the trace that is drawn; give its file with --out")
        log = self.read()
        fitted, score = fit(log.trace, log.clock), quality(log.trace, log.clock, log.repeating)
        drawn = None if self.out is None else self._draw(fitted, log)
        if self.json:
            dynamics = fitted.dynamics
            told = {
                "clients": list(log.clients),
                "p": fitted.p.tolist(),
                "profile": dynamics.profile.tolist(),
                **{name: getattr(dynamics, name) for name in VARIATION},
                "findings": [asdict(finding) for finding in log.findings],
            }
            print(json.dumps({**told, "quality": None if score is None else asdict(score)}, allow_nan=False))
            return
        console = Console(highlight=False, markup=False)
        console.print(f"{self.name}: {log.trace}", style="bold", soft_wrap=True)
        for finding in log.findings:
            console.print(f"· {finding.text}", soft_wrap=True)
        for line in _model(fitted, log):
            console.print(line)
        console.print()
        for block in _scored(score, log):
            console.print(block)
        if drawn is not None:
            console.print(f"{self.out}: {drawn}", soft_wrap=True)

    def _draw(self, fitted: Fitted, log: Log) -> Trace:
        """Draw a trace and write it; an .npz keeps names and clock."""
        assert self.out is not None
        rounds = log.trace.rounds if self.rounds is None else self.rounds
        drawn = fitted.draw(rounds, self.clients, self.seed)
        new_folder(self.out.parent)
        if self.out.suffix == ".npz":
            known = [log.clients[i] for i in fitted.taken(self.clients, self.seed)[: len(log.clients)]]
            further = (f"further {n}" for n in range(1, drawn.clients - len(known) + 1))
            Log(drawn, (*known, *further), log.clock, ()).save(self.out)
        else:
            drawn.save(self.out)
        return drawn


def _model(fitted: Fitted, log: Log) -> Iterator[str]:
    profile, phi, p = fitted.dynamics.profile, fitted.dynamics.persistence, fitted.p
    if log.clock is None:
        yield f"p_i^t = p_i, p_i from {p.min():.3g} to {p.max():.3g}"
        yield "f is flat, because the hours of the rounds are not known; give the length of a round with --round"
    else:
        yield f"p_i^t = p_i f(hour), p_i from {p.min():.3g} to {p.max():.3g}"
        yield f"f, hours 0 to 23:  {bars(profile)}  {profile.min():.2f} to {profile.max():.2f}"
    yield f"persistence {phi:.3f}: from one round to the next"
    d = fitted.dynamics
    if log.clock is not None:
        yield f"slow state of a client: log-sd {d.slow:.2f}, coefficient {d.memory:.2f} from day to day"
        yield f"swings common to all: log-sd {d.common:.2f}, coefficient {d.common_memory:.2f} from hour to hour"
        yield (
            f"churn: {d.waiting:.1%} of clients enrol after the beginning ({d.enrols:.1%} a day of those), "
            f"{d.leaves:.2%} leave a day"
        )


def _scored(score: Quality | None, log: Log) -> Iterator[RenderableType]:
    if score is None:
        if log.repeating.all():
            yield "not scored: all clients repeat their days, so that no held-out day is new; give fewer --days"
        else:
            yield "not scored: the log has too few rounds to hold some out"
        return
    until = " (until a midnight)" if score.at_midnight else ""
    yield f"fitted to the first {score.fitted_rounds} rounds{until}, scored on the {score.held_out_rounds} that follow"
    if score.clients < log.trace.clients:
        yield f"clients scored: {score.clients}; the others repeat their days, so that no held-out day is new"
    bits = Table("model", "bits per client and round", box=None, padding=(0, 2, 0, 0))
    for name, value in score.bits.items():
        bits.add_row(name, f"{value:.4f}")
    yield bits
    rows = Table("held-out rounds", "real", f"{DRAWS} simulated", box=None, padding=(0, 2, 0, 0))
    for name, value in score.real.items():
        low, high = score.simulated[name]
        rows.add_row(name, f"{value:.4g}", f"{low:.4g} to {high:.4g}")
    yield rows
    beyond = ", ".join(score.outside)
    yield f"outside the range of the simulated rounds: {beyond}" if beyond else "all real values are within the ranges"


VERB = Fit
