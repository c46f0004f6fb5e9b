"""Data sets that are Python objects: Hugging Face's, and PyTorch's. Nothing is downloaded."""

from collections.abc import Sequence
from typing import Any

import numpy as np
from torch import Tensor

from fedawe.core.errors import UserError
from fedawe.tasks.data.arrays import Array, class_numbers, client_names, from_arrays, listed, stacked
from fedawe.tasks.data.labelled import Data


def from_huggingface(
    train: Any,
    test: Any,
    *,
    inputs: str | Sequence[str] | None = None,
    label: str = "label",
    client: str | None = None,
    val: Any = None,
    name: str = "dataset",
) -> Data:
    """Data from Hugging Face `datasets.Dataset` objects, as you have loaded them.

    inputs  the column of images or of lists of numbers, or several columns of numbers; None: all but label and
            client
    label   the column of labels: class numbers from 0, or names
    client  the column that says which client has the sample
    """
    parts = {"train": train, "test": test} | ({} if val is None else {"val": val})
    known = list(train.column_names)
    for column in (label, *([client] if client else []), *([inputs] if isinstance(inputs, str) else inputs or ())):
        if column not in known:
            raise UserError(f"{name}: there is no column {column!r}; the columns are {listed(known)}")
    chosen = [inputs] if isinstance(inputs, str) else list(inputs or [c for c in known if c not in (label, client)])
    arrays: dict[str, Array] = {}
    for part, rows in parts.items():
        if missing := [column for column in (*chosen, label) if column not in rows.column_names]:
            raise UserError(
                f"{name}: {part} has no column {missing[0]!r}; its columns are {listed(list(rows.column_names))}"
            )
        columns = [stacked(list(rows[column]), f"{name}: {column}") for column in chosen]
        arrays[f"x_{part}"] = columns[0] if len(columns) == 1 else np.stack(columns, 1)
    coded = class_numbers([np.asarray(list(rows[label])) for rows in parts.values()], name)
    arrays |= {f"y_{part}": y for part, y in zip(parts, coded, strict=True)}
    if client is not None:
        arrays["client"] = client_names(np.asarray(list(train[client])))
    return from_arrays(name, arrays)


def from_torch(train: Any, test: Any, *, client: Any = None, val: Any = None, name: str = "dataset") -> Data:
    """Data from any `torch.utils.data.Dataset` of pairs (input, label), such as those of torchvision.

    Every sample is read once. Inputs are tensors ([channels, height, width] for images), arrays or PIL images of one
    shape; labels are class numbers from 0. `client` has one whole number or name for each training sample.
    """
    arrays: dict[str, Array] = {}
    for part, samples in {"train": train, "test": test, "val": val}.items():
        if samples is None:
            continue
        pairs = [_pair(samples[n], f"{name}: sample {n} of {part}") for n in range(len(samples))]
        arrays[f"x_{part}"] = stacked([_channels_last(x) for x, _ in pairs], f"{name}: {part}")
        labels = stacked([_array(y) for _, y in pairs], f"{name}: labels of {part}")
        labels = labels[:, 0] if labels.shape[1:] == (1,) else labels
        arrays[f"y_{part}"] = labels.astype(np.int64) if labels.dtype.kind == "b" else labels
    if client is not None:
        arrays["client"] = client_names(np.asarray(client))
    return from_arrays(name, arrays)


def _pair(sample: Any, where: str) -> tuple[Any, Any]:
    """Input and label of a sample."""
    if not isinstance(sample, tuple | list) or len(sample) != 2:
        of = f" of {len(sample)}" if isinstance(sample, tuple | list) else ""
        raise UserError(f"{where} is a {type(sample).__name__}{of}; expected a pair (input, label)")
    return sample[0], sample[1]


def _channels_last(sample: Any) -> Array:
    """An input as an array; a tensor of three dimensions is [channels, height, width]."""
    array = _array(sample)
    return array.transpose(1, 2, 0) if isinstance(sample, Tensor) and array.ndim == 3 else array


def _array(what: Any) -> Array:
    return what.detach().cpu().numpy() if isinstance(what, Tensor) else np.asarray(what)
