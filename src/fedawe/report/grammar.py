"""Functions that build sentences."""

from collections.abc import Sequence


def listed(names: Sequence[str]) -> str:
    """The names as `a, b and c`."""
    return " and ".join(filter(None, [", ".join(names[:-1]), names[-1]])) if names else ""


def counted(n: int, noun: str) -> str:
    """The number with its noun: `1 run`, `2 runs`."""
    return f"{n} {noun}{'' if n == 1 else 's'}"


def sentence(text: str) -> str:
    """The text with a capital letter and a full stop."""
    return text[0].upper() + text[1:] + "."
