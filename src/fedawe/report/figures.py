"""The numbers behind the page's figures, thinned so that the page stays light; the page draws them."""

import base64
import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from fedawe.availability.trace import Trace
from fedawe.core.palette import Look, looks
from fedawe.report.plots.outcome import interesting_range
from fedawe.results.curves import Curve, curve
from fedawe.results.folder import Array, Experiment, display_name
from fedawe.results.metrics import Metric, metrics_of
from fedawe.results.participation import Counts, by_class, echo_counts, staleness_counts
from fedawe.results.standings import Comparison

POINTS = 200  # of a curve
ROWS, COLUMNS = 100, 500  # of the stripes: more clients are left out, more rounds are averaged
BINS = 60  # of the staleness histograms

Json = dict[str, Any]


def figures(comparison: Comparison, stripes: int) -> Json:
    """All that the figures of one experiment need; stripes for so many seeds at most."""
    experiment = comparison.experiment
    return {
        "algorithms": _algorithms(experiment),
        "metrics": [_metric(experiment, metric, comparison) for metric in metrics_of(experiment)],
        "partial": _partial(comparison),
        "traces": [_trace(seed, trace) for seed, trace in list(experiment.traces.items())[:stripes]],
        "probabilities": _probabilities(experiment),
        "echoes": _histogram([echo_counts(trace) for trace in experiment.traces.values()]),
        "staleness": _histogram([staleness_counts(trace) for trace in experiment.traces.values()]),
        "classes": _classes(comparison),
    }


def _algorithms(experiment: Experiment) -> list[Json]:
    def entry(key: str, name: str, look: Look, shown: bool) -> Json:
        return {"key": key, "name": name, "light": look.light, "dark": look.dark, "dash": look.dash} | {
            "strong": look.strong and shown,
            "shown": shown,
        }

    styles = looks(experiment.labels)
    out = [entry(label, display_name(label), look, True) for label, look in styles.items()]
    for label, look in styles.items():
        if any(name.startswith("latest_") for run in experiment.of(label) for name in _fields(run.record.evaluations)):
            faint = Look(look.light, look.dark, "dot")
            out.append(entry(f"{label}/latest", f"{display_name(label)}, last aggregate", faint, False))
    return out


def _fields(evaluations: Sequence[Json]) -> list[str]:
    return list(evaluations[0]) if evaluations else []


def _metric(experiment: Experiment, metric: Metric, comparison: Comparison) -> Json:
    """The curves of one metric; seed by seed only for the metric that decides."""
    decides, curves = metric == comparison.metric, dict[str, Json]()
    for label in experiment.labels:
        for key, name in ((label, metric.name), (f"{label}/latest", f"latest_{metric.name}")):
            found = curve(experiment.complete(label), name)
            if found is not None:
                curves[key] = _curve(found, metric, decides)
    # Nearly always all curves are evaluated at the same rounds, which then need not be repeated.
    rounds: list[int] = next((drawn["x"] for drawn in curves.values()), [])
    for drawn in curves.values():
        if drawn["x"] == rounds:
            del drawn["x"]
    out = {"name": metric.name, "title": metric.title, "share": metric.share, "rounds": rounds, "curves": curves}
    finals = [s.mean for s in comparison.standings if s.mean is not None and not s.latest]
    if decides and finals:
        scale = 100 if metric.share else 1
        out["range"] = [short(bound) for bound in interesting_range([scale * final for final in finals], metric)]
    return out


def _curve(found: Curve, metric: Metric, seeds: bool) -> Json:
    keep, scale = thinned(len(found.rounds)), 100 if metric.share else 1
    out: Json = {
        "x": [int(n) for n in found.rounds[keep]],
        "mean": shorts(scale * found.mean[keep]),
        "n": len(found.seeds),
        "every": keep[1] - keep[0] if len(keep) > 1 else 1,
    }
    if len(found.seeds) > 1:
        out["std"] = shorts(scale * found.std[keep])
    if seeds:
        rows = zip(found.seeds, found.by_seed, strict=True)
        out["seeds"] = [{"seed": seed, "y": shorts(scale * row[keep])} for seed, row in rows]
    return out


def thinned(n: int) -> list[int]:
    """Which of n points are drawn: all, or every k-th and the last.

    >>> thinned(3), len(thinned(1001)), thinned(1001)[-1]
    ([0, 1, 2], 168, 1000)
    """
    step = max(1, math.ceil(n / POINTS))
    keep = list(range(0, n, step))
    return keep if not keep or keep[-1] == n - 1 else [*keep, n - 1]


def _partial(comparison: Comparison) -> list[Json]:
    """The runs that do not count, as far as they went."""
    metric, out = comparison.metric, []
    for run in comparison.experiment.runs:
        series = run.series(metric.name)
        if run.status != "complete" and series:
            rounds = sorted(series)
            keep = [rounds[n] for n in thinned(len(rounds))]
            values = np.array([series[n] for n in keep]) * (100 if metric.share else 1)
            out.append({"key": run.label, "seed": run.seed, "status": run.status, "x": keep, "y": shorts(values)})
    return out


def _trace(seed: int, trace: Trace) -> Json:
    """Who was there when, the most available client first, and how many were there."""
    shares = trace.on.mean(0)
    order = np.argsort(-shares, kind="stable")
    if len(order) > ROWS:
        order = order[np.linspace(0, len(order) - 1, ROWS).round().astype(int)]
    width = math.ceil(trace.rounds / COLUMNS) if trace.rounds > 2 * COLUMNS else 1
    starts = np.arange(0, trace.rounds, width)
    there = np.add.reduceat(trace.on[:, order].astype(np.float64), starts, axis=0)  # [columns, rows]
    widths = np.diff(np.append(starts, trace.rounds))
    levels = np.rint(there / widths[:, None] * 255).astype(np.uint8).T  # [rows, columns]
    packed = levels.tobytes() if width > 1 else np.packbits(levels > 0, axis=1).tobytes()
    active = np.add.reduceat(trace.on.sum(1), starts) / widths
    return {
        "seed": seed,
        "clients": trace.clients,
        "width": width,
        "columns": len(starts),
        "order": order.tolist(),
        "shares": shorts(100 * shares[order]),
        "stripes": base64.b64encode(packed).decode(),
        "active": shorts(active),
    }


def _probabilities(experiment: Experiment) -> Json | None:
    """How the base probabilities are spread; of a recorded trace, how often each client was there."""
    found = [clients.p for clients in experiment.clients.values() if clients.p is not None]
    known = bool(found)
    if not known:
        found = [trace.on.mean(0) for trace in experiment.traces.values()]
    if not found:
        return None
    counts, edges = np.histogram(np.clip(np.concatenate(found), 0, 1), bins=20, range=(0, 1))
    return {"x": shorts((edges[:-1] + edges[1:]) / 2), "y": counts.tolist(), "known": known}


def _histogram(counts: Sequence[Counts]) -> Json | None:
    """Shares in percent by the number of rounds, several rounds in a bin where there are many."""
    if not counts:
        return None
    total = np.zeros(max(len(c) for c in counts))
    for c in counts:
        total[: len(c)] += c
    if total.sum() == 0:
        return None
    width = math.ceil((len(total) - 1) / BINS)
    starts = np.arange(1, len(total), width)
    shares = 100 * np.add.reduceat(total, starts) / total.sum()
    return {"from": starts.tolist(), "y": shorts(shares), "width": width}


def _classes(comparison: Comparison) -> Json | None:
    found = by_class(comparison.experiment)
    if not found:
        return None
    views: dict[str, Json] = {}
    for label, view in found.items():
        views[label] = {"x": shorts(100 * view.availability.mean(0)), "y": shorts(100 * view.accuracy.mean(0))}
        views[label]["classes"] = [", ".join(map(str, dict.fromkeys(place))) for place in view.classes.T.tolist()]
        base = found.get(comparison.reference or "")
        if base is not None and base.seeds == view.seeds:
            views[label]["difference"] = shorts(100 * (view.accuracy - base.accuracy).mean(0))
    reference = None if comparison.reference not in found else display_name(str(comparison.reference))
    return {"views": views, "reference": reference, "seeds": max(len(view.seeds) for view in found.values())}


def short(value: float) -> float:
    """Five figures are more than a screen can show."""
    return float(f"{value:.5g}")


def shorts(values: Array) -> list[float]:
    """Each of them."""
    return [short(float(value)) for value in values]
