"""Flags that may be omitted: read as one plain value, shown without a default of their own."""

from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Any

import tyro
from tyro.constructors import PrimitiveConstructorSpec

_hint = tyro.conf.arg(help_behavior_hint="")


def _one(read: Callable[[str], Any], metavar: str, *kinds: type) -> PrimitiveConstructorSpec[Any]:
    return PrimitiveConstructorSpec(
        nargs=1,
        metavar=metavar,
        instance_from_str=lambda words: read(words[0]),
        is_instance=lambda value: value is None or isinstance(value, kinds),
        str_from_instance=lambda value: [str(value)],
    )


Whole = Annotated[int | None, _hint, _one(int, "INT", int)]
Number = Annotated[float | None, _hint, _one(float, "FLOAT", float, int)]
Word = Annotated[str | None, _hint, _one(str, "STR", str)]
File = Annotated[Path | None, _hint, _one(Path, "PATH", Path)]
Pair = Annotated[
    tuple[int, int] | None,
    _hint,
    PrimitiveConstructorSpec(
        nargs=2,
        metavar="INT INT",
        instance_from_str=lambda words: (int(words[0]), int(words[1])),
        is_instance=lambda value: value is None or isinstance(value, tuple),
        str_from_instance=lambda value: [str(each) for each in value],
    ),
]
Numbers = Annotated[tuple[float, ...], _hint]
Wholes = Annotated[tuple[int, ...], _hint]
Names = Annotated[tuple[str, ...], _hint]
