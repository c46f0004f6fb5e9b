"""Send the records of runs to trackers: every tracker receives every evaluation once, despite interruptions.

A resumed run computes again, bit for bit, the rounds after its last checkpoint. A tracker that already has those rounds
returns the last one when a run starts, and then receives only the later ones. `tracking.json` in the folder of an
experiment has an id, from which the ids of its runs follow, and says which runs are complete in which tracker.
"""

import hashlib
import uuid
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from fedawe.core.files import brief, write_atomically
from fedawe.experiments.folder import path_of_run
from fedawe.experiments.run import Progress, Tell, Warn
from fedawe.results import record as records
from fedawe.results.head import head_content, read_head
from fedawe.results.record import Line, Record
from fedawe.trackers.base import TrackedRun, Tracker

NAME = "tracking.json"


@dataclass
class _Followed:
    """One tracker and one run, with the newest round that was sent."""

    tracker: Tracker
    run: TrackedRun
    last: int = -1  # the newest round that the tracker has
    failed: bool = False


class Tracking:
    """The trackers of the runs of one folder, while `Experiment.run` works in it."""

    def __init__(self, out: Path, trackers: Sequence[Tracker], is_evaluated: Callable[[int], bool], warn: Warn) -> None:
        self.out, self.trackers, self.is_evaluated, self.warn = out, trackers, is_evaluated, warn
        self.open: dict[tuple[str, int], list[_Followed]] = {}
        self._said: dict[str, Any] | None = None  # the content of tracking.json, once it was read

    def telling(self, tell: Tell) -> Tell:
        """The function `tell`, extended so that it also sends new evaluations to the trackers."""

        def told(progress: Progress) -> None:
            self._heard(progress)
            tell(progress)

        return told if self.trackers else tell

    def ended(self, record: Record) -> None:
        """Send the rest of a run that is complete or has diverged, perhaps in an earlier call."""
        if not self.trackers or record.end is None:
            return
        key = str(record.header["label"]), int(record.header["seed"])
        followed = self.open.pop(key, None) or self._begin(record)
        for each in followed:
            self._send(each, record.evaluations)
            self._call(each, each.tracker.finished, record.status)
            if not each.failed:
                self._complete(each, record)

    def close(self) -> None:
        """Report the runs that have not ended as unfinished."""
        for each in (each for followed in self.open.values() for each in followed):
            self._call(each, each.tracker.finished, "unfinished")
        self.open.clear()

    def _heard(self, progress: Progress) -> None:
        key, line = (progress.label, progress.seed), progress.metrics
        if key not in self.open:
            record = self._record(*key)
            if record is not None:  # it may be missing: a cluster sends the files of a run only from time to time
                self.open[key] = self._begin(record)
                for each in self.open[key]:
                    self._send(each, record.evaluations)
        for each in self.open.get(key, ()):
            if line["round"] > each.last:
                self._send(each, [line] if line["round"] == self._due(each.last) else self._lines(*key))

    def _due(self, last: int) -> int:
        """The number of the first evaluated round after `last`."""
        n = last + 1
        while not self.is_evaluated(n):
            n += 1
        return n

    def _record(self, label: str, seed: int) -> Record | None:
        path = path_of_run(self.out, label, seed) / records.NAME
        record = records.read(path) if path.exists() else None
        return record if record is not None and record.header else None

    def _lines(self, label: str, seed: int) -> list[Line]:
        record = self._record(label, seed)
        return [] if record is None else record.evaluations

    def _begin(self, record: Record) -> list[_Followed]:
        """Start the run in every tracker in which it is not complete; each returns the last round that it has."""
        said, header = self._file(), record.header
        name = f"{said['id']} {header['label']} {header['seed']}"
        run = TrackedRun(self.out, hashlib.sha256(name.encode()).hexdigest()[:16], header)
        found = []
        for tracker in self.trackers:
            each = _Followed(tracker, run)
            if said["complete"].get(self._key(each)) != _end(record):
                answer = self._call(each, tracker.started)
                each.last = answer if isinstance(answer, int) else -1
                found.append(each)
        return found

    def _send(self, each: _Followed, lines: Sequence[Line]) -> None:
        for line in lines:
            if line["round"] > each.last:
                each.last = line["round"]
                self._call(each, each.tracker.evaluated, line["round"], line)

    def _call(self, each: _Followed, method: Callable[..., Any], *arguments: Any) -> Any:
        """Call a method of a tracker. An exception in it becomes a warning and does not stop the run."""
        if each.failed:
            return None
        try:
            return method(each.run, *arguments)
        except Exception as error:
            each.failed = True
            name, said = type(each.tracker).__name__, f"{type(error).__name__}: {brief(error)}"
            self.warn(
                f"{name} failed on {each.run.name} ({said}) and receives no more of this run now; the record is not "
                "affected, and the same command again sends the rest"
            )
            return None

    @staticmethod
    def _key(each: _Followed) -> str:
        return f"{each.run.name} {each.tracker.destination}"

    def _complete(self, each: _Followed, record: Record) -> None:
        said = self._file()
        said["complete"][self._key(each)] = _end(record)
        write_atomically(self.out / NAME, head_content(said))

    def _file(self) -> dict[str, Any]:
        """The content of `tracking.json`, which is written before anything is sent to a tracker."""
        if self._said is None:
            path = self.out / NAME
            self._said = read_head(path) if path.exists() else None
            if self._said is None:
                if path.exists():
                    self.warn(f"{path} is damaged; trackers receive all runs of the folder again, as new ones")
                self._said = {"id": uuid.uuid4().hex, "complete": {}}
                write_atomically(path, head_content(self._said))
        return self._said


def _end(record: Record) -> str:
    """The status and last round of a record, which change if the run is extended."""
    last = record.evaluations[-1]["round"] if record.evaluations else -1
    return f"{record.status} {last}"
