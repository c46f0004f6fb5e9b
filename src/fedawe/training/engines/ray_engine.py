"""The clients of a round, shared out over a cluster; data lie once on every node, models go by what is in them."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
import torch
from torch import Tensor

from fedawe.tasks.base import Metrics, Task
from fedawe.training.engines.base import Divisible
from fedawe.training.engines.processes import one_thread
from fedawe.training.engines.ray_actors import Actor, Actors
from fedawe.training.engines.ray_cluster import RayCluster, imported
from fedawe.training.engines.ray_store import Array, Store, pack, unpack
from fedawe.training.local import Local, check_finite, groups, train

# Bytes of models of earlier rounds that stay in the cluster, since some client will start from them again.
SPARE = 2**28
LOSSES = 3  # how often a batch may be lost before it is to blame


class Job(Protocol):
    """Something to compute from some models; the same whoever does it, and however often."""

    @property
    def models(self) -> Sequence[str]:
        """Their names."""

    def do(self, task: Any, local: Local, models: Mapping[str, Array]) -> Array:
        """What comes out."""


@dataclass(frozen=True)
class Training:
    """One group of clients."""

    models: list[str]  # where each begins, [k]
    A: list[int]
    t: int
    seed: int
    visits: list[int]

    def do(self, task: Any, local: Local, models: Mapping[str, Array]) -> Array:
        """G [k, d]."""
        X = torch.from_numpy(np.stack([models[name] for name in self.models]))  # a copy that may be written to
        work = local.work(torch.tensor(self.A), self.t, self.seed, torch.tensor(self.visits))
        return train(task, local, X, work).numpy()


@dataclass(frozen=True)
class Asking:
    """One piece of an evaluation."""

    models: list[str]  # the one
    piece: Any

    def do(self, task: Any, local: Local, models: Mapping[str, Array]) -> Array:
        """The answers."""
        del local
        answers: Array = task.ask(torch.from_numpy(models[self.models[0]].copy()), self.piece).numpy()
        return answers


class Worker(Actor):
    """Holds the task it was last told of."""

    def __init__(self) -> None:
        super().__init__()
        self.key: list[str] = []
        self.task: Any = None

    def do(self, packed: list[Any], local: Local, models: dict[str, Any], jobs: list[Job]) -> list[Array]:
        """Some jobs of the task that lies in `packed`."""
        ray = imported()
        key = [reference.hex() for reference in packed]
        if key != self.key:
            self.task, self.key = unpack(ray.get(packed)), key
        found = dict(zip(models, ray.get(list(models.values())), strict=True))
        with one_thread():
            return [job.do(self.task, local, found) for job in jobs]


class RayEngine:
    """`workers` processes of one core in the cluster (by default all cores) share the groups of clients of a round.

    Groups are those of every other engine and each is trained on one thread, so the numbers are the same too, as far as
    the nodes have the same processors. What a lost node was at is done again by another, with the same random numbers.
    """

    def __init__(
        self,
        task: Task,
        local: Local,
        cluster: RayCluster,
        workers: int | None = None,
        warn: Callable[[str], None] = lambda _: None,
        stacked: bool | None = None,
    ) -> None:
        self.models, self.data = Store(SPARE), Store(0)
        self.actors: Actors[list[int]] = Actors(cluster, Worker, workers or max(cluster.cores(), 1), warn)
        self.task: Task | None = None
        self.use(task, local, stacked)

    def use(self, task: Task, local: Local, stacked: bool | None = None) -> None:
        """From now on this task; of its data only what is not there yet is sent."""
        self.local, self.stacked = local, task.stacked if stacked is None else stacked
        if task is not self.task:
            self.packed = [self.data[name] for name in self.data.put(pack(task))]
            self.task = task

    def innovations(self, X: Tensor, A: Tensor, t: int, seed: int, visits: Tensor) -> Tensor:
        models = self.models.put(list(X.numpy()))
        rows = groups(len(A), X.shape[1], self.stacked)
        found = self._share_out(
            [Training(models[at], A[at].tolist(), t, seed, visits[at].tolist()) for at in rows]  # plain and small
        )
        G = torch.empty_like(X)
        for at, answer in zip(rows, found, strict=True):
            G[at] = torch.from_numpy(answer.copy())
        check_finite(G, A, t, self.local)
        return G

    def evaluate(self, x: Tensor) -> Metrics:
        assert self.task is not None
        if not isinstance(self.task, Divisible):
            return self.task.evaluate(x)
        model = self.models.put([x.numpy()])
        found = self._share_out([Asking(model, piece) for piece in self.task.pieces()])
        return self.task.summary([torch.from_numpy(answer.copy()) for answer in found])

    def _share_out(self, jobs: Sequence[Job]) -> list[Array]:
        """All jobs, done by whoever is free; large batches first and single jobs last, so that all end together."""
        waiting, losses = list(range(len(jobs))), [0] * len(jobs)
        answers: dict[int, Array] = {}
        while len(answers) < len(jobs):
            while waiting and self.actors.free:
                size = max(1, len(waiting) // (2 * len(self.actors)))
                batch, waiting = waiting[:size], waiting[size:]
                models = {name: self.models[name] for n in batch for name in jobs[n].models}
                actor = self.actors.free.pop()
                self.actors.ask(actor, "do", batch, self.packed, self.local, models, [jobs[n] for n in batch])
            answer = self.actors.next()
            if answer is None:
                continue
            if not answer.lost:
                answers.update(zip(answer.asked, answer.said, strict=True))
                continue
            waiting = answer.asked + waiting
            for n in answer.asked:
                losses[n] += 1
                if losses[n] >= LOSSES:
                    raise RuntimeError(f"{LOSSES} workers died at the same clients; was memory short?")
        return [answers[n] for n in range(len(jobs))]

    def close(self) -> None:
        self.actors.close()
