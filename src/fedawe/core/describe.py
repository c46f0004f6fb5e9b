"""Descriptions of objects as JSON for the files of an experiment: class, hyper-parameters, and the definition.

A class or function that is not part of this package is stored with a checksum of its source code (`definitions`), so
that a changed definition is noticed.
"""

import contextlib
import dataclasses
import functools
import hashlib
import importlib
import inspect
import json
import math
import re
import sys
from collections.abc import Mapping, Set
from enum import Enum
from importlib.metadata import entry_points
from pathlib import Path
from types import FunctionType, ModuleType, NoneType
from typing import Any

import numpy as np
from torch import Tensor, nn

from fedawe.core.definitions import definition, is_library, is_own, name_of_module
from fedawe.core.errors import UserError

Fields = dict[str, Any]
REBUILT = ("fedawe.algorithms.", "fedawe.training.")  # modules whose dataclasses are rebuilt from records
ADDRESS = re.compile(r"\b0x[0-9a-fA-F]+")  # in a repr; differs in every process
PAGE = 2000  # characters; the description of a longer attribute is a checksum
VERBS = ("init", "start", "aggregate", "model")  # of an algorithm


def described(value: Any) -> Any:
    """The description of a value as JSON.

    An object is described by what its method `described` returns, or else by the fields of a dataclass, or else by all
    its attributes except cached properties. Arrays, and attributes longer than 2000 characters, are described by
    checksums; a module of PyTorch by its structure without the parameters. An object of an installed package in an
    attribute is described by its `repr`, or only by its class if the `repr` contains an address.

    >>> from fedawe import FedAU
    >>> described(FedAU(K=20))
    {'class': 'fedawe.algorithms.fedau:FedAU', 'K': 20, 'eta_g': 1.0, 'clip': None}
    """
    return _described(value, None, ())


def _described(value: Any, of: str | None, outer: tuple[int, ...]) -> Any:
    """`of` is the module of the class or function that holds the value, `outer` the ids of all enclosing objects."""
    if value is None or isinstance(value, bool | int | str):
        return value
    if isinstance(value, float):
        return value if math.isfinite(value) else repr(value)
    if isinstance(value, np.generic):
        item = value.item()
        return repr(value) if isinstance(item, np.generic) else _described(item, of, outer)
    if isinstance(value, Path):
        return str(value)
    if isinstance(value, bytes | bytearray):
        return {"bytes": len(value), "sha256": _digest(value)}
    if isinstance(value, Tensor | np.ndarray):
        return _array(value)
    if id(value) in outer:
        return {"class": path_of(type(value))}
    outer = (*outer, id(value))
    each = functools.partial(_described, of=of, outer=outer)
    if isinstance(value, Mapping):
        return {key if isinstance(key, str) else str(each(key)): each(inner) for key, inner in value.items()}
    if isinstance(value, list | tuple):
        return [each(inner) for inner in value]
    if isinstance(value, Set):
        return sorted((each(inner) for inner in value), key=str)
    if isinstance(value, functools.partial):
        arguments = {"arguments": each(value.args)} if value.args else {}
        return {**_function(value.func, of, outer), **each(value.keywords), **arguments}
    if isinstance(value, type):
        return _named("class", value, of)
    if inspect.isroutine(value):
        return _function(value, of, outer)
    if isinstance(value, ModuleType):
        return {"module": value.__name__}
    return {**_named("class", type(value), of), **_fields(value, of, outer)}


def rebuilt(fields: Any) -> Any:
    """The object with this description, if it is a known algorithm and its fields are plain values.

    A record is data: its content must not cause imports or calls of arbitrary code.

    >>> from fedawe import FedAU
    >>> rebuilt(described(FedAU(K=20)))
    FedAU(K=20, eta_g=1.0, clip=None)
    """
    if isinstance(fields, list):
        return [rebuilt(each) for each in fields]
    if not isinstance(fields, Mapping):
        return fields
    if "sha256" in fields:
        raise UserError("the record has only a checksum of an array; an object with this array cannot be rebuilt")
    said = {name: rebuilt(value) for name, value in fields.items() if name not in ("class", "function", "definition")}
    place = fields.get("class", fields.get("function"))
    if place is None:
        return said
    kind = _algorithm_at(str(place))
    try:
        made = kind(**said)
    except TypeError as error:
        raise UserError(f"cannot rebuild {place}, which the record names: {error}") from None
    if "__dataclass_fields__" not in vars(kind) and (found := first_difference(fields, described(made))) is not None:
        raise UserError(f"cannot rebuild {place}, which the record names: its {found[0]} would differ")
    return made


def _algorithm_at(place: str) -> type:
    """The class at `place`: a dataclass of this package, or an algorithm whose module is imported or registered."""
    module, _, name = place.partition(":")
    ours = f"{module}.".startswith(REBUILT)
    if ours or module in {entry.module for entry in entry_points(group="fedawe.algorithms")}:
        with contextlib.suppress(ImportError):
            importlib.import_module(module)
    found: Any = sys.modules.get("__main__" if module == name_of_module("__main__") else module)
    for part in name.split("."):
        found = getattr(found, part, None)
    known = isinstance(found, type) and path_of(found) == place
    if known and (dataclasses.is_dataclass(found) if ours else all(hasattr(found, verb) for verb in VERBS)):
        kind: type = found
        return kind
    raise UserError(
        f"cannot rebuild {place}, which the record names; expected an algorithm of this package, or one whose module "
        "is imported"
    )


def _function(thing: Any, of: str | None, outer: tuple[int, ...]) -> Fields:
    """A function, the object whose method it is, and the variables that it takes from an enclosing function."""
    if not isinstance(thing, type) and not inspect.isroutine(thing):
        return {"function": _described(thing, of, outer)}
    given: Fields = {}
    if not isinstance(owner := getattr(thing, "__self__", None), ModuleType | NoneType):
        given["self"] = owner
    made = getattr(thing, "__func__", thing)
    if isinstance(made, FunctionType):
        for name, cell in zip(made.__code__.co_freevars, made.__closure__ or (), strict=True):
            with contextlib.suppress(ValueError):  # a variable without a value yet
                given[name] = cell.cell_contents
        given.pop("__class__", None)  # added by Python for super()
        if "<" in made.__qualname__ and (made.__defaults__ or made.__kwdefaults__):  # may have been variables, too
            given["defaults"] = [made.__defaults__, made.__kwdefaults__]
    said = {name: _brief(each, of or str(getattr(thing, "__module__", None)), outer) for name, each in given.items()}
    return _named("function", thing, of) | ({"given": said} if said else {})


def _fields(value: Any, of: str | None, outer: tuple[int, ...]) -> Fields:
    """What the object's method `described` returns, or the fields of a dataclass, or the attributes."""
    kind, say = type(value), getattr(value, "described", None)
    if callable(say):
        return {name: _described(each, None, outer) for name, each in say().items()}
    if isinstance(value, Enum):
        return {"name": value.name}
    if hasattr(kind, "__array__"):
        return _array(np.asarray(value))
    fields = dataclasses.fields(value) if dataclasses.is_dataclass(value) else ()
    shown = [field.name for field in fields if field.init and field.metadata.get("described", True)]
    out = {name: _described(getattr(value, name), None, outer) for name in shown}
    if "__dataclass_fields__" in vars(kind):
        return out
    module = kind.__module__
    if isinstance(value, nn.Module):
        own = {name: each for name, each in vars(value).items() if name[0] != "_" and name != "training"}
        own |= value.named_children()
    elif hasattr(value, "__dict__") and not is_library(module) and (of is None or is_own(module, of)):
        own = vars(value)
    else:
        return out if ADDRESS.search(text := repr(value)) else {**out, "repr": text}
    hidden = {field.name for field in fields} | {
        name for name in own if isinstance(getattr(kind, name, None), functools.cached_property)
    }
    return out | {name: _brief(each, of or module, outer) for name, each in own.items() if name not in hidden}


def _brief(value: Any, of: str, outer: tuple[int, ...]) -> Any:
    """The description of a value, or a checksum of it if it is longer than PAGE characters."""
    found = _described(value, of, outer)
    return found if len(json.dumps(found)) <= PAGE else {"sha256": checksum(found)}


def _array(value: Any) -> Fields:
    dtype = value.dtype
    if isinstance(value, Tensor):
        value = value.detach().cpu().to_dense()
        try:
            value = value.numpy()
        except TypeError:  # a type that numpy does not have, such as bfloat16
            value = value.float().numpy()
    digest = checksum(value.tolist()) if value.dtype.hasobject else _digest(np.ascontiguousarray(value).tobytes())
    return {"shape": list(value.shape), "dtype": str(dtype).removeprefix("torch."), "sha256": digest}


def checksum(value: Any) -> str:
    """A checksum of the description of a value."""
    return _digest(json.dumps(described(value)).encode())


def _digest(content: bytes | bytearray) -> str:
    return hashlib.sha256(content).hexdigest()[:16]


def path_of(thing: Any) -> str:
    """The module and name of a class or function, as in `fedawe.algorithms.fedau:FedAU`."""
    module = name_of_module(str(getattr(thing, "__module__", None) or ""))
    return f"{module}:{getattr(thing, '__qualname__', repr(thing))}"


def _named(kind: str, thing: Any, of: str | None) -> Fields:
    out = {kind: path_of(thing)}
    if of is None or is_own(str(getattr(thing, "__module__", None)), of):
        checksum = definition(thing)
        out |= {} if checksum is None else {"definition": checksum}
    return out


def short(value: Any, name: str = "") -> str:
    """A short text for an object: its name, and the options that differ from their defaults.

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


# Fields that records of earlier versions do not have, by their path, and the value that these versions used.
ADDED = {
    "local.precision": "float32",
    "deployment.config.precision": "float32",
    "deployment.weighted_by": "num-examples",
}
# Fields of a class that earlier versions did not record; a folder without them is accepted.
UNKNOWN = {
    "fedawe.tasks.classification:Classification": ("data", "parts", "network", "augment", "held_out", "evaluate_on"),
    "fedawe.tasks.named:NamedTask": ("sha256",),  # of a data set that was added with `fedawe data`
    "fedawe.availability.trace:Trace": ("p",),
}


def first_difference(before: Any, now: Any, path: str = "") -> tuple[str, Any, Any] | None:
    """The first difference of two descriptions: its path and both values; None if they are equal."""
    if isinstance(before, Mapping) and isinstance(now, Mapping):
        for key in dict.fromkeys((*now, *before)):
            if key == "title":  # only text for people, such as the path of a file
                continue
            if key not in before and key in UNKNOWN.get(str(before.get("class")), ()):
                continue
            at = f"{path}.{key}" if path else str(key)
            found = first_difference(before.get(key, ADDED.get(at)), now.get(key), at)
            if found is not None:
                return found
        return None
    return None if before == now else (path, before, now)
