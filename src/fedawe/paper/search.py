"""The learning-rate grids: what every rate comes to, and which is the best for whom."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from fedawe.experiments.settings import Contender
from fedawe.paper.plan import NORM, SEARCHED, Plan, contender
from fedawe.paper.presets import Rates
from fedawe.paper.tables import found
from fedawe.results.folder import NAMES, Experiment
from fedawe.results.tables import MISSING, Cell, Column, Table


@dataclass(frozen=True)
class Grid:
    """Test accuracy (%) by contender and rate; NaN where a run diverged or has not been run."""

    name: str  # of its file
    caption: str
    symbol: str  # eta0 or eta_g
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
            *(Column(f"{rate:g}", (f"{self.symbol}_{rate:g}",)) for rate in self.rates),
        )
        return Table(self.name, self.caption, heads, tuple(rows), tuple(self.accuracies))

    def words(self) -> str:
        """Whether the grid is wide enough."""
        edge = self.on_edge()
        if edge:
            return (
                f"{self.name}: the best {self.symbol} lies on the edge of the grid for {'; '.join(map(_shown, edge))}."
            )
        return f"{self.name}: no best {self.symbol} lies on the edge of the grid."


def _shown(name: str) -> str:
    """A contender as people write it."""
    return NAMES[name.partition(",")[0]] + name[len(name.partition(",")[0]) :]


def grids(plan: Plan, data: str, experiment: Experiment | None) -> list[Grid]:
    """Both grids of one data set, from the runs that are there: eta0 with eta_g = 1, eta_g with the preset's eta0."""
    preset = plan.preset
    eta0, eta_g = tuple(sorted(preset.grid)), tuple(sorted(preset.global_grid))
    local, globally = {}, {}
    for algorithm, clipped in SEARCHED:
        name, more = (f"{algorithm}, clipped", f"clip={NORM}") if clipped else (algorithm, "")
        chosen, _ = preset.rate(data, algorithm, clipped)
        local[name] = _accuracies(experiment, algorithm, [(rate, 1.0) for rate in eta0], more)
        globally[name] = _accuracies(experiment, algorithm, [(chosen, rate) for rate in eta_g], more)
    caption = f"{data}, sine, {preset.search_rounds} rounds: test accuracy (%) by"
    return [
        Grid(f"search-{data}", f"{caption} eta0, with eta_g = 1", "eta0", eta0, local),
        Grid(f"search-{data}-global", f"{caption} eta_g, with the eta0 in use", "eta_g", eta_g, globally),
    ]


def _accuracies(experiment: Experiment | None, algorithm: str, rates: Sequence[Rates], more: str) -> list[float]:
    labels = [Contender.parse(contender(algorithm, each, more)).label for each in rates]
    values = [found(experiment, [label], "test_accuracy").get(algorithm, {}) for label in labels]
    return [float(np.mean(list(by_seed.values()))) if by_seed else float("nan") for by_seed in values]
