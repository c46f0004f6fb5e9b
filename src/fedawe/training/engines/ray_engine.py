"""Trains the clients of a round on a Ray cluster. Each node stores the data once; equal models are sent once."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
import torch
from torch import Tensor

from fedawe.algorithms.exchange import Broadcast, Upload
from fedawe.tasks.base import Metrics, Task
from fedawe.training.engines.base import Divisible
from fedawe.training.engines.processes import one_thread
from fedawe.training.engines.ray_actors import Actor, Actors
from fedawe.training.engines.ray_cluster import RayCluster, imported
from fedawe.training.engines.ray_store import Array, Store, pack, unpack
from fedawe.training.local import Local
from fedawe.training.shares import Share, shares, upload
from fedawe.training.stacking import is_stacked

# Bytes of models of earlier rounds that stay in the cluster, because clients may start from them again.
SPARE = 2**28
LOSSES = 3  # lost workers on the same job after which the run is given up


class Job(Protocol):
    """A computation from some models; its result does not depend on the worker, nor on how often it is repeated."""

    @property
    def models(self) -> Sequence[str]:
        """The names of these models in the store."""

    def do(self, task: Any, local: Local, models: Mapping[str, Array]) -> Any:
        """The result, from the task, the local training and the models by name."""


@dataclass(frozen=True)
class Training:
    """Local training of one group of clients."""

    starts: list[str]  # names of the start models, [k]
    shifts: list[str]  # names of the vectors that are added to the gradients, [k]; empty if there are none
    share: Share

    @property
    def models(self) -> list[str]:
        """The names of all vectors that the group needs."""
        return self.starts + self.shifts

    def do(
        self, task: Any, local: Local, models: Mapping[str, Array]
    ) -> tuple[Array, list[float] | None, Array | None]:
        """G [k, d], and if the broadcast asks for them the losses [k] and the gradients [k, d]."""
        X, shift = (
            torch.from_numpy(np.stack([models[name] for name in names])) if names else None  # copies
            for names in (self.starts, self.shifts)
        )
        assert X is not None
        answer = self.share.train(task, local, X, shift)
        return answer.G.numpy(), answer.loss, None if answer.gradient is None else answer.gradient.numpy()


@dataclass(frozen=True)
class Asking:
    """One piece of an evaluation."""

    models: list[str]  # the name of the model
    piece: Any

    def do(self, task: Any, local: Local, models: Mapping[str, Array]) -> Array:
        """The answers of this piece."""
        del local
        answers: Array = task.ask(torch.from_numpy(models[self.models[0]].copy()), self.piece).numpy()
        return answers


class Worker(Actor):
    """An actor that keeps the last task it received."""

    def __init__(self) -> None:
        super().__init__()
        self.key: list[str] = []
        self.task: Any = None

    def do(self, packed: list[Any], local: Local, models: dict[str, Any], jobs: list[Job]) -> list[Any]:
        """The results of some jobs; `packed` refers to the task, `models` maps names to references."""
        ray = imported()
        key = [reference.hex() for reference in packed]
        if key != self.key:
            self.task, self.key = unpack(ray.get(packed)), key
        found = dict(zip(models, ray.get(list(models.values())), strict=True))
        with one_thread():
            return [job.do(self.task, local, found) for job in jobs]


class RayEngine:
    """`workers` processes of one core in the cluster (by default all cores) share the groups of clients of a round.

    Groups are the same as in every other engine and each is trained on one thread. The numbers are therefore the same
    too if all nodes have the same kind of processor. Another node repeats the unfinished work of a lost one, with the
    same random numbers.
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
        """Switch to this task; arrays that the cluster has already are not sent again."""
        self.local, self.stacked = local, is_stacked(task, local, stacked)
        if task is not self.task:
            self.packed = [self.data[name] for name in self.data.put(pack(task))]
            self.task = task

    def train(self, down: Broadcast, A: Tensor, t: int, seed: int, visits: Tensor) -> Upload:
        assert self.task is not None
        k, shifted = len(A), down.shift is not None
        rows = list(down.x.numpy()) + (list(down.shift.numpy()) if down.shift is not None else [])
        names = self.models.put(rows)
        work = shares(self.task, self.local, down, A, t, seed, visits, self.stacked)
        found = self._share_out(
            [
                Training(
                    names[share.start : share.stop],
                    names[k + share.start : k + share.stop] if shifted else [],
                    share,
                )
                for share in work
            ]
        )
        G = torch.empty_like(down.x)
        gradient = torch.empty_like(G[:, : G.shape[1] - self.task.buffers]) if down.gradient else None
        for share, (g, _, at_start) in zip(work, found, strict=True):
            G[share.start : share.stop] = torch.from_numpy(g.copy())
            if gradient is not None:
                gradient[share.start : share.stop] = torch.from_numpy(at_start.copy())
        return upload(self.task, self.local, down, A, t, G, [loss for _, loss, _ in found], gradient)

    def evaluate(self, x: Tensor) -> Metrics:
        assert self.task is not None
        if not isinstance(self.task, Divisible):
            return self.task.evaluate(x)
        model = self.models.put([x.numpy()])
        found = self._share_out([Asking(model, piece) for piece in self.task.pieces()])
        return self.task.summary([torch.from_numpy(answer.copy()) for answer in found])

    def _share_out(self, jobs: Sequence[Job]) -> list[Any]:
        """Do all jobs on the free actors; returns the results in the order of the jobs.

        Large batches come first and single jobs last, so that all actors finish at about the same time.
        """
        waiting, losses = list(range(len(jobs))), [0] * len(jobs)
        answers: dict[int, Any] = {}
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
