"""`fedawe VERB ...`: executes the verb, and turns a user's mistake into one line and exit code 2.

A verb is a module in this package. The first line of its docstring is its summary, and its `VERB` is a dataclass of
flags with a method `run`, or a union of such classes. A module is imported only when its verb is called.
"""

import ast
import contextlib
import importlib
import importlib.util
import io
import os
import re
import sys
from collections.abc import Sequence
from contextlib import suppress
from difflib import get_close_matches
from types import ModuleType
from typing import Any, Protocol

from fedawe import __version__
from fedawe.core.errors import UserError

VERBS = [
    "demo",
    "run",
    "report",
    "reproduce",
    "export",
    "trace",
    "audit",
    "fit",
    "theory",
    "flower",
    "watch",
    "data",
    "check",
]


class Verb(Protocol):
    """A dataclass of the flags of a verb."""

    def run(self) -> None:
        """Execute the verb."""


def summary(verb: str) -> str:
    """The summary of a verb, from the docstring of its module, which is not imported for this."""
    spec = importlib.util.find_spec(f"fedawe.cli.{verb}")
    assert spec is not None
    source: Any = spec.loader
    said = ast.get_docstring(ast.parse(source.get_source(spec.name))) or ""
    return said.partition("\n")[0].partition(": ")[2]


def overview() -> str:
    """The text of `fedawe --help`."""
    lines = [
        "usage: fedawe VERB [options]",
        "",
        "Federated learning with clients that are available only some of the time.",
        "",
        *(f"  {verb:<10} {summary(verb)}" for verb in VERBS),
        "",
        "  -h, --help  this text; fedawe VERB --help lists the options of a verb",
        "  --version   the version",
    ]
    return "\n".join(lines)


def parse(arguments: Sequence[str]) -> Verb:
    """The verb with its flags; the parser's message about a mistake becomes one line."""
    name, *rest = arguments
    if name not in VERBS:
        meant = get_close_matches(name, VERBS, n=1)
        hint = f"perhaps you meant {meant[0]}" if meant else f"choose from {', '.join(VERBS)}"
        raise UserError(f"unknown verb {name!r}; {hint}")
    module, said = importlib.import_module(f"fedawe.cli.{name}"), io.StringIO()
    asked = {"-h", "--help"} & {*rest} and hasattr(module, "description")
    try:
        with contextlib.redirect_stderr(said):
            return _read(module, name, rest, module.description() if asked else None)
    except SystemExit as stopped:
        if stopped.code in (0, None):
            raise
        raise UserError(_unknown(module, name, rest) or one_line(said.getvalue(), name)) from None


def _read(module: ModuleType, name: str, words: Sequence[str], description: str | None = None) -> Verb:
    import tyro

    verb: Verb = tyro.cli(
        module.VERB,
        prog=f"fedawe {name}",
        args=words,
        description=description,
        config=(tyro.conf.FlagCreatePairsOff, tyro.conf.OmitSubcommandPrefixes),
    )
    return verb


def _unknown(module: ModuleType, name: str, words: Sequence[str]) -> str | None:
    """The message about the first option that the verb does not have; None if it has all of them."""
    path = [word for word in words[:1] if not word.startswith("-")]  # the subcommand, if there is one
    known: set[str] = set()
    for part in ([], path):
        text = io.StringIO()
        with contextlib.redirect_stdout(text), contextlib.redirect_stderr(io.StringIO()), suppress(SystemExit):
            _read(module, name, [*part, "--help"])
        known |= set(re.findall(r"^\W*?(?:-h, )?(--[a-z][a-z0-9-]*)", text.getvalue(), re.MULTILINE))
    for word in words:
        option = word.partition("=")[0]
        if re.fullmatch(r"--[A-Za-z][\w-]*", option) and option not in known:
            meant = get_close_matches(option, sorted(known), n=1)
            return f"unknown option {option}; " + (
                f"perhaps you meant {meant[0]}" if meant else f"see fedawe {' '.join([name, *path])} --help"
            )
    return None


def one_line(box: str, verb: str) -> str:
    """The first part of a framed message, without its frame and line breaks.

    >>> one_line("╭─ Value error ─╮\\n│ Error parsing --rounds: no. │\\n│ ──── │\\n│ see -h │\\n╰──╯", "run")
    'Error parsing --rounds: no; see fedawe run --help'
    """
    parts: list[list[str]] = [[]]
    for line in box.splitlines():
        text = line.strip("│ ").strip()
        if re.fullmatch(r"[─-]+", text):
            parts.append([])
        elif text and text[0] not in "╭╰":
            parts[-1].append(text)
    if "╭" not in box:  # without frame characters the title is a separate part
        del parts[0]
    said = " ".join(parts[0]).rstrip(".")
    return f"{said}; see fedawe {verb} --help"


def main() -> None:
    """The entry point of the command line."""
    arguments = sys.argv[1:]
    if arguments == ["--version"]:
        print(f"fedawe {__version__}")
        return
    try:
        if not arguments or arguments[0] in ("--help", "-h"):
            print(overview())
        else:
            parse(arguments).run()
    except UserError as error:
        print("fedawe:", " ".join(str(error).split()), file=sys.stderr)
        sys.exit(2)
    except KeyboardInterrupt:
        print("fedawe: stopped; the same command continues from the last checkpoint", file=sys.stderr)
        sys.exit(130)
    except BrokenPipeError:  # the reader of the output has ended, as in `fedawe trace show x | head`
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        sys.exit(141)
    except OSError as error:
        if error.filename is None:  # not about a file
            raise
        print(f"fedawe: {str(error.filename)[:200]}: {error.strerror}", file=sys.stderr)
        sys.exit(2)
