"""All evaluations under a folder as one tidy table: a row for each, with what it was made with."""

import csv
import io
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

from fedawe.core.errors import UserError
from fedawe.core.files import new_folder, write_atomically
from fedawe.results.folder import Experiment, Run, load_all

if TYPE_CHECKING:
    import pandas

Row = dict[str, Any]
Warn = Callable[[str], object]

# What every row begins with; then come the metrics, then the other settings.
FIRST = ("folder", "task", "model", "dynamics", "label", "algorithm", "seed", "status", "finished", "round")


def load(folder: str | Path) -> "pandas.DataFrame":
    """All records under a folder as a DataFrame, one row per evaluation.

    The folder is one that `fedawe run` wrote, or one that holds several of them. Runs that are not complete are there
    as far as they went (`finished` is False, `status` says why); what cannot be read is warned of, and left out.
    """
    try:
        import pandas
    except ImportError:
        raise UserError("fedawe.load needs pandas; install it with: pip install 'fedawe[export]'") from None
    problems: list[str] = []
    columns, rows = read_table(Path(folder), problems.append)
    for problem in problems:
        warnings.warn(problem, stacklevel=2)
    return pandas.DataFrame(rows, columns=columns)


def write_csv(folder: Path, out: Path, warn: Warn = warnings.warn) -> None:
    """The same table as CSV; a file that is something else is not written over."""
    if out.exists() and not _is_ours(out):
        raise UserError(f"{out} exists and is not a table of ours; choose another --out")
    columns, rows = read_table(folder, warn)
    buffer = io.StringIO()
    writer = csv.DictWriter(buffer, columns, lineterminator="\n")  # what is not there is left empty
    writer.writeheader()
    writer.writerows(rows)
    new_folder(out.parent)
    write_atomically(out, buffer.getvalue().encode())


def _is_ours(path: Path) -> bool:
    head = ",".join(FIRST).encode()
    try:
        with path.open("rb") as file:
            return file.read(len(head)) == head
    except OSError:  # a folder, or a file that is not ours to read
        return False


def read_table(folder: Path, warn: Warn) -> tuple[list[str], list[Row]]:
    """The names of the columns, and one row per evaluation, run after run; what is not set is not in it."""
    metrics: dict[str, None] = {}  # sets that keep their order
    others: dict[str, None] = {}
    rows: list[Row] = []
    for place, experiment, run in each_run(folder, warn):
        settings = settings_of(experiment, run)
        first = {
            **{name: settings.pop(name, None) for name in ("task", "model", "dynamics")},
            "folder": place,
            "label": run.label,
            "algorithm": run.label.partition("(")[0],
            "seed": run.seed,
            "status": run.status,
            "finished": run.status == "complete",
        }
        others |= dict.fromkeys(settings)
        for line in run.record.evaluations:
            numbers = flat(line)
            metrics |= dict.fromkeys(numbers)
            row = {**settings, **numbers, **first}
            rows.append({name: value for name, value in row.items() if value is not None})
    return list(dict.fromkeys([*FIRST, *metrics, *others])), rows


def each_run(folder: Path, warn: Warn) -> Iterator[tuple[str, Experiment, Run]]:
    """All runs, each with the name of its experiment's folder; files that are damaged are told of."""
    for experiment in load_all(folder):
        below = experiment.path.relative_to(folder)
        for problem in experiment.problems:
            warn(problem)
        for label in experiment.labels:
            for run in experiment.of(label):
                if run.status == "damaged":
                    warn(run.message)
                yield folder.resolve().name if below == Path() else below.as_posix(), experiment, run


def settings_of(experiment: Experiment, run: Run) -> Row:
    """The settings of a run in plain values; a learning rate of its own goes before the one that all share.

    Lists are written as on the command line, `0.9 0.3`, so that rows can be grouped by them.
    """
    settings = {
        name: (" ".join(map(str, value)) or None) if isinstance(value, list) else value
        for name, value in experiment.settings.items()
    }
    options = run.label.partition("(")[2].removesuffix(")")
    own = dict(option.partition("=")[::2] for option in options.split(",") if option)
    return {**settings, "eta0": float(own["eta0"])} if "eta0" in own else settings


def flat(line: Row) -> Row:
    """An evaluation in plain values: a list of numbers by class becomes a column for each class.

    >>> flat({"kind": "evaluation", "round": 5, "test_accuracy_by_class": [0.9, 0.4]})
    {'round': 5, 'test_accuracy_class_0': 0.9, 'test_accuracy_class_1': 0.4}
    """
    out: Row = {}
    for name, value in line.items():
        if isinstance(value, list):
            out |= {f"{name.removesuffix('_by_class')}_class_{c}": number for c, number in enumerate(value)}
        elif name != "kind":
            out[name] = value
    return out
