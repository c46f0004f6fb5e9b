"""What is missing from an experiment, and how its numbers were made."""

from collections import Counter
from collections.abc import Sequence

from fedawe.report.grammar import counted, listed
from fedawe.results.folder import Run, Status, display_name
from fedawe.results.standings import BOOTSTRAP_SEEDS, Comparison, window_words


def warnings(comparison: Comparison) -> list[str]:
    """Runs that do not count, and what cannot be said."""
    experiment = comparison.experiment
    total, out = len(experiment.runs), []
    told: dict[Status, str] = {
        "diverged": "diverged",
        "unfinished": "not finished",
        "damaged": "damaged on the disk",
    }
    counts = Counter(run.status for run in experiment.runs)
    for status, phrase in told.items():
        if counts[status]:
            runs = [run for run in experiment.runs if run.status == status]
            verb = "" if status == "diverged" else "is " if counts[status] == 1 else "are "
            out.append(
                f"{counts[status]} of {counted(total, 'run')} {verb}{phrase}: {_where(runs)}. No mean includes them."
            )
    if len(experiment.seeds) == 1:
        out.append("One seed: no standard deviation and no interval can be given. Three seeds are a beginning.")
    partial = [s.name for s in comparison.standings if s.rank is None and s.values and not s.latest]
    if partial:
        out.append(f"Not ranked, because seeds are missing that others have: {listed(partial)}.")
    return [*out, *experiment.problems]


def _where(runs: Sequence[Run]) -> str:
    """Which runs, by algorithm."""
    seeds: dict[str, list[str]] = {}
    for run in runs:
        seeds.setdefault(display_name(run.label), []).append(str(run.seed))
    places = [f"{name} (seed{'' if len(s) == 1 else 's'} {', '.join(s)})" for name, s in seeds.items()]
    return listed(places)


def method(comparison: Comparison) -> list[str]:
    """How to read the numbers."""
    metric = comparison.metric
    out = [
        f"A run is summed up by its {metric.title}: {window_words(comparison)}.",
        "The standard deviation is over seeds, with n − 1 in the denominator.",
        "All algorithms of one seed share the partition, the trace and the initial model, "
        "so differences are taken seed by seed.",
    ]
    if comparison.interval == "student":
        text = "Intervals are 95 % Student t intervals of the mean of these paired differences"
        if max((len(s.values) for s in comparison.standings), default=0) >= BOOTSTRAP_SEEDS:
            text += " (a bootstrap is available with --interval bootstrap)"
        else:
            text += f"; a bootstrap would mean little with fewer than {BOOTSTRAP_SEEDS} seeds"
    else:
        text = "Intervals are 95 % bootstrap intervals (BCa, 9,999 resamples of the seeds) of the mean of these"
        text += " paired differences"
    return [*out, text + ".", "They are not adjusted for there being several comparisons."]
