"""Tables of accuracies in the paper and in our runs, with the differences."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from fedawe.paper.found import BySeed, Found, Ran, is_best, spread
from fedawe.paper.plan import NAMES
from fedawe.paper.published import Accuracy, accuracy
from fedawe.paper.readings import Evaluate
from fedawe.results.tables import MISSING, Cell, Column, Table


@dataclass(frozen=True)
class Setting:
    """One setting of a table: its place in the paper, and the accuracies of our runs."""

    title: str
    table: str
    place: tuple[str, ...]  # keys in the published table
    train: Found
    test: Found

    @classmethod
    def of(cls, ran: Ran, table: str, place: tuple[str, ...], evaluate: Evaluate) -> "Setting":
        """The setting of an experiment that was run."""
        train, test = (ran.percent(f"{part}_accuracy", evaluate) for part in ("train", "test"))
        return cls(ran.planned.title, table, place, train, test)

    def theirs(self, name: str, part: str) -> Accuracy | None:
        """The accuracy of an algorithm in the paper, if it has one."""
        return accuracy(self.table, *self.place, algorithm=name, part=part)


def side_by_side(name: str, caption: str, settings: Sequence[Setting], algorithms: Sequence[str]) -> Table:
    """A row per setting and algorithm: test and train accuracy, each in the paper and here, with the difference."""
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
    for setting in settings:
        for each in algorithms:
            cells = [text_cell(setting.title), text_cell(NAMES[each])]
            for part, values in (("test", setting.test), ("train", setting.train)):
                cells += _three(setting.theirs(each, part), values.get(each, {}), is_best(values, each))
            rows.append(tuple(cells))
            labels.append(each)
    return Table(name, caption, tuple(heads), tuple(rows), tuple(labels))


def _three(paper: Accuracy | None, ours: BySeed, best: bool) -> list[Cell]:
    here = spread(ours, best)
    here = Cell(here.text, (*here.values, len(ours)), best)
    if paper is None:
        return [Cell(MISSING, (None, None)), here, Cell(MISSING, (None,))]
    theirs = Cell(f"{paper.mean} ± {paper.std}", (paper.mean, paper.std))
    if not ours:
        return [theirs, here, Cell(MISSING, (None,))]
    difference = float(np.mean(list(ours.values()))) - paper.mean
    return [theirs, here, Cell(f"{difference:+.1f}".replace("-", "−"), (round(difference, 4),))]


def text_cell(text: str) -> Cell:
    """A cell of text."""
    return Cell(text, (text,))
