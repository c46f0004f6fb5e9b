"""Ray actors with one core each. A lost actor is replaced; one that does not answer is killed and replaced."""

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

LISTEN = 30.0  # seconds without any result until busy actors are asked whether they are alive, and to answer that
PATIENCE = 120.0  # seconds to wait for the first free core
FAILURES = 3  # failed starts in a row that are allowed per actor

W = TypeVar("W")


class Actor:
    """The base class of actors: one thread computes, and another answers `alive`."""

    def __init__(self) -> None:
        torch.set_num_threads(1)
        keep_freed_memory()

    def about(self) -> dict[str, str]:
        """The result of the function `about` on the node of this actor."""
        return about()

    def alive(self) -> None:
        """Return at once, to show that the actor is alive."""


def about() -> dict[str, str]:
    """The versions of fedawe, torch and numpy, and the instruction set that torch uses on this processor."""
    versions = {name: version(name) for name in ("fedawe", "torch", "numpy")}
    return {**versions, "processor": torch.backends.cpu.get_cpu_capability()}


@dataclass(frozen=True)
class Answer(Generic[W]):
    """The result `said` of the request `asked`, and the actor, now free; both are None if the actor was lost."""

    asked: W
    said: Any = None
    actor: Any = None

    @property
    def lost(self) -> bool:
        """Whether the actor was lost before it answered."""
        return self.actor is None


class Actors(Generic[W]):
    """A pool of `number` actors. W is the type of the label that the caller gives to a request."""

    def __init__(self, cluster: RayCluster, kind: type[Actor], number: int, warn: Callable[[str], None]) -> None:
        self.ray, self.warn = cluster.ray, warn
        # Two threads: one computes, one answers `alive`. Ray must not repeat or restart anything by itself.
        self.kind = self.ray.remote(num_cpus=1, max_concurrency=2, max_restarts=0, max_task_retries=0)(kind)
        self.free: list[Any] = []
        self.starting: dict[Any, Any] = {}  # call -> actor
        self.busy: dict[Any, tuple[Any, W]] = {}  # call -> actor and label of the request
        self.silent: deque[W] = deque()  # labels of requests to actors that did not answer
        self.here, self.failures, self.allowed = about(), 0, FAILURES * number
        for _ in range(number):
            self._start()

    def __len__(self) -> int:
        """The number of actors that have started."""
        return len(self.free) + len(self.busy)

    def ask(self, actor: Any, method: str, asked: W, *arguments: Any) -> None:
        """Call a method of an actor that is not busy; the answer has the label `asked`."""
        self.busy[getattr(actor, method).remote(*arguments)] = (actor, asked)

    def next(self) -> Answer[W] | None:
        """Wait for the next answer and return it; None if another actor has started instead."""
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
                    f"no core of the Ray cluster became free in {PATIENCE:.0f} s; `ray status` shows whether its nodes "
                    "are running and busy. The same command continues from the last checkpoint"
                )
            self._listen()
        return Answer(self.silent.popleft())

    def _answer(self, call: Any) -> Answer[W]:
        actor, asked = self.busy.pop(call)
        try:
            said = self.ray.get(call, timeout=LISTEN)
        except self.ray.exceptions.RayError as error:
            cause = getattr(error, "cause", None)  # the exception, if the method raised one
            if isinstance(cause, UserError):
                raise UserError(str(cause)) from None
            if cause is not None and not isinstance(cause, self.ray.exceptions.ObjectLostError):
                raise RuntimeError(f"a worker failed:\n{error}") from None
            self._lost(actor)
            return Answer(asked)
        self.free.append(actor)
        return Answer(asked, said, actor)

    def _listen(self) -> None:
        """Give up the busy actors that do not answer `alive`."""
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
        except self.ray.exceptions.RayError as error:  # its node was lost meanwhile, or a package is missing
            self.failures += 1
            if self.failures > self.allowed:
                said = " ".join(str(error).split())
                raise UserError(
                    f"the cluster cannot start workers; is fedawe installed on all nodes? Ray says: {said}"
                ) from None
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
                f"a node computes with {there['processor']}, but another node or this machine does not: "
                "the last bits of a result then depend on which node trained which client"
            )
        self.free.append(actor)

    def _lost(self, actor: Any) -> None:
        self.warn("a worker or node of the cluster was lost; another one repeats its unfinished work")
        self._kill(actor)
        self._start()

    def _kill(self, actor: Any) -> None:
        with suppress(self.ray.exceptions.RayError, ConnectionError, ValueError):
            self.ray.kill(actor)  # ValueError: it belonged to another connection

    def close(self) -> None:
        """Kill all actors, which frees their cores."""
        for actor in [*self.free, *self.starting.values(), *(actor for actor, _ in self.busy.values())]:
            self._kill(actor)
        self.free, self.starting, self.busy = [], {}, {}
