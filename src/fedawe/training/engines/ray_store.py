"""Arrays in a cluster's object store: equal arrays are stored once, and copied once to every node that reads them."""

import hashlib
import io
import pickle
import warnings
from collections.abc import Sequence
from typing import Any

import cloudpickle
import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from fedawe.training.engines.ray_cluster import imported

Array = npt.NDArray[Any]
PLAIN = {torch.uint8, torch.int32, torch.int64, torch.float32, torch.float64}
LARGE = 2**20  # bytes from which an array is stored separately, and read without a copy
LEAST = 2**15  # bytes that a smaller array is counted as, because a reference has a cost too


class Store:
    """Arrays in the object store, named by their content.

    The arrays of the last `put` are kept, and of the others the most recently used up to `spare` bytes.
    """

    def __init__(self, spare: int) -> None:
        self.ray, self.spare = imported(), spare
        self.held: dict[str, tuple[Any, int]] = {}  # name -> reference and bytes, most recently used last
        self.size = 0  # bytes of all of them

    def put(self, arrays: Sequence[Array]) -> list[str]:
        """Store the arrays and return their names; an array that is stored already is not sent again."""
        names = [_name(array) for array in arrays]
        for name, array in zip(names, arrays, strict=True):
            if name in self.held:
                self.held[name] = self.held.pop(name)
            else:
                size = max(array.nbytes, LEAST)
                self.held[name] = self.ray.put(array), size
                self.size += size
        used = set(names)
        room = self.spare + sum(self.held[name][1] for name in used)
        while self.size > room:  # the first one is the least recently used
            self.size -= self.held.pop(next(iter(self.held)))[1]
        return names

    def __getitem__(self, name: str) -> Any:
        """The reference by which any node can read the array of this name."""
        return self.held[name][0]


def _name(array: Array) -> str:
    content = np.ascontiguousarray(array).data
    return f"{hashlib.blake2b(content, digest_size=16).hexdigest()} {array.dtype.str} {array.shape}"


def pack(thing: Any) -> list[Array]:
    """The pickled object, followed by its large arrays and tensors."""
    apart: list[Array] = []

    def is_small(buffer: pickle.PickleBuffer) -> bool:
        raw = buffer.raw()
        if raw.nbytes >= LARGE:
            apart.append(np.frombuffer(raw, dtype=np.uint8))
        return raw.nbytes < LARGE

    class Pickler(cloudpickle.Pickler):  # type: ignore[misc]
        def reducer_override(self, what: Any) -> Any:
            return (_tensor, (what.numpy(),)) if _is_large(what) else super().reducer_override(what)

    file = io.BytesIO()
    Pickler(file, protocol=5, buffer_callback=is_small).dump(thing)
    return [np.frombuffer(file.getvalue(), dtype=np.uint8), *apart]


def unpack(packed: Sequence[Array]) -> Any:
    """The object that was packed; its large arrays are not copied and must not be written to."""
    return pickle.loads(packed[0].data, buffers=packed[1:])


def _is_large(what: Any) -> bool:
    """Whether this is a large tensor that equals a plain array. Other tensors are pickled as torch does it."""
    return (
        type(what) is Tensor
        and what.device.type == "cpu"
        and what.layout == torch.strided
        and what.is_contiguous()
        and not what.requires_grad
        and what.dtype in PLAIN
        and what.nbytes >= LARGE
    )


def _tensor(array: Array) -> Tensor:
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="The given NumPy array is not writable")
        return torch.from_numpy(array)
