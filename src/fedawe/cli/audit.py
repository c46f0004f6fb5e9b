"""`fedawe audit`: who will count, before anyone trains."""

import json
import shlex
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from rich.console import Console

from fedawe.algorithms.facts import with_probabilities
from fedawe.audit import Audit as Found
from fedawe.audit import audit, read_roster
from fedawe.audit.as_json import as_json
from fedawe.audit.logs import Log
from fedawe.audit.page import write_page
from fedawe.audit.text import told
from fedawe.cli.reading import Reading
from fedawe.core.errors import UserError
from fedawe.core.files import new_folder
from fedawe.experiments.build import algorithm_spec, build_algorithm
from fedawe.experiments.flags import File, Names


@dataclass(frozen=True)
class Audit(Reading):
    """Say from a log of check-ins whom each algorithm would count how much, what the fleet is like, and what to run."""

    algorithms: Names = ()
    """which, with options as in fedawe:max_echo=100 or fedau:K=20 (default: all eight)"""
    groups: File = None
    """CSV with a column of clients and a column 'group', or a column of label counts for each class"""
    html: File = None
    """also write a page"""
    save: File = None
    """also write the fleet as a trace (.npz), for `fedawe run --dynamics`"""
    json: bool = False
    """print JSON and nothing else"""

    def run(self) -> None:
        """Read, audit, tell."""
        if self.save is not None and self.save.suffix != ".npz":
            raise UserError(f"{self.save}: a trace with names and a clock is written as .npz")
        if self.html is not None and (self.html.is_dir() or self.html.name == ""):
            raise UserError(f"{self.html}: is a folder; --html takes the name of a file")
        roster = None if self.groups is None else read_roster(self.groups, self.client_column)
        log = self.read(() if roster is None else roster.clients)
        found = audit(log, algorithms=self._chosen(log), groups=roster)
        if self.save is not None:
            new_folder(self.save.parent)
            log.save(self.save)
        if self.html is not None:
            new_folder(self.html.parent)
            write_page(found, self.html, title=self.path.name)
        if self.json:
            print(json.dumps(as_json(found), allow_nan=False))
            return
        console = Console(highlight=False, markup=False)
        for block in told(found, self.path):
            console.print(block)
            console.print()
        console.print("Simulate it:", style="bold")
        for command in self._commands(found):
            console.print(f"  {command}", soft_wrap=True)
        if self.html is not None:
            console.print(f"page: {self.html}", soft_wrap=True)

    def _chosen(self, log: Log) -> dict[str, object] | None:
        if not self.algorithms:
            return None
        out: dict[str, object] = {}
        for text in self.algorithms:
            spec = algorithm_spec(text)
            p = log.trace.p
            p = np.broadcast_to(log.trace.on.mean(0), log.trace.on.shape) if p is None else p
            if spec.label in out:
                raise UserError(f"the algorithm {text!r} is named twice")
            out[spec.label] = with_probabilities(build_algorithm(spec), p)
        return out

    def _commands(self, found: Found) -> Iterator[str]:
        trace = self.save or (self.path if self.path.suffix == ".npz" else None)
        if trace is None:
            trace = Path("fleet.npz")
            with_groups = "" if self.groups is None else f" --groups {shlex.quote(str(self.groups))}"
            yield f"fedawe audit {self.again()}{with_groups} --save {trace}"
        typed = {algorithm_spec(text).label: text for text in self.algorithms}
        advised = found.advice.algorithm
        names = dict.fromkeys([typed.get(advised, advised), "fedavg", "fedawe"])
        yield f"fedawe run --dynamics {shlex.quote(str(trace))} --algorithms {shlex.join(names)}"
        yield f"fedawe fit {self.again()} --out longer.npz --rounds 2000 --clients {max(2 * found.fleet.clients, 100)}"


VERB = Audit
