"""Check the files in a folder for damage; every file has a checksum or is in a format that contains one."""

import hashlib
from collections.abc import Iterator
from pathlib import Path

import safetensors.torch
from safetensors import SafetensorError

from fedawe.availability.trace import Trace
from fedawe.core.errors import UserError
from fedawe.core.files import read_npz
from fedawe.experiments import checkpoint, tracking
from fedawe.experiments.run import MODEL
from fedawe.results import record as records
from fedawe.results.head import HEAD, read_head


def problems(folder: Path) -> Iterator[str]:
    """Yields a sentence for every damaged or missing file of the experiments and deployments in a folder or below."""
    if not folder.is_dir():
        raise UserError(f"{folder}: {'is a file, not a folder' if folder.exists() else 'no such folder'}")
    heads, found = sorted(folder.rglob(HEAD)), sorted(folder.rglob(records.NAME))
    if not heads and not found:
        raise UserError(f"{folder}: holds no experiment and no deployment")
    for path in heads:
        if read_head(path) is None:
            yield f"{path}: is damaged; run the same command again to write it again"
    for path in sorted(folder.rglob(tracking.NAME)):
        if read_head(path) is None:
            yield f"{path}: is damaged; trackers receive all runs of the folder again, as new ones"
    for path in sorted(folder.rglob("*.npz")):
        yield from _npz(path)
    for path in found:
        yield from _run(path)
    for path in sorted(folder.rglob(".*.part")):
        yield f"{path}: is unfinished; the next run removes it"


def _npz(path: Path) -> Iterator[str]:
    try:
        arrays = read_npz(path)
        if "on" in arrays:
            Trace.load(path)
    except UserError as error:
        yield f"{error}; run the same command again to write it again"


def _run(path: Path) -> Iterator[str]:
    record = records.read(path)
    if record.problem is not None:
        yield f"{record.problem}; run the same command again"
    sha256 = (record.end or {}).get("model_sha256")
    model = path.with_name(MODEL)
    if sha256 is not None and (not model.exists() or hashlib.sha256(model.read_bytes()).hexdigest() != sha256):
        yield f"{model}: is {'damaged' if model.exists() else 'missing'}; run the same command again"
    for each in checkpoint.newest_first(path.parent):
        if not checkpoint.is_undamaged(each):
            yield f"{each}: is damaged; a run continues from the one before, or from the start"
    for each in sorted(path.parent.glob("versions/*.safetensors")):
        try:
            safetensors.torch.load(each.read_bytes())
        except (SafetensorError, OSError) as error:
            yield f"{each}: is damaged ({error})"
