"""Random numbers addressed by name, so that a run is the same on any engine, any number of workers, after any crash."""

import hashlib
import operator

import numpy as np


def rng(seed: int, *path: int | str) -> np.random.Generator:
    """The generator called `path` under `seed`: nothing that was drawn before, elsewhere or by others changes it.

    >>> rng(0, "batch", 7, 3).integers(100, size=4).tolist()
    [91, 82, 32, 14]
    >>> rng(0, "batch", 7, 3).integers(100, size=4).tolist()    # the same name, the same numbers
    [91, 82, 32, 14]
    """
    # Philox is counter-based: any 128-bit key is as good as any other, so the hash of the name can be the key.
    digest = hashlib.blake2b(_encode(seed, path), digest_size=16).digest()
    return np.random.Generator(np.random.Philox(key=int.from_bytes(digest, "little")))


def _encode(seed: int, path: tuple[int | str, ...]) -> bytes:
    """An encoding in which no two names collide: 1 and "1" differ, and so do ("a", "b") and ("a/b",)."""
    words = [f"i{operator.index(seed)}"]
    words += [f"s{len(word)}:{word}" if isinstance(word, str) else f"i{operator.index(word)}" for word in path]
    return "/".join(words).encode()
