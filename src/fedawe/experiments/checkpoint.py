"""Checkpoints: the state of an algorithm as safetensors, written at once, under a name that holds its own checksum."""

import hashlib
from collections.abc import Callable
from pathlib import Path

import safetensors.torch
import torch

from fedawe.algorithms.base import S, State, pack, unpack
from fedawe.core.files import write_atomically

KEPT = 2  # the newest, and the one before in case the newest is damaged


def save(folder: Path, state: State, keep: int = KEPT) -> None:
    """The state after its round; all but the newest `keep` are removed."""
    content = to_bytes(pack(state))
    write_atomically(folder / f"checkpoint-{state.t + 1:08d}-{_digest(content)}.safetensors", content)
    for old in _newest_first(folder)[keep:]:
        old.unlink(missing_ok=True)


def load(folder: Path, like: S, usable: Callable[[int], bool], warn: Callable[[str], None]) -> S | None:
    """The newest state that is undamaged and `usable` (asked with its number of rounds); None if there is none."""
    for path in _newest_first(folder):
        _, rounds, digest = path.stem.split("-")
        content = path.read_bytes()
        if _digest(content) != digest:
            warn(f"{path}: the checkpoint is damaged; going back to the one before")
        elif usable(int(rounds)):
            return unpack(like, safetensors.torch.load(content))
    return None


def clear(folder: Path) -> None:
    """The run diverged: nothing can go on from its checkpoints."""
    for path in _newest_first(folder):
        path.unlink(missing_ok=True)


def to_bytes(tensors: dict[str, torch.Tensor]) -> bytes:
    """Named tensors as the content of a safetensors file, the same bytes for the same tensors."""
    return safetensors.torch.save({name: tensor.contiguous() for name, tensor in tensors.items()})


def _newest_first(folder: Path) -> list[Path]:
    return sorted(folder.glob("checkpoint-*-*.safetensors"), reverse=True)


def _digest(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()[:16]
