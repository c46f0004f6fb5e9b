"""Compare several experiments: the settings in which they differ, and the ranks of algorithms over all of them."""

import os
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from fedawe.core.errors import UserError
from fedawe.results.choice import Choice
from fedawe.results.fields import Plain, Settings
from fedawe.results.folder import RunSet
from fedawe.results.standings import Comparison, compare, mean_ranks
from fedawe.results.summary import spread
from fedawe.results.tables import MISSING, Cell, Column, Table


def compare_all(several: Sequence[RunSet], choice: Choice) -> list[Comparison]:
    """Compare each experiment by the same choice; an algorithm or baseline must be in at least one of them."""
    if len(several) == 1:
        return [compare(several[0], choice)]
    for text in (*choice.algorithms, *([choice.baseline] if choice.baseline else [])):
        if all(runs.find(text) is None for runs in several):
            known = dict.fromkeys(label for runs in several for label in runs.labels)
            raise UserError(f"unknown algorithm {text!r}; choose from {', '.join(known)}")
    out = []
    for runs in several:
        algorithms = tuple(text for text in choice.algorithms if runs.find(text) is not None)
        if choice.algorithms and not algorithms:
            continue
        baseline = choice.baseline if choice.baseline and runs.find(choice.baseline) is not None else None
        out.append(compare(runs, replace(choice, algorithms=algorithms, baseline=baseline)))
    return out


def titles(several: Sequence[RunSet]) -> list[str]:
    """A short name for each experiment: the settings in which they differ, or the folder if these are the same."""
    if len(several) == 1:
        return [describe(several[0].settings)]
    keys = list(dict.fromkeys(key for runs in several for key in runs.settings))
    chosen: list[tuple[str, ...]] = [() for _ in several]
    for key in keys:
        more = [(*chosen[n], _said(key, runs.settings.get(key))) for n, runs in enumerate(several)]
        if len(set(more)) > len(set(chosen)):
            chosen = more
    out = [", ".join(words) for words in chosen]
    if len(set(out)) < len(out):
        out = [runs.path.name for runs in several]
    return out if len(set(out)) == len(out) else _paths(several)


def _paths(several: Sequence[RunSet]) -> list[str]:
    """The paths of their folders, relative to the deepest folder that contains all of them."""
    paths = [runs.path.resolve() for runs in several]
    shared = os.path.commonpath(paths)
    return [path.relative_to(shared).as_posix() if path != Path(shared) else path.name for path in paths]


def _said(key: str, value: Plain) -> str:
    name = key.rpartition(".")[2]
    return str(value) if key in ("task", "availability") or name in ("model", "class") else f"{name} {value}"


def describe(settings: Settings) -> str:
    """The main settings in one line.

    >>> describe({"task": "digits", "availability": "sine", "clients": 100, "rounds": 300, "task.alpha": 0.1})
    'digits, sine, 100 clients, α = 0.1, 300 rounds'
    """
    words = [str(settings[key]) for key in ("task", "availability") if settings.get(key) is not None]
    forms = {"clients": "{} clients", "task.alpha": "α = {}", "rounds": "{} rounds"}
    words += [form.format(settings[key]) for key, form in forms.items() if settings.get(key) is not None]
    return ", ".join(words) or "experiment"


def overview_table(comparisons: Sequence[Comparison], names: Sequence[str]) -> Table:
    """Every algorithm in every setting, and its mean rank over the settings."""
    ranks = mean_ranks(comparisons)
    known = display_names(comparisons)
    labels = sorted(known, key=lambda label: ranks.get(label, float("inf")))
    rows = []
    for label in labels:
        cells = [Cell(known[label], (known[label],))]
        for comparison in comparisons:
            standing = comparison.standing(label)
            if standing is None:
                cells.append(Cell(MISSING, (None, None)))
                continue
            values = comparison.metric.plain(standing.mean), comparison.metric.plain(standing.std)
            cells.append(Cell(spread(comparison.metric, standing), values, strong=standing.rank == 1))
        rank = ranks.get(label)
        rows.append((*cells, Cell(MISSING if rank is None else f"{rank:.2f}", (rank,))))
    columns = [Column("algorithm", ("algorithm",), numeric=False)]
    for comparison, name in zip(comparisons, names, strict=True):
        columns.append(Column(name, (name, f"{name} std"), note=comparison.metric.heading))
    columns.append(Column("mean rank", ("mean_rank",), note="over the settings; 1 is best"))
    headings = list(dict.fromkeys(comparison.metric.heading for comparison in comparisons))
    caption = f"{' or '.join(headings)} in every setting, mean ± standard deviation over seeds; the best is bold"
    return Table("overview", caption, tuple(columns), tuple(rows), tuple(labels))


def display_names(comparisons: Sequence[Comparison]) -> dict[str, str]:
    """The display names of all labels."""
    out: dict[str, str] = {}
    for comparison in comparisons:
        out |= {label: name for label, name in comparison.runs.names.items() if label not in out}
    return out
