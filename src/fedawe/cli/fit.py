"""`fedawe fit`: a model of a fleet, and longer or larger fleets like it."""

import json
from dataclasses import asdict, dataclass

from rich.console import Console
from rich.table import Table

from fedawe.cli.audit_text import bars
from fedawe.cli.reading import Reading
from fedawe.errors import UserError
from fedawe.files import new_folder
from fedawe.fit import Quality, fit, quality
from fedawe.flags import File, Whole


@dataclass(frozen=True)
class Fit(Reading):
    """Fit a model of comings and goings to a log, say how well it fits days held out, and draw a trace from it."""

    out: File = None
    """write a trace drawn from the model (.npz or .csv)"""
    rounds: Whole = None
    """how many to draw (default: as many as the log has)"""
    clients: Whole = None
    """how many to draw (default: as in the log); further ones take the rate of one of them"""
    seed: int = 0
    """of the draw"""
    json: bool = False
    """print JSON and nothing else"""

    def run(self) -> None:
        """Fit, score, draw."""
        if self.out is not None and self.out.suffix not in (".npz", ".csv"):
            raise UserError(f"{self.out}: a trace is written as .npz or .csv")
        if self.seed < 0:
            raise UserError(f"a seed is a whole number from 0, not {self.seed}")
        log = self.read()
        fitted, score = fit(log.trace, log.clock), quality(log.trace, log.clock)
        profile, phi = fitted.dynamics.profile, fitted.dynamics.persistence
        drawn = None
        if self.out is not None:
            drawn = fitted.draw(log.trace.rounds if self.rounds is None else self.rounds, self.clients, self.seed)
            new_folder(self.out.parent)
            drawn.save(self.out)
        if self.json:
            told = {"p": fitted.p.tolist(), "profile": profile.tolist(), "persistence": phi}
            print(json.dumps({**told, "quality": None if score is None else asdict(score)}, allow_nan=False))
            return
        console = Console(highlight=False, markup=False)
        console.print(f"{self.path.name}: {log.trace}", style="bold", soft_wrap=True)
        console.print(f"p_i^t = p_i f(hour), p_i from {fitted.p.min():.3g} to {fitted.p.max():.3g}")
        console.print(f"f, hours 0 to 23:  {bars(profile)}  {profile.min():.2f} to {profile.max():.2f}")
        console.print(f"persistence {phi:.3f}: from one round to the next")
        if score is None:
            console.print("too few rounds to hold any out: nothing says how well it fits")
        else:
            console.print()
            for table in _scores(score):
                console.print(table)
        if drawn is not None:
            console.print(f"{self.out}: {drawn}", soft_wrap=True)


def _scores(score: Quality) -> tuple[Table, Table]:
    title = f"fitted to {score.fitted_rounds} rounds ({score.unit}), scored on the {score.held_out_rounds} that follow"
    bits = Table(
        "model", "bits per client and round", title=title, box=None, title_justify="left", padding=(0, 2, 0, 0)
    )
    for name, value in score.bits.items():
        bits.add_row(name, f"{value:.4f}")
    rows = Table("those rounds", "real", "simulated", box=None, padding=(0, 2, 0, 0))
    for name, value in score.real.items():
        low, high = score.simulated[name]
        rows.add_row(name, f"{value:.4g}", f"{low:.4g} to {high:.4g}")
    return bits, rows
