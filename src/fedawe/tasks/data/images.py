"""Image sets: checked and converted once with `add`, then mapped into memory with `load`."""

import re
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt

from fedawe.core.errors import UserError
from fedawe.core.files import existing_file
from fedawe.tasks.data import cache, cifar10, cinic10, npz, svhn
from fedawe.tasks.data.sets import KNOWN, Reader, Report, digest, published, silent

READERS: dict[str, Reader] = {"svhn": svhn, "cifar10": cifar10, "cinic10": cinic10}


@dataclass(frozen=True, eq=False)
class ImageSet:
    """Images as they are kept, read-only; the processes of a machine share one copy of them.

    name             as it was added
    x_train, x_test  [N, H, W, C] uint8
    y_train, y_test  [N] int64
    classes          C, counted from the training labels
    mean, std        of each channel of the training images in [0, 1]; the authors' numbers for the sets of the paper
    """

    name: str
    x_train: npt.NDArray[np.uint8]
    y_train: npt.NDArray[np.int64]
    x_test: npt.NDArray[np.uint8]
    y_test: npt.NDArray[np.int64]
    classes: int
    mean: tuple[float, ...]
    std: tuple[float, ...]

    def __repr__(self) -> str:
        """Sizes, not pixels."""
        height, width, channels = self.x_train.shape[1:]
        return (
            f"ImageSet({self.name}: {len(self.x_train):,} + {len(self.x_test):,} images of "
            f"{height} x {width} x {channels}, {self.classes} classes)"
        )


def add(name: str, path: str | Path, folder: Path | None = None, report: Report = silent) -> cache.Entry:
    """Check the files under `path`, convert them, and keep them as `name`; an earlier set of that name is replaced.

    svhn, cifar10 and cinic10 are read as published, and as npz; any other name takes an npz.
    """
    cache.check_name(name)
    path, folder, known = Path(path), folder or cache.default_folder(), KNOWN.get(name)
    if path.suffix == ".npz":
        files = npz.files(path)
        parts = npz.read(files, known, report)
    elif known is None:
        raise UserError(f"{path}: expected an .npz for {name!r}; other files are read for {', '.join(KNOWN)} alone")
    else:
        files = READERS[name].files(path)
        parts = READERS[name].read(files, known, report)
    genuine = known is not None and published(files, known)
    source = ", ".join(file.name for file in files)
    return cache.store(folder, name, parts, known, source, genuine, report)


def load(name: str | Path, folder: Path | None = None) -> ImageSet:
    """The set kept as `name` in `folder`; or an npz, by its path, which is added under a name made from its content."""
    folder = folder or cache.default_folder()
    if isinstance(name, Path) or name.endswith(".npz"):
        name = _keep(Path(name), folder)
    found = cache.entry(folder, name)
    if found is None:
        raise UserError(
            f"the data set {name} is not in {folder}; "
            f"{'download it (fedawe data download ' + name + ') or ' if name in KNOWN else ''}"
            f"add it (fedawe data add {name} PATH); there: {', '.join(cache.names(folder)) or 'nothing'}"
        )
    try:
        arrays = cache.mapped(folder, found)
    except UserError:
        newer = cache.entry(folder, name)
        if newer is None or newer.folder == found.folder:
            raise
        found, arrays = newer, cache.mapped(folder, newer)  # it was replaced between the two glances
    return ImageSet(name, **arrays, classes=len(found.counts["train"]), mean=found.mean, std=found.std)


def _keep(path: Path, folder: Path) -> str:
    """The name under which this npz is kept: of its content, so that a changed file is another set."""
    stem = re.sub(r"[^a-z0-9]+", "-", path.stem.lower()).strip("-")[:60]
    name = f"{stem or 'images'}-{digest(existing_file(path), 'sha256')[:12]}"
    if cache.entry(folder, name) is None:
        add(name, path, folder)
    return name
