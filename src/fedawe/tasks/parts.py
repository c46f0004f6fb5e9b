"""The samples of every client in two arrays, whether there are ten clients or a million."""

from collections.abc import Iterable, Iterator, Sequence
from typing import Any, overload

import numpy as np
import numpy.typing as npt

Indices = npt.NDArray[np.int64]


class Parts(Sequence[Indices]):
    """parts[i] are the samples of client i. `order` has those of all clients in turn, and `sizes[i]` is their number.

    >>> parts = Parts.of([[4, 5], [], [0]])
    >>> parts.order.tolist(), parts.sizes.tolist(), parts[0].tolist(), parts.owners.tolist()
    ([4, 5, 0], [2, 0, 1], [4, 5], [0, 0, 2])
    """

    def __init__(self, order: Indices, sizes: Indices) -> None:
        self.order, self.sizes = order, sizes  # [n], [m]
        self.offsets = np.concatenate([[0], np.cumsum(sizes)[:-1]])  # where the samples of a client begin     [m]

    @classmethod
    def of(cls, parts: Iterable[Any]) -> "Parts":
        """Parts are returned unchanged; otherwise parts are made from one array of sample numbers for each client."""
        if isinstance(parts, Parts):
            return parts
        listed = [np.asarray(part, dtype=np.int64) for part in parts]
        order = np.concatenate(listed) if listed else np.empty(0, dtype=np.int64)
        return cls(order, np.array([len(part) for part in listed], dtype=np.int64))

    @classmethod
    def owned(cls, owners: Indices, samples: Indices, clients: int) -> "Parts":
        """Client owners[n] has samples[n]; its samples keep their order."""
        order = samples[np.argsort(owners, kind="stable")].astype(np.int64, copy=False)
        return cls(order, np.bincount(owners, minlength=clients))

    @property
    def owners(self) -> Indices:
        """Which client has each sample of `order`, [n]."""
        return np.repeat(np.arange(len(self.sizes)), self.sizes)

    def __len__(self) -> int:
        return len(self.sizes)

    @overload
    def __getitem__(self, i: int) -> Indices: ...
    @overload
    def __getitem__(self, i: slice) -> Sequence[Indices]: ...
    def __getitem__(self, i: int | slice) -> Indices | Sequence[Indices]:
        if isinstance(i, slice):
            return [self[n] for n in range(*i.indices(len(self)))]
        return self.order[self.offsets[i] :][: self.sizes[i]]

    def __iter__(self) -> Iterator[Indices]:
        for begin, size in zip(self.offsets.tolist(), self.sizes.tolist(), strict=True):
            yield self.order[begin : begin + size]
