"""The numbers of the paper's tables, for comparison with ours."""

import json
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from typing import Any


@dataclass(frozen=True)
class Accuracy:
    """Percent, mean and standard deviation over the paper's three seeds."""

    mean: float
    std: float


@cache
def published() -> dict[str, Any]:
    """The numbers of tables 2, 8, 9 and 10 as printed."""
    text = (files("fedawe.paper") / "published.json").read_text(encoding="utf-8")
    found: dict[str, Any] = json.loads(text)
    return found


def accuracy(table: str, *place: str, algorithm: str, part: str = "test") -> Accuracy | None:
    """The accuracy in one cell of a table, if the paper has it.

    >>> accuracy("table2", "svhn", "sine", algorithm="fedawe")
    Accuracy(mean=85.6, std=0.9)
    """
    found: Any = published()[table]
    for step in (*place, algorithm, part):
        found = found.get(step) if found is not None else None
    return None if found is None else Accuracy(*found)
