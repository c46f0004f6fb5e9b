"""What is on the disk after every round: enough to go on as if nothing had happened.

OUT/checkpoint-00000012-....safetensors   after 12 rounds: state, trace so far, who is who, the record's last line
OUT/versions/                             the models that clients hold, each once
OUT/trace.npz                             who answered when, as `fedawe run --dynamics` reads it
OUT/record.jsonl                          a header, a line per round, a last line
OUT/model.safetensors                     the model, when all rounds are done

The checkpoint is what counts; it is written first, at once, and everything else follows from it.
"""

import hashlib
import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Generic

import filelock
import numpy as np
import safetensors
import safetensors.torch
import torch
from torch import Tensor

from fedawe.algorithms.base import S
from fedawe.availability.dynamics import Mask
from fedawe.availability.trace import Trace
from fedawe.core.environment import environment
from fedawe.core.errors import UserError
from fedawe.core.files import new_folder, write_atomically
from fedawe.deploy.store import Index, Store
from fedawe.results import record as records
from fedawe.results.record import Line

FORMAT = 1
KEPT = 2  # the newest, and the one before in case the newest is damaged
PATIENCE = 60.0  # seconds that a server app which is going down may still hold the folder


@dataclass(frozen=True)
class Progress(Generic[S]):
    """All that a federation knows after some rounds."""

    state: S
    statistics: Tensor  # of batch normalisation                                               [b]
    on: Mask  # who answered when                                                              [t + 1, m]
    roster: dict[str, Any]
    line: Line | None  # of the last round; None before the first

    @property
    def rounds(self) -> int:
        """How many are done."""
        return len(self.on)


class Folder(Generic[S]):
    """The folder of one federation; `meant` is what must be the same whenever it goes on."""

    def __init__(self, path: Path, meant: Line, max_versions: int) -> None:
        self.path, self.meant = path, meant
        self.store = Store(new_folder(path) / "versions", max_versions)
        self.indexes: list[Index] = []  # of the checkpoints that are kept, newest first
        self.writer: records.Writer | None = None

    @contextmanager
    def held(self) -> Iterator[None]:
        """Nobody else writes here meanwhile."""
        try:
            with filelock.FileLock(self.path / ".lock", timeout=PATIENCE):
                try:
                    yield
                finally:
                    if self.writer is not None:
                        self.writer.__exit__()
        except filelock.Timeout:
            raise UserError(f"{self.path} is in use by another server app; stop it, or choose another out") from None

    def load(self, fresh: Progress[S], warn: Callable[[str], None]) -> Progress[S]:
        """Where to go on: the newest checkpoint that is undamaged, or `fresh` if there is none."""
        for part in [*self.path.glob(".*.part"), *self.store.folder.glob(".*.part")]:  # of who was killed while writing
            part.unlink(missing_ok=True)
        found, damaged = self._newest_first(), []
        for path in found:
            try:
                progress, index = self._read(path, fresh.state)
            except _Damaged as error:
                warn(f"{error}; going back to the checkpoint before")
                damaged.append(path)
                continue
            for useless in damaged:  # it would be taken for the newest of its round
                useless.unlink(missing_ok=True)
            self.indexes = [index]
            self._open_record(progress)
            self._follow(progress)
            return progress
        if found:
            raise UserError(f"{self.path} has checkpoints, but all are damaged; choose another out to begin anew")
        self._open_record(fresh)
        return fresh

    def save(self, progress: Progress[S]) -> S:
        """After a round: the checkpoint first, then what follows from it. The state to go on with, old rows on disk."""
        state, tensors, index = self.store.put(progress.state)
        said = {
            "format": FORMAT,
            "meant": self.meant,
            "rows": index,
            "roster": progress.roster,
            "line": progress.line,
        }
        tensors["on"] = torch.from_numpy(np.packbits(progress.on, axis=1))
        tensors["statistics"] = progress.statistics
        content = safetensors.torch.save(
            {name: tensor.contiguous() for name, tensor in tensors.items()}, {"fedawe": json.dumps(said)}
        )
        write_atomically(self.path / f"checkpoint-{progress.rounds:08d}-{_digest(content)}.safetensors", content)
        self.indexes = [index, *self.indexes][:KEPT]
        for old in self._newest_first()[KEPT:]:
            old.unlink(missing_ok=True)
        self.store.prune(*self.indexes)
        self._follow(progress)
        if self.writer is not None and progress.line is not None:
            self.writer.write(progress.line)
        return state

    def finish(self, model: dict[str, Tensor], rounds: int) -> None:
        """All rounds are done: the model to ship, and the record's last line."""
        content = safetensors.torch.save(model)
        write_atomically(self.path / "model.safetensors", content)
        if self.writer is not None:
            end = {"status": "complete", "rounds": rounds, "model_sha256": hashlib.sha256(content).hexdigest()}
            self.writer.write({"kind": "end", **end})

    def lines(self) -> list[Line]:
        """The record's rounds."""
        return records.read(self.path / records.NAME).evaluations

    def _follow(self, progress: Progress[S]) -> None:
        """What can be made from the checkpoint."""
        if progress.rounds:
            Trace(progress.on).save(self.path / "trace.npz")

    def _open_record(self, progress: Progress[S]) -> None:
        """The record up to the checkpoint, whose own line may not have got there."""
        path, header, lines = self.path / records.NAME, {"kind": "header", **self.meant, **environment()}, []
        if path.exists():
            was = records.read(path)
            header = was.header or header
            lines = [line for line in was.evaluations if line["round"] < progress.rounds]
        if progress.line is not None:
            lines.append(progress.line)
        self.writer = records.Writer(path, [header, *lines])

    def _read(self, path: Path, like: S) -> tuple[Progress[S], Index]:
        try:
            content = path.read_bytes()
        except OSError as error:
            raise _Damaged(f"{path}: cannot be read ({error.strerror})") from None
        if _digest(content) != path.stem.split("-")[2]:
            raise _Damaged(f"{path}: is damaged")
        with safetensors.safe_open(path, "pt") as opened:
            said = json.loads(opened.metadata()["fedawe"])
        if said["format"] != FORMAT:
            raise UserError(f"{path}: made by another version of fedawe (format {said['format']}, not {FORMAT})")
        for name, value in self.meant.items():
            if said["meant"].get(name) != value:
                old = str(said["meant"].get(name))[:100]
                raise UserError(
                    f"{self.path} holds a federation with {name} = {old}, not {str(value)[:100]}; choose another out"
                )
        tensors = safetensors.torch.load(content)
        packed, statistics = tensors.pop("on").numpy(), tensors.pop("statistics")
        try:
            state = self.store.get(like, tensors, said["rows"])
        except UserError as error:
            raise _Damaged(str(error)) from None
        on = np.unpackbits(packed, axis=1, count=like.m).astype(bool)
        return Progress(state, statistics, on, said["roster"], said["line"]), said["rows"]

    def _newest_first(self) -> list[Path]:
        return sorted(self.path.glob("checkpoint-*-*.safetensors"), reverse=True)


class _Damaged(Exception):
    """A checkpoint that cannot be used."""


def _digest(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()[:16]
