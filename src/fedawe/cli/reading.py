"""The flags with which a log is read, shared by the verbs that read one."""

import shlex
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import tyro

from fedawe.audit import logs
from fedawe.audit.logs import Columns, Log, Rule
from fedawe.experiments.flags import Word


@dataclass(frozen=True)
class Reading:
    """How to read a log."""

    path: tyro.conf.Positional[Path]
    """a trace (.npz, .csv), a log of check-ins (CSV, JSON lines, parquet), or device events (.json file or folder)"""
    round_length: Annotated[Word, tyro.conf.arg(name="round")] = None
    """how long a round is, as in 30s, 10min, 1h (default for logs: 10min)"""
    timezone: Word = None
    """of times that do not say theirs, and of hours of the day, as in Europe/Berlin (default: UTC)"""
    client_column: str = "client"
    """the column that names the client"""
    timestamp_column: str = "timestamp"
    """the column of times, for a log of check-ins"""
    start_column: str = "start"
    """the column where intervals begin"""
    end_column: str = "end"
    """the column where intervals end"""
    time_format: Word = None
    """of times that are not ISO 8601, as in '%d/%m/%Y %H:%M'"""
    since: Word = None
    """leave out what is before, as in 2024-05-01"""
    until: Word = None
    """leave out what is from then on"""
    rule: Rule = "strict"
    """device events: when a phone can train; strict is on Wi-Fi, charging and locked"""
    days: int = 7
    """device events: over how many days to lay them out; each phone repeats its own whole days"""

    def read(self, roster: tuple[str, ...] = ()) -> Log:
        """The log."""
        return logs.read(
            self.path,
            round_length=self.round_length,
            timezone=self.timezone,
            columns=Columns(self.client_column, self.timestamp_column, self.start_column, self.end_column),
            time_format=self.time_format,
            since=self.since,
            until=self.until,
            roster=roster,
            rule=self.rule,
            days=self.days,
        )

    def again(self) -> str:
        """The flags as typed, for commands that read the same log."""
        words = [str(self.path)]
        defaults = Reading(self.path)
        for name in Reading.__dataclass_fields__:
            value = getattr(self, name)
            if name != "path" and value != getattr(defaults, name):
                flag = "round" if name == "round_length" else name.replace("_", "-")
                words += [f"--{flag}", str(value)]
        return shlex.join(words)
