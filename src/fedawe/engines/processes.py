"""Worker processes with one thread each; models and innovations go through shared memory."""

import traceback
from collections.abc import Iterable
from dataclasses import dataclass
from multiprocessing.connection import Connection, wait
from typing import Any

import torch
import torch.multiprocessing as mp
from torch import Tensor

from fedawe.engines.base import Divisible
from fedawe.engines.memory import keep_freed_memory
from fedawe.local import Local, check_finite, groups, train
from fedawe.tasks.base import Metrics, Task


@dataclass
class Shared:
    """What the processes share: the task's data, and rows for models and innovations."""

    X: Tensor  # [rows, d]
    G: Tensor  # [rows, d]
    x: Tensor  # the model under evaluation, [d]


class Processes:
    """`workers` processes share the groups of clients of a round; whoever is free takes the next.

    Groups are the same for any number of workers, and each is trained on one thread, so the numbers are the same too.
    `rows` is how many clients can be active at once, `like` a model [d].
    """

    def __init__(self, task: Task, local: Local, workers: int, rows: int, like: Tensor) -> None:
        d = len(like)
        self.shared = Shared(*(like.new_zeros(size).share_memory_() for size in ((rows, d), (rows, d), (d,))))
        context = mp.get_context("spawn")  # a forked child may inherit a lock of the thread pools
        self.pipes: list[Connection] = []
        self.processes: list[Any] = []
        for _ in range(workers):
            ours, theirs = context.Pipe()
            process = context.Process(target=_serve, args=(theirs, self.shared), daemon=True)
            process.start()
            theirs.close()
            self.pipes.append(ours)
            self.processes.append(process)
        self.use(task, local)

    def use(self, task: Task, local: Local) -> None:
        """From now on this task; its data goes to shared memory once, whoever reads it."""
        self.task, self.local = task, local
        for pipe in self.pipes:
            self._send(pipe, ("use", task, local))
        for pipe in self.pipes:
            self._receive(pipe)

    def innovations(self, X: Tensor, A: Tensor, t: int, seed: int, visits: Tensor) -> Tensor:
        k = len(A)
        self.shared.X[:k] = X
        work = self.local.work(A, t, seed, visits)
        self._share_out(
            ("train", (rows.start, rows.stop), work.rows(rows)) for rows in groups(k, X.shape[1], self.task.stacked)
        )
        G = self.shared.G[:k].clone()
        check_finite(G, A, t, self.local)
        return G

    def evaluate(self, x: Tensor) -> Metrics:
        if not isinstance(self.task, Divisible):
            return self.task.evaluate(x)
        self.shared.x.copy_(x)
        return self.task.summary(self._share_out(("ask", piece, None) for piece in self.task.pieces()))

    def _share_out(self, jobs: Iterable[tuple[str, Any, Any]]) -> list[Any]:
        """Every job to the next worker that is free; the answers in the order of the jobs."""
        todo = list(enumerate(jobs))
        answers: list[Any] = [None] * len(todo)
        todo.reverse()
        busy: dict[Connection, int] = {}
        free = list(self.pipes)
        while todo or busy:
            while todo and free:
                number, job = todo.pop()
                pipe = free.pop()
                self._send(pipe, job)
                busy[pipe] = number
            ready = wait(list(busy))
            for pipe in [pipe for pipe in busy if pipe in ready]:
                answers[busy.pop(pipe)] = self._receive(pipe)
                free.append(pipe)
        return answers

    def _send(self, pipe: Connection, job: Any) -> None:
        try:
            pipe.send(job)
        except (BrokenPipeError, OSError):
            raise RuntimeError(self._obituary()) from None

    def _receive(self, pipe: Connection) -> Any:
        try:
            failed, answer = pipe.recv()
        except (EOFError, ConnectionResetError):
            raise RuntimeError(self._obituary()) from None
        if failed:
            raise RuntimeError(f"a worker failed:\n{answer}")
        return answer

    def _obituary(self) -> str:
        codes = [process.exitcode for process in self.processes if process.exitcode is not None]
        return f"a worker process died (exit code {codes}); was memory short?"

    def close(self) -> None:
        for pipe in self.pipes:
            pipe.close()  # the worker reads an end of file, and leaves
        for process in self.processes:
            process.join(timeout=5)
            if process.is_alive():
                process.kill()
                process.join()


def _serve(pipe: Connection, shared: Shared) -> None:
    """A worker: take a job, do it, answer, until there is nobody to answer to."""
    torch.set_num_threads(1)
    keep_freed_memory()
    task: Any = None
    local: Any = None
    while True:
        try:
            kind, what, more = pipe.recv()
        except (EOFError, KeyboardInterrupt):
            return
        try:
            answer: Any = None
            if kind == "use":
                task, local = what, more
            elif kind == "train":
                rows = slice(*what)
                shared.G[rows] = train(task, local, shared.X[rows], more)
            else:
                answer = task.ask(shared.x, what)
            pipe.send((False, answer))
        except KeyboardInterrupt:
            return
        except BrokenPipeError:
            return
        except Exception:
            pipe.send((True, traceback.format_exc()))
