"""Device events in the format of FLASH (Yang et al. 2021), and the times at which a phone could have trained.

A file is `{"<id>": {"guid": ..., "model": ..., "messages": "YYYY-mm-dd HH:MM:SS \\t<event>\\n..."}}`.
"""

import gzip
import json
import zlib
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import polars as pl

from fedawe.audit.logs.findings import Finding, counted, some
from fedawe.audit.logs.times import EARLIEST, LATEST
from fedawe.availability.clock import Clock
from fedawe.availability.dynamics import Mask
from fedawe.core.errors import UserError

NEEDS = {  # rules by which a phone can train
    "strict": ("wifi", "charging", "locked"),
    "wifi-charging": ("wifi", "charging"),
    "wifi-locked": ("wifi", "locked"),
    "wifi": ("wifi",),
}
SAYS = {  # event -> the requirement that it is about, and whether that is met from then on
    "wifi": ("wifi", True),
    "2G": ("wifi", False),
    "3G": ("wifi", False),
    "4G": ("wifi", False),
    "5G": ("wifi", False),
    "Unknown": ("wifi", False),
    "battery_charged_on": ("charging", True),
    "battery_charged_off": ("charging", False),
    "screen_lock": ("locked", True),
    "screen_unlock": ("locked", False),
}
SILENT = {"screen_on", "screen_off"}  # events without a use here; battery levels such as "97.0%" are others
DAY = 86400


@dataclass(frozen=True)
class Device:
    """When a phone could have trained, in its local time (seconds since 1970-01-01 00:00 local time)."""

    name: str
    first: int  # time of its first event
    days: int  # whole days only, so that repeating them keeps the time of day
    changes: npt.NDArray[np.int64]  # times at which it becomes available, unavailable, available, ...


def event_files(path: Path) -> list[Path]:
    """The files of events: the path itself, or the .json and .json.gz files in it if it is a folder."""
    if path.is_file():
        return [path]
    files = sorted(file for file in path.iterdir() if file.name.endswith((".json", ".json.gz")))
    if not files:
        raise UserError(f"{path}: is a folder without .json or .json.gz files of device events")
    return files


@dataclass(frozen=True)
class Events:
    """The availability of all phones over the same rounds."""

    on: Mask  # whether each phone could train in each round                                                [T, m]
    names: list[str]
    clock: Clock
    findings: list[Finding]
    events: int  # number of all events
    watched: npt.NDArray[np.int64]  # period in rounds with which each phone repeats                        [m]


def read_events(path: Path, rule: str, round_seconds: float, timezone: str | None, days: int) -> Events:
    """Whether each phone could train in each round under the rule, over so many days from the first midnight.

    Phones were observed for different whole numbers of days; the days of each are repeated at the same time of day.
    Their local times have no offset: the time zone is `timezone`, or else the same unknown one for all phones.
    """
    devices: list[Device] = []
    counts = dict.fromkeys(("events", *SAID), 0)
    skipped: list[str] = []
    files = event_files(path)
    used = 0
    for file in files:
        phones = _phones(file, alone=len(files) == 1)
        used += phones is not None
        for name, messages in (phones or {}).items():
            device = _device(name, messages, rule, counts)
            devices.append(device) if device is not None else skipped.append(name)
    if not devices:
        raise UserError(f"{path}: no device was observed for a whole day (of {counted(len(skipped), 'device')})")
    names = [device.name for device in devices]
    if len(set(names)) < len(names):
        twice = next(name for name in names if names.count(name) > 1)
        raise UserError(f"{path}: the device {twice!r} is in more than one file")
    first = min(device.first for device in devices) // DAY * DAY
    clock = Clock(round_seconds, None, timezone or "UTC").at_local_time(first)
    at = clock.local_times(int(days * DAY // round_seconds))  # [T]
    on = np.empty((len(at), len(devices)), dtype=bool)
    for i, device in enumerate(devices):
        watched = device.first + (at - device.first) % (device.days * DAY)
        on[:, i] = np.searchsorted(device.changes, watched, side="right") % 2 == 1
    findings = _found(counts, skipped, len(files) - used, devices, days, timezone)
    watched = np.array([device.days * DAY // round_seconds for device in devices], dtype=np.int64)
    return Events(on, names, clock, findings, counts["events"], watched)


SAID = {  # what is counted -> the words of its finding
    "unreadable": "that cannot be read; left out",
    "unknown": "of unknown kinds; left out",
    "undated": "dated before 2000 or after 2100: a clock that was not set; left out",
    "back": "dated before the event above; sorted by time",
}


def _found(
    counts: dict[str, int], skipped: list[str], others: int, devices: list[Device], days: int, timezone: str | None
) -> list[Finding]:
    watched = [device.days for device in devices]
    zone = "time zone not known" if timezone is None else f"read as that of {timezone}"
    text = (
        f"devices were observed for {min(watched)} to {max(watched)} whole days; the days of each are repeated over "
        f"{days} days, in local time ({zone})"
    )
    out = [Finding("repeated days", len(devices), text)]
    out += [
        Finding(f"{key} events", counts[key], f"{counted(counts[key], 'event')} {text}")
        for key, text in SAID.items()
        if counts[key]
    ]
    if skipped:
        text = f"{counted(len(skipped), 'device')} observed for less than a day ({some(skipped)}); left out"
        out.append(Finding("short devices", len(skipped), text))
    if others:
        out.append(Finding("other files", others, f"{counted(others, 'file')} without device events; left out"))
    return out


def _phones(file: Path, alone: bool) -> dict[str, str] | None:
    """id -> messages; None for a JSON file of another kind, unless it is the only file."""
    try:
        with gzip.open(file, "rb") if file.suffix == ".gz" else file.open("rb") as stream:
            content: Any = json.load(stream, object_pairs_hook=_once)
    except _Twice as twice:
        raise UserError(f"{file}: the key {str(twice)!r} occurs twice") from None
    except (OSError, EOFError, zlib.error, ValueError, RecursionError) as error:
        hint = "; JSON lines are read from a file named .jsonl" if "Extra data" in str(error) else ""
        raise UserError(f"{file}: cannot be read as JSON ({error}){hint}") from None
    if isinstance(content, dict) and content and all(isinstance(c, dict) and "messages" in c for c in content.values()):
        return {str(name): str(phone["messages"]) for name, phone in content.items()}
    if alone:
        raise UserError(
            f'{file}: expected device events, {{"<id>": {{"messages": "time \\t event \\n ..."}}, ...}}; a log of '
            "check-ins is read as CSV, JSON lines (.jsonl) or parquet"
        )
    return None


class _Twice(Exception):
    """A key that occurs twice in an object, of which JSON readers would keep the last."""


def _once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    content = dict(pairs)
    if len(content) < len(pairs):
        counts = Counter(key for key, _ in pairs)
        raise _Twice(next(key for key, n in counts.items() if n > 1))
    return content


def _device(name: str, messages: str, rule: str, counts: dict[str, int]) -> Device | None:
    lines = pl.DataFrame({"line": messages.split("\n")}).filter(pl.col("line").str.strip_chars() != "")
    events = lines.select(
        at=pl.col("line")
        .str.extract(r"^([^\t]*)")
        .str.strip_chars()
        .str.to_datetime("%Y-%m-%d %H:%M:%S", strict=False),
        event=pl.col("line").str.extract(r"\t(.*)$").str.strip_chars(),
    )
    counts["events"] += len(events)
    read = events.drop_nulls()
    counts["unreadable"] += len(events) - len(read)
    known = pl.col("event").is_in([*SAYS, *SILENT]) | pl.col("event").str.contains(r"^\d+(\.\d+)?%$")
    counts["unknown"] += int(read.select((~known).sum()).item())
    dated = read.filter(pl.col("at").dt.epoch("s").is_between(EARLIEST, LATEST))
    counts["undated"] += len(read) - len(dated)
    read = dated
    seconds = read["at"].dt.epoch("s")
    counts["back"] += int((seconds.diff() < 0).sum())
    order = seconds.arg_sort()
    at, event = seconds[order].to_list(), read["event"][order].to_list()
    if not at or at[-1] - at[0] < DAY:
        return None
    first, days = at[0], (at[-1] - at[0]) // DAY
    state = dict.fromkeys(("wifi", "charging", "locked"), False)
    changes: list[int] = []
    for second, what in zip(at, event, strict=True):
        if what in SAYS:
            key, value = SAYS[what]
            state[key] = value
        ready = all(state[need] for need in NEEDS[rule])
        if ready != (len(changes) % 2 == 1):
            changes.append(second)
    return Device(name, first, days, np.array(changes, dtype=np.int64))


def rule_of(what: Sequence[str]) -> str:
    """The rule by which a phone can train if it meets these requirements.

    >>> rule_of(["charging", "wifi"])
    'wifi-charging'
    """
    wanted = set(what)
    found = next((rule for rule, needs in NEEDS.items() if set(needs) == wanted or rule in wanted), None)
    if found is None:
        raise UserError(
            f"device events can require {', '.join(NEEDS)}, not {' and '.join(sorted(wanted)) or 'nothing'}"
        )
    return found
