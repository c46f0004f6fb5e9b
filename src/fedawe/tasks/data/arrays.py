"""Users' arrays, checked and converted to `Data`, and the npz files that hold them."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from fedawe.core.errors import UserError
from fedawe.core.files import brief, read_npz
from fedawe.tasks.data.labelled import Data

Array = npt.NDArray[Any]

REQUIRED = ("x_train", "y_train", "x_test", "y_test")
OPTIONAL = ("x_val", "y_val", "client")
MOST_CLASSES = 10_000


def from_npz(path: str | Path) -> Data:
    """Data from an npz file with x_train, y_train, x_test, y_test, and perhaps x_val, y_val and client.

    Images are [N, height, width] or [N, height, width, channels]; uint8 is scaled to [0, 1] when it is used. `client`
    has one whole number or name for each training sample.
    """
    path = Path(path)
    return from_arrays(path.stem, read_npz(path), str(path))


def from_arrays(name: str, arrays: Mapping[str, Array], where: str = "", text: int = 0) -> Data:
    """Data from a dictionary of arrays with the names and shapes that an npz file has.

    where  where the arrays were found, for messages; "" for the name
    text   the number of character codes, if the inputs and labels are codes; 0 if the inputs are numbers
    """
    where = where or name
    check_names(arrays, where)
    arrays = {key: np.asarray(array) for key, array in arrays.items()}
    parts = ("train", "val", "test") if "x_val" in arrays else ("train", "test")
    out: dict[str, Any] = {}
    for part in parts:
        x, y = arrays[f"x_{part}"], arrays[f"y_{part}"]
        out[f"x_{part}"] = torch.from_numpy(x) if text else _inputs(where, f"x_{part}", x)
        out[f"y_{part}"] = _labels(where, f"y_{part}", y, len(x))
    for part in parts[1:]:
        if arrays["x_train"].shape[1:] != arrays[f"x_{part}"].shape[1:]:
            shapes = [list(arrays[f"x_{each}"].shape[1:]) for each in ("train", part)]
            raise UserError(f"{where}: samples of x_train have the shape {shapes[0]}, those of x_{part} {shapes[1]}")
        kinds = [arrays[f"x_{each}"].dtype for each in ("train", part)]
        if (kinds[0] == np.uint8) != (kinds[1] == np.uint8):  # of which only uint8 is scaled to [0, 1]
            raise UserError(f"{where}: x_train is {kinds[0]}, x_{part} is {kinds[1]}; expected one type of numbers")
        if not text and int(out[f"y_{part}"].max()) > int(out["y_train"].max()):
            raise UserError(f"{where}: y_{part} has class {int(out[f'y_{part}'].max())}, which y_train does not have")
    if "client" in arrays:
        out["client"] = _owners(where, arrays["client"], len(arrays["x_train"]))
    return Data(name, **out, text=bool(text), known_classes=text)


def check_names(arrays: Mapping[str, Any], where: str) -> None:
    """Refuses arrays with unknown names, and missing arrays that are required."""
    known = (*REQUIRED, *OPTIONAL)
    if unknown := sorted(set(arrays) - set(known)):
        raise UserError(f"{where}: has {', '.join(map(repr, unknown))}; expected no arrays but {', '.join(known)}")
    missing = set(REQUIRED) - set(arrays)
    if ("x_val" in arrays) != ("y_val" in arrays):
        missing |= {"x_val", "y_val"} - set(arrays)
    if missing:
        raise UserError(f"{where}: lacks {', '.join(sorted(missing))}; it has {', '.join(sorted(arrays)) or 'nothing'}")


def _inputs(where: str, name: str, x: Array) -> Tensor:
    if x.ndim < 2 or 0 in x.shape or x.dtype.kind not in "fiu":
        raise UserError(
            f"{where}: {name} must be numbers [N, ...] with N from 1, not {x.dtype} of shape {list(x.shape)}"
        )
    if x.dtype == np.uint8 and x.ndim in (3, 4):
        return torch.from_numpy(np.ascontiguousarray(x if x.ndim == 4 else x[..., None]))
    with np.errstate(over="ignore"):  # numbers that are too large for float32 are refused below
        inputs = torch.from_numpy(x.astype(np.float32) / (255 if x.dtype == np.uint8 else 1))
    if not torch.isfinite(inputs).all():
        if np.isfinite(x).all():
            raise UserError(
                f"{where}: {name} has entries as large as {np.abs(x).max():.3g}, which is too large for float32; scale "
                "the inputs"
            )
        raise UserError(f"{where}: {name} has entries that are not finite")
    if inputs.ndim == 3:
        inputs = inputs[:, None]
    elif inputs.ndim == 4:
        inputs = inputs.permute(0, 3, 1, 2).contiguous()
    return inputs


def _labels(where: str, name: str, y: Array, samples: int) -> Tensor:
    if y.shape != (samples,):
        raise UserError(f"{where}: {name} must have one label for each of {samples} samples, not shape {list(y.shape)}")
    if y.dtype.kind not in "iu":
        raise UserError(f"{where}: {name} must be class numbers from 0, not {y.dtype}")
    if y.min() < 0:
        raise UserError(f"{where}: {name} must be class numbers from 0, not {y.dtype} from {y.min()}")
    if y.max() >= MOST_CLASSES:
        raise UserError(f"{where}: {name} has a class number {y.max()}; classes are numbered from 0 without large gaps")
    return torch.from_numpy(y.astype(np.int64))


def _owners(where: str, client: Array, samples: int) -> Array:
    """Which client has each sample, checked."""
    if client.dtype.kind not in "iuU" or client.shape != (samples,):
        raise UserError(
            f"{where}: client must be one whole number or name for each of {samples} training samples, not "
            f"{client.dtype} of shape {list(client.shape)}"
        )
    return client


def class_numbers(labels: Sequence[Array], where: str) -> list[Array]:
    """Names as class numbers, in alphabetical order; class numbers as they are."""
    if all(each.dtype.kind in "iub" for each in labels):
        return [each.astype(np.int64) for each in labels]
    if not all(each.dtype.kind in "OUT" for each in labels):
        raise UserError(f"{where}: labels are {labels[0].dtype}; expected class numbers from 0, or names")
    names = [each.astype(str) for each in labels]
    known = np.unique(np.concatenate(names))
    return [np.searchsorted(known, each) for each in names]


def client_names(owners: Array) -> Array:
    """Names of clients as text; whole numbers as they are."""
    return owners.astype(str) if owners.dtype.kind in "OT" else owners


def stacked(samples: Sequence[Any], where: str) -> Array:
    """Samples of one shape as one array."""
    try:
        return np.stack([np.asarray(each) for each in samples])
    except (ValueError, TypeError) as error:
        raise UserError(f"{where}: expected samples of one shape ({brief(error)})") from None


def listed(names: Sequence[str]) -> str:
    """The first 20 names, quoted, for messages."""
    return ", ".join(map(repr, names[:20])) + (" ..." if len(names) > 20 else "") or "nothing"
