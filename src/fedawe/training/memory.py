"""What a run would have to remember, against what there is: refused in advance and not after hours."""

import dataclasses
import os
from pathlib import Path
from typing import Any

from fedawe.algorithms.base import State
from fedawe.algorithms.facts import name_of
from fedawe.algorithms.rows import Rows
from fedawe.availability.trace import Trace
from fedawe.core.errors import UserError


def check_rows(algorithm: object, state: State, trace: Trace) -> None:
    """Refuses an algorithm that keeps a vector for every client that was active, where they have no room."""
    kinds = _kinds(state)
    clients, d = int(trace.on.any(0).sum()), len(state.latest)
    needed, free = kinds * clients * d * state.latest.element_size(), free_memory()
    if free is not None and needed > free:
        raise UserError(
            f"{name_of(algorithm)} keeps {kinds * clients:,} vectors of {d:,} numbers, {_size(needed)}, of which "
            f"{_size(free)} are free; use fewer clients, a smaller model, or an algorithm that keeps no vector for "
            "every client, such as FedAWE or FedAU"
        )


def _kinds(state: Any) -> int:
    """How many vectors a state has for every client, those of a rule inside another included."""
    own = [(each.type, getattr(state, each.name)) for each in dataclasses.fields(state)]
    inner = [_kinds(value) for _, value in own if dataclasses.is_dataclass(value)]
    return sum(inner) + len([kind for kind, _ in own if kind == Rows])


def free_memory() -> int | None:
    """Bytes that can be had without swapping; None where the system does not say."""
    meminfo = Path("/proc/meminfo")
    if meminfo.exists():
        lines = dict(line.split(":", 1) for line in meminfo.read_text(encoding="ascii").splitlines())
        if "MemAvailable" in lines:
            return int(lines["MemAvailable"].split()[0]) * 1024
    try:
        return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    except (ValueError, OSError, AttributeError):
        return None


def _size(count: int) -> str:
    return f"{count / 1e9:,.1f} GB"
