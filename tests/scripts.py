"""The scripts of results/ as modules, and the numbers of the pages that they fill."""

import importlib.util
import re
import sys
from pathlib import Path
from types import ModuleType

ROOT = Path(__file__).parent.parent
RESULTS = ROOT / "results"
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]


def script(name: str) -> ModuleType:
    """results/NAME.py, with what it imports from beside it."""
    sys.path.insert(0, str(RESULTS))
    try:
        spec = importlib.util.spec_from_file_location(f"results_{name}", RESULTS / f"{name}.py")
        assert spec is not None
        assert spec.loader is not None
        module = importlib.util.module_from_spec(spec)
        sys.modules[spec.name] = module  # where its dataclasses look for their annotations
        spec.loader.exec_module(module)
    finally:
        sys.path.remove(str(RESULTS))
    return module


TABLES = re.compile(r"<!-- (\S+\.md) -->\n(.*?)<!-- end -->", flags=re.DOTALL)


def page(name: str) -> str:
    """A page of docs/."""
    return (ROOT / "docs" / name).read_text(encoding="utf-8")


def rows(table: str) -> list[dict[str, str]]:
    """A table of Markdown; one that has no rows yet is empty."""
    lines = [[cell.strip() for cell in line[1:-2].split("|")] for line in table.splitlines() if line.startswith("|")]
    return [dict(zip(lines[0], line, strict=True)) for line in lines[2:]]


def decimals(text: str) -> set[str]:
    """The numbers with a decimal point."""
    return set(re.findall(r"\d+\.\d+", text))


def decimals_of_sentences(page: str) -> set[str]:
    """Those of a page that stand neither in a table of a script nor in code."""
    return decimals(re.sub(r"```.*?```|`[^`]*`", "", TABLES.sub("", page), flags=re.DOTALL))
