"""Several runs: one after another with all cores on each, or several at once with one core each."""

import multiprocessing
import os
import threading
import traceback
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from concurrent.futures.process import BrokenProcessPool
from contextlib import ExitStack, closing, suppress
from dataclasses import dataclass
from multiprocessing.managers import SyncManager
from pathlib import Path
from typing import Any, Literal

import torch

from fedawe.core.errors import UserError
from fedawe.experiments.folder import Folder, Progress, Run
from fedawe.experiments.settings import Contender, Settings, World
from fedawe.results import record as records
from fedawe.results.record import Record
from fedawe.tasks import Classification
from fedawe.training.engines import Engine, Inline, Processes, best_workers, better_stacked, keep_freed_memory
from fedawe.training.engines.ray_cluster import FORMS, RayCluster, address_of, reach
from fedawe.training.engines.ray_engine import RayEngine
from fedawe.training.engines.ray_runs import Errand, spread

Tell = Callable[[Progress], None]
Warn = Callable[[str], None]
TRIES = 2  # of a run whose process was killed from outside


@dataclass(frozen=True)
class Execution:
    """How runs are executed; none of it changes a number, but for `engine` in the last bits.

    engine   how clients are trained: one after another, several stacked into one computation, or what is faster here;
             or where: ray, ray:HOST:PORT or ray://HOST:PORT is a cluster, with clients grouped as auto would
    workers  processes that share the clients of a round; None: as many as there are cores where rounds are long
    jobs     runs at once
    device   where tensors live; None: a CUDA device if there is one
    """

    engine: str = "auto"
    workers: int | None = None
    jobs: int = 1
    checkpoint_every: int = 50
    data: Path | None = None
    device: Literal["cpu", "cuda"] | None = None

    @property
    def cluster(self) -> str | None:
        """The address of the cluster that computes; None if there is none."""
        return address_of(self.engine)

    def where(self) -> torch.device:
        """The device."""
        found = "cuda" if torch.cuda.is_available() and self.cluster is None else "cpu"
        return torch.device(self.device or found)

    def check(self) -> None:
        """Refuses what cannot be meant."""
        if self.engine not in ("auto", "one", "stacked") and self.cluster is None:
            raise UserError(f"engine is {self.engine!r}; expected auto, one, stacked, {FORMS}")
        for name in ("jobs", "checkpoint_every"):
            if getattr(self, name) < 1:
                raise UserError(f"{name} is {getattr(self, name)}; expected a whole number from 1")
        if self.workers is not None and self.workers < 1:
            raise UserError(f"workers is {self.workers}; expected a whole number from 1")
        if self.jobs > 1 and (self.workers or 1) > 1:
            raise UserError(f"{self.jobs} jobs with {self.workers} workers each: choose one of the two")
        if self.device == "cuda" and not torch.cuda.is_available():
            raise UserError("device is cuda, but there is none here; leave --device away")
        if self.where().type == "cuda" and (self.jobs > 1 or (self.workers or 1) > 1 or self.cluster is not None):
            raise UserError(
                "jobs, workers and ray are for processors; with a CUDA device leave them away, or use --device cpu"
            )
        if self.cluster is not None:
            reach(self.cluster)


def run(
    settings: Settings,
    contenders: Sequence[Contender],
    seeds: Sequence[int],
    out: Path,
    *,
    command: str,
    execution: Execution | None = None,
    tell: Tell = lambda _: None,
    warn: Warn = lambda _: None,
) -> Iterator[Record]:
    """Every algorithm under every seed; everything is checked before anything is written."""
    settings, execution = settings.resolved(), execution or Execution()
    execution.check()
    for what, values in (("an algorithm", [c.label for c in contenders]), ("a seed", list(map(str, seeds)))):
        if not values:
            raise UserError(f"no {what.split()[1]} given; name at least one")
        if len(set(values)) < len(values):
            raise UserError(f"{what} was given twice: {' '.join(values)}")
    folder = Folder(out, settings, command)
    folder.check()
    worlds = [World.of(settings, seed, execution.data, execution.where()) for seed in seeds]
    stacked = _stacked(folder, worlds[0], execution)
    for world in worlds:
        _group(world, stacked)
    todo = [Run(folder, contender, world, execution.checkpoint_every) for world in worlds for contender in contenders]
    return _each(folder, worlds, todo, contenders, execution, tell, warn)


def _stacked(folder: Folder, world: World, execution: Execution) -> bool:
    """How clients are grouped: as before, as asked for, or what is faster."""
    before = folder.stacked()
    asked = {"one": False, "stacked": True}.get(execution.engine)
    if before is not None and asked is not None and before != asked:
        was = "stacked" if before else "one"
        raise UserError(f"{folder.out} was begun with engine {was}, not {execution.engine}; choose another --out")
    if before is not None or asked is not None:
        return bool(before if asked is None else asked)
    return better_stacked(world.task, folder.settings.local(), world.seed)


def _group(world: World, stacked: bool) -> None:
    if isinstance(world.task, Classification):
        world.task.stacked = stacked


def _each(
    folder: Folder,
    worlds: Sequence[World],
    todo: Sequence[Run],
    contenders: Sequence[Contender],
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
        folder.prepare(worlds)
        if execution.jobs == 1 or len(todo) == 1:
            engine = held.enter_context(closing(_engine(todo, execution, cluster, warn)))
            for each in todo:
                yield each.execute(engine, tell, warn)
            return
        left = []
        for each, contender in zip(todo, list(contenders) * len(worlds), strict=True):
            record = each.finished()  # without the seconds in which a process would load its data
            if record is None:
                left.append((each, contender))
            else:
                yield record
        if left and cluster is not None:
            yield from _on_cluster(cluster, folder, left, len(todo), execution, tell, warn)
        elif left:
            names = [(contender, each.world.seed) for each, contender in left]
            yield from _at_once(folder, names, len(todo), worlds[0].task.stacked, execution, tell, warn)


def _engine(todo: Sequence[Run], execution: Execution, cluster: RayCluster | None, warn: Warn) -> Engine:
    first, rows = todo[0], max(int(run.world.trace.on.sum(1).max()) for run in todo)
    if cluster is not None:
        return RayEngine(first.world.task, first.local, cluster, execution.workers, warn)
    workers = 1 if execution.where().type == "cuda" else execution.workers
    if workers is None:
        active = float(first.world.trace.on.sum(1).mean())
        workers = best_workers(first.world.task, first.local, first.world.seed, active, first.world.task.stacked)
    if workers == 1:
        return Inline(first.world.task, first.local)
    return Processes(first.world.task, first.local, workers, max(rows, 1), first.state.latest)


def _at_once(
    folder: Folder,
    names: Sequence[tuple[Contender, int]],
    of: int,
    stacked: bool,
    execution: Execution,
    tell: Tell,
    warn: Warn,
) -> Iterator[Record]:
    """`jobs` processes take the runs, those left `of` so many, in turn; one that fails does not stop the others."""
    context = multiprocessing.get_context("spawn")
    manager = SyncManager(ctx=context)
    manager.start(_end_with_parent)
    with manager:
        told: Any = manager.Queue()
        listener = threading.Thread(target=_listen, args=(told, tell, warn), daemon=True)
        listener.start()
        waiting = [(contender, seed, 1) for contender, seed in names]
        failed: list[str] = []
        ours = False  # whether a failure is a bug of ours
        while waiting:
            batch, waiting = waiting, []
            with ProcessPoolExecutor(execution.jobs, context, initializer=_begin) as pool:
                running: dict[Future[Record], tuple[Contender, int, int]] = {}
                try:
                    for contender, seed, tries in batch:
                        job = pool.submit(_run_one, folder, contender, seed, stacked, execution, told)
                        running[job] = (contender, seed, tries)
                    while running:
                        done, _ = wait(running, return_when=FIRST_COMPLETED)
                        for job in done:
                            contender, seed, tries = running.pop(job)
                            try:
                                yield job.result()
                            except BrokenProcessPool:
                                if tries < TRIES:
                                    waiting.append((contender, seed, tries + 1))
                                else:
                                    ours = True
                                    failed.append(f"{contender.label}, seed {seed}: its process was killed")
                            except (UserError, _Failed) as failure:
                                ours = ours or isinstance(failure, _Failed)
                                failed.append(f"{contender.label}, seed {seed}: {failure}")
                except BaseException:
                    for process in list((pool._processes or {}).values()):
                        process.terminate()
                    raise
        told.put(None)
        listener.join()
    _tell_of(failed, of, ours)


def _tell_of(failed: Sequence[str], of: int, ours: bool) -> None:
    if failed:
        lines = [f"{len(failed)} of {of} runs failed, the others are complete:", *failed]
        raise (RuntimeError if ours else UserError)("\n".join(lines))


class _Failed(Exception):
    """A run that raised, with its traceback as text."""


def _begin() -> None:
    _end_with_parent()
    torch.set_num_threads(1)
    keep_freed_memory()


def _end_with_parent() -> None:
    """A process that outlived its command would write into runs that the next command goes on with."""
    parent = multiprocessing.parent_process()
    assert parent is not None

    def watch() -> None:
        parent.join()
        os._exit(1)

    threading.Thread(target=watch, daemon=True).start()


def _run_one(folder: Folder, contender: Contender, seed: int, stacked: bool, execution: Execution, told: Any) -> Record:
    """In a process of its own: one run."""
    try:
        world = World.of(folder.settings, seed, execution.data, execution.where())
        _group(world, stacked)
        each = Run(folder, contender, world, execution.checkpoint_every)
        return each.execute(Inline(world.task, each.local), told.put, told.put)
    except UserError:
        raise
    except Exception:
        raise _Failed(traceback.format_exc()) from None


def _listen(told: Any, tell: Tell, warn: Warn) -> None:
    """Pass on what the processes tell."""
    hear = _passed_on(tell, warn)
    with suppress(EOFError, BrokenPipeError, ConnectionError):
        while (message := told.get()) is not None:
            hear(message)


def _passed_on(tell: Tell, warn: Warn) -> Callable[[Any], None]:
    """Progress to one, words to the other."""
    return lambda message: tell(message) if isinstance(message, Progress) else warn(message)


def _on_cluster(
    cluster: RayCluster,
    folder: Folder,
    left: Sequence[tuple[Run, Contender]],
    of: int,
    execution: Execution,
    tell: Tell,
    warn: Warn,
) -> Iterator[Record]:
    """`jobs` runs at once on whichever nodes have cores; they are those left `of` so many."""
    out, settings, every = folder.out, folder.settings, execution.checkpoint_every
    errands = [
        Errand(out, run.path.relative_to(out), run.world, (settings, contender, every)) for run, contender in left
    ]
    failed: list[str] = []
    ours = False
    for n, outcome in spread(cluster, _run_there, errands, execution.jobs, _passed_on(tell, warn), warn):
        if outcome.kind == "done":
            yield records.read(left[n][0].path / records.NAME)
        else:
            ours = ours or outcome.kind == "failed"
            failed.append(f"{left[n][0].name}: {outcome.said}")
    _tell_of(failed, of, ours)


def _run_there(
    world: World,
    out: Path,
    settings: Settings,
    contender: Contender,
    every: int,
    say: Callable[[Any], None],
    keep: Callable[[], None],
) -> None:
    """On a node: one run, on from what is in its folder."""

    def tell(progress: Progress) -> None:
        if progress.rounds % every == 0:
            keep()  # there is a new checkpoint
        say(progress)

    each = Run(Folder(out, settings, ""), contender, world, every)
    each.execute(Inline(world.task, each.local), tell, say)
