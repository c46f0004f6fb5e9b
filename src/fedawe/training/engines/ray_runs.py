"""Whole runs spread over a cluster, one core each; their files come back, so that nodes need not share our disk."""

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

AT_ONCE = 0.2  # seconds of news that are brought together
TRIES = 3  # of a run whose node was lost

Files = dict[str, bytes]
Say = Callable[[Any], None]


@dataclass(frozen=True)
class Errand:
    """A run of `thing`, which is put into the cluster once, that leaves its files in the folder root / part."""

    root: Path
    part: Path
    thing: Any
    rest: tuple[Any, ...] = ()


@dataclass(frozen=True)
class Kept:
    """How the files have changed: where the run goes on if its node is lost."""

    new: Files
    gone: list[str]


@dataclass(frozen=True)
class Outcome:
    """How an errand ended: well, with a `UserError`, or with an error that is a bug."""

    kind: Literal["done", "refused", "failed"]
    said: str = ""


class Runner(Actor):
    """Does one errand at a time in a thread of its own, and tells of it when asked."""

    def begin(self, function: Callable[..., None], packed: list[Any], errand: Errand, files: Files) -> list[Any]:
        """Start function(thing, folder, *rest, say, keep); what it says can be had from `news`."""
        self.said: queue.SimpleQueue[Any] = queue.SimpleQueue()
        threading.Thread(target=self._work, args=(self.said, function, packed, errand, files), daemon=True).start()
        return []

    def _work(self, said: Any, function: Callable[..., None], packed: list[Any], errand: Errand, files: Files) -> None:
        torch.set_num_threads(1)
        with tempfile.TemporaryDirectory() as here:
            folder = new_folder(Path(here) / errand.part)

            def say(what: Any) -> None:
                said.put(what.replace(here, str(errand.root)) if isinstance(what, str) else what)

            def keep() -> None:
                nonlocal files
                now = _read(folder)
                new = {name: content for name, content in now.items() if content != files.get(name)}
                said.put(Kept(new, [name for name in files if name not in now]))
                files = now

            try:
                _change(folder, Kept(files, []))
                function(unpack(imported().get(packed)), Path(here), *errand.rest, say, keep)
                keep()
                said.put(Outcome("done"))
            except UserError as error:
                said.put(Outcome("refused", str(error).replace(here, str(errand.root))))
            except Exception:
                said.put(Outcome("failed", traceback.format_exc()))

    def news(self) -> list[Any]:
        """What was said since the last time; comes back soon in any case."""
        time.sleep(AT_ONCE)
        found = []
        while not self.said.empty():
            found.append(self.said.get())
        return found


def spread(
    cluster: RayCluster,
    function: Callable[..., None],
    errands: Sequence[Errand],
    at_once: int,
    hear: Say,
    warn: Callable[[str], None],
) -> Iterator[tuple[int, Outcome]]:
    """function(thing, folder, *rest, say, keep) for all errands, as they end: (number, outcome).

    What they say goes to `hear`. An errand whose node was lost goes on elsewhere from the files that were last kept,
    and what the lost one still says is not heard.
    """
    store = Store(2**62)  # everything stays until the last run has ended
    packed = {id(errand.thing): [store[name] for name in store.put(pack(errand.thing))] for errand in errands}
    waiting, tries = list(range(len(errands))), [0] * len(errands)
    actors: Actors[int] = Actors(cluster, Runner, min(at_once, len(errands)), warn)
    left = len(errands)
    try:
        while left:
            outcome = None
            if waiting and actors.free:
                n, errand = waiting[0], errands[waiting.pop(0)]
                try:
                    files = _read(new_folder(errand.root / errand.part))
                except UserError as error:
                    outcome = Outcome("refused", str(error))
                else:
                    light = Errand(errand.root, errand.part, None, errand.rest)
                    actors.ask(actors.free.pop(), "begin", n, function, packed[id(errand.thing)], light, files)
            elif (answer := actors.next()) is not None:
                n = answer.asked
                if answer.lost:
                    tries[n] += 1
                    if tries[n] < TRIES:
                        waiting.insert(0, n)
                    else:
                        outcome = Outcome("failed", f"its process was killed or its node was lost {TRIES} times")
                else:
                    outcome = _listen(answer.said, errands[n].root / errands[n].part, hear)
                    if outcome is None:
                        actors.free.remove(answer.actor)
                        actors.ask(answer.actor, "news", n)
            if outcome is not None:
                left -= 1
                yield n, outcome
    finally:
        actors.close()


def _listen(said: Sequence[Any], folder: Path, hear: Say) -> Outcome | None:
    """Keep what is to be kept and pass on the rest; the outcome, if that was among it."""
    for what in said:
        if isinstance(what, Outcome):
            return what
        if isinstance(what, Kept):
            _change(folder, what)
        else:
            hear(what)
    return None


def _read(folder: Path) -> Files:
    return {path.name: path.read_bytes() for path in folder.iterdir() if path.is_file()}


def _change(folder: Path, kept: Kept) -> None:
    """What is no longer needed goes last, so that there is always a state to go on from."""
    for name, content in kept.new.items():
        write_atomically(folder / name, content)
    for name in kept.gone:
        (folder / name).unlink(missing_ok=True)
