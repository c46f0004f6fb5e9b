"""The table of results: window means over seeds, and paired differences to the baseline."""

from fedawe.core.metric import Metric
from fedawe.results.standings import Comparison, Difference, Standing, window
from fedawe.results.tables import MISSING, Cell, Column, Table


def summary_table(comparison: Comparison) -> Table:
    """A row per algorithm, the best first, then a row per further model."""
    metric, to = comparison.metric, comparison.baseline
    columns = [
        Column("rank", ("rank",), note="by the mean; only algorithms that completed every seed are ranked"),
        Column("algorithm", ("algorithm",), numeric=False),
        Column("seeds", ("seeds_complete", "seeds"), note="complete runs; means include no others"),
        Column(
            metric.heading, (metric.name, f"{metric.name}_std"), note="mean ± standard deviation over seeds (n − 1)"
        ),
    ]
    if to is not None:
        names = ("difference", "difference_low", "difference_high")
        kind = "Student's t" if comparison.choice.interval == "student" else "bootstrap (BCa)"
        note = f"paired by seed, mean and 95 % interval; {kind}"
        columns.append(Column(f"minus {comparison.runs.names[to]} [95 %]", names, note=note))
    rows = [_row(comparison, standing) for standing in comparison.standings]
    direction = f"; {metric.better} is better" if metric.better else ""
    caption = f"{metric.heading}, {window_words(comparison)}{direction}"
    return Table("results", caption, tuple(columns), tuple(rows), tuple(s.label for s in comparison.standings))


def _row(comparison: Comparison, standing: Standing) -> tuple[Cell, ...]:
    metric, total = comparison.metric, len(standing.values) + len(standing.missing)
    best, done = standing.rank == 1, len(standing.values)
    cells = [
        Cell(MISSING if standing.rank is None else str(standing.rank), (standing.rank,)),
        Cell(standing.name, (standing.name,), strong=best),
        Cell(str(done) if done == total else f"{done} of {total}", (done, total)),
        Cell(spread(metric, standing), (metric.plain(standing.mean), metric.plain(standing.std)), strong=best),
    ]
    if comparison.baseline is not None:
        cells.append(difference_cell(metric, standing.difference))
    return tuple(cells)


def spread(metric: Metric, standing: Standing) -> str:
    """The text 'mean ± standard deviation'; the mean alone for one seed."""
    if standing.mean is None:
        return MISSING
    mean = standing.mean
    return metric.show(mean) + ("" if standing.std is None else f" ± {metric.show(standing.std, like=mean)}")


def difference_cell(metric: Metric, d: Difference | None) -> Cell:
    """A cell with a difference and its interval; one pair has no interval."""
    if d is None:
        return Cell(MISSING, (None, None, None))
    return Cell(_with_interval(metric, d), tuple(metric.plain(value) for value in (d.mean, d.low, d.high)))


def _with_interval(metric: Metric, d: Difference) -> str:
    if d.low is None or d.high is None:
        return metric.show(d.mean, sign=True)
    like = max(abs(d.low), abs(d.high))
    low, high = metric.show(d.low, like=like), metric.show(d.high, like=like)
    return f"{metric.show(d.mean, sign=True, like=like)} [{low}, {high}]"


def window_words(comparison: Comparison) -> str:
    """A phrase that says over which evaluations the score of a run is the mean."""
    runs, rounds = comparison.runs, comparison.choice.window
    windows = {tuple(window(run, rounds)) for label in runs.labels for run in runs.complete(label)}
    if len(windows) != 1:
        return f"mean over the evaluations of the last {rounds} rounds"
    (found,) = windows
    if len(found) == 1:
        return f"evaluation after round {found[0]}"
    return f"mean over the {len(found)} evaluations of rounds {found[0]} to {found[-1]}"
