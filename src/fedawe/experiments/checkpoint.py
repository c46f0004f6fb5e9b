"""Checkpoints: the state of an algorithm as safetensors, written atomically; the file name contains the checksum."""

import hashlib
from collections.abc import Callable
from pathlib import Path

import safetensors.torch
import torch
from safetensors import SafetensorError

from fedawe.algorithms.base import S, State, pack, unpack
from fedawe.core.files import brief, write_atomically

KEPT = 2  # the newest, and the one before it in case the newest is damaged


def save(folder: Path, state: State) -> None:
    """Write the state to a checkpoint, and remove all checkpoints but the newest two."""
    content = to_bytes(pack(state))
    write_atomically(folder / f"checkpoint-{state.t + 1:08d}-{digest_of(content)}.safetensors", content)
    prune(folder, KEPT)


def prune(folder: Path, keep: int) -> None:
    """Remove all checkpoints but the newest `keep`."""
    for old in newest_first(folder)[keep:]:
        old.unlink(missing_ok=True)


def load(folder: Path, like: S, usable: Callable[[int], bool], warn: Callable[[str], None]) -> S | None:
    """The newest state that is undamaged and whose number of rounds is `usable`; None if there is none."""
    for path in newest_first(folder):
        rounds = path.stem.split("-")[1]
        if not is_undamaged(path) or not rounds.isdecimal():
            warn(f"{path}: the checkpoint is damaged; using the one before it")
        elif usable(int(rounds)):
            try:
                return unpack(like, safetensors.torch.load(path.read_bytes()))
            except (SafetensorError, KeyError, ValueError, TypeError, RuntimeError) as error:  # of another algorithm
                warn(f"{path}: is not a checkpoint of this algorithm ({brief(error)}); using the one before it")
    return None


def to_bytes(tensors: dict[str, torch.Tensor]) -> bytes:
    """Named tensors as the content of a safetensors file, the same bytes for the same tensors."""
    return safetensors.torch.save({name: tensor.contiguous() for name, tensor in tensors.items()})


def newest_first(folder: Path) -> list[Path]:
    """The checkpoints in a folder, the newest first."""
    return sorted(folder.glob("checkpoint-*-*.safetensors"), reverse=True)


def is_undamaged(path: Path) -> bool:
    """Whether a checkpoint is undamaged: its content has the checksum in its name."""
    return digest_of(path.read_bytes()) == path.stem.split("-")[2]


def digest_of(content: bytes) -> str:
    """The checksum in the name of a checkpoint."""
    return hashlib.sha256(content).hexdigest()[:16]
