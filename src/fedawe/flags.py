"""Flags that may be left away: read as a plain number, shown without a default of their own."""

from typing import Annotated

import tyro
from tyro.constructors import PrimitiveConstructorSpec

_hint = tyro.conf.arg(help_behavior_hint="")

Whole = Annotated[
    int | None,
    _hint,
    PrimitiveConstructorSpec(
        nargs=1,
        metavar="INT",
        instance_from_str=lambda words: int(words[0]),
        is_instance=lambda value: value is None or isinstance(value, int),
        str_from_instance=lambda value: [str(value)],
    ),
]
Number = Annotated[
    float | None,
    _hint,
    PrimitiveConstructorSpec(
        nargs=1,
        metavar="FLOAT",
        instance_from_str=lambda words: float(words[0]),
        is_instance=lambda value: value is None or isinstance(value, float | int),
        str_from_instance=lambda value: [str(value)],
    ),
]
Numbers = Annotated[tuple[float, ...], _hint]
Names = Annotated[tuple[str, ...], _hint]
