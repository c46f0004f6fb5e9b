"""Write files such that a crash leaves the complete old or the complete new file; read npz files safely."""

import contextlib
import os
import shutil
import sys
import uuid
import zipfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from fedawe.core.errors import UserError

EXPANDED = 2**30  # bytes that any compressed file may take in memory
EXPANSION = 10  # a larger compressed file may take this many times its own size


def write_atomically(path: Path, content: bytes) -> None:
    """Write the file `path` such that after a crash it has either its old or its whole new content on the disk."""
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


def remove_unfinished(folder: Path) -> None:
    """Remove the temporary files and folders of processes that were killed while writing."""
    for part in list(folder.rglob(".*.part")):
        if part.is_dir() and not part.is_symlink():
            shutil.rmtree(part)
        else:
            part.unlink(missing_ok=True)


def as_folder(given: Any, name: str) -> Path:
    """The path of a folder given by a caller; refuses a value that is not a path."""
    if not isinstance(given, str | os.PathLike):
        raise UserError(f"{name} is {given!r}; expected the path of a folder, as in 'runs/x'")
    return Path(given)


def new_folder(path: Path) -> Path:
    """The folder, created if it does not exist."""
    try:
        path.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise UserError(f"cannot make the folder {path}: {error.strerror}") from None
    return path


def existing_file(path: Path) -> Path:
    """The path; refused if there is no file."""
    if not path.is_file():
        raise UserError(f"{path}: {'is a folder, not a file' if path.is_dir() else 'no such file'}")
    return path


def read_npz(path: Path) -> dict[str, npt.NDArray[Any]]:
    """All arrays of an npz file. Pickles are not loaded, and a file that would fill the memory is refused."""
    existing_file(path)
    try:
        with path.open("rb") as raw:
            with zipfile.ZipFile(raw) as archive:
                expanded = sum(member.file_size for member in archive.infolist())
            check_expansion(path, expanded, "save it without compression (numpy.savez instead of savez_compressed)")
            raw.seek(0)
            with np.load(raw, allow_pickle=False) as file:
                return {name: np.asarray(file[name]) for name in file}
    except UserError:
        raise
    except Exception as error:  # zipfile, zlib and numpy raise many kinds for a damaged file
        raise UserError(f"{path}: cannot be read as npz ({brief(error)})") from None


def check_expansion(path: Path, size: int, instead: str) -> None:
    """Refuses a compressed file whose size in memory, `size` bytes, is far larger than the file.

    Such a file may be damaged or malicious, and reading it could fill the memory.
    """
    own = path.stat().st_size
    largest = max(EXPANDED, EXPANSION * own)
    if size > largest:
        raise UserError(
            f"{path}: has {own:,} bytes and would take {size:,} bytes of memory; a file may take {EXPANDED:,} bytes, "
            f"or {EXPANSION} times its own size: {instead} if it is meant to be so large"
        )


def brief(error: BaseException) -> str:
    """The message of an error, in one line of limited length."""
    said = (error.strerror if isinstance(error, OSError) else None) or str(error) or type(error).__name__
    return " ".join(said.split())[:200]


@contextlib.contextmanager
def stderr_silenced() -> Iterator[None]:
    """Discard what is written to stderr: on damaged files, threads of polars write long messages to it."""
    sys.stderr.flush()
    kept = os.dup(2)
    try:
        with open(os.devnull, "wb") as nowhere:
            os.dup2(nowhere.fileno(), 2)
        yield
    finally:
        os.dup2(kept, 2)
        os.close(kept)
