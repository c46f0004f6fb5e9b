"""The record of a run, `record.jsonl`: a header line, one line per evaluation, and a last line.

Every line carries a checksum of itself. Fields whose names end in `_seconds` are the only ones that may differ between
two executions of the same run, and are not part of the checksum.
"""

import json
import math
import os
import zlib
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import IO, Any

from fedawe.core.errors import UserError
from fedawe.core.files import write_atomically

Line = dict[str, Any]
NAME = "record.jsonl"
FORMAT = 2  # version of the format of a record and of an experiment's folder


@dataclass(frozen=True)
class Record:
    """A record as read. Lines from the first damaged or unfinished one on are omitted, and `problem` says so."""

    path: Path
    header: Line
    evaluations: list[Line]
    end: Line | None  # how it ended: {"status": "complete" | "diverged", "message": ...}; None while it has not
    problem: str | None = None
    rounds: list[Line] = field(default_factory=list)  # of a deployment: clients, refusals, bytes, seconds of each round

    @property
    def lines(self) -> list[Line]:
        """All lines between header and end in their order: the line of a round, then its evaluation."""
        found = [*self.rounds, *self.evaluations]
        return sorted(found, key=lambda line: (line["round"], line["kind"] == "evaluation"))

    @property
    def status(self) -> str:
        """`complete`, `diverged` or `unfinished`."""
        return "unfinished" if self.end is None else str(self.end["status"])

    def only(self, evaluations: list[Line]) -> "Record":
        """The same record with some of its evaluations."""
        return replace(self, evaluations=evaluations)


def seal(line: Line) -> str:
    """The line as text with its checksum, which does not include wall-clock fields."""
    stable = {key: value for key, value in line.items() if not key.endswith("_seconds")}
    return _dump({**line, "crc": _crc(stable)})


def _dump(line: Line) -> str:
    return json.dumps(line, ensure_ascii=False, allow_nan=False, separators=(",", ":"))


def _crc(stable: Line) -> int:
    return zlib.crc32(_dump(stable).encode())


def _unseal(text: str) -> Line | None:
    """The line without its checksum, or None if it is damaged."""
    try:
        line = json.loads(text)
        crc = line.pop("crc")
        stable = {key: value for key, value in line.items() if not key.endswith("_seconds")}
        return line if crc == _crc(stable) else None
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
        return None


def read(path: Path) -> Record:
    """Read the record in the file, up to the first damaged line."""
    try:
        texts = path.read_bytes().split(b"\n")
    except OSError as error:
        raise UserError(f"{path}: cannot be read ({error.strerror})") from None
    lines: list[Line] = []
    problem = None
    for number, text in enumerate(texts, 1):
        line = _unseal(text.decode(errors="replace"))
        if line is None:
            if text or number < len(texts):  # else it is the empty text after the last newline
                problem = f"{path}:{number}: the line is damaged or unfinished"
            break
        lines.append(line)
    if not lines or lines[0].get("kind") != "header":
        return Record(path, {}, [], None, problem or f"{path}: has no header line")
    end = lines[-1] if lines[-1].get("kind") == "end" else None
    evaluations, rounds = ([line for line in lines if line.get("kind") == kind] for kind in ("evaluation", "round"))
    return Record(path, lines[0], evaluations, end, problem, rounds)


class Writer:
    """Writes a record: first the lines `keep`, which replace the old content of the file, then further lines."""

    def __init__(self, path: Path, keep: list[Line]) -> None:
        write_atomically(path, "".join(seal(line) + "\n" for line in keep).encode())
        self.file: IO[str] = path.open("a", encoding="utf-8", newline="\n")

    def write(self, line: Line) -> None:
        """Write one line and flush it, so that it is not lost if the process is killed."""
        try:
            self.file.write(seal(line) + "\n")
            self.file.flush()
        except OSError as error:
            raise UserError(f"cannot write {self.file.name}: {error.strerror}") from None

    def sync(self) -> None:
        """Write all lines to the disk."""
        try:
            os.fsync(self.file.fileno())
        except OSError as error:
            raise UserError(f"cannot write {self.file.name}: {error.strerror}") from None

    def __enter__(self) -> "Writer":
        return self

    def __exit__(self, *_: object) -> None:
        try:
            self.sync()
        finally:
            with suppress(OSError):  # a failed write has raised an error before
                self.file.close()


def not_finite(metrics: Mapping[str, Any]) -> str | None:
    """The name of the first metric that is not finite, if any."""
    for name, value in metrics.items():
        for number in value if isinstance(value, list) else [value]:
            if isinstance(number, float) and not math.isfinite(number):
                return name
    return None
