"""`fedawe data`: Add, list, check and download image data sets."""

import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import tyro

from fedawe.core.errors import UserError
from fedawe.experiments.flags import File, MaybeNames, Word

if TYPE_CHECKING:
    from fedawe.tasks.data.sets import Report


@dataclass(frozen=True)
class DataAddCommand:
    """Check the files of a data set, and convert them once into the form that runs use."""

    name: tyro.conf.Positional[str]
    """svhn, cifar10, cinic10, or a name of your own for an npz"""
    path: tyro.conf.Positional[Path]
    """svhn: folder of the two .mat files; cifar10, cinic10: the tar.gz or its folder; others: an npz of uint8 images"""
    data: File = None
    """where data sets are kept (default: FEDAWE_DATA, or fedawe in the user's cache folder)"""

    def run(self) -> None:
        """Add the data set, and print its class counts."""
        from fedawe.tasks.named import BUNDLED

        if self.name in (bundled := (*BUNDLED, "quadratic", "synthetic")):
            raise UserError(
                f"{self.name} is the name of a task that needs no data set; choose a name other than "
                f"{', '.join(bundled)}"
            )
        _add(self.name, self.path, _folder(self.data))


@dataclass(frozen=True)
class DataListCommand:
    """List the data sets that have been added."""

    data: File = None
    """where data sets are kept (default: FEDAWE_DATA, or fedawe in the user's cache folder)"""

    def run(self) -> None:
        """Print one line per data set, also for the paper's data sets that have not been added."""
        from fedawe.tasks.data import cache
        from fedawe.tasks.data.sets import KNOWN

        folder = _folder(self.data)
        rows: list[Sequence[str]] = [("data set", "train", "test", "image", "classes", "made from")]
        for name in sorted({*KNOWN, *cache.names(folder)}):
            try:
                found = cache.entry(folder, name)
            except UserError:
                rows.append((name, "-", "-", "-", "-", f"damaged: fedawe data add {name} PATH"))
                continue
            if found is None:
                rows.append((name, "-", "-", "-", "-", f"not here: fedawe data download {name}"))
            else:
                train, test = found.arrays["x_train"].shape, found.arrays["x_test"].shape
                image, classes = " x ".join(map(str, train[1:])), str(len(found.counts["train"]))
                source = f"{found.source}{' (as published)' if found.published else ''}"
                rows.append((name, f"{train[0]:,}", f"{test[0]:,}", image, classes, source))
        _table(rows)
        print(f"in {folder}")


@dataclass(frozen=True)
class DataCheckCommand:
    """Verify the checksums of the data sets that have been added."""

    names: tyro.conf.Positional[MaybeNames] = ()
    """names of the data sets (default: all)"""
    data: File = None
    """where data sets are kept (default: FEDAWE_DATA, or fedawe in the user's cache folder)"""

    def run(self) -> None:
        """Print one line per data set; raises if one is damaged, after all have been checked."""
        from fedawe.tasks.data import cache

        folder = _folder(self.data)
        names = self.names or cache.names(folder)
        damage = []
        for name in names:
            try:
                found = cache.entry(folder, name)
                if found is None:
                    raise UserError(f"there is no data set {name} in {folder}; fedawe data list says what there is")
                with _bars() as report:
                    cache.verify(folder, found, report)
                print(f"{name}: as it was stored")
            except UserError as error:
                damage.append(str(error))
        if damage:
            raise UserError("; ".join(damage))
        if not names:
            print(f"no data sets in {folder}")


@dataclass(frozen=True)
class DataDownloadCommand:
    """Download one of the paper's data sets from where it is published, and add it; the same call again resumes."""

    name: tyro.conf.Positional[str]
    """svhn, cifar10 or cinic10"""
    mirror: Word = None
    """address of another server that has the files under their published names; their checksums are still compared"""
    data: File = None
    """where data sets are kept (default: FEDAWE_DATA, or fedawe in the user's cache folder)"""

    def run(self) -> None:
        """Download the missing files, then add the data set."""
        from fedawe.tasks.data import cache
        from fedawe.tasks.data.download import download
        from fedawe.tasks.data.sets import KNOWN

        folder = _folder(self.data)
        found = cache.entry(folder, self.name) if self.name in KNOWN else None
        if found is not None and found.published:
            print(f"{self.name} is in {folder} already, as published; fedawe data check {self.name} verifies it")
            return
        with _bars() as report:
            paths = download(self.name, folder, report, self.mirror)
        _add(self.name, paths[0], folder)
        print(f"no longer needed: {', '.join(map(str, paths))}")


def _folder(given: Path | None) -> Path:
    """The folder of the data sets."""
    from fedawe.tasks.data import default_folder

    folder = given or default_folder()
    if folder.exists() and not folder.is_dir():
        raise UserError(f"{folder}: is not a folder; --data takes the folder where data sets are kept")
    return folder


def _add(name: str, path: Path, folder: Path) -> None:
    from fedawe.tasks.data import add
    from fedawe.tasks.data.sets import KNOWN

    with _bars() as report:
        found = add(name, path, folder, report)
    images = {part: found.arrays[f"x_{part}"].shape for part in ("train", "test")}
    classes = KNOWN[name].classes if name in KNOWN else tuple(map(str, range(len(found.counts["train"]))))
    rows: list[Sequence[str]] = [("class", "train", "test")]
    rows += [(c, f"{a:,}", f"{b:,}") for c, a, b in zip(classes, *found.counts.values(), strict=True)]
    rows.append(("all", *(f"{shape[0]:,}" for shape in images.values())))
    _table(rows)
    print(f"{name}: images of {' x '.join(map(str, images['train'][1:]))}, kept in {folder / found.folder}")
    if name in KNOWN and not found.published:
        print(f"{found.source}: counts, shapes and labels are right, but the files may differ from the published ones")


def _table(rows: Sequence[Sequence[str]]) -> None:
    """Print rows in columns; the second and third columns are aligned to the right."""
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    for row in rows:
        cells = [f"{cell:{'>' if n in (1, 2) else '<'}{widths[n]}}" for n, cell in enumerate(row)]
        print("  ".join(cells).rstrip())


@contextmanager
def _bars() -> Iterator["Report"]:
    """A function that shows a progress bar for each file on a terminal, and nothing elsewhere."""
    from rich.console import Console
    from rich.progress import BarColumn, Progress, TaskID, TaskProgressColumn, TextColumn, TimeRemainingColumn

    from fedawe.tasks.data.sets import silent

    if not sys.stderr.isatty():
        yield silent
        return
    columns = (TextColumn("{task.description}", markup=False), BarColumn(), TaskProgressColumn(), TimeRemainingColumn())
    with Progress(*columns, console=Console(stderr=True)) as progress:
        tasks: dict[str, TaskID] = {}

        def report(what: str, done: int, total: int) -> None:
            if what not in tasks:
                tasks[what] = progress.add_task(what, total=total)
            progress.update(tasks[what], completed=done, total=total)

        yield report


VERB = (
    Annotated[DataAddCommand, tyro.conf.subcommand("add")]
    | Annotated[DataListCommand, tyro.conf.subcommand("list")]
    | Annotated[DataCheckCommand, tyro.conf.subcommand("check")]
    | Annotated[DataDownloadCommand, tyro.conf.subcommand("download")]
)
