"""Partitions: which client has which samples."""

import copy
import functools
import inspect
from collections.abc import Callable, Iterable, Sequence
from numbers import Real
from typing import Any, Literal

import numpy as np
import numpy.typing as npt

from fedawe.core.errors import UserError
from fedawe.core.files import brief
from fedawe.core.rng import rng, streams
from fedawe.tasks.data.labelled import Data
from fedawe.tasks.parts import Indices, Parts

PartitionName = Literal["natural", "dirichlet", "iid"]
PARTITIONS: tuple[PartitionName, ...] = ("natural", "dirichlet", "iid")
# A name; the samples of each client; a function (labels, seed) that gives them; or a partitioner of Flower Datasets.
Partition = PartitionName | Sequence[Any] | Callable[[Any, int], Sequence[Any]] | Any

CLIENTS, ALPHA = 100, 0.1  # defaults


def dirichlet_partition(labels: Any, clients: int, alpha: float, rng: np.random.Generator) -> list[Indices]:
    """The paper's partition: q_n ~ Dirichlet(alpha 1_C) per client; class c is cut in proportion to q_nc.

    Every sample goes to exactly one client; with a smaller alpha, clients have fewer classes. A client may get nothing.

    >>> parts = dirichlet_partition([0, 0, 0, 1, 1, 1], clients=2, alpha=1.0, rng=np.random.default_rng(0))
    >>> [part.tolist() for part in parts]
    [[0, 3, 4, 5], [1, 2]]
    """
    return list(_dirichlet(labels, clients, alpha, rng))


def _dirichlet(labels: Any, clients: int, alpha: float, rng: np.random.Generator) -> Parts:
    y = np.asarray(labels)
    if y.ndim != 1 or y.dtype.kind not in "iu" or len(y) == 0 or y.min() < 0:
        raise UserError(f"labels must be a vector of class numbers from 0, not {y.dtype} of shape {list(y.shape)}")
    _check_clients(clients, len(y))
    _check_draw(rng)
    if not isinstance(alpha, Real) or not 0 < alpha < np.inf:
        raise UserError(f"alpha is {alpha!r}; expected a positive number (0.1 is very uneven, 100 nearly even)")
    classes = int(y.max()) + 1
    q = rng.dirichlet(alpha * np.ones(classes), clients)  # [m, C]
    # With a tiny alpha, all shares of a class can be rounded to zero: all clients then get equal shares of it.
    q[:, q.sum(0) == 0] = 1.0
    shares = np.cumsum(q, 0)  # [m, C]
    owners, samples = [], []
    for c in range(classes):
        members = np.flatnonzero(y == c)
        cuts = np.rint(len(members) * shares[:-1, c] / shares[-1, c]).astype(np.int64)
        owners.append(np.repeat(np.arange(clients), np.diff(cuts, prepend=0, append=len(members))))
        samples.append(members)
    return Parts.owned(np.concatenate(owners), np.concatenate(samples), clients)


def iid_partition(samples: int, clients: int, rng: np.random.Generator) -> Parts:
    """The samples in random order, cut into pieces whose sizes differ by at most one.

    >>> [part.tolist() for part in iid_partition(5, clients=2, rng=np.random.default_rng(0))]
    [[2, 3, 4], [0, 1]]
    """
    _check_clients(clients, samples)
    _check_draw(rng)
    sizes = np.full(clients, samples // clients, dtype=np.int64)
    sizes[: samples % clients] += 1
    drawn, owners = rng.permutation(samples), np.repeat(np.arange(clients), sizes)
    return Parts(drawn[np.lexsort((drawn, owners))], sizes)


def natural_partition(client: Any) -> Parts:
    """The samples of each client, where `client` says which has each sample; clients in the order of their names.

    >>> [part.tolist() for part in natural_partition(["ann", "bob", "ann"])]
    [[0, 2], [1]]
    """
    _, owner, counts = np.unique(np.asarray(client), return_inverse=True, return_counts=True)
    return Parts(np.argsort(owner, kind="stable"), counts)


def settled(
    partition: Partition | None, natural: bool, clients: int | None, alpha: float | None
) -> tuple[Partition, int | None, float | None]:
    """Partition, clients and alpha with defaults filled in; `natural` is whether the data says which client has what.

    Refuses what has no meaning for the partition. `clients` stays None where the partition determines the number.
    """
    chosen = ("natural" if natural else "dirichlet") if partition is None else partition
    if isinstance(chosen, str) and chosen not in PARTITIONS:
        raise UserError(f"partition is {chosen!r}; expected {', '.join(PARTITIONS)}, a function or lists of samples")
    if isinstance(chosen, str) and chosen == "natural" and not natural:
        raise UserError(
            "partition is natural, but the data does not say which client has which sample; expected an array or "
            "column named client"
        )
    if clients is not None and clients < 1:
        raise UserError(f"clients is {clients}; expected a whole number from 1")
    if isinstance(chosen, str) and chosen == "dirichlet":
        return chosen, CLIENTS if clients is None else clients, ALPHA if alpha is None else alpha
    if alpha is not None:
        why = "the data says which client has which sample" if partition is None else "the partition is not dirichlet"
        raise UserError(
            f"alpha is {alpha:g}, but {why}; omit alpha (--alpha), or choose the partition dirichlet "
            "(--partition dirichlet)"
        )
    return chosen, CLIENTS if clients is None and isinstance(chosen, str) and chosen == "iid" else clients, None


def partition_of(
    data: Data,
    partition: Partition | None = None,
    clients: int | None = None,
    alpha: float | None = None,
    seed: int = 0,
) -> Parts:
    """The samples of each client, [n_i] each.

    partition  natural: as the data says; dirichlet: the authors' rule with parameter alpha; iid: at random, in equal
               numbers. Or a list of index arrays; a function (labels, seed) that returns one; or a partitioner of
               Flower Datasets, to which no data set has been assigned. None: natural where the data says which client
               has which sample, else dirichlet
    """
    chosen, clients, alpha = settled(partition, data.client is not None, clients, alpha)
    labels, n = data.y_train.cpu().numpy(), len(data.y_train)
    if isinstance(chosen, str):
        if chosen == "dirichlet":
            assert clients is not None
            assert alpha is not None
            return _dirichlet(labels, clients, alpha, rng(seed, "partition"))
        if chosen == "iid":
            assert clients is not None
            return iid_partition(n, clients, rng(seed, "partition"))
        found: Any = natural_partition(data.client)
    elif hasattr(chosen, "load_partition"):
        found = _of_flower(chosen, data)
    else:
        found = _called(chosen, labels, seed) if callable(chosen) else chosen
    parts = found if isinstance(chosen, str) else _once(checked_parts(found, n))
    if clients is not None and len(parts) != clients:
        raise UserError(f"clients is {clients}, but the partition has {len(parts)} clients; omit clients (--clients)")
    return parts


def hold_out(parts: Sequence[Indices], share: float, seed: int) -> tuple[Parts, Parts]:
    """The samples on which each client trains, and those that are held out to validate, a share of every client's.

    Those of client i are drawn by rng(seed, "validation", i). A client keeps at least one sample to train on.
    """
    if not 0 < share < 1:
        raise UserError(f"validation is {share!r}; expected a share between 0 and 1, as in 0.1")
    kept, held = [], []
    for part, draw in zip(parts, streams(seed, "validation", last=range(len(parts))), strict=True):
        n = min(int(np.rint(share * len(part))), max(len(part) - 1, 0))
        order = draw.permutation(len(part))
        held.append(part[np.sort(order[:n])])
        kept.append(part[np.sort(order[n:])])
    if not any(len(part) for part in held):
        raise UserError(f"validation is {share!r}, which is less than one sample of any client; choose a larger share")
    return Parts.of(kept), Parts.of(held)


def label_frequencies(labels: Any, parts: Sequence[Indices]) -> npt.NDArray[np.float64]:
    """nu [m, C]: the share of each class in each client's labels; equal shares for a client without samples."""
    y, parts = np.asarray(labels), Parts.of(parts)
    classes, own = int(y.max()) + 1, y[parts.order].reshape(len(parts.order), -1)
    at = parts.owners[:, None] * classes + own  # client and class in one number
    counts = np.bincount(at.ravel(), minlength=len(parts) * classes).reshape(-1, classes).astype(np.float64)
    counts[counts.sum(1) == 0] = 1.0
    return np.asarray(counts / counts.sum(1, keepdims=True))


def _check_clients(clients: int, samples: int) -> None:
    if isinstance(clients, bool) or not isinstance(clients, int | np.integer):
        raise UserError(f"clients is {clients!r}; expected a whole number from 1 to {samples}")
    if clients < 1 or clients > samples:
        raise UserError(f"{clients} clients cannot share {samples} samples; choose 1 to {samples}")


def _check_draw(draw: Any) -> None:
    if not isinstance(draw, np.random.Generator):
        raise UserError(
            f"rng is {draw!r}; expected a generator of random numbers, as in rng=fedawe.rng(0, 'partition') or "
            "rng=numpy.random.default_rng(0)"
        )


def _called(function: Callable[[Any, int], Any], labels: Any, seed: int) -> Any:
    """What a user's function returns; refuses one that cannot be called with (labels, seed)."""
    try:
        inspect.signature(function).bind(labels, seed)
    except TypeError as error:
        raise UserError(
            f"the partition {_name(function)} cannot be called with (labels, seed): {error}; expected a function of "
            "these two that returns the samples of each client"
        ) from None
    except ValueError:  # its signature is not known
        pass
    found = function(labels, seed)
    if not isinstance(found, Iterable):
        missing = ": is a return missing?" if found is None else ""
        raise UserError(
            f"the partition {_name(function)} returned {'None' if found is None else type(found).__name__}; expected "
            f"the samples of each client, a list of vectors of sample numbers{missing}"
        )
    return found


def _name(function: Any) -> str:
    function = function.func if isinstance(function, functools.partial) else function
    return str(getattr(function, "__name__", type(function).__name__))


def checked_parts(found: Iterable[Any], samples: int) -> Parts:
    """The samples of each client; refuses anything but sample numbers, from 0 to samples - 1."""
    if not isinstance(found, Iterable):
        raise UserError(f"the partition is {found!r}; expected a vector of sample numbers for each client")
    known = isinstance(found, Parts)
    parts = Parts.of(found if known else (_indices(part, client) for client, part in enumerate(found)))
    if not len(parts):
        raise UserError("the partition has no clients; expected a vector of sample numbers for each client")
    outside = np.flatnonzero((parts.order < 0) | (parts.order >= samples))
    if len(outside):
        client, wrong = parts.owners[outside[0]], parts.order[outside[0]]
        raise UserError(f"client {client} has sample {wrong}; the training samples are 0 to {samples - 1}")
    return parts


def _once(parts: Parts) -> Parts:
    """The parts, unchanged; refuses them if a client has a sample twice."""
    owners = parts.owners
    by_client = np.lexsort((parts.order, owners))
    owner, sample = owners[by_client], parts.order[by_client]
    twice = np.flatnonzero((owner[1:] == owner[:-1]) & (sample[1:] == sample[:-1]))
    if len(twice):
        raise UserError(f"client {owner[twice[0]]} has a sample twice; expected each sample once")
    return parts


def _indices(part: Any, client: int) -> Indices:
    """The samples of a client as indices."""
    try:
        found = np.asarray(part)
    except (ValueError, TypeError) as error:
        raise UserError(f"the partition of client {client} cannot be read ({brief(error)})") from None
    if found.size == 0:
        return np.empty(0, dtype=np.int64)
    if found.dtype.kind == "b":
        raise UserError(
            f"client {client} has a mask of shape {list(found.shape)}; expected a vector of sample numbers, as "
            "np.flatnonzero(mask) gives"
        )
    if found.ndim != 1 or found.dtype.kind not in "iu":
        raise UserError(
            f"client {client} has {found.dtype} of shape {list(found.shape)}; expected a vector of sample numbers"
        )
    return found.astype(np.int64)


def _of_flower(partitioner: Any, data: Data) -> list[Any]:
    """The samples of each client, by a partitioner of Flower Datasets.

    Not every partitioner returns indices, but every one returns rows. It is therefore given a table with the column
    sample, which has the number of each row, besides label and client.
    """
    from datasets import Dataset  # which the partitioners themselves need

    columns: dict[str, Any] = {"sample": np.arange(len(data.y_train))}
    if data.y_train.ndim == 1:
        columns["label"] = data.y_train.cpu().numpy()
    if data.client is not None:
        columns["client"] = data.client
    own = copy.deepcopy(partitioner)  # a data set can be assigned to it only once
    try:
        own.dataset = Dataset.from_dict(columns)
        return [list(own.load_partition(i)["sample"]) for i in range(own.num_partitions)]
    except Exception as error:  # partitioners raise any error where their options do not fit the data
        raise UserError(
            f"{type(partitioner).__name__} cannot share out the samples ({brief(error)}); expected a partitioner of "
            f"rows with the columns {', '.join(columns)}, to which no data set has been assigned"
        ) from None
