"""Execute the runs of an experiment: one after another on all cores, or several at once with one core each."""

from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, closing
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import cloudpickle

from fedawe.algorithms.exchange import most_asked
from fedawe.core.errors import UserError
from fedawe.experiments.definition import Definition, Population
from fedawe.experiments.execution import Execution
from fedawe.experiments.folder import Folder
from fedawe.experiments.run import Progress, Run, Tell, Warn
from fedawe.experiments.workers import at_once
from fedawe.results import record as records
from fedawe.results.record import Line, Record
from fedawe.training.engines import Engine, Inline, Processes, best_workers, keep_freed_memory
from fedawe.training.engines.ray_cluster import RayCluster
from fedawe.training.engines.ray_engine import RayEngine
from fedawe.training.engines.ray_runs import RemoteRun, spread
from fedawe.training.shares import STACK, one_step
from fedawe.training.stacking import is_stacked


def run_all(
    experiment: Definition,
    out: Path,
    execution: Execution | None = None,
    *,
    command: str = "",
    tell: Tell = lambda _: None,
    warn: Warn = lambda _: None,
) -> Iterator[Record]:
    """Run every algorithm under every seed; everything is checked before anything is written."""
    execution = execution or Execution()
    execution.check()
    folder = Folder(out, experiment, command)
    folder.check()
    where = execution.where()
    populations = [experiment.population(seed, None if where.type == "cpu" else where) for seed in experiment.seeds]
    stacked = _stacked(folder, populations[0], execution)
    runs = [
        Run(folder, label, population, stacked, execution.checkpoint_every)
        for population in populations
        for label in experiment.algorithms
    ]
    return _each(folder, populations, runs, execution, tell, warn)


def _stacked(folder: Folder, population: Population, execution: Execution) -> bool:
    """Whether clients are stacked: as the folder has it, as `engine` asks, or as the task decides.

    One training step is made, so that a task that cannot be trained this way is found before anything is written.
    """
    before = folder.stacked()
    asked = {"one": False, "stacked": True}.get(execution.engine)
    if before is not None and asked is not None and before != asked:
        was = "stacked" if before else "one"
        raise UserError(f"{folder.out} was begun with engine {was}, not {execution.engine}; choose another --out")
    if before is not None:
        return before
    task, local = population.task, folder.experiment.local_of(next(iter(folder.experiment.algorithms)))
    stacked = is_stacked(task, local, asked)
    one_step(task, local, population.seed, range(min(STACK if stacked else 1, task.clients)))
    return stacked


def _each(
    folder: Folder,
    populations: Sequence[Population],
    runs: Sequence[Run],
    execution: Execution,
    tell: Tell,
    warn: Warn,
) -> Iterator[Record]:
    with ExitStack() as held:
        cluster = None
        if execution.cluster is not None:
            number = execution.workers or (execution.jobs if execution.jobs > 1 else None)
            cluster = held.enter_context(RayCluster(execution.cluster, number))
        held.enter_context(folder.held())
        folder.prepare(populations, runs[0].stacked, warn)
        if execution.jobs == 1 or len(runs) == 1:
            engine = held.enter_context(closing(_engine(runs, execution, cluster, warn)))
            for run in runs:
                yield run.execute(engine, tell, warn)
            return
        left = []
        for run in runs:
            record = run.finished()  # asked here: another process would load the data first, which takes seconds
            if record is None:
                left.append(run)
            else:
                yield record
        if left and cluster is not None:
            yield from _on_cluster(cluster, folder, left, len(runs), execution, tell, warn)
        elif left:
            yield from _in_processes(folder, left, len(runs), execution, tell, warn)


def _engine(runs: Sequence[Run], execution: Execution, cluster: RayCluster | None, warn: Warn) -> Engine:
    first = runs[0]
    task, local, stacked = first.population.task, first.local, first.stacked
    if cluster is not None:
        return RayEngine(task, local, cluster, execution.workers, warn, stacked)
    workers = 1 if execution.where().type == "cuda" else execution.workers
    if workers is None:
        active = min(float(first.population.trace.rates().sum()), most_asked(first.algorithm) or task.clients)
        workers = best_workers(task, local, first.population.seed, active, stacked)
    if workers == 1:
        keep_freed_memory()  # an evaluation of a convolutional network takes a third of the time
        return Inline(task, local, stacked)
    rows = max(min(run.population.trace.most_available(), most_asked(run.algorithm) or task.clients) for run in runs)
    return Processes(task, local, workers, max(rows, 1), task.initial(first.population.seed), stacked)


@dataclass(frozen=True)
class _Job:
    """A run for a worker process. The experiment is sent to every process only once, as it is the same for all runs."""

    label: str
    seed: int


def _in_processes(
    folder: Folder, left: Sequence[Run], of: int, execution: Execution, tell: Tell, warn: Warn
) -> Iterator[Record]:
    """Execute the runs in `jobs` processes; a run that fails does not stop the others."""
    experiment, every, stacked = folder.experiment, execution.checkpoint_every, left[0].stacked
    jobs = {_Job(run.label, run.population.seed): run for run in left}
    headers = {job: run.header for job, run in jobs.items()}  # other processes have no source code of users' classes
    last: list[Population] = []  # the population of the latest job of a process, for the next job

    def make(job: _Job, say: Callable[[Any], None]) -> None:
        if not last or last[0].seed != job.seed:
            last[:] = [experiment.population(job.seed)]
        run = Run(folder, job.label, last[0], stacked, every)
        run.header = headers[job]
        run.execute(Inline(run.population.task, run.local, stacked), say, say)

    failures = _Failures(of)
    for outcome in at_once(make, list(jobs), execution.jobs, _passed_on(tell, warn)):
        run = jobs[outcome.job]
        if outcome.kind == "done":
            yield records.read(run.path / records.NAME)
        else:
            failures.add(run.name, outcome.said, outcome.kind == "failed")
    failures.tell()


class _Failures:
    """The runs that failed; they are reported together after all runs have ended."""

    def __init__(self, of: int) -> None:
        self.of, self.ours = of, False
        self.said: list[str] = []

    def add(self, name: str, said: str, ours: bool) -> None:
        """Add a failed run; `ours` says that its error is a bug and not a mistake of the user."""
        self.said.append(f"{name}: {said}")
        self.ours = self.ours or ours

    def tell(self) -> None:
        """Raise an error that lists the failed runs, if there are any."""
        if self.said:
            lines = [f"{len(self.said)} of {self.of} runs failed, the others are complete:", *self.said]
            raise (RuntimeError if self.ours else UserError)("\n".join(lines))


def _passed_on(tell: Tell, warn: Warn) -> Callable[[Any], None]:
    """A function that passes a `Progress` to `tell` and text to `warn`."""
    return lambda message: tell(message) if isinstance(message, Progress) else warn(message)


def _on_cluster(
    cluster: RayCluster,
    folder: Folder,
    left: Sequence[Run],
    of: int,
    execution: Execution,
    tell: Tell,
    warn: Warn,
) -> Iterator[Record]:
    """Execute the runs on the nodes of the cluster, `jobs` at once."""
    every, stacked = execution.checkpoint_every, left[0].stacked
    # By value: a node may not have the file in which a user's classes are.
    content = cloudpickle.dumps(folder.experiment)
    rest = [(content, run.label, stacked, every, run.header) for run in left]
    remote = [
        RemoteRun(folder.out, run.path.relative_to(folder.out), run.population, each)
        for run, each in zip(left, rest, strict=True)
    ]
    failures = _Failures(of)
    for n, outcome in spread(cluster, _run_there, remote, execution.jobs, _passed_on(tell, warn), warn):
        if outcome.kind == "done":
            yield records.read(left[n].path / records.NAME)
        else:
            failures.add(left[n].name, outcome.said, outcome.kind == "failed")
    failures.tell()


def _run_there(
    population: Population,
    out: Path,
    content: bytes,
    label: str,
    stacked: bool,
    every: int,
    header: Line,
    say: Callable[[Any], None],
    keep: Callable[[], None],
) -> None:
    """Execute one run on a node of the cluster, continuing from the files in its folder."""

    def tell(progress: Progress) -> None:
        if progress.rounds % every == 0:
            keep()  # there is a new checkpoint
        say(progress)

    run = Run(Folder(out, cloudpickle.loads(content), ""), label, population, stacked, every)
    run.header = {**header, "versions": run.header["versions"]}
    run.execute(Inline(population.task, run.local, stacked), tell, say)
