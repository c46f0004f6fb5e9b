"""Data sets of the LEAF benchmark."""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from fedawe.core.errors import UserError
from fedawe.core.files import brief
from fedawe.tasks.data.arrays import Array, from_arrays, stacked
from fedawe.tasks.data.labelled import Data
from fedawe.tasks.data.text import CODES, encode


def from_leaf(folder: str | Path, *, shape: Sequence[int] | None = None) -> Data:
    """Data from a folder of the LEAF benchmark, as its scripts write it: JSON files in the folders train and test.

    Every user is a client. Inputs are numbers (FEMNIST; `shape` makes images of them, as in (28, 28)) or texts of one
    length whose label is the next character (Shakespeare).
    """
    place = leaf_folder(Path(folder))
    if place is None:
        raise UserError(f"{folder}: expected the folders train and test with JSON files, as LEAF writes them")
    arrays: dict[str, Array] = {}
    texts: dict[str, bool] = {}
    for part in ("train", "test"):
        users, inputs, labels = _users(place / part)
        texts[part] = isinstance(inputs[0], str)
        where = str(place / part)
        x, y = _leaf_text(inputs, labels, where) if texts[part] else (stacked(inputs, where), stacked(labels, where))
        arrays |= {f"x_{part}": x, f"y_{part}": y}
        if part == "train":
            arrays["client"] = np.array(users)
    if texts["train"] != texts["test"]:
        kinds = ("text", "numbers") if texts["train"] else ("numbers", "text")
        raise UserError(f"{place}: inputs of train are {kinds[0]}, those of test {kinds[1]}; expected the same of both")
    if shape is not None:
        arrays |= {key: _shaped(arrays[key], shape, str(place)) for key in ("x_train", "x_test")}
    return from_arrays(Path(folder).name, arrays, str(place), text=CODES if texts["train"] else 0)


def leaf_folder(path: Path) -> Path | None:
    """Where LEAF's folders train and test are: `path` or its `data`; None if they are in neither."""
    for folder in (path, path / "data"):
        if all(any((folder / part).glob("*.json")) for part in ("train", "test")):
            return folder
    return None


def _users(folder: Path) -> tuple[list[str], list[Any], list[Any]]:
    """User, input and label of every sample in LEAF's files, in the order of the files' names."""
    users: list[str] = []
    inputs: list[Any] = []
    labels: list[Any] = []
    for file in sorted(folder.glob("*.json")):
        try:
            found = json.loads(file.read_bytes())["user_data"]
            samples = {str(user): (list(own["x"]), list(own["y"])) for user, own in found.items()}
        except (OSError, ValueError, RecursionError, MemoryError) as error:
            raise UserError(f"{file}: cannot be read ({brief(error)})") from None
        except (KeyError, TypeError, AttributeError):
            raise UserError(f'{file}: expected {{"users": [...], "user_data": {{user: {{"x", "y"}}}}}}') from None
        for user, (x, y) in samples.items():
            if len(x) != len(y):
                raise UserError(f"{file}: user {user!r} has {len(x)} inputs and {len(y)} labels")
            users += [user] * len(x)
            inputs += x
            labels += y
    if not inputs:
        raise UserError(f"{folder}: has no samples")
    return users, inputs, labels


def _leaf_text(inputs: list[Any], labels: list[Any], where: str) -> tuple[Array, Array]:
    lengths = {len(each) if isinstance(each, str) else -1 for each in inputs}
    if len(lengths) > 1 or not all(isinstance(each, str) and len(each) == 1 for each in labels):
        raise UserError(
            f"{where}: the inputs are text; expected texts of one length, each labelled with its next character"
        )
    codes = encode("".join(inputs)).reshape(len(inputs), -1)
    return codes, encode("".join(labels))


def _shaped(x: Array, shape: Sequence[int], where: str) -> Array:
    if x[0].size != int(np.prod(shape)):
        raise UserError(f"{where}: samples have {x[0].size} numbers, which cannot be of shape {list(shape)}")
    return x.reshape(len(x), *shape)
