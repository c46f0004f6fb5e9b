"""Executes whole runs on a Ray cluster, one core each. Their files are copied back, so nodes need no shared disk."""

import queue
import tempfile
import threading
import time
import traceback
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import torch

from fedawe.core.errors import UserError
from fedawe.core.files import new_folder, write_atomically
from fedawe.training.engines.ray_actors import Actor, Actors
from fedawe.training.engines.ray_cluster import RayCluster, imported
from fedawe.training.engines.ray_store import Store, pack, unpack

PERIOD = 0.2  # seconds for which an actor collects messages until it sends them
TRIES = 3  # lost nodes after which a run is given up

Files = dict[str, bytes]
Say = Callable[[Any], None]


@dataclass(frozen=True)
class RemoteRun:
    """A run on the cluster: a call of function(shared, folder, *arguments, say, keep). Its files belong in root / part.

    `shared` is sent to the cluster once for all runs that have the same object.
    """

    root: Path
    part: Path
    shared: Any
    arguments: tuple[Any, ...] = ()


@dataclass(frozen=True)
class Changes:
    """How the files of a run have changed. The run continues from these files if its node is lost."""

    new: Files
    removed: list[str]


@dataclass(frozen=True)
class Outcome:
    """How a run ended: complete, with a `UserError`, or with an error that is a bug."""

    kind: Literal["done", "refused", "failed"]
    said: str = ""


class Runner(Actor):
    """An actor that executes one run at a time in a thread, and returns its messages on request."""

    def begin(self, function: Callable[..., None], packed: list[Any], run: RemoteRun, files: Files) -> list[Any]:
        """Start the run from these files; `packed` refers to its shared object. `messages` returns what it says."""
        self.said: queue.SimpleQueue[Any] = queue.SimpleQueue()
        threading.Thread(target=self._work, args=(self.said, function, packed, run, files), daemon=True).start()
        return []

    def _work(self, said: Any, function: Callable[..., None], packed: list[Any], run: RemoteRun, files: Files) -> None:
        torch.set_num_threads(1)
        here = str(run.root)  # until there is a folder on this node

        def say(what: Any) -> None:
            said.put(what.replace(here, str(run.root)) if isinstance(what, str) else what)

        def keep() -> None:
            nonlocal files
            now = _read(Path(here) / run.part)
            new = {name: content for name, content in now.items() if content != files.get(name)}
            said.put(Changes(new, [name for name in files if name not in now]))
            files = now

        try:
            with tempfile.TemporaryDirectory() as here:
                _apply(new_folder(Path(here) / run.part), Changes(files, []))
                function(unpack(imported().get(packed)), Path(here), *run.arguments, say, keep)
                keep()
                said.put(Outcome("done"))
        except UserError as error:
            said.put(Outcome("refused", str(error).replace(here, str(run.root))))
        except BaseException:  # whatever ends this thread: the run would otherwise be waited for without end
            said.put(Outcome("failed", traceback.format_exc()))

    def messages(self) -> list[Any]:
        """The messages of the run since the last call; returns after a short time, also if there are none."""
        time.sleep(PERIOD)
        found = []
        while not self.said.empty():
            found.append(self.said.get())
        return found


def spread(
    cluster: RayCluster,
    function: Callable[..., None],
    runs: Sequence[RemoteRun],
    at_once: int,
    hear: Say,
    warn: Callable[[str], None],
) -> Iterator[tuple[int, Outcome]]:
    """Execute all runs, at most `at_once` at the same time; yields (number, outcome) of each run when it ends.

    A run passes messages to `say`, which go to `hear`, and calls `keep` to have its files copied back. A run whose node
    was lost continues on another node from the files that were copied last.
    """
    store = Store(2**62)  # everything is kept until the last run has ended
    packed = {id(run.shared): [store[name] for name in store.put(pack(run.shared))] for run in runs}
    waiting, tries = list(range(len(runs))), [0] * len(runs)
    actors: Actors[int] = Actors(cluster, Runner, min(at_once, len(runs)), warn)
    left = len(runs)
    try:
        while left:
            outcome = None
            if waiting and actors.free:
                n, run = waiting[0], runs[waiting.pop(0)]
                try:
                    files = _read(new_folder(run.root / run.part))
                except UserError as error:
                    outcome = Outcome("refused", str(error))
                else:
                    light = RemoteRun(run.root, run.part, None, run.arguments)
                    actors.ask(actors.free.pop(), "begin", n, function, packed[id(run.shared)], light, files)
            elif (answer := actors.next()) is not None:
                n = answer.asked
                if answer.lost:
                    tries[n] += 1
                    if tries[n] < TRIES:
                        waiting.insert(0, n)
                    else:
                        outcome = Outcome("failed", f"its process was killed or its node was lost {TRIES} times")
                else:
                    outcome = _handle(answer.said, runs[n].root / runs[n].part, hear)
                    if outcome is None:
                        actors.free.remove(answer.actor)
                        actors.ask(answer.actor, "messages", n)
            if outcome is not None:
                left -= 1
                yield n, outcome
    finally:
        actors.close()


def _handle(said: Sequence[Any], folder: Path, hear: Say) -> Outcome | None:
    """Write changed files, pass other messages to `hear`, and return the outcome if there is one."""
    for what in said:
        if isinstance(what, Outcome):
            return what
        if isinstance(what, Changes):
            _apply(folder, what)
        else:
            hear(what)
    return None


def _read(folder: Path) -> Files:
    return {path.name: path.read_bytes() for path in folder.iterdir() if path.is_file()}


def _apply(folder: Path, changes: Changes) -> None:
    """Write the new files, then remove the old ones, so that there is always a checkpoint."""
    for name, content in changes.new.items():
        write_atomically(folder / name, content)
    for name in changes.removed:
        (folder / name).unlink(missing_ok=True)
