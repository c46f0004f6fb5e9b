"""Sentences that describe the results of an experiment, generated from its numbers.

An advantage is claimed only where the 95 % interval of the paired differences does not contain zero.
"""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from fedawe.core.metric import Metric
from fedawe.report import influence
from fedawe.report.grammar import counted, listed, sentence
from fedawe.report.notes import method, warnings
from fedawe.results.folder import RunSet
from fedawe.results.metrics import model_name, variants_of
from fedawe.results.participation import by_class, gap_difference
from fedawe.results.standings import Comparison, Difference, Standing, mean_ranks, paired
from fedawe.results.suites import display_names
from fedawe.results.summary import spread


@dataclass(frozen=True)
class Finding:
    """One or two sentences and their topic."""

    topic: str
    text: str


@dataclass(frozen=True)
class Words:
    """The text of a section: its first sentence, findings, warnings, and how the numbers are computed."""

    headline: str
    findings: tuple[Finding, ...]
    warnings: tuple[str, ...]
    method: tuple[str, ...]


def words(comparison: Comparison) -> Words:
    """The text about an experiment."""
    about = {
        "Influence": influence.sentences(comparison, influence.influences_of(comparison.runs)),
        "Class by class": _classes(comparison),
        "Best on average": _best(comparison),
        "Against the baseline": _against_baseline(comparison),
        **_further_models(comparison),
        "Availability": _availability(comparison.runs),
        "Memory": _versions(comparison.runs),
    }
    findings = [Finding(topic, text) for topic, texts in about.items() for text in texts]
    return Words(headline(comparison), tuple(findings), tuple(warnings(comparison)), tuple(method(comparison)))


def headline(comparison: Comparison) -> str:
    """A sentence that compares the best algorithm other than the baseline with the baseline."""
    names, metric = comparison.runs.names, comparison.metric
    if not any(standing.values for standing in comparison.standings):
        return "No run is complete yet, so there is nothing to compare."
    base = comparison.standing(comparison.baseline)
    if base is None:
        only = comparison.main[0]
        text = f"There is no other algorithm to compare {only.name} with"
        return f"{text}; its {metric.title} is {_spread(metric, only)}." if metric.sign else f"{text}."
    if not metric.sign:
        return f"Nothing is ranked by {metric.title}, because no direction is declared for it."
    others = [standing for standing in comparison.ranked if standing.label != base.label]
    if not others:
        return f"No algorithm besides {names[base.label]}, the baseline, completed every seed, so none is compared."
    return versus(metric, others[0], base, others[0].difference)


def versus(metric: Metric, ours: Standing, theirs: Standing, d: Difference | None) -> str:
    """A sentence that compares two algorithms; it claims an advantage only if the interval shows it."""
    a, b = ours.name, theirs.name
    if d is None:
        return f"{a} and {b} cannot be compared: no seed was completed by both."
    side = _beside(metric, d.mean, f"{b}'s")
    if d.low is None or d.high is None:
        return (
            f"{a}'s {metric.title} is {side} in the one seed that both completed; with one seed there is no interval, "
            "so it is not known whether that is more than chance."
        )
    seeds = f"{len(d.seeds)} paired seeds"
    like = max(abs(d.low), abs(d.high))
    bounds = f"{metric.show(d.low, like=like)} to {metric.show(d.high, like=like)}"
    if d.sign == 0:
        return (
            f"There is no significant difference between {a} and {b}: {a}'s {metric.title} is {side} on average, but "
            f"the 95 % interval of the difference, {bounds}, contains zero ({seeds})."
        )
    verdict = {1: f"{a} is better than {b}", -1: f"{a} is worse than {b}", 0: f"{a} and {b} differ"}[
        metric.sign * d.sign
    ]
    return f"{verdict}: its {metric.title} is {side} (95 % interval of the difference {bounds}, {seeds})."


def _beside(metric: Metric, difference: float, other: str) -> str:
    """A phrase that compares a value with another one, from their difference."""
    if difference == 0:
        return f"the same as {other}"
    return f"{_amount(metric, difference)} {_side(difference)} than {other}"


def _side(difference: float) -> str:
    return "higher" if difference > 0 else "lower"


def _amount(metric: Metric, value: float) -> str:
    text = metric.show(abs(value))
    if metric.share:
        return f"{text} point{'' if text == '1.00' else 's'}"
    return f"{text} {metric.unit}".strip()


def _spread(metric: Metric, standing: Standing) -> str:
    return f"{spread(metric, standing)} {metric.unit}".strip()


def _best(comparison: Comparison) -> list[str]:
    metric, ranked = comparison.metric, comparison.ranked
    if not any(standing.values for standing in comparison.standings) or not metric.sign:
        return []
    if not ranked:
        return ["No algorithm completed every seed, so none is ranked."]
    first = [standing for standing in ranked if standing.rank == 1]
    text = f"{listed([s.name for s in first])} with a {metric.title} of {_spread(metric, first[0])}"
    if first[0].std is not None:
        text += f" (mean ± standard deviation over {len(first[0].values)} seeds)"
    rest = ranked[len(first) :]
    if rest:
        text += f", then {rest[0].name} with {_spread(metric, rest[0])}"
    told = [s.name for s in first if comparison.runs.header(s.label).get("needs_p")]
    if told:
        text += f". {listed(told)} is given the true probabilities, which are not known outside a simulation"
    return [text + "."]


def _against_baseline(comparison: Comparison) -> list[str]:
    """One sentence that compares all algorithms with the baseline."""
    if comparison.baseline is None or not comparison.metric.sign:
        return []
    groups: dict[int, list[str]] = {1: [], -1: [], 0: []}
    for s in comparison.main:
        if s.difference is not None and s.difference.low is not None:
            groups[comparison.verdict(s.difference)].append(s.name)
    name = comparison.runs.names[comparison.baseline]
    verdicts = {1: f"better than {name}", -1: "worse", 0: "no significant difference"}
    if not groups[1]:
        verdicts[-1] = f"worse than {name}"
    parts = [f"{verdict}: {listed(groups[sign])}" for sign, verdict in verdicts.items() if groups[sign]]
    return [sentence("; ".join(parts))] if parts else []


def _further_models(comparison: Comparison) -> dict[str, list[str]]:
    """Sentences that compare further models, such as FedAWE's last aggregate, with those that are ranked, by topic."""
    metric, out = comparison.metric, dict[str, list[str]]()
    for variant in variants_of(comparison.runs):
        said = []
        for other in (s for s in comparison.standings if s.variant == variant):
            ours = comparison.standing(other.label)
            d = None if ours is None else paired(other.values, ours.values, comparison.choice.interval)
            if ours is None or d is None:
                continue
            text = _beside(metric, d.mean, f"that of {ours.name}'s model")
            if d.low is not None and d.high is not None:
                text += f" (95 % interval {metric.show(d.low)} to {metric.show(d.high)}"
                text += ", no significant difference)" if d.sign == 0 else ")"
            said.append(text)
        if said:
            topic = model_name(variant)
            out[topic[0].upper() + topic[1:]] = [sentence(f"its {metric.title} is {'; '.join(said)}")]
    return out


def _classes(comparison: Comparison) -> list[str]:
    """A sentence on whether the metric depends on the availability of a class, which shows a bias."""
    found, theirs, names = by_class(comparison), comparison.baseline, comparison.runs.names
    ours = next((s.label for s in comparison.ranked if s.label != theirs and s.label in found), None)
    if ours is None or theirs is None or theirs not in found:
        return []
    d = gap_difference(found, ours, theirs, comparison.choice.interval)
    if d is None:
        return []
    metric = found[ours].metric
    gaps = {label: float(np.mean(list(found[label].gaps().values()))) for label in (ours, theirs)}
    text = (
        f"On the half of the classes that was available more often, the {metric.title} of {names[theirs]} is "
        f"{_amount(metric, gaps[theirs])} {_side(gaps[theirs])} than on the other half, that of {names[ours]} "
        f"{_amount(metric, gaps[ours])} {_side(gaps[ours])}"
    )
    if d.low is None or d.high is None:
        return [sentence(text + "; from one seed")]
    bounds = f"95 % interval of their difference {metric.show(d.low)} to {metric.show(d.high)}"
    if d.sign == 0:
        return [sentence(f"{text}; there is no significant difference between the two gaps ({bounds})")]
    return [sentence(f"{text}; the two gaps differ by {_amount(metric, d.mean)} ({bounds})")]


def _versions(runs: RunSet) -> list[str]:
    """A sentence on the number of models that the server kept, for algorithms that record it."""
    said = []
    for label in runs.labels:
        counts = [n for run in runs.complete(label) for n in run.series("live_versions").values()]
        if counts:
            said.append(f"{runs.names[label]} kept {np.mean(counts):.1f} on average, at most {max(counts)}")
    clients = runs.settings.get("clients")
    return [f"Versions of the model, for {clients} clients: {'; '.join(said)}."] if said and clients else []


def _availability(runs: RunSet) -> list[str]:
    if not runs.traces:
        if runs.problems or not any(clients.p is not None for clients in runs.clients.values()):
            return []
        clients, rounds = (runs.settings.get(name, 0) for name in ("clients", "rounds"))
        return [
            f"The availability of {clients:,} clients over {rounds:,} rounds was drawn round by round and not stored; "
            "the experiment and the probabilities of the clients determine it."
        ]
    traces = list(runs.traces.values())
    active = np.concatenate([trace.on.sum(1) for trace in traces])
    echoes = np.concatenate([trace.echoes() for trace in traces])
    never = sum(int((~trace.on.any(0)).sum()) for trace in traces)
    clients = traces[0].clients
    text = f"On average {active.mean():.1f} of {clients} clients were available in a round"
    text += f" ({active.min()} to {active.max()})"
    empty = int((active == 0).sum())
    if empty:
        text += f", and none in {empty} of {len(active)} rounds"
    out = [sentence(text)]
    if len(echoes):
        text = f"An available client was last available {np.mean(echoes):.1f} rounds before on average"
        text += f", at most {echoes.max()}"
        if never:
            text += f"; {never} of {clients * len(traces)} clients were never available"
        out.append(sentence(text))
    return [" ".join(out)]


def suite_words(comparisons: Sequence[Comparison], names: Sequence[str]) -> Words:
    """The text about several experiments: the algorithm of the best mean rank against the baseline in each of them."""
    ranks = sorted(mean_ranks(comparisons).items(), key=lambda item: item[1])
    shown = display_names(comparisons)
    bases = {comparison.baseline for comparison in comparisons}
    best = next((label for label, _ in ranks if label not in bases), None)
    base = shown[next(iter(bases)) or ""] if len(bases) == 1 and None not in bases else "its baseline"
    if best is None:
        headline = f"No algorithm besides the baseline is ranked in all of {len(comparisons)} settings."
    else:
        verdicts = {1: f"better than {base}", -1: f"worse than {base}", 0: f"not significantly different from {base}"}
        groups: dict[str, list[str]] = {**{text: [] for text in verdicts.values()}, f"not compared with {base}": []}
        for comparison, name in zip(comparisons, names, strict=True):
            ours = comparison.standing(best)
            d = None if ours is None else ours.difference
            known = d is not None and d.low is not None
            groups[verdicts[comparison.verdict(d)] if known else f"not compared with {base}"].append(name)
        told = [f"{verdict} in {len(where)} ({'; '.join(where)})" for verdict, where in groups.items() if where]
        headline = f"Of {len(comparisons)} settings, {shown[best]}, which has the best mean rank, is {', '.join(told)}."
    findings = []
    if ranks:
        places = [f"{shown[label]} {rank:.2f}" for label, rank in ranks]
        findings.append(Finding("Mean rank over the settings", f"{listed(places)}; 1 is best."))
    runs = [run for comparison in comparisons for run in comparison.runs.runs]
    lost = Counter(str(run.status) for run in runs if run.status != "complete")
    tally = listed([f"{n} {status}" for status, n in lost.items()])
    missing = [sentence(f"means omit {lost.total()} of {counted(len(runs), 'run')}: {tally}")] if lost else []
    return Words(headline, tuple(findings), tuple(missing), ())
