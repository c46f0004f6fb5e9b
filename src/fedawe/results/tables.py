"""A table that can be shown as text and in notebooks, and exported as CSV, Markdown and LaTeX."""

import csv
import html
import io
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

Value = float | int | str | None
Format = Literal["csv", "md", "tex"]
MISSING = "—"  # the text of an empty cell


@dataclass(frozen=True)
class Column:
    """A heading, and the names of the values in its cells."""

    title: str
    values: tuple[str, ...]  # column names in a CSV file
    numeric: bool = True
    note: str = ""  # an explanation of the heading


@dataclass(frozen=True)
class Cell:
    """The printed text of a cell, and its values; a column is sorted by the first."""

    text: str
    values: tuple[Value, ...]
    strong: bool = False


@dataclass(frozen=True)
class Export:
    """A table in an export format, with separate rows, so that they can be put in another order."""

    head: str
    rows: tuple[str, ...]
    foot: str

    def __str__(self) -> str:
        return self.head + "".join(self.rows) + self.foot


@dataclass(frozen=True, repr=False)
class Table:
    """Columns and rows of cells; `labels` has the label of the algorithm of each row, which decides its colour."""

    name: str
    caption: str
    columns: tuple[Column, ...]
    rows: tuple[tuple[Cell, ...], ...]
    labels: tuple[str, ...]

    def __repr__(self) -> str:
        """As text: aligned columns under the caption."""
        grid = [[column.title for column in self.columns], *([cell.text for cell in row] for row in self.rows)]
        grid = [[_one_line(text) for text in line] for line in grid]
        widths = [max(len(line[n]) for line in grid) for n in range(len(self.columns))]

        def line(texts: Sequence[str]) -> str:
            sides = (">" if column.numeric else "<" for column in self.columns)
            return "  ".join(f"{text:{side}{width}}" for text, side, width in zip(texts, sides, widths, strict=True))

        rule = "  ".join("─" * width for width in widths)
        lines = [self.caption, "", line(grid[0]), rule, *(line(texts) for texts in grid[1:])]
        return "\n".join(each.rstrip() for each in lines)

    def _repr_html_(self) -> str:
        """For notebooks."""

        def row(tag: str, texts: Sequence[str]) -> str:
            sides = ("right" if column.numeric else "left" for column in self.columns)
            cells = (
                f'<{tag} style="text-align:{side}">{text}</{tag}>' for text, side in zip(texts, sides, strict=True)
            )
            return f"<tr>{''.join(cells)}</tr>"

        def text(cell: Cell) -> str:
            plain = html.escape(cell.text)
            return f"<b>{plain}</b>" if cell.strong else plain

        head = row("th", [html.escape(column.title) for column in self.columns])
        body = "".join(row("td", [text(cell) for cell in each]) for each in self.rows)
        caption = html.escape(self.caption)
        return f"<table><caption>{caption}</caption><thead>{head}</thead><tbody>{body}</tbody></table>"

    def export(self, format: Format) -> Export:  # noqa: A002 - the usual name
        """The table in one of the formats.

        >>> table = Table("t", "", (Column("n", ("n",)), Column("m ± s", ("m", "s"))),
        ...               ((Cell("1", (1,)), Cell("2.00 ± 0.50", (2.0, 0.5), strong=True)),), ("a",))
        >>> print(table.export("csv"), end="")
        n,m,s
        1,2.0,0.5
        >>> print(table.export("md"), end="")
        | n | m ± s |
        |--:|--:|
        | 1 | **2.00 ± 0.50** |
        """
        return {"csv": self._csv, "md": self._markdown, "tex": self._latex}[format]()

    def _csv(self) -> Export:
        head = [name for column in self.columns for name in column.values]
        return Export(
            _csv_line(head), tuple(_csv_line([v for cell in row for v in cell.values]) for row in self.rows), ""
        )

    def _markdown(self) -> Export:
        def line(cells: Sequence[str]) -> str:
            return f"| {' | '.join(cells)} |\n"

        def plain(text: str) -> str:
            return _one_line(text).replace("|", "\\|")

        def text(cell: Cell) -> str:
            return f"**{plain(cell.text)}**" if cell.strong else plain(cell.text)

        rule = "|" + "|".join("--:" if column.numeric else ":--" for column in self.columns) + "|\n"
        return Export(
            line([plain(column.title) for column in self.columns]) + rule,
            tuple(line([text(cell) for cell in row]) for row in self.rows),
            "",
        )

    def _latex(self) -> Export:
        def line(cells: Sequence[str]) -> str:
            return f"  {' & '.join(cells)} \\\\\n"

        def text(cell: Cell) -> str:
            return f"\\textbf{{{_tex(cell.text)}}}" if cell.strong else _tex(cell.text)

        shape = "".join("r" if column.numeric else "l" for column in self.columns)
        return Export(
            f"% needs \\usepackage{{booktabs}}\n\\begin{{tabular}}{{{shape}}}\n  \\toprule\n"
            + line([_tex(column.title) for column in self.columns])
            + "  \\midrule\n",
            tuple(line([text(cell) for cell in row]) for row in self.rows),
            "  \\bottomrule\n\\end{tabular}\n",
        )


def _csv_line(values: Sequence[Value]) -> str:
    buffer = io.StringIO()
    csv.writer(buffer, lineterminator="\n").writerow(["" if value is None else value for value in values])
    return buffer.getvalue()


def _one_line(text: str) -> str:
    return " ".join(text.splitlines())


_GREEK = (
    "αalpha βbeta γgamma δdelta εepsilon ζzeta ηeta θtheta ιiota κkappa λlambda μmu µmu νnu ξxi πpi ρrho ςvarsigma "  # noqa: RUF001
    "σsigma τtau υupsilon φphi χchi ψpsi ωomega ΓGamma ΔDelta ΘTheta ΛLambda ΞXi ΠPi ΣSigma ΥUpsilon ΦPhi ΨPsi ΩOmega"  # noqa: RUF001
)
_TEX = {
    "\\": r"\textbackslash{}",
    "±": r"$\pm$",
    "−": "$-$",
    MISSING: "--",
    "×": r"$\times$",
    **{word[0]: f"$\\{word[1:]}$" for word in _GREEK.split()},
    **dict(zip("ΑΒΕΖΗΙΚΜΝΟΡΤΧο", "ABEZHIKMNOPTXo", strict=True)),  # noqa: RUF001 - Greek letters that look as Latin ones
    "~": r"\textasciitilde{}",
    "^": r"\textasciicircum{}",
    **{sign: "\\" + sign for sign in "&%$#_{}"},
}


def _tex(text: str) -> str:
    return "".join(_TEX.get(sign, sign) for sign in _one_line(text)).replace("x\u0304", r"$\bar{x}$")
