"""The time of day of a round, and lengths of time as text."""

import re
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import polars as pl

from fedawe.core.errors import UserError

UNITS = {"s": 1, "sec": 1, "m": 60, "min": 60, "h": 3600, "d": 86400, "day": 86400, "days": 86400}
SHORTEST = 0.001  # of a round, in seconds


def seconds(text: str, what: str = "a length of time") -> float:
    """A length of time in seconds.

    >>> seconds("10min"), seconds("1h30m"), seconds("600")
    (600.0, 5400.0, 600.0)
    """
    words = re.findall(r"(\d+(?:\.\d+)?)\s*([a-z]*)\s*", text.strip().lower())
    rest = re.sub(r"\d+(?:\.\d+)?\s*[a-z]*\s*", "", text.strip().lower())
    if not words or rest or any(unit not in UNITS and (unit or len(words) > 1) for _, unit in words):
        raise UserError(f"{what} is {text!r}; expected something like 30s, 10min, 1h30m or 1d")
    total = sum(float(number) * UNITS.get(unit, 1) for number, unit in words)
    if not SHORTEST <= total < float("inf"):
        raise UserError(f"{what} is {text!r}; expected {SHORTEST:g} s or more")
    return total


def known_timezone(name: str) -> str:
    """The name; refused if there is no such time zone."""
    try:
        pl.Series([0]).cast(pl.Datetime("us")).dt.replace_time_zone(name)
    except pl.exceptions.PolarsError:
        raise UserError(f"unknown time zone {name!r}; expected a name such as UTC or Europe/Berlin") from None
    return name


@dataclass(frozen=True)
class Clock:
    """A clock on which round t begins t * round_seconds after `start`; hours and days are those of the time zone.

    start is in seconds since 1970 (UTC), or None if only the time since the beginning is known. Then round 0 begins at
    the start of a day, for every time zone.
    """

    round_seconds: float
    start: float | None = None
    timezone: str = "UTC"

    def __post_init__(self) -> None:
        if not 0 < self.round_seconds < float("inf"):
            raise UserError(f"round_seconds is {self.round_seconds!r}; expected a positive number")
        known_timezone(self.timezone)

    def _local(self, rounds: npt.ArrayLike) -> pl.Series:
        at = (self.start or 0.0) + np.asarray(rounds, dtype=np.float64) * self.round_seconds
        moments = pl.Series((at * 1e6).round().astype(np.int64)).cast(pl.Datetime("us", "UTC"))
        return moments if self.start is None else moments.dt.convert_time_zone(self.timezone)

    def hours(self, rounds: int) -> npt.NDArray[np.int64]:
        """The hour of the day, from 0 to 23, in which each of the first rounds begins, [T]."""
        return self._local(np.arange(rounds)).dt.hour().cast(pl.Int64).to_numpy()

    def days(self, rounds: int) -> npt.NDArray[np.int64]:
        """The day on which each of the first rounds begins, counted from the day of round 0, [T]."""
        days = self._local(np.arange(rounds)).dt.date().to_physical().cast(pl.Int64).to_numpy()
        return np.asarray(days - days[0])

    def at_local_time(self, first: int) -> "Clock":
        """This clock with round 0 at the local time `first`, given as seconds from 1970-01-01 00:00 local time."""
        shown = pl.Series([first * 1_000_000]).cast(pl.Datetime("us"))
        at = None
        while at is None:  # a local time that is skipped in spring does not exist; one hour later does
            at = shown.dt.replace_time_zone(self.timezone, ambiguous="earliest", non_existent="null").dt.epoch("us")[0]
            shown = shown.dt.offset_by("1h")
        return Clock(self.round_seconds, at / 1e6, self.timezone)

    def local_times(self, rounds: int) -> npt.NDArray[np.int64]:
        """The local time at which each of the first rounds begins, in whole seconds from 1970-01-01 00:00, [T]."""
        return self._local(np.arange(rounds)).dt.replace_time_zone(None).dt.epoch("s").to_numpy()

    def when(self, t: int) -> str:
        """The time at which round t begins, as text.

        >>> Clock(600, start=0.0, timezone="Europe/Berlin").when(3)
        '1970-01-01 01:30'
        >>> Clock(600).when(150), Clock(600, timezone="America/New_York").when(150)
        ('day 1, 01:00', 'day 1, 01:00')
        """
        local = self._local([t])[0]
        if self.start is not None:
            return f"{local:%Y-%m-%d %H:%M}"
        return f"day {int(t * self.round_seconds // 86400)}, {local:%H:%M}"

    def lasting(self, rounds: float) -> str:
        """The length of a number of rounds, as text.

        >>> Clock(600).lasting(3), Clock(600).lasting(15), Clock(600).lasting(1000)
        ('30 min', '2.5 h', '6.9 days')
        """
        s = rounds * self.round_seconds
        if s < 60:
            return f"{s:.3g} s"
        if s < 5400:
            return f"{s / 60:.3g} min"
        amount, unit = (s / 3600, "h") if s < 172800 else (s / 86400, "days")
        return f"{amount:.2g} {unit}" if amount < 10 else f"{amount:.0f} {unit}"
