"""Tasks that are given by name: bundled data, a data set that `fedawe data` keeps, or a user's file."""

import functools
import hashlib
import zipfile
from collections.abc import Callable
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Any, Literal

from fedawe.core.describe import checksum
from fedawe.core.errors import UserError
from fedawe.core.files import brief, existing_file
from fedawe.tasks.augment import Augment
from fedawe.tasks.classification import Classification, classification
from fedawe.tasks.data import cache, default_folder, load
from fedawe.tasks.data.arrays import from_npz
from fedawe.tasks.data.images import kept
from fedawe.tasks.data.labelled import Data, Role, digits
from fedawe.tasks.data.leaf import from_leaf, leaf_folder
from fedawe.tasks.data.sets import KNOWN, digest
from fedawe.tasks.data.tables import columns_of, from_table
from fedawe.tasks.data.text import characters, topics_sha256
from fedawe.tasks.models import Model
from fedawe.tasks.partition import Partition, settled

AugmentName = Literal["none", "image", "batch"]

BUNDLED: dict[str, Callable[[], Data]] = {"digits": digits, "chars": characters}
FILES: dict[str, Callable[[str], Data]] = {".npz": from_npz, ".csv": from_table, ".parquet": from_table}


def is_image_set(name: str) -> bool:
    """Whether the name can only be that of a data set which `fedawe data` keeps."""
    return name not in BUNDLED and Path(name).suffix not in FILES and leaf_folder(Path(name)) is None


@dataclass(frozen=True)
class NamedTask:
    """A function of the seed: labelled data, shared out among clients, and a network.

    name        digits, chars, the path of an .npz, .csv or .parquet file, a folder of LEAF's JSON files, or a set that
                `fedawe data` keeps
    model       softmax, mlp, cnn, paper, lstm, or a function that builds a torch.nn.Module; None: paper for sets of
                `fedawe data`, lstm for chars, else mlp
    clients     m; None: as many as the partition has, or 100 where any number is possible
    alpha       Dirichlet parameter of the partition; smaller is more uneven; None: 0.1
    image_size  height and width to which images are shrunk; None leaves them as they are
    augment     random crops and flips of each image, of a whole batch alike, or none
    keep_empty  keep clients that the partition leaves without data
    folder      where data sets are kept; None for the default
    partition   natural, dirichlet, iid or a function (labels, seed); None: natural where the data says which client has
                which sample, else dirichlet
    validation  the share of every client's samples that is held out to validate; None for none
    evaluate_on train, validation, test: the parts of the data on which models are evaluated; None: on all
    """

    name: str = "digits"
    model: Model | None = None
    clients: int | None = None
    alpha: float | None = None
    image_size: int | None = None
    augment: AugmentName = "none"
    keep_empty: bool = False
    folder: Path | None = field(default=None, compare=False)
    partition: Partition | None = None
    validation: float | None = None
    evaluate_on: tuple[Role, ...] | None = None

    def __post_init__(self) -> None:
        is_kept = is_image_set(self.name)
        if is_kept and self.name not in KNOWN and self.name not in cache.names(self.folder or default_folder()):
            known = ", ".join([*BUNDLED, "quadratic", "synthetic", *KNOWN])
            raise UserError(
                f"unknown task {self.name!r}; expected {known}, a set added with fedawe data, an .npz, .csv or "
                ".parquet file, a folder of LEAF, or a task of your own as in my.tasks:Text or tasks.py:Text"
            )
        set_ = functools.partial(object.__setattr__, self)
        if self.model is None:
            set_("model", "paper" if is_kept else "lstm" if self.name == "chars" else "mlp")
        partition, clients, alpha = settled(self.partition, self._has_clients(), self.clients, self.alpha)
        set_("partition", partition)
        set_("clients", clients)
        set_("alpha", alpha)

    def _has_clients(self) -> bool:
        """Whether the data says which client has which sample; found without reading the data."""
        path = Path(self.name)
        if self.name in BUNDLED:
            return self.name == "chars"
        if path.suffix == ".npz":
            existing_file(path)
            try:
                with zipfile.ZipFile(path) as archive:
                    return "client.npy" in archive.namelist()
            except (OSError, ValueError, zipfile.BadZipFile) as error:
                raise UserError(f"{path}: cannot be read as npz ({brief(error)})") from None
        if path.suffix in FILES:
            return "client" in columns_of(existing_file(path))
        if leaf_folder(path) is not None:
            return True
        found = cache.entry(self.folder or default_folder(), self.name)
        return found is not None and "client" in found.arrays

    def described(self) -> dict[str, Any]:
        """The fields that identify the task in the header of a record; files are identified by content, not by path."""
        said = {each.name: getattr(self, each.name) for each in fields(self) if each.name != "folder"}
        if self.name == "chars":
            said["sha256"] = topics_sha256()
        elif is_image_set(self.name):
            found = kept(self.name, self.folder)
            said["sha256"] = checksum([{key: each.sha256 for key, each in found.arrays.items()}, found.mean, found.std])
        elif self.name not in BUNDLED:
            said["sha256"] = _sha256(Path(self.name))
        return said

    def data(self) -> Data:
        """The data, before it is shared out among clients."""
        path = Path(self.name)
        if self.name in BUNDLED:
            data = BUNDLED[self.name]()
        elif path.suffix in FILES:
            data = FILES[path.suffix](self.name)
        else:
            data = load(self.name, self.folder) if leaf_folder(path) is None else from_leaf(path)
        if self.image_size is not None:
            data = data.shrunk(self.image_size)
        if self.augment != "none" and len(data.shape) != 3:
            raise UserError(f"augment is for images; the samples of {data.name} have the shape {list(data.shape)}")
        return data

    def __call__(self, seed: int) -> Classification:
        """The task of one seed."""
        assert self.model is not None
        return classification(
            self.data(),
            self.model,
            self.clients,
            self.alpha,
            seed,
            partition=self.partition,
            validation=self.validation,
            keep_empty=self.keep_empty,
            evaluate_on=self.evaluate_on,
            augment=None if self.augment == "none" else Augment(self.name != "svhn", self.augment),
        )


def _sha256(path: Path) -> str:
    """A checksum of a file, or of the JSON files of a folder."""
    folder = leaf_folder(path) if path.is_dir() else None
    if folder is None:
        return _of_file(existing_file(path), path.stat().st_mtime_ns)
    files = [file for part in ("train", "test") for file in sorted((folder / part).glob("*.json"))]
    return hashlib.sha256("".join(_of_file(file, file.stat().st_mtime_ns) for file in files).encode()).hexdigest()


@functools.cache
def _of_file(path: Path, changed: int) -> str:
    del changed  # part of the key of the cache, so that a file that has changed is read again
    return digest(path, "sha256")
