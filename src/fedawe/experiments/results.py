"""The results of an experiment, as an object."""

import os
import warnings
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from fedawe.core.errors import UserError
from fedawe.core.files import as_folder
from fedawe.results import folder as folders
from fedawe.results.choice import Choice
from fedawe.results.frame import each, frame
from fedawe.results.standings import Comparison, Difference, compare, paired
from fedawe.results.summary import summary_table
from fedawe.results.tables import Table

if TYPE_CHECKING:
    import pandas


@dataclass(frozen=True)
class Results:
    """The runs of one folder, compared.

    The keyword arguments are those of `Choice`: metric, baseline, algorithms, window, interval. An algorithm is named
    by its label or by its display name.
    """

    runs: folders.RunSet

    def compare(self, **choice: Any) -> Comparison:
        """Window means, ranks and paired differences of all algorithms."""
        known = list(Choice.__dataclass_fields__)
        if unknown := sorted(set(choice) - set(known)):
            raise UserError(f"unknown option {unknown[0]!r}; expected {', '.join(known)}")
        return compare(self.runs, Choice(**choice))

    def table(self, metric: str | None = None, baseline: str | None = None, **choice: Any) -> Table:
        """Mean and standard deviation over seeds, and differences to the baseline with 95 % intervals."""
        return summary_table(self.compare(metric=metric, baseline=baseline, **choice))

    def difference(self, a: str, b: str, metric: str | None = None, **choice: Any) -> Difference:
        """a minus b, paired by seed, with its 95 % interval; printed, it says which of the two is better."""
        from fedawe.report.words import versus

        found = self.compare(metric=metric, **choice)
        ours, theirs = (found.standing(found.runs.the(text)) for text in (a, b))
        assert ours is not None
        assert theirs is not None
        d = paired(ours.values, theirs.values, found.choice.interval)
        if d is None:
            raise UserError(f"{ours.name} and {theirs.name} have no {found.metric.title} in a seed that both completed")
        return replace(d, text=versus(found.metric, ours, theirs, d))

    def frame(self) -> "pandas.DataFrame":
        """All evaluations as a DataFrame: one row for each, with its metrics and the settings of its run.

        The evaluations of incomplete runs are included (`finished` is False, `status` says why).
        """
        name = self.runs.path.resolve().name
        problems: list[str] = []
        found = frame([(name, self.runs, run) for run in each(self.runs, problems.append)])
        for problem in problems:
            warnings.warn(problem, stacklevel=2)
        return found

    def report(self, to: str | os.PathLike[str] | None = None, **choice: Any) -> Path:
        """Write the page, by default FOLDER/report.html, and return its path."""
        from fedawe.report.page import write_page

        return write_page([self.compare(**choice)], self.runs.path / "report.html" if to is None else Path(to))

    def __repr__(self) -> str:
        return repr(self.table())

    def _repr_html_(self) -> str:
        return self.table()._repr_html_()


def load(folder: str | os.PathLike[str]) -> Results:
    """Read the folder of an experiment or of a deployment, and return its results."""
    found = folders.load_all(as_folder(folder, "folder"))
    if len(found) > 1:
        names = ", ".join(str(runs.path) for runs in found[:3]) + (", ..." if len(found) > 3 else "")
        raise UserError(
            f"{folder} holds {len(found)} experiments; load one of them ({names}), or use fedawe report or fedawe "
            "export, which read them together"
        )
    return Results(found[0])
