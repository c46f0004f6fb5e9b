"""The files of a log, named as one file, several, a pattern, or a folder."""

import glob
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

from fedawe.core.errors import UserError
from fedawe.core.files import existing_file

KINDS = {".csv": "csv", ".tsv": "csv", ".jsonl": "json", ".ndjson": "json", ".parquet": "parquet", ".pq": "parquet"}
COMPRESSED = (".gz", ".zst")
EXPECTED = (
    "expected a trace (.npz, .csv), a log (.csv, .tsv, .jsonl, .ndjson, also .gz or .zst, or .parquet; one file, "
    "several, a pattern or a folder), or device events in FLASH's format (.json, .json.gz or a folder of them)"
)


def kind_of(path: Path) -> str | None:
    """The kind of a table by its suffix, "csv", "json" or "parquet"; None if the file is not a table."""
    suffixes = [suffix.lower() for suffix in path.suffixes]
    compressed = suffixes[-1:] != [] and suffixes[-1] in COMPRESSED
    kind = KINDS.get((suffixes[:-1] if compressed else suffixes)[-1] if len(suffixes) > compressed else "")
    return None if compressed and kind == "parquet" else kind


def is_events(path: Path) -> bool:
    """Whether a path may hold device events: a .json file, or a folder with such files and no tables."""
    if path.is_dir():
        return not _tables_in(path) and any(is_events(file) for file in path.iterdir() if file.is_file())
    return path.name.endswith((".json", ".json.gz"))


def trace_in(folder: Path) -> Path | None:
    """The trace in the folder of a run or a deployment, which may still be growing; None if it is no such folder."""
    found = sorted((folder / "traces").glob("seed-*.npz"), key=lambda path: (len(path.name), path.name))
    return found[0] if found else None


def files_of(paths: Sequence[Path]) -> list[Path]:
    """The files in order; refuses files that are not tables, or not all of one kind."""
    files: list[Path] = []
    for path in paths:
        if path.is_dir():
            found = _tables_in(path)
            if not found:
                raise UserError(f"{path}: is a folder without files of a log; {EXPECTED}")
        elif not path.exists() and glob.has_magic(str(path)):
            found = sorted(Path(name) for name in glob.glob(str(path), recursive=True) if Path(name).is_file())
            if not found:
                raise UserError(f"{path}: no file has such a name")
        else:
            found = [existing_file(path)]
        files += found
    twice = next((file for file, n in Counter(files).items() if n > 1), None)
    if twice is not None:
        raise UserError(f"{twice}: is named twice")
    kinds = {kind_of(file) for file in files}
    wrong = next((file for file in files if kind_of(file) is None), None)
    if wrong is not None:
        raise UserError(f"{wrong}: {EXPECTED}")
    if len(kinds) > 1:
        one, other = files[0], next(file for file in files if kind_of(file) != kind_of(files[0]))
        raise UserError(f"{one} and {other}: are tables of different kinds; read one kind at a time")
    return files


def _tables_in(folder: Path) -> list[Path]:
    return sorted(
        file
        for file in folder.rglob("*")
        if file.is_file() and kind_of(file) is not None and not file.name.startswith((".", "_"))
    )
