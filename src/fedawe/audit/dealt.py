"""A task in which the labels of a client depend on its group or availability: digits, divided among an audited fleet.

`fedawe audit --save fleet.npz` writes the label frequencies of every client: the label counts of `--groups`; or, with
groups alone, classes divided among the groups; or, with neither, classes that depend on availability: the clients that
are available least hold mostly the first class, and so on. The printed `fedawe run` command uses this task, so that an
algorithm that neglects some clients is less accurate on some labels. Evaluations report the accuracy of every group (or
of thirds of the clients by availability) and the gap between them, so that a report can show fairness over time.
"""

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import numpy.typing as npt
import torch

from fedawe.availability.dynamics import Array
from fedawe.core.errors import UserError
from fedawe.core.files import read_npz
from fedawe.core.metric import Metric
from fedawe.core.rng import rng
from fedawe.tasks.base import Metrics
from fedawe.tasks.classification import Classification
from fedawe.tasks.data.labelled import Data
from fedawe.tasks.data.labelled import digits as bundled
from fedawe.tasks.models import network_for
from fedawe.tasks.module import ModuleNetwork

Indices = npt.NDArray[np.int64]
MOSTLY = 0.8  # share of a client's samples in the classes of its group, or of its availability
CLASSES = 10
FEWEST = 2  # samples that every client has at least
SAMPLES = 1438  # train samples of the bundled digits


def labels_of(rates: Array, parts: Array | None, kind: str | None, classes: int = CLASSES) -> tuple[Array, str]:
    """The label frequencies [m, classes] of clients, and words that say what they are derived from.

    rates   of the clients                                                                                     [m]
    parts   label frequencies (kind "class") or membership (kind "group") of clients, if there is a table     [m, g]
    """
    m = len(rates)
    if parts is not None and kind == "class":
        out = np.zeros((m, classes))
        columns = parts.shape[1]
        for c in range(max(classes, columns)):
            share = len(range(c % columns, max(classes, columns), columns)) if columns < classes else 1
            out[:, c % classes] += parts[:, c % columns] / share if columns < classes else parts[:, c]
        return _filled(out), "the label counts of the table"
    if parts is not None:
        groups = parts.shape[1]
        own = np.zeros((groups, classes))
        for c in range(max(classes, groups)):
            own[c % groups, c % classes] = 1
        return _filled(MOSTLY * _filled(parts @ own) + (1 - MOSTLY) / classes), "classes divided among the groups"
    rank = np.argsort(np.argsort(rates, kind="stable"), kind="stable")
    own = np.eye(classes)[rank * classes // m]
    return MOSTLY * own + (1 - MOSTLY) / classes, "classes that depend on availability"


def _filled(frequencies: Array) -> Array:
    """The rows divided by their sums; a row of zeros becomes uniform."""
    total = frequencies.sum(1, keepdims=True)
    return np.where(total > 0, frequencies / np.where(total > 0, total, 1), 1 / frequencies.shape[1])


def groups_of(rates: Array, parts: Array | None, names: tuple[str, ...]) -> tuple[Indices, tuple[str, ...]]:
    """The index of each client's group [m], -1 for none, and the names of the groups, by default thirds by rate."""
    if parts is not None and len(names):
        return np.where(parts.any(1), parts.argmax(1), -1).astype(np.int64), names
    rank = np.argsort(np.argsort(rates, kind="stable"), kind="stable")
    return (rank * 3 // len(rates)).astype(np.int64), ("available least", "in between", "available most")


class ByGroup(Classification):
    """A classification task that also reports the train accuracy of each group of clients, and the largest gap."""

    def __init__(
        self, data: Data, network: ModuleNetwork, parts: Sequence[Indices], group: Indices, names: Sequence[str]
    ):
        super().__init__(data, network, parts)
        self.names = [f"accuracy_{name}" for name in names]
        owner = np.full(len(data.y_train), -1)
        for client, part in enumerate(parts):
            owner[part] = group[client]
        self.group = torch.from_numpy(owner[self.rows["train"]])
        each = (Metric(key, f"train accuracy, {name}", unit="%") for key, name in zip(self.names, names, strict=True))
        gap = Metric("accuracy_gap", "largest difference of accuracy between groups", better="lower", unit="%")
        self.metrics = (*self.metrics, *each, gap)

    def summary(self, answers: Sequence[torch.Tensor]) -> Metrics:
        """The metrics of a classification task, the accuracy of each group, and the gap."""
        out = dict(super().summary(answers))
        hit = torch.cat(list(answers))[: len(self.group), 0]
        found = {}
        for n, name in enumerate(self.names):
            if (own := self.group == n).any():
                found[name] = float(hit[own].mean())
        return {**out, **found, "accuracy_gap": max(found.values()) - min(found.values()) if found else 0.0}


def digits(seed: int, trace: str) -> ByGroup:
    """The bundled digits, divided so that each client of the saved fleet has about its label frequencies."""
    arrays = read_npz(Path(trace))
    if not {"labels", "group", "groups"} <= set(arrays):
        raise UserError(f"{trace}: has no label frequencies; write it with fedawe audit LOG --save {trace}")
    data = bundled()
    parts = dealt(data.y_train.numpy(), arrays["labels"], rng(seed, "partition"))
    return ByGroup(data, network_for(data, "mlp"), parts, arrays["group"], [str(name) for name in arrays["groups"]])


def task_for(clients: int, trace: Path) -> str:
    """The task of the command that an audit prints: `digits` below, or `quadratic` if there are too many clients."""
    return f"{__name__}:digits:trace={trace}" if clients * FEWEST <= SAMPLES else "quadratic"


def dealt(
    labels: npt.NDArray[np.int64], frequencies: Array, generator: np.random.Generator
) -> list[npt.NDArray[np.int64]]:
    """Samples for each client, by its frequencies [m, C]: every sample once, and at least two for each client."""
    m, classes = frequencies.shape
    if len(labels) < FEWEST * m:
        raise UserError(
            f"{len(labels)} samples are too few for {m} clients; at most {len(labels) // FEWEST} can share them"
        )
    found: list[list[int]] = [[] for _ in range(m)]
    for c in range(classes):
        members = generator.permutation(np.flatnonzero(labels == c))
        share = np.cumsum(frequencies[:, c])
        share = share / share[-1] if share[-1] > 0 else np.arange(1, m + 1) / m
        cuts = np.rint(len(members) * share).astype(np.int64)[:-1]
        for part, piece in zip(found, np.split(members, cuts), strict=True):
            part += piece.tolist()
    poor = [part for part in found if len(part) < FEWEST]
    for part in poor:
        while len(part) < FEWEST:
            part.append(max(found, key=len).pop())
    return [np.array(sorted(part), dtype=np.int64) for part in found]
