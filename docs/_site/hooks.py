"""Hooks of the documentation build: pages made from other files and from the parser, and formulas as MathML."""

import contextlib
import html
import io
import os
import re
from pathlib import Path
from typing import Any
from unittest.mock import patch

from latex2mathml.converter import convert
from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files
from mkdocs.structure.pages import Page

ROOT = Path(__file__).resolve().parent.parent.parent
COPIED = {  # page of the site -> file of the repository
    "changelog.md": "CHANGELOG.md",
    "conduct.md": "CODE_OF_CONDUCT.md",
    "contributing.md": "CONTRIBUTING.md",
    "security.md": "SECURITY.md",
}
EXAMPLES = {
    "study.py": "An experiment with a task, a model, a metric, an algorithm and an availability model of its own.",
    "literal.py": "Algorithm 1 of the paper, word for word; the tests compare the package with it.",
    "plugin/pyproject.toml": "A package that adds an algorithm to the command line: its declaration.",
    "plugin/src/fedawe_median/__init__.py": "The algorithm of that package.",
    "flower/pyproject.toml": "A Flower app that learns the bundled digits: its configuration.",
    "flower/digits_app/server_app.py": "Its server app.",
    "flower/digits_app/client_app.py": "Its client app.",
}
FORMULA = re.compile(r'<(span|div) class="arithmatex">\\([(\[])(.*?)\\[)\]]</\1>', re.DOTALL)
BULLET = "\N{BULLET}"  # before the name of a subcommand
BEGINNINGS = {"list": ("- ", "1. "), "table": ("|",)}
WIDE = "10000"  # columns: no line of a help text is broken


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Adds the pages that are made from files outside of `docs` and from the command line's own parser."""
    for page, source in COPIED.items():
        files.append(File.generated(config, page, content=(ROOT / source).read_text(encoding="utf-8")))
    files.append(File.generated(config, "reference/cli.md", content=command_line()))
    files.append(File.generated(config, "examples.md", content=examples()))
    return files


def on_page_markdown(markdown: str, page: Page, **_: Any) -> str:
    """Lets links to files of the repository that are not in `docs` point to the pages that show them."""
    for made, source in COPIED.items():
        markdown = re.sub(rf"\]\((?:\.\./)*{source}(#[\w-]+)?\)", rf"]({root(page)}{made}\1)", markdown)
    markdown = re.sub(r"\]\((?:\.\./)*docs/", f"]({root(page)}", markdown)
    markdown = re.sub(r"\]\((?:\.\./)+examples/([\w./]+)\)", rf"]({root(page)}examples.md#examples/\1)", markdown)
    return apart(markdown)


def apart(markdown: str) -> str:
    """A blank line before every list and table: Python-Markdown wants one after a paragraph, GitHub does not.

    >>> print(apart("So:\\n- one\\n- two\\n| a |\\n|---|"))
    So:
    <BLANKLINE>
    - one
    - two
    <BLANKLINE>
    | a |
    |---|
    """
    lines: list[str] = []
    code, before = False, ""
    for line in markdown.splitlines():
        begins = next((kind for kind, begin in BEGINNINGS.items() if line.startswith(begin)), "")
        inside = before[:1] in (" ", "#", ">") or before.startswith(BEGINNINGS.get(begins, " "))
        if begins and not code and before.strip() and not inside:
            lines.append("")
        lines.append(line)
        code ^= line.lstrip().startswith("```")
        before = line
    return "\n".join(lines)


def root(page: Page) -> str:
    """The way from a page to the folder of all pages."""
    return "../" * page.file.src_uri.count("/")


def examples() -> str:
    """The page of the files in the folder `examples`."""
    parts = ["# Examples\nThese files are in the folder `examples` of the repository. The tests run them."]
    folders = {name.partition("/")[0] for name in EXAMPLES if "/" in name}
    for name, about in EXAMPLES.items():
        folder = name.partition("/")[0]
        anchor = f'<a id="examples/{folder}"></a>\n\n' if folder in folders else ""
        folders.discard(folder)
        code = (ROOT / "examples" / name).read_text(encoding="utf-8").strip()
        language = "python" if name.endswith(".py") else "toml"
        parts.append(f"{anchor}## {name} {{ #examples/{name} }}\n{about}\n\n```{language}\n{code}\n```")
    return "\n\n".join(parts)


def on_page_content(content: str, **_: Any) -> str:
    """Turns every formula into MathML, which browsers draw without a script."""
    return FORMULA.sub(lambda found: mathml(html.unescape(found[3]), block=found[2] == "["), content)


def mathml(latex: str, *, block: bool) -> str:
    """One formula.

    >>> mathml("x^2", block=False)[:6]
    '<math '
    """
    return convert(latex.strip(), display="block" if block else "inline")


def command_line() -> str:
    """The page of all verbs and their options, from what `--help` prints."""
    from fedawe.cli.main import VERBS, overview

    parts = ["# Command line\nThis page is made from the parser of the command line itself.\n", fenced(overview())]
    for verb in VERBS:
        text = printed_help([verb])
        parts.append(f"## fedawe {verb}\n{described(text)}")
        names = re.findall(rf"^ +{BULLET} (\S+)", text, re.MULTILINE)
        parts.extend(f"### fedawe {verb} {name}\n{described(printed_help([verb, name]))}" for name in names)
    return "\n\n".join(parts)


def printed_help(words: list[str]) -> str:
    """What `fedawe WORDS --help` prints where there is no terminal, with every paragraph on one line."""
    from fedawe.cli.main import parse

    said = io.StringIO()
    with patch.dict(os.environ, COLUMNS=WIDE), contextlib.redirect_stdout(said), contextlib.suppress(SystemExit):
        parse([*words, "--help"])
    return said.getvalue()


def described(text: str) -> str:
    """A help text as Markdown: its usage, its description and a table of its arguments."""
    usage, _, rest = text.strip().partition("\n\n")
    head = re.split(r"^ \S.*\n -{3,} *$", f"{rest}\n", maxsplit=1, flags=re.MULTILINE)
    rows = arguments(head[1] if len(head) > 1 else "")
    table = "\n".join(f"| `{name}` | {said} |" for name, said in rows)
    table = f"| argument | meaning |\n|---|---|\n{table}\n" if rows else ""
    return f"{fenced(usage.removeprefix('usage: '))}\n{escaped(head[0].strip())}\n\n{table}"


def arguments(text: str) -> list[tuple[str, str]]:
    """The arguments that a help text lists, with what it says of each.

    >>> arguments("  -h, --help  show help\\n  --out PATH  folder of\\n              records\\n  PATH        file")
    [('--out PATH', 'folder of records'), ('PATH', 'file')]
    """
    rows: list[tuple[str, str]] = []
    for line in filter(None, map(str.rstrip, text.splitlines())):
        name, _, said = re.sub(r" {2,}", "\0", line.strip().removeprefix(f"{BULLET} "), count=1).partition("\0")
        if re.match(r"  \S", line):
            if name.startswith(("-", "[", "{")) or name.isupper():
                rows.append((name.replace("|", "\\|"), escaped(said)))
        elif line.strip().startswith(BULLET):
            rows.append((name, escaped(said)))
        elif re.match(r"    ", line) and rows:
            rows[-1] = (rows[-1][0], f"{rows[-1][1]} {escaped(line.strip())}".strip())
    return [row for row in rows if not row[0].startswith(("-h,", "---"))]


def escaped(text: str) -> str:
    """A sentence of a help text within Markdown."""
    return re.sub(r"([|<>*_\[\]])", r"\\\1", text)


def fenced(text: str) -> str:
    """A block of plain text."""
    return f"```text\n{text.strip()}\n```"
