"""Every tutorial runs from top to bottom: its files are written, its Python and its commands executed in order."""

import contextlib
import importlib
import io
import json
import re
import shlex
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

from fedawe.cli.main import main, parse
from fedawe.experiments import names as registry

ROOT = Path(__file__).resolve().parent.parent
PAGES = sorted((ROOT / "docs" / "tutorials").glob("*.md"))
# A comment that names the test that executes the block, the language, the title, the code, and what it prints.
BLOCK = re.compile(
    r'(?:<!-- executed by (\S+) -->\n)?```(python|bash|toml)(?: title="([^"]+)")?\n(.*?)```\n(?:```text\n(.*?)```)?',
    re.DOTALL,
)


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty folder as the working directory, from which modules can be imported."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))
    before = set(sys.modules)
    yield tmp_path
    for name in set(sys.modules) - before:
        if (file := getattr(sys.modules[name], "__file__", None)) and str(tmp_path) in file:
            del sys.modules[name]


def installed(folder: Path) -> None:
    """What `pip install -e .` does: the entry points of the package in the folder are registered."""
    project = tomllib.loads((folder / "pyproject.toml").read_text())["project"]
    about = folder / f"{project['name'].replace('-', '_')}-{project['version']}.dist-info"
    about.mkdir()
    (about / "METADATA").write_text(f"Name: {project['name']}\nVersion: {project['version']}\n")
    groups = [
        "\n".join([f"[{group}]", *(f"{name} = {place}" for name, place in names.items())])
        for group, names in project["entry-points"].items()
    ]
    (about / "entry_points.txt").write_text("\n".join(groups) + "\n")
    importlib.invalidate_caches()
    registry._entries.cache_clear()  # a package is installed before a program starts, not while it runs


def command(line: str, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    words = shlex.split(line)
    if words == ["pip", "install", "-e", "."]:
        installed(folder)
        return
    assert words[0] == "fedawe", f"the tutorials use no other command than fedawe: {line}"
    monkeypatch.setattr(sys, "argv", words)
    main()


@pytest.mark.parametrize("page", PAGES, ids=[page.stem for page in PAGES])
def test_the_tutorial_runs(page: Path, here: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    names: dict[str, object] = {}
    for elsewhere, language, title, code, expected in BLOCK.findall(page.read_text(encoding="utf-8")):
        said = io.StringIO()
        with contextlib.redirect_stdout(said), contextlib.redirect_stderr(io.StringIO()):
            if title:
                (here / title).write_text(code)
                importlib.invalidate_caches()
                monkeypatch.delitem(sys.modules, Path(title).stem, raising=False)  # left by another test
            elif elsewhere:
                assert (ROOT / elsewhere).exists()
                parse(shlex.split(code)[1:])
            elif language == "bash":
                for line in code.splitlines():
                    command(line, here, monkeypatch)
            else:
                exec(compile(code, f"{page.name}: {code[:40]!r}", "exec"), names)
        if expected and language == "python":
            assert said.getvalue() == expected
        for line in expected.splitlines() if language == "bash" else ():  # a terminal breaks lines where it likes
            assert " ".join(line.split()) in " ".join(said.getvalue().split())


def test_every_tutorial_becomes_a_notebook(tmp_path: Path) -> None:
    assert len(PAGES) == 6
    script = [sys.executable, str(ROOT / "examples" / "notebooks.py"), str(ROOT / "docs" / "tutorials"), str(tmp_path)]
    subprocess.run(script, check=True, capture_output=True)
    for page in PAGES:
        cells = json.loads((tmp_path / f"{page.stem}.ipynb").read_text())["cells"]
        code = ["".join(cell["source"]) for cell in cells if cell["cell_type"] == "code"]
        blocks = BLOCK.findall(page.read_text(encoding="utf-8"))
        assert len(code) == len(blocks)
        for text, (_, language, title, block, _) in zip(code, blocks, strict=True):
            first = f"%%writefile {title}\n" if title else "%%bash\n" if language == "bash" else ""
            assert text == first + block.rstrip("\n")
