"""An audit as text for a terminal: the advice first, then the numbers that it is based on."""

from collections.abc import Iterator, Sequence

import numpy as np
from rich.console import Group, RenderableType
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from fedawe.audit import Audit, display
from fedawe.audit.fleet import Distribution, Fleet
from fedawe.audit.groups import Groups
from fedawe.audit.logs import Clock, counted, shown, some
from fedawe.audit.logs.findings import DOUBTFUL
from fedawe.audit.periods import Change
from fedawe.audit.whatif import Scenario
from fedawe.availability.dynamics import Array

BLOCKS = "▁▂▃▄▅▆▇█"
FORGOTTEN = 5  # clients with the least influence that are listed
UNCHANGING = "the availability of no client changes"
GROUPS = 20  # rows of a table of groups; the page and --json have all


def sections(found: Audit, name: str) -> Iterator[RenderableType]:
    """The sections of the text, in order."""
    clock, log, advice = found.log.clock, found.log, found.advice
    when = ""
    if clock is not None:
        rows = "" if log.rows is None else f", {counted(log.rows, 'row')} used"
        when = f"\nrounds of {clock.lasting(1)} from {clock.when(0)} ({clock.timezone}){rows}"
    yield Text(f"{shown(name)}: {log.trace}{when}", style="bold")
    said = [Text(line) for line in (advice.headline, advice.text, *advice.remedies) if line]
    yield _section("What to run", *said, *(Text(f"· {caution}") for caution in advice.cautions))
    notes = (*_legend(found), *found.notes)
    yield _section("Influence of the clients", _influences(found), *(Text(f"· {note}", style="dim") for note in notes))
    for groups in found.groups:
        yield _section(f"Influence of each {groups.kind}, as a multiple of its fair share", _groups(found, groups))
    title = "Clients with the least influence, of those ever active, as a multiple of the fair share"
    yield _section(title, _forgotten(found))
    yield _section("What the fleet is like", _facts(found))
    yield _section("Assumption 1 of the paper", *(Text(f"· {v.part}: {v.holds}; {v.reason}") for v in found.assumption))
    if log.findings:
        yield _section("What to know about the log", *(Text(f"· {f.text}") for f in log.findings))


def _section(title: str, *content: RenderableType) -> RenderableType:
    return Group(Text(title, style="bold"), *(Padding(block, (0, 0, 0, 2)) for block in content))


def _plain_table(*columns: str, header: bool = True) -> Table:
    table = Table(box=None, padding=(0, 2, 0, 0), show_header=header)
    for n, title in enumerate(columns):
        table.add_column(title, justify="right" if n else "left", no_wrap=n == 0)
    return table


def _facts(found: Audit) -> Table:
    fleet, clock = found.fleet, found.log.clock
    table = Table(box=None, show_header=False, padding=(0, 2, 0, 0))
    table.add_column(no_wrap=True)
    table.add_column()
    low, middle, high = np.quantile(fleet.rates[fleet.members], (0, 0.5, 1))
    table.add_row("availability of a client", f"{low:.3f} to {high:.3f}, median {middle:.3f}")
    table.add_row("available clients in a round", f"{fleet.k.min()} to {fleet.k.max()}, mean {fleet.k.mean():.1f}")
    if fleet.by_hour is not None:
        table.add_row(
            "by hour of the day, 0 to 23",
            f"{bars(fleet.by_hour)}  {np.nanmin(fleet.by_hour):.2f} to {np.nanmax(fleet.by_hour):.2f}",
        )
    table.add_row("staleness of active clients", _spread(fleet.echo, clock))
    table.add_row("staleness of all clients", _spread(fleet.staleness, clock))
    available, unavailable = durations(fleet, clock)
    table.add_row("available for", available)
    table.add_row("unavailable for", unavailable)
    if np.isfinite(fleet.multiplier):
        table.add_row("fedawe multiplies updates by", f"{fleet.multiplier:.1f} on average, weighted by influence")
    versions = fleet.live_versions
    table.add_row("models that fedawe keeps", f"{versions.mean():.1f} on average, {versions.max()} at most")
    table.add_row("change of rates", changes(found))
    if found.rho is not None:
        table.add_row("rho of the gossip", f"{found.rho:.4f} among clients that are ever available")
    return table


def changes(found: Audit) -> str:
    """The results of the tests for changes of rates, in a sentence."""
    drift = found.fleet.drift
    if drift is None:
        return "not tested: all clients repeat their days" if found.log.repeating.all() else "too few days to tell"
    clients = f"{drift.changed} of {drift.tested} clients with p < 0.05 ({drift.by_chance:.0f} expected by chance)"
    left = found.fleet.clients - drift.tested
    untested = f", {counted(left, 'client')} not tested" if left else ""
    return f"{clients}{untested}; the fleet: {_p(drift.fleet_p)}; over {drift.blocks} {drift.unit}"


def bars(values: Array) -> str:
    """Numbers as a row of block characters, from 0 to the largest number.

    >>> bars(np.array([0.0, 0.5, 1.0, np.nan]))
    '▁▅█ '
    """
    top = np.nanmax(values)
    return "".join(
        " " if np.isnan(v) else BLOCKS[int(np.rint(v / top * (len(BLOCKS) - 1)))] if top > 0 else BLOCKS[0]
        for v in values
    )


def rounded(value: float) -> str:
    """A number with three digits, or all digits before the point; NaN is empty.

    >>> rounded(17.53), rounded(0.5), rounded(1667.3), rounded(float("nan"))
    ('17.5', '0.5', '1,667', '')
    """
    if np.isnan(value):
        return ""
    return f"{value:,.0f}" if value >= 999.5 else f"{value:.3g}"


def together(fleet: Fleet) -> str:
    """The dependence between clients, in words."""
    known, beyond = fleet.together.correlation, fleet.together.beyond_hour
    said = f"mean correlation {'unknown' if np.isnan(known) else f'{known:.3f}'}"
    if beyond is not None and np.isfinite(beyond):
        said += f", {beyond:.3f} beyond the hour of the day"
    return f"{said}; {counted(len(fleet.together.outages), 'outage')}"


def _spread(d: Distribution, clock: Clock | None) -> str:
    if not d.count:
        return "no client is ever available"
    lasting = "" if clock is None else f" ({clock.lasting(d.most)})"
    return f"mean {d.mean:.1f}, median {d.quantile(0.5)}, 99 % within {d.quantile(0.99)}, at most {d.most}{lasting}"


def durations(fleet: Fleet, clock: Clock | None) -> tuple[str, str]:
    """How long clients are available and unavailable, in words."""
    if not (np.isfinite(fleet.mean_on) or np.isfinite(fleet.mean_off)):
        return UNCHANGING, UNCHANGING
    return _stretches(fleet.mean_on, fleet.longest_on, clock), _stretches(fleet.mean_off, fleet.longest_off, clock)


def _stretches(mean: float, longest: int, clock: Clock | None) -> str:
    """Lengths of stretches in words, without the mean if the ends of the log cut so many that it is not reliable.

    >>> _stretches(2.5, 4, None), _stretches(float("nan"), 7, None)
    ('2.5 rounds on average, longest 4', 'up to 7 rounds, including stretches cut by the ends of the log')
    """
    if not mean <= longest:
        lasting = "" if clock is None else f" ({clock.lasting(longest)})"
        return f"up to {counted(longest, 'round')}{lasting}, including stretches cut by the ends of the log"
    lasting = "" if clock is None else f" ({clock.lasting(mean)})"
    return f"{mean:.1f} rounds on average{lasting}, longest {longest}"


def _influences(found: Audit) -> Table:
    fleet = found.fleet
    table = _plain_table("", "bias", *(["bias, all"] if fleet.never else []), "effective", "least", "most", "updates")
    for name, influence in found.influences.items():
        least, most = influence.extremes(fleet.seen)
        table.add_row(
            display(name),
            f"{influence.among(fleet.seen):.3f}",
            *([f"{influence.total_variation:.3f}"] if fleet.never else []),
            f"{influence.effective_clients:.1f}",
            f"{least:.2f}",
            f"{most:.2f}",
            f"{influence.speed:.2f}",
            style="bold" if name == found.advice.algorithm else "",
        )
    return table


def _legend(found: Audit) -> Iterator[str]:
    never, m = len(found.fleet.never), found.fleet.clients
    whose = f" among the {m - never} clients that are ever active" if never else ""
    yield f"bias: part of the influence that would have to move to make all clients equal{whose}; 0 is fair"
    if never:
        yield f"bias, all: the same among all {m} clients; at least {never / m:.3f}, since {never} are never available"
    yield f"effective: effective number of clients, 1 / (sum of squared shares); {m} if all have equal influence"
    yield "least, most: smallest and largest influence of an active client, as a multiple of the fair share"
    yield "updates: influence added per round; 1 if every client were always available"


def _forgotten(found: Audit) -> Table:
    table = Table(box=None, show_header=False, padding=(0, 2, 0, 0))
    table.add_column(no_wrap=True)
    table.add_column()
    of = dict.fromkeys(name for name in ("fedavg", found.advice.algorithm) if name in found.influences)
    for name in of or found.influences:
        influence = found.influences[name]
        active = [i for i in influence.forgotten(found.fleet.clients) if found.fleet.seen[i]][:FORGOTTEN]
        table.add_row(
            display(name), ", ".join(f"{shown(found.log.clients[i])} ({influence.fair[i]:.2f})" for i in active)
        )
    return table


SHORT = {"fedawe": "awe", "fedawe-latest": "awe last", "fedavg": "avg", "fedavg-all": "all", "fedavg-known": "known"}


def _groups(found: Audit, groups: Groups) -> Table:
    fairs = {name: groups.fair(influence.shares) for name, influence in found.influences.items()}
    table = _plain_table(groups.kind, "size", *(SHORT.get(name, name.removeprefix("fed")) for name in fairs))
    order = np.argsort(fairs.get("fedavg", next(iter(fairs.values()))), kind="stable")
    for g in order[:GROUPS]:
        table.add_row(shown(groups.names[g]), rounded(groups.sizes[g]), *(f"{fair[g]:.2f}" for fair in fairs.values()))
    if len(order) > GROUPS:
        table.caption = f"the {GROUPS} with the least influence under fedavg, of {len(order)}"
        table.caption_justify = "left"
    return table


def what_if(found: Sequence[Scenario]) -> RenderableType:
    """The table of --what-if, with a row for each combination."""
    require = any(one.require != "as now" for one in found)
    table = _plain_table(
        "round",
        "choose",
        *(["require"] if require else []),
        "never",
        "per day",
        "fedavg",
        "fedawe",
        "multiplier",
        "staleness",
        "advised",
    )
    for one in found:
        per_day = "" if one.updates_per_day is None else f"{one.updates_per_day:,.0f}"
        table.add_row(
            one.round,
            one.choose,
            *([one.require] if require else []),
            str(one.never),
            per_day,
            _percent(one.bias.get("fedavg")),
            _percent(one.bias.get("fedawe")),
            rounded(one.multiplier),
            rounded(one.staleness),
            one.advised,
        )
    legend = (
        f"choose: clients asked in a round; never: clients of {found[0].clients} never active; per day: updates",
        "fedavg, fedawe: bias among clients that are ever active; multiplier: mean factor of updates under fedawe; "
        "staleness: mean over all clients, in rounds",
    )
    return _section("What if", table, *(Text(f"· {line}", style="dim") for line in legend))


def _percent(value: float | None) -> str:
    return "" if value is None else f"{value:.1%}"


def change(found: Change, names: tuple[str, str]) -> RenderableType:
    """The section about the changes between two periods; `names` are those of the periods."""
    lines = [
        *found.cautions,
        f"availability: {found.rates[0]:.1%} in {names[0]}, {found.rates[1]:.1%} in {names[1]} ({_p(found.fleet_p)})",
        f"{counted(len(found.vanished), 'client')} vanished{_listed(found.vanished)}",
        f"{counted(len(found.appeared), 'client')} appeared{_listed(found.appeared)}",
    ]
    if found.tested:
        by_chance = f"{0.05 * found.tested:.0f} expected by chance"
        whose = _listed(
            [
                f"{found.clients[i]}: {found.client_rates[0][i]:.0%} to {found.client_rates[1][i]:.0%}"
                for i in found.changed
            ]
        )
        changed = f"{len(found.changed)} of {counted(found.tested, 'client')}"
        lines.append(f"rates of {changed} changed with p < 0.05, {by_chance}{whose}")
    else:
        lines.append(f"rates of clients were not tested: {found.untested}")
    moved = [f"{found.clients[i]}: {found.fair[0][i]:.2f} to {found.fair[1][i]:.2f}" for i in found.moved]
    if moved:
        lines.append(f"largest changes of influence under plain averaging{_listed(moved)}")
    lines += [f"in the other log: {finding.text}" for finding in found.findings if finding.kind not in DOUBTFUL]
    blocks: list[RenderableType] = [Text(f"· {line}") for line in lines]
    if found.groups:
        table = _plain_table("group", "size", "available before", "after", "", "influence before", "after")
        for group in sorted(found.groups, key=lambda one: one.fair[1] - one.fair[0])[:GROUPS]:
            table.add_row(
                shown(group.name),
                rounded(group.size),
                *("unknown" if np.isnan(rate) else f"{rate:.1%}" for rate in group.rates),
                _p(group.p),
                f"{group.fair[0]:.2f}",
                f"{group.fair[1]:.2f}",
            )
        blocks.append(table)
    return _section("What changed", *blocks)


def _p(value: float) -> str:
    return f"p = {value:.3f}" if np.isfinite(value) else "not tested"


def _listed(names: Sequence[str]) -> str:
    return f" ({some(list(names))})" if names else ""
