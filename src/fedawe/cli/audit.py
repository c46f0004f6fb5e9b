"""`fedawe audit`: Say from a log how much influence each client would have, and what to run, before any training."""

import json
import shlex
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from fedawe.cli.reading import Reading
from fedawe.core.errors import UserError
from fedawe.core.files import new_folder, write_atomically
from fedawe.experiments.flags import File, Names, Word

if TYPE_CHECKING:
    from fedawe.audit import Audit as Found
    from fedawe.audit import Roster
    from fedawe.audit.gate import Result
    from fedawe.audit.logs import Log, Reader


@dataclass(frozen=True)
class Audit(Reading):
    """Say from a log how much influence each client would have under each algorithm, and what to run."""

    algorithms: Names = ()
    """which, with options as in fedawe:max_echo=100 or fedau:K=20 (default: all eight)"""
    groups: File = None
    """CSV with a column of clients and a column 'group', or a column of label counts for each class; columns
    'enrolled' and 'left' say when a client belonged to the fleet"""
    what_if: Names = ()
    """one row of numbers for each combination, as in round=1h,3h choose=50,all require=charging,none"""
    against: File = None
    """compare with this log, which is read with the same flags: who vanished, who appeared, what changed"""
    split: Word = None
    """compare what is before this date with what follows"""
    fail_if: Names = ()
    """exit with code 3 if this holds, as in 'fedavg.bias > 0.2' or 'group.rare.share < 0.5'"""
    junit: File = None
    """also write the result of --fail-if as a JUnit file"""
    github: bool = False
    """print the result of --fail-if as annotations for GitHub Actions"""
    html: File = None
    """also write a page"""
    save: File = None
    """also write the fleet as a trace (.npz) with the labels of its clients, for `fedawe run`"""
    json: bool = False
    """print JSON and nothing else"""

    def run(self) -> None:
        """Read, audit, tell."""
        from fedawe.audit import audit, read_roster
        from fedawe.audit.gate import Condition, judged

        self._check()
        conditions = [Condition.parse(text) for text in self.fail_if]
        roster = None if self.groups is None else read_roster(self.groups, self.client_column)
        reader = self.reader(*(() if roster is None else (roster.clients, roster.enrolled)))
        log = reader.read(self.round_length)
        found = audit(log, algorithms=self._chosen(), groups=roster)
        results = judged(found, conditions)
        more = self._more(reader, log, roster)
        if self.save is not None:
            new_folder(self.save.parent)
            log.save(self.save, **self._labels(found))
        if self.html is not None:
            from fedawe.audit.page import write_page

            new_folder(self.html.parent)
            write_page(found, self.html, more.get("what_if", ()), more.get("change"))
        self._tell(found, results, more)
        self._gate(results)

    def _check(self) -> None:
        if self.save is not None and self.save.suffix != ".npz":
            raise UserError(f"{self.save}: a trace with names and a clock is written as .npz")
        if self.html is not None and (self.html.is_dir() or self.html.name == ""):
            raise UserError(f"{self.html}: is a folder; --html takes the name of a file")
        if self.against is not None and self.split is not None:
            raise UserError("--against compares with another log and --split within one; omit one of them")
        if (self.junit is not None or self.github) and not self.fail_if:
            raise UserError("--junit and --github tell the result of --fail-if; say what must not be")

    def _more(self, reader: "Reader", log: "Log", roster: "Roster | None") -> dict[str, Any]:
        """What was asked for besides: what-if and two periods."""
        from dataclasses import replace

        from fedawe.audit import periods, whatif

        out: dict[str, Any] = {}
        if self.what_if:
            algorithms = self._chosen() or whatif.default_algorithms()
            out["what_if"] = whatif.scenarios(reader, self.round_length, whatif.parse(self.what_if), algorithms)
        if self.split is not None:
            out["change"] = periods.compare(*periods.split(log, self.split), roster)
            out["names"] = (f"the time before {self.split}", "the time after")
        if self.against is not None:
            other = replace(reader, paths=(self.against,)).read(self.round_length)
            out["change"] = periods.compare(log, other, roster)
            out["names"] = (self.name, self.against.name)
        return out

    def _tell(self, found: "Found", results: "list[Result]", more: dict[str, Any]) -> None:
        from rich.console import Console

        from fedawe.audit import text
        from fedawe.audit.as_json import as_json, plain

        if self.json:
            told = as_json(found, more.get("what_if", ()), more.get("change"))
            gate = [{"condition": r.condition.text, "value": r.value, "failed": r.failed} for r in results]
            told["gate"] = plain(gate)
            print(json.dumps(told, allow_nan=False))
            return
        console = Console(highlight=False, markup=False)
        blocks = list(text.sections(found, self.name))
        if "what_if" in more:
            blocks.insert(1, text.what_if(more["what_if"]))
        if "change" in more:
            blocks.insert(1, text.change(more["change"], more["names"]))
        for block in blocks:
            console.print(block)
            console.print()
        console.print("Simulate it:", style="bold")
        for command in self._commands(found):
            console.print(f"  {command}", soft_wrap=True)
        if self.html is not None:
            console.print(f"page: {self.html}", soft_wrap=True)

    def _gate(self, results: "list[Result]") -> None:
        from fedawe.audit.gate import FAILED, annotations, junit

        if self.junit is not None:
            new_folder(self.junit.parent)
            write_atomically(self.junit, junit(results, self.name).encode())
        if self.github:
            print("\n".join(annotations(results)), file=sys.stderr if self.json else sys.stdout)
        failed = [result for result in results if result.failed]
        if failed:
            print(f"fedawe: gate: {'; '.join(result.sentence for result in failed)}", file=sys.stderr)
            sys.exit(FAILED)

    def _chosen(self) -> dict[str, object] | None:
        from fedawe.experiments.build import algorithm_spec, build_algorithm

        if not self.algorithms:
            return None
        out: dict[str, object] = {}
        for text in self.algorithms:
            spec = algorithm_spec(text)
            if spec.label in out:
                raise UserError(f"the algorithm {text!r} is named twice")
            out[spec.label] = build_algorithm(spec)
        return out

    def _labels(self, found: "Found") -> dict[str, Any]:
        """The label frequencies and the groups of the clients, for the task that the printed command trains on."""
        from fedawe.audit.dealt import groups_of, labels_of

        tables = {table.kind: table for table in found.groups}
        chosen = tables.get("class") or tables.get("group")  # label counts before groups
        parts, kind = (None, None) if chosen is None else (chosen.parts, chosen.kind)
        table = tables.get("group")
        group, names = groups_of(found.fleet.rates, *((None, ()) if table is None else (table.parts, table.names)))
        return {"labels": labels_of(found.fleet.rates, parts, kind)[0], "group": group, "groups": list(names)}

    def _commands(self, found: "Found") -> Iterator[str]:
        from fedawe.audit.dealt import task_for
        from fedawe.experiments.build import algorithm_spec

        trace = self.save
        if trace is None:
            trace = Path("fleet.npz")
            with_groups = "" if self.groups is None else f" --groups {shlex.quote(str(self.groups))}"
            yield f"fedawe audit {self.again()}{with_groups} --save {trace}"
        typed = {algorithm_spec(text).label: text for text in self.algorithms}
        advised = found.advice.algorithm
        names = dict.fromkeys([typed.get(advised, advised), "fedavg", "fedawe"])
        task = shlex.quote(task_for(found.fleet.clients, trace))
        of = f"--dynamics {shlex.quote(str(trace))} --task {task} --algorithms {shlex.join(names)}"
        if advised != "none":
            yield f"fedawe run {of}"
        yield f"fedawe fit {self.again()} --out longer.npz --rounds 2000 --clients {max(2 * found.fleet.clients, 100)}"


VERB = Audit
