"""The shape of the package: which module may know which, what is public, and that no file grows without bound."""

import ast
import functools
import graphlib
from pathlib import Path

import pytest

import fedawe

ROOT = Path(fedawe.__file__).parent

# From bottom to top. A module imports from its own row and from those above it here, never from those below.
LAYERS = [
    {"core"},
    {"availability"},
    {"tasks"},
    {"algorithms"},
    {"training"},
    {"testing"},
    {"audit"},
    {"results"},
    {"report"},
    {"trackers"},
    {"experiments"},
    {"deploy"},
    {"paper"},
    {"__init__"},  # the public face: what it gathers may not look back at it
    {"cli", "__main__"},
]
LEVEL = {name: level for level, row in enumerate(LAYERS) for name in row}
FILES = sorted(ROOT.rglob("*.py"))
MOST_LINES = 350


def module_of(path: Path) -> str:
    """`fedawe.tasks.base` for tasks/base.py, `fedawe.tasks` for tasks/__init__.py."""
    parts = ["fedawe", *path.relative_to(ROOT).with_suffix("").parts]
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


MODULES = {module_of(path) for path in FILES}


def unit(module: str) -> str:
    """The module or subpackage of `fedawe` that a module belongs to."""
    return module.split(".")[1] if "." in module else "__init__"


@functools.cache
def imports(path: Path) -> set[str]:
    """The modules of `fedawe` that a file imports, anywhere in it."""
    found: set[str] = set()
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path.name}:{node.lineno}: a relative import; write the name of the package"
            source = node.module or ""
            submodules = {f"{source}.{alias.name}" for alias in node.names} & MODULES
            found |= submodules
            if len(submodules) < len(node.names):
                found.add(source)
    return {name for name in found if name == "fedawe" or name.startswith("fedawe.")}


def test_there_is_something_to_look_at() -> None:
    assert {"core", "availability", "tasks", "algorithms", "training"} <= {unit(module) for module in MODULES}
    assert "fedawe.algorithms.base" in imports(ROOT / "algorithms" / "fedawe.py")


def test_every_module_has_its_place() -> None:
    homeless = {unit(module) for module in MODULES} - set(LEVEL)
    assert not homeless, f"{sorted(homeless)} are in no layer: give them their places in LAYERS"


def test_imports_point_down() -> None:
    up = [
        f"{module_of(path)} imports {name}, which is above it"
        for path in FILES
        for name in sorted(imports(path))
        if LEVEL.get(unit(name), -1) > LEVEL.get(unit(module_of(path)), len(LAYERS))
    ]
    assert up == []


def test_imports_name_modules_that_are_there() -> None:
    assert {module_of(path): imports(path) - MODULES for path in FILES if imports(path) - MODULES} == {}


def test_no_module_imports_itself_by_way_of_others() -> None:
    graph = {module_of(path): imports(path) - {module_of(path)} for path in FILES}
    try:
        graphlib.TopologicalSorter(graph).prepare()
    except graphlib.CycleError as error:
        pytest.fail("these modules import each other in a circle: " + " <- ".join(error.args[1]))


def test_algorithms_know_nothing_of_tasks_and_training() -> None:
    for path in (ROOT / "algorithms").glob("*.py"):
        assert not {unit(name) for name in imports(path)} & {"tasks", "training", "availability"}


def test_everything_that_is_public_can_be_had() -> None:
    for name in fedawe.__all__:
        assert getattr(fedawe, name) is not None
    assert len(fedawe.__all__) == len(set(fedawe.__all__))
    assert set(fedawe.__all__) <= set(dir(fedawe))


def test_the_contract_is_public() -> None:
    contract = "FedAWE FedAvg FedAvgAll FedAvgKnown FedAU F3AST MIFA FedVARP Stationary Staircase Sine InterleavedSine"
    opened = "Experiment Results Metric Local Rate Round Dynamics load load_model tasks testing Algorithm"
    others = {"Trace", "rng", "dirichlet_partition", "simulate", "UserError"}
    assert {*contract.split(), *opened.split(), *others} <= set(fedawe.__all__)


def test_a_module_is_named_after_what_it_is_about() -> None:
    vague = {"utils", "util", "common", "helpers", "helper", "misc"}
    assert [module for module in sorted(MODULES) if vague & set(module.split("."))] == []


def test_a_module_can_be_read_in_one_sitting() -> None:
    lines = {module_of(path): len(path.read_text(encoding="utf-8").splitlines()) for path in FILES}
    long = {module: count for module, count in lines.items() if count >= MOST_LINES}
    assert not long, f"{long}: what are the two parts of each?"


def test_the_tests_are_no_package() -> None:
    assert not (Path(__file__).parent / "__init__.py").exists()  # they are imported by path
