"""All evaluations below a folder as one table: a row for each, with its metrics and the settings of its run."""

import csv
import io
import warnings
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

from fedawe.core.errors import UserError
from fedawe.core.files import new_folder, write_atomically
from fedawe.results.fields import class_name, settings_of
from fedawe.results.folder import RunResult, RunSet, load_all
from fedawe.results.participation import SUFFIX

if TYPE_CHECKING:
    import pandas

Row = dict[str, Any]
Warn = Callable[[str], object]
Place = tuple[str, RunSet, RunResult]  # the name of the experiment's folder, the experiment, the run

# The first columns; the metrics and the other settings follow.
FIRST = (
    "folder",
    "task",
    "availability",
    "label",
    "name",
    "algorithm",
    "seed",
    "status",
    "finished",
    "round",
)


def frame(runs: Iterable[Place]) -> "pandas.DataFrame":
    """A DataFrame with one row per evaluation."""
    try:
        import pandas
    except ImportError:
        raise UserError("a data frame needs pandas; install it with: pip install 'fedawe[export]'") from None
    columns, rows = table(runs)
    return pandas.DataFrame(rows, columns=columns)


def write_csv(folder: Path, out: Path, warn: Warn = warnings.warn) -> None:
    """Write the same table as CSV; refuses to overwrite a file that is not such a table."""
    if out.exists() and not _is_ours(out):
        raise UserError(f"{out} exists and is not a table that `fedawe export` wrote; choose another --out")
    columns, rows = table(below(folder, warn))
    buffer = io.StringIO()
    writer = csv.DictWriter(buffer, columns, lineterminator="\n")  # missing values are empty
    writer.writeheader()
    writer.writerows(rows)
    new_folder(out.parent)
    write_atomically(out, buffer.getvalue().encode())


def _is_ours(path: Path) -> bool:
    head = ",".join(FIRST).encode()
    try:
        with path.open("rb") as file:
            return file.read(len(head)) == head
    except OSError:  # a folder, or no permission to read the file
        return False


def table(runs: Iterable[Place]) -> tuple[list[str], list[Row]]:
    """The names of the columns, and one row per evaluation, run after run; rows omit values that are None."""
    metrics: dict[str, None] = {}  # sets that keep their order
    others: dict[str, None] = {}
    rows: list[Row] = []
    for place, experiment, run in runs:
        settings: Row = dict(settings_of(run.header))
        first = {
            **{name: settings.pop(name, None) for name in ("task", "availability")},
            "folder": place,
            "label": run.label,
            "name": experiment.names[run.label],
            "algorithm": class_name(run.header.get("algorithm")) or None,
            "seed": run.seed,
            "status": run.status,
            "finished": run.status == "complete",
        }
        others |= dict.fromkeys(settings)
        for line in run.lines:
            numbers = flat(line)
            metrics |= dict.fromkeys(numbers)
            row = {**settings, **numbers, **first}
            rows.append({name: value for name, value in row.items() if value is not None})
    return list(dict.fromkeys([*FIRST, *metrics, *others])), rows


def below(folder: Path, warn: Warn) -> Iterator[Place]:
    """All runs of the experiments in a folder; warns of damaged files."""
    for experiment in load_all(folder):
        relative = experiment.path.relative_to(folder)
        place = folder.resolve().name if relative == Path() else relative.as_posix()
        yield from ((place, experiment, run) for run in each(experiment, warn))


def each(experiment: RunSet, warn: Warn) -> Iterator[RunResult]:
    """The runs of one experiment, algorithm by algorithm; warns of damaged files."""
    for problem in experiment.problems:
        warn(problem)
    for label in experiment.labels:
        for run in experiment.of(label):
            if run.status == "damaged":
                warn(run.message)
            yield run


def flat(line: Row) -> Row:
    """An evaluation as columns: numbers by class become one column per class; other lists are omitted.

    >>> flat({"kind": "evaluation", "round": 5, "test_accuracy_by_class": [0.9, 0.4], "clients": [3, 8]})
    {'round': 5, 'test_accuracy_class_0': 0.9, 'test_accuracy_class_1': 0.4}
    """
    out: Row = {}
    for name, value in line.items():
        if not isinstance(value, list):
            out |= {} if name == "kind" else {name: value}
        elif name.endswith(SUFFIX):
            out |= {f"{name.removesuffix(SUFFIX)}_class_{c}": number for c, number in enumerate(value)}
    return out
