"""Text as character codes, and a next-character data set that every machine has: Python's own documentation."""

import hashlib

import numpy as np
import numpy.typing as npt
import torch

from fedawe.core.errors import UserError
from fedawe.tasks.data.labelled import Data

ALPHABET = "\n" + "".join(map(chr, range(32, 127)))  # code 0 is for every other character
CODES = len(ALPHABET) + 1
LENGTH = 40  # characters of a sample

Codes = npt.NDArray[np.int64]


def encode(text: str) -> Codes:
    """The code of every character, [length].

    >>> encode("a\\nb").tolist(), encode("\\u00e9").tolist()
    ([67, 1, 68], [0])
    """
    table = np.zeros(256, dtype=np.int64)
    table[[ord(each) for each in ALPHABET]] = np.arange(1, CODES)
    points = np.frombuffer(text.encode("utf-32-le", "replace"), dtype="<u4")
    return table[np.where(points < 256, points, 0)]


def topics() -> dict[str, str]:
    """The topics of Python's own help, in alphabetical order: title -> text."""
    try:
        from pydoc_data.topics import topics as found
    except ImportError:  # some distributions package it apart
        raise UserError("this Python lacks its documentation (pydoc_data), from which the task chars is made") from None
    return dict(sorted(found.items()))


def topics_sha256() -> str:
    """A checksum of that text, which differs from one version of Python to the next."""
    return hashlib.sha256("\0".join(text for pair in topics().items() for text in pair).encode()).hexdigest()


def characters() -> Data:
    """Next-character prediction: each topic of Python's documentation is a client, and its last tenth is for the test.

    A sample is 40 characters, and its labels are the 40 that follow each of them.
    """
    samples: dict[str, list[Codes]] = {"train": [], "test": []}
    owners: list[str] = []
    for title, text in topics().items():
        codes = encode(text)
        n = (len(codes) - 1) // LENGTH
        if n < 2:  # one to train and one to test
            continue
        whole = np.lib.stride_tricks.sliding_window_view(codes, LENGTH + 1)[::LENGTH][:n]  # [n, length + 1]
        cut = n - max(n // 10, 1)
        samples["train"].append(whole[:cut])
        samples["test"].append(whole[cut:])
        owners += [title] * cut
    train, test = (torch.from_numpy(np.concatenate(samples[part])) for part in ("train", "test"))
    return Data(
        "chars",
        train[:, :-1].contiguous(),
        train[:, 1:].contiguous(),
        test[:, :-1].contiguous(),
        test[:, 1:].contiguous(),
        client=np.array(owners),
        text=True,
        known_classes=CODES,
    )
