"""A checksum of the source code of a user's class or function, so that a changed definition is noticed.

The checksum covers the source of the class and, recursively, the definitions that the source refers to by names of its
module: base classes, functions and constants. It does not depend on comments, layout and docstrings, or on definitions
in installed packages, unless the class itself belongs to that package.
"""

import ast
import contextlib
import functools
import hashlib
import importlib.util
import inspect
import sys
import sysconfig
import textwrap
from pathlib import Path
from types import CodeType
from typing import Any

Place = tuple[str, str]  # module and name
INNER = (ast.stmt, ast.ExceptHandler, ast.match_case)
OURS = "fedawe"
LIBRARIES = {"torch", "numpy", *sys.stdlib_module_names}  # a run folder records their versions


def definition(thing: Any) -> str | None:
    """The checksum; None for parts of this package or of a library, and if there is no source."""
    module = str(getattr(thing, "__module__", None) or "")
    tree = None if _package(module) == OURS or is_library(module) else _parsed(thing)
    if tree is None:
        return None
    found, defined = {":": ast.dump(tree)}, functools.cache(_defined)  # with the cache every module is read once
    waiting, seen = _used(tree, module, module), set[Place]()
    while waiting:
        place = waiting.pop()
        if place in seen:
            continue
        seen.add(place)
        there = defined(place[0])
        for node in there.get(place[1], there.get("*", ())):
            if isinstance(node, ast.Import | ast.ImportFrom):
                waiting += _imported(node, place, module)
            else:
                key = f"{name_of_module(place[0])}:{place[1]}"
                found[key] = found.get(key, "") + ast.dump(node)
                waiting += _used(node, place[0], module)
    text = "\n".join(f"{key} {found[key]}" for key in sorted(found))
    return hashlib.sha256(text.encode()).hexdigest()[:16]


def name_of_module(module: str) -> str:
    """The name of a module; for a script, the name under which it can be imported, instead of `__main__`."""
    file = getattr(sys.modules.get("__main__"), "__file__", None)
    return Path(file).stem if module == "__main__" and file else module


def _parsed(thing: Any) -> ast.Module | None:
    """The parsed source without docstrings; None for built-in objects and for code typed at a prompt."""
    try:
        if getattr(thing, "__name__", "") == "<lambda>":
            tree = _lambda(thing.__code__)
        else:
            tree = ast.parse(textwrap.dedent(inspect.getsource(thing)))
    except (OSError, TypeError, SyntaxError):
        return None
    return _without_docstrings(tree)


def _without_docstrings(tree: ast.Module) -> ast.Module:
    for node in ast.walk(tree):
        body = getattr(node, "body", None)
        if isinstance(body, list) and body and _is_docstring(body[0]):
            body[0] = ast.Pass()
    return tree


def _lambda(code: CodeType) -> ast.Module:
    """The parsed lambda with this code: of all lambdas in its first line, the one whose body is at its positions."""
    tree = ast.parse("".join(inspect.findsource(code)[0]))
    found = [node for node in ast.walk(tree) if isinstance(node, ast.Lambda) and node.lineno == code.co_firstlineno]
    bodies = [
        (node.body.lineno, node.body.end_lineno, node.body.col_offset, node.body.end_col_offset) for node in found
    ]
    exact = [node for node, body in zip(found, bodies, strict=True) if body in set(code.co_positions())]
    return ast.Module([ast.Expr(node) for node in exact or found], [])


def _is_docstring(node: ast.AST) -> bool:
    return isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant) and isinstance(node.value.value, str)


def _used(tree: ast.AST, module: str, of: str) -> list[Place]:
    """The names of its module that the code reads, and the names that it imports itself."""
    nodes = list(ast.walk(tree))
    names = dict.fromkeys(node.id for node in nodes if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Load))
    found = [(module, name) for name in names]
    for node in nodes:
        if isinstance(node, ast.Import | ast.ImportFrom):
            found += [place for name in _targets(node) for place in _imported(node, (module, name), of)]
    return found


def _defined(module: str) -> dict[str, list[ast.stmt]]:
    """The top-level statements of a module by the names that they define; the module need not be imported yet."""
    tree, file = None, _file(module)
    if module in sys.modules:
        tree = _parsed(sys.modules[module])
    elif file is not None and file.endswith(".py"):
        with contextlib.suppress(OSError, SyntaxError):
            tree = _without_docstrings(ast.parse(Path(file).read_bytes()))
    found: dict[str, list[ast.stmt]] = {}
    for node in () if tree is None else tree.body:
        for name in dict.fromkeys(_targets(node)):
            found.setdefault(name, []).append(node)
    return found


def _targets(node: ast.AST) -> list[str]:
    """The names that a statement defines; for `if`, `try` or `with`, those that the statements inside define."""
    if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
        return [node.name]
    if isinstance(node, ast.Import | ast.ImportFrom):
        return [alias.asname or alias.name.partition(".")[0] for alias in node.names]
    inner = [name for one in ast.iter_child_nodes(node) if isinstance(one, INNER) for name in _targets(one)]
    return inner + [one.id for one in ast.walk(node) if isinstance(one, ast.Name) and isinstance(one.ctx, ast.Store)]


def _imported(node: ast.Import | ast.ImportFrom, place: Place, of: str) -> list[Place]:
    """The definition of an imported name; for a module that is imported as a whole, all its definitions."""
    module, name = place
    if isinstance(node, ast.Import):
        given = [alias.name for alias in node.names if (alias.asname or alias.name.partition(".")[0]) == name]
        parts = [one.split(".") for one in given]
        wholes = [".".join(each[: n + 1]) for each in parts for n in range(len(each))]  # a.b and a, of `import a.b`
    else:
        try:
            source = importlib.util.resolve_name("." * node.level + (node.module or ""), _parent(module))
        except ImportError:
            return []
        original = next((alias.name for alias in node.names if (alias.asname or alias.name) == name), name)
        inside = f"{source}.{original}"
        if original != "*" and (not is_own(source, of) or _file(inside) is None):
            return [(source, original)] if is_own(source, of) else []
        wholes = [source if original == "*" else inside]
    return [(whole, each) for whole in wholes if is_own(whole, of) for each in _defined(whole)]


def _parent(module: str) -> str:
    """The package that contains a module."""
    if module in sys.modules:
        return getattr(sys.modules[module], "__package__", None) or ""
    return module if Path(_file(module) or "").stem == "__init__" else module.rpartition(".")[0]


def _file(module: str) -> str | None:
    """The path of a module, imported or not; the module is not imported by this function."""
    if module in sys.modules:
        return getattr(sys.modules[module], "__file__", None)
    package, _, name = module.rpartition(".")
    if package:
        folder = Path(_file(package) or "")
        places = (folder.parent / f"{name}.py", folder.parent / name / "__init__.py")
        return next((str(each) for each in places if folder.stem == "__init__" and each.is_file()), None)
    try:
        found = importlib.util.find_spec(module)
    except (ImportError, ValueError):
        return None
    return None if found is None or not found.has_location else found.origin


def is_library(module: str) -> bool:
    """Whether a module is part of PyTorch, numpy or Python, and not a file of the user with the same name."""
    return _package(module) in LIBRARIES and ((file := _file(module)) is None or _is_installed(file))


def is_own(module: str, of: str) -> bool:
    """Whether a module is the user's own code: in the same package as the module `of`, or not installed."""
    if _package(module) == OURS or (module not in sys.modules and _file(module) is None):
        return False
    return _package(module) == _package(of) or ((file := _file(module)) is not None and not _is_installed(file))


@functools.cache
def _is_installed(file: str) -> bool:
    places = {Path(path).resolve() for path in sysconfig.get_paths().values()}
    return any(parent in places for parent in Path(file).resolve().parents)


def _package(module: str) -> str:
    return module.partition(".")[0]
