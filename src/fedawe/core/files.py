"""Writing files so that a crash leaves the old one or the new one, never half of one."""

import os
import uuid
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from fedawe.core.errors import UserError


def write_atomically(path: Path, content: bytes) -> None:
    """The whole content appears under `path` at once, on the disk, or not at all."""
    part = path.with_name(f".{path.name}.{uuid.uuid4().hex[:8]}.part")
    try:
        with part.open("wb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        part.replace(path)
    except OSError as error:
        part.unlink(missing_ok=True)
        raise UserError(f"cannot write {path}: {error.strerror}") from None


def new_folder(path: Path) -> Path:
    """The folder, made if need be."""
    try:
        path.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise UserError(f"cannot make the folder {path}: {error.strerror}") from None
    return path


def existing_file(path: Path) -> Path:
    """The path, if a file is there."""
    if not path.is_file():
        raise UserError(f"{path}: {'is a folder, not a file' if path.is_dir() else 'no such file'}")
    return path


def read_npz(path: Path) -> dict[str, npt.NDArray[Any]]:
    """All arrays of an npz file; nothing in it is ever executed."""
    try:
        with existing_file(path).open("rb") as raw, np.load(raw, allow_pickle=False) as file:
            return {name: file[name] for name in file}
    except UserError:
        raise
    except Exception as error:  # whatever a damaged archive makes zipfile, zlib or numpy raise
        raise UserError(f"{path}: cannot be read as npz ({error})") from None
