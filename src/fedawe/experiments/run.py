"""A run on disk: one algorithm under one seed. A resumed run gives the same bits as one without interruption."""

import hashlib
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from fedawe.algorithms.base import State
from fedawe.algorithms.exchange import chooses, first_state
from fedawe.algorithms.facts import diagnostics_of, further_models
from fedawe.availability.past import Past
from fedawe.core.describe import first_difference
from fedawe.core.errors import Diverged, UserError
from fedawe.core.files import new_folder, write_atomically
from fedawe.experiments import checkpoint, metrics
from fedawe.experiments.definition import Population
from fedawe.experiments.folder import Folder, other
from fedawe.experiments.header import MAY_DIFFER, all_metrics, header_of, shapes
from fedawe.results import record as records
from fedawe.results.record import Line, Record
from fedawe.training import diagnostics
from fedawe.training.engines import Engine
from fedawe.training.simulate import check_possible, prepared, simulate

MODEL = "model.safetensors"


@dataclass(frozen=True)
class Progress:
    """The progress of a run after a round."""

    label: str
    seed: int
    rounds: int  # completed rounds
    of: int  # rounds in all
    active: int  # clients in the last round
    metrics: Line  # of the last evaluation
    deciding: str | None  # the name of the metric that decides

    @property
    def run(self) -> str:
        """The name of the run in messages."""
        return f"{self.label}, seed {self.seed}"


Tell = Callable[[Progress], None]
Warn = Callable[[str], None]


class Run:
    """One algorithm under one seed, in a folder."""

    def __init__(
        self, folder: Folder, label: str, population: Population, stacked: bool, checkpoint_every: int
    ) -> None:
        experiment, task = folder.experiment, population.task
        self.label, self.population, self.stacked = label, population, stacked
        self.local = experiment.local_of(label)
        self.algorithm = prepared(experiment.algorithm(label, population.trace, task.sizes), task, self.local)
        self.is_evaluated, self.checkpoint_every = experiment.is_evaluated, checkpoint_every
        self.path = folder.of_run(label, population.seed)
        self.state: State = first_state(self.algorithm, task.initial(population.seed), task.clients)
        check_possible(self.algorithm, self.state, population.trace, task, self.local)
        algorithm = experiment.algorithms[label]
        metrics.check_declared(task.metrics, type(task).__name__)
        self.metrics = all_metrics(task.metrics, algorithm)
        self.header: Line = header_of(
            label,
            experiment.title_of(label),
            algorithm,
            local=self.local,
            shared=experiment.described(),
            metrics=task.metrics,
            parameters=shapes(task.layout, len(self.state.latest)),
            inputs=task.input_shape,
            classes=None if task.frequencies is None else int(task.frequencies.shape[1]),
            clients=task.clients,
            seed=population.seed,
            stacked=stacked,
            executor=task.executor,
            executor_why=task.executor_why,
        )
        if not type(task).__module__.startswith("fedawe."):  # for our own tasks, the names of the metrics show them
            self.header["models"] = list(further_models(self.algorithm, self.state))

    @property
    def name(self) -> str:
        """The name of the run in messages."""
        return f"{self.label}, seed {self.population.seed}"

    @property
    def rounds(self) -> int:
        """The number of rounds of the complete run."""
        return self.population.trace.rounds

    def finished(self) -> Record | None:
        """The record, if the run has ended and its record and model are undamaged; else None."""
        file = self.path / records.NAME
        record = records.read(file) if file.exists() else None
        if record is None or record.problem or record.end is None or record.header.get("rounds") != self.rounds:
            return None
        return record if self._difference(record) is None and self._model_is(record.end.get("model_sha256")) else None

    def _difference(self, record: Record) -> tuple[str, Any, Any] | None:
        """The first difference between a record's header and this run's; None if this run can continue the record."""
        before, now = ({k: v for k, v in h.items() if k not in MAY_DIFFER} for h in (record.header, self.header))
        return first_difference(before, now)

    def execute(self, engine: Engine, tell: Tell, warn: Warn) -> Record:
        """Execute the run from its last checkpoint, or from the start; a run that has ended is not changed."""
        if (record := self.finished()) is not None:
            return record
        file = new_folder(self.path) / records.NAME
        state, kept = self.state, [self.header]
        if file.exists():
            record = records.read(file)
            if record.problem:
                warn(f"{record.problem}; continuing from the lines before it")
            if record.header and (found := self._difference(record)) is not None:
                raise UserError(f"{file} was made with {other(*found)}; choose another --out")
            lines = [line for line in record.evaluations if self.is_evaluated(line["round"])]
            done = {line["round"] for line in lines}
            resumed = checkpoint.load(self.path, state, lambda n: done >= set(self._evaluations(n)), warn)
            if resumed is not None and resumed.t < self.rounds:
                state = resumed
                kept += [line for line in lines if line["round"] <= state.t + 1]
        engine.use(self.population.task, self.local, self.stacked)
        return self._continue(file, state, kept, engine, tell)

    def _evaluations(self, rounds: int) -> list[int]:
        """The rounds after which models are evaluated, up to `rounds`."""
        return [n for n in range(rounds + 1) if self.is_evaluated(n)]

    def _continue(self, file: Path, state: State, kept: list[Line], engine: Engine, tell: Tell) -> Record:
        began, before = time.perf_counter(), float(kept[-1].get("elapsed_seconds", 0.0))
        with records.Writer(file, kept) as writer:

            def write(line: Line) -> Line:
                line = {**line, "elapsed_seconds": round(before + time.perf_counter() - began, 3)}
                writer.write(line)
                return line

            try:
                end = self._rounds(state, kept, engine, writer, write, tell)
            except Diverged as stopped:
                end = {"status": "diverged", "message": f"{self.name}: {stopped}"}
                checkpoint.prune(self.path, 0)  # a diverged run cannot be continued
            write({"kind": "end", **end})
        return records.read(file)

    def _rounds(
        self,
        state: State,
        kept: list[Line],
        engine: Engine,
        writer: records.Writer,
        write: Callable[[Line], Line],
        tell: Tell,
    ) -> Line:
        population, total = self.population, self.rounds
        deciding = next((metric.name for metric in self.metrics if metric.decides), None)

        def evaluate(rounds: int, active: int, past: Past | None = None) -> Line:
            return write(
                {"kind": "evaluation", "round": rounds, "active": active, **self._metrics(state, engine, past)}
            )

        last = kept[-1] if len(kept) > 1 else evaluate(0, 0)
        steps = simulate(
            population.task,
            self.algorithm,
            population.trace,
            self.local,
            seed=population.seed,
            resume=state,
            engine=engine,
        )
        for step in steps:
            state, n = step.state, step.t + 1
            if self.is_evaluated(n):
                last = evaluate(n, len(step.A), step.past)
            if n % self.checkpoint_every == 0 or n == total:  # an extended run continues from the last one
                writer.sync()  # every evaluation before a checkpoint must be on the disk
                checkpoint.save(self.path, state)
            tell(Progress(self.label, population.seed, n, total, len(step.A), last, deciding))
        x, layout = self.algorithm.model(state), population.task.layout
        model = checkpoint.to_bytes({"x": x} if layout is None else layout.state_dict(x))
        write_atomically(self.path / MODEL, model)
        checkpoint.prune(self.path, 1)
        return {"status": "complete", "model_sha256": hashlib.sha256(model).hexdigest()}

    def _metrics(self, state: State, engine: Engine, past: Past | None) -> Line:
        """An evaluation: the metrics of the model and of the algorithm's further models, and diagnostics."""
        task = type(self.population.task).__name__
        out: Line = metrics.checked(engine.evaluate(self.algorithm.model(state)), self.population.task.metrics, task)
        for name, model in further_models(self.algorithm, state).items():
            found = metrics.checked(engine.evaluate(model), (), task)
            of_model = {f"{name}_{metric}": value for metric, value in found.items()}
            out = metrics.joined(out, of_model, f"{self.label}, further model {name}")
        if past is not None:
            if not chooses(self.algorithm):  # else the active clients are not those of the trace
                out = metrics.joined(out, diagnostics.diagnostics(state, past), "diagnostics")
            out = metrics.joined(out, diagnostics_of(self.algorithm, state), f"{self.label}, diagnostics")
        kept, bad = metrics.finite(out, {metric.name for metric in self.metrics}, further_models(self.algorithm, state))
        if bad is not None and state.t < 0:
            raise UserError(f"{task}.evaluate gives {bad} = {out[bad]} for the initial model; expected a finite number")
        if bad is not None:
            rate = self.local.rate(state.t)
            raise Diverged(f"{bad} is not finite after {state.t + 1} rounds with learning rate {rate:.4g}; lower eta0")
        return kept

    def _model_is(self, sha256: str | None) -> bool:
        """Whether the model file has the checksum of the record; a diverged run has neither."""
        if sha256 is None:
            return True
        file = self.path / MODEL
        return file.exists() and hashlib.sha256(file.read_bytes()).hexdigest() == sha256
