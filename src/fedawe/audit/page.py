"""An audit as one self-contained HTML file, with text, tables and figures."""

import base64
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import jinja2
import numpy as np
import numpy.typing as npt
from plotly.offline import get_plotlyjs

from fedawe.algorithms import ALGORITHMS
from fedawe.audit import Audit, Distribution, display
from fedawe.audit.as_json import plain
from fedawe.audit.groups import Groups
from fedawe.audit.periods import Change
from fedawe.audit.text import changes, durations, rounded, together
from fedawe.audit.whatif import Scenario
from fedawe.core.describe import path_of
from fedawe.core.files import write_atomically
from fedawe.core.palette import looks

TEMPLATES = Path(__file__).parent / "templates"
STYLE = Path(__file__).parents[1] / "report" / "templates" / "page.css"  # the style of all pages
ROWS, COLUMNS = 240, 720  # size of the heat map; more clients or rounds are averaged
BARS = 300  # clients that are drawn one by one; more are averaged
BINS = 40  # bins of a histogram
CURVES = 12  # groups drawn over time, those with the least influence first

Json = dict[str, Any]


def write_page(found: Audit, path: Path, what_if: Sequence[Scenario] = (), change: Change | None = None) -> None:
    """Write the page."""
    write_atomically(path, render(found, what_if, change).encode())


def render(found: Audit, what_if: Sequence[Scenario] = (), change: Change | None = None) -> str:
    """The HTML of the page; names from the log are escaped."""
    environment = jinja2.Environment(
        loader=jinja2.FileSystemLoader(TEMPLATES), autoescape=True, trim_blocks=True, lstrip_blocks=True
    )
    algorithms = _algorithms(found)
    return environment.get_template("audit.html.j2").render(
        title=_title(found),
        found=found,
        what_if=what_if,
        change=change,
        changes=changes(found),
        together=together(found.fleet),
        durations=durations(found.fleet, found.log.clock),
        fleet=found.fleet,
        clock=found.log.clock,
        rounded=rounded,
        algorithms=algorithms,
        forgotten=_forgotten(found),
        groups=[_group_table(found, groups) for groups in found.groups],
        data=plain({"algorithms": algorithms, "figures": _figures(found)}),
        css=STYLE.read_text(encoding="utf-8") + (TEMPLATES / "audit.css").read_text(encoding="utf-8"),
        js=(TEMPLATES / "audit.js").read_text(encoding="utf-8"),
        plotly=get_plotlyjs(),
    )


def _title(found: Audit) -> str:
    """The title: the number of clients and the dates."""
    fleet, clock = found.fleet, found.log.clock
    when = ""
    if clock is not None and clock.start is not None:
        when = f", {clock.when(0)[:10]} to {clock.when(fleet.rounds - 1)[:10]}"
    return f"Influence of {fleet.clients:,} clients{when}"


def _base(name: str) -> str:
    return name.removesuffix("-latest")


def _order(found: Audit) -> list[str]:
    """The names of the algorithms: fedavg first, the others as in the audit."""
    return sorted(found.influences, key=lambda name: name != "fedavg")


def _algorithms(found: Audit) -> list[Json]:
    fleet, out = found.fleet, []
    styles = looks({_base(name): path_of(ALGORITHMS.get(_base(name))) for name in found.influences})
    for name in _order(found):
        influence = found.influences[name]
        least, most = influence.extremes(fleet.seen)
        out.append(
            {
                "key": name,
                "name": display(name),
                "light": styles[_base(name)].light,
                "dark": styles[_base(name)].dark,
                "all": influence.total_variation,
                "bias": influence.among(fleet.seen),
                "effective": influence.effective_clients,
                "least": least,
                "most": most,
                "speed": influence.speed,
                "advised": name == found.advice.algorithm,
            }
        )
    return out


def _forgotten(found: Audit, n: int = 8) -> list[tuple[str, list[tuple[str, float, float]]]]:
    """The active clients with the least influence under fedavg and the advised algorithm, (client, fair, rate)."""
    out = []
    for name in dict.fromkeys(("fedavg", found.advice.algorithm)):
        if name in found.influences:
            influence = found.influences[name]
            active = [i for i in influence.forgotten(found.fleet.clients) if found.fleet.seen[i]][:n]
            rows = [(found.log.clients[i], float(influence.fair[i]), float(found.fleet.rates[i])) for i in active]
            out.append((display(name), rows))
    return out


def _group_table(found: Audit, groups: Groups) -> Json:
    """The table of groups, sorted by influence under fedavg; each cell has the data for its colour."""
    fairs = {name: groups.fair(found.influences[name].shares) for name in _order(found)}
    order = np.argsort(fairs.get("fedavg", next(iter(fairs.values()))), kind="stable")
    rows = [
        (groups.names[g], float(groups.sizes[g]), [_cell(float(fair[g])) for fair in fairs.values()]) for g in order
    ]
    return {"kind": groups.kind, "names": [display(name) for name in fairs], "rows": rows}


def _cell(fair: float) -> tuple[str, str, int]:
    """The text of a cell, "little" or "much", and the strength of its colour in percent."""
    if not np.isfinite(fair):
        return "none", "", 0
    strength = round(100 * min(1.0, abs(np.log2(max(fair, 1 / 16))) / 3))
    return f"{fair:.2f}", "little" if fair < 1 else "much", strength


def _figures(found: Audit) -> Json:
    fleet, clock = found.fleet, found.log.clock
    order = np.argsort(fleet.rates, kind="stable")  # the clients that are available least first
    hours = None if fleet.by_hour is None else [100 * rate for rate in fleet.by_hour]
    return {
        "bars": _bars(found, order),
        "overTime": {
            "x": _times(found, next(iter(found.influences.values())).after),
            "curves": {name: 100 * influence.over_time() for name, influence in found.influences.items()},
            "floor": 100 * len(fleet.never) / fleet.clients,
            "dates": clock is not None and clock.start is not None,
        },
        "groups": [_group_curves(found, table) for table in found.groups],
        "heat": _heat(found, order[::-1]),
        "hours": hours,
        "echo": _histogram(fleet.echo),
        "stays": _histogram(fleet.on_runs),
        "away": _histogram(fleet.off_runs),
    }


def _group_curves(found: Audit, table: Groups) -> Json:
    """The influence of each group over its fair share as curves in time, under fedavg and the advised algorithm."""
    names = dict.fromkeys(name for name in ("fedavg", found.advice.algorithm) if name in found.influences)
    first = next(iter(names), next(iter(found.influences)))
    order = np.argsort(table.fair(found.influences[first].shares), kind="stable")[:CURVES]
    return {
        "x": _times(found, found.influences[first].after),
        "dates": found.log.clock is not None and found.log.clock.start is not None,
        "names": [table.names[g] for g in order],
        "panels": {
            display(name): table.over_time(found.influences[name].shares_over_time())[:, order].T
            for name in (names or [first])
        },
    }


def _bars(found: Audit, order: npt.NDArray[np.int64]) -> Json:
    parts = np.array_split(order, min(len(order), BARS))
    names = [
        f"client {found.log.clients[part[0]]}"
        if len(part) == 1
        else f"{len(part)} clients like {found.log.clients[part[0]]}"
        for part in parts
    ]
    return {
        "names": names,
        "rates": [100 * found.fleet.rates[part].mean() for part in parts],
        "fair": {name: [influence.fair[part].mean() for part in parts] for name, influence in found.influences.items()},
    }


def _times(found: Audit, rounds: Sequence[int] | npt.NDArray[np.int64]) -> list[Any]:
    clock = found.log.clock
    if clock is None or clock.start is None:
        return [int(t) for t in rounds]
    return [clock.when(int(t)) for t in rounds]


def _heat(found: Audit, order: npt.NDArray[np.int64]) -> Json:
    on = found.log.trace.on
    rows = np.array_split(order, min(len(order), ROWS))
    starts = np.linspace(0, len(on), min(len(on), COLUMNS), endpoint=False).astype(np.int64)
    widths = np.diff(np.append(starts, len(on)))
    level = np.empty((len(rows), len(starts)), dtype=np.uint8)
    for n, part in enumerate(rows):
        available = np.add.reduceat(on[:, part].sum(1), starts) / (widths * len(part))
        level[n] = np.rint(100 * available)
    active = np.add.reduceat(found.fleet.k, starts) / widths
    names = [found.log.clients[part[0]] for part in rows]
    return {
        "x": _times(found, starts),
        "y": names,
        "z": {
            "dtype": "u1",
            "bdata": base64.b64encode(level.tobytes()).decode(),
            "shape": f"{level.shape[0]}, {level.shape[1]}",
        },
        "active": active,
        "clients": on.shape[1],
    }


def _histogram(d: Distribution) -> Json | None:
    """Bins (from, to, share in percent) of logarithmic width, since most values are small and a few very large."""
    if not d.count:
        return None
    edges = np.unique(np.concatenate([[1], np.geomspace(1, d.most + 1, BINS).round(), [d.most + 1]]).astype(np.int64))
    below = np.concatenate([[0], np.cumsum(d.histogram)])  # number of observations less than n
    counts = below[edges[1:]] - below[edges[:-1]]
    return {"from": edges[:-1], "to": edges[1:] - 1, "share": 100 * counts / d.count}
