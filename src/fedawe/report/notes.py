"""Warnings about incomplete experiments, and notes on how the numbers are computed."""

from collections import Counter
from collections.abc import Sequence

from fedawe.report.grammar import counted, listed
from fedawe.results.folder import RunResult, RunSet, Status
from fedawe.results.standings import BOOTSTRAP_SEEDS, Comparison
from fedawe.results.summary import window_words


def warnings(comparison: Comparison) -> list[str]:
    """Warnings about runs that are not included, missing seeds and damaged files."""
    runs, out = comparison.runs, [comparison.note] if comparison.note else []
    told: dict[Status, str] = {
        "diverged": "diverged",
        "unfinished": "not finished",
        "damaged": "damaged on the disk",
    }
    counts = Counter(run.status for run in runs.runs)
    for status, phrase in told.items():
        if counts[status]:
            found = [run for run in runs.runs if run.status == status]
            verb = "" if status == "diverged" else "is " if counts[status] == 1 else "are "
            total = counted(len(runs.runs), "run")
            out.append(f"{counts[status]} of {total} {verb}{phrase}: {_where(runs, found)}. No mean includes them.")
    if len(runs.seeds) == 1:
        out.append("One seed: no standard deviation and no interval can be given. Use at least three seeds.")
    partial = [s.name for s in comparison.main if s.rank is None and s.values]
    if partial and comparison.metric.sign:
        out.append(f"Not ranked, because they lack seeds that others have: {listed(partial)}.")
    return [*out, *runs.problems]


def _where(runs: RunSet, found: Sequence[RunResult]) -> str:
    """The names of the runs, by algorithm."""
    seeds: dict[str, list[str]] = {}
    for label in runs.labels:
        for run in found:
            if run.label == label:
                seeds.setdefault(runs.names[label], []).append(str(run.seed))
    places = [f"{name} (seed{'' if len(s) == 1 else 's'} {', '.join(s)})" for name, s in seeds.items()]
    return listed(places)


def method(comparison: Comparison) -> list[str]:
    """Notes on how the numbers are computed."""
    metric, choice = comparison.metric, comparison.choice
    direction = f" ({metric.better} is better)" if metric.better else ""
    out = [
        f"The score of a run is its {metric.title}{direction}: {window_words(comparison)}. "
        "Choose with --metric and --window.",
        "The standard deviation is over seeds, with n − 1 in the denominator.",
    ]
    if comparison.baseline is not None:
        why = "" if choice.baseline else "; choose another with --baseline"
        out.append(f"The baseline is {comparison.runs.names[comparison.baseline]}{why}.")
    out.append(
        "All algorithms of one seed share the partition, the trace and the initial model, "
        "so differences are taken seed by seed."
    )
    if choice.interval == "student":
        text = "Intervals are 95 % Student t intervals of the mean of these paired differences"
        if max((len(s.values) for s in comparison.standings), default=0) >= BOOTSTRAP_SEEDS:
            text += " (a bootstrap is available with --interval bootstrap)"
    else:
        text = "Intervals are 95 % bootstrap intervals (BCa, 9,999 resamples of the seeds) of the mean of these"
        text += " paired differences"
    return [
        *out,
        f"{text}.",
        "A difference is called significant where its interval does not contain zero. Intervals are not adjusted for "
        "several comparisons, nor for the choice of the best algorithm by the same numbers.",
    ]
