"""What the numbers say, in sentences made from the numbers.

An advantage is claimed only where the 95 % interval of the paired differences leaves zero out.
"""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from fedawe.report.grammar import counted, listed, sentence
from fedawe.report.notes import method, warnings
from fedawe.results.folder import Experiment, display_name
from fedawe.results.metrics import METRICS, Metric
from fedawe.results.participation import by_class, gap_difference
from fedawe.results.standings import (
    Comparison,
    Difference,
    Standing,
    mean_ranks,
    paired,
    spread,
)


@dataclass(frozen=True)
class Finding:
    """A sentence or two, and what they are about."""

    topic: str
    text: str


@dataclass(frozen=True)
class Words:
    """The first sentence, the others, what is missing, and how the numbers were made."""

    headline: str
    findings: tuple[Finding, ...]
    warnings: tuple[str, ...]
    method: tuple[str, ...]


def words(comparison: Comparison) -> Words:
    """The experiment summed up."""
    headline, findings = _findings(comparison)
    return Words(headline, tuple(findings), tuple(warnings(comparison)), tuple(method(comparison)))


def _findings(comparison: Comparison) -> tuple[str, list[Finding]]:
    experiment, metric = comparison.experiment, comparison.metric
    ours, theirs = comparison.standing(experiment.the("fedawe")), comparison.standing(comparison.reference)
    if not any(standing.values for standing in comparison.standings):
        headline = "No run is complete yet, so there is nothing to compare."
        return headline, [Finding("Availability", text) for text in _availability(experiment)]
    if ours is None or theirs is None:
        absent = " and ".join(name for name, s in (("FedAWE", ours), ("FedAvg", theirs)) if s is None)
        headline = f"{absent} {'are' if ' and ' in absent else 'is'} not part of this experiment."
    else:
        headline = versus(metric, ours, theirs, ours.difference)
    about = {
        "Best on average": _best(comparison),
        "Against the best of the others": _against_best(comparison),
        "The others against FedAvg": _others(comparison),
        "x̄ and the last aggregate": _latest(comparison),
        "Class by class": _classes(comparison),
        "Availability": _availability(experiment),
        "Memory": _versions(experiment),
    }
    return headline, [Finding(topic, text) for topic, texts in about.items() for text in texts]


def _against_best(comparison: Comparison) -> list[str]:
    """FedAWE and the best of the others, unless that is FedAvg, of which the headline speaks."""
    ours = comparison.standing(comparison.experiment.the("fedawe"))
    if ours is None or ours.rank is None:
        return []
    rivals = [standing for standing in comparison.ranked if standing.label != ours.label]
    if not rivals or rivals[0].label == comparison.reference:
        return []
    d = paired(ours.values, rivals[0].values, comparison.interval)
    return [versus(comparison.metric, ours, rivals[0], d)]


def versus(metric: Metric, ours: Standing, theirs: Standing, d: Difference | None) -> str:
    """How one algorithm stands to another; never an advantage that the interval does not show."""
    a, b = ours.name, theirs.name
    if d is None:
        return f"{a} and {b} cannot be compared: there is no seed in which both completed."
    amount = _amount(metric, abs(d.mean))
    side = ("higher" if d.mean > 0 else "lower") + f" than {b}'s"
    if d.mean == 0:
        side, amount = f"the same as {b}'s", ""
    if d.low is None or d.high is None:
        return (
            f"{a}'s {metric.title} is {amount} {side} in the one seed that both completed; with one seed there is no "
            f"interval, so nothing says whether that is more than chance."
        ).replace("is  the", "is the")
    seeds = f"{len(d.seeds)} paired seeds"
    bounds = f"{metric.show(d.low)} to {metric.show(d.high)}"
    if d.sign == 0:
        return (
            f"{a} and {b} cannot be told apart: {a}'s {metric.title} is {amount} {side} on average, but the 95 % "
            f"interval, {bounds}, contains zero ({seeds})."
        ).replace("is  the", "is the")
    place = "ahead of" if (d.sign > 0) == metric.higher_is_better else "behind"
    return f"{a} is {place} {b}: its {metric.title} is {amount} {side} (95 % interval {bounds}, {seeds})."


def _amount(metric: Metric, value: float) -> str:
    if not metric.share:
        return metric.show(value)
    text = metric.show(value)
    return f"{text} point{'' if text == '1.00' else 's'}"


def _best(comparison: Comparison) -> list[str]:
    metric, ranked = comparison.metric, comparison.ranked
    if not ranked:
        return ["No algorithm completed every seed, so none is ranked."]
    unit = " %" if metric.share else ""
    first = [standing for standing in ranked if standing.rank == 1]
    text = f"{listed([s.name for s in first])} with a {metric.title} of {spread(metric, first[0])}{unit}"
    if first[0].std is not None:
        text += f" (mean ± standard deviation over {len(first[0].values)} seeds)"
    rest = ranked[len(first) :]
    if rest:
        text += f", then {rest[0].name} with {spread(metric, rest[0])}{unit}"
    if any(standing.label.startswith("fedavg-known") for standing in first):
        text += ". FedAvg-known is told the true probabilities, which nobody knows outside a simulation"
    return [text + "."]


def _others(comparison: Comparison) -> list[str]:
    """All the others against the reference, in one sentence."""
    if comparison.reference is None:
        return []
    ours, better = comparison.experiment.the("fedawe"), 1 if comparison.metric.higher_is_better else -1
    groups: dict[int, list[str]] = {1: [], -1: [], 0: []}
    for s in comparison.standings:
        if s.difference is not None and s.difference.low is not None and s.label != ours:
            groups[s.difference.sign * better].append(s.name)
    verdicts = {1: "ahead", -1: "behind", 0: "not told apart"}
    parts = [f"{verdict}: {listed(groups[sign])}" for sign, verdict in verdicts.items() if groups[sign]]
    return [sentence("; ".join(parts))] if parts else []


def _latest(comparison: Comparison) -> list[str]:
    label, metric = comparison.experiment.the("fedawe"), comparison.metric
    ours, latest = comparison.standing(label), comparison.standing(label, latest=True)
    if ours is None or latest is None:
        return []
    d = paired(latest.values, ours.values, comparison.interval)
    if d is None:
        return []
    side = "above" if d.mean > 0 else "below"
    text = (
        f"FedAWE's model is x̄, the mean of what all clients hold. Its last aggregate is {_amount(metric, abs(d.mean))} "
    )
    text += f"{side} x̄ in {metric.title}"
    if d.low is not None and d.high is not None:
        text += f" (95 % interval of the difference {metric.show(d.low)} to {metric.show(d.high)}"
        text += ", which contains zero)" if d.sign == 0 else ")"
    return [sentence(text)]


def _classes(comparison: Comparison) -> list[str]:
    """Whether accuracy follows availability: that is where a bias would show."""
    found, metric = by_class(comparison.experiment), METRICS[0]
    ours, theirs = comparison.experiment.the("fedawe"), comparison.reference
    if ours not in found or theirs not in found or ours is None or theirs is None:
        return []
    d = gap_difference(found, ours, theirs, comparison.interval)
    if d is None:
        return []
    gaps = {label: float(np.mean(list(found[label].gaps().values()))) for label in (ours, theirs)}
    text = (
        f"On the half of the classes that was there more often, {display_name(theirs)} is {_gap(metric, gaps[theirs])} "
        f"than on the other half, {display_name(ours)} {_gap(metric, gaps[ours])}"
    )
    if d.low is None or d.high is None:
        return [sentence(text + "; from one seed")]
    bounds = f"95 % interval {metric.show(d.low)} to {metric.show(d.high)}"
    if d.sign == 0:
        return [sentence(f"{text}; the two gaps cannot be told apart ({bounds} for their difference)")]
    return [
        sentence(
            f"{text}; FedAWE's gap is {_amount(metric, abs(d.mean))} {'larger' if d.sign > 0 else 'smaller'} ({bounds})"
        )
    ]


def _gap(metric: Metric, gap: float) -> str:
    return f"{_amount(metric, abs(gap))} {'better' if gap > 0 else 'worse'}"


def _versions(experiment: Experiment) -> list[str]:
    """What FedAWE had to remember."""
    label = experiment.the("fedawe")
    counts = [n for run in experiment.complete(label or "") for n in run.series("live_versions").values()]
    clients = experiment.settings.get("clients")
    if not counts or clients is None:
        return []
    return [
        f"For {clients} clients FedAWE kept {np.mean(counts):.1f} versions of the model on average, "
        f"at most {max(counts)}."
    ]


def _availability(experiment: Experiment) -> list[str]:
    if not experiment.traces:
        return []
    traces = list(experiment.traces.values())
    active = np.concatenate([trace.on.sum(1) for trace in traces])
    echoes = np.concatenate([trace.echoes() for trace in traces])
    never = sum(int((~trace.on.any(0)).sum()) for trace in traces)
    clients = traces[0].clients
    text = (
        f"On average {active.mean():.1f} of {clients} clients were there in a round ({active.min()} to {active.max()})"
    )
    empty = int((active == 0).sum())
    if empty:
        text += f", and nobody in {empty} of {len(active)} rounds"
    out = [sentence(text)]
    if len(echoes):
        text = f"A client that came had last been there {np.mean(echoes):.1f} rounds before on average"
        text += f", at most {echoes.max()}"
        if never:
            text += f"; {never} of {clients * len(traces)} clients never came"
        out.append(sentence(text))
    return [" ".join(out)]


def suite_words(comparisons: Sequence[Comparison], names: Sequence[str]) -> Words:
    """Several experiments summed up: in how many of them FedAWE is ahead of FedAvg, and who has the best mean rank."""
    groups: dict[str, list[str]] = {"ahead of": [], "behind": [], "not told apart from": [], "not compared with": []}
    for comparison, name in zip(comparisons, names, strict=True):
        ours = comparison.standing(comparison.experiment.the("fedawe"))
        d = None if ours is None else ours.difference
        sign = 0 if d is None else d.sign * (1 if comparison.metric.higher_is_better else -1)
        verdict = "ahead of" if sign > 0 else "behind" if sign < 0 else "not told apart from"
        groups["not compared with" if d is None or d.low is None else verdict].append(name)
    told = [f"{verdict} FedAvg in {len(where)} ({'; '.join(where)})" for verdict, where in groups.items() if where]
    headline = sentence(f"Of {len(comparisons)} settings, FedAWE is " + ", ".join(told))
    findings, ranks = [], sorted(mean_ranks(comparisons).items(), key=lambda item: item[1])
    if ranks:
        places = [f"{display_name(label)} {rank:.2f}" for label, rank in ranks]
        findings.append(Finding("Mean rank over the settings", f"{listed(places)}; 1 is best."))
    runs = [run for comparison in comparisons for run in comparison.experiment.runs]
    lost = Counter(str(run.status) for run in runs if run.status != "complete")
    tally = listed([f"{n} {status}" for status, n in lost.items()])
    missing = [sentence(f"{lost.total()} of {counted(len(runs), 'run')} do not count: {tally}")] if lost else []
    return Words(headline, tuple(findings), tuple(missing), ())
