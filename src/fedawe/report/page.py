"""Write the report page: sentences, tables and figures in one HTML file that needs no other files."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import jinja2
from plotly.offline import get_plotlyjs

from fedawe.core.files import write_atomically
from fedawe.core.palette import looks
from fedawe.report.figures import figures
from fedawe.report.influence import Influences, bars_of, influences_of
from fedawe.report.words import Words, suite_words, words
from fedawe.results.curves import speed_table
from fedawe.results.fields import text_of
from fedawe.results.folder import RunResult, RunSet
from fedawe.results.participation import class_table
from fedawe.results.standings import Comparison
from fedawe.results.suites import describe, overview_table, titles
from fedawe.results.summary import summary_table
from fedawe.results.tables import MISSING, Cell, Column, Format, Table

TEMPLATES = Path(__file__).parent / "templates"
STRIPES = 12  # largest number of traces that are drawn, over all experiments of a page


@dataclass(frozen=True)
class Forest:
    """One row of the forest plot of differences; positions are in percent of its width."""

    dot: float | None
    low: float | None
    high: float | None
    zero: float | None
    sign: int  # +1 better, -1 worse, 0 no significant difference


@dataclass(frozen=True)
class Section:
    """One experiment on the page."""

    key: str
    title: str
    runs: RunSet
    comparison: Comparison
    words: Words
    results: Table
    forest: tuple[Forest, ...]
    speed: Table | None
    classes: Table | None
    influences: Influences | None
    each_run: Table
    made_with: dict[str, str]

    @property
    def bars(self) -> str:
        """The influence of every client, as HTML."""
        return "" if self.influences is None else bars_of(self.comparison, self.influences)

    @property
    def direction(self) -> str:
        """The heading of the forest plot, which says what left and right mean."""
        better = self.comparison.metric.better
        low, high = (f"{side}{' (better)' if side == better else ''}" for side in ("lower", "higher"))
        return f"← {low} · {high} →"


def write_page(comparisons: Sequence[Comparison], path: Path) -> Path:
    """Write the page of one or several experiments; returns its path."""
    write_atomically(path, render(comparisons).encode())
    return path


def render(comparisons: Sequence[Comparison]) -> str:
    """The page of one or several experiments as HTML."""
    shown = [comparison.runs for comparison in comparisons]
    names = titles(shown)
    sections = [_section(n, name, found) for n, (name, found) in enumerate(zip(names, comparisons, strict=True))]
    stripes = max(1, STRIPES // len(sections))
    environment = jinja2.Environment(
        loader=jinja2.FileSystemLoader(TEMPLATES), autoescape=True, trim_blocks=True, lstrip_blocks=True
    )
    environment.filters["tidy"] = lambda text: text.replace(" %", "\u00a0%")  # no line break before a unit
    suite = len(shown) > 1
    kinds = {label: kind for runs in reversed(shown) for label, kind in runs.kinds.items()}
    return environment.get_template("page.html.j2").render(
        title=f"{len(shown)} experiments" if suite else names[0],
        sections=sections,
        overview=overview_table(comparisons, names) if suite else None,
        overview_words=suite_words(comparisons, names) if suite else None,
        overview_looks=looks(kinds),
        data={section.key: figures(section.comparison, stripes) for section in sections},
        looks_of=lambda section: looks(section.runs.kinds),
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
        runs=comparison.runs,
        comparison=comparison,
        words=words(comparison),
        results=summary_table(comparison),
        forest=_forest(comparison),
        speed=speed_table(comparison),
        classes=class_table(comparison),
        influences=influences_of(comparison.runs),
        each_run=_runs(comparison),
        made_with=_made_with(comparison.runs),
    )


def _exports(table: Table) -> dict[str, dict[str, Any]]:
    formats: tuple[Format, ...] = ("csv", "md", "tex")
    found = {name: table.export(name) for name in formats}
    return {name: {"head": e.head, "rows": e.rows, "foot": e.foot} for name, e in found.items()}


def _forest(comparison: Comparison) -> tuple[Forest, ...]:
    """The forest plot of the differences in the result table, all on the same scale."""
    found = [standing.difference for standing in comparison.standings]
    ends = [0.0] + [end for d in found if d for end in (d.mean, d.low, d.high) if end is not None]
    low, high = min(ends), max(ends)
    span = (high - low) or 1.0
    low, span = low - 0.04 * span, 1.08 * span

    def place(value: float | None) -> float | None:
        return None if value is None else round(100 * (value - low) / span, 2)

    out = []
    for d in found:
        dot, ends_at = (None, (None, None)) if d is None else (place(d.mean), (place(d.low), place(d.high)))
        out.append(Forest(dot, *ends_at, zero=place(0.0), sign=comparison.verdict(d)))
    return tuple(out)


def _runs(comparison: Comparison) -> Table:
    """A table of all runs with their status; it has a column for messages if there are any."""
    metric, experiment = comparison.metric, comparison.runs
    runs = [run for label in experiment.labels for run in experiment.of(label)]
    columns = [
        Column("algorithm", ("algorithm",), numeric=False),
        Column("seed", ("seed",)),
        Column("status", ("status",), numeric=False),
        Column("rounds", ("rounds",), note="up to the last evaluation"),
        Column(metric.heading, (metric.name,), note="window mean of a complete run"),
        Column("seconds", ("seconds",)),
    ]
    rows = [_run_row(comparison, run) for run in runs]
    if any(run.message for run in runs):
        columns.append(Column("message", ("message",), numeric=False))
        messages = [run.message.replace(f"{experiment.path}/", "") for run in runs]
        rows = [(*row, Cell(text, (text,))) for row, text in zip(rows, messages, strict=True)]
    return Table("runs", "Every run", tuple(columns), tuple(rows), tuple(run.label for run in runs))


def _run_row(comparison: Comparison, run: RunResult) -> tuple[Cell, ...]:
    standing, name = comparison.standing(run.label), comparison.runs.names[run.label]
    value = standing.values.get(run.seed) if standing else None
    return (
        Cell(name, (name,)),
        Cell(str(run.seed), (run.seed,)),
        Cell(run.status, (run.status,), strong=run.status != "complete"),
        Cell(str(run.rounds), (run.rounds,)),
        Cell(MISSING if value is None else comparison.metric.show(value), (comparison.metric.plain(value),)),
        Cell(MISSING if run.seconds is None else f"{run.seconds:.1f}", (run.seconds,)),
    )


def _made_with(runs: RunSet) -> dict[str, str]:
    """The hyper-parameters and the local training of every algorithm, from the headers of its runs."""
    out = {}
    for label in runs.labels:
        header: Mapping[str, Any] = runs.header(label)
        parts = [text_of(header, key) for key in ("algorithm", "local") if header.get(key)]
        out[runs.names[label]] = ", ".join(parts) or "unknown"
    return out
