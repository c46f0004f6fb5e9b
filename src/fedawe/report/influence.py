"""The audit of an experiment: the influence of each client on the final models, computed from the trace alone."""

from dataclasses import dataclass

import numpy as np

from fedawe.algorithms.facts import with_probabilities
from fedawe.audit.influence import Influence, influence
from fedawe.audit.notebook import bars
from fedawe.core.describe import rebuilt
from fedawe.core.palette import looks
from fedawe.report.grammar import listed, sentence
from fedawe.results.folder import Array, RunSet
from fedawe.results.standings import Comparison

MOST_ENTRIES = 3_000_000  # rounds times clients for which a page computes it; larger traces need `fedawe audit`
TENTH = 10


@dataclass(frozen=True)
class Influences:
    """The influence of every client in one trace, under each algorithm whose model is linear in the updates."""

    seed: int
    rates: Array  # how often each client was available                                           [m]
    influences: dict[str, Influence]  # by label
    omitted: tuple[str, ...]  # display names of algorithms that cannot be audited

    def of_rare(self, label: str) -> float:
        """Mean influence, relative to the fair share, of the tenth of the clients that was available least."""
        return float(self.influences[label].fair[np.argsort(self.rates, kind="stable")[: self.tenth]].mean())

    @property
    def tenth(self) -> int:
        """The number of clients in a tenth of them, at least one."""
        return max(1, len(self.rates) // TENTH)


def influences_of(runs: RunSet) -> Influences | None:
    """The influences for the first seed with a trace; None without a trace or an algorithm that can be audited."""
    seed = next((seed for seed in runs.seeds if seed in runs.traces), None)
    if seed is None or runs.traces[seed].on.size > MOST_ENTRIES:
        return None
    trace, found, omitted = runs.traces[seed], dict[str, Influence](), []
    for label in runs.labels:
        try:
            algorithm = rebuilt(runs.header(label).get("algorithm"))
            found[label] = influence(with_probabilities(algorithm, trace.p), trace)
        except Exception:  # not linear, clipped, a class that cannot be imported, or an error of a user's algorithm
            omitted.append(runs.names[label])
    return Influences(seed, trace.on.mean(0), found, tuple(omitted)) if found else None


def bars_of(comparison: Comparison, found: Influences) -> str:
    """A row of bars for each algorithm, the baseline first, as HTML."""
    runs, order = comparison.runs, np.argsort(found.rates, kind="stable")
    styles = looks(runs.kinds)
    labels = sorted(found.influences, key=lambda label: label != comparison.baseline)
    top = min(4, max(2, int(np.ceil(max(each.fair.max() for each in found.influences.values())))))
    return "".join(
        bars(runs.names[label], found.influences[label].fair[order], styles[label], top, 48) for label in labels
    )


def sentences(comparison: Comparison, found: Influences | None) -> list[str]:
    """A sentence on the influence of rarely available clients under the baseline and the best algorithm."""
    if found is None:
        return []
    ranked = [standing.label for standing in comparison.ranked]
    chosen = [label for label in (comparison.baseline, *ranked) if label in found.influences]
    names = comparison.runs.names
    said = [f"{found.of_rare(label):.2f} under {names[label]}" for label in dict.fromkeys(chosen[:2]) if label]
    if not said or found.rates.max() == found.rates.min():
        return []
    many = f"{found.tenth} clients that were available least" if found.tenth > 1 else "client that was available least"
    return [
        sentence(f"of a fair share of influence, the {many} had {listed(said)} (from the trace of seed {found.seed})")
    ]
