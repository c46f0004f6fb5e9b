"""Several processes with one thread each, including this one; models and innovations are in shared memory."""

import io
import pickle
import traceback
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from multiprocessing.connection import Connection
from multiprocessing.reduction import ForkingPickler
from typing import Any

import cloudpickle
import torch
from torch import Tensor

from fedawe.algorithms.exchange import Broadcast, Upload
from fedawe.core.errors import UserError
from fedawe.tasks.base import Metrics, Task
from fedawe.training.engines.base import Divisible
from fedawe.training.engines.memory import keep_freed_memory
from fedawe.training.engines.start import context, start
from fedawe.training.local import Local
from fedawe.training.shares import Share, shares, upload
from fedawe.training.stacking import is_stacked

Job = tuple[Any, ...]


@dataclass
class Shared:
    """What the processes share: rows for models and innovations, and the number of the next job."""

    X: Tensor  # [rows, d]
    G: Tensor  # [rows, d]
    x: Tensor  # the model under evaluation, [d]
    next: Any  # a locked integer
    shift: Tensor | None = None  # [rows, d], from the first round in which the algorithm sends one
    gradient: Tensor | None = None  # [rows, d], from the first round in which the algorithm asks for it

    def claimed(self, jobs: int) -> Iterator[int]:
        """Numbers of the jobs that this process takes: each time the next one that no process has taken."""
        while True:
            with self.next.get_lock():
                number = self.next.value
                self.next.value += 1
            if number >= jobs:
                return
            yield number


class Processes:
    """`workers` processes, including this one, share the groups of clients of a round.

    Groups are the same for any number of workers, and each is trained on one thread, so the numbers are the same too.
    `rows` is the expected number of active clients; the memory grows if there are more. `like` is a model [d].
    """

    def __init__(
        self, task: Task, local: Local, workers: int, rows: int, like: Tensor, stacked: bool | None = None
    ) -> None:
        keep_freed_memory()
        d = len(like)
        X, G, x = (like.new_zeros(size).share_memory_() for size in ((rows, d), (rows, d), (d,)))
        self.shared = Shared(X, G, x, context().Value("q", 0))
        self.pipes: list[Connection] = []
        self.processes: list[Any] = []
        for _ in range(workers - 1):
            ours, theirs = context().Pipe()
            process = start(_serve, theirs, self.shared)
            theirs.close()
            self.pipes.append(ours)
            self.processes.append(process)
        self.use(task, local, stacked)

    def use(self, task: Task, local: Local, stacked: bool | None = None) -> None:
        """Switch to this task; its data is put into shared memory once for all processes."""
        self.task, self.local, self.stacked = task, local, is_stacked(task, local, stacked)
        message = _by_value(("use", task, local))
        for pipe in self.pipes:
            self._send(pipe, message)
        for pipe in self.pipes:
            _checked(*self._receive(pipe))

    def train(self, down: Broadcast, A: Tensor, t: int, seed: int, visits: Tensor) -> Upload:
        k, d = len(A), down.x.shape[1] - self.task.buffers
        if k > len(self.shared.X):
            for name in ("X", "G"):
                self._new_rows(name, k + k // 4, down.x.shape[1])
        self.shared.X[:k] = down.x
        if down.shift is not None:
            self._rows("shift", d)[:k] = down.shift
        gradient = self._rows("gradient", d)[:k] if down.gradient else None
        work = shares(self.task, self.local, down, A, t, seed, visits, self.stacked)
        losses = self._share_out([("train", share, down.shift is not None) for share in work])
        G = self.shared.G[:k]  # valid until the next round
        return upload(self.task, self.local, down, A, t, G, losses, gradient)

    def _rows(self, name: str, d: int) -> Tensor:
        """Shared rows [rows, d] that only some algorithms need: created and sent to all processes at the first use."""
        found: Tensor | None = getattr(self.shared, name)
        if found is None or found.shape != (len(self.shared.X), d):
            return self._new_rows(name, len(self.shared.X), d)
        return found

    def _new_rows(self, name: str, rows: int, d: int) -> Tensor:
        made: Tensor = self.shared.X.new_zeros((rows, d)).share_memory_()
        setattr(self.shared, name, made)
        for pipe in self.pipes:  # one message each: a shared tensor can be received only once
            pipe.send(("rows", name, made))
        for pipe in self.pipes:
            _checked(*self._receive(pipe))
        return made

    def evaluate(self, x: Tensor) -> Metrics:
        if not isinstance(self.task, Divisible):
            return self.task.evaluate(x)
        self.shared.x.copy_(x)
        answers = self._share_out([("ask", piece) for piece in self.task.pieces()])
        return self.task.summary([torch.from_numpy(answer) for answer in answers])

    def _share_out(self, jobs: Sequence[Job]) -> list[Any]:
        """Do all jobs, each in the next free process; returns the answers in the order of the jobs."""
        self.shared.next.value = 0
        answers: dict[int, Any] = {}
        message = pickle.dumps(("jobs", jobs, None))
        for pipe in self.pipes:
            self._send(pipe, message)
        try:
            with one_thread():
                for number in self.shared.claimed(len(jobs)):
                    answers[number] = _do(jobs[number], self.task, self.local, self.shared)
        except Exception:
            for pipe in self.pipes:  # read them now, or a later round would take them for its own answers
                self._receive(pipe)
            raise
        replies = [self._receive(pipe) for pipe in self.pipes]  # all of them, before the first failure raises
        for reply in replies:
            answers.update(_checked(*reply))
        return [answers[number] for number in range(len(jobs))]

    def _send(self, pipe: Connection, message: bytes) -> None:
        try:
            pipe.send_bytes(message)
        except (BrokenPipeError, OSError):
            raise RuntimeError(self._worker_died()) from None

    def _receive(self, pipe: Connection) -> tuple[str | None, Any]:
        """The kind of failure, if there was one, and the answer."""
        try:
            failed, answer = pipe.recv()
        except (EOFError, ConnectionResetError):
            raise RuntimeError(self._worker_died()) from None
        return failed, answer

    def _worker_died(self) -> str:
        codes = [process.exitcode for process in self.processes if process.exitcode is not None]
        return f"a worker process died (exit code {codes}); was memory short?"

    def close(self) -> None:
        for pipe in self.pipes:
            pipe.close()  # the worker reads an end of file and exits
        for process in self.processes:
            process.join(timeout=5)
            if process.is_alive():
                process.kill()
                process.join()


@contextmanager
def one_thread() -> Iterator[None]:
    """Use one thread, as every other process does, so that no bit depends on the process that trains a group."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(threads)


def _checked(failed: str | None, answer: Any) -> Any:
    """The answer of a worker; raises the error if the worker failed."""
    if failed == "refused":
        raise UserError(answer)
    if failed:
        raise RuntimeError(f"a worker failed:\n{answer}")
    return answer


def _by_value(message: Any) -> bytes:
    """The pickled message: tensors in shared memory, and classes that workers cannot import by value."""
    file = io.BytesIO()
    reducers: Any = ForkingPickler._extra_reducers  # type: ignore[attr-defined]
    pickler = cloudpickle.Pickler(file)
    pickler.dispatch_table = pickler.dispatch_table.new_child(dict(reducers))
    pickler.dump(message)
    return file.getvalue()


def _do(job: Job, task: Any, local: Local, shared: Shared) -> Any:
    kind, *what = job
    if kind == "ask":
        return task.ask(shared.x, what[0]).numpy()
    share: Share = what[0]
    rows = slice(share.start, share.stop)
    shift = shared.shift[rows] if what[1] and shared.shift is not None else None
    answer = share.train(task, local, shared.X[rows], shift)
    shared.G[rows] = answer.G
    if shared.gradient is not None and answer.gradient is not None:
        shared.gradient[rows] = answer.gradient
    return answer.loss


def _serve(pipe: Connection, shared: Shared) -> None:
    """The loop of a worker process: take jobs and send answers until the pipe is closed."""
    task: Any = None
    local: Any = None
    with suppress(EOFError, ConnectionError):
        while True:
            kind, what, more = pipe.recv()
            answer: Any = None
            try:
                if kind == "use":
                    task, local = what, more
                elif kind == "rows":
                    setattr(shared, what, more)
                else:
                    answer = {n: _do(what[n], task, local, shared) for n in shared.claimed(len(what))}
            except UserError as error:
                pipe.send(("refused", str(error)))
            except Exception:
                pipe.send(("failed", traceback.format_exc()))
            else:
                pipe.send((None, answer))
