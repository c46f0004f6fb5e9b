"""An audit for people at a terminal."""

from collections.abc import Iterator
from pathlib import Path

import numpy as np
from rich.console import Group, RenderableType
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from fedawe.audit import Audit, display
from fedawe.audit.fleet import Distribution
from fedawe.audit.groups import Groups
from fedawe.audit.logs import Clock, shown
from fedawe.availability.dynamics import Array

BLOCKS = "▁▂▃▄▅▆▇█"
FORGOTTEN = 5
GROUPS = 20  # rows of a table of groups; the page and --json have all


def told(found: Audit, path: Path) -> Iterator[RenderableType]:
    """The blocks of the answer, in order."""
    clock, log = found.log.clock, found.log
    when = ""
    if clock is not None:
        rows = "" if log.rows is None else f", {log.rows:,} rows used"
        when = f"\nrounds of {clock.lasting(1)} from {clock.when(0)} ({clock.timezone}){rows}"
    yield Text(f"{shown(path.name)}: {log.trace}{when}", style="bold")
    if log.findings:
        yield _section("What the log has that you should know", *(Text(f"· {f.text}") for f in log.findings))
    yield _section("What the fleet is like", _facts(found))
    yield _section("Assumption 1 of the paper", *(Text(f"· {v.part}: {v.holds}; {v.reason}") for v in found.assumption))
    notes = (*_legend(found), *found.notes)
    yield _section("Who would count", _influences(found), *(Text(f"· {note}", style="dim") for note in notes))
    yield _section("Who would count least (a comer's share over the fair one)", _forgotten(found))
    for groups in found.groups:
        yield _section(f"What each {groups.kind} would count, over its fair share", _groups(found, groups))
    yield _section("What to run", Text(found.advice.text), *(Text(f"· {caution}") for caution in found.advice.cautions))


def _section(title: str, *content: RenderableType) -> RenderableType:
    return Group(Text(title, style="bold"), *(Padding(block, (0, 0, 0, 2)) for block in content))


def _facts(found: Audit) -> Table:
    fleet, clock = found.fleet, found.log.clock
    table = Table(box=None, show_header=False, padding=(0, 2, 0, 0))
    table.add_column(no_wrap=True)
    table.add_column()
    low, middle, high = np.quantile(fleet.rates, (0, 0.5, 1))
    table.add_row("share of rounds a client is there", f"{low:.3f} to {high:.3f}, median {middle:.3f}")
    table.add_row("clients in a round", f"{fleet.k.min()} to {fleet.k.max()}, mean {fleet.k.mean():.1f}")
    if fleet.by_hour is not None:
        table.add_row(
            "by hour of the day, 0 to 23",
            f"{bars(fleet.by_hour)}  {np.nanmin(fleet.by_hour):.2f} to {np.nanmax(fleet.by_hour):.2f}",
        )
    table.add_row("rounds since last there, on coming", _spread(fleet.echo, clock))
    table.add_row("rounds since last there, everyone", _spread(fleet.staleness, clock))
    table.add_row("stays for", _mean(fleet.mean_on, fleet.on_runs, clock))
    table.add_row("away for", _mean(fleet.mean_off, fleet.off_runs, clock))
    if np.isfinite(fleet.multiplier):
        table.add_row("fedawe multiplies answers by", f"{fleet.multiplier:.1f} on average of its influence")
    versions = fleet.live_versions
    table.add_row("models that fedawe keeps", f"{versions.mean():.1f} on average, {versions.max()} at most")
    if fleet.drift is not None:
        drift = fleet.drift
        text = f"{drift.changed} of {drift.tested} clients ({0.05 * drift.tested:.0f} by chance)"
        over = f"over {drift.blocks} {drift.unit}; the whole fleet: p = {drift.fleet_p:.3f}"
        table.add_row("change of rates (p < 0.05)", f"{text} {over}")
    if found.rho is not None:
        table.add_row("rho of the gossip", f"{found.rho:.4f} among clients that ever come")
    return table


def bars(values: Array) -> str:
    """Numbers as a row of blocks, from 0 to the largest.

    >>> bars(np.array([0.0, 0.5, 1.0, np.nan]))
    '▁▅█ '
    """
    top = np.nanmax(values)
    return "".join(
        " " if np.isnan(v) else BLOCKS[int(np.rint(v / top * (len(BLOCKS) - 1)))] if top > 0 else BLOCKS[0]
        for v in values
    )


def _spread(d: Distribution, clock: Clock | None) -> str:
    if not d.count:
        return "nobody ever comes"
    lasting = "" if clock is None else f" ({clock.lasting(d.most)})"
    return f"mean {d.mean:.1f}, median {d.quantile(0.5)}, 99 % within {d.quantile(0.99)}, at most {d.most}{lasting}"


def _mean(mean: float, d: Distribution, clock: Clock | None) -> str:
    if not np.isfinite(mean):
        return "nobody comes and goes"
    lasting = "" if clock is None else f" ({clock.lasting(mean)})"
    return f"{mean:.1f} rounds on average{lasting}, longest {d.most}"


def _influences(found: Audit) -> Table:
    fleet = found.fleet
    table = Table(box=None, padding=(0, 2, 0, 0))
    table.add_column("", no_wrap=True)
    for title in ("of all", *(["of comers"] if fleet.never else []), "as if", "least", "most", "steps"):
        table.add_column(title, justify="right", no_wrap=True)
    for name, influence in found.influences.items():
        fair = influence.fair[fleet.seen] if fleet.seen.any() else influence.fair
        table.add_row(
            display(name),
            f"{influence.total_variation:.3f}",
            *([f"{influence.among(fleet.seen):.3f}"] if fleet.never else []),
            f"{influence.effective_clients:.1f}",
            f"{fair.min():.2f}",
            f"{fair.max():.2f}",
            f"{influence.speed:.2f}",
            style="bold" if name == found.advice.algorithm else "",
        )
    return table


def _legend(found: Audit) -> Iterator[str]:
    never, m = len(found.fleet.never), found.fleet.clients
    yield "of all: part of the influence in the wrong hands (total variation from uniform, 0 is fair)"
    if never:
        yield f"of comers: the same among the {m - never} clients that ever come (of all: at least {never / m:.3f})"
    yield "as if: so many clients of equal weight; least, most: a comer's share over the fair one"
    yield "steps: innovations applied per round, 1 if everyone were always there"


def _forgotten(found: Audit) -> Table:
    table = Table(box=None, show_header=False, padding=(0, 2, 0, 0))
    table.add_column(no_wrap=True)
    table.add_column()
    of = dict.fromkeys(name for name in ("fedavg", found.advice.algorithm) if name in found.influences)
    for name in of or found.influences:
        influence = found.influences[name]
        comers = [i for i in influence.forgotten(found.fleet.clients) if found.fleet.seen[i]][:FORGOTTEN]
        table.add_row(
            display(name), ", ".join(f"{shown(found.log.clients[i])} ({influence.fair[i]:.2f})" for i in comers)
        )
    return table


SHORT = {"fedawe": "awe", "fedawe-latest": "awe last", "fedavg": "avg", "fedavg-all": "all", "fedavg-known": "known"}


def _groups(found: Audit, groups: Groups) -> Table:
    table = Table(box=None, padding=(0, 2, 0, 0))
    table.add_column(groups.kind, overflow="ellipsis", no_wrap=True)
    fairs = {name: groups.fair(influence.shares) for name, influence in found.influences.items()}
    for title in ("size", *(SHORT.get(name, name.removeprefix("fed")) for name in fairs)):
        table.add_column(title, justify="right")
    order = np.argsort(fairs.get("fedavg", next(iter(fairs.values()))), kind="stable")
    for g in order[:GROUPS]:
        table.add_row(shown(groups.names[g]), f"{groups.sizes[g]:.3g}", *(f"{fair[g]:.2f}" for fair in fairs.values()))
    if len(order) > GROUPS:
        table.caption = f"the {GROUPS} that count least under fedavg, of {len(order)}"
        table.caption_justify = "left"
    return table
