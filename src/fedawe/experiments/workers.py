"""Several runs at once, each in one of a few processes; one that is killed costs the run it was at one try."""

import traceback
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from multiprocessing.connection import Connection, wait
from typing import Any, Generic, Literal, TypeVar

import cloudpickle

from fedawe.core.errors import UserError
from fedawe.training.engines.start import context, start

TRIES = 2  # of a job whose process was killed
Say = Callable[[Any], None]
J = TypeVar("J")


@dataclass(frozen=True)
class Outcome(Generic[J]):
    """How a job ended: with a result, with a `UserError`, or with an error that is a bug or a killed process."""

    job: J
    kind: Literal["done", "refused", "failed"]
    said: Any


@dataclass
class _Worker:
    process: Any
    pipe: Connection
    job: Any = None


def at_once(function: Callable[[J, Say], Any], jobs: Sequence[J], processes: int, hear: Say) -> Iterator[Outcome[J]]:
    """function(job, say) for all jobs, as they end; what they say goes to `hear`.

    The function is sent by value, so that it may use classes of a script or of a file that cannot be imported.
    """
    content = cloudpickle.dumps(function)
    waiting, tries, left = list(jobs), {id(job): 0 for job in jobs}, len(jobs)
    workers: list[_Worker] = []
    try:
        while left:
            for worker in [each for each in workers if each.job is None and not each.process.is_alive()]:
                _remove(worker, workers)  # it was killed while it had nothing to do, which costs no run a try
            while waiting and len(workers) < min(processes, left):
                workers.append(_started(content))
            for worker in workers:
                if worker.job is None and waiting:
                    worker.job = waiting.pop(0)
                    with suppress(OSError):  # it has just been killed, which is noticed below
                        worker.pipe.send_bytes(cloudpickle.dumps(worker.job))
            ready = wait([worker.pipe for worker in workers if worker.job is not None])
            for worker in [each for each in workers if each.pipe in ready]:
                job = worker.job
                try:
                    kind, said = cloudpickle.loads(worker.pipe.recv_bytes())
                except (EOFError, OSError):  # it was killed; another takes its place
                    _remove(worker, workers)
                    tries[id(job)] += 1
                    if tries[id(job)] < TRIES:
                        waiting.insert(0, job)
                        continue
                    kind, said = "failed", f"its process was killed (exit code {worker.process.exitcode})"
                if kind == "says":
                    hear(said)
                    continue
                worker.job = None
                left -= 1
                yield Outcome(job, kind, said)
    finally:
        for worker in workers:
            if worker.job is not None:
                worker.process.terminate()
            worker.pipe.close()  # an idle process reads the end of its jobs, and leaves
        for worker in workers:
            worker.process.join()


def _remove(worker: _Worker, workers: list[_Worker]) -> None:
    """A process that has ended."""
    workers.remove(worker)
    worker.pipe.close()
    worker.process.join()


def _started(content: bytes) -> _Worker:
    ours, theirs = context().Pipe()
    process = start(_serve, theirs, content)
    theirs.close()
    return _Worker(process, ours)


def _serve(pipe: Connection, content: bytes) -> None:
    """Another process: one job after another, until there are no more."""

    def answer(kind: str, said: Any) -> None:
        pipe.send_bytes(cloudpickle.dumps((kind, said)))

    try:
        function = cloudpickle.loads(content)
        while True:
            job = cloudpickle.loads(pipe.recv_bytes())
            try:
                answer("done", function(job, lambda said: answer("says", said)))
            except UserError as error:
                answer("refused", str(error))
            except Exception:
                answer("failed", traceback.format_exc())
    except (EOFError, BrokenPipeError, ConnectionError):
        return
