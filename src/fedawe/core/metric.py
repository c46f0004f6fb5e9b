"""Metrics: the name of a number in evaluations, how it is printed, and whether a higher value is better."""

import math
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, Literal

from fedawe.core.errors import UserError

Better = Literal["higher", "lower"]
SMALL, LARGE = 1e-6, 1e9  # numbers below and from there on are printed with an exponent
RESERVED = (  # names of other fields and columns in records and tables
    *("active", "algorithm", "availability", "classes", "clients", "crc", "finished", "folder", "kind", "label"),
    *("name", "round", "rounds", "seed", "status", "task"),
)


@dataclass(frozen=True)
class Metric:
    """A number in evaluations.

    name     its key in an evaluation
    title    its name in tables and figures; by default the name with spaces
    better   whether a higher or a lower value is better; None for a diagnostic, which is never used for ranking
    unit     printed after the number; "%" is for a share of 1, which is printed in percent
    decides  whether algorithms are ranked by it unless another metric is asked for

    >>> Metric("test_perplexity", better="lower", decides=True).title
    'test perplexity'
    """

    name: str
    title: str = ""
    better: Better | None = "higher"
    unit: str = ""
    decides: bool = False

    def __post_init__(self) -> None:
        if not self.name or not isinstance(self.name, str):
            raise UserError(f"a metric needs a name; received {self.name!r}")
        if self.better not in ("higher", "lower", None):
            raise UserError(f"{self.name}: better is {self.better!r}; expected 'higher', 'lower' or None")
        if self.decides and self.better is None:
            raise UserError(f"{self.name}: a metric that decides needs better='higher' or better='lower'")
        if not self.title:
            object.__setattr__(self, "title", self.name.replace("_", " "))

    @property
    def share(self) -> bool:
        """Whether the number is a share of 1, printed in percent."""
        return self.unit == "%"

    @property
    def sign(self) -> int:
        """+1 if a higher value is better, -1 if a lower one is, 0 for a diagnostic."""
        return {"higher": 1, "lower": -1, None: 0}[self.better]

    @property
    def heading(self) -> str:
        """The title with its unit."""
        return f"{self.title} ({self.unit})" if self.unit else self.title

    def show(self, value: float, *, sign: bool = False, like: float | None = None) -> str:
        """The number as text without its unit: percent with two decimals, others with four significant digits.

        The number of decimals is that of `like`, if given. Very small and very large numbers have an exponent.

        >>> accuracy, distance = Metric("test_accuracy", unit="%"), Metric("distance", better="lower")
        >>> accuracy.show(0.81337), accuracy.show(-0.0042, sign=True)
        ('81.34', '−0.42')
        >>> distance.show(17.74193), distance.show(0.098264, like=17.74193)
        ('17.74', '0.10')
        >>> distance.show(1e-10), distance.show(1e21), distance.show(float("inf"))
        ('1.000e−10', '1.000e+21', 'inf')
        """
        size = abs(value if like is None else like)
        if not self.share and (0 < size < SMALL or size >= LARGE):
            form = ".3e"
        else:
            decimals = 2 if self.share else 3 - math.floor(math.log10(size)) if size > 0 else 0
            form = f".{min(max(decimals, 0), 8)}f"
        return f"{100 * value if self.share else value:{'+' if sign else ''}{form}}".replace("-", "−")

    def plain(self, value: float | None) -> float | None:
        """The number for a CSV: in percent if it is printed so, with six significant digits."""
        return None if value is None else float(f"{100 * value if self.share else value:.6g}")

    @classmethod
    def from_fields(cls, fields: Any) -> "Metric | None":
        """The metric that a record's header describes; None if it describes none."""
        try:
            return cls(**fields)
        except (TypeError, UserError):
            return None


def as_metrics(found: Any, where: str) -> tuple[Metric, ...]:
    """The metrics that a class declares; refused if they are not a tuple of metrics, such as one without a comma."""
    several = isinstance(found, list | tuple)
    if odd := [each for each in (found if several else [found]) if not several or not isinstance(each, Metric)]:
        raise UserError(
            f"{where} {'has' if several else 'is'} a {type(odd[0]).__name__}; expected a tuple of metrics, as in "
            "(fedawe.Metric('loss', better='lower'),)"
        )
    names = [each.name for each in found]
    if twice := [name for name in names if names.count(name) > 1]:
        raise UserError(f"{where} has two metrics that are called {twice[0]}; give each its own name")
    return tuple(found)


def check_names(names: Iterable[str], where: str) -> None:
    """Refuses names of metrics that records and tables use for other fields."""
    for name in names:
        if name in RESERVED or f"_{name}".endswith("_seconds"):
            raise UserError(
                f"{where}: a metric cannot be called {name}; expected another name than {', '.join(RESERVED)}, and "
                "none that ends in _seconds"
            )
