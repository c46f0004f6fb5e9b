"""One look per algorithm in pages and figures: colours that colour-blind readers can tell apart, and dashes."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Literal

Dash = Literal["solid", "dash", "dot", "dashdot"]
DASHES: tuple[Dash, ...] = ("solid", "dash", "dot", "dashdot")


@dataclass(frozen=True)
class Look:
    """A colour on light paper, a colour on dark paper, and a kind of line."""

    light: str
    dark: str
    dash: Dash = "solid"


# By class. Algorithms of other classes get the looks that are not used, in this order.
LOOKS = {
    "fedawe.algorithms.fedawe:FedAWE": Look("#d55e00", "#ff7f32"),
    "fedawe.algorithms.fedavg_known:FedAvgKnown": Look("#1f4fd8", "#3d6dff", "dash"),
    "fedawe.algorithms.fedau:FedAU": Look("#0b6e4f", "#35d09a"),
    "fedawe.algorithms.memory:MIFA": Look("#e36fb4", "#ff9ec0", "dash"),
    "fedawe.algorithms.memory:FedVARP": Look("#2aa3d8", "#6cc6ff", "dashdot"),
    "fedawe.algorithms.f3ast:F3AST": Look("#6b2c7d", "#b06ae0", "dot"),
    "fedawe.algorithms.fedavg:FedAvg": Look("#1a1a1a", "#f5f5f5"),
    "fedawe.algorithms.fedavg:FedAvgAll": Look("#6d7278", "#80858b", "dot"),
}


def looks(kinds: Mapping[str, str]) -> dict[str, Look]:
    """The look of every label, from its class: the first label of a class in LOOKS gets the look of the class.

    All other labels get looks that are not used yet. When all colours are used, they are used again with other dashes,
    so that 32 labels have different looks.

    >>> found = looks({"mine": "my.rules:Mine", "FedAWE": "fedawe.algorithms.fedawe:FedAWE"})
    >>> found["FedAWE"].light, found["mine"].light
    ('#d55e00', '#1f4fd8')
    """
    out: dict[str, Look] = {}
    for label, kind in kinds.items():
        look = LOOKS.get(kind)
        if look is not None and look not in out.values():
            out[label] = look
    free = [_turned(look, turn) for turn in range(len(DASHES)) for look in LOOKS.values()]
    left = [look for look in free if look not in out.values()]
    others = [label for label in kinds if label not in out]
    for n, label in enumerate(others):
        out[label] = left[n % len(left)] if left else free[n % len(free)]
    return {label: out[label] for label in kinds}


def _turned(look: Look, turn: int) -> Look:
    """The same colours with another kind of line."""
    return replace(look, dash=DASHES[(DASHES.index(look.dash) + turn) % len(DASHES)])
