"""Reads logs of real fleets (check-ins, intervals, events, device events) as traces, and lists defects of the data."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from fedawe.audit.logs.checkins import laid_out, silences
from fedawe.audit.logs.enrolment import enrolment
from fedawe.audit.logs.findings import Finding, counted, shown, some
from fedawe.audit.logs.flash import NEEDS, read_events, rule_of
from fedawe.audit.logs.log import Log
from fedawe.audit.logs.queries import is_database, queried
from fedawe.audit.logs.rows import Rows, read_rows
from fedawe.audit.logs.sources import files_of, is_events, trace_in
from fedawe.audit.logs.tables import Columns, open_table, typed
from fedawe.audit.logs.times import NAMED, Times
from fedawe.audit.logs.traces import from_trace, is_trace, part_of
from fedawe.availability.clock import Clock, known_timezone, seconds
from fedawe.availability.trace import Trace
from fedawe.core.errors import UserError
from fedawe.core.files import existing_file

__all__ = [
    "Clock",
    "Columns",
    "Finding",
    "Log",
    "Reader",
    "counted",
    "known_timezone",
    "read",
    "seconds",
    "shown",
    "some",
]


DAYS = 7  # default length of the trace that is made of device events
ROUND = "10min"


@dataclass(frozen=True)
class Reader:
    """How to read a log.

    paths         a trace (.npz, .csv), a log (CSV, JSON lines or parquet; files, patterns, folders) or device events
    timezone      time zone of times without an offset, and of the hours of the day (default UTC)
    columns       the names of the columns
    time_format   format of times that are not ISO 8601, as in %d/%m/%Y %H:%M
    time_unit     unit of times that are numbers (default: inferred from their size)
    since, until  the part to read, of a log or of a trace with a clock
    roster        clients that belong to the fleet even if the log has no row of them
    enrolled      client -> dates of enrolling and leaving (None: throughout); other clients: inferred
    rule, days    for device events: when a phone can train, and the length of the trace
    query         SQL whose result is read as the log
    """

    paths: tuple[Path, ...]
    timezone: str | None = None
    columns: Columns = field(default_factory=Columns)
    time_format: str | None = None
    time_unit: str | None = None
    since: str | None = None
    until: str | None = None
    roster: Sequence[str] = ()
    enrolled: Mapping[str, tuple[str | None, str | None]] = field(default_factory=dict)
    rule: str = "strict"
    days: int = DAYS
    query: str | None = None
    _rows: dict[str, Rows] = field(default_factory=dict, init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        known_timezone(self.timezone or "UTC")
        if not self.paths:
            raise UserError("no log was named; expected one or more files, patterns or folders")
        if self.days < 1:
            raise UserError(f"days is {self.days}; expected a whole number from 1")
        if self.rule not in NEEDS:
            raise UserError(f"--rule {self.rule}: expected one of {', '.join(NEEDS)}")
        if self.time_unit is not None and self.time_unit not in NAMED:
            raise UserError(f"--time-unit {self.time_unit}: expected one of {', '.join(NAMED)}")
        if self.time_unit is not None and self.time_format is not None:
            raise UserError("--time-unit is for numbers and --time-format for text; omit one of them")
        if "%Z" in (self.time_format or "").replace("%%", ""):
            raise UserError(
                f"--time-format {self.time_format}: the name of a time zone (%Z) is ambiguous; read an offset with "
                "%z, or write the name as text, as in %H:%M CET, and give the time zone with --timezone"
            )

    @property
    def path(self) -> Path:
        """The first path, which messages name; for the folder of a run, its trace so far."""
        first = self.paths[0]
        return trace_in(first) or first if first.is_dir() else first

    @property
    def kind(self) -> str:
        """The kind of input: "device events", "a trace", or "a log"."""
        if self.query is not None or len(self.paths) > 1:
            return "a log"
        if is_events(self.path):
            return "device events"
        return "a trace" if self.path.is_file() and is_trace(self.path) else "a log"

    def read(self, round_length: str | None = None) -> Log:
        """The log in rounds of that length (default for logs: 10min). Rows are read only once for several lengths."""
        length = seconds(round_length or ROUND, "the length of a round")
        unit = {"--time-unit": self.time_unit, "--time-format": self.time_format}
        if self.kind == "device events":
            if not self.path.is_dir():
                existing_file(self.path)
            self._refuse({"--since": self.since, "--until": self.until, **unit, **self._given("require", "state")})
            found = read_events(self.path, self.rule, length, self.timezone, self.days)
            log = Log(
                Trace(found.on), tuple(found.names), found.clock, tuple(found.findings), found.events, found.watched
            )
            nobody = f"no device could train at the beginning of any round under --rule {self.rule}"
        elif self.kind == "a trace":
            self._refuse({**unit, **self._for_events(), **self._given("require", "state")})
            log = part_of(from_trace(self.path, round_length, self.timezone), self.path, self.since, self.until)
            nobody = "no client is available in any round"
        else:
            self._refuse(self._for_events())
            log, nobody = self._laid(length)
        if not log.trace.on.any():
            raise UserError(f"{self.path}: {nobody}")
        return self._enrolled(log.with_roster(self.roster)).of_members()

    def _enrolled(self, log: Log) -> Log:
        """The log with the availability of a client marked unknown before it enrolled and after it left."""
        dated = any(moment is not None for moments in self.enrolled.values() for moment in moments)
        no_meaning = f"{self.path}: is {self.kind}%s; omit the columns 'enrolled' and 'left' of --groups"
        if log.clock is None:
            if dated:
                raise UserError(f"{no_meaning % ' without a clock'}, or say how long a round is with --round")
            return log
        if dated and self.kind == "a trace" and self.since is not None and log.clock.start is None:
            raise UserError(f"{no_meaning % ' whose times count from the beginning'}, or omit --since")
        on, given = log.trace.on, log.trace.known
        heard = self._rows["rows"].heard if self.kind == "a log" else None
        known, findings = enrolment(on, log.clients, log.clock, self.enrolled, heard)
        trace = log.trace if known is None else log.trace.knowing(known if given is None else known & given)
        return replace(log, trace=trace, findings=(*log.findings, *findings))

    def _laid(self, length: float) -> tuple[Log, str]:
        if "rows" not in self._rows:
            self._rows["rows"] = self._read_rows()
        rows = self._rows["rows"]
        names = _ordered(rows.names)
        on, clock, more = laid_out(rows, names, Clock(length, None, self.timezone or "UTC"), self.path)
        findings = (*rows.findings, *more, *silences(on, clock))
        short = f"no interval contains the beginning of a round of {clock.lasting(1)}; use shorter rounds (--round)"
        check_ins = "end" not in rows.frame.columns
        return Log(Trace(on), tuple(names), clock, findings, rows.count, checkins=check_ins), short

    def _read_rows(self) -> Rows:
        times = Times(self.timezone, self.time_format, self.path, self.time_unit)
        if self.query is None and is_database(self.path):
            raise UserError(
                f"{self.path}: is a database; say what to read with --query 'SELECT client, timestamp FROM ...'"
            )
        if self.query is not None:
            with queried(self.paths, self.query) as frame:
                table = typed(frame, self.columns, self.path)
                return read_rows([table], [self.path], times, self.columns, self.since, self.until, self.path)
        files = files_of(self.paths)
        tables = [open_table(file, self.columns) for file in files]
        return read_rows(tables, files, times, self.columns, self.since, self.until, self.path)

    def _refuse(self, flags: Mapping[str, str | None]) -> None:
        for flag, value in flags.items():
            if value is not None:
                raise UserError(f"{self.path}: is {self.kind}, for which {flag} has no meaning; omit it")

    def _for_events(self) -> dict[str, str | None]:
        """The flags for device events, with None for those at their default."""
        return {
            "--rule": None if self.rule == "strict" else self.rule,
            "--days": None if self.days == DAYS else str(self.days),
        }

    def _given(self, *names: str) -> dict[str, str | None]:
        """The flags for columns of tables, with None for those that were not given."""
        flags = {"require": "--require", "state": "--state-column"}
        return {flags[name]: str(value) if (value := getattr(self.columns, name)) else None for name in names}

    def requiring(self, what: Sequence[str]) -> "Reader":
        """A reader of the same log with other requirements: columns of a log, or the rule of device events."""
        if self.kind == "device events":
            return replace(self, rule=rule_of(what))
        return replace(self, columns=replace(self.columns, require=tuple(what)))


def read(path: str | Path | Sequence[str | Path], *, round_length: str | None = None, **how: object) -> Log:
    """Reads a log; `how` are fields of `Reader`."""
    paths = [path] if isinstance(path, str | Path) else path
    given = {name: value for name, value in how.items() if value is not None or name != "columns"}
    return Reader(tuple(map(Path, paths)), **given).read(round_length)  # type: ignore[arg-type]


def _ordered(names: list[str]) -> list[str]:
    """The names in order: by value if all are whole numbers, else alphabetically."""
    numbers = all(name.isascii() and name.isdigit() for name in names)
    return sorted(names, key=lambda name: (int(name), name)) if numbers else sorted(names)
