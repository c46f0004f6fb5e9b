"""Every python block in README and docs runs, and prints what the text block that follows it says."""

import contextlib
import io
import re
import shlex
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
TEXTS = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]
PAGES = [path for path in TEXTS if "```python" in path.read_text()]
BLOCK = re.compile(r"```python\n(.*?)```\n(?:```text\n(.*?)```)?", re.DOTALL)


@pytest.mark.parametrize("page", PAGES, ids=[path.name for path in PAGES])
def test_the_code_on_a_page_runs(page, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    names: dict[str, object] = {}
    for code, expected in BLOCK.findall(page.read_text()):
        said = io.StringIO()
        with contextlib.redirect_stdout(said):
            exec(compile(code, str(page), "exec"), names)
        if expected:
            assert said.getvalue() == expected


def test_there_are_pages():
    assert {"README.md", "algorithms.md", "availability.md", "tasks.md"} <= {page.name for page in PAGES}


def test_every_option_of_the_readme_exists():
    """Every long flag that a page mentions after `fedawe VERB` is known to that verb."""
    from fedawe.cli.main import parse

    for page in TEXTS:
        for line in re.findall(r"^fedawe (.+)$", page.read_text(), re.MULTILINE):
            words = shlex.split(line.split(" (")[0], comments=True)
            if words[0] != "demo" and not words[0].startswith("-"):
                parse(words)
