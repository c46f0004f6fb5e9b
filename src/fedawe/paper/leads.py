"""FedAWE's leads: its paired differences to the other algorithms, and whether they are significant."""

from collections.abc import Sequence
from dataclasses import dataclass

from fedawe.paper.found import Found, means
from fedawe.paper.plan import NAMES
from fedawe.results.significance import LEVEL, holm, p_value
from fedawe.results.standings import Difference, paired
from fedawe.results.tables import MISSING, Cell, Column

OURS = "fedawe"
NOTE = (
    "FedAWE minus this algorithm, seed by seed, with its 95 % interval; bold where a paired t-test is significant at "
    "5 % after Holm's correction for all comparisons of the table"
)


@dataclass(frozen=True)
class Lead:
    """FedAWE minus another algorithm, with its interval and the corrected p-value."""

    difference: Difference
    p: float | None  # None for one seed

    @property
    def sign(self) -> int:
        """+1 or -1 if the difference is significant, else 0."""
        if self.p is None or self.p >= LEVEL:
            return 0
        return 1 if self.difference.mean > 0 else -1


def leads(columns: Sequence[Found]) -> list[dict[str, Lead]]:
    """FedAWE's leads in every column of a table, by the other algorithm, with a correction for all comparisons."""
    pairs = {
        (place, name): (column[OURS], values)
        for place, column in enumerate(columns)
        for name, values in column.items()
        if name != OURS and OURS in column
    }
    corrected = holm({key: p_value(*pair) for key, pair in pairs.items()})
    out: list[dict[str, Lead]] = [{} for _ in columns]
    for (place, name), pair in pairs.items():
        if (difference := paired(*pair)) is not None:
            out[place][name] = Lead(difference, corrected[place, name])
    return out


def lead_column(prefix: str) -> Column:
    """The column of cells from `lead_cell`."""
    return Column(
        "FedAWE's lead [95 %]", tuple(f"{prefix}_lead{end}" for end in ("", "_low", "_high", "_p")), note=NOTE
    )


def lead_cell(lead: Lead | None) -> Cell:
    """A cell with a lead and its interval; bold if it is significant."""
    if lead is None:
        return Cell(MISSING, (None, None, None, None))
    d = lead.difference
    text = f"{d.mean:+.1f}" + ("" if d.low is None else f" [{d.low:+.1f}, {d.high:+.1f}]")
    values = tuple(None if value is None else round(value, 4) for value in (d.mean, d.low, d.high))
    p = None if lead.p is None else float(f"{lead.p:.3g}")
    return Cell(text.replace("-", "−"), (*values, p), strong=lead.sign != 0)


def standing(values: Found) -> str:
    """A sentence on FedAWE's rank among the algorithms with results, and on its significant leads."""
    found = means(values)
    if OURS not in found or len(found) < 2:
        return ""
    rank = 1 + sum(mean > found[OURS] for mean in found.values())
    best = max((name for name in found if name != OURS), key=found.__getitem__)
    (against,) = leads([values])
    signs = [lead.sign for lead in against.values()]
    return (
        f"FedAWE {found[OURS]:.1f}, rank {rank} of {len(found)}; the best other, {NAMES[best]}, {found[best]:.1f}; "
        f"of {len(signs)} paired differences, {signs.count(1)} are significantly in FedAWE's favour and "
        f"{signs.count(-1)} against it (5 %, corrected by Holm's method)."
    )
