"""Every python block in README and docs runs, and prints what the text block that follows it says."""

import contextlib
import io
import re
import shlex
from pathlib import Path

import pytest

from fedawe.core.errors import UserError

ROOT = Path(__file__).resolve().parent.parent
TEXTS = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]
PAGES = [path for path in TEXTS if "```python" in path.read_text() and path.parent.name != "tutorials"]
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


def commands(text: str) -> list[list[str]]:
    """The command lines on a page, on lines of their own and within sentences; not those that only name a verb."""
    lines = [*re.findall(r"^\s*fedawe (.+)$", text, re.MULTILINE), *re.findall(r"`fedawe ([^`\n]+)`", text)]
    found = [shlex.split(line.split(" (")[0], comments=True) for line in lines]
    return [words for words in found if len(words) > 1 and not words[0].startswith("-") and "--help" not in words]


def test_every_command_line_parses():
    from fedawe.cli.main import parse

    count = 0
    for page in TEXTS:
        for words in commands(page.read_text(encoding="utf-8")):
            try:
                parse(words)
            except UserError as error:
                pytest.fail(f"{page.relative_to(ROOT)}: fedawe {shlex.join(words)}: {error}")
            count += 1
    assert count > 80
