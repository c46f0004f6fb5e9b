"""What an experiment is made from, as fields that a file can hold: class, hyper-parameters, and the definition.

A class or function that is not part of this package is stored with a checksum of its source code (`definitions`), so
that a changed definition is noticed.
"""

import contextlib
import dataclasses
import functools
import hashlib
import importlib
import inspect
import math
import sys
from collections.abc import Mapping, Set
from importlib.metadata import entry_points
from pathlib import Path
from typing import Any

import numpy as np
from torch import Tensor

from fedawe.core.definitions import definition
from fedawe.core.errors import UserError

Fields = dict[str, Any]
MADE_AGAIN = ("fedawe.algorithms.", "fedawe.training.")  # where algorithms and their rates are defined
VERBS = ("init", "start", "aggregate", "model")  # of an algorithm


def described(value: Any) -> Any:
    """The value as JSON.

    >>> from fedawe import FedAU
    >>> described(FedAU(K=20))
    {'class': 'fedawe.algorithms.fedau:FedAU', 'K': 20, 'eta_g': 1.0, 'clip': None}
    """
    if value is None or isinstance(value, bool | int | str):
        return value
    if isinstance(value, float):
        return value if math.isfinite(value) else repr(value)
    if isinstance(value, np.generic):
        return described(value.item())
    if isinstance(value, Path):
        return str(value)
    if isinstance(value, Tensor | np.ndarray):
        return _array(value)
    if isinstance(value, Mapping):
        return {str(key): described(each) for key, each in value.items()}
    if isinstance(value, list | tuple):
        return [described(each) for each in value]
    if isinstance(value, Set):
        return sorted((described(each) for each in value), key=str)
    if isinstance(value, functools.partial):
        return {**_named("function", value.func), **described(value.keywords), **_positional(value.args)}
    if isinstance(value, type):
        return _named("class", value)
    if inspect.isroutine(value):
        return _named("function", value)
    return {**_named("class", type(value)), **_fields(value)}


def rebuilt(fields: Any) -> Any:
    """The object that was described, if it is an algorithm that is known here and its fields are plain values.

    A record is data: it decides neither what is imported nor what is called.

    >>> from fedawe import FedAU
    >>> rebuilt(described(FedAU(K=20)))
    FedAU(K=20, eta_g=1.0, clip=None)
    """
    if isinstance(fields, list):
        return [rebuilt(each) for each in fields]
    if not isinstance(fields, Mapping):
        return fields
    if "sha256" in fields and "dtype" in fields:
        raise UserError("the record has only a checksum of an array; what needs the array cannot be made again")
    said = {name: rebuilt(value) for name, value in fields.items() if name not in ("class", "function", "definition")}
    place = fields.get("class", fields.get("function"))
    if place is None:
        return said
    kind = _algorithm_at(str(place))
    try:
        return kind(**said)
    except TypeError as error:
        raise UserError(f"cannot make {place} again, of which the record speaks: {error}") from None


def _algorithm_at(place: str) -> type:
    """A dataclass of our own algorithms, or an algorithm whose module is imported already or registered."""
    module, _, name = place.partition(":")
    ours = f"{module}.".startswith(MADE_AGAIN)
    if ours or module in {entry.module for entry in entry_points(group="fedawe.algorithms")}:
        with contextlib.suppress(ImportError):
            importlib.import_module(module)
    found: Any = sys.modules.get(module)
    for part in name.split("."):
        found = getattr(found, part, None)
    known = isinstance(found, type) and found.__module__ == module
    if known and (dataclasses.is_dataclass(found) if ours else all(hasattr(found, verb) for verb in VERBS)):
        kind: type = found
        return kind
    raise UserError(
        f"cannot make {place} again, of which the record speaks; expected an algorithm of this package, or one whose "
        "module is imported"
    )


def _fields(value: Any) -> Fields:
    """What an object says of itself: its `described` fields if it has such a method, or those of a dataclass."""
    say = getattr(value, "described", None)
    if callable(say):
        return {name: described(each) for name, each in say().items()}
    if not dataclasses.is_dataclass(value):
        return {}
    shown = [field for field in dataclasses.fields(value) if field.init and field.metadata.get("described", True)]
    return {field.name: described(getattr(value, field.name)) for field in shown}


def _positional(values: tuple[Any, ...]) -> Fields:
    return {"arguments": [described(value) for value in values]} if values else {}


def _array(value: Any) -> Fields:
    array = np.ascontiguousarray(value.detach().cpu().numpy() if isinstance(value, Tensor) else value)
    digest = hashlib.sha256(array.tobytes()).hexdigest()[:16]
    return {"shape": list(array.shape), "dtype": str(array.dtype), "sha256": digest}


def path_of(thing: Any) -> str:
    """Where a class or function is defined, as in `fedawe.algorithms.fedau:FedAU`."""
    return f"{getattr(thing, '__module__', None) or ''}:{getattr(thing, '__qualname__', repr(thing))}"


def _named(kind: str, thing: Any) -> Fields:
    out = {kind: path_of(thing)}
    if (checksum := definition(thing)) is not None:
        out["definition"] = checksum
    return out


def short(value: Any, name: str = "") -> str:
    """The object in a few characters: its name, and the options that differ from their defaults.

    >>> from fedawe import FedAU, Sine
    >>> short(FedAU(), "fedau"), short(Sine(gamma=0.2), "sine")
    ('fedau', 'sine(gamma=0.2)')
    """
    if isinstance(value, functools.partial):
        said = [f"{key}={each}" for key, each in value.keywords.items()]
        return _with_options(name or short(value.func), said)
    if isinstance(value, type) or inspect.isroutine(value):
        return name or str(getattr(value, "__name__", value))
    said = []
    if dataclasses.is_dataclass(value):
        for field in dataclasses.fields(value):
            own, shown = getattr(value, field.name), field.init and field.repr
            if shown and field.default is not dataclasses.MISSING and isinstance(own, bool | int | float | str):
                said += [f"{field.name}={own:g}" if isinstance(own, float) else f"{field.name}={own}"] * (
                    own != field.default
                )
    return _with_options(name or type(value).__name__, said)


def _with_options(name: str, options: list[str]) -> str:
    return f"{name}({','.join(options)})" if options else name


# Fields that records of earlier versions do not have, by their path, and what these versions did.
ADDED = {
    "local.precision": "float32",
    "deployment.config.precision": "float32",
    "deployment.weighted_by": "num-examples",
}


def first_difference(before: Any, now: Any, path: str = "") -> tuple[str, Any, Any] | None:
    """The first place in which two descriptions differ: its name, and what stands there; None if they are the same."""
    if isinstance(before, Mapping) and isinstance(now, Mapping):
        for key in dict.fromkeys((*now, *before)):
            if key == "title":  # for people; where a file lies does not matter
                continue
            at = f"{path}.{key}" if path else str(key)
            found = first_difference(before.get(key, ADDED.get(at)), now.get(key), at)
            if found is not None:
                return found
        return None
    return None if before == now else (path, before, now)
