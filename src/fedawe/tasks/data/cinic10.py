"""CINIC-10: `CINIC-10.tar.gz`, or the folder of PNGs in it; train and test, ten classes each (valid is left out)."""

import io
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import numpy.typing as npt

from fedawe.core.errors import UserError
from fedawe.tasks.data.archive import members
from fedawe.tasks.data.sets import PARTS, Known, Part, PartName, Report, unreadable

LARGEST = 2**16  # bytes of a PNG of 32 x 32 pixels; uncompressed it would have 4,000


def files(path: Path) -> list[Path]:
    """The archive, or the folder that has train and test: `path` or its `CINIC-10`."""
    if path.is_file():
        return [path]
    if not path.is_dir():
        raise UserError(f"{path}: no such file or folder")
    for folder in (path, path / "CINIC-10"):
        if all((folder / part).is_dir() for part in PARTS):
            return [folder]
    raise UserError(f"{path}: lacks the folders train and test; CINIC-10 is train/CLASS/*.png and test/CLASS/*.png")


def read(files: list[Path], known: Known, report: Report) -> Iterator[Part]:
    """Images by class, and by file name within a class: the order that does not depend on archive or file system."""
    (path,) = files
    expected = {"train": sum(known.train), "test": sum(known.test)}
    images = {part: np.empty((expected[part], 32, 32, 3), dtype=np.uint8) for part in PARTS}
    keys: dict[str, list[tuple[int, str]]] = {part: [] for part in PARTS}  # (class, file name) of each row
    for part, folder, name, content in _pngs(path):
        if folder not in known.classes:
            raise UserError(f"{path}: {part}/{folder} is not one of the classes {', '.join(known.classes)}")
        row = len(keys[part])
        if row == expected[part]:
            raise UserError(f"{path}: more than {expected[part]:,} {part} images; CINIC-10 has no more")
        images[part][row] = decode(content, f"{path}: {part}/{folder}/{name}")
        keys[part].append((known.classes.index(folder), name))
        done = len(keys["train"]) + len(keys["test"])
        if done % 500 == 0:
            report("reading", done, sum(expected.values()))
    for part in PARTS:
        labels = np.array([c for c, _ in keys[part]], dtype=np.int64)
        known.check(path, part, labels)
        order = sorted(range(len(labels)), key=keys[part].__getitem__)
        yield Part(part, images.pop(part)[order], labels[order])


def _pngs(path: Path) -> Iterator[tuple[PartName, str, str, bytes]]:
    """The images as (part, class, file name, bytes)."""
    if path.is_file():
        for member, content in members(path, _wanted, LARGEST):
            *_, part, folder, name = member.split("/")
            yield ("train" if part == "train" else "test"), folder, name, content
        return
    for part in PARTS:
        for file in sorted((path / part).glob("*/*")):
            if _wanted(file.parts):
                try:
                    with file.open("rb") as stream:
                        yield part, file.parent.name, file.name, stream.read(LARGEST + 1)
                except OSError as error:
                    raise unreadable(file, error) from None


def _wanted(parts: tuple[str, ...]) -> bool:
    """Whether a path is .../train/CLASS/*.png or .../test/CLASS/*.png, and not a hidden file, as some systems add."""
    return len(parts) >= 3 and parts[-3] in PARTS and parts[-1].endswith(".png") and not parts[-1].startswith(".")


def decode(content: bytes, where: str) -> npt.NDArray[np.uint8]:
    """The pixels of a PNG, [32, 32, 3]."""
    from PIL import Image

    try:
        with Image.open(io.BytesIO(content), formats=["PNG"]) as image:
            if image.size != (32, 32):  # known from the header, before any pixel is unpacked
                raise UserError(f"{where}: has {image.width} x {image.height} pixels; expected 32 x 32")
            return np.asarray(image.convert("RGB"))
    except UserError:
        raise
    except Exception as error:  # a damaged image can make the decoder raise nearly anything
        raise unreadable(where, error) from None
