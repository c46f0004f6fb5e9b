"""The search for learning rates: the accuracy of every pair of rates, and the best pair of each algorithm."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from fedawe.paper.beside import text_cell
from fedawe.paper.found import Ran
from fedawe.paper.outcome import Outcome
from fedawe.paper.plan import NAMES, Plan, Variant
from fedawe.paper.presets import Rates
from fedawe.results.tables import MISSING, Cell, Column, Table

METRIC = "validation_accuracy"


@dataclass(frozen=True)
class Grid:
    """Accuracy (%) by algorithm and pair of rates; NaN where the run of a seed diverged or has not been run."""

    name: str  # name of the file of its table
    caption: str
    eta0: tuple[float, ...]
    eta_g: tuple[float, ...]
    accuracies: Mapping[str, Mapping[Rates, float]]  # "fedawe" or "fedawe, clipped" -> pair -> accuracy

    def best(self) -> dict[str, Rates]:
        """The best pair of every algorithm with an accuracy."""
        known = {
            name: {rates: value for rates, value in values.items() if not np.isnan(value)}
            for name, values in self.accuracies.items()
        }
        return {name: max(values, key=values.__getitem__) for name, values in known.items() if values}

    def on_edge(self) -> dict[str, list[str]]:
        """By symbol, the algorithms whose best rate is the smallest or largest; a better one may lie outside."""
        best = self.best()
        return {
            symbol: [name for name, rates in best.items() if rates[place] in (grid[0], grid[-1])]
            for place, (symbol, grid) in enumerate((("eta0", self.eta0), ("eta_g", self.eta_g)))
        }

    def table(self) -> Table:
        """A row per algorithm and eta0, a column per eta_g; the best pair of an algorithm is strong."""
        best, rows, labels = self.best(), [], []
        for name, values in self.accuracies.items():
            for eta0 in self.eta0:
                cells = [text_cell(_shown(name)), Cell(f"{eta0:g}", (eta0,))]
                for eta_g in self.eta_g:
                    value = values[eta0, eta_g]
                    missing = bool(np.isnan(value))
                    text, plain = (MISSING, None) if missing else (f"{value:.1f}", round(value, 4))
                    cells.append(Cell(text, (plain,), strong=best.get(name) == (eta0, eta_g)))
                rows.append(tuple(cells))
                labels.append(name.partition(",")[0])
        heads = (
            Column("algorithm", ("algorithm",), numeric=False),
            Column("eta0", ("eta0",)),
            *(Column(f"eta_g = {eta_g:g}", (f"eta_g_{eta_g:g}",)) for eta_g in self.eta_g),
        )
        return Table(self.name, self.caption, heads, tuple(rows), tuple(labels))

    def words(self) -> str:
        """A sentence on the best rates, and on whether they lie on the edge of the grid."""
        found = ", ".join(f"{_shown(name)} ({eta0:g}, {eta_g:g})" for name, (eta0, eta_g) in self.best().items())
        if not found:
            return f"{self.name}: nothing has been run yet."
        edges = [
            f"the best {symbol} lies on the edge of the grid for {'; '.join(map(_shown, names))}"
            for symbol, names in self.on_edge().items()
            if names
        ]
        wide = "; ".join(edges) or "no best rate lies on the edge of the grid"
        return f"{self.name}: the best (eta0, eta_g) are {found}; {wide}."


def _shown(name: str) -> str:
    """The display name of an algorithm, clipped or not."""
    algorithm, comma, clipped = name.partition(",")
    return f"{NAMES[algorithm]}{comma}{clipped}"


def search(plan: Plan, ran: Sequence[Ran]) -> Outcome:
    """The grids of all data sets."""
    grids = [grid(plan, each) for each in ran]
    return Outcome(tuple(each.table() for each in grids), words=tuple(each.words() for each in grids))


def grid(plan: Plan, ran: Ran) -> Grid:
    """The grid of one data set, from its runs."""
    preset, accuracies = plan.preset, dict[str, dict[Rates, float]]()
    for variant in ran.planned.variants:
        assert variant.rates is not None
        name = f"{variant.name}, clipped" if variant.options else variant.name
        accuracies.setdefault(name, {})[variant.rates] = _accuracy(ran, variant)
    caption = (
        f"{ran.planned.data}, sine, {preset.search_rounds} rounds: {METRIC.replace('_', ' ')} (%) by learning rates"
    )
    return Grid(
        f"search-{ran.planned.data}",
        caption,
        tuple(sorted(preset.grid)),
        tuple(sorted(preset.global_grid)),
        accuracies,
    )


def _accuracy(ran: Ran, variant: Variant) -> float:
    values = ran.percent(METRIC, variants=[variant]).get(variant.name, {})
    return float(np.mean(list(values.values()))) if len(values) == len(ran.planned.seeds) else float("nan")
