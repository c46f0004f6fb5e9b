"""Read specs of algorithms, tasks, networks, dynamics and partitions: `fedau:K=20`, `my.rules:Mine:beta=0.9`.

A name is one of this package, or one that an installed package registers through an entry point (groups
`fedawe.algorithms`, `fedawe.tasks`, `fedawe.models`, `fedawe.availability`, `fedawe.partitions`, `fedawe.trackers`),
or the place of an object: a module that can be imported or the path of a Python file, a colon, and the name of the
object in it. Options follow after a further colon.
"""

import dataclasses
import functools
import importlib
import importlib.util
import inspect
import os
import sys
import types
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from importlib.metadata import EntryPoint, entry_points
from pathlib import Path
from typing import Any, Literal, Union, get_args, get_origin, get_type_hints

import cloudpickle

from fedawe.core.errors import UserError

Group = Literal[
    "algorithms", "tasks", "models", "availability", "partitions", "choosers", "aggregators", "optimisers", "trackers"
]
ONE: Mapping[Group, str] = {
    "algorithms": "algorithm",
    "tasks": "task",
    "models": "network",
    "availability": "dynamics",
    "partitions": "partition",
    "choosers": "way to choose clients",
    "aggregators": "robust aggregation",
    "optimisers": "optimiser",
    "trackers": "tracker",
}


@dataclass(frozen=True)
class Spec:
    """A spec that was read: its name, the object of that name, and its options as text."""

    name: str
    target: Any
    options: Mapping[str, str] = field(default_factory=dict)

    @property
    def label(self) -> str:
        """The label for tables and folders: `fedau(K=20)`."""
        options = ",".join(f"{key}={value}" for key, value in sorted(self.options.items()))
        return f"{self.name}({options})" if options else self.name

    def without(self, *keys: str) -> "Spec":
        """The same spec without some of its options."""
        return dataclasses.replace(self, options={k: v for k, v in self.options.items() if k not in keys})

    def parameters(self) -> dict[str, Any]:
        """The options that the target takes: name -> type."""
        target: Any = self.target
        if dataclasses.is_dataclass(target):
            hints = _hints(target)
            return {each.name: hints.get(each.name, str) for each in dataclasses.fields(target) if each.init}
        try:
            found = inspect.signature(target).parameters.values()
        except (TypeError, ValueError):
            return {}
        hints = _hints(vars(target).get("__init__") if isinstance(target, type) else target)
        plain = (inspect.Parameter.POSITIONAL_OR_KEYWORD, inspect.Parameter.KEYWORD_ONLY)
        return {each.name: hints.get(each.name, _of_default(each.default)) for each in found if each.kind in plain}

    def check_options(self, known: Collection[str]) -> None:
        """Refuses options that are not among the known ones."""
        for key in self.options:
            if key not in known:
                raise UserError(f"{self.name} has no option {key!r}; it has {', '.join(known) or 'none'}")

    def read_options(self, *given: str) -> dict[str, Any]:
        """The options converted to the types that the target declares; refuses options whose names are in `given`."""
        known = {name: hint for name, hint in self.parameters().items() if name not in given}
        self.check_options(known)
        return {key: _read(value, known[key], key, self.name) for key, value in self.options.items()}

    def build(self, **given: Any) -> Any:
        """Call the target with its options and the arguments `given`; an object that is not callable is returned."""
        if not callable(self.target):
            if self.options:
                raise UserError(f"{self.name} is an object and takes no options; received {', '.join(self.options)}")
            return self.target
        options = {**given, **self.read_options(*given)}
        try:
            return self.target(**options)
        except UserError:
            raise
        except (TypeError, ValueError) as error:
            raise UserError(f"{self.name} cannot be built from {options or 'no options'}: {error}") from None


def registered(group: Group) -> set[str]:
    """The names that installed packages register."""
    return set(_entries(group, tuple(sys.path)))


@functools.cache
def _entries(group: Group, path: tuple[str, ...]) -> dict[str, EntryPoint]:
    """The entry points of a group by name; cached for each search path, as reading the metadata takes time."""
    del path
    return {each.name: each for each in entry_points(group=f"fedawe.{group}")}


def parse(text: str, group: Group, built_in: Mapping[str, Any]) -> Spec:
    """Read `name`, `name:key=value,key=value`, `module:Name` or `file.py:Name:key=value`."""
    name, _, rest = text.partition(":")
    if name in built_in:
        return Spec(name, built_in[name], _options(rest, text, name))
    if name in registered(group):
        return Spec(name, _loaded(_entries(group, tuple(sys.path))[name]), _options(rest, text, name))
    word, _, options = rest.partition(":")
    if word.isidentifier():
        return Spec(word, attribute(name, word), _options(options, text, f"{name}:{word}"))
    known = ", ".join([*built_in, *sorted(registered(group))])
    raise UserError(
        f"unknown {ONE[group]} {name!r}; choose from {known}, or name your own, as in my_module:Name or file.py:Name"
    )


def module_from(place: str) -> types.ModuleType:
    """Import the module with a dotted name or the path of a Python file."""
    if not place.endswith(".py"):
        if os.getcwd() not in sys.path:
            sys.path.insert(0, os.getcwd())
        try:
            return _by_value(importlib.import_module(place))
        except UserError:
            raise
        except Exception as error:  # an error of a user's module, or a place that is no name of a module
            what = str(error) if isinstance(error, ImportError) else f"{type(error).__name__}: {error}"
            raise UserError(f"cannot import {place!r} ({what}); expected a module or the path of a .py file") from None
    path = Path(place).resolve()
    if not path.is_file():
        raise UserError(f"{place}: no such file")
    if path.stem in sys.stdlib_module_names:
        raise UserError(f"{place}: has the same name as {path.stem}, a module of Python; rename the file")
    if (found := sys.modules.get(path.stem)) is not None:
        file = getattr(found, "__file__", None)
        if file is None or Path(file).resolve() != path:
            raise UserError(f"{place}: a module {path.stem} is already loaded, from {file}; rename the file")
        return _by_value(found)
    spec = importlib.util.spec_from_file_location(path.stem, path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[path.stem] = module
    sys.path.insert(0, str(path.parent))  # the file may import other files in its folder
    try:
        spec.loader.exec_module(module)
    except UserError:
        raise
    except Exception as error:
        del sys.modules[path.stem]
        raise UserError(f"{place}: cannot be imported ({type(error).__name__}: {error})") from None
    return _by_value(module)


def _by_value(module: types.ModuleType) -> types.ModuleType:
    """Have cloudpickle send the classes of a user's module by value: other processes may not be able to import it."""
    file = getattr(module, "__file__", None)
    if file is not None and "site-packages" not in file and module.__name__.partition(".")[0] != "fedawe":
        cloudpickle.register_pickle_by_value(module)
    return module


def attribute(place: str, name: str) -> Any:
    """The object with this name in a module or a Python file."""
    module = module_from(place)
    if not hasattr(module, name):
        found = [each for each in vars(module) if not each.startswith("_")]
        raise UserError(f"{place} has no {name!r}; it has {', '.join(found) or 'nothing'}")
    return getattr(module, name)


def _loaded(entry: EntryPoint) -> Any:
    try:
        return entry.load()
    except Exception as error:
        raise UserError(
            f"{entry.name} is registered as {entry.value}, which cannot be imported ({type(error).__name__}: {error})"
        ) from None


def _options(text: str, whole: str, name: str) -> dict[str, str]:
    options: dict[str, str] = {}
    for word in _words(text):
        key, _, value = (part.strip() for part in word.partition("="))
        if not (key and value) or key in options:
            raise UserError(f"cannot read {whole!r}; expected {name}:key=value,key=value")
        options[key] = value
    return options


def _words(text: str) -> list[str]:
    """Split options at commas, except in parentheses, where an option has options of its own: `rule=fedau(K=20)`."""
    words, depth = [""], 0
    for letter in text:
        depth += (letter == "(") - (letter == ")")
        if letter == "," and depth == 0:
            words.append("")
        else:
            words[-1] += letter
    return words if text else []


def nested(text: str) -> str:
    """A spec inside an option, `fedau(K=20)`, in the usual form `fedau:K=20`.

    >>> nested("fedau(K=20)"), nested("fedau")
    ('fedau:K=20', 'fedau')
    """
    name, bracket, options = text.partition("(")
    return f"{name}:{options.removesuffix(')')}" if bracket and text.endswith(")") else text


def _hints(thing: Any) -> dict[str, Any]:
    try:
        return get_type_hints(thing)
    except Exception:  # evaluating a user's annotations may raise anything
        return {}


def _of_default(default: Any) -> Any:
    """The type of an option without an annotation: that of its default, or text."""
    return type(default) if isinstance(default, bool | int | float | str) else str


def _read(text: str, hint: Any, key: str, name: str) -> Any:
    """The text converted to the first type of a type hint to which it can be converted."""
    kinds = get_args(hint) if get_origin(hint) in (Union, types.UnionType) else (hint,)
    for kind in kinds:
        if kind is type(None) and text.lower() == "none":
            return None
        if get_origin(kind) is Literal and text in (known := {str(value): value for value in get_args(kind)}):
            return known[text]
        if kind is bool and text.lower() in ("true", "false"):
            return text.lower() == "true"
        if kind in (int, float):
            try:
                return kind(text)
            except ValueError:
                continue
        if kind in (str, Path):
            return kind(text)
    expected = " or ".join(_described(kind) for kind in kinds)
    raise UserError(f"{name}:{key} is {text!r}; expected {expected}")


def _described(kind: Any) -> str:
    if get_origin(kind) is Literal:
        return ", ".join(map(str, get_args(kind)))
    words = {int: "a whole number", float: "a number", bool: "true or false", type(None): "none"}
    return words.get(kind, "an object that only Python can give")
