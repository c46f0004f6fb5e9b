"""An experiment read back from its folder: runs, who was there when, what the clients have.

Nothing here fails because a run is unfinished, diverged or damaged: it is said of the run, and the others are read.
"""

import json
import zipfile
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any, Literal

import numpy as np
import numpy.typing as npt

from fedawe.availability.trace import Trace
from fedawe.core.errors import UserError
from fedawe.results import record as records

Array = npt.NDArray[np.float64]
Status = Literal["complete", "diverged", "unfinished", "damaged"]

NAMES = {
    "fedawe": "FedAWE",
    "fedavg": "FedAvg",
    "fedavg-all": "FedAvg-all",
    "fedavg-known": "FedAvg-known",
    "fedau": "FedAU",
    "f3ast": "F3AST",
    "mifa": "MIFA",
    "fedvarp": "FedVARP",
}


def algorithm(label: str) -> str:
    """The algorithm that a label speaks of, without its options.

    >>> algorithm("fedau(K=20)")
    'fedau'
    """
    return label.partition("(")[0]


def display_name(label: str) -> str:
    """A label as people write it.

    >>> display_name("fedau(K=20)")
    'FedAU (K=20)'
    """
    base = algorithm(label)
    return NAMES.get(base, base) + label[len(base) :].replace("(", " (", 1)


@dataclass(frozen=True)
class Run:
    """One algorithm under one seed."""

    label: str
    seed: int
    record: records.Record

    @property
    def status(self) -> Status:
        """Only a complete run counts in a mean."""
        if self.record.problem is not None:
            return "damaged"
        status = self.record.status
        return status if status in ("complete", "diverged") else "unfinished"  # type: ignore[return-value]

    @property
    def message(self) -> str:
        """Why it is not complete, if it is known."""
        return self.record.problem or str((self.record.end or {}).get("message", ""))

    @property
    def rounds(self) -> int:
        """How many were evaluated."""
        return max((int(line["round"]) for line in self.record.evaluations), default=0)

    @property
    def seconds(self) -> float | None:
        """How long it took."""
        lines = [*self.record.evaluations, *([self.record.end] if self.record.end else [])]
        return next((float(line["elapsed_seconds"]) for line in reversed(lines) if "elapsed_seconds" in line), None)

    def series(self, name: str) -> dict[int, Any]:
        """The values of a metric, by the number of rounds completed."""
        return {int(line["round"]): line[name] for line in self.record.evaluations if line.get(name) is not None}


@dataclass(frozen=True)
class Clients:
    """What the m clients of one seed have."""

    sizes: npt.NDArray[np.int64]  # [m]
    frequencies: Array | None = None  # share of each class, [m, C]; None where there are no classes
    p: Array | None = None  # base probabilities [m]; None for a recorded trace


@dataclass(frozen=True)
class Experiment:
    """All that one folder holds."""

    path: Path
    command: str
    settings: dict[str, Any]
    environment: dict[str, Any]
    runs: tuple[Run, ...]
    traces: dict[int, Trace] = field(default_factory=dict)
    clients: dict[int, Clients] = field(default_factory=dict)
    problems: tuple[str, ...] = ()  # files that could not be read

    @cached_property
    def labels(self) -> tuple[str, ...]:
        """The algorithms, FedAWE and FedAvg first."""
        order = list(NAMES)
        known = {run.label for run in self.runs}
        rank = {label: order.index(algorithm(label)) if algorithm(label) in order else len(order) for label in known}
        return tuple(sorted(known, key=lambda label: (rank[label], label)))

    @cached_property
    def seeds(self) -> tuple[int, ...]:
        """In increasing order."""
        return tuple(sorted({run.seed for run in self.runs}))

    def of(self, label: str) -> list[Run]:
        """The runs of an algorithm, seed by seed."""
        return sorted((run for run in self.runs if run.label == label), key=lambda run: run.seed)

    def complete(self, label: str) -> list[Run]:
        """Those of them that count."""
        return [run for run in self.of(label) if run.status == "complete"]

    def the(self, name: str) -> str | None:
        """The label that speaks for an algorithm: the one without options, or the first of those with."""
        return next((label for label in self.labels if algorithm(label) == name), None)


def load(out: Path) -> Experiment:
    """Read the folder that `fedawe run` wrote."""
    if not out.is_dir():
        raise UserError(f"{out}: {'is a file, not a folder' if out.exists() else 'no such folder'}")
    problems: list[str] = []
    head = _head(out / "experiment.json", problems)
    runs = tuple(_runs(out))
    if head is None:
        if not runs:
            raise UserError(f"{out}: holds no experiment; expected a folder that `fedawe run` wrote")
        head = {"settings": next((run.record.header["settings"] for run in runs if run.record.header), {})}
    seeds = sorted({run.seed for run in runs})
    traces, clients = {}, {}
    for seed in seeds:
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
    return Experiment(
        path=out,
        command=str(head.get("command", "")),
        settings=dict(head.get("settings", {})),
        environment=dict(head.get("environment", {})),
        runs=runs,
        traces=traces,
        clients=clients,
        problems=tuple(problems),
    )


def load_all(out: Path) -> list[Experiment]:
    """The experiment in the folder, or those in the folders below it."""
    if out.is_dir() and not (out / "experiment.json").exists():
        below = sorted(path.parent for path in out.rglob("experiment.json"))
        if below:
            return [load(path) for path in below]
    return [load(out)]


def _head(path: Path, problems: list[str]) -> dict[str, Any] | None:
    if not path.exists():
        return None
    try:
        head = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        head = None
    if isinstance(head, dict) and all(isinstance(head.get(key, {}), dict) for key in ("settings", "environment")):
        return head
    problems.append(f"{path}: is damaged; the command and the versions are not known")
    return None


def _runs(out: Path) -> list[Run]:
    """A run is a folder LABEL/seed-S; one without a record has only just begun."""
    runs = []
    for folder in sorted(out.glob("*/seed-*")):
        seed = folder.name.removeprefix("seed-")
        if not folder.is_dir() or not seed.isdecimal():
            continue
        path = folder / records.NAME
        record = records.read(path) if path.exists() else records.Record(path, {}, [], None)
        runs.append(Run(folder.parent.name, int(seed), record))
    return runs


def _clients(path: Path) -> Clients:
    try:
        with np.load(path, allow_pickle=False) as file:
            arrays = {name: file[name] for name in ("sizes", "frequencies", "p") if name in file}
        return Clients(**arrays)
    except (OSError, ValueError, EOFError, KeyError, TypeError, zipfile.BadZipFile) as error:
        raise UserError(f"{path}: cannot be read as clients ({error})") from None
