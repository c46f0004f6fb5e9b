"""The result of an item."""

from dataclasses import dataclass

from matplotlib.figure import Figure

from fedawe.results.tables import Table


@dataclass(frozen=True)
class Outcome:
    """Tables, named figures, and sentences."""

    tables: tuple[Table, ...] = ()
    figures: tuple[tuple[str, Figure], ...] = ()
    words: tuple[str, ...] = ()
