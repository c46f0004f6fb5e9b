"""Logs of events, as when a client connects and later disconnects: the meaning of words, and intervals from events."""

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import polars as pl

from fedawe.audit.logs.findings import Finding, counted, shown, some
from fedawe.core.errors import UserError

NAMES = {"state", "status", "event", "eventtype", "type", "action", "connected", "online", "available", "presence"}
NAMES |= {"isonline", "isconnected", "connection", "connectionstate", "connectionstatus", "newstate", "lifecycle"}
OFF = {
    "disconnected",
    "disconnect",
    "offline",
    "off",
    "down",
    "logout",
    "loggedout",
    "left",
    "leave",
    "stop",
    "stopped",
}
OFF |= {"end", "ended", "close", "closed", "unavailable", "lost", "inactive", "absent", "sessionend", "dropped", "exit"}
ON = {"connected", "connect", "online", "on", "up", "login", "loggedin", "joined", "join", "start", "started", "begin"}
ON |= {"open", "opened", "available", "active", "present", "sessionstart", "reconnected", "resumed", "enter"}
STILL = {"heartbeat", "ping", "pong", "keepalive", "alive", "checkin"}  # the client is still available
BARE = {"1": True, "true": True, "yes": True, "t": True, "0": False, "false": False, "no": False, "f": False}
MOST = 50  # different words that a column of states may have
SAID = 6  # words that a message quotes


def meaning(word: str, named: bool) -> bool | None:
    """Whether a word says that a client is available (True) or unavailable (False); None if it says neither.

    The words of BARE, such as 0 and 1, have a meaning only if `named`: if the column has one of the NAMES.

    >>> [meaning(word, named=True) for word in ("Connected", "client.disconnected", "subscribed", "1")]
    [True, False, None, True]
    """
    whole = _plain(word)
    if named and word.strip().lower() in BARE:
        return BARE[word.strip().lower()]
    for text in (
        whole,
        _plain(re.split(r"[.:/\s]", word.strip())[-1]),
        _plain(re.split(r"[-_.:/\s]", word.strip())[-1]),
    ):
        if text in OFF:
            return False
        if text in ON or text in STILL:
            return True
    return None


def _plain(word: str) -> str:
    return re.sub(r"[^a-z0-9]", "", word.lower())


def state_column(samples: Mapping[str, Iterable[str]], path: Path) -> str | None:
    """The column that says whether clients are available, recognised by its words; None if there is none.

    samples   the words in the first rows of each column that is not used otherwise
    """
    found: dict[str, bool] = {}
    for name, words in samples.items():
        different = {word for word in words if word.strip()}
        named = _plain(name.split(".")[-1]) in NAMES
        means = {meaning(word, named) for word in different}
        if len(different) <= MOST and (False in means or (named and True in means)):
            found[name] = named
    best = [name for name, named in found.items() if named] or list(found)
    if len(best) > 1:
        said = " and ".join(repr(shown(name)) for name in best[:3])
        raise UserError(
            f"{path}: the columns {said} look like states; name one with --state-column, or write --state-column none"
        )
    return best[0] if best else None


@dataclass
class Words:
    """The words of a column of states and their meaning."""

    column: str
    on: Sequence[str]  # words that mean available; if `on` and `off` are empty: those above
    off: Sequence[str]
    path: Path
    means: dict[str, bool] = field(default_factory=dict)  # word -> available or not; words without a meaning are absent
    _seen: list[str] = field(default_factory=list)  # the first few of all words

    def with_meaning(self, rows: pl.DataFrame) -> pl.DataFrame:
        """The rows with a column `on`: true, false, or null where the word means neither."""
        new = [word for word in rows["state"].drop_nulls().unique(maintain_order=True) if word not in self.means]
        if self.on or self.off:
            self.means |= {word: word in self.on for word in new if word in self.on or word in self.off}
        else:
            self.means |= {word: said for word in new if (said := meaning(word, True)) is not None}
        self._seen += [word for word in new if word not in self._seen][: SAID - len(self._seen)]
        means = self.means
        on = pl.col("state").replace_strict(list(means), list(means.values()), default=None, return_dtype=pl.Boolean)
        return rows.with_columns(on=on)

    def check(self) -> None:
        """Refuse a log in which no event means available; a single file of a log may have none."""
        if self._seen and not any(self.means.values()):
            seen = ", ".join(repr(shown(word)) for word in self._seen)
            raise UserError(
                f"{self.path}: the column {shown(self.column)!r} has no word that means that a client is available (it "
                f"has {seen}); name such words with --on-values and --off-values, or read every row as a check-in with "
                "--state-column none"
            )

    def intervals(self, rows: pl.DataFrame, findings: list[Finding]) -> pl.DataFrame:
        """Events as intervals, or as check-ins if no event means unavailable."""
        begin, end = ([word for word, on in self.means.items() if on is side] for side in (True, False))
        column = f"the column {shown(self.column)!r}"
        if not end:
            text = f"{column} has only words that mean available ({some(begin)}); each row was read as a check-in"
            findings.append(Finding("events", len(rows), text))
            return rows.filter("on").drop("on", "unmet")
        text = f"{column} was read as events: {some(begin)} begins and {some(end)} ends an interval"
        findings.append(Finding("events", len(rows), text))
        return intervals(rows, int(rows["start"].min()), int(rows["start"].max()), findings)  # type: ignore[arg-type]


def intervals(rows: pl.DataFrame, first: int, last: int, findings: list[Finding]) -> pl.DataFrame:
    """Events (client, start, on, unmet) as intervals (client, start, end): from each `on` to the client's next event.

    A client whose first event says unavailable was available since the log began, unless a requirement is unmet there.
    A client whose last event says available is available until the log ends.
    """
    after = last + 1  # so that intervals include the last moment of the log
    rows = rows.sort("client", "start", maintain_order=True)
    rows = rows.with_columns(
        end=pl.col("start").shift(-1).over("client"),
        open=pl.col("start").shift(-1).over("client").is_null(),
        new=pl.col("start").shift(1).over("client").is_null(),
    )
    before = rows.filter(pl.col("new") & ~pl.col("on") & ~pl.col("unmet") & (pl.col("start") > first))
    begun = rows.filter(pl.col("on"))
    still = int(begun["open"].sum())
    if still:
        text = f"{counted(still, 'interval')} still open when the log ends; counted until then"
        findings.append(Finding("open intervals", still, text))
    if len(before):
        text = f"{counted(len(before), 'client')} whose first event ends an interval; counted as begun with the log"
        findings.append(Finding("begun before", len(before), text))
    columns = ["row", "client", "start", "end"]
    early = before.with_columns(end=pl.col("start"), start=pl.lit(first, dtype=pl.Int64)).select(columns)
    out = pl.concat([early, begun.with_columns(pl.col("end").fill_null(after)).select(columns)])
    return out.filter(pl.col("end") > pl.col("start"))


def closed(rows: pl.DataFrame, after: int, findings: list[Finding]) -> pl.DataFrame:
    """Gives intervals without an end the beginning of the client's next interval, or `after`, the end of the log."""
    n = rows["end"].null_count()
    if not n:
        return rows
    ordered = rows.sort("client", "start", maintain_order=True)
    following = pl.col("start").shift(-1).over("client")
    overtaken = int(ordered.select((pl.col("end").is_null() & following.is_not_null()).sum()).item())
    text = f"{counted(n, 'interval')} without an end; counted as open until the log ends"
    if overtaken:
        text += f" ({overtaken:,} of them until the client's next interval)"
    findings.append(Finding("open intervals", n, text))
    out = ordered.with_columns(end=pl.coalesce("end", following, pl.lit(after)))
    return out.filter(pl.col("end") > pl.col("start")).sort("row")
