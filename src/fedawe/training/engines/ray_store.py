"""What lies in a cluster's memory: equal bytes once, and once on every node that reads them."""

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
LARGE = 2**20  # bytes from which an array is stored apart, and read where it lies
LEAST = 2**15  # bytes that an array counts as, however small it is: a reference has its cost too


class Store:
    """Arrays by what is in them. Of those that were not in the last `put`, the newest `spare` bytes are kept."""

    def __init__(self, spare: int) -> None:
        self.ray, self.spare = imported(), spare
        self.held: dict[str, tuple[Any, int]] = {}  # name -> reference and bytes, the last used last
        self.size = 0  # bytes of all of them

    def put(self, arrays: Sequence[Array]) -> list[str]:
        """Their names; what is there already is not sent again."""
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
        while self.size > room:  # the first was used the longest ago
            self.size -= self.held.pop(next(iter(self.held)))[1]
        return names

    def __getitem__(self, name: str) -> Any:
        """The reference, which any node can read."""
        return self.held[name][0]


def _name(array: Array) -> str:
    content = np.ascontiguousarray(array).data
    return f"{hashlib.blake2b(content, digest_size=16).hexdigest()} {array.dtype.str} {array.shape}"


def pack(thing: Any) -> list[Array]:
    """A pickle, followed by the large arrays and tensors in it."""
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
    """The thing again; its large arrays stay where they are, and nobody may write to them."""
    return pickle.loads(packed[0].data, buffers=packed[1:])


def _is_large(what: Any) -> bool:
    """A tensor that is as good as an array; any other is pickled as torch has it, strides and all."""
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
