"""Algorithms and dynamics as people type them: `fedau`, `fedau:K=20`, `sine:gamma=0.2,period=40`."""

import dataclasses
import types
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal, Union, get_args, get_origin, get_type_hints

from fedawe.core.errors import UserError


@dataclass(frozen=True)
class Spec:
    """A name and what was said of it."""

    name: str
    options: Mapping[str, str]

    @classmethod
    def parse(cls, text: str, known: Mapping[str, type[Any]], what: str) -> "Spec":
        """`name` or `name:key=value,key=value`."""
        name, _, rest = text.partition(":")
        if name not in known:
            raise UserError(f"unknown {what} {name!r}; choose from {', '.join(known)}")
        options: dict[str, str] = {}
        for word in rest.split(",") if rest else []:
            key, equals, value = word.partition("=")
            if not (key and equals and value) or key in options:
                raise UserError(f"cannot read {text!r}; expected {name}:key=value,key=value")
            options[key.strip()] = value.strip()
        return cls(name, options)

    def __str__(self) -> str:
        said = ",".join(f"{key}={value}" for key, value in sorted(self.options.items()))
        return f"{self.name}({said})" if said else self.name

    def without(self, *keys: str) -> "Spec":
        """The same without some of its options."""
        return Spec(self.name, {key: value for key, value in self.options.items() if key not in keys})

    def build(self, cls: type[Any], **given: Any) -> Any:
        """An object of the dataclass, from the options and from what is given besides."""
        hints = get_type_hints(cls)
        known = [field.name for field in dataclasses.fields(cls) if field.init and field.name not in given]
        for key in self.options:
            if key not in known:
                raise UserError(f"{self.name} has no option {key!r}; it has {', '.join(known) or 'none'}")
        return cls(**given, **{key: _read(value, hints[key], key, self.name) for key, value in self.options.items()})


def _read(text: str, hint: Any, key: str, name: str) -> Any:
    """The text as the first of the types that takes it."""
    kinds = get_args(hint) if get_origin(hint) in (Union, types.UnionType) else (hint,)
    for kind in kinds:
        if kind is type(None) and text.lower() == "none":
            return None
        if get_origin(kind) is Literal and text in get_args(kind):
            return text
        if kind in (int, float):
            try:
                return kind(text)
            except ValueError:
                continue
    expected = " or ".join(_described(kind) for kind in kinds)
    raise UserError(f"{name}:{key} is {text!r}; expected {expected}")


def _described(kind: Any) -> str:
    if get_origin(kind) is Literal:
        return ", ".join(map(str, get_args(kind)))
    return {int: "a whole number", float: "a number", type(None): "none"}.get(kind, "something only Python can give")
