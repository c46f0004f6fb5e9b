"""How much each client counts in the final models, from the traces alone: the audit of an experiment."""

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

MOST_ENTRIES = 3_000_000  # of a trace for which a page computes it; larger ones are for `fedawe audit`
TENTH = 10


@dataclass(frozen=True)
class Counts:
    """Of one trace: the influence of every client under each algorithm whose model is linear in the updates."""

    seed: int
    rates: Array  # how often each client was available                                           [m]
    influences: dict[str, Influence]  # by label
    omitted: tuple[str, ...]  # display names of algorithms of which a trace does not tell

    def of_rare(self, label: str) -> float:
        """Influence over the fair share of the tenth of the clients that was available least."""
        return float(self.influences[label].fair[np.argsort(self.rates, kind="stable")[: self.tenth]].mean())

    @property
    def tenth(self) -> int:
        """How many clients are a tenth of them."""
        return max(1, len(self.rates) // TENTH)


def counts(runs: RunSet) -> Counts | None:
    """For the first seed that has a trace; None if there is none, or if no algorithm can be audited."""
    seed = next((seed for seed in runs.seeds if seed in runs.traces), None)
    if seed is None or runs.traces[seed].on.size > MOST_ENTRIES:
        return None
    trace, found, omitted = runs.traces[seed], dict[str, Influence](), []
    for label in runs.labels:
        try:
            algorithm = rebuilt(runs.header(label).get("algorithm"))
            found[label] = influence(with_probabilities(algorithm, trace.p), trace)
        except Exception:  # not linear, clipped, of a class that cannot be imported, or whatever a user's rule raises
            omitted.append(runs.names[label])
    return Counts(seed, trace.on.mean(0), found, tuple(omitted)) if found else None


def drawn(comparison: Comparison, found: Counts) -> str:
    """A row of bars for each algorithm, the baseline first, as HTML."""
    runs, order = comparison.runs, np.argsort(found.rates, kind="stable")
    styles = looks(runs.kinds)
    labels = sorted(found.influences, key=lambda label: label != comparison.baseline)
    top = min(4, max(2, int(np.ceil(max(each.fair.max() for each in found.influences.values())))))
    return "".join(
        bars(runs.names[label], found.influences[label].fair[order], styles[label], top, 48) for label in labels
    )


def told(comparison: Comparison, found: Counts | None) -> list[str]:
    """What that means for the clients that are rarely available, for the baseline and for the best algorithm."""
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
