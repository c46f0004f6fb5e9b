"""Tasks that are asked for by name: the bundled digits, a set that `fedawe data` keeps, or a user's npz file."""

import hashlib
import warnings
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Any, Literal

import numpy as np
import torch

from fedawe.core.errors import UserError
from fedawe.core.files import existing_file
from fedawe.tasks.augment import Augment
from fedawe.tasks.classification import Classification, ModelName, classification
from fedawe.tasks.data import default_folder, load
from fedawe.tasks.data.cache import names
from fedawe.tasks.data.labelled import Data, digits, from_npz
from fedawe.tasks.data.sets import KNOWN

AugmentName = Literal["none", "image", "batch"]


def is_image_set(name: str) -> bool:
    """Whether the name can only be that of a data set which `fedawe data` keeps."""
    return name != "digits" and not name.endswith(".npz")


@dataclass(frozen=True)
class NamedTask:
    """A function of the seed: labelled data, shared out among clients by the authors' Dirichlet rule, and a network.

    name        digits, the path of an .npz file, or a set that `fedawe data` keeps
    model       softmax, mlp, cnn or paper
    clients     m
    alpha       Dirichlet parameter of the partition; smaller is more uneven
    image_size  height and width to which images are shrunk; None leaves them as they are
    augment     random crops and flips of each image, of a whole batch alike, or none
    keep_empty  keep clients that the partition leaves without data
    folder      where data sets are kept; None for the default
    """

    name: str = "digits"
    model: ModelName = "mlp"
    clients: int = 100
    alpha: float = 0.1
    image_size: int | None = None
    augment: AugmentName = "none"
    keep_empty: bool = False
    folder: Path | None = field(default=None, compare=False)

    def __post_init__(self) -> None:
        if self.clients < 1:
            raise UserError(f"clients is {self.clients}; expected a whole number from 1")

    def described(self) -> dict[str, Any]:
        """What it is made from; a file is told by its content, not by where it lies."""
        said = {each.name: getattr(self, each.name) for each in fields(self) if each.name != "folder"}
        if self.name.endswith(".npz"):
            said["sha256"] = hashlib.sha256(existing_file(Path(self.name)).read_bytes()).hexdigest()
        return said

    def data(self) -> Data:
        """The data, before it is shared out."""
        if is_image_set(self.name):
            data = stored(self.name, self.folder)
        else:
            data = digits() if self.name == "digits" else from_npz(self.name)
        if self.image_size is not None:
            data = data.shrunk(self.image_size)
        if self.augment != "none" and len(data.shape) != 3:
            raise UserError(f"augment is for images; the samples of {data.name} have the shape {list(data.shape)}")
        return data

    def __call__(self, seed: int) -> Classification:
        """The task of one seed."""
        augment = None if self.augment == "none" else Augment(self.name != "svhn", self.augment)
        return classification(
            self.data(), self.model, self.clients, self.alpha, seed, keep_empty=self.keep_empty, augment=augment
        )


def stored(name: str, folder: Path | None) -> Data:
    """A data set that `fedawe data` keeps."""
    if name not in KNOWN and name not in names(folder or default_folder()):
        known = ", ".join(["digits", "quadratic", *KNOWN])
        raise UserError(
            f"unknown task {name!r}; expected {known}, a set added with fedawe data, an .npz file, "
            "or a task of your own as in my.tasks:Text or tasks.py:Text"
        )
    found = load(name, folder)
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="The given NumPy array is not writable")  # nobody writes to it
        x_train, x_test = torch.from_numpy(found.x_train), torch.from_numpy(found.x_test)
    y_train, y_test = (torch.from_numpy(np.array(y)) for y in (found.y_train, found.y_test))
    return Data(found.name, x_train, y_train, x_test, y_test, found.mean, found.std)
