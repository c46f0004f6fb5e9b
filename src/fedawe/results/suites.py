"""Several experiments side by side: what differs between them, and who is ahead over all."""

from collections.abc import Sequence
from typing import Any

from fedawe.results.folder import Experiment, display_name
from fedawe.results.standings import Comparison, mean_ranks, spread
from fedawe.results.tables import MISSING, Cell, Column, Table


def titles(experiments: Sequence[Experiment]) -> list[str]:
    """A short name for each: the settings in which they differ, or their folders if the settings do not tell."""
    if len(experiments) == 1:
        return [describe(experiments[0].settings)]
    keys = list(dict.fromkeys(key for experiment in experiments for key in experiment.settings))
    telling = [key for key in keys if len({str(experiment.settings.get(key)) for experiment in experiments}) > 1]
    out = [", ".join(_said(key, experiment.settings.get(key)) for key in telling) for experiment in experiments]
    return out if len(set(out)) == len(out) else [experiment.path.name for experiment in experiments]


def _said(key: str, value: Any) -> str:
    return str(value) if key in ("task", "model", "dynamics") else f"{key} {value}"


def describe(settings: dict[str, Any]) -> str:
    """The settings that matter, in a line.

    >>> describe({"task": "digits", "dynamics": "sine", "clients": 100, "alpha": 0.1, "rounds": 300})
    'digits, sine, 100 clients, α = 0.1, 300 rounds'
    """
    words = [str(settings[key]) for key in ("task", "dynamics") if settings.get(key) is not None]
    if settings.get("clients") is not None:
        words.append(f"{settings['clients']} clients")
    if settings.get("alpha") is not None and settings.get("task") != "quadratic":
        words.append(f"α = {settings['alpha']}")
    if settings.get("rounds") is not None:
        words.append(f"{settings['rounds']} rounds")
    return ", ".join(words)


def overview_table(comparisons: Sequence[Comparison], names: Sequence[str]) -> Table:
    """Every algorithm in every setting, and its mean rank over the settings."""
    ranks = mean_ranks(comparisons)
    known = dict.fromkeys(label for comparison in comparisons for label in comparison.experiment.labels)
    labels = sorted(known, key=lambda label: ranks.get(label, float("inf")))
    rows = []
    for label in labels:
        cells = [Cell(display_name(label), (display_name(label),))]
        for comparison in comparisons:
            standing = comparison.standing(label)
            if standing is None:
                cells.append(Cell(MISSING, (None, None)))
                continue
            values = comparison.metric.plain(standing.mean), comparison.metric.plain(standing.std)
            cells.append(Cell(spread(comparison.metric, standing), values, strong=standing.rank == 1))
        rank = ranks.get(label)
        rows.append((*cells, Cell(MISSING if rank is None else f"{rank:.2f}", (rank,))))
    columns = [Column("algorithm", ("algorithm",), numeric=False)]
    for comparison, name in zip(comparisons, names, strict=True):
        columns.append(Column(name, (name, f"{name} std"), note=comparison.metric.heading))
    columns.append(Column("mean rank", ("mean_rank",), note="over the settings; 1 is best"))
    caption = (
        f"{comparisons[0].metric.heading} in every setting, mean ± standard deviation over seeds; the best is bold"
    )
    ordered = sorted(labels, key=lambda label: ranks.get(label, float("inf")))
    return Table("overview", caption, tuple(columns), tuple(rows), tuple(ordered))
