"""An algorithm in a notebook: its formula and its options, from its docstring and its fields."""

import dataclasses
import html
import inspect
import re
from typing import Any

from fedawe.algorithms.facts import name_of


class Shown:
    """Gives an algorithm that is a dataclass a rich representation."""

    def _repr_html_(self) -> str:
        return algorithm_html(self)


def algorithm_html(algorithm: Any) -> str:
    """HTML with the summary, the formula and the options of an algorithm; values other than the default are bold."""
    doc = inspect.cleandoc(type(algorithm).__doc__ or "")
    options = {}
    if dataclasses.is_dataclass(algorithm):
        options = {each.name: each for each in dataclasses.fields(algorithm) if each.init}
    summary, *blocks = re.split(r"\n\s*\n", doc)
    formula = next((block for block in blocks if block.startswith("    ") and ">>>" not in block), "")
    rows = "".join(
        _row(name, getattr(algorithm, name), _default(each), _meaning(name, doc)) for name, each in options.items()
    )
    table = f"<table><thead><tr><th>option</th><th>value</th><th></th></tr></thead><tbody>{rows}</tbody></table>"
    return (
        f"<p><b>{html.escape(name_of(algorithm))}</b>: {_text(summary)}</p>"
        + (f"<pre>{html.escape(inspect.cleandoc(formula))}</pre>" if formula else "")
        + (table if options else "")
    )


def _default(option: dataclasses.Field[Any]) -> Any:
    return option.default if option.default_factory is dataclasses.MISSING else option.default_factory()


def _row(name: str, value: Any, default: Any, meaning: str) -> str:
    shown = repr(value)
    text = html.escape(shown if len(shown) <= 60 else f"{type(value).__name__}")
    same = value is default or shown == repr(default)
    strong = text if same else f"<b>{text}</b>"
    return (
        f'<tr><td style="text-align:left"><code>{name}</code></td><td>{strong}</td>'
        f'<td style="text-align:left">{_text(meaning)}</td></tr>'
    )


def _meaning(name: str, doc: str) -> str:
    """The description of an option in a docstring: the line that begins with its name and the indented lines below."""
    found = re.search(rf"^{re.escape(name)} {{2,}}(.*(?:\n {{2,}}.*)*)", doc, re.MULTILINE)
    return "" if found is None else found[1]


def _text(text: str) -> str:
    return html.escape(" ".join(text.split()))
