"""The flags for reading a log, shared by the verbs `audit` and `fit`."""

import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import tyro

from fedawe.experiments.flags import Names, Word, hint

if TYPE_CHECKING:
    from fedawe.audit.logs import Log, Reader


@dataclass(frozen=True)
class Reading:
    """The flags for reading a log."""

    paths: tyro.conf.Positional[Annotated[tuple[Path, ...], hint]]
    """a trace (.npz, .csv); a log of check-ins, intervals or events (CSV, JSON lines, parquet; files, patterns,
    folders); device events (.json file or folder); or a database, with --query"""
    round_length: Annotated[Word, tyro.conf.arg(name="round")] = None
    """length of a round, as in 30s, 10min, 1h (default for logs: 10min)"""
    timezone: Word = None
    """time zone of times without an offset, and of the hours of the day, as in Europe/Berlin (default: UTC)"""
    client_column: str = "client"
    """the column with the name of the client; nested fields as in detail.clientId"""
    timestamp_column: str = "timestamp"
    """the column of times, in a log of check-ins or events"""
    start_column: str = "start"
    """the column with the beginnings of intervals"""
    end_column: str = "end"
    """the column with the ends of intervals; an empty end means that the interval is still open"""
    state_column: Word = None
    """the column of events such as connected and disconnected; none: there is no such column (default: found by its
    words)"""
    on_values: Names = ()
    """words of the state column that begin an interval (default: connected, online, on, up, 1, true and the like)"""
    off_values: Names = ()
    """words of the state column that end an interval"""
    require: Names = ()
    """columns that must be 1, true, yes or on for a row to count, as in charging"""
    time_format: Word = None
    """format of times that are not ISO 8601, as in '%d/%m/%Y %H:%M'"""
    time_unit: Word = None
    """unit of times that are numbers: seconds, milliseconds, microseconds, nanoseconds, minutes, hours, days, excel"""
    since: Word = None
    """omit rows before this time, as in 2024-05-01"""
    until: Word = None
    """omit rows at and after this time"""
    query: Word = None
    """SQL query whose result is the log, as in 'SELECT device AS client, ts AS timestamp FROM log'; the files are the
    table `log`; a DuckDB database (.duckdb, .db; or duckdb: without a file) has its own tables"""
    rule: str = "strict"
    """for device events: when a phone can train: strict (Wi-Fi, charging, locked), wifi-charging, wifi-locked, wifi"""
    days: int = 7
    """for device events: length of the trace in days; each phone repeats its own whole days"""

    @property
    def name(self) -> str:
        """The name of the log: its first file, and the number of further ones."""
        more = f" and {len(self.paths) - 1} more" if len(self.paths) > 1 else ""
        return f"{self.paths[0].name or self.paths[0]}{more}" if self.paths else ""

    def reader(
        self, roster: Sequence[str] = (), enrolled: Mapping[str, tuple[str | None, str | None]] | None = None
    ) -> "Reader":
        """The reader of this log."""
        from fedawe.audit.logs import Columns, Reader

        columns = Columns(
            self.client_column,
            self.timestamp_column,
            self.start_column,
            self.end_column,
            self.state_column,
            self.on_values,
            self.off_values,
            self.require,
        )
        return Reader(
            self.paths,
            timezone=self.timezone,
            columns=columns,
            time_format=self.time_format,
            time_unit=self.time_unit,
            since=self.since,
            until=self.until,
            roster=roster,
            enrolled=enrolled or {},
            rule=self.rule,
            days=self.days,
            query=self.query,
        )

    def read(self) -> "Log":
        """The log in rounds of the given length."""
        return self.reader().read(self.round_length)

    def again(self) -> str:
        """The flags as text, for commands that read the same log."""
        words = [str(path) for path in self.paths]
        for name, described in Reading.__dataclass_fields__.items():
            value = getattr(self, name)
            if name != "paths" and value != described.default:
                flag = "round" if name == "round_length" else name.replace("_", "-")
                words += [f"--{flag}", *(value if isinstance(value, tuple) else [str(value)])]
        return shlex.join(words)
