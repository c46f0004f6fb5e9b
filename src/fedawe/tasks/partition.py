"""Who has which samples."""

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from fedawe.core.errors import UserError

Indices = npt.NDArray[np.int64]


def dirichlet_partition(labels: Any, clients: int, alpha: float, rng: np.random.Generator) -> list[Indices]:
    """The authors' split: q_n ~ Dirichlet(alpha 1_C) per client; class c is cut, in its order, in proportion to q_nc.

    Every sample goes to exactly one client; smaller alpha, fewer classes per client. A client may end up with nothing.

    >>> parts = dirichlet_partition([0, 0, 0, 1, 1, 1], clients=2, alpha=1.0, rng=np.random.default_rng(0))
    >>> [part.tolist() for part in parts]
    [[0, 3, 4, 5], [1, 2]]
    """
    y = np.asarray(labels)
    if y.ndim != 1 or y.dtype.kind not in "iu" or len(y) == 0 or y.min() < 0:
        raise UserError(f"labels must be a vector of class numbers from 0, not {y.dtype} of shape {list(y.shape)}")
    if clients < 1 or clients > len(y):
        raise UserError(f"{clients} clients cannot share {len(y)} samples; choose 1 to {len(y)}")
    if not 0 < alpha < np.inf:
        raise UserError(f"alpha is {alpha!r}; expected a positive number (0.1 is very uneven, 100 nearly even)")
    classes = int(y.max()) + 1
    q = rng.dirichlet(alpha * np.ones(classes), clients)  # [m, C]
    # A tiny alpha can leave a class with nobody in floating point: it is then shared by all alike.
    q[:, q.sum(0) == 0] = 1.0
    shares = np.cumsum(q, 0)  # [m, C]
    parts: list[list[Indices]] = [[] for _ in range(clients)]
    for c in range(classes):
        members = np.flatnonzero(y == c)
        cuts = np.rint(len(members) * shares[:-1, c] / shares[-1, c]).astype(np.int64)
        for n, piece in enumerate(np.split(members, cuts)):
            parts[n].append(piece)
    return [np.concatenate(pieces) for pieces in parts]


def label_frequencies(labels: Any, parts: Sequence[Indices]) -> npt.NDArray[np.float64]:
    """nu [m, C]: the share of each class in each client's samples; a client without samples has them all alike."""
    y = np.asarray(labels)
    classes = int(y.max()) + 1
    counts = np.stack([np.bincount(y[part], minlength=classes) for part in parts]).astype(np.float64)
    counts[counts.sum(1) == 0] = 1.0
    return np.asarray(counts / counts.sum(1, keepdims=True))
