"""Runs on disk: a folder per run, resumed where it stopped, bit for bit as if it had never stopped.

OUT/experiment.json               what all runs share, the command, versions and hardware
OUT/traces/seed-0.npz             who was there when
OUT/clients/seed-0.npz            what the clients have: sizes, label frequencies, base probabilities
OUT/fedawe/seed-0/record.jsonl    header, evaluations, last line
OUT/fedawe/seed-0/model.safetensors
"""

import dataclasses
import hashlib
import io
import json
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import filelock
import numpy as np

from fedawe.algorithms import State
from fedawe.algorithms.facts import diagnostics_of, further_models
from fedawe.algorithms.received import Received
from fedawe.availability.trace import Trace
from fedawe.core.environment import environment
from fedawe.core.errors import Diverged, UserError
from fedawe.core.files import new_folder, write_atomically
from fedawe.experiments import checkpoint
from fedawe.experiments.settings import Contender, Settings, World
from fedawe.results import record as records
from fedawe.results.record import Line
from fedawe.training.diagnostics import diagnostics
from fedawe.training.engines import Engine
from fedawe.training.simulate import simulate

FORMAT = 1


@dataclass(frozen=True)
class Progress:
    """What a run has just done."""

    run: str
    rounds: int  # completed
    of: int
    active: int
    metrics: Line  # of the last evaluation


class Folder:
    """The folder of an experiment; made or checked by `prepare`, and ours alone while `held`."""

    def __init__(self, out: Path, settings: Settings, command: str) -> None:
        self.out, self.settings, self.command = out, settings, command

    def check(self) -> None:
        """Refuses a folder that holds something else; writes nothing."""
        known = self.out / "experiment.json"
        if not known.exists():
            try:
                foreign = self.out.exists() and any(f.name != ".lock" for f in self.out.iterdir())
            except OSError as error:  # a file, or a folder that is not ours to read
                raise UserError(
                    f"{self.out} is not an experiment of ours ({error.strerror}); choose another --out"
                ) from None
            if foreign:
                raise UserError(f"{self.out} exists and is not an experiment of ours; choose another --out")
            return
        try:
            was = json.loads(known.read_text())
            old, inputs = was["settings"], was["inputs"]
        except (OSError, ValueError, KeyError, TypeError):
            raise UserError(f"{known}: is damaged; delete the folder or choose another --out") from None
        for name, value in self._settings().items():
            if old.get(name) != value:
                raise UserError(
                    f"{self.out} holds an experiment with {name} = {old.get(name)}, not {value}; choose another --out"
                )
        if inputs != self._inputs():
            raise UserError(f"{self.out} was made from another {' or '.join(inputs)}; choose another --out")

    def stacked(self) -> bool | None:
        """How clients were grouped when it began, which decides the last bits of a result; None if it has not begun."""
        known = self.out / "experiment.json"
        return bool(json.loads(known.read_text())["stacked"]) if known.exists() else None

    @contextmanager
    def held(self) -> Iterator[None]:
        """Nobody else writes here meanwhile."""
        new_folder(self.out)
        lock = filelock.FileLock(self.out / ".lock", timeout=0)
        try:
            with lock:
                yield
        except filelock.Timeout:
            raise UserError(f"{self.out} is in use by another process; wait for it, or choose another --out") from None
        except PermissionError as error:
            raise UserError(f"{error.filename or self.out}: cannot be written ({error.strerror})") from None

    def prepare(self, worlds: Sequence[World]) -> None:
        """What all runs share, written once; a trace that is already there must be the same."""
        head = {
            "format": FORMAT,
            "command": self.command,
            "settings": self._settings(),
            "stacked": worlds[0].task.stacked,
            "inputs": self._inputs(),
            "environment": environment(),
        }
        if not (self.out / "experiment.json").exists():
            write_atomically(self.out / "experiment.json", (json.dumps(head, indent=1) + "\n").encode())
        for world in worlds:
            path = new_folder(self.out / "traces") / f"seed-{world.seed}.npz"
            if path.exists() and not np.array_equal(Trace.load(path).on, world.trace.on):
                raise UserError(f"{path}: another trace than this experiment's; choose another --out")
            if not path.exists():
                world.trace.save(path)
            clients = new_folder(self.out / "clients") / f"seed-{world.seed}.npz"
            if not clients.exists():
                write_atomically(clients, _clients(world))

    def _settings(self) -> Line:
        settings: Line = json.loads(json.dumps(dataclasses.asdict(self.settings)))
        return settings

    def _inputs(self) -> dict[str, str]:
        """The files the experiment is made from, by their checksums."""
        paths = [name for name in (self.settings.task, self.settings.dynamics) if name.endswith((".npz", ".csv"))]
        return {name: hashlib.sha256(Path(name).read_bytes()).hexdigest() for name in paths}


def _clients(world: World) -> bytes:
    arrays: dict[str, Any] = {"sizes": getattr(world.task, "sizes", np.zeros(world.task.clients, dtype=np.int64))}
    if world.task.frequencies is not None:
        arrays["frequencies"] = world.task.frequencies
    if world.p is not None:
        arrays["p"] = world.p
    buffer = io.BytesIO()
    np.savez_compressed(buffer, **arrays)
    return buffer.getvalue()


class Run:
    """One algorithm in one world."""

    def __init__(self, folder: Folder, contender: Contender, world: World, checkpoint_every: int) -> None:
        self.settings, self.world, self.label = folder.settings, world, contender.label
        self.algorithm = contender.algorithm(folder.settings, world.trace)
        hyper_parameters = repr(self.algorithm) if contender.spec.name != "fedavg-known" else "FedAvgKnown(p=...)"
        if self.settings.evaluate_received and contender.spec.name != "fedawe":  # whose model that mean is
            self.algorithm = Received(self.algorithm)
        self.local = contender.local(folder.settings)
        self.checkpoint_every = checkpoint_every
        self.path = folder.out / self.label / f"seed-{world.seed}"
        self.state = self.algorithm.init(world.task.initial(world.seed), world.task.clients)
        self.header: Line = {
            "kind": "header",
            "format": FORMAT,
            "algorithm": contender.spec.name,
            "label": self.label,
            "hyper_parameters": hyper_parameters,
            "local": repr(self.local),
            "seed": world.seed,
            "parameters": len(self.state.latest),
            "stacked": world.task.stacked,
            "settings": folder._settings(),
        }

    @property
    def name(self) -> str:
        """For people."""
        return f"{self.label}, seed {self.world.seed}"

    def finished(self) -> records.Record | None:
        """Its record, if there is nothing left to do."""
        file = self.path / records.NAME
        record = records.read(file) if file.exists() else None
        if record is None or record.problem or record.header != self.header or record.end is None:
            return None
        return record if self._model_is(record.end.get("model_sha256")) else None

    def execute(self, engine: Engine, tell: Callable[[Progress], None], warn: Callable[[str], None]) -> records.Record:
        """Run it from where it stopped; a run that is complete is left as it is."""
        if (record := self.finished()) is not None:
            return record
        file = new_folder(self.path) / records.NAME
        state, kept = self.state, [self.header]
        if file.exists():
            record = records.read(file)
            if record.problem:
                warn(f"{record.problem}; going back to what is before it")
            if record.header not in ({}, self.header):
                raise UserError(f"{file}: made with other settings or another version; choose another --out")
            done = {line["round"] for line in record.evaluations}
            resumed = checkpoint.load(self.path, state, lambda n: done >= set(self._evaluations(n)), warn)
            if resumed is not None:
                state = resumed
                kept += [line for line in record.evaluations if line["round"] <= state.t + 1]
        engine.use(self.world.task, self.local)
        return self._go_on(file, state, kept, engine, tell)

    def _evaluations(self, rounds: int) -> list[int]:
        """After which rounds there is an evaluation, up to `rounds`: 0, every so many, and the last."""
        total = self.world.trace.rounds
        return [n for n in range(rounds + 1) if n % self.settings.evaluate_every == 0 or n == total]

    def _go_on(
        self, file: Path, state: State, kept: list[Line], engine: Engine, tell: Callable[[Progress], None]
    ) -> records.Record:
        began, before = time.perf_counter(), float(kept[-1].get("elapsed_seconds", 0.0))
        with records.Writer(file, kept) as writer:

            def write(line: Line) -> Line:
                writer.write({**line, "elapsed_seconds": round(before + time.perf_counter() - began, 3)})
                return line

            try:
                end = self._rounds(state, kept, engine, writer, write, tell)
            except Diverged as stopped:
                end = {"status": "diverged", "message": f"{self.name}: {stopped}"}
            write({"kind": "end", **end})
        checkpoint.clear(self.path)
        return records.read(file)

    def _rounds(
        self,
        state: State,
        kept: list[Line],
        engine: Engine,
        writer: records.Writer,
        write: Callable[[Line], Line],
        tell: Callable[[Progress], None],
    ) -> Line:
        world, total = self.world, self.world.trace.rounds
        evaluations = set(self._evaluations(total))

        def evaluate(rounds: int, active: int) -> Line:
            return write({"kind": "evaluation", "round": rounds, "active": active, **self._metrics(state, engine)})

        last = kept[-1] if len(kept) > 1 else evaluate(0, 0)
        for step in simulate(
            world.task, self.algorithm, world.trace, self.local, seed=world.seed, resume=state, engine=engine
        ):
            state, n = step.state, step.t + 1
            if n in evaluations:
                last = evaluate(n, len(step.A))
            if n % self.checkpoint_every == 0 and n < total:
                writer.sync()  # a checkpoint promises that every evaluation before it is on the disk
                checkpoint.save(self.path, state)
            tell(Progress(self.name, n, total, len(step.A), last))
        model = checkpoint.to_bytes({"x": self.algorithm.model(state)})
        write_atomically(self.path / "model.safetensors", model)
        return {"status": "complete", "model_sha256": hashlib.sha256(model).hexdigest()}

    def _metrics(self, state: State, engine: Engine) -> Line:
        """Those of the model, of further models that the algorithm has, and diagnostics."""
        out: Line = dict(engine.evaluate(self.algorithm.model(state)))
        for name, model in further_models(self.algorithm, state).items():
            out.update({f"{name}_{metric}": value for metric, value in engine.evaluate(model).items()})
        if state.t >= 0:
            out.update({**diagnostics(state, self.world.trace), **diagnostics_of(self.algorithm, state)})
        bad = records.not_finite(out)
        if bad is not None:
            rate = self.local.rate(max(state.t, 0))
            raise Diverged(f"{bad} is not finite after round {state.t} with learning rate {rate:.4g}; lower eta0")
        return out

    def _model_is(self, sha256: str | None) -> bool:
        """Whether the final model is there as the record says; a diverged run has none."""
        if sha256 is None:
            return True
        file = self.path / "model.safetensors"
        return file.exists() and hashlib.sha256(file.read_bytes()).hexdigest() == sha256
