"""The folder of an experiment: the files that all of its runs share.

OUT/experiment.json               the settings of all runs, the commands, versions and hardware
OUT/traces/seed-0.npz             the trace of a seed; a large one that is drawn (not Trace.kept) has no file,
                                  because experiment.json and the probabilities in clients/ determine it
OUT/clients/seed-0.npz            the clients of a seed: numbers of samples, label frequencies, base probabilities
OUT/fedawe/seed-0/record.jsonl    one run: header, evaluations, last line
OUT/fedawe/seed-0/model.safetensors

The experiment determines all of these files, so a damaged one is written again.
"""

import io
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import filelock
import numpy as np

from fedawe.availability.trace import Trace
from fedawe.core.describe import first_difference
from fedawe.core.environment import environment
from fedawe.core.errors import UserError
from fedawe.core.files import new_folder, read_npz, remove_unfinished, write_atomically
from fedawe.experiments.definition import Definition, Population
from fedawe.results import record as records
from fedawe.results.head import HEAD, folder_name, head_content, read_head
from fedawe.results.record import FORMAT


def path_of_run(out: Path, label: str, seed: int) -> Path:
    """The folder of a run."""
    return out / folder_name(label) / f"seed-{seed}"


class Folder:
    """The folder of an experiment. `prepare` makes or checks it; while it is `held`, no other process writes to it."""

    def __init__(self, out: Path, experiment: Definition, command: str) -> None:
        self.out, self.experiment, self.command = out, experiment, command

    def of_run(self, label: str, seed: int) -> Path:
        """The folder of a run."""
        return path_of_run(self.out, label, seed)

    def check(self) -> None:
        """Refuses a folder with another experiment or with other files; writes nothing."""
        was = self._head(lambda _: None)
        if was is None:
            return
        before, now = dict(was.get("experiment", {})), self.experiment.described()
        rounds = before.pop("rounds", None)
        if isinstance(rounds, int) and rounds > now["rounds"]:
            raise UserError(
                f"{self.out} holds an experiment with rounds = {rounds}, not {now['rounds']}: runs can be extended, "
                "not shortened; choose another --out"
            )
        del now["rounds"]
        if (found := first_difference(before, now)) is not None:
            raise UserError(f"{self.out} holds an experiment with {other(*found)}; choose another --out")

    def stacked(self) -> bool | None:
        """Whether the experiment began with stacked clients, which decides the last bits; None if it has not begun."""
        was = self._head(lambda _: None)
        if was is not None:
            return bool(was["stacked"])
        headers = (records.read(path).header for path in sorted(self.out.glob(f"*/seed-*/{records.NAME}")))
        return next((bool(header["stacked"]) for header in headers if "stacked" in header), None)

    def _head(self, warn: Callable[[str], None]) -> dict[str, Any] | None:
        """The content of `experiment.json`; None if the experiment has not begun, or if the file is damaged."""
        path = self.out / HEAD
        try:
            if path.exists():
                was = read_head(path)
                if was is None:
                    warn(f"{path} is damaged; it is written again")
                elif was.get("format") != FORMAT:
                    raise UserError(f"{self.out} was written by another version of fedawe; choose another --out")
                return was
            names = [each.name for each in self.out.iterdir()] if self.out.exists() else []
        except OSError as error:  # not a folder, or no permission to read it
            raise UserError(
                f"{self.out} is not the folder of an experiment ({error.strerror}); choose another --out"
            ) from None
        # A command that was killed at its start leaves a lock file and perhaps an unfinished file.
        if any(name != ".lock" and not (name.startswith(".") and name.endswith(".part")) for name in names):
            raise UserError(f"{self.out} exists and is not the folder of an experiment; choose another --out")
        return None

    @contextmanager
    def held(self) -> Iterator[None]:
        """Lock the folder, so that no other process writes to it meanwhile."""
        new_folder(self.out)
        lock = filelock.FileLock(self.out / ".lock", timeout=0)
        try:
            with lock:
                remove_unfinished(self.out)
                yield
        except filelock.Timeout:
            raise UserError(f"{self.out} is in use by another process; wait for it, or choose another --out") from None
        except OSError as error:
            if not isinstance(error.filename, str | Path) or not Path(error.filename).is_relative_to(self.out):
                raise  # the error is about another file, for instance one of a user's task
            raise UserError(f"{error.filename}: cannot be written ({error.strerror})") from None  # no permission

    def prepare(self, populations: Sequence[Population], stacked: bool, warn: Callable[[str], None]) -> None:
        """Write the files that all runs share; a trace that is already there must be the beginning of this one."""
        self.check()  # again under the lock: another command may have begun here meanwhile
        was, now = self._head(warn), environment()
        if was is not None and bool(was["stacked"]) != stacked:
            engine = "stacked" if was["stacked"] else "one"
            raise UserError(
                f"another command began in {self.out} meanwhile, with engine {engine}; enter the same command again"
            )
        if was is not None and (found := first_difference(was.get("environment"), now)) is not None:
            warn(f"{self.out} was begun with {other(*found)}: results may differ in their last bits")
        head = {
            "format": FORMAT,
            "command": _and_then(str((was or {}).get("command", "")), self.command),
            "experiment": self.experiment.described(),
            "algorithms": list(dict.fromkeys([*(was or {}).get("algorithms", []), *self.experiment.algorithms])),
            "stacked": stacked,
            "environment": now if was is None else was.get("environment", now),
        }
        traces = [population for population in populations if not self._has_trace(population, warn)]
        clients = [population for population in populations if not self._has_clients(population, warn)]
        if head != was:
            write_atomically(self.out / HEAD, head_content(head))
        for population in traces:
            self._write_trace(population)
        for population in clients:
            self._write_clients(population)

    def _path(self, what: str, population: Population) -> Path:
        return self.out / what / f"seed-{population.seed}.npz"

    def _has_clients(self, population: Population, warn: Callable[[str], None]) -> bool:
        """Whether the file of the clients is there and undamaged; refuses a file of other clients."""
        path, now = self._path("clients", population), _clients(population)
        if not path.exists():
            return False
        try:
            before = read_npz(path)
        except UserError as error:
            warn(f"{error}; it is written again")
            return False
        if before.keys() != now.keys() or not all(_close(before[name], now[name]) for name in now):
            raise UserError(f"{path}: has other clients than this experiment; choose another --out")
        return True

    def _write_clients(self, population: Population) -> None:
        buffer, path = io.BytesIO(), self._path("clients", population)
        np.savez_compressed(buffer, **_clients(population))
        new_folder(path.parent)
        write_atomically(path, buffer.getvalue())

    def _has_trace(self, population: Population, warn: Callable[[str], None]) -> bool:
        """Whether the whole trace is there; refuses the file of another trace."""
        path, trace = self._path("traces", population), population.trace
        if not path.exists():
            return not trace.kept
        try:
            kept = Trace.load(path)
        except UserError as error:
            warn(f"{error}; it is written again")
            return False
        before = kept.on
        same = before.shape[1] == trace.clients and len(before) <= trace.rounds
        same = same and all(np.array_equal(row, trace.row(t)) for t, row in enumerate(before))
        if same and self.experiment.recorded is not None and kept.p is not None and trace.p is not None:
            same = np.array_equal(kept.p, trace.p[: len(before)])
        if not same:
            raise UserError(f"{path}: is not the trace of this experiment; choose another --out")
        return len(before) == trace.rounds

    def _write_trace(self, population: Population) -> None:
        path, trace = self._path("traces", population), population.trace
        if trace.kept:
            new_folder(path.parent)
            trace.save(path)
        else:
            path.unlink(missing_ok=True)  # written for fewer rounds, when the trace was small enough for a file


def _and_then(commands: str, command: str) -> str:
    """The commands that repeat the experiment, with `command` added unless it is among them."""
    return commands if f"\n{command}\n" in f"\n{commands}\n" else f"{commands}\n{command}".strip()


def other(name: str, before: Any, now: Any) -> str:
    """A phrase about a setting that is not what it was before."""
    place, _, last = name.rpartition(".")
    if last == "definition":
        return f"another definition of {name.partition('.')[0]}"
    if last == "sha256":
        return f"other content of {place}"
    return f"{name} = {_shown(before)}, not {_shown(now)}"


def _shown(value: Any) -> str:
    text = str(value)
    return text if len(text) <= 100 else f"{text[:97]}..."


def _close(before: Any, now: Any) -> bool:
    """Whether two arrays are equal except in the last digits, which another version of numpy may change."""
    return before.shape == now.shape and bool(np.allclose(before, now, rtol=1e-9, atol=1e-12))


def _clients(population: Population) -> dict[str, Any]:
    task = population.task
    sizes = np.zeros(task.clients, dtype=np.int64) if task.sizes is None else task.sizes
    arrays: dict[str, Any] = {"sizes": np.asarray(sizes)}
    if task.frequencies is not None:
        arrays["frequencies"] = np.asarray(task.frequencies)
    if population.p is not None:
        arrays["p"] = population.p
    return arrays
