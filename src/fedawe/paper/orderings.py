"""Which of the paper's orderings of algorithms hold in our runs, and the mean ranks of the algorithms."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations

from fedawe.paper.beside import Setting, text_cell
from fedawe.paper.found import means
from fedawe.paper.plan import NAMES
from fedawe.paper.published import Accuracy
from fedawe.results.significance import LEVEL, holm, p_value
from fedawe.results.standings import paired
from fedawe.results.tables import MISSING, Cell, Column, Table

PAPER_SEEDS = 3


@dataclass(frozen=True)
class Orderings:
    """How many of the paper's orderings of two algorithms by mean test accuracy hold in our runs."""

    hold: int = 0
    of: int = 0
    clear_hold: int = 0
    clear_of: int = 0  # orderings that are clear: beyond two standard errors in the paper
    reversed_surely: int = 0  # reversed here, significant at 5 % after Holm's correction for all orderings
    fedawe_hold: int = 0
    fedawe_of: int = 0

    def words(self) -> str:
        """The numbers in sentences."""
        if not self.of:
            return "There is nothing yet to compare the paper's orderings with."
        return (
            f"Of the paper's {self.of} orderings of two algorithms by mean test accuracy {self.hold} hold here; of the "
            f"{self.clear_of} that are beyond two standard errors there {self.clear_hold} hold. "
            f"{self.reversed_surely} are reversed significantly (5 %, paired, corrected by Holm's method). "
            f"Of the {self.fedawe_of} that involve FedAWE {self.fedawe_hold} hold."
        )


def orderings(settings: Sequence[Setting]) -> Orderings:
    """Count the orderings over all settings; two algorithms with equal means in the paper are not ordered."""
    found = {
        (place, better, worse): (setting.test[better], setting.test[worse], clear)
        for place, setting in enumerate(settings)
        for better, worse, clear in _ordered(setting)
    }
    corrected = holm({key: p_value(ours, theirs) for key, (ours, theirs, _) in found.items()})
    counts = dict.fromkeys(Orderings.__dataclass_fields__, 0)
    for key, (ours, theirs, clear) in found.items():
        if (difference := paired(ours, theirs)) is None:
            continue
        holds, fedawe, p = difference.mean > 0, "fedawe" in key, corrected[key]
        for name, counted in (
            ("hold", holds),
            ("of", True),
            ("clear_hold", clear and holds),
            ("clear_of", clear),
            ("reversed_surely", difference.mean < 0 and p is not None and p < LEVEL),
            ("fedawe_hold", fedawe and holds),
            ("fedawe_of", fedawe),
        ):
            counts[name] += counted
    return Orderings(**counts)


def _ordered(setting: Setting) -> Iterator[tuple[str, str, bool]]:
    """(better, worse, whether clearly) in the paper, for all pairs of algorithms that were run here."""
    known = {name: theirs for name in setting.test if (theirs := setting.theirs(name, "test")) is not None}
    for a, b in combinations(known, 2):
        if known[a].mean != known[b].mean:
            better, worse = (a, b) if known[a].mean > known[b].mean else (b, a)
            yield better, worse, _is_clear(known[better], known[worse])


def _is_clear(better: Accuracy, worse: Accuracy) -> bool:
    error = ((better.std**2 + worse.std**2) / PAPER_SEEDS) ** 0.5
    return bool(better.mean - worse.mean > 2 * error)


def mean_ranks(settings: Sequence[Setting], seeds: int, algorithms: Sequence[str]) -> dict[str, float]:
    """Mean ranks by test accuracy over the settings in which all algorithms have all seeds. 1 is best; ties share the
    better rank."""
    ranks: dict[str, list[int]] = {name: [] for name in algorithms}
    for setting in settings:
        found = means({name: values for name, values in setting.test.items() if len(values) == seeds})
        for name in found if set(found) == set(algorithms) else ():
            ranks[name].append(1 + sum(other > found[name] for other in found.values()))
    return {name: sum(values) / len(values) for name, values in ranks.items() if values}


def ranks_in_words(settings: Sequence[Setting], seeds: int, algorithms: Sequence[str]) -> list[str]:
    """A sentence with the mean ranks, if there are any."""
    mean = mean_ranks(settings, seeds, algorithms)
    if not mean:
        return []
    complete = sum(all(len(setting.test.get(name, {})) == seeds for name in mean) for setting in settings)
    listed = ", ".join(f"{NAMES[name]} {mean[name]:.1f}" for name in sorted(mean, key=mean.__getitem__))
    return [f"Mean rank over {complete} settings (1 is best): {listed}."]


def orderings_table(settings: Mapping[str, Sequence[Setting]], seeds: int, algorithms: Sequence[str]) -> Table:
    """A table of the orderings that hold and of the mean ranks, by data set."""
    heads = (
        Column("data", ("data",), numeric=False),
        Column("orderings that hold", ("hold", "of")),
        Column("of the clear ones", ("clear_hold", "clear_of"), note="beyond two standard errors in the paper"),
        Column("surely reversed", ("surely_reversed",), note="significant at 5 % after Holm's correction"),
        Column("with FedAWE", ("fedawe_hold", "fedawe_of")),
        *(Column(NAMES[name], (f"rank_{name}",), note="mean rank over the dynamics") for name in algorithms),
    )
    rows = []
    for data, each in settings.items():
        held, ranks = orderings(each), mean_ranks(each, seeds, algorithms)
        best = min(ranks.values(), default=None)
        counts = (
            (f"{held.hold} of {held.of}", (held.hold, held.of)),
            (f"{held.clear_hold} of {held.clear_of}", (held.clear_hold, held.clear_of)),
            (str(held.reversed_surely), (held.reversed_surely,)),
            (f"{held.fedawe_hold} of {held.fedawe_of}", (held.fedawe_hold, held.fedawe_of)),
        )
        rows.append(
            (
                text_cell(data),
                *(Cell(text if held.of else MISSING, values) for text, values in counts),
                *(
                    Cell(f"{ranks[name]:.1f}", (ranks[name],), strong=ranks[name] == best)
                    if name in ranks
                    else Cell(MISSING, (None,))
                    for name in algorithms
                ),
            )
        )
    caption = "table 2: the paper's orderings, and mean ranks over the dynamics (1 is best)"
    return Table("table2-orderings", caption, heads, tuple(rows), tuple("" for _ in rows))
