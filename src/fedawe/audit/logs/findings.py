"""Findings about a log, and helpers for their words."""

from collections.abc import Sequence
from dataclasses import dataclass

SHOWN = 3  # examples that a sentence names
UNREADABLE = frozenset({"unreadable rows", "unreadable times", "no client", "no time", "no beginning"})  # kinds
DOUBTFUL = UNREADABLE | {"far from all others"}  # kinds of findings that put the advice in doubt


@dataclass(frozen=True)
class Finding:
    """A fact about a log that its owner should know."""

    kind: str  # its kind, in a word or two
    count: int  # number of rows, clients or the like that it is about
    text: str  # a sentence without a full stop


def counted(n: int, noun: str) -> str:
    """A number with its noun.

    >>> counted(1, "row"), counted(2000, "row")
    ('1 row', '2,000 rows')
    """
    return f"{n:,} {noun}{'' if n == 1 else 's'}"


def some(names: Sequence[str]) -> str:
    """The first few names, with dots if there are more.

    >>> some(["a", "b"]), some(["a", "b", "c", "d"])
    ('a, b', 'a, b, c ...')
    """
    return ", ".join(map(shown, names[:SHOWN])) + (" ..." if len(names) > SHOWN else "")


def shown(text: str) -> str:
    r"""Text from a file made safe for a terminal: without control characters, and not too long.

    >>> shown("phone 7"), shown("a\x1b[31m\x00b")
    ('phone 7', 'a\\x1b[31m\\x00b')
    """
    safe = "".join(c if c.isprintable() else repr(c)[1:-1] for c in text)
    return safe if len(safe) <= 80 else f"{safe[:77]}..."
