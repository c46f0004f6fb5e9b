"""Processes of one core each, somewhere in a cluster; one that is lost is replaced, one that is silent is given up."""

from collections import deque
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from importlib.metadata import version
from typing import Any, Generic, TypeVar

import torch

from fedawe.core.errors import UserError
from fedawe.training.engines.memory import keep_freed_memory
from fedawe.training.engines.ray_cluster import RayCluster

LISTEN = 30.0  # seconds without an answer after which we ask who is still there, and in which they must say so
PATIENCE = 120.0  # seconds that we wait for a first free core
FAILURES = 3  # starts in a row that may fail, for each actor

W = TypeVar("W")


class Actor:
    """What runs in such a process: one thread that works, and another that says that it is there."""

    def __init__(self) -> None:
        torch.set_num_threads(1)
        keep_freed_memory()

    def about(self) -> dict[str, str]:
        """What must be the same everywhere, and the processor's kind."""
        return about()

    def alive(self) -> None:
        """Nothing but an answer."""


def about() -> dict[str, str]:
    """Versions of what computes, and which instructions it uses."""
    versions = {name: version(name) for name in ("fedawe", "torch", "numpy")}
    return {**versions, "processor": torch.backends.cpu.get_cpu_capability()}


@dataclass(frozen=True)
class Answer(Generic[W]):
    """To a question `asked`: what the actor said, who is free again now; or nothing, if it was lost."""

    asked: W
    said: Any = None
    actor: Any = None

    @property
    def lost(self) -> bool:
        """Whether the actor was."""
        return self.actor is None


class Actors(Generic[W]):
    """At most `number` actors at work; W is what a question is remembered by."""

    def __init__(self, cluster: RayCluster, kind: type[Actor], number: int, warn: Callable[[str], None]) -> None:
        self.ray, self.warn = cluster.ray, warn
        # Two threads: one for the work, one for `alive`. Ray must not repeat or restart anything by itself.
        self.kind = self.ray.remote(num_cpus=1, max_concurrency=2, max_restarts=0, max_task_retries=0)(kind)
        self.free: list[Any] = []
        self.starting: dict[Any, Any] = {}  # call -> actor
        self.busy: dict[Any, tuple[Any, W]] = {}  # call -> actor, what it was asked
        self.silent: deque[W] = deque()  # what those were asked who no longer answer
        self.here, self.failures, self.allowed = about(), 0, FAILURES * number
        for _ in range(number):
            self._start()

    def __len__(self) -> int:
        """How many there are; the others are still to come."""
        return len(self.free) + len(self.busy)

    def ask(self, actor: Any, method: str, asked: W, *arguments: Any) -> None:
        """Let an actor, which must not be busy, do something."""
        self.busy[getattr(actor, method).remote(*arguments)] = (actor, asked)

    def next(self) -> Answer[W] | None:
        """The next answer, when it is there; None if there is another free actor instead."""
        while not self.silent:
            calls = [*self.busy, *self.starting]
            done, _ = self.ray.wait(calls, num_returns=1, timeout=LISTEN if self.busy else PATIENCE)
            if done and done[0] in self.busy:
                return self._answer(done[0])
            if done:
                self._started(done[0])
                return None
            if not self.busy:
                raise UserError(
                    f"no core of the Ray cluster came free in {PATIENCE:.0f} s; are its nodes up, and is it busy "
                    "otherwise? (ray status) The same command goes on from the last checkpoint"
                )
            self._listen()
        return Answer(self.silent.popleft())

    def _answer(self, call: Any) -> Answer[W]:
        actor, asked = self.busy.pop(call)
        try:
            said = self.ray.get(call, timeout=LISTEN)
        except self.ray.exceptions.RayError as error:
            cause = getattr(error, "cause", None)  # what was raised there, if that is what happened
            if isinstance(cause, UserError):
                raise UserError(str(cause)) from None
            if cause is not None and not isinstance(cause, self.ray.exceptions.ObjectLostError):
                raise RuntimeError(f"a worker failed:\n{error}") from None
            self._lost(actor)
            return Answer(asked)
        self.free.append(actor)
        return Answer(asked, said, actor)

    def _listen(self) -> None:
        """Give up those that are busy and do not even say that they are there."""
        calls = {actor.alive.remote(): call for call, (actor, _) in self.busy.items()}
        _, silent = self.ray.wait(list(calls), num_returns=len(calls), timeout=LISTEN)
        for call in silent:
            actor, asked = self.busy.pop(calls[call])
            self._lost(actor)
            self.silent.append(asked)

    def _start(self) -> None:
        actor = self.kind.remote()
        self.starting[actor.about.remote()] = actor

    def _started(self, call: Any) -> None:
        actor = self.starting.pop(call)
        try:
            there = self.ray.get(call, timeout=LISTEN)
        except self.ray.exceptions.RayError as error:  # its node was lost meanwhile, or lacks something
            self.failures += 1
            if self.failures > self.allowed:
                said = " ".join(str(error).split())
                raise UserError(f"the cluster cannot start workers; is fedawe on all nodes? Ray says: {said}") from None
            self._kill(actor)
            self._start()
            return
        self.failures = 0
        for name in ("fedawe", "torch", "numpy"):
            if there[name] != self.here[name]:
                raise UserError(f"a node of the cluster has {name} {there[name]}, this machine {self.here[name]}")
        if there["processor"] != self.here["processor"]:
            self.here["processor"] = there["processor"]
            self.warn(
                f"a node computes with {there['processor']}, another or this machine does not: "
                "the last bits of a result then depend on who trained whom"
            )
        self.free.append(actor)

    def _lost(self, actor: Any) -> None:
        self.warn("a worker or node of the cluster was lost; what it was at is done again by another")
        self._kill(actor)
        self._start()

    def _kill(self, actor: Any) -> None:
        with suppress(self.ray.exceptions.RayError, ConnectionError, ValueError):
            self.ray.kill(actor)  # ValueError: it was of another connection

    def close(self) -> None:
        """Give all cores back."""
        for actor in [*self.free, *self.starting.values(), *(actor for actor, _ in self.busy.values())]:
            self._kill(actor)
        self.free, self.starting, self.busy = [], {}, {}
