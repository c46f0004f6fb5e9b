"""The numbers of `fedawe theory` as tables, next to the bounds of the paper."""

from typing import Any

from rich.table import Table

from fedawe.audit.logs.findings import counted
from fedawe.availability.dynamics import Array


def tables(told: dict[str, Any]) -> list[Table]:
    """All tables in order, from the numbers of `theorems.numbers`."""
    out = [_mixing(told), _stale(told)]
    if told["M"] is not None:
        out.insert(1, _matrix(told["M"], told["rho"]["round"]))
    return [*out, *([_rates(told), _bounds(told)] if told["rates"] else []), _cost_table(told["costs"])]


def _table(title: str, *columns: str) -> Table:
    table = Table(*columns, title=title, title_justify="left", title_style="bold", box=None, padding=(0, 2, 0, 0))
    table.columns[0].no_wrap = True
    return table


def _mixing(told: dict[str, Any]) -> Table:
    rho, m = told["rho"], told["m"]
    left_out = [
        *([f"{counted(told['never'], 'client')} never available, left out"] if told["never"] else []),
        *([f"{told['unknown']:.1%} of their rounds unknown, left out of rates"] if told["unknown"] else []),
    ]
    notes = f" ({'; '.join(left_out)})" if left_out else ""
    table = _table(f"Mixing of {counted(m, 'client')}{notes}, delta = {told['delta']:.4g}", "", "rho", "")
    exact = "exact" if told["trace"] is None else "with these rates"
    table.add_row(f"{exact}, if independent", _digits(rho["exact"]), "lambda_2 of M = E[W^2] = E[W], W as in (4)")
    if rho["trace"] is not None:
        table.add_row("in this trace", _digits(rho["trace"]), "lambda_2 of the mean of W; needs no independence")
    if rho["equal"] is not None:
        table.add_row("+ equal p, closed form", _digits(rho["equal"]), "(1 - p) (m - (1 - p)^(m-1)) / (m - 1)")
    table.add_row("+ bound", _digits(rho["delta"]), "1 - delta^2")
    table.add_row("paper's bound, Lemma 4", _digits(rho["paper"]), "1 - delta^4 (1 - (1 - delta)^m)^2 / 8")
    if told["delta"] == 0:
        table.caption = "delta = 0: Assumption 1 fails, so that none of the bounds holds"
        table.caption_justify = "left"
    return table


def _matrix(M: Array, t: int) -> Table:
    table = _table(f"M in round {t}, the round with the largest rho", *[""] * len(M))
    for row in M:
        table.add_row(*(f"{entry:.4f}" for entry in row))
    return table


def _stale(told: dict[str, Any]) -> Table:
    s, trace = told["staleness"], told["trace"]
    if trace is None:
        table = _table("Staleness, the worst client in the worst round", "", "exact", "Lemma 2")
        table.add_row("E[t - tau]", f"{s['mean']:.4g}", f"{s['mean_bound']:.4g} = 1/delta")
        table.add_row("E[(t - tau)^2]", f"{s['square']:.4g}", f"{s['square_bound']:.4g} = 2/delta^2")
        return table
    table = _table(
        "Staleness of the client for which it is largest", "", "in this trace", "if rounds were independent", "Lemma 2"
    )
    table.add_row("E[t - tau]", f"{trace['mean']:.4g}", f"{s['mean']:.4g}", f"{s['mean_bound']:.4g} = 1/delta")
    square = f"{s['square_bound']:.4g} = 2/delta^2"
    table.add_row("E[(t - tau)^2]", f"{trace['square']:.4g}", f"{s['square']:.4g}", square)
    if trace["dependent"]:
        table.caption = (
            f"rounds of this trace depend on each other (the correlation between one and the next is "
            f"{trace['persistence']:.2f}): Assumption 1 fails, and only the first column holds"
        )
        table.caption_justify = "left"
    return table


def _rates(told: dict[str, Any]) -> Table:
    rates = told["rates"]
    chosen = f"eta_l = {rates['eta_l']:.3g}, eta_g = {rates['eta_g']:.3g}"
    table = _table(
        f"Learning rates; Corollary 1 takes {chosen} for T = {rates['T']}",
        "condition",
        "eta_l eta_g at most",
        "eta_l at most",
        "Corollary 1 meets it",
    )
    step = rates["eta_l"] * rates["eta_g"]
    for name, (both, local) in rates["largest"].items():
        met = "yes" if step <= both and rates["eta_l"] <= local else "no"
        table.add_row(name, f"{both:.3g}", f"{local:.3g}", met)
    T = told["smallest_T"]
    table.caption = (
        f"+ it meets (11) from T = {T['exact']:.2g} on with the exact rho ({T['delta']:.2g} with 1 - delta^2, "
        f"{T['paper']:.2g} with the paper's bound); the paper says from T = 1"
    )
    table.caption_justify = "left"
    return table


def _bounds(told: dict[str, Any]) -> Table:
    title = "Bounds on the means of ||grad F||^2 and, last, of ||x_i - x-bar||^2 at these rates"
    table = _table(title, "", "start", "noise", "mixing", "zeta", "sum")
    for of, name in (
        ("z-bar", "z-bar (Theorem 1)"),
        ("x-bar", "x-bar (Corollary 2)"),
        ("x_i", "x_i (Corollary 3)"),
    ):
        terms = told["bounds"][of]
        table.add_row(name, *(f"{term:.3g}" for term in (*terms, sum(terms))))
    unproven = [
        *(["do not meet (11)"] if told["rates"]["T"] < told["smallest_T"]["exact"] else []),
        *(["have eta_g below 1"] if told["rates"]["eta_g"] < 1 else []),
    ]
    if unproven:
        why = " and ".join(unproven)
        table.caption = f"the rates {why}, so that these numbers are not proven; they show what dominates"
        table.caption_justify = "left"
    return table


def _cost_table(costs: dict[str, Any]) -> Table:
    title = (
        f"Memory and traffic for d = {costs['d']:,} (4 bytes each), {costs['k']:.1f} clients in a round, "
        f"{costs['live_versions']} live versions at most"
    )
    table = _table(title, "", "server keeps", "each client keeps", "sent in a round")
    for name, cost in costs.items():
        if isinstance(cost, dict):
            keeps = (cost["server_bytes"], cost["client_bytes"], cost["round_bytes"])
            table.add_row(name, *(_bytes(n) for n in keeps))
    return table


def _digits(value: float) -> str:
    """The value with as many digits as distinguish it from 1."""
    return f"{value:.4f}" if value < 0.999 else f"1 - {1 - value:.3g}" if value < 1 else "1"


def _bytes(n: float) -> str:
    for unit in ("B", "kB", "MB", "GB"):
        if n < 1000 or unit == "GB":
            return f"{n:.3g} {unit}"
        n /= 1000
    raise AssertionError
