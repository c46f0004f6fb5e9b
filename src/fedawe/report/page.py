"""Puts words, tables and figures together: one HTML file that needs nothing else."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import jinja2
from plotly.offline import get_plotlyjs

from fedawe.core.palette import looks
from fedawe.report.figures import figures
from fedawe.report.words import Words, suite_words, words
from fedawe.results.curves import speed_table
from fedawe.results.folder import Experiment, Run, display_name
from fedawe.results.participation import class_table
from fedawe.results.standings import Comparison, Interval, compare, summary_table
from fedawe.results.suites import describe, overview_table, titles
from fedawe.results.tables import MISSING, Cell, Column, Format, Table

TEMPLATES = Path(__file__).parent / "templates"
STRIPES = 12  # seeds, over all experiments of a page


@dataclass(frozen=True)
class Forest:
    """One row of the picture of differences: places in percent of its width."""

    dot: float | None
    low: float | None
    high: float | None
    zero: float | None
    sign: int  # +1 better, -1 worse, 0 not told apart


@dataclass(frozen=True)
class Section:
    """One experiment on the page."""

    key: str
    title: str
    experiment: Experiment
    comparison: Comparison
    words: Words
    results: Table
    forest: tuple[Forest, ...]
    speed: Table | None
    classes: Table | None
    runs: Table
    made_with: dict[str, str]


def render(experiments: Sequence[Experiment], interval: Interval = "student") -> str:
    """The page as text."""
    comparisons = [compare(experiment, interval=interval) for experiment in experiments]
    names = titles(experiments)
    several = len(experiments) > 1
    sections = [_section(n, name, found) for n, (name, found) in enumerate(zip(names, comparisons, strict=True))]
    stripes = max(1, STRIPES // len(sections))
    environment = jinja2.Environment(
        loader=jinja2.FileSystemLoader(TEMPLATES), autoescape=True, trim_blocks=True, lstrip_blocks=True
    )
    environment.filters["tidy"] = lambda text: text.replace(" %", "\u00a0%")  # a number keeps its unit
    return environment.get_template("page.html.j2").render(
        title=f"{len(experiments)} experiments" if several else names[0],
        sections=sections,
        overview=overview_table(comparisons, names) if several else None,
        overview_words=suite_words(comparisons, names) if several else None,
        data={section.key: figures(section.comparison, stripes) for section in sections},
        looks=looks(tuple(dict.fromkeys(label for experiment in experiments for label in experiment.labels))),
        exports=_exports,
        css=(TEMPLATES / "page.css").read_text(encoding="utf-8"),
        js=(TEMPLATES / "page.js").read_text(encoding="utf-8"),
        plotly=get_plotlyjs(),
        describe=describe,
    )


def _section(n: int, name: str, comparison: Comparison) -> Section:
    return Section(
        key=f"e{n}",
        title=name,
        experiment=comparison.experiment,
        comparison=comparison,
        words=words(comparison),
        results=summary_table(comparison),
        forest=_forest(comparison),
        speed=speed_table(comparison),
        classes=class_table(comparison),
        runs=_runs(comparison),
        made_with=_made_with(comparison.experiment),
    )


def _exports(table: Table) -> dict[str, dict[str, Any]]:
    formats: tuple[Format, ...] = ("csv", "md", "tex")
    found = {name: table.export(name) for name in formats}
    return {name: {"head": e.head, "rows": e.rows, "foot": e.foot} for name, e in found.items()}


def _forest(comparison: Comparison) -> tuple[Forest, ...]:
    """The differences of the result table, drawn on one scale."""
    found = [standing.difference for standing in comparison.standings]
    ends = [0.0] + [end for d in found if d for end in (d.mean, d.low, d.high) if end is not None]
    low, high = min(ends), max(ends)
    span = (high - low) or 1.0
    low, span = low - 0.04 * span, 1.08 * span
    better = 1 if comparison.metric.higher_is_better else -1

    def place(value: float | None) -> float | None:
        return None if value is None else round(100 * (value - low) / span, 2)

    out = []
    for d in found:
        dot, ends_at = (None, (None, None)) if d is None else (place(d.mean), (place(d.low), place(d.high)))
        out.append(Forest(dot, *ends_at, zero=place(0.0), sign=0 if d is None else better * d.sign))
    return tuple(out)


def _runs(comparison: Comparison) -> Table:
    """Every run and what became of it; a column for messages if there are any."""
    metric, experiment = comparison.metric, comparison.experiment
    runs = [run for label in experiment.labels for run in experiment.of(label)]
    columns = [
        Column("algorithm", ("algorithm",), numeric=False),
        Column("seed", ("seed",)),
        Column("status", ("status",), numeric=False),
        Column("rounds", ("rounds",), note="evaluated"),
        Column(metric.heading, (metric.name,), note="window mean of a complete run"),
        Column("seconds", ("seconds",)),
    ]
    rows = [_run_row(comparison, run) for run in runs]
    if any(run.message for run in runs):
        columns.append(Column("message", ("message",), numeric=False))
        said = [run.message.replace(f"{experiment.path}/", "") for run in runs]
        rows = [(*row, Cell(text, (text,))) for row, text in zip(rows, said, strict=True)]
    return Table("runs", "Every run", tuple(columns), tuple(rows), tuple(run.label for run in runs))


def _run_row(comparison: Comparison, run: Run) -> tuple[Cell, ...]:
    standing = comparison.standing(run.label)
    value = standing.values.get(run.seed) if standing else None
    return (
        Cell(display_name(run.label), (display_name(run.label),)),
        Cell(str(run.seed), (run.seed,)),
        Cell(run.status, (run.status,), strong=run.status != "complete"),
        Cell(str(run.rounds), (run.rounds,)),
        Cell(MISSING if value is None else comparison.metric.show(value), (comparison.metric.plain(value),)),
        Cell(MISSING if run.seconds is None else f"{run.seconds:.1f}", (run.seconds,)),
    )


def _made_with(experiment: Experiment) -> dict[str, str]:
    """Every algorithm's hyper-parameters, as its runs recorded them."""
    out = {}
    for label in experiment.labels:
        headers = [run.record.header for run in experiment.of(label) if run.record.header]
        said = [str(headers[0][key]) for key in ("hyper_parameters", "local") if headers and key in headers[0]]
        out[display_name(label)] = ", ".join(said) or "unknown"
    return out
