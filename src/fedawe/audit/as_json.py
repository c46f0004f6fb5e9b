"""An audit as JSON, with NaN and infinity as null."""

import dataclasses
import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from fedawe.audit import Audit
from fedawe.audit.fleet import Distribution
from fedawe.audit.periods import Change
from fedawe.audit.whatif import Scenario

FORGOTTEN = 10  # clients with the least influence that are listed
MANY = 1000  # with more clients, shares are given only at the end, not at every checkpoint


def as_json(found: Audit, what_if: Sequence[Scenario] = (), change: Change | None = None) -> dict[str, Any]:
    """The whole audit; lists of numbers per client are in the order of `clients`."""
    fleet, clock, names = found.fleet, found.log.clock, found.log.clients
    start = None if clock is None or clock.start is None else clock.when(0)
    out: dict[str, Any] = plain(
        {
            "clients": list(names),
            "rounds": fleet.rounds,
            "round_seconds": None if clock is None else clock.round_seconds,
            "start": start,
            "timezone": None if clock is None else clock.timezone,
            "rows": found.log.rows,
            "findings": [dataclasses.asdict(finding) for finding in found.log.findings],
            "fleet": {
                "rates": fleet.rates,
                "known_rounds": fleet.watched,
                "never": [names[i] for i in fleet.never],
                "active": {"mean": fleet.k.mean(), "least": fleet.k.min(), "most": fleet.k.max()},
                "empty_rounds": fleet.empty,
                "longest_empty": fleet.longest_empty,
                "by_hour": fleet.by_hour,
                "echo": {**_distribution(fleet.echo), "multiplier": fleet.multiplier},
                "staleness": _distribution(fleet.staleness),
                "on_rounds": {**_distribution(fleet.on_runs), "mean": fleet.mean_on, "most": fleet.longest_on},
                "off_rounds": {**_distribution(fleet.off_runs), "mean": fleet.mean_off, "most": fleet.longest_off},
                "persistence": fleet.persistence,
                "persistence_beyond_hour": fleet.persistence_beyond_hour,
                "live_versions": {"mean": fleet.live_versions.mean(), "most": fleet.live_versions.max()},
                "delta": fleet.delta,
                "rho": found.rho,
                "correlation": fleet.together.correlation,
                "correlation_beyond_hour": fleet.together.beyond_hour,
                "outages": [{"round": a, "rounds": n} for a, n in fleet.together.outages],
                "drift": None
                if fleet.drift is None
                else {
                    "blocks": fleet.drift.blocks,
                    "unit": fleet.drift.unit,
                    "days": fleet.drift.days,
                    "clients_tested": fleet.drift.tested,
                    "clients_changed": fleet.drift.changed,
                    "fleet_p": fleet.drift.fleet_p,
                    "change_round": fleet.drift.change,
                },
            },
            "assumption_1": [{"part": v.part, "holds": v.holds, "reason": v.reason} for v in found.assumption],
            "algorithms": {
                name: {
                    "total_variation": influence.total_variation,
                    "total_variation_among_seen": influence.among(fleet.seen),
                    "effective_clients": influence.effective_clients,
                    "speed": influence.speed,
                    "shares": influence.shares,
                    "forgotten": [names[i] for i in influence.forgotten(FORGOTTEN)],
                    "over_time": {
                        "after": influence.after,
                        "total_variation": influence.over_time(),
                        "shares": influence.shares_over_time() if len(names) <= MANY else None,
                    },
                    "groups": [dict(zip(g.names, g.fair(influence.shares), strict=True)) for g in found.groups],
                    "groups_over_time": [
                        dict(zip(g.names, g.over_time(influence.shares_over_time()).T, strict=True))
                        for g in found.groups
                    ],
                }
                for name, influence in found.influences.items()
            },
            "advice": {
                "algorithm": found.advice.algorithm,
                "headline": found.advice.headline,
                "text": found.advice.text,
                "remedies": list(found.advice.remedies),
                "cautions": list(found.advice.cautions),
            },
            "notes": list(found.notes),
            "what_if": [dataclasses.asdict(one) for one in what_if],
            "change": None if change is None else _change(change),
        }
    )
    return out


def _change(change: Change) -> dict[str, Any]:
    said = {field.name: getattr(change, field.name) for field in dataclasses.fields(change)}
    for name in ("groups", "findings"):
        said[name] = [dataclasses.asdict(one) for one in said[name]]
    return {**said, "changed": [change.clients[i] for i in change.changed], "cautions": change.cautions}


def _distribution(d: Distribution) -> dict[str, Any]:
    return {"mean": d.mean, "p50": d.quantile(0.5), "p90": d.quantile(0.9), "p99": d.quantile(0.99), "most": d.most}


def plain(value: Any) -> Any:
    """The value with arrays and tuples as lists, NumPy numbers as Python numbers, and NaN and infinity as None."""
    if isinstance(value, dict):
        return {key: plain(entry) for key, entry in value.items()}
    if isinstance(value, list | tuple | np.ndarray):
        return [plain(entry) for entry in value]
    if isinstance(value, np.generic):
        value = value.item()
    return None if isinstance(value, float) and not math.isfinite(value) else value
