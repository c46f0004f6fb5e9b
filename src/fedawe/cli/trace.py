"""`fedawe trace`: Draw, show and check traces."""

import io
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import numpy as np
import tyro
from matplotlib.figure import Figure
from rich.console import Console
from rich.table import Table

from fedawe.availability.dynamics import DYNAMICS, as_base_probabilities, class_weights
from fedawe.availability.trace import Trace
from fedawe.core.errors import UserError
from fedawe.core.files import new_folder, write_atomically
from fedawe.core.rng import rng
from fedawe.experiments import names
from fedawe.experiments.flags import File, Number, Numbers

SHADES = " ░▒▓█"


@dataclass(frozen=True)
class Draw:
    """Draw a trace from one of the dynamics, and write it."""

    out: tyro.conf.Positional[Path]
    """file of the trace: .npz (keeps the probabilities) or .csv"""
    dynamics: str = "sine"
    """stationary, staircase, sine, interleaved, markov, cyclic, outages, with options as in sine:gamma=0.2,period=40"""
    p: Numbers = ()
    """base probabilities: one for all or one for each client (default: the paper's rule, with one class per client)"""
    clients: int = 100
    """number of clients"""
    rounds: int = 300
    """number of rounds"""
    seed: int = 0
    """seed of the drawn trace"""

    def run(self) -> None:
        """Draw the trace, write it, and print a summary."""
        spec = names.parse(self.dynamics, "availability", DYNAMICS)
        if self.clients < 1:
            raise UserError(f"clients is {self.clients}; expected a whole number from 1")
        if len(self.p) not in (0, 1, self.clients):
            raise UserError(f"p has {len(self.p)} numbers for {self.clients} clients; give one for all or one for each")
        if self.out.suffix not in (".npz", ".csv"):
            raise UserError(f"{self.out}: a trace is written as .npz or .csv")
        if self.seed < 0:
            raise UserError(f"a seed is a whole number from 0, not {self.seed}")
        phi = class_weights(10, rng(self.seed, "phi"))
        p = as_base_probabilities(self.p) if self.p else tuple(phi[np.arange(self.clients) % 10])
        trace = Trace.draw(spec.build(), np.broadcast_to(p, self.clients), self.rounds, self.seed)
        new_folder(self.out.parent)
        trace.save(self.out)
        print(trace)


@dataclass(frozen=True)
class Show:
    """Show the availability of clients over the rounds."""

    path: tyro.conf.Positional[Path]
    """.npz or .csv"""
    round_seconds: Number = None
    """length of a round, for intervals in seconds"""
    plot: File = None
    """also draw the stripes as this .png, .pdf or .svg"""

    def run(self) -> None:
        """Print a summary and stripes: a row per client or group of clients, with time to the right."""
        trace = Trace.load(self.path, round_seconds=self.round_seconds)
        drawn = None if self.plot is None else picture(trace, self.plot)
        console = Console(highlight=False, markup=False)
        console.print(str(trace))
        for line in stripes(trace, width=max(20, min(console.width - 14, 120)), height=20):
            console.print(line)
        watched, echoes = trace.known_rounds(), trace.echoes()
        rates = trace.on.sum(0)[watched > 0] / watched[watched > 0]
        table = Table("", "least", "median", "most", box=None)
        if len(rates):
            which = "rounds" if trace.known is None else "known rounds"
            table.add_row(f"share of {which} available", *(f"{q:.3f}" for q in np.quantile(rates, (0, 0.5, 1))))
        table.add_row("clients in a round", *(f"{q:.0f}" for q in np.quantile(trace.on.sum(1), (0, 0.5, 1))))
        if len(echoes):
            table.add_row("rounds since last available", *(f"{q:.0f}" for q in np.quantile(echoes, (0, 0.5, 1))))
        console.print(table)
        if self.plot is not None and drawn is not None:
            write_atomically(self.plot, drawn)
            console.print(f"stripes in {self.plot}")


@dataclass(frozen=True)
class Check:
    """Check that a file is a valid trace."""

    path: tyro.conf.Positional[Path]
    """.npz or .csv"""
    round_seconds: Number = None
    """length of a round, for intervals in seconds"""

    def run(self) -> None:
        """Read the trace; an error names the file and the line."""
        print(f"{self.path}: {Trace.load(self.path, round_seconds=self.round_seconds)}")


def stripes(trace: Trace, width: int, height: int) -> list[str]:
    """The trace as lines of characters; a darker one means that more of its clients were available in its rounds."""
    rows = np.array_split(np.arange(trace.clients), min(height, trace.clients))
    columns = np.array_split(np.arange(trace.rounds), min(width, trace.rounds))
    out = []
    for row in rows:
        share = [trace.on[np.ix_(column, row)].mean() for column in columns]
        name = f"{row[0]}" if len(row) == 1 else f"{row[0]}-{row[-1]}"
        out.append(f"{name:>11}  " + "".join(SHADES[int(np.ceil(s * (len(SHADES) - 1)))] for s in share))
    return out


def picture(trace: Trace, path: Path) -> bytes:
    """The stripes as the content of an image file; the path names its format."""
    if path.suffix not in (".png", ".pdf", ".svg"):
        raise UserError(f"{path}: a picture is a .png, .pdf or .svg")
    figure = Figure(figsize=(8, 3), layout="constrained")  # no window, whatever the platform
    trace.plot(figure.add_subplot())
    buffer = io.BytesIO()
    figure.savefig(buffer, format=path.suffix[1:], dpi=150)
    return buffer.getvalue()


VERB = (
    Annotated[Draw, tyro.conf.subcommand("draw")]
    | Annotated[Show, tyro.conf.subcommand("show")]
    | Annotated[Check, tyro.conf.subcommand("check")]
)
