"""When a client enrolled in the fleet and when it left; its availability before and after is unknown, not "absent".

The dates are taken from the columns `enrolled` and `left` of --groups if there are any. Otherwise they are inferred: a
client that is silent at the beginning or at the end of a log, for a day or more and for three times as long as ever in
between, had not enrolled yet, or has left. For a memoryless client with n absences that happens by chance once in
(n + 1)(n + 2)(n + 3) / 6 times. A client is silent while no row of the log is about it; a row that says that it is
offline shows that it is enrolled. If a client is available outside the dates of the table, the dates are extended.
"""

from collections.abc import Mapping, Sequence

import numpy as np
import numpy.typing as npt

from fedawe.audit.logs.findings import Finding, counted, shown, some
from fedawe.audit.logs.times import EARLIEST, LATEST, moment, moments
from fedawe.availability.clock import Clock
from fedawe.availability.csv import MICROSECONDS
from fedawe.availability.dynamics import Mask
from fedawe.core.errors import UserError

Ints = npt.NDArray[np.int64]
TIMES = 3  # the silence must be so many times as long as the longest absence in between
ABSENCES = 5  # a client is judged if it has so many absences in between, ...
MOST = 0.8  # ... or if it is available for this share of the time in between
DAY = 86400.0
AT_ONCE = 6 * 3600.0  # clients that fall silent within so many seconds do so together
TOGETHER = 1 / 3  # if more than this share of the fleet falls silent together, it is an outage: they did not leave


def enrolment(
    on: Mask,
    names: Sequence[str],
    clock: Clock,
    said: Mapping[str, tuple[str | None, str | None]],
    heard: Mapping[str, tuple[int, int]] | None,
) -> tuple[Mask | None, list[Finding]]:
    """Whether the availability of each client is known in each round [T, m] (None: everywhere), and findings.

    said    client -> the dates of enrolling and leaving in the table of clients; None: no such date
    heard   client -> the times of its first and last row, in microseconds; a client without an entry is judged by
            the rounds in which it is available. None: infer no dates
    """
    T, m = on.shape
    begin, end = np.zeros(m, dtype=np.int64), np.full(m, T)
    outages: list[Finding] = []
    if heard is not None:
        begin, end, outages = _guessed(on, clock, *_signs(heard, names, clock, T))
    written = {text for name in names for text in said.get(name, ()) if text is not None}
    read = moments(written, clock.timezone)
    for n, name in enumerate(names):
        if name in said:
            enrolled, left = said[name]
            begin[n] = 0 if enrolled is None else _round(enrolled, read, "enrolled", name, clock, T)
            end[n] = T if left is None else max(_round(left, read, "left", name, clock, T), begin[n])
    ever, first, last = on.any(0), on.argmax(0), T - 1 - on[::-1].argmax(0)
    outside = [names[n] for n in np.flatnonzero(ever & ((first < begin) | (last >= end))).tolist()]
    begin, end = np.where(ever, np.minimum(begin, first), begin), np.where(ever, np.maximum(end, last + 1), end)
    as_said = {**said, **dict.fromkeys(outside, (None, None))}
    findings = [*_findings(begin, end, T, names, clock, as_said), *outages]
    if outside:
        text = f"{counted(len(outside), 'client')} available before enrolling or after leaving ({some(outside)})"
        text += "; counted as enrolled from the first round in which they were available until the last"
        findings.append(Finding("outside enrolment", len(outside), text))
    if (begin == 0).all() and (end == T).all():
        return None, findings
    rounds = np.arange(T)[:, None]
    return (rounds >= begin) & (rounds < end), findings


def _signs(heard: Mapping[str, tuple[int, int]], names: Sequence[str], clock: Clock, T: int) -> tuple[Ints, Ints]:
    """The first and last round that begins between a client's first and last row, [m]; T and -1 without rows."""
    zero, length = round((clock.start or 0.0) * MICROSECONDS), round(clock.round_seconds * MICROSECONDS)
    first, last = np.full(len(names), T), np.full(len(names), -1)
    for n, name in enumerate(names):
        if name in heard:
            early, late = heard[name]
            first[n], last[n] = -((zero - early) // length), min((late - 1 - zero) // length, T - 1)
    return np.maximum(first, 0), last


def _guessed(on: Mask, clock: Clock, heard: Ints, heard_of: Ints) -> tuple[Ints, Ints, list[Finding]]:
    """The rounds [begin, end) in which each client belonged to the fleet, inferred from its silence, [m]; and outages.

    heard, heard_of   the first and last round between a client's rows, as from `_signs`                        [m]
    """
    T, m = on.shape
    first, last, longest, absences, share = _lives(on)
    day, long = round(DAY / clock.round_seconds), np.maximum(DAY / clock.round_seconds, TIMES * longest)
    ever = first < T
    telling = ever & ((absences >= ABSENCES) | ((share >= MOST) & (last - first >= day)))
    first, last = np.minimum(first, heard), np.maximum(last, heard_of)
    begin, end = np.zeros(m, dtype=np.int64), np.full(m, T)
    late, gone = telling & (first > long), telling & (T - 1 - last > long)
    at_once = _at_once(last, gone, round(AT_ONCE / clock.round_seconds), int(ever.sum()))
    gone &= ~at_once
    begin[late], end[gone] = first[late], last[gone] + 1
    if not at_once.any():
        return begin, end, []
    when, n = clock.when(int(last[at_once].max()) + 1), int(at_once.sum())
    text = f"{counted(n, 'client')} fell silent together around {when} and did not return: this looks like an outage"
    return begin, end, [Finding("outage at the end", n, f"{text}, so they do not count as having left")]


def _lives(on: Mask) -> tuple[Ints, Ints, Ints, Ints, npt.NDArray[np.float64]]:
    """Per client: first and last available round; longest absence, number of absences and rate in between, [m]."""
    T, m = on.shape
    first, last = np.full(m, T), np.full(m, -1)
    longest, absences, count = np.zeros(m, np.int64), np.zeros(m, np.int64), np.zeros(m, np.int64)
    for t in range(T):
        A = np.flatnonzero(on[t])
        away = np.where(last[A] >= 0, t - last[A] - 1, 0)
        absences[A] += away > 0
        longest[A] = np.maximum(longest[A], away)
        first[A] = np.minimum(first[A], t)
        last[A] = t
        count[A] += 1
    return first, last, longest, absences, count / np.maximum(last - first + 1, 1)


def _at_once(last: Ints, gone: Mask, width: int, m: int) -> Mask:
    """Which of the clients that seem to have left fell silent together, more than a third of the m ever available."""
    out = np.zeros_like(gone)
    moments = np.sort(last[gone])
    for at in np.unique(moments):
        among = gone & (last >= at) & (last <= at + width)
        if among.sum() > TOGETHER * m and among.sum() > 2:
            out |= among
    return out


def _round(
    text: str, read: Mapping[str, tuple[float, bool] | None], column: str, name: str, clock: Clock, T: int
) -> int:
    """The first round that begins at the given moment or later; `read` has the moment of each text."""
    whose = f"the column {column!r} of client {shown(name)}"
    at, dated = read[text] or moment(text, whose, clock.timezone)  # raises, since the text cannot be read
    has = f"{whose} has"
    if dated and clock.start is None:
        raise UserError(
            f"{has} the date {shown(text)!r}, but times count from the beginning of the log; give a number of seconds"
        )
    if not dated and clock.start is not None and not EARLIEST <= at <= LATEST:
        raise UserError(f"{has} {shown(text)}: a number means seconds since 1970; write a date as in 2024-05-01")
    return int(np.clip(-(-(at - (clock.start or 0.0)) // clock.round_seconds), 0, T))


def _findings(
    begin: Ints,
    end: Ints,
    T: int,
    names: Sequence[str],
    clock: Clock,
    said: Mapping[str, tuple[str | None, str | None]],
) -> list[Finding]:
    late, gone = np.flatnonzero((begin > 0) & (begin < T)), np.flatnonzero((end < T) & (end > 0))

    def how(which: Ints, column: int) -> str:
        told = sum(said.get(names[n], (None, None))[column] is not None for n in which)
        rest = len(which) - told
        parts = ((told, "as the table of clients says"), (rest, "inferred from silence"))
        return ", ".join(f"{n:,} {source}" for n, source in parts if n)

    out = []
    if len(late):
        who = some([f"{names[n]} on {clock.when(int(begin[n]))}" for n in late[np.argsort(begin[late], kind="stable")]])
        text = f"{counted(len(late), 'client')} enrolled after the log began ({how(late, 0)}): {who}"
        out.append(Finding("enrolled late", len(late), f"{text}; availability before that is unknown"))
    if len(gone):
        who = some([f"{names[n]} on {clock.when(int(end[n]))}" for n in gone[np.argsort(end[gone], kind="stable")]])
        text = f"{counted(len(gone), 'client')} left before the log ended ({how(gone, 1)}): {who}"
        out.append(Finding("left", len(gone), f"{text}; availability after that is unknown"))
    return out
