"""Stores the models that clients hold on disk, each once, so that checkpoints are small and memory is bounded.

A state's rows (FedAWE's versions, the memories of MIFA and FedVARP) become files named by their content. Rows beyond
the limit are mapped from their files into memory, which the operating system can free when it needs to.
"""

import dataclasses
import hashlib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import safetensors
import safetensors.torch
from torch import Tensor

from fedawe.algorithms.base import S, State, pack, unpack
from fedawe.core.errors import UserError
from fedawe.core.files import new_folder, write_atomically

Index = dict[str, str]  # name of a row in `pack` -> file


@dataclass(frozen=True)
class Row:
    """A row of a state, and the file with its content."""

    tensor: Tensor
    file: str
    mapped: bool  # whether the tensor is mapped from the file, and so needs no memory of its own


class Store:
    """Rows of states in a folder; at most `limit` rows of a field are in memory, or all if it is 0."""

    def __init__(self, folder: Path, limit: int) -> None:
        self.folder, self.limit = new_folder(folder), limit
        self.kept: dict[str, Row] = {}

    def put(self, state: S) -> tuple[S, dict[str, Tensor], Index]:
        """Write every new row to disk.

        Returns the state with rows beyond the limit mapped from files, its other tensors, and the files of its rows.
        """
        kept: dict[str, Row] = {}
        for name, tensor in _rows(state):
            row = self.kept.get(name)
            kept[name] = row if row is not None and row.tensor is tensor else Row(tensor, self._write(tensor), False)
        self.kept = kept
        state = self._bounded(state)
        rest = {name: tensor for name, tensor in pack(state).items() if name not in kept}
        return state, rest, {name: row.file for name, row in kept.items()}

    def get(self, like: S, rest: Mapping[str, Tensor], index: Index) -> S:
        """The state whose rows are in these files; raises UserError if one of them is damaged or missing."""
        for file in index.values():
            self._check(file)
        self.kept = {name: Row(self._read(file), file, True) for name, file in index.items()}
        return unpack(like, {**rest, **{name: row.tensor for name, row in self.kept.items()}})

    def prune(self, *indexes: Index) -> None:
        """Remove every file that is in none of these indexes."""
        named = {file for index in indexes for file in index.values()}
        for path in self.folder.glob("*.safetensors"):
            if path.name not in named:
                path.unlink(missing_ok=True)

    def _bounded(self, state: S, prefix: str = "") -> S:
        """The state with the rows of the largest numbers (newest versions) in memory; others are mapped from files."""
        if self.limit == 0:
            return state
        changed: dict[str, Any] = {}
        for field, value in _fields(state):
            if isinstance(value, State):
                changed[field] = self._bounded(value, f"{prefix}{field}.")
            elif _are_rows(value):
                names = {key: f"{prefix}{field}.{key}" for key in value}
                for key in sorted(value)[: -self.limit]:
                    row = self.kept[names[key]]
                    if not row.mapped:
                        self.kept[names[key]] = Row(self._read(row.file), row.file, True)
                changed[field] = {key: self.kept[name].tensor for key, name in names.items()}
        return dataclasses.replace(state, **changed)

    def _write(self, row: Tensor) -> str:
        content = safetensors.torch.save({"row": row.contiguous()})
        file = _name(content)
        try:
            self._check(file)
        except UserError:  # there is no such file yet, or it is damaged
            write_atomically(self.folder / file, content)
        return file

    def _read(self, file: str) -> Tensor:
        with safetensors.safe_open(self.folder / file, "pt") as opened:
            row: Tensor = opened.get_tensor("row")
            return row

    def _check(self, file: str) -> None:
        path = self.folder / file
        try:
            content = path.read_bytes()
        except OSError as error:
            raise UserError(f"{path}: cannot be read ({error.strerror})") from None
        if _name(content) != file:
            raise UserError(f"{path}: is damaged")


def _name(content: bytes) -> str:
    return f"{hashlib.sha256(content).hexdigest()[:32]}.safetensors"


def _fields(state: State) -> list[tuple[str, Any]]:
    return [(field.name, getattr(state, field.name)) for field in dataclasses.fields(state)]


def _are_rows(value: Any) -> bool:
    """Whether the value of a field maps numbers to vectors [d]."""
    return isinstance(value, Mapping) and any(isinstance(row, Tensor) and row.ndim == 1 for row in value.values())


def _rows(state: State, prefix: str = "") -> Iterator[tuple[str, Tensor]]:
    """The rows of a state and of the states in it, under the names that `pack` gives them."""
    for field, value in _fields(state):
        if isinstance(value, State):
            yield from _rows(value, f"{prefix}{field}.")
        elif _are_rows(value):
            for key, row in value.items():
                yield f"{prefix}{field}.{key}", row
