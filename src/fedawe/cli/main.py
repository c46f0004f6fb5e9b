"""`fedawe VERB ...`: finds the verb, and turns a user's mistake into one line and exit code 2."""

import contextlib
import io
import os
import re
import sys
from collections.abc import Sequence
from typing import Annotated, Any, Protocol

import tyro
from tyro.conf import subcommand

from fedawe import __version__
from fedawe.cli import audit, data, demo, export, fit, flower, report, reproduce, run, theory, trace
from fedawe.core.errors import UserError

DESCRIPTION = "Federated learning when clients come and go."


class Verb(Protocol):
    """A dataclass of flags that does something."""

    def run(self) -> None:
        """Do it."""


Trace = (
    Annotated[trace.Draw, subcommand("draw")]
    | Annotated[trace.Show, subcommand("show")]
    | Annotated[trace.Check, subcommand("check")]
)

Data = (
    Annotated[data.DataAdd, subcommand("add")]
    | Annotated[data.DataList, subcommand("list")]
    | Annotated[data.DataCheck, subcommand("check")]
    | Annotated[data.DataDownload, subcommand("download")]
)

Flower = Annotated[flower.Up, subcommand("up")] | Annotated[flower.Replay, subcommand("replay")]

Verbs: Any = (
    Annotated[demo.Demo, subcommand("demo")]
    | Annotated[run.Run, subcommand("run")]
    | Annotated[report.Report, subcommand("report")]
    | Annotated[reproduce.Reproduce, subcommand("reproduce")]
    | Annotated[export.Export, subcommand("export")]
    | Annotated[Trace, subcommand("trace", description="Draw, show or check a trace of who was there when.")]
    | Annotated[audit.Audit, subcommand("audit")]
    | Annotated[fit.Fit, subcommand("fit")]
    | Annotated[theory.Theory, subcommand("theory")]
    | Annotated[Flower, subcommand("flower", description="Try a real federation on this machine; replay one.")]
    | Annotated[Data, subcommand("data", description="Add, list, check or download data sets.")]
)


def parse(arguments: Sequence[str]) -> Verb:
    """The verb with its flags; what the parser says of a mistake becomes one line."""
    said = io.StringIO()
    try:
        with contextlib.redirect_stderr(said):
            verb: Verb = tyro.cli(
                Verbs,
                prog="fedawe",
                description=DESCRIPTION,
                args=list(arguments),
                config=(tyro.conf.FlagCreatePairsOff, tyro.conf.OmitSubcommandPrefixes),
            )
            return verb
    except SystemExit as stopped:
        if stopped.code in (0, None):
            raise
        raise UserError(one_line(said.getvalue(), " ".join(arguments[:1]))) from None


def one_line(box: str, verb: str = "") -> str:
    """The first part of a framed message, and what was perhaps meant of this verb, without frame or line breaks.

    >>> one_line("╭─ Value error ─╮\\n│ Error parsing --rounds: no. │\\n│ ──── │\\n│ see -h │\\n╰──╯")
    'Error parsing --rounds: no; see fedawe --help'
    """
    parts: list[list[str]] = [[]]
    for line in box.splitlines():
        text = line.strip("│ ").strip()
        if re.fullmatch(r"[─-]+", text):
            parts.append([])
        elif text and text[0] not in "╭╰":
            parts[-1].append(text)
    if "╭" not in box:  # where the terminal has no such characters, the title is a part of its own
        del parts[0]
    said = " ".join(parts[0]).rstrip(".")
    meant = option = None
    for line in next((part for part in parts[1:] if part[0].startswith("Perhaps you meant")), []):
        option = line if line.startswith("--") else option
        if line.startswith(f"in fedawe {verb} "):
            meant = meant or option
    return f"{said}; {f'perhaps you meant {meant}' if meant else 'see fedawe --help'}"


def main() -> None:
    """The entry point."""
    arguments = sys.argv[1:]
    if arguments == ["--version"]:
        print(f"fedawe {__version__}")
        return
    try:
        parse(arguments or ["--help"]).run()
    except UserError as error:
        print("fedawe:", " ".join(str(error).split()), file=sys.stderr)
        sys.exit(2)
    except KeyboardInterrupt:
        print("fedawe: stopped; the same command goes on from the last checkpoint", file=sys.stderr)
        sys.exit(130)
    except BrokenPipeError:  # the reader of our output left, as in `fedawe trace show x | head`
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        sys.exit(141)
