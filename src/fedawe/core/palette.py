"""One look per algorithm, for pages and figures alike; told apart with fewer colours too, and by the dashes."""

from dataclasses import dataclass
from typing import Literal

Dash = Literal["solid", "dash", "dot", "dashdot"]


@dataclass(frozen=True)
class Look:
    """A colour for light and one for dark paper, and a kind of line."""

    light: str
    dark: str
    dash: Dash = "solid"
    strong: bool = False


LOOKS = {
    "fedawe": Look("#d55e00", "#ff7f32", strong=True),
    "fedavg": Look("#1a1a1a", "#f5f5f5"),
    "fedavg-all": Look("#6d7278", "#80858b", "dot"),
    "fedavg-known": Look("#1f4fd8", "#3d6dff", "dash"),
    "fedau": Look("#0b6e4f", "#35d09a"),
    "f3ast": Look("#6b2c7d", "#b06ae0", "dot"),
    "mifa": Look("#e36fb4", "#ff9ec0", "dash"),
    "fedvarp": Look("#2aa3d8", "#6cc6ff", "dashdot"),
}
UNKNOWN = Look("#8a6d3b", "#c9a66b")

DASHES: tuple[Dash, ...] = ("solid", "dash", "dot", "dashdot")


def looks(labels: tuple[str, ...]) -> dict[str, Look]:
    """The look of every label; variants of one algorithm share its colour and differ in the dash.

    >>> [look.dash for look in looks(("fedau", "fedau(K=20)")).values()]
    ['solid', 'dash']
    """
    out: dict[str, Look] = {}
    for label in labels:
        base = LOOKS.get(_base(label), UNKNOWN)
        before = sum(_base(other) == _base(label) for other in out)
        dash = DASHES[(DASHES.index(base.dash) + before) % len(DASHES)]
        out[label] = Look(base.light, base.dark, dash, base.strong and not before)
    return out


def _base(label: str) -> str:
    """The algorithm that a label is of, without its options."""
    return label.partition("(")[0]
