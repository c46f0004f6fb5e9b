"""The part of a log that --since and --until select."""

from dataclasses import dataclass

from fedawe.audit.logs.times import EARLIEST, LATEST, moment
from fedawe.core.errors import UserError


@dataclass(frozen=True)
class Span:
    """A time span in seconds since 1970, or since the beginning of the log; None: no limit."""

    since: float | None = None
    until: float | None = None

    @classmethod
    def of(cls, since: str | None, until: str | None, timezone: str, relative: bool) -> "Span":
        """The span that the user wrote.

        Refuses a date if times count from the beginning of the log, and a number that is not a date otherwise.
        """
        ends: list[float | None] = []
        for flag, text in (("--since", since), ("--until", until)):
            if text is None:
                ends.append(None)
                continue
            at, dated = moment(text, flag, timezone)
            if dated and relative:
                raise UserError(f"{flag} {text}: times count from the beginning of the log; give a number of seconds")
            if not dated and not relative and not EARLIEST <= at <= LATEST:
                raise UserError(f"{flag} {text}: a number means seconds since 1970; write a date as in 2024-05-01")
            ends.append(at)
        if ends[0] is not None and ends[1] is not None and ends[0] >= ends[1]:
            raise UserError(f"--since {since} is not before --until {until}")
        return cls(*ends)
