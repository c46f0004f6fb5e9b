"""The files of a federation: after every round a checkpoint, from which an interrupted run continues.

The folder has the form of an experiment with one run, so that everything that reads experiments reads it too:

OUT/experiment.json                        what was deployed, versions and hardware
OUT/traces/seed-0.npz                      which clients were active in which round, for `fedawe run --dynamics`; from
                                           100 rounds on the newest hundredth of them may be missing until the end
OUT/fedawe/seed-0/record.jsonl             a header, lines of rounds and of evaluations, a last line
OUT/fedawe/seed-0/model.safetensors        the model, when all rounds are done; further models beside it
OUT/fedawe/seed-0/initial.safetensors      the model before the first round
OUT/fedawe/seed-0/checkpoint-00000012-...  after 12 rounds: state, trace, nodes of clients, last lines of the record
OUT/fedawe/seed-0/versions/                the models that clients hold, each once

The checkpoint is written first and atomically. The record and the trace are completed from it when a run continues.
"""

import hashlib
import json
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import filelock
import numpy as np
import safetensors
import safetensors.torch
import torch
from torch import Tensor

from fedawe.availability.trace import Trace
from fedawe.core.describe import first_difference
from fedawe.core.errors import UserError
from fedawe.core.files import new_folder, remove_unfinished, write_atomically
from fedawe.deploy.session import Progress
from fedawe.deploy.store import Index, Store
from fedawe.experiments.checkpoint import KEPT, digest_of, newest_first
from fedawe.experiments.folder import other, path_of_run
from fedawe.experiments.header import MAY_DIFFER
from fedawe.results import record as records
from fedawe.results.head import HEAD, head_content
from fedawe.results.record import FORMAT, Line, Record

PATIENCE = 60.0  # seconds to wait for another server app, which may be shutting down, to release the folder
GROWN = 0.01  # a trace is written again when it has grown by this share of its rounds
MODEL, INITIAL = "model.safetensors", "initial.safetensors"


def run_of(out: str | Path) -> Path:
    """The folder of the only run in a federation's folder."""
    found = sorted(Path(out).glob(f"*/seed-*/{records.NAME}"))
    if len(found) != 1:
        raise UserError(f"{out} holds {len(found)} runs; expected the folder of one federation")
    return found[0].parent


class Folder:
    """The folder of one federation; a run continues only with the same `header`, except for the fields MAY_DIFFER."""

    def __init__(self, out: Path, header: Line, max_versions: int) -> None:
        self.out, self.header = out, header
        self.meant = {name: value for name, value in header.items() if name not in MAY_DIFFER}
        self.path = path_of_run(out, header["label"], header["seed"])
        self.max_versions = max_versions
        self.indexes: list[Index] = []  # one for each checkpoint that is kept, newest first
        self.writer: records.Writer | None = None
        self.traced = 0  # number of rounds in the trace that was written last

    @contextmanager
    def held(self) -> Iterator[None]:
        """Lock the folder, so that no other server app writes to it, and prepare it."""
        new_folder(self.out)
        try:
            with filelock.FileLock(self.out / ".lock", timeout=PATIENCE):
                self._prepare()
                try:
                    yield
                finally:
                    if self.writer is not None:
                        self.writer.__exit__()
        except filelock.Timeout:
            raise UserError(f"{self.out} is in use by another server app; stop it, or choose another out") from None
        except PermissionError as error:
            raise UserError(f"{error.filename or self.out}: cannot be written ({error.strerror})") from None

    def _prepare(self) -> None:
        """Refuse a folder that holds something else, then write `experiment.json`, which all readers look for."""
        remove_unfinished(self.out)
        for path in sorted(self.out.glob(f"*/seed-*/{records.NAME}")):
            was = records.read(path).header
            if was and "deployment" not in was:
                raise UserError(f"{self.out} holds an experiment that was simulated; choose another out")
            if was:
                self._check({name: value for name, value in was.items() if name not in MAY_DIFFER})
        self.store = Store(new_folder(self.path) / "versions", self.max_versions)
        header = self.header
        names = ("task", "availability", "p", "rounds", "evaluate_every", "evaluate_last", "evaluate_received")
        head = {
            "format": FORMAT,
            "command": "",
            "experiment": {name: header[name] for name in names},
            "algorithms": [header["label"]],
            "stacked": False,
            "environment": header["versions"],
        }
        write_atomically(self.out / HEAD, head_content(head))

    def _check(self, was: Line) -> None:
        if (found := first_difference(was, self.meant)) is not None:
            raise UserError(f"{self.out} holds a federation with {other(*found)}; choose another out")

    def load(self, fresh: Progress, warn: Callable[[str], None]) -> Progress:
        """The progress in the newest undamaged checkpoint, or `fresh` if there is no checkpoint."""
        found, damaged = newest_first(self.path), []
        for path in found:
            try:
                progress, index = self._read(path, fresh.state)
            except _Damaged as error:
                warn(f"{error}; going back to the one before")
                damaged.append(path)
                continue
            for useless in damaged:  # otherwise it would count as the newest of its round
                useless.unlink(missing_ok=True)
            self.indexes = [index]
            self._open_record(progress)
            self._write_trace(progress)
            return progress
        if found:
            raise UserError(f"{self.out} has checkpoints, but all are damaged; choose another out to start again")
        self._open_record(fresh)
        return fresh

    def begin(self, initial: Mapping[str, Tensor], line: Line | None) -> None:
        """Write the initial model, and the line of its evaluation if there is one."""
        write_atomically(self.path / INITIAL, safetensors.torch.save(dict(initial)))
        if self.writer is not None and line is not None:
            self.writer.write(line)

    def save(self, progress: Progress) -> Any:
        """Write the checkpoint of a round, then trace and record. Returns the state with its older rows on disk."""
        state, tensors, index = self.store.put(progress.state)
        said = {
            "format": FORMAT,
            "meant": self.meant,
            "rows": index,
            "roster": progress.roster,
            "lines": list(progress.lines),
        }
        tensors["on"] = torch.from_numpy(np.packbits(progress.on, axis=1))
        content = safetensors.torch.save(
            {name: tensor.contiguous() for name, tensor in tensors.items()}, {"fedawe": json.dumps(said)}
        )
        write_atomically(self.path / f"checkpoint-{progress.rounds:08d}-{digest_of(content)}.safetensors", content)
        self.indexes = [index, *self.indexes][:KEPT]
        for old in newest_first(self.path)[KEPT:]:
            old.unlink(missing_ok=True)
        self.store.prune(*self.indexes)
        self._write_trace(progress)
        if self.writer is not None:
            for line in progress.lines:
                self.writer.write(line)
        return state

    def finish(self, models: Mapping[str, Mapping[str, Tensor]], rounds: int) -> None:
        """Write the final model, further models, and the record's last line."""
        digest = ""
        for name, tensors in models.items():
            content = safetensors.torch.save({key: tensor.clone() for key, tensor in tensors.items()})
            write_atomically(self.path / (MODEL if name == "" else f"{name}.safetensors"), content)
            digest = hashlib.sha256(content).hexdigest() if name == "" else digest
        if self.writer is not None:
            self.writer.write({"kind": "end", "status": "complete", "rounds": rounds, "model_sha256": digest})

    def record(self) -> Record:
        """The record so far."""
        return records.read(self.path / records.NAME)

    def _write_trace(self, progress: Progress) -> None:
        """Write the trace of the checkpoint; a long one, which takes long to write, only after it has grown."""
        rounds = progress.rounds
        if rounds and (rounds - self.traced >= rounds * GROWN or rounds >= self.header["rounds"]):
            Trace(progress.on).save(new_folder(self.out / "traces") / f"seed-{self.header['seed']}.npz")
            self.traced = rounds

    def _open_record(self, progress: Progress) -> None:
        """Open the record, cut to the checkpoint's rounds and with its lines, which it may not contain yet."""
        path, header, lines = self.path / records.NAME, self.header, []
        if path.exists():
            was = records.read(path)
            header = {**header, "versions": was.header.get("versions", header["versions"])}
            lines = [line for line in was.lines if line["round"] < progress.rounds] if progress.rounds else []
        self.writer = records.Writer(path, [header, *lines, *progress.lines])

    def _read(self, path: Path, like: Any) -> tuple[Progress, Index]:
        try:
            content = path.read_bytes()
        except OSError as error:
            raise _Damaged(f"{path}: cannot be read ({error.strerror})") from None
        if digest_of(content) != path.stem.split("-")[2]:
            raise _Damaged(f"{path}: is damaged")
        with safetensors.safe_open(path, "pt") as opened:
            said = json.loads(opened.metadata()["fedawe"])
        if said["format"] != FORMAT:
            raise UserError(f"{path}: made by another version of fedawe (format {said['format']}, not {FORMAT})")
        self._check(said["meant"])
        tensors = safetensors.torch.load(content)
        packed = tensors.pop("on").numpy()
        try:
            state = self.store.get(like, tensors, said["rows"])
        except UserError as error:
            raise _Damaged(str(error)) from None
        on = np.unpackbits(packed, axis=1, count=like.m).astype(bool)
        return Progress(state, on, said["roster"], said["lines"]), said["rows"]


class _Damaged(Exception):
    """A checkpoint that cannot be used."""
