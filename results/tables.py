"""Functions that the scripts of this folder share: means by seed, differences, Markdown, and tables on pages."""

import re
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

import numpy as np
import pandas as pd

from fedawe.results.standings import Difference

BySeed = dict[int, float]
PAGES = Path(__file__).parent.parent / "docs"
CLASSES = 10
ORDER = "order"  # a column for sorting rows that is not shown


def summary(frame: pd.DataFrame, label: str, metric: str, window: int) -> BySeed:
    """Percent by seed: the mean over the evaluations of the last rounds of every complete run."""
    runs = frame[(frame.label == label) & (frame.status == "complete")]
    last = runs[runs["round"] > runs["round"].max() - window]
    means = last.groupby("seed")[metric].mean().dropna() if metric in last else {}
    return {int(str(seed)): 100 * float(value) for seed, value in means.items()}


def by_class(frame: pd.DataFrame, label: str, window: int) -> list[BySeed]:
    """Test accuracy in percent by seed, for every class."""
    return [summary(frame, label, f"test_accuracy_class_{c}", window) for c in range(CLASSES)]


def over_classes(classes: Sequence[BySeed], how: Callable[[list[float]], float]) -> BySeed:
    """By seed, one number for several classes, such as their mean or minimum."""
    return {seed: float(how([each[seed] for each in classes])) for seed in classes[0]}


def mean(values: BySeed) -> float:
    """The mean over seeds."""
    return float(np.mean(list(values.values())))


def spread(values: BySeed) -> str:
    """Mean ± standard deviation over seeds; the number alone for one seed."""
    numbers = list(values.values())
    if not numbers:
        return ""
    return f"{np.mean(numbers):.1f}" + (f" ± {np.std(numbers, ddof=1):.1f}" if len(numbers) > 1 else "")


def interval(difference: Difference | None) -> str:
    """A difference with its interval as text; one pair has no interval."""
    if difference is None:
        return ""
    if difference.low is None:
        return f"{difference.mean:+.1f}"
    return f"{difference.mean:+.1f} ({difference.low:+.1f} to {difference.high:+.1f})"


def p_text(p: float | None) -> str:
    """A p-value as text; empty for one pair, which has none."""
    return "" if p is None else f"{p:.2f}" if p >= 0.005 else "< 0.01"


def markdown(rows: Sequence[Mapping[str, object]]) -> str:
    """The rows as a table in Markdown."""
    names = [name for name in rows[0] if name != ORDER]
    lines = [names, ["--"] * len(names), *([str(row[name]) for name in names] for row in rows)]
    return "".join(f"| {' | '.join(line)} |\n" for line in lines)


def shown(page: str, made: Mapping[str, str]) -> str:
    """The page with these tables between `<!-- FOLDER/NAME.md -->` and `<!-- end -->`; other tables are not changed."""
    return re.sub(
        r"(<!-- (\S+\.md) -->\n)(.*?)(<!-- end -->)",
        lambda found: found[1] + made.get(found[2], found[3]) + found[4],
        page,
        flags=re.DOTALL,
    )


def write(kept: Path, made: Mapping[str, str]) -> None:
    """Write the tables to their folder, and to the pages on which they are marked as FOLDER/NAME.md."""
    kept.mkdir(exist_ok=True)
    for name, text in made.items():
        (kept / name).write_text(text, encoding="utf-8")
    named = {f"{kept.name}/{name}": text for name, text in made.items()}
    for path in (PAGES.parent / "README.md", *PAGES.glob("*.md")):
        before = path.read_text(encoding="utf-8")
        after = shown(before, named)
        if after != before:
            path.write_text(after, encoding="utf-8")
