"""The data of the figures on the report page, thinned to keep the page small; the page draws them."""

import base64
import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from fedawe.availability.trace import Trace
from fedawe.core.metric import Metric
from fedawe.core.palette import Look, looks
from fedawe.results.curves import Curve, curve, logarithmic
from fedawe.results.folder import Array, RunSet
from fedawe.results.metrics import metrics_of, variants_of
from fedawe.results.participation import Counts, by_class, echo_counts, staleness_counts, total_counts
from fedawe.results.standings import Comparison

POINTS = 200  # largest number of points of a curve
ROWS, COLUMNS = 100, 500  # of the availability figure: of more clients some are omitted, more rounds are averaged
BINS = 60  # bins of the staleness histograms

Json = dict[str, Any]


def figures(comparison: Comparison, stripes: int) -> Json:
    """The data of all figures of one experiment; traces are drawn for at most `stripes` seeds."""
    runs = comparison.runs
    return {
        "algorithms": _algorithms(comparison),
        "metrics": [_metric(metric, comparison) for metric in _shown(comparison)],
        "partial": _partial(comparison),
        "traces": [_trace(seed, trace) for seed, trace in list(runs.traces.items())[:stripes]],
        "probabilities": _probabilities(runs),
        "echoes": _histogram([echo_counts(trace) for trace in runs.traces.values()]),
        "staleness": _histogram([staleness_counts(trace) for trace in runs.traces.values()]),
        "classes": _classes(comparison),
    }


def _shown(comparison: Comparison) -> list[Metric]:
    """The metrics to choose from, first the one by which the algorithms are compared."""
    others = [metric for metric in metrics_of(comparison.runs) if metric.name != comparison.metric.name]
    return [comparison.metric, *others]


def _algorithms(comparison: Comparison) -> list[Json]:
    runs, strong = comparison.runs, comparison.emphasised

    def entry(key: str, name: str, look: Look, shown: bool) -> Json:
        return {"key": key, "name": name, "light": look.light, "dark": look.dark, "dash": look.dash} | {
            "strong": key in strong,
            "shown": shown,
        }

    styles = looks(runs.kinds)
    out = [entry(label, runs.names[label], look, True) for label, look in styles.items()]
    for standing in comparison.standings:
        if standing.variant:
            look = styles[standing.label]
            faint = Look(look.light, look.dark, "dot")
            out.append(entry(f"{standing.label}/{standing.variant}", standing.name, faint, False))
    return out


def _metric(metric: Metric, comparison: Comparison) -> Json:
    """The curves of one metric; seed by seed only for the metric that is compared."""
    runs, compared, found = comparison.runs, metric == comparison.metric, dict[str, Curve]()
    for label in runs.labels:
        names = {label: metric.name, **{f"{label}/{each}": f"{each}_{metric.name}" for each in variants_of(runs)}}
        for key, name in names.items():
            line = curve(runs.complete(label), name)
            if line is not None and line.by_seed.ndim == 2:
                found[key] = line
    curves = {key: _curve(line, metric, compared) for key, line in found.items()}
    # Usually all curves have the same rounds, which are then stored once.
    rounds: list[int] = next((drawn["x"] for drawn in curves.values()), [])
    for drawn in curves.values():
        if drawn["x"] == rounds:
            del drawn["x"]
    log = logarithmic(metric, list(found.values()))
    out: Json = {
        "name": metric.name,
        "title": metric.title,
        "unit": metric.unit,
        "share": metric.share,
        "log": log,
        "rounds": rounds,
        "curves": curves,
    }
    finals = [s.mean for s in comparison.main if s.mean is not None]
    finals += [float(line.mean[-1]) for key, line in found.items() if key in runs.labels and len(line.rounds)]
    if compared and finals and metric.sign:
        scale = 100 if metric.share else 1
        out["end"] = [short(bound) for bound in end_range([scale * final for final in finals], metric, log)]
    return out


def end_range(finals: Sequence[float], metric: Metric, log: bool) -> tuple[float, float]:
    """The range of the results and of the ends of curves, with more space on the side from which curves come.

    >>> end_range([2.0, 4.0], Metric("loss", better="lower"), log=False)
    (1.2, 7.0)
    """
    values = [math.log10(final) for final in finals] if log else list(finals)
    least = 4.0 if metric.share else 1e-3 * max(abs(value) for value in values)
    spread = max(max(values) - min(values), least) or 1.0
    behind, ahead = 1.5 * spread, 0.4 * spread
    below, above = (behind, ahead) if metric.sign > 0 else (ahead, behind)
    low, high = min(values) - below, max(values) + above
    if metric.share:
        return max(0.0, low), min(100.0, high)
    return (10**low, 10**high) if log else (low, high)


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
    """The indices of the points that are drawn, of n: all, or every k-th and the last.

    >>> thinned(3), len(thinned(1001)), thinned(1001)[-1]
    ([0, 1, 2], 168, 1000)
    """
    step = max(1, math.ceil(n / POINTS))
    keep = list(range(0, n, step))
    return keep if not keep or keep[-1] == n - 1 else [*keep, n - 1]


def _partial(comparison: Comparison) -> list[Json]:
    """The curves of runs that are not complete."""
    metric, out = comparison.metric, []
    for run in comparison.runs.runs:
        series = run.series(metric.name)
        if run.status != "complete" and series:
            rounds = sorted(series)
            keep = [rounds[n] for n in thinned(len(rounds))]
            values = np.array([series[n] for n in keep]) * (100 if metric.share else 1)
            out.append({"key": run.label, "seed": run.seed, "status": run.status, "x": keep, "y": shorts(values)})
    return out


def _trace(seed: int, trace: Trace) -> Json:
    """The availability of clients over the rounds, the most available client first, and the number available."""
    shares = trace.on.mean(0)
    order = np.argsort(-shares, kind="stable")
    if len(order) > ROWS:
        order = order[np.linspace(0, len(order) - 1, ROWS).round().astype(int)]
    width = math.ceil(trace.rounds / COLUMNS) if trace.rounds > 2 * COLUMNS else 1
    starts = np.arange(0, trace.rounds, width)
    available = np.add.reduceat(trace.on[:, order].astype(np.float64), starts, axis=0)  # [columns, rows]
    widths = np.diff(np.append(starts, trace.rounds))
    levels = np.rint(available / widths[:, None] * 255).astype(np.uint8).T  # [rows, columns]
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


def _probabilities(runs: RunSet) -> Json | None:
    """A histogram of the base probabilities; for a recorded trace, of the shares of rounds in which clients were
    available."""
    found = [clients.p for clients in runs.clients.values() if clients.p is not None]
    known = bool(found)
    if not known:
        found = [trace.on.mean(0) for trace in runs.traces.values()]
    if not found:
        return None
    counts, edges = np.histogram(np.clip(np.concatenate(found), 0, 1), bins=20, range=(0, 1))
    return {"x": shorts((edges[:-1] + edges[1:]) / 2), "y": counts.tolist(), "known": known}


def _histogram(counts: Sequence[Counts]) -> Json | None:
    """A histogram in percent over numbers of rounds; a bin has several rounds if there are many."""
    if not counts:
        return None
    found = total_counts(counts)
    if found.sum() == 0:
        return None
    width = math.ceil((len(found) - 1) / BINS)
    starts = np.arange(1, len(found), width)
    shares = 100 * np.add.reduceat(found, starts) / found.sum()
    return {"from": starts.tolist(), "y": shorts(shares), "width": width}


def _classes(comparison: Comparison) -> Json | None:
    found = by_class(comparison)
    if not found:
        return None
    metric = next(iter(found.values())).metric
    scale = 100 if metric.share else 1
    views: dict[str, Json] = {}
    for label, view in found.items():
        views[label] = {"x": shorts(100 * view.availability.mean(0)), "y": shorts(scale * view.values.mean(0))}
        views[label]["classes"] = [", ".join(map(str, dict.fromkeys(place))) for place in view.classes.T.tolist()]
        base = found.get(comparison.baseline or "")
        if base is not None and base.seeds == view.seeds:
            views[label]["difference"] = shorts(scale * (view.values - base.values).mean(0))
    to = None if comparison.baseline not in found else comparison.runs.names[str(comparison.baseline)]
    most = max(len(view.seeds) for view in found.values())
    return {"views": views, "baseline": to, "seeds": most, "heading": metric.heading, "share": metric.share}


def short(value: float) -> float:
    """The value rounded to five digits."""
    return float(f"{value:.5g}")


def shorts(values: Array) -> list[float]:
    """The values rounded to five digits."""
    return [short(float(value)) for value in values]
