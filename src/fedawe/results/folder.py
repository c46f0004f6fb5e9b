"""Read an experiment from its folder: runs, traces, and the data of clients.

A run that is unfinished, diverged or damaged is no error: its status says so, and the others are read. The folder of a
deployment, or of one run, is read as an experiment with one run.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import Any, Literal
from urllib.parse import unquote

import numpy as np
import numpy.typing as npt

from fedawe.availability.trace import Trace
from fedawe.core.errors import UserError
from fedawe.core.files import read_npz
from fedawe.results import record as records
from fedawe.results.fields import Settings, class_path, settings_of
from fedawe.results.head import HEAD, read_head

Array = npt.NDArray[np.float64]
Status = Literal["complete", "diverged", "unfinished", "damaged"]


@dataclass(frozen=True)
class RunResult:
    """The record of one algorithm under one seed."""

    label: str
    seed: int
    record: records.Record

    @property
    def header(self) -> records.Line:
        """The header of the record; empty if the first line is damaged."""
        return self.record.header

    @property
    def status(self) -> Status:
        """The status; means include only complete runs."""
        if self.record.problem is not None:
            return "damaged"
        status = self.record.status
        return status if status in ("complete", "diverged") else "unfinished"  # type: ignore[return-value]

    @property
    def message(self) -> str:
        """The reason why the run is not complete, if it is known."""
        return self.record.problem or str((self.record.end or {}).get("message", ""))

    @property
    def rounds(self) -> int:
        """The number of rounds after which the run was last evaluated."""
        return max((int(line["round"]) for line in self.record.evaluations), default=0)

    @property
    def seconds(self) -> float | None:
        """The duration of the run up to its last line."""
        lines = [*self.record.evaluations, *([self.record.end] if self.record.end else [])]
        return next((float(line["elapsed_seconds"]) for line in reversed(lines) if "elapsed_seconds" in line), None)

    @cached_property
    def lines(self) -> list[records.Line]:
        """The evaluations; those of a deployment include the fields of their round.

        Nested fields such as `refused` become fields of their own: `refused.late`.
        """
        rounds = {line["round"]: line for line in self.record.rounds}
        both = ((_flat(line), _flat(rounds.get(line["round"], {}))) for line in self.record.evaluations)
        return [{**evaluation, **of_round, **evaluation} for evaluation, of_round in both]

    def series(self, name: str) -> dict[int, Any]:
        """The values of a metric, by the number of rounds completed."""
        return {int(line["round"]): line[name] for line in self.lines if line.get(name) is not None}


def _flat(line: records.Line) -> records.Line:
    out: records.Line = {}
    for name, value in line.items():
        out |= {f"{name}.{key}": each for key, each in value.items()} if isinstance(value, Mapping) else {name: value}
    return out


@dataclass(frozen=True)
class Clients:
    """The data of the m clients of one seed."""

    sizes: npt.NDArray[np.int64]  # numbers of samples, [m]
    frequencies: Array | None = None  # share of each class, [m, C]; None where there are no classes
    p: Array | None = None  # base probabilities [m]; None for a recorded trace


@dataclass(frozen=True)
class RunSet:
    """The content of one folder; `labels` are its algorithms in the order of the experiment."""

    path: Path
    labels: tuple[str, ...]
    runs: tuple[RunResult, ...]
    command: str = ""
    shared: Mapping[str, Any] = field(default_factory=dict)  # the fields of the experiment, used when no run has begun
    environment: Mapping[str, Any] = field(default_factory=dict)
    traces: Mapping[int, Trace] = field(default_factory=dict)
    clients: Mapping[int, Clients] = field(default_factory=dict)
    problems: tuple[str, ...] = ()  # files that could not be read

    @cached_property
    def seeds(self) -> tuple[int, ...]:
        """The seeds of all runs in increasing order."""
        return tuple(sorted({run.seed for run in self.runs}))

    def of(self, label: str) -> list[RunResult]:
        """The runs of an algorithm, seed by seed."""
        return sorted((run for run in self.runs if run.label == label), key=lambda run: run.seed)

    def complete(self, label: str) -> list[RunResult]:
        """The complete runs of an algorithm, seed by seed."""
        return [run for run in self.of(label) if run.status == "complete"]

    def header(self, label: str) -> records.Line:
        """The header of the runs of an algorithm; empty if none of them has one."""
        return next((run.header for run in self.of(label) if run.header), {})

    @cached_property
    def names(self) -> dict[str, str]:
        """The display name of every algorithm; its label if two algorithms would have the same name."""
        found = {label: str(self.header(label).get("name") or label) for label in self.labels}
        several = {name for name in found.values() if list(found.values()).count(name) > 1}
        return {label: label if name in several else name for label, name in found.items()}

    @cached_property
    def kinds(self) -> dict[str, str]:
        """The class of every algorithm, `module:Class`."""
        return {label: class_path(self.header(label).get("algorithm")) for label in self.labels}

    @cached_property
    def settings(self) -> Settings:
        """The settings that all runs share."""
        found = [settings_of(run.header) for run in self.runs if run.header]
        if not found:
            return settings_of(self.shared)
        return {
            key: value
            for key, value in found[0].items()
            if not key.startswith("algorithm.") and all(key in one and one[key] == value for one in found)
        }

    def find(self, text: str) -> str | None:
        """The label for a label or display name, ignoring case if need be; None if there is none, or more than one."""
        if text in self.labels:
            return text
        same = [label for label in self.labels if self.names[label] == text]
        alike = [label for label in self.labels if text.lower() in (label.lower(), self.names[label].lower())]
        return same[0] if len(same) == 1 else alike[0] if len(alike) == 1 else None

    def the(self, text: str) -> str:
        """As `find`, but refuses a name without a unique label."""
        label = self.find(text)
        if label is None:
            raise UserError(f"unknown algorithm {text!r} in {self.path}; choose from {', '.join(self.labels)}")
        return label

    def only(self, labels: Sequence[str]) -> "RunSet":
        """The same content with only these algorithms, in this order."""
        kept = tuple(dict.fromkeys(labels))
        return replace(self, labels=kept, runs=tuple(run for run in self.runs if run.label in kept))


def load(out: Path) -> RunSet:
    """Read the folder of an experiment, of a deployment or of one run."""
    if not out.is_dir():
        raise UserError(f"{out}: {'is a file, not a folder' if out.exists() else 'no such folder'}")
    problems: list[str] = []
    head = _head(out / HEAD, problems)
    runs = tuple(_runs(out))
    if head is None and not runs:
        raise UserError(f"{out}: holds no experiment; expected a folder that `fedawe run` or a deployment wrote")
    for run in runs:
        if run.header and run.header.get("format") != records.FORMAT:
            raise UserError(_other_format(run.record.path, run.header.get("format")))
    runs, head = tuple(_of_one_length(runs)), head or {}
    traces: dict[int, Trace] = {}
    clients: dict[int, Clients] = {}
    for seed in sorted({run.seed for run in runs}):
        if (path := out / "traces" / f"seed-{seed}.npz").exists():
            try:
                traces[seed] = Trace.load(path)
            except UserError as error:
                problems.append(str(error))
        if (path := out / "clients" / f"seed-{seed}.npz").exists():
            try:
                clients[seed] = _clients(path)
            except UserError as error:
                problems.append(str(error))
    return RunSet(
        path=out,
        labels=_labels(head, runs),
        runs=runs,
        command=str(head.get("command", "")),
        shared=head.get("experiment", {}),
        environment=head.get("environment") or next((run.header.get("versions", {}) for run in runs if run.header), {}),
        traces=traces,
        clients=clients,
        problems=tuple(problems),
    )


def load_all(out: Path) -> list[RunSet]:
    """The experiment in the folder, or those in the folders below it."""
    if out.is_dir() and not (out / HEAD).exists():
        below = sorted(path.parent for path in out.rglob(HEAD))
        if below:
            return [load(path) for path in below]
    return [load(out)]


def _labels(head: Mapping[str, Any], runs: Sequence[RunResult]) -> tuple[str, ...]:
    """The labels of the runs, in the order of the experiment if it is known."""
    order = [label for label in head.get("algorithms", []) if isinstance(label, str)]
    known = {run.label for run in runs}
    return (*(label for label in dict.fromkeys(order) if label in known), *sorted(known - set(order)))


def _other_format(path: Path, found: object) -> str:
    return (
        f"{path} was written by another version of fedawe (format {found}, expected {records.FORMAT}); "
        "read it with that version, or run the experiment again"
    )


def _head(path: Path, problems: list[str]) -> dict[str, Any] | None:
    if not path.exists():
        return None
    try:
        head = read_head(path)
    except OSError:
        head = None
    if head is not None:
        if head.get("format") != records.FORMAT:
            raise UserError(_other_format(path, head.get("format")))
        return head
    problems.append(f"{path}: is damaged; the command and the versions are not known")
    return None


def _runs(out: Path) -> list[RunResult]:
    """The runs in the folders LABEL/seed-S, or in `out` itself; one without a record has only just begun."""
    runs = []
    if (path := out / records.NAME).exists():
        record = records.read(path)
        seed = record.header.get("seed")
        label = str(record.header.get("label") or out.resolve().name)
        runs.append(RunResult(label, seed if isinstance(seed, int) else 0, record))
    for folder in sorted(out.glob("*/seed-*")):
        number = folder.name.removeprefix("seed-")
        if not folder.is_dir() or not number.isdecimal():
            continue
        path = folder / records.NAME
        record = records.read(path) if path.exists() else records.Record(path, {}, [], None)
        label = str(record.header.get("label") or unquote(folder.parent.name))
        runs.append(RunResult(label, int(number), record))
    return runs


def _of_one_length(runs: Sequence[RunResult]) -> Iterator[RunResult]:
    """The runs; one that is complete with fewer rounds than others counts as unfinished until it is extended."""
    longest = max((_planned(run) for run in runs if run.status == "complete"), default=0)
    for run in runs:
        if run.status == "complete" and (planned := _planned(run)) < longest:
            why = f"has {planned} rounds, others have {longest}; extend it to {longest}"
            end = {**(run.record.end or {}), "status": "unfinished", "message": why}
            yield replace(run, record=replace(run.record, end=end))
        else:
            yield run


def _planned(run: RunResult) -> int:
    """The number of rounds for which a run was planned."""
    rounds = run.header.get("rounds")
    return rounds if isinstance(rounds, int) else run.rounds


def _clients(path: Path) -> Clients:
    arrays = read_npz(path)
    sizes, frequencies, p = (arrays.get(name) for name in ("sizes", "frequencies", "p"))
    if (
        sizes is None
        or (sizes.ndim, sizes.dtype.kind) != (1, "i")
        or (frequencies is not None and (frequencies.ndim, frequencies.dtype.kind) != (2, "f"))
        or (p is not None and (p.ndim, p.dtype.kind) != (1, "f"))
        or any(array is not None and len(array) != len(sizes) for array in (frequencies, p))
    ):
        raise UserError(f"{path}: expected sizes [m], and perhaps frequencies [m, classes] and p [m]")
    return Clients(sizes, frequencies, p)
