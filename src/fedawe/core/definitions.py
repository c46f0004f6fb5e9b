"""A checksum of the source code behind a class or function of a user, so that a changed definition is noticed.

The code of a class is its own source, and whatever that refers to by a name of a module: base classes, functions and
constants, from there on in the same way. Comments, layout and docstrings do not matter, and neither does anything that
an installed package defines, unless the class itself belongs to that package.
"""

import ast
import functools
import hashlib
import importlib.util
import inspect
import sys
import sysconfig
import textwrap
from pathlib import Path
from types import CodeType, ModuleType
from typing import Any

Place = tuple[str, str]  # module and name
OURS = "fedawe"
LIBRARIES = {"torch", "numpy", *sys.stdlib_module_names}  # the versions of which a folder records


def definition(thing: Any) -> str | None:
    """The checksum; None for what is part of this package or of a library, and where there is no source."""
    module = str(getattr(thing, "__module__", None) or "")
    tree = None if _package(module) == OURS or is_library(module) else _parsed(thing)
    if tree is None:
        return None
    found, defined = {":": ast.dump(tree)}, functools.cache(_defined)  # every module is read once
    waiting: list[Place] = [(module, name) for name in _names(tree)]
    seen: set[Place] = set()
    while waiting:
        place = waiting.pop()
        if place in seen:
            continue
        seen.add(place)
        for node in defined(place[0]).get(place[1], ()):
            if isinstance(node, ast.Import | ast.ImportFrom):
                waiting += _imported(node, place, module)
            else:
                key = ":".join(place)
                found[key] = found.get(key, "") + ast.dump(node)
                waiting += [(place[0], name) for name in _names(node)]
    text = "\n".join(f"{key} {found[key]}" for key in sorted(found))
    return hashlib.sha256(text.encode()).hexdigest()[:16]


def _parsed(thing: Any) -> ast.Module | None:
    """Its source without docstrings; None where it was typed at a prompt or is built in."""
    try:
        if getattr(thing, "__name__", "") == "<lambda>":
            tree = _lambda(thing.__code__)
        else:
            tree = ast.parse(textwrap.dedent(inspect.getsource(thing)))
    except (OSError, TypeError, SyntaxError):
        return None
    for node in ast.walk(tree):
        body = getattr(node, "body", None)
        if isinstance(body, list) and body and _is_docstring(body[0]):
            body[0] = ast.Pass()
    return tree


def _lambda(code: CodeType) -> ast.Module:
    """A lambda, which is a part of a line: of those that begin there, the one whose body is where the code says."""
    tree = ast.parse("".join(inspect.findsource(code)[0]))
    found = [node for node in ast.walk(tree) if isinstance(node, ast.Lambda) and node.lineno == code.co_firstlineno]
    bodies = [
        (node.body.lineno, node.body.end_lineno, node.body.col_offset, node.body.end_col_offset) for node in found
    ]
    exact = [node for node, body in zip(found, bodies, strict=True) if body in set(code.co_positions())]
    return ast.Module([ast.Expr(node) for node in exact or found], [])


def _is_docstring(node: ast.AST) -> bool:
    return isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant) and isinstance(node.value.value, str)


def _names(tree: ast.AST) -> list[str]:
    """The names that it reads."""
    found = {node.id: None for node in ast.walk(tree) if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Load)}
    return list(found)


def _defined(module: str) -> dict[str, list[ast.stmt]]:
    """What the statements at the top level of a module define, by name."""
    tree = _parsed(sys.modules[module]) if module in sys.modules else None
    found: dict[str, list[ast.stmt]] = {}
    for node in () if tree is None else tree.body:
        for name in _targets(node):
            found.setdefault(name, []).append(node)
    return found


def _targets(node: ast.stmt) -> list[str]:
    if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
        return [node.name]
    if isinstance(node, ast.Import | ast.ImportFrom):
        return [alias.asname or alias.name.partition(".")[0] for alias in node.names]
    return [one.id for one in ast.walk(node) if isinstance(one, ast.Name) and isinstance(one.ctx, ast.Store)]


def _imported(node: ast.Import | ast.ImportFrom, place: Place, of: str) -> list[Place]:
    """Where an imported name is defined; everything in a module that was imported as a whole."""
    module, name = place
    if isinstance(node, ast.ImportFrom):
        package = getattr(sys.modules[module], "__package__", None) or ""
        try:
            source = importlib.util.resolve_name("." * node.level + (node.module or ""), package)
        except ImportError:
            return []
        original = next((alias.name for alias in node.names if (alias.asname or alias.name) == name), name)
        if f"{source}.{original}" not in sys.modules:
            return [(source, original)] if is_own(source, of) else []
        whole = f"{source}.{original}"
    else:
        found = getattr(sys.modules[module], name, None)
        whole = found.__name__ if isinstance(found, ModuleType) else ""
    return [(whole, each) for each in _defined(whole)] if is_own(whole, of) else []


def is_library(module: str) -> bool:
    """Whether it is PyTorch, numpy or Python itself, and not a file of the user's that has such a name."""
    file = getattr(sys.modules.get(module), "__file__", None)
    return _package(module) in LIBRARIES and (file is None or _is_installed(str(file)))


def is_own(module: str, of: str) -> bool:
    """Whether a module is the user's: of the same package, or not installed."""
    if _package(module) == OURS or module not in sys.modules:
        return False
    file = getattr(sys.modules[module], "__file__", None)
    return _package(module) == _package(of) or (file is not None and not _is_installed(str(file)))


@functools.cache
def _is_installed(file: str) -> bool:
    places = {Path(path).resolve() for path in sysconfig.get_paths().values()}
    return any(parent in places for parent in Path(file).resolve().parents)


def _package(module: str) -> str:
    return module.partition(".")[0]
