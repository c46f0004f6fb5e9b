"""Docstrings of this project as Markdown: lists of parameters, formulas and doctests become what they look like."""

import re
from typing import Any

import griffe

PARAMETER = re.compile(r"([A-Za-z_][\w, ]*?) {2,}(\S.*)")


class Docstrings(griffe.Extension):
    """Rewrites every docstring before it is rendered."""

    def on_object(self, *, obj: griffe.Object, **_: Any) -> None:
        """Rewrite the docstring of an object, if it has one."""
        if obj.docstring is not None:
            obj.docstring.value = markdown(obj.docstring.value)


def markdown(text: str) -> str:
    """A docstring as Markdown.

    >>> print(markdown("Add.\\n\\na  one\\nb  the\\n   other\\n\\n    a + b\\n\\n>>> 1 + 1\\n2"))
    Add.
    <BLANKLINE>
    - `a`: one
    - `b`: the other
    <BLANKLINE>
    ```text
    a + b
    ```
    <BLANKLINE>
    ```pycon
    >>> 1 + 1
    2
    ```
    """
    return "\n\n".join(_block(block) for block in re.split(r"\n{2,}", text.strip("\n")))


def _block(block: str) -> str:
    lines = block.splitlines()
    if lines[0].startswith(">>> "):
        return "```pycon\n" + block + "\n```"
    if all(line.startswith("    ") for line in lines):
        return "```text\n" + "\n".join(line.removeprefix("    ") for line in lines) + "\n```"
    if PARAMETER.fullmatch(lines[0]):
        return _parameters(lines)
    return block


def _parameters(lines: list[str]) -> str:
    items: list[str] = []
    for line in lines:
        if found := PARAMETER.fullmatch(line):
            items.append("- " + ", ".join(f"`{name}`" for name in found[1].split(", ")) + f": {found[2]}")
        else:
            items[-1] += " " + line.strip()
    return "\n".join(items)
