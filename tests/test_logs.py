"""Logs as people have them: every format gives the same trace, and every kind of damage is named."""

import gzip
import json
import re

import numpy as np
import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fedawe.audit import audit, logs
from fedawe.audit.logs import Clock, Columns, seconds
from fedawe.availability.trace import Trace
from fedawe.core.errors import UserError

ROWS = [  # three clients, an hour of ten-minute rounds from 08:00
    ("a", "2024-05-01T08:00:00Z"),
    ("b", "2024-05-01T08:09:59Z"),
    ("a", "2024-05-01T08:11:00Z"),
    ("c", "2024-05-01T08:30:00Z"),
    ("a", "2024-05-01T08:59:00Z"),
]
ON = np.array([[1, 1, 0], [1, 0, 0], [0, 0, 0], [0, 0, 1], [0, 0, 0], [1, 0, 0]], dtype=bool)


def csv(rows, header="client,timestamp"):
    return "\n".join([header, *(",".join(row) for row in rows)]) + "\n"


def epoch(text):
    return pl.Series([text]).str.to_datetime("%Y-%m-%dT%H:%M:%SZ").dt.epoch("s")[0]


def write(folder, name, content):
    path = folder / name
    path.write_bytes(content if isinstance(content, bytes) else content.encode())
    return path


def kinds(log):
    return {finding.kind: finding for finding in log.findings}


# Formats.


def test_every_format_gives_the_same_trace(tmp_path):
    frame = pl.DataFrame(ROWS, schema=["client", "timestamp"], orient="row")
    times = pl.col("timestamp").str.to_datetime("%Y-%m-%dT%H:%M:%SZ")
    frame.with_columns(times).write_parquet(tmp_path / "naive.parquet")
    frame.with_columns(times.dt.replace_time_zone("UTC").dt.convert_time_zone("Asia/Tokyo")).write_parquet(
        tmp_path / "tokyo.parquet"
    )
    text = csv(ROWS)
    paths = [
        write(tmp_path, "log.csv", text),
        write(tmp_path, "bom.csv", b"\xef\xbb\xbf" + text.replace("\n", "\r\n").encode()),
        write(tmp_path, "log.csv.gz", gzip.compress(text.encode())),
        write(tmp_path, "CAPITALS.CSV.GZ", gzip.compress(text.encode())),
        write(tmp_path, "log.tsv", text.replace(",", "\t")),
        write(tmp_path, "semicolons.csv", text.replace(",", ";")),
        write(tmp_path, "quoted.csv", csv([(f'"{c}"', f'"{t}"') for c, t in ROWS])),
        write(tmp_path, "seconds.csv", csv([(c, str(epoch(t))) for c, t in ROWS])),
        write(tmp_path, "milliseconds.csv", csv([(c, str(1000 * epoch(t))) for c, t in ROWS])),
        write(tmp_path, "offset.csv", csv([(c, t.replace("Z", "-00:00").replace("T", " ")) for c, t in ROWS])),
        write(tmp_path, "log.jsonl", "".join(json.dumps({"client": c, "timestamp": t}) + "\n" for c, t in ROWS)),
        write(tmp_path, "n.ndjson", "".join(json.dumps({"timestamp": epoch(t), "client": c}) + "\n" for c, t in ROWS)),
        tmp_path / "naive.parquet",
        tmp_path / "tokyo.parquet",
    ]
    for path in paths:
        log = logs.read(path)
        assert log.clients == ("a", "b", "c"), path
        assert (log.trace.on == ON).all(), path
        assert log.clock == Clock(600.0, epoch("2024-05-01T08:00:00Z")), path
        assert log.rows == 5, path


@pytest.mark.parametrize(
    "times",
    [
        lambda at: at.cast(pl.Datetime("us")),
        lambda at: at.cast(pl.Datetime("us")).cast(pl.Datetime("ns", "UTC")),
        lambda at: at.cast(pl.Datetime("us")).cast(pl.Datetime("ms")),
        lambda at: (at // 10**6).cast(pl.Int32),
        lambda at: at * 1000,
        lambda at: at / 1e6,
        lambda at: (at // 10**6).cast(pl.String).str.to_decimal(scale=1),
        lambda at: at.cast(pl.Datetime("us")).dt.strftime("%Y-%m-%d %H:%M:%S+00"),
    ],
    ids=["us", "ns UTC", "ms", "seconds", "nanoseconds", "fractions", "decimal", "text"],
)
@pytest.mark.parametrize(
    "clients",
    [
        lambda names: names,
        lambda names: names.cast(pl.Categorical),
        lambda names: names.replace_strict({"a": 7, "b": 30, "c": 2**63}, return_dtype=pl.UInt64),
    ],
    ids=["text", "categories", "numbers"],
)
def test_parquet_of_all_types(tmp_path, clients, times):
    at = pl.Series([epoch(t) * 10**6 for _, t in ROWS])
    frame = {"timestamp": times(at), "client": clients(pl.Series([c for c, _ in ROWS])), "other": [None] * 5}
    pl.DataFrame(frame).write_parquet(tmp_path / "log.parquet")
    log = logs.read(tmp_path / "log.parquet")
    assert (log.trace.on == ON).all()
    assert log.clock.start == epoch("2024-05-01T08:00:00Z")
    assert kinds(log)["unknown columns"].text == "columns not used: 'other'"


def test_intervals_mean_the_rounds_that_begin_inside(tmp_path):
    rows = [("a", "08:00:00", "08:10:00"), ("a", "08:15:00", "08:40:00"), ("b", "08:50:01", "09:00:00.5")]
    text = "client,start,end\n" + "".join(f"{c},2024-05-01T{a}Z,2024-05-01T{b}Z\n" for c, a, b in rows)
    log = logs.read(write(tmp_path, "log.csv", text))
    assert log.trace.on.astype(int).T.tolist() == [[1, 0, 1, 1, 0, 0, 0], [0, 0, 0, 0, 0, 0, 1]]


def test_intervals_in_seconds_are_read_as_a_trace_reads_them(tmp_path):
    text = "client,start,end\n0,0,1200\n1,600,1800\n0,1500,1800\n2,3000.5,4000\n"
    path = write(tmp_path, "log.csv", text)
    log = logs.read(path)
    assert (log.trace.on == Trace.load(path, round_seconds=600).on).all()
    assert log.clock.start is None
    assert "since the log began" in kinds(log)["numeric times"].text


def test_a_time_zone_moves_times_that_do_not_say_theirs(tmp_path):
    rows = [("a", "2024-05-01 23:50:00"), ("a", "2024-05-02 00:10:00")]
    berlin = logs.read(write(tmp_path, "log.csv", csv(rows)), timezone="Europe/Berlin")
    assert berlin.clock.when(0) == "2024-05-01 23:50"
    assert berlin.clock.hours(3).tolist() == [23, 0, 0]
    assert berlin.clock.start == epoch("2024-05-01T21:50:00Z")


def test_rounds_are_laid_from_midnight_also_when_clocks_change(tmp_path):
    rows = [("a", "2024-03-30T23:40:00Z"), ("a", "2024-03-31T02:10:00Z")]
    log = logs.read(write(tmp_path, "log.csv", csv(rows)), timezone="Europe/Berlin", round_length="1h")
    assert log.clock.when(0) == "2024-03-31 00:00"  # 23:40 UTC is 00:40 in Berlin
    assert log.clock.hours(4).tolist() == [0, 1, 3, 4]


def test_columns_by_other_names_and_a_format_of_ones_own(tmp_path):
    path = write(tmp_path, "log.csv", "when,device,x\n01/05/2024 08:00,7,u\n01/05/2024 08:20,12,v\n")
    log = logs.read(path, columns=Columns(client="device", timestamp="when"), time_format="%d/%m/%Y %H:%M")
    assert log.clients == ("7", "12")  # numbers by size
    assert log.trace.on.astype(int).tolist() == [[1, 0], [0, 0], [0, 1]]


def test_since_and_until_and_the_roster(tmp_path):
    path = write(tmp_path, "log.csv", csv(ROWS))
    log = logs.read(path, since="2024-05-01T08:10", until="2024-05-01 08:40:00", roster=["a", "z", "c"])
    assert log.clients == ("a", "c", "z")
    assert log.trace.on.astype(int).tolist() == [[1, 0, 0], [0, 0, 0], [0, 1, 0]]
    assert kinds(log)["before --since"].count == 2
    assert kinds(log)["after --until"].count == 1
    assert kinds(log)["never seen"].count == 1


def test_traces_are_read_as_they_are_and_keep_names_and_clock(tmp_path):
    log = logs.read(write(tmp_path, "log.csv", csv(ROWS)), timezone="Asia/Tokyo")
    log.save(tmp_path / "fleet.npz")
    again = logs.read(tmp_path / "fleet.npz")
    assert (again.clients, again.clock) == (log.clients, log.clock)
    assert (Trace.load(tmp_path / "fleet.npz").on == log.trace.on).all()
    trace = Trace([[1, 0], [1, 1]], p=[[0.5, 0.5], [0.5, 0.5]])
    trace.save(tmp_path / "t.csv")
    trace.save(tmp_path / "t.npz")
    for name in ("t.csv", "t.npz"):
        plain = logs.read(tmp_path / name)
        assert plain.clients == ("0", "1")
        assert plain.clock is None
        assert (plain.trace.on == trace.on).all()
    assert logs.read(tmp_path / "t.npz", round_length="1h").clock == Clock(3600.0)
    with pytest.raises(UserError, match=r"written as \.npz"):
        log.save(tmp_path / "fleet.csv")


# Device events.


def phone(*events):
    return {"guid": "g", "model": "m", "messages": "\n".join(f"{when} \t{what}" for when, what in events)}


PHONE = phone(
    ("2020-01-28 06:00:00", "wifi"),
    ("2020-01-28 06:05:00", "battery_charged_on"),
    ("2020-01-28 08:05:00", "screen_lock"),
    ("2020-01-28 08:05:00", "97.0%"),
    ("2020-01-28 10:05:00", "screen_unlock"),
    ("2020-01-28 12:05:00", "4G"),
    ("2020-01-29 07:00:00", "screen_on"),
)


@pytest.mark.parametrize(
    ("rule", "hours"),
    [("strict", [9, 10]), ("wifi-locked", [9, 10]), ("wifi-charging", range(7, 13)), ("wifi", range(6, 13))],
)
def test_a_phone_can_train_when_the_rule_says(tmp_path, rule, hours):
    (tmp_path / "events").mkdir()
    write(tmp_path, "events/a.json.gz", gzip.compress(json.dumps({"0": PHONE}).encode()))
    write(tmp_path, "events/notes.json", '{"about": 1}')
    log = logs.read(tmp_path / "events", rule=rule, round_length="1h", days=2)
    assert np.flatnonzero(log.trace.on[:24, 0]).tolist() == list(hours)
    # Watched from 06:00 for one whole day, which it repeats at the same time of day.
    assert (log.trace.on[24:] == log.trace.on[:24]).all()
    assert log.clock.when(0) == "2020-01-28 00:00"
    assert kinds(log)["other files"].count == 1


# Damage. Each row: what is wrong, the file, what is said; an error ends reading, a finding does not.


def parquet(columns):
    def make(path):
        pl.DataFrame(columns).write_parquet(path)

    return make


A, B = "a,2024-05-01T08:00:00Z\n", "b,2024-05-01T08:20:00Z\n"
HEAD = "client,timestamp\n"
SPAN = "client,start,end\n"

ERRORS = [
    ("empty file", "x.csv", "", {}, "is empty"),
    ("header only", "x.csv", HEAD, {}, "it has no row below the header"),
    ("no header", "x.csv", A + B, {}, "expected the columns client, timestamp .* found a, 2024-05-01"),
    (
        "wrong fields",
        "x.jsonl",
        '{"device":{"id":1},"ts":2}\n' * 3,
        {},
        "found device.id, ts, device; give their names with --client-column",
    ),
    ("wrong columns", "x.csv", "device,ts\n1,2\n", {}, "found device, ts; give their names with --client-column"),
    ("column twice", "x.csv", "client,timestamp,client\na,1,b\n", {}, "the column 'client' twice"),
    ("unknown suffix", "x.xlsx", "PK", {}, "expected a trace .* a log .* or device events"),
    ("torn gzip", "x.csv.gz", gzip.compress((HEAD + A * 50000).encode(), mtime=0)[:200], {}, "cannot be read"),
    ("not gzip", "x.csv.gz", HEAD + A, {}, "cannot be read"),
    ("not parquet", "x.parquet", "PAR1 no", {}, "cannot be read \\("),
    (
        "parquet, client is a fraction",
        "x.parquet",
        parquet({"client": [0.5], "timestamp": [1]}),
        {},
        "expected names or",
    ),
    ("parquet, time is a list", "x.parquet", parquet({"client": ["a"], "timestamp": [[1]]}), {}, "expected dates and"),
    ("no time readable", "x.csv", HEAD + "a,yesterday\nb,soon\n", {}, "no row of 2 can be used: 2 rows with a time"),
    (
        "most times unreadable",
        "x.csv",
        HEAD + A + "b,1 May\na,2 May\n",
        {},
        "2 of 3 rows cannot be read: 2 rows with a time that cannot be read .*'1 May'.; say .* with --time-format",
    ),
    (
        "most clients of another encoding",
        "x.csv",
        (HEAD + A).encode() + 2 * b"\xe9t\xe9,2024-05-01\n",
        {},
        "2 of 3 rows cannot be read: .*; save the file as UTF-8",
    ),
    ("no JSON", "x.jsonl", "hello\nworld\n", {}, "none of the first lines is a JSON object"),
    ("JSON of another kind", "x.jsonl", '{"id": 1}\n', {}, "found id"),
    ("events of another kind", "x.json", '{"a": [1]}', {}, "expected device events"),
    ("broken events", "x.json", '{"a": ', {}, "cannot be read as JSON"),
    (
        "phone watched too briefly",
        "x.json",
        json.dumps({"0": phone(("2020-01-28 06:00:00", "wifi"))}),
        {},
        "a whole day",
    ),
    ("no array in npz", "x.npz", b"PK", {}, "cannot be read as npz"),
    (
        "a wrong date",
        "x.csv",
        HEAD + A + "b,2093-01-01\n",
        {"round_length": "1s"},
        r"2093-01-01 \(row 2\).*too|too many",
    ),
    ("unknown time zone", "x.csv", HEAD + A, {"timezone": "Mars/Base"}, "unknown time zone 'Mars/Base'"),
    ("unreadable length", "x.csv", HEAD + A, {"round_length": "ten minutes"}, "expected something like 30s, 10min"),
    ("no length", "x.csv", HEAD + A, {"round_length": "0s"}, "expected 0.001 s or more"),
    ("unreadable since", "x.csv", HEAD + A, {"since": "last week"}, "cannot read the time 'last week'"),
    (
        "nothing since",
        "x.csv",
        HEAD + A,
        {"since": "2030-01-01"},
        "no row of 1 can be used: 1 row dated before --since",
    ),
    ("no days", "x.csv", HEAD + A, {"days": 0}, "days is 0"),
    ("another fleet's roster", "x.csv", HEAD + A, {"roster": ["q"]}, "none of the 1 clients in the table of clients"),
    ("all intervals reversed", "x.csv", SPAN + "a,20,10\n", {}, "1 row with an end before the beginning"),
]


@pytest.mark.parametrize(
    ("name", "content", "how", "said"), [row[1:] for row in ERRORS], ids=[row[0] for row in ERRORS]
)
def test_a_log_that_cannot_be_read_is_refused_in_one_line(tmp_path, name, content, how, said):
    path = tmp_path / name
    content(path) if callable(content) else write(tmp_path, name, content)
    with pytest.raises(UserError, match=said) as caught:
        logs.read(path, **how)
    assert "\n" not in str(caught.value)


def test_no_file_and_a_folder_without_events(tmp_path):
    with pytest.raises(UserError, match="no such file"):
        logs.read(tmp_path / "nothing.csv")
    with pytest.raises(UserError, match="no such file"):
        logs.read(tmp_path / "nothing.json")
    with pytest.raises(UserError, match=r"a folder without files of a log"):
        logs.read(tmp_path)


MINUTES = "".join(f"a,2024-05-01T08:{m:02d}:00Z\n" for m in range(40))
BERLIN = {"timezone": "Europe/Berlin"}
FINDINGS = [  # ..., kind, how often, in the sentence
    ("duplicates", "x.csv", HEAD + A + B + A + A, {}, "duplicates", 2, "counted once"),
    (
        "too many fields",
        "x.csv",
        HEAD + A + "b,2024-05-01,7,8\n",
        {},
        "unreadable rows",
        1,
        "more than 2 fields .row 2",
    ),
    ("too few fields", "x.csv", HEAD + A + "b\n" + B, {}, "unreadable rows", 1, "fewer than 2 fields"),
    ("not UTF-8", "x.csv", (HEAD + A).encode() + b"\xff\xfe,2024-05-01\n", {}, "unreadable rows", 1, "is not UTF-8"),
    ("an open quote", "x.csv", HEAD + A + '"b,2024-05-01T08:00:00Z\n' + B, {}, "quotes", 1, "do not match"),
    ("a quote closed lines later", "x.csv", HEAD + '"' + A + B + '"' + B, {}, "quotes", 1, "do not match"),
    ("no client", "x.csv", HEAD + A + ",2024-05-01\n", {}, "no client", 1, "without a client"),
    ("blanks for a client", "x.csv", HEAD + A + "  ,2024-05-01\n", {}, "no client", 1, "without a client"),
    ("unreadable time", "x.csv", HEAD + A + "b,2024-02-30\n", {}, "unreadable times", 1, "as '2024-02-30'"),
    ("infinite time", "x.csv", HEAD + A + "b,inf\n", {}, "unreadable times", 1, "cannot be read"),
    ("clock not set", "x.csv", HEAD + A + "b,1970-01-01T00:00:03Z\n", {}, "clock not set", 1, "before 2000"),
    ("clock far ahead", "x.csv", HEAD + A + "b,2150-01-01\n", {}, "clock not set", 1, "after 2100"),
    ("clock went back", "x.csv", HEAD + MINUTES + A, {}, "clock jumps", 1, "went back 1 time, by up to 39 min"),
    (
        "rows in no order",
        "x.csv",
        HEAD + "".join(reversed(MINUTES.splitlines(True))),
        {},
        "order",
        39,
        "not in order of time",
    ),
    ("no time zone", "x.csv", HEAD + "a,2024-05-01 08:00\n", {}, "time zone", 1, "read as UTC; if that is wrong"),
    (
        "some with a time zone",
        "x.csv",
        HEAD + A + "b,2024-05-01 08:00\n",
        {},
        "mixed time zones",
        1,
        r"\(1, read as UTC",
    ),
    ("an hour twice", "x.csv", HEAD + "a,2024-10-27 02:30\n", BERLIN, "ambiguous times", 1, "clocks were set back"),
    ("an hour skipped", "x.csv", HEAD + A + "b,2024-03-31 02:30\n", BERLIN, "skipped times", 1, "set forward"),
    ("milliseconds", "x.csv", HEAD + "a,1714550400000\n", {}, "numeric times", 1, "read as milliseconds since 1970"),
    ("negative seconds", "x.csv", HEAD + "a,5\nb,-5\nb,7\n", {}, "negative times", 1, "below zero"),
    ("unknown columns", "x.csv", "client,timestamp,os\na,2024-05-01,x\n", {}, "unknown columns", 1, "'os'"),
    ("a gap", "x.csv", HEAD + A + "b,2024-05-01T20:00:00Z\n", {}, "gaps", 1, "longest 12 h from 2024-05-01 08:10"),
    (
        "broken JSON line",
        "x.jsonl",
        '{"client":"a","timestamp":1}\n{"cli\n',
        {},
        "unreadable rows",
        1,
        "that cannot be read as a JSON object",
    ),
    (
        "JSON null",
        "x.jsonl",
        '{"client":"a","timestamp":1}\n{"client":null,"timestamp":2}\n',
        {},
        "no client",
        1,
        "row 2",
    ),
    ("JSON, more keys", "x.jsonl", '{"client":"a","timestamp":1,"v":{}}\n', {}, "unknown columns", 1, "'v'"),
    ("overlaps", "x.csv", SPAN + "a,0,1200\na,600,1800\n", {}, "overlaps", 1, "joined with it"),
    ("an interval within another", "x.csv", SPAN + "a,0,9000\na,600,1200\na,1800,2400\n", {}, "overlaps", 2, "joined"),
    (
        "reversed interval",
        "x.csv",
        SPAN + "a,0,1200\na,2000,1900\n",
        {},
        "reversed intervals",
        1,
        "before the beginning",
    ),
    ("no end", "x.csv", SPAN + "a,0,1200\na,2000,\n", {}, "open intervals", 1, "1 interval without an end; counted as"),
    ("short intervals", "x.csv", SPAN + "a,0,1200\na,1300,1400\n", {}, "short intervals", 1, "which no round begins"),
    (
        "null in parquet",
        "x.parquet",
        parquet({"client": ["a", None], "timestamp": [1, 2]}),
        {},
        "no client",
        1,
        "row 2",
    ),
]
EVENTS = [
    ("unreadable events", ("yesterday", "wifi"), "cannot be read"),
    ("unknown events", ("2020-01-28 07:00:00", "dance"), "unknown kinds"),
    ("back events", ("2020-01-27 07:00:00", "screen_on"), "sorted by time"),
]


@pytest.mark.parametrize(
    ("name", "content", "how", "kind", "count", "said"), [row[1:] for row in FINDINGS], ids=[row[0] for row in FINDINGS]
)
def test_damage_that_can_be_lived_with_is_counted_and_named(tmp_path, name, content, how, kind, count, said):
    path = tmp_path / name
    content(path) if callable(content) else write(tmp_path, name, content)
    log = logs.read(path, **how)
    found = kinds(log)
    assert kind in found, found
    assert count is None or found[kind].count == count
    assert re.search(said, found[kind].text), found[kind].text


@pytest.mark.parametrize(("kind", "event", "said"), EVENTS)
def test_events_that_say_nothing_are_counted(tmp_path, kind, event, said):
    events = [("2020-01-28 06:00:00", "wifi"), event, ("2020-01-29 07:00:00", "4G")]
    path = write(tmp_path, "x.json", json.dumps({"0": phone(*events), "1": phone(("2020-01-28 06:00:00", "wifi"))}))
    found = kinds(logs.read(path, rule="wifi"))
    assert found[kind].count == 1
    assert said in found[kind].text
    assert found["short devices"].count == 1


def test_rows_that_are_whole_are_used_whatever_is_wrong_with_others(tmp_path):
    rotten = HEAD + A + "b\n,\n" + "x,y,z\n" + "b,never\n" + B + A + A
    log = logs.read(write(tmp_path, "x.csv", rotten))
    assert log.clients == ("a", "b")
    assert log.trace.on.astype(int).tolist() == [[1, 0], [0, 0], [0, 1]]


def test_half_of_the_rows_may_be_unreadable_and_the_advice_says_so(tmp_path):
    log = logs.read(write(tmp_path, "x.csv", HEAD + A + "b,yesterday\n"))
    said = "In the log: 1 row with a time that cannot be read (row 2, as 'yesterday'); left out; say how times are"
    assert f"{said} written with --time-format." in audit(log).advice.cautions


def test_overlapping_intervals_are_their_union(tmp_path):
    draw = np.random.default_rng(0)
    start = draw.integers(0, 90, 300) * 60
    rows = [(draw.integers(5), a, a + 60 * draw.integers(1, 40)) for a in start]
    log = logs.read(write(tmp_path, "x.csv", SPAN + "".join(f"{c},{a},{b}\n" for c, a, b in rows)))
    expected = np.zeros_like(log.trace.on)
    for c, a, b in rows:
        expected[-(-a // 600) : -(-b // 600), c] = True
    assert (log.trace.on == expected).all()
    assert log.trace.on.view(np.uint8).max() == 1


@pytest.mark.parametrize(("text", "value"), [("90", 90), ("30s", 30), ("10 min", 600), ("1h30m", 5400), ("1d", 86400)])
def test_lengths_of_time(text, value):
    assert seconds(text) == value


@pytest.mark.parametrize("text", ["", "h", "10 parsecs", "-5s", "1h!", "nan"])
def test_lengths_that_are_none(text):
    with pytest.raises(UserError):
        seconds(text)


@pytest.mark.parametrize(
    ("arrays", "said"),
    [
        ({"round_seconds": np.array([1.0, 2.0])}, "round_seconds and start must be single numbers"),
        ({"round_seconds": np.array("x")}, "round_seconds and start must be single numbers"),
        ({"round_seconds": -1.0}, "round_seconds is -1"),
        ({"round_seconds": 600.0, "start": np.nan, "timezone": "UTC"}, "start nan"),
        ({"round_seconds": 600.0, "timezone": "Mars/X"}, "Mars/X"),
    ],
)
def test_a_trace_with_a_clock_that_cannot_be_meant_is_refused_by_name(tmp_path, arrays, said):
    path = tmp_path / "t.npz"
    np.savez(path, on=np.ones((5, 3), dtype=bool), **arrays)
    with pytest.raises(UserError, match=said) as refusal:
        logs.read(path)
    assert str(refusal.value).startswith(str(path))


def test_a_trace_with_a_clock_and_no_time_zone_is_in_utc(tmp_path):
    np.savez(tmp_path / "t.npz", on=np.ones((5, 3), dtype=bool), round_seconds=600.0)
    clock = logs.read(tmp_path / "t.npz").clock
    assert clock is not None
    assert clock.timezone == "UTC"


def test_one_date_far_in_the_future_is_refused_with_its_row(tmp_path):
    path = tmp_path / "log.csv"
    path.write_text("client,timestamp\na,2024-01-01T00:00:00Z\nb,2099-01-01T00:00:00Z\n")
    with pytest.raises(UserError, match=r"2024-01-01 \(row 1\) and 2099-01-01 \(row 2\)"):
        logs.read(path)


def test_at_least_thirty_kinds_of_broken_logs_are_told_apart():
    refused, lived_with = [row[0] for row in ERRORS], [row[0] for row in FINDINGS] + [kind for kind, _, _ in EVENTS]
    assert len({*refused, *lived_with}) == len(refused) + len(lived_with) >= 60
    assert len({row[-1] for row in ERRORS}) >= 24  # few messages serve two kinds


WHOLE = {
    "x.csv": csv(ROWS).encode(),
    "n.csv": csv([(c, str(epoch(t))) for c, t in ROWS]).encode(),
    "i.csv": (SPAN + "".join(f"{c},{600 * n},{600 * n + 900}\n" for n, (c, _) in enumerate(ROWS))).encode(),
    "x.jsonl": "".join(json.dumps({"client": c, "timestamp": t}) + "\n" for c, t in ROWS).encode(),
    "x.json": json.dumps({"0": PHONE}).encode(),
    "x.csv.gz": gzip.compress(csv(ROWS).encode(), mtime=0),
}
DIRT = [
    b"",
    b"\0",
    b"\xff",
    b'"',
    b",",
    b"\n",
    b"\r",
    b"-",
    b"9" * 30,
    b"1e308",
    b"nan",
    b"\x1b[2J",
    b"{",
    b"9999-12-31",
    b"T",
]


@given(
    name=st.sampled_from(list(WHOLE)),
    wounds=st.lists(st.tuples(st.floats(0, 1), st.integers(0, 10), st.sampled_from(DIRT)), min_size=1, max_size=6),
)
@settings(max_examples=100, deadline=None)
def test_whatever_happens_to_a_file_it_is_read_or_refused_in_printable_words(tmp_path_factory, name, wounds):
    content = WHOLE[name]
    for where, lost, dirt in wounds:
        at = round(where * len(content))
        content = content[:at] + dirt + content[at + lost :]
    path = write(tmp_path_factory.mktemp("dirt"), name, content)
    try:
        log = logs.read(path, **({"rule": "wifi"} if name == "x.json" else {}))
    except UserError as error:
        said = [str(error)]
    else:
        said = [finding.text for finding in log.findings]
        assert log.trace.on.any()
        assert log.trace.clients == len(set(log.clients))
    assert all(text.isprintable() for text in said), said
