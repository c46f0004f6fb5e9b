"""The paper's three data sets: which files are published where, and what must be in them."""

import hashlib
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, NamedTuple, Protocol

import numpy as np
import numpy.typing as npt

from fedawe.core.errors import UserError
from fedawe.core.files import brief

PartName = Literal["train", "test"]
PARTS: tuple[PartName, PartName] = ("train", "test")
Report = Callable[[str, int, int], None]  # called with what is being done, how much of it is done, and of how much


class Part(NamedTuple):
    """One part of a data set: the images to train, to test or to validate."""

    name: PartName | Literal["val"]
    images: npt.NDArray[np.uint8]  # [N, H, W, C]
    labels: npt.NDArray[np.int64]  # [N]
    client: npt.NDArray[Any] | None = None  # which client has each of them, [N]


def silent(what: str, done: int, total: int) -> None:
    """A report that shows nothing."""
    del what, done, total


@dataclass(frozen=True)
class File:
    """A published file."""

    name: str
    md5: str
    size: int  # bytes
    addresses: tuple[str, ...] = ()


@dataclass(frozen=True)
class Known:
    """A published data set, whose content is known: images of 32 x 32 x 3, ten classes."""

    name: str
    classes: tuple[str, ...]
    train: tuple[int, ...]  # images of each class
    test: tuple[int, ...]
    mean: tuple[float, ...]  # of each channel, in [0, 1]: the normalisation of the authors' code
    std: tuple[float, ...]
    downloads: tuple[File, ...]
    unpacked: tuple[File, ...] = ()  # the files in the downloads, where their checksums are published

    def check(self, where: Path, part: PartName, labels: npt.NDArray[np.int64]) -> None:
        """Refuse labels [N] unless every class is as frequent as in the published data set."""
        expected = np.array(self.train if part == "train" else self.test)
        if len(labels) != expected.sum():
            raise UserError(
                f"{where}: {len(labels):,} {part} images; {self.name} has {expected.sum():,}: the file is incomplete "
                "or another one"
            )
        counts = np.bincount(labels, minlength=len(expected))
        if len(counts) > len(expected):
            raise UserError(
                f"{where}: a {part} label is {labels.max()}; {self.name} has classes 0 to {len(expected) - 1}"
            )
        wrong = np.flatnonzero(counts != expected)
        if len(wrong):
            c = wrong[0]
            raise UserError(
                f"{where}: {counts[c]:,} {part} images are labelled {self.classes[c]}; {self.name} has {expected[c]:,}"
                ": the labels are wrong"
            )


class Reader(Protocol):
    """A module that reads one format; nothing in a file is executed and nothing is written."""

    def files(self, path: Path) -> list[Path]:
        """The files of the set under `path`; refuses a set with missing files, and names them."""

    def read(self, files: list[Path], known: Known, report: Report) -> Iterator[Part]:
        """The parts, each once; refuses files that do not have the published format."""


def published(files: Iterable[Path], known: Known) -> bool:
    """Whether all of these are the published files, byte for byte.

    A file as long as a published one but with other bytes is damaged, and refused. A file of another length
    may have been saved again by a user: it is accepted if its content is valid.
    """
    by_size = {file.size: file for file in (*known.downloads, *known.unpacked)}
    answers = []
    for path in files:
        file = by_size.get(path.stat().st_size) if path.is_file() else None
        if file is not None:
            check_md5(path, file)
        answers.append(file is not None)
    return all(answers)


def check_md5(path: Path, file: File) -> None:
    """Refuse a file that is not the published one."""
    found = digest(path, "md5")
    if found != file.md5:
        raise UserError(
            f"{path}: its md5 is {found}, that of the published {file.name} is {file.md5}: the file is damaged or "
            "another one; delete it and fetch it again"
        )


def digest(path: Path, kind: str) -> str:
    """The checksum of a file."""
    try:
        with path.open("rb") as file:
            return hashlib.file_digest(file, lambda: hashlib.new(kind, usedforsecurity=False)).hexdigest()
    except OSError as error:
        raise unreadable(path, error) from None


def unreadable(where: Path | str, error: BaseException) -> UserError:
    """The error for a damaged file, in one line, from the error of a parser."""
    return UserError(f"{where}: cannot be read, it is truncated, damaged or of another kind ({brief(error)})")


DIGITS = tuple("0123456789")
THINGS = ("airplane", "automobile", "bird", "cat", "deer", "dog", "frog", "horse", "ship", "truck")

SVHN = Known(
    name="svhn",
    classes=DIGITS,
    train=(4948, 13861, 10585, 8497, 7458, 6882, 5727, 5595, 5045, 4659),
    test=(1744, 5099, 4149, 2882, 2523, 2384, 1977, 2019, 1660, 1595),
    mean=(0.4376821, 0.4437697, 0.47280442),
    std=(0.19803012, 0.20101562, 0.19703614),
    downloads=(
        File(
            "train_32x32.mat",
            "e26dedcc434d2e4c54c9b2d4a06d8373",
            182_040_794,
            ("http://ufldl.stanford.edu/housenumbers/train_32x32.mat",),
        ),
        File(
            "test_32x32.mat",
            "eb5a983be6a315427106f1b164d9cef3",
            64_275_384,
            ("http://ufldl.stanford.edu/housenumbers/test_32x32.mat",),
        ),
    ),
)

CIFAR10 = Known(
    name="cifar10",
    classes=THINGS,
    train=(5000,) * 10,
    test=(1000,) * 10,
    mean=(0.4914, 0.4822, 0.4465),
    std=(0.2023, 0.1994, 0.2010),
    downloads=(
        File(
            "cifar-10-python.tar.gz",
            "c58f30108f718f92721af3b95e74349a",
            170_498_071,
            ("https://www.cs.toronto.edu/~kriz/cifar-10-python.tar.gz",),
        ),
    ),
    unpacked=(
        File("data_batch_1", "c99cafc152244af753f735de768cd75f", 31_035_704),
        File("data_batch_2", "d4bba439e000b95fd0a9bffe97cbabec", 31_035_320),
        File("data_batch_3", "54ebc095f3ab1f0389bbae665268c751", 31_035_999),
        File("data_batch_4", "634d18415352ddfa80567beed471001a", 31_035_696),
        File("data_batch_5", "482c414d41f54cd18b22e5b47cb7c3cb", 31_035_623),
        File("test_batch", "40351d587109b95175f43aff81a1287e", 31_035_526),
    ),
)

CINIC10 = Known(
    name="cinic10",
    classes=THINGS,
    train=(9000,) * 10,
    test=(9000,) * 10,
    mean=(0.47889522, 0.47227842, 0.43047404),
    std=(0.24205776, 0.23828046, 0.25874835),
    downloads=(
        File(
            "CINIC-10.tar.gz",
            "6ee4d0c996905fe93221de577967a372",
            687_544_992,
            (
                # The archive has moved: the first is where it is, the second what its papers cite.
                "https://datashare.ed.ac.uk/server/api/core/bitstreams/e8e186cc-2688-48f1-aa5a-3fda1a43f8b6/content",
                "https://datashare.ed.ac.uk/bitstream/handle/10283/3192/CINIC-10.tar.gz",
            ),
        ),
    ),
)

KNOWN = {known.name: known for known in (SVHN, CIFAR10, CINIC10)}
