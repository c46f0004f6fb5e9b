"""Small helps for writing sentences."""

from collections.abc import Sequence


def listed(names: Sequence[str]) -> str:
    """a, b and c."""
    return " and ".join(filter(None, [", ".join(names[:-1]), names[-1]])) if names else ""


def counted(n: int, noun: str) -> str:
    """1 run, 2 runs."""
    return f"{n} {noun}{'' if n == 1 else 's'}"


def sentence(text: str) -> str:
    """With a capital and a full stop."""
    return text[0].upper() + text[1:] + "."
