"""Types of optional command-line flags, with a short metavar and without a default in the help text."""

from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Any, get_args

import tyro
from tyro.constructors import PrimitiveConstructorSpec


def _one(read: Callable[[str], Any], metavar: str, *kinds: type) -> PrimitiveConstructorSpec[Any]:
    return PrimitiveConstructorSpec(
        nargs=1,
        metavar=metavar,
        instance_from_str=lambda words: read(words[0]),
        is_instance=lambda value: value is None or isinstance(value, kinds),
        str_from_instance=lambda value: [str(value)],
    )


def one_of(words: Any) -> PrimitiveConstructorSpec[Any]:
    """A flag that may be omitted and takes one of the words of a Literal."""
    known = get_args(words)
    return PrimitiveConstructorSpec(
        nargs=1,
        metavar="{" + ",".join(known) + "}",
        choices=known,
        instance_from_str=lambda given: given[0],
        is_instance=lambda value: value is None or value in known,
        str_from_instance=lambda value: [str(value)],
    )


hint = tyro.conf.arg(help_behavior_hint="")  # adds no "(default: ...)": the help text itself says it

Whole = Annotated[int | None, hint, _one(int, "INT", int)]
Number = Annotated[float | None, hint, _one(float, "FLOAT", float, int)]
Word = Annotated[str | None, hint, _one(str, "STR", str)]
File = Annotated[Path | None, hint, _one(Path, "PATH", Path)]
Pair = Annotated[
    tuple[int, int] | None,
    hint,
    PrimitiveConstructorSpec(
        nargs=2,
        metavar="INT INT",
        instance_from_str=lambda words: (int(words[0]), int(words[1])),
        is_instance=lambda value: value is None or isinstance(value, tuple),
        str_from_instance=lambda value: [str(each) for each in value or ()],
    ),
]


def _some(read: Callable[[str], Any], metavar: str, choices: tuple[str, ...] | None = None) -> Any:
    """A flag that may be omitted. It is refused without values, as when an empty shell variable is expanded."""

    def values(words: list[str]) -> tuple[Any, ...]:
        if not words:
            raise ValueError("no value given; name at least one, or omit the option")
        return tuple(read(word) for word in words)

    return PrimitiveConstructorSpec(
        nargs="*",
        metavar=f"{metavar} [{metavar} ...]",
        instance_from_str=values,
        is_instance=lambda value: isinstance(value, tuple),
        str_from_instance=lambda value: [str(each) for each in value],
        choices=choices,
    )


def some_of(words: Any) -> Any:
    """A flag that may be omitted and takes one or several words of a Literal."""
    known = get_args(words)
    return _some(str, "{" + ",".join(known) + "}", known)


Numbers = Annotated[tuple[float, ...], hint, _some(float, "FLOAT")]
Wholes = Annotated[tuple[int, ...], hint, _some(int, "INT")]
Names = Annotated[tuple[str, ...], hint, _some(str, "STR")]
MaybeNames = Annotated[tuple[str, ...], hint]  # for a flag that may be given without any name
