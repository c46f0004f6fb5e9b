"""Docstrings of this project as Markdown: lists of parameters, formulas and doctests become what they look like."""

import re
from pathlib import Path
from typing import Any

import griffe

PARAMETER = re.compile(r"([A-Za-z_][\w, ]*?) {2,}(\S.*)")


class Docstrings(griffe.Extension):
    """Rewrites every docstring before it is rendered."""

    def on_object(self, *, obj: griffe.Object, **_: Any) -> None:
        """Rewrite the docstring of an object, if it has one."""
        if obj.docstring is not None:
            obj.docstring.value = markdown(obj.docstring.value)

    def on_class(self, *, cls: griffe.Class, **_: Any) -> None:
        """Append the fields that have a comment: it stands at the end of the line that declares them."""
        lines = cls.lines_collection[cls.filepath] if isinstance(cls.filepath, Path) else []
        found = [
            f"- `{field.name}`: {re.sub(' {2,}', ' ', line.partition('  # ')[2])}"
            for field in cls.attributes.values()
            if not field.is_alias and field.lineno and "  # " in (line := lines[field.lineno - 1])
        ]
        if found and cls.docstring is not None:
            cls.docstring.value += "\n\n" + "\n".join(found)


def markdown(text: str) -> str:
    """A docstring as Markdown: a doctest becomes a fenced block as well.

    >>> print(markdown("Add.\\n\\na  one\\nb  the\\n   other\\n\\n    a + b"))
    Add.
    <BLANKLINE>
    - `a`: one
    - `b`: the other
    <BLANKLINE>
    ```text
    a + b
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
