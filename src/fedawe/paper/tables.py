"""The paper's tables, ours beside them: paper, ours, difference; and how many of its orderings hold here."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import combinations

import numpy as np

from fedawe.paper.plan import Evaluate
from fedawe.paper.published import Accuracy, accuracy, published
from fedawe.results.curves import curve, first_round
from fedawe.results.folder import NAMES, Experiment, Run, algorithm
from fedawe.results.standings import paired, window_mean
from fedawe.results.tables import MISSING, Cell, Column, Table

BySeed = dict[int, float]  # a number for each seed
Found = Mapping[str, BySeed]  # by algorithm


def metric_of(name: str, evaluate: Evaluate, label: str) -> str:
    """What the records call a metric of the model that is to be evaluated; FedAWE's own model is the received mean."""
    fedawe = algorithm(label) == "fedawe"
    if evaluate == "latest" and fedawe:
        return f"latest_{name}"
    return f"received_{name}" if evaluate == "received" and not fedawe else name


def found(experiment: Experiment | None, labels: Sequence[str], name: str, evaluate: Evaluate = "mean") -> Found:
    """Window means in percent by algorithm and seed, of these labels alone."""
    out: dict[str, BySeed] = {}
    for label in labels if experiment is not None else ():
        assert experiment is not None
        means = {run.seed: window_mean(run, metric_of(name, evaluate, label)) for run in experiment.complete(label)}
        values = {seed: 100 * float(mean) for seed, mean in means.items() if mean is not None}
        if values:
            out[algorithm(label)] = values
    return out


def worst_class(experiment: Experiment | None, labels: Sequence[str]) -> Found:
    """Test accuracy in percent on the class that fares worst, where a bias shows first; of each method's own model."""
    out: dict[str, BySeed] = {}
    for label in labels if experiment is not None else ():
        assert experiment is not None
        means = {run.seed: window_mean(run, "test_accuracy_by_class") for run in experiment.complete(label)}
        values = {seed: 100 * float(mean.min()) for seed, mean in means.items() if mean is not None}
        if values:
            out[algorithm(label)] = values
    return out


@dataclass(frozen=True)
class Column2:
    """One heading of a table: where the paper has it, and what was found here."""

    title: str
    table: str
    place: tuple[str, ...]  # in the published table
    train: Found
    test: Found

    def theirs(self, name: str, part: str) -> Accuracy | None:
        """The paper's."""
        return accuracy(self.table, *self.place, algorithm=name, part=part)


def side_by_side(name: str, caption: str, columns: Sequence[Column2], algorithms: Sequence[str]) -> Table:
    """A row per setting and algorithm: test and train, each in the paper, here, and the difference."""
    heads = [
        Column("setting", ("setting",), numeric=False),
        Column("algorithm", ("algorithm",), numeric=False),
    ]
    for part in ("test", "train"):
        note = f"{part} accuracy in percent, mean ± standard deviation over seeds (n − 1)"
        heads += [
            Column(f"{part}, paper", (f"{part}_paper", f"{part}_paper_std"), note=note),
            Column(f"{part}, here", (f"{part}_here", f"{part}_here_std", f"{part}_here_seeds"), note=note),
            Column("difference", (f"{part}_difference",), note="here minus paper"),
        ]
    rows, labels = [], []
    for column in columns:
        for each in algorithms:
            cells = [_text(column.title), _text(NAMES[each])]
            for part, values in (("test", column.test), ("train", column.train)):
                cells += _three(column.theirs(each, part), values.get(each, {}), _is_best(values, each))
            rows.append(tuple(cells))
            labels.append(each)
    return Table(name, caption, tuple(heads), tuple(rows), tuple(labels))


def _three(paper: Accuracy | None, ours: BySeed, best: bool) -> list[Cell]:
    values = list(ours.values())
    mean = float(np.mean(values)) if values else None
    std = float(np.std(values, ddof=1)) if len(values) > 1 else None
    theirs = (
        Cell(MISSING, (None, None)) if paper is None else Cell(f"{paper.mean} ± {paper.std}", (paper.mean, paper.std))
    )
    text = MISSING if mean is None else f"{mean:.1f}" + ("" if std is None else f" ± {std:.1f}")
    here = Cell(text, (_plain(mean), _plain(std), len(values)), strong=best)
    if paper is None or mean is None:
        return [theirs, here, Cell(MISSING, (None,))]
    return [theirs, here, Cell(f"{mean - paper.mean:+.1f}".replace("-", "−"), (_plain(mean - paper.mean),))]


def _plain(value: float | None) -> float | None:
    return None if value is None else round(value, 4)


def _text(text: str) -> Cell:
    return Cell(text, (text,))


def _is_best(values: Found, name: str) -> bool:
    means = {each: float(np.mean(list(by_seed.values()))) for each, by_seed in values.items()}
    return name in means and means[name] == max(means.values())


@dataclass(frozen=True)
class Orderings:
    """How many of the paper's orderings of two algorithms, by mean test accuracy, hold here."""

    hold: int = 0
    of: int = 0
    reversed_surely: int = 0  # the other way round, with a 95 % interval of paired differences that leaves zero out
    fedawe_hold: int = 0
    fedawe_of: int = 0

    def words(self) -> str:
        """In a sentence."""
        if not self.of:
            return "There is nothing yet to compare the paper's orderings with."
        return (
            f"Of the paper's {self.of} orderings of two algorithms by mean test accuracy {self.hold} hold here; "
            f"{self.reversed_surely} are reversed with a 95 % interval that leaves zero out. "
            f"Of the {self.fedawe_of} that involve FedAWE {self.fedawe_hold} hold."
        )


def orderings(columns: Sequence[Column2]) -> Orderings:
    """Over all settings; two algorithms that the paper prints as equal are not ordered."""
    hold = of = surely = fedawe_hold = fedawe_of = 0
    for column, better, worse in _ordered(columns):
        ours, theirs = column.test[better], column.test[worse]
        difference = paired(ours, theirs)
        if difference is None:
            continue
        holds, fedawe = difference.mean > 0, "fedawe" in (better, worse)
        of, hold, surely = of + 1, hold + holds, surely + (difference.sign < 0)
        fedawe_of, fedawe_hold = fedawe_of + fedawe, fedawe_hold + (fedawe and holds)
    return Orderings(hold, of, surely, fedawe_hold, fedawe_of)


def _ordered(columns: Sequence[Column2]) -> Iterator[tuple[Column2, str, str]]:
    """(setting, better, worse) as the paper has it, for all that were run here."""
    for column in columns:
        known = {name: theirs.mean for name in column.test if (theirs := column.theirs(name, "test")) is not None}
        for a, b in combinations(known, 2):
            if known[a] != known[b]:
                yield (column, a, b) if known[a] > known[b] else (column, b, a)


def until(experiment: Experiment | None, rounds: int) -> Experiment | None:
    """The experiment as it stood after some rounds: with no schedule that looks ahead, that of a shorter one."""
    if experiment is None:
        return None
    runs = (
        replace(run, record=run.record.only([line for line in run.record.evaluations if line["round"] <= rounds]))
        for run in experiment.runs
    )
    return replace(experiment, runs=tuple(runs))


def mean_ranks(columns: Sequence[Column2], seeds: int) -> dict[str, float]:
    """By test accuracy over the settings in which every algorithm has every seed; ties share the better, 1 is best."""
    ranks: dict[str, list[int]] = {name: [] for name in NAMES}
    for column in columns:
        means = {name: float(np.mean(list(v.values()))) for name, v in column.test.items() if len(v) == seeds}
        for name in means if set(means) == set(NAMES) else ():
            ranks[name].append(1 + sum(other > means[name] for other in means.values()))
    return {name: float(np.mean(values)) for name, values in ranks.items() if values}


def by_rounds(columns: Mapping[tuple[str, int], Sequence[Column2]], seeds: int) -> Table:
    """How many of the paper's orderings hold, and who ranks where, by data set and number of rounds."""
    heads = (
        Column("data", ("data",), numeric=False),
        Column("rounds", ("rounds",)),
        Column("orderings that hold", ("hold", "of")),
        Column("surely reversed", ("surely_reversed",)),
        Column("with FedAWE", ("fedawe_hold", "fedawe_of")),
        *(Column(shown, (f"rank_{name}",), note="mean rank over the dynamics") for name, shown in NAMES.items()),
    )
    rows = []
    for (data, rounds), each in columns.items():
        held, ranks = orderings(each), mean_ranks(each, seeds)
        best = min(ranks.values(), default=None)
        rows.append(
            (
                _text(data),
                Cell(str(rounds), (rounds,)),
                Cell(f"{held.hold} of {held.of}" if held.of else MISSING, (held.hold, held.of)),
                Cell(str(held.reversed_surely) if held.of else MISSING, (held.reversed_surely,)),
                Cell(
                    f"{held.fedawe_hold} of {held.fedawe_of}" if held.of else MISSING,
                    (held.fedawe_hold, held.fedawe_of),
                ),
                *(
                    Cell(f"{ranks[name]:.1f}", (ranks[name],), strong=ranks[name] == best)
                    if name in ranks
                    else Cell(MISSING, (None,))
                    for name in NAMES
                ),
            )
        )
    caption = "table 2 by the number of rounds: the paper's orderings, and mean ranks over the dynamics (1 is best)"
    return Table("table2-rounds", caption, heads, tuple(rows), tuple("" for _ in rows))


def worst_classes(columns: Mapping[str, Found]) -> Table:
    """A row per algorithm, a column per setting: test accuracy on the worst class."""
    heads = [Column("algorithm", ("algorithm",), numeric=False)]
    heads += [Column(title, (title, f"{title}_std")) for title in columns]
    rows = []
    for name, shown in NAMES.items():
        cells = [_text(shown)]
        for values in columns.values():
            _, here, _ = _three(None, values.get(name, {}), _is_best(values, name))
            cells.append(Cell(here.text, here.values[:2], strong=here.strong))
        rows.append(tuple(cells))
    caption = "test accuracy (%) on the class that fares worst, mean ± standard deviation over seeds"
    return Table("table2-worst-class", caption, tuple(heads), tuple(rows), tuple(NAMES))


def speed(data: str, experiment: Experiment | None, labels: Sequence[str], evaluate: Evaluate) -> Table:
    """Table 8: the first round, of every 20th, in which the mean test accuracy over seeds reaches a target."""
    theirs = published()["table8"]
    targets = theirs["targets"].get(data)
    if targets is None:  # not a data set of the paper's
        best = max(
            (np.mean(list(v.values())) for v in found(experiment, labels, "test_accuracy", evaluate).values()),
            default=40,
        )
        top = max(10, int(best // 10 * 10))
        targets = [top / 4, top / 2, 3 * top / 4, top]
    heads = [Column("algorithm", ("algorithm",), numeric=False)]
    for target in targets:
        heads.append(Column(f"{target:g} %, paper", (f"paper_{target:g}",)))
        heads.append(Column(f"{target:g} %, here", (f"here_{target:g}",)))
    rows = []
    for label in labels:
        name = algorithm(label)
        runs = _every_20(experiment.complete(label)) if experiment is not None else []
        ours = curve(runs, metric_of("test_accuracy", evaluate, label))
        printed = theirs["rounds"].get(data, {}).get(name, [])
        cells = [_text(NAMES[name])]
        for place, target in enumerate(targets):
            paper = printed[place] if printed else None
            first = None if ours is None else first_round(ours, target / 100)
            cells.append(
                Cell("never" if printed and paper is None else MISSING if paper is None else str(paper), (paper,))
            )
            cells.append(Cell(MISSING if ours is None else "never" if first is None else str(first), (first,)))
        rows.append(tuple(cells))
    caption = f"{data}, sine: first round, of every 20th, in which the mean test accuracy over seeds reaches a target"
    return Table(f"table8-{data}", caption, tuple(heads), tuple(rows), tuple(algorithm(label) for label in labels))


def _every_20(runs: Sequence[Run]) -> list[Run]:
    """The same runs as if they had been evaluated only every 20 rounds, which is how the paper counts."""
    out = []
    for run in runs:
        lines = [line for line in run.record.evaluations if line["round"] % 20 == 0]
        out.append(replace(run, record=run.record.only(lines)))
    return out
