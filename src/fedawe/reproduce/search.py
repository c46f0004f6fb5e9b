"""The learning-rate grid: what every rate comes to, and which is the best for whom."""

from dataclasses import dataclass

import numpy as np

from fedawe.compare.results import NAMES, Experiment
from fedawe.compare.tables import MISSING, Cell, Column, Table
from fedawe.reproduce.plan import Batch, Plan
from fedawe.reproduce.tables import found


@dataclass(frozen=True)
class Grid:
    """Test accuracy (%) by contender and rate; NaN where a run diverged or has not been run."""

    data: str
    rounds: int
    rates: tuple[float, ...]
    accuracies: dict[str, list[float]]  # "fedawe" or "fedawe, clipped" -> one for each rate

    def best(self) -> dict[str, float]:
        """The best rate of every contender that has any."""
        return {
            name: self.rates[int(np.nanargmax(row))] for name, row in self.accuracies.items() if not np.isnan(row).all()
        }

    def on_edge(self) -> list[str]:
        """Whose best rate is the smallest or the largest, so that a better one may lie outside."""
        return [name for name, rate in self.best().items() if rate in (min(self.rates), max(self.rates))]

    def table(self) -> Table:
        """A row per contender, its best rate marked."""
        best, rows = self.best(), []
        for name, row in self.accuracies.items():
            cells = [Cell(_shown(name), (name,))]
            for rate, value in zip(self.rates, row, strict=True):
                missing = bool(np.isnan(value))
                text = MISSING if missing else f"{value:.1f}"
                cells.append(Cell(text, (None if missing else round(value, 4),), strong=best.get(name) == rate))
            rows.append(tuple(cells))
        heads = (
            Column("algorithm", ("algorithm",), numeric=False),
            *(Column(f"{rate:g}", (f"eta0_{rate:g}",)) for rate in self.rates),
        )
        caption = f"{self.data}, sine, {self.rounds} rounds: test accuracy (%) by eta0"
        return Table(f"search-{self.data}", caption, heads, tuple(rows), tuple(self.accuracies))

    def words(self) -> str:
        """Whether the grid is wide enough."""
        edge = self.on_edge()
        if edge:
            return f"{self.data}: the best rate lies on the edge of the grid for {'; '.join(map(_shown, edge))}."
        return f"{self.data}: no best rate lies on the edge of the grid."


def _shown(name: str) -> str:
    """A contender as people write it."""
    return NAMES[name.partition(",")[0]] + name[len(name.partition(",")[0]) :]


def grid(plan: Plan, batch: Batch, experiment: Experiment | None) -> Grid:
    """The grid of one data set, from the runs that are there."""
    rates = tuple(sorted(plan.preset.grid))
    accuracies: dict[str, list[float]] = {}
    for contender in batch.contenders():
        spec = contender.spec
        name = f"{spec.name}, clipped" if "clip" in spec.options else spec.name
        row = accuracies.setdefault(name, [float("nan")] * len(rates))
        values = list(found(experiment, [contender.label], "test_accuracy").values())
        if values:
            row[rates.index(float(spec.options["eta0"]))] = float(np.mean(list(values[0].values())))
    return Grid(batch.settings.task, plan.preset.search_rounds, rates, accuracies)
