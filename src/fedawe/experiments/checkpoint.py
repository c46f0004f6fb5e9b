"""Checkpoints: the state of an algorithm as safetensors, written at once, under a name that holds its own checksum."""

import hashlib
from collections.abc import Callable
from pathlib import Path

import safetensors.torch
import torch
from safetensors import SafetensorError

from fedawe.algorithms.base import S, State, pack, unpack
from fedawe.core.files import brief, write_atomically

KEPT = 2  # the newest, and the one before in case the newest is damaged


def save(folder: Path, state: State) -> None:
    """The state after its round; all but the newest two are removed."""
    content = to_bytes(pack(state))
    write_atomically(folder / f"checkpoint-{state.t + 1:08d}-{digest_of(content)}.safetensors", content)
    prune(folder, KEPT)


def prune(folder: Path, keep: int) -> None:
    """Remove all checkpoints but the newest."""
    for old in newest_first(folder)[keep:]:
        old.unlink(missing_ok=True)


def load(folder: Path, like: S, usable: Callable[[int], bool], warn: Callable[[str], None]) -> S | None:
    """The newest state that is undamaged and `usable` (asked with its number of rounds); None if there is none."""
    for path in newest_first(folder):
        rounds = path.stem.split("-")[1]
        if not is_whole(path) or not rounds.isdecimal():
            warn(f"{path}: the checkpoint is damaged; going back to the one before")
        elif usable(int(rounds)):
            try:
                return unpack(like, safetensors.torch.load(path.read_bytes()))
            except (SafetensorError, KeyError, ValueError, TypeError, RuntimeError) as error:  # made by somebody else
                warn(f"{path}: is no checkpoint of this algorithm ({brief(error)}); going back to the one before")
    return None


def to_bytes(tensors: dict[str, torch.Tensor]) -> bytes:
    """Named tensors as the content of a safetensors file, the same bytes for the same tensors."""
    return safetensors.torch.save({name: tensor.contiguous() for name, tensor in tensors.items()})


def newest_first(folder: Path) -> list[Path]:
    """The checkpoints in a folder."""
    return sorted(folder.glob("checkpoint-*-*.safetensors"), reverse=True)


def is_whole(path: Path) -> bool:
    """Whether a checkpoint is as it was written: its name holds its checksum."""
    return digest_of(path.read_bytes()) == path.stem.split("-")[2]


def digest_of(content: bytes) -> str:
    """What the name of a checkpoint holds."""
    return hashlib.sha256(content).hexdigest()[:16]
