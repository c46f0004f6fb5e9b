"""Figure 2 and its numbers: the paper's Example 1 for every pair of probabilities."""

from collections.abc import Sequence

import numpy as np
from matplotlib.figure import Figure

from fedawe.paper.example1 import MEAN, Cell, heat_map
from fedawe.paper.found import Ran
from fedawe.paper.outcome import Outcome
from fedawe.paper.plan import Plan
from fedawe.report.plots.style import figure
from fedawe.results import tables


def fig2(plan: Plan, _: Sequence[Ran]) -> Outcome:
    """The heat maps, their numbers, and sentences on whether they agree with the closed form."""
    cells = list(heat_map(plan.preset.figure2_cells, plan.preset.figure2_rounds))
    errors = [abs(abs(cell.fedavg - MEAN) - cell.exact) for cell in cells]
    within = sum(error <= 3 * cell.fedavg_error + 1e-9 for error, cell in zip(errors, cells, strict=True))
    off = [abs(cell.fedawe - MEAN) for cell in cells]
    unbiased = sum(away <= 3 * cell.fedawe_error + 1e-9 for away, cell in zip(off, cells, strict=True))
    words = (
        f"FedAvg's distance from the optimum agrees with 50|p1 - p2|/(p1 + p2 - p1 p2) within three Monte Carlo "
        f"standard errors in {within} of {len(cells)} pairs; the largest deviation is {max(errors):.2f}. "
        f"FedAWE's x-bar is at the optimum within three standard errors in {unbiased}, off by {max(off):.2f} at most; "
        f"FedAvg is off by up to {max(abs(c.fedavg - MEAN) for c in cells):.1f}."
    )
    return Outcome((numbers(cells),), (("fig2", figure2(cells)),), (words,))


def numbers(cells: Sequence[Cell]) -> tables.Table:
    """The numbers of the heat maps, one row per pair of probabilities."""
    names = ("p1", "p2", "fedavg", "fedavg_error", "closed_form_distance", "fedawe", "fedawe_error")
    rows = tuple(
        tuple(
            tables.Cell(f"{value:.3g}", (float(f"{value:.6g}"),))
            for value in (c.p1, c.p2, c.fedavg, c.fedavg_error, c.exact, c.fedawe, c.fedawe_error)
        )
        for c in cells
    )
    heads = tuple(tables.Column(name, (name,)) for name in names)
    return tables.Table("fig2", "figure 2 in numbers", heads, rows, tuple("" for _ in rows))


def figure2(cells: Sequence[Cell]) -> Figure:
    """Heat maps over (p1, p2): runs of FedAvg, its closed form, and runs of FedAWE."""
    side = round(len(cells) ** 0.5)
    panels = {
        "FedAvg, run": [abs(cell.fedavg - MEAN) for cell in cells],
        "FedAvg, closed form": [cell.exact for cell in cells],
        "FedAWE (x̄), run": [abs(cell.fedawe - MEAN) for cell in cells],
    }
    with figure(2.1, columns=3, sharey=True) as (made, axes):
        for ax, (title, values) in zip(axes, panels.items(), strict=True):
            grid = np.array(values).reshape(side, side).T  # p1 to the right, p2 upwards
            edge = (0.5 / side, 1 + 0.5 / side)
            image = ax.imshow(grid, origin="lower", extent=(*edge, *edge), vmin=0, vmax=50, cmap="viridis")
            ax.set(title=title, xlabel="$p_1$", xticks=(0.5, 1), yticks=(0.5, 1))
            ax.grid(visible=False)
        axes[0].set_ylabel("$p_2$")
        made.colorbar(image, ax=axes, label="$|x_{output} - x^*|$", shrink=0.9)
    return made
