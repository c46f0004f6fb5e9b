"""The fields of a header as plain settings, for tables, titles and exports."""

import json
from collections.abc import Mapping
from typing import Any

Plain = str | int | float | bool | None
Settings = dict[str, Plain]

HIDDEN = ("class", "function", "definition")  # fields of an object that `text_of` omits
FIRST = ("task", "availability", "clients", "classes", "rounds")
NOT_SETTINGS = (
    *("kind", "format", "label", "name", "metrics", "models", "needs_p", "parameters", "seed", "versions"),
    *FIRST,
)


def settings_of(header: Mapping[str, Any]) -> Settings:
    """The settings of a run: the task and the availability by their titles, then every field of the header by its path.

    >>> local = {"rate": {"eta0": 0.1}}
    >>> settings_of({"seed": 1, "clients": 9, "task": {"class": "my:Text", "width": 4}, "local": local})
    {'task': 'Text', 'clients': 9, 'local.rate.eta0': 0.1, 'task.class': 'my:Text', 'task.width': 4}
    """
    out: Settings = {}
    for key in FIRST:
        if header.get(key) is not None:
            out[key] = title_of(header[key]) if isinstance(header[key], Mapping) else plain(header[key])
    out |= flat({key: value for key, value in header.items() if key not in NOT_SETTINGS})
    of_first = flat({key: header[key] for key in FIRST if isinstance(header.get(key), Mapping)})
    return out | {key: value for key, value in of_first.items() if not key.endswith(".title")}


def title_of(fields: Mapping[str, Any]) -> str:
    """The display name of an object in a header: its title, its name, or its class or function."""
    for key in ("title", "name"):
        if isinstance(fields.get(key), str):
            return str(fields[key])
    return class_name(fields) or "unknown"


def class_path(fields: Any) -> str:
    """`module:Class` or `module:function`; empty if the fields have neither."""
    if not isinstance(fields, Mapping):
        return ""
    return str(fields.get("class") or fields.get("function") or "")


def class_name(fields: Any) -> str:
    """The class or function without its module."""
    return class_path(fields).rpartition(":")[2].rpartition(".")[2]


def flat(fields: Mapping[str, Any], path: str = "") -> Settings:
    """Nested fields on one level, each under its path."""
    out: Settings = {}
    for key, value in fields.items():
        name = f"{path}.{key}" if path else str(key)
        if isinstance(value, Mapping):
            out |= flat(value, name)
        else:
            out[name] = plain(value)
    return out


def plain(value: Any) -> Plain:
    """The value as one that fits into a cell of a table: a list of numbers becomes `0.9 0.3`."""
    if isinstance(value, list):
        simple = all(each is None or isinstance(each, str | int | float) for each in value)
        return (" ".join(map(str, value)) or None) if simple else json.dumps(value)
    return value if value is None or isinstance(value, str | int | float | bool) else str(value)


def text_of(header: Mapping[str, Any], key: str) -> str:
    """An object of a header as text in one line: its class and its options.

    >>> header = {"local": {"class": "fedawe.training.local:Local", "steps": 10, "rate": {"class": "a:R", "eta0": 0.1}}}
    >>> text_of(header, "local")
    'Local(steps=10, rate=R(eta0=0.1))'
    >>> text_of({"algorithm": {"class": "my:Mine", "weights": {"shape": [2], "sha256": "f3"}}}, "algorithm")
    'Mine(weights=array(shape=2, sha256=f3))'
    """
    return _text(header.get(key))


def _text(value: Any) -> str:
    if not isinstance(value, Mapping):
        return str(plain(value))
    options = ", ".join(f"{key}={_text(each)}" for key, each in value.items() if key not in HIDDEN)
    return f"{class_name(value) or ('array' if 'shape' in value else 'dict')}({options})"
