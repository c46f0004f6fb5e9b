"""The scripts of results/ as modules."""

import importlib.util
import sys
from pathlib import Path
from types import ModuleType

ROOT = Path(__file__).parent.parent
RESULTS = ROOT / "results"
PAGE = ROOT / "docs" / "results.md"


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
