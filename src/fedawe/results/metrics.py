"""The metrics in the evaluations of an experiment, and the one by which algorithms are ranked."""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from fedawe.core.errors import UserError
from fedawe.core.metric import Metric
from fedawe.results.folder import RunResult, RunSet

# Further models that are evaluated besides the one that is ranked: the prefix of their metrics, and their names.
MODELS = {"latest": "last aggregate", "received": "mean of the models received"}


def model_name(variant: str) -> str:
    """The name of a further model for people, from the prefix of its metrics."""
    return MODELS.get(variant, variant)


def metrics_of(runs: RunSet) -> tuple[Metric, ...]:
    """The metrics in evaluations: the one that decides, others with a direction, undeclared ones, diagnostics.

    If nothing has been evaluated yet, they are the declared ones.
    """
    declared, present = _declared(runs), _present(runs)
    further = {f"{variant}_{name}" for variant in variants_of(runs) for name in present}
    known = [metric for name, metric in declared.items() if name in present or not present]
    unknown = [Metric(name, better=None) for name in present if name not in declared and name not in further]
    return tuple(sorted([*unknown, *known], key=lambda metric: (not metric.decides, metric.better is None)))


def variants_of(runs: RunSet) -> tuple[str, ...]:
    """The prefixes of further models: `latest` if evaluations have latest_test_accuracy and so on."""
    declared = _declared(runs)
    found = (variants_in(line, declared, run.header) for run in runs.runs for line in _ends(run))
    return tuple(dict.fromkeys(variant for each in found for variant in each))


def variants_in(line: Mapping[str, Any], declared: Mapping[str, Metric], header: Mapping[str, Any]) -> tuple[str, ...]:
    """The prefixes of further models in one evaluation: those in the header, or else those found in metric names."""
    if isinstance(models := header.get("models"), list):
        return tuple(map(str, models))
    own = [name for name, metric in declared.items() if metric.better is not None and name in line]
    found: dict[str, None] = {}
    for name in line if own else ():
        variant = name.removesuffix(f"_{own[0]}")
        if variant != name and name not in declared and all(f"{variant}_{each}" in line for each in own):
            found[variant] = None
    return tuple(found)


def declared_in(header: Mapping[str, Any]) -> dict[str, Metric]:
    """The metrics that a header declares, by name."""
    found = [Metric.from_fields(fields) for fields in header.get("metrics") or [] if isinstance(fields, dict)]
    return {metric.name: metric for metric in found if metric is not None}


def deciding(runs: RunSet, name: str | None = None) -> tuple[Metric, str]:
    """The metric by which algorithms are ranked, and a remark on that choice, which may be empty."""
    found = metrics_of(runs)
    if name is not None:
        metric = _named(runs, name)
        note = f"Nothing is ranked by {metric.title}: it does not declare whether higher or lower is better."
        return metric, note if metric.better is None else ""
    if not found:
        return Metric("metric", "metric", better=None), ""
    first = found[0]
    if first.decides:
        return first, ""
    if first.better is not None:
        return first, (
            f"No metric is declared to decide; algorithms are ranked by {first.title}, the first metric for which "
            f"{first.better} is declared to be better."
        )
    missing = [metric.name for metric in _declared(runs).values() if metric.better is not None]
    if missing:
        return first, f"Nothing is ranked: no evaluation has {' or '.join(missing)}."
    return first, (
        "Nothing is ranked: no metric declares whether higher or lower is better. A task declares it with "
        "fedawe.Metric(name, better=...)."
    )


def _named(runs: RunSet, name: str) -> Metric:
    found = metrics_of(runs)
    further = [
        replace(metric, name=f"{variant}_{metric.name}", title=f"{metric.title}, {model_name(variant)}", decides=False)
        for variant in variants_of(runs)
        for metric in found
        if metric.better is not None
    ]
    for metric in (*found, *further):
        if name in (metric.name, metric.title):
            return metric
    known = ", ".join(metric.name for metric in found) or "none yet"
    raise UserError(f"unknown metric {name!r} in {runs.path}; there are {known}")


def _declared(runs: RunSet) -> dict[str, Metric]:
    """The metrics that the headers of all algorithms declare, by name."""
    out: dict[str, Metric] = {}
    for label in runs.labels:
        for name, metric in declared_in(runs.header(label)).items():
            out.setdefault(name, metric)
    return out


def _present(runs: RunSet) -> dict[str, None]:
    """The names of all numbers in evaluations, in their order."""
    return {
        name: None
        for run in runs.runs
        for line in _ends(run)
        for name, value in line.items()
        if name != "round" and not name.endswith("_seconds") and _is_number(value)
    }


def _ends(run: RunResult) -> tuple[dict[str, Any], ...]:
    """The first and the last evaluation of a run: round 0 has no diagnostics, an empty round has no echo."""
    return (*run.lines[:1], *run.lines[-1:])


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)
