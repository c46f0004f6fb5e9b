"""Jobs in several processes at once. A job whose process was killed is tried once more in another process."""

import traceback
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from multiprocessing.connection import Connection, wait
from typing import Any, Generic, Literal, TypeVar

import cloudpickle

from fedawe.core.errors import UserError
from fedawe.training.engines.start import context, start

TRIES = 2  # how often a job is started, if its process is killed each time
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
    """Call function(job, say) for every job and yield the outcomes in the order in which the jobs end.

    Whatever a job passes to `say` is passed to `hear` in this process. The function is pickled by value, so that it
    may use classes of a script or of a file that cannot be imported.
    """
    content = cloudpickle.dumps(function)
    waiting, tries, left = list(jobs), {id(job): 0 for job in jobs}, len(jobs)
    workers: list[_Worker] = []
    try:
        while left:
            for worker in [each for each in workers if each.job is None and not each.process.is_alive()]:
                _remove(worker, workers)  # killed while idle: no job has lost a try
            while waiting and len(workers) < min(processes, left):
                workers.append(_started(content))
            for worker in workers:
                if worker.job is None and waiting:
                    worker.job = waiting.pop(0)
                    with suppress(OSError):  # the process was just killed; `recv_bytes` below fails too
                        worker.pipe.send_bytes(cloudpickle.dumps(worker.job))
            ready = wait([worker.pipe for worker in workers if worker.job is not None])
            for worker in [each for each in workers if each.pipe in ready]:
                job = worker.job
                try:
                    kind, said = cloudpickle.loads(worker.pipe.recv_bytes())
                except (EOFError, OSError):  # the process was killed; a new one replaces it
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
            worker.pipe.close()  # an idle process reads an end of file and exits
        for worker in workers:
            worker.process.join()


def _remove(worker: _Worker, workers: list[_Worker]) -> None:
    """Remove a worker whose process has ended."""
    workers.remove(worker)
    worker.pipe.close()
    worker.process.join()


def _started(content: bytes) -> _Worker:
    ours, theirs = context().Pipe()
    process = start(_serve, theirs, content)
    theirs.close()
    return _Worker(process, ours)


def _serve(pipe: Connection, content: bytes) -> None:
    """The main function of a worker process: does jobs until the pipe is closed."""

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
