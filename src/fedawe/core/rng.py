"""Named random numbers, so that a run is the same on any engine, with any number of workers and after any crash."""

import hashlib
import operator
import struct
from collections.abc import Iterable, Iterator
from typing import Any

import numpy as np

KEY = struct.Struct("<QQ")


def rng(seed: int, *path: int | str) -> np.random.Generator:
    """The generator named `path` under `seed`; its numbers do not depend on what any other generator has drawn.

    >>> rng(0, "batch", 7, 3).integers(100, size=4).tolist()
    [91, 82, 32, 14]
    >>> rng(0, "batch", 7, 3).integers(100, size=4).tolist()    # the same name, the same numbers
    [91, 82, 32, 14]
    """
    # Philox is counter-based: any 128-bit key is as good as any other, so the hash of the name can be the key.
    return np.random.Generator(np.random.Philox(key=int.from_bytes(_key(_encode(seed, path)), "little")))


def streams(seed: int, *path: int | str, last: Iterable[int | tuple[int, ...]]) -> Iterator[np.random.Generator]:
    """`rng(seed, *path, i)`, or `rng(seed, *path, i, j)`, for every i or (i, j) of `last`.

    One generator object gets new keys, which is several times as fast as new objects. Draw all numbers that you need
    before you ask for the next one.

    >>> [int(one.integers(100)) for one in streams(0, "batch", 7, last=[3, 4])] == [
    ...     int(rng(0, "batch", 7, i).integers(100)) for i in (3, 4)
    ... ]
    True
    """
    philox = np.random.Philox(key=0)
    generator, start = np.random.Generator(philox), _encode(seed, path)
    # The state of a new generator, with tuples, which numpy reads faster than arrays.
    words = {"counter": (0, 0, 0, 0), "key": (0, 0)}
    blank: Any = {**philox.state, "state": words, "buffer": (0, 0, 0, 0)}
    for i in last:
        name = b"%b/i%d" % (start, i) if isinstance(i, int) else start + b"".join(b"/i%d" % each for each in i)
        words["key"] = KEY.unpack(_key(name))
        philox.state = blank
        yield generator


def _key(name: bytes) -> bytes:
    return hashlib.blake2b(name, digest_size=16).digest()


def _encode(seed: int, path: tuple[int | str, ...]) -> bytes:
    """An encoding in which no two names collide: 1 and "1" differ, and so do ("a", "b") and ("a/b",)."""
    words = [f"i{operator.index(seed)}"]
    words += [f"s{len(word)}:{word}" if isinstance(word, str) else f"i{operator.index(word)}" for word in path]
    return "/".join(words).encode()
