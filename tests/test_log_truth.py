"""A small fleet whose availability is known, in every form that people export: read right, or refused in one line.

None may be misread in silence: a form is in READ (the trace equals the truth) or in REFUSED (a line says what to do).
"""

import contextlib
import gzip
import itertools
import json
import random
import sqlite3
from datetime import UTC, datetime, timedelta, timezone
from pathlib import Path

import numpy as np
import polars as pl
import pytest

from fedawe.audit import logs
from fedawe.audit.logs import Columns
from fedawe.core.errors import UserError

ZERO = 1714521600  # 2024-05-01T00:00:00Z
ROUND, ROUNDS = 600, 24
SPELLS = {  # seconds since ZERO; c is still available when the log ends
    "a": [(0, 3600), (7200, 10800)],
    "b": [(600, 9000)],
    "c": [(3000, 4200), (6000, 14400)],
}
NAMES = tuple(SPELLS)
TRUTH = np.array([[any(s <= t * ROUND < e for s, e in SPELLS[c]) for c in NAMES] for t in range(ROUNDS)], dtype=bool)
CHECKINS = [(c, ZERO + t * ROUND + 30) for t in range(ROUNDS) for n, c in enumerate(NAMES) if TRUTH[t, n]]
END = ZERO + 14400
INTERVALS = [(c, ZERO + s, ZERO + e) for c in NAMES for s, e in SPELLS[c]]
EVENTS = sorted(
    (at, c, word)
    for c, start, end in INTERVALS
    for at, word in ((start, "connected"), *([(end, "disconnected")] if end < END else []))
)
EVENTS.append((END - 1, "b", "disconnected"))  # the log goes on until then


def iso(at, pattern="%Y-%m-%dT%H:%M:%SZ"):
    return datetime.fromtimestamp(at, UTC).strftime(pattern)


def csv(header, rows, sep=","):
    return "\n".join([sep.join(header), *(sep.join(map(str, row)) for row in rows)]) + "\n"


def text(name, content, **how):
    """A form that is one file."""

    def write(folder):
        path = folder / name
        path.write_bytes(content if isinstance(content, bytes) else content.encode())
        return [path], how

    return write


def frame(rows, names):
    return pl.DataFrame(rows, schema=names, orient="row")


def checkins(pattern=None, **how):
    write = (lambda at: at) if pattern is None else (lambda at: iso(at, pattern))
    return text("log.csv", csv(["client", "timestamp"], [(c, write(at)) for c, at in CHECKINS]), **how)


def events(words, column="state", **how):
    rows = [(c, iso(at), words[word]) for at, c, word in EVENTS]
    return text("log.csv", csv(["client", "timestamp", column], rows), **how)


def lines(objects, **how):
    return text("log.jsonl", "".join(json.dumps(found) + "\n" for found in objects), **how)


def parquet(table, **how):
    def write(folder):
        table.write_parquet(folder / "log.parquet")
        return [folder / "log.parquet"], how

    return write


def several(suffix, pattern="*", **how):
    """One file a client, found by a pattern or as a folder."""

    def write(folder):
        (folder / "part").mkdir()
        for c in NAMES:
            rows = [(c, iso(at)) for name, at in CHECKINS if name == c]
            path = folder / "part" / f"{c}{suffix}"
            if suffix == ".parquet":
                frame(rows, ["client", "timestamp"]).write_parquet(path)
            elif suffix == ".jsonl":
                path.write_text("".join(json.dumps({"client": c, "timestamp": at}) + "\n" for _, at in rows))
            else:
                content = csv(["client", "timestamp"], rows).encode()
                path.write_bytes(gzip.compress(content) if suffix.endswith(".gz") else content)
        given = {"*": [folder / "part" / f"*{suffix}"], "folder": [folder / "part"]}
        return given.get(pattern, [folder / "part" / f"{c}{suffix}" for c in NAMES]), how

    return write


def partitioned(folder):
    for c in NAMES:
        place = folder / "log" / f"client={c}"
        place.mkdir(parents=True)
        frame([(at,) for name, at in CHECKINS if name == c], ["timestamp"]).write_parquet(place / "0.parquet")
    return [folder / "log"], {}


def zstd(folder):
    (folder / "log.csv").write_text(csv(["client", "timestamp"], [(c, iso(at)) for c, at in CHECKINS]))
    pl.read_csv(folder / "log.csv").write_csv(folder / "log.csv.zst", compression="zstd", check_extension=False)
    (folder / "log.csv").unlink()
    return [folder / "log.csv.zst"], {}


def database(folder):
    duckdb = pytest.importorskip("duckdb")
    table = frame([(c, at) for c, at in CHECKINS], ["device", "ts"])
    table.write_parquet(folder / "source.parquet")
    connection = duckdb.connect(str(folder / "fleet.duckdb"))
    connection.execute(f"CREATE TABLE seen AS SELECT * FROM '{folder / 'source.parquet'}'")
    connection.close()
    return [folder / "fleet.duckdb"], {"query": "SELECT device AS client, ts AS timestamp FROM seen"}


def anything(folder):
    pytest.importorskip("duckdb")
    frame([(c, at) for c, at in CHECKINS], ["client", "timestamp"]).write_parquet(folder / "source.parquet")
    return [Path("duckdb:")], {"query": f"SELECT * FROM read_parquet('{folder / 'source.parquet'}')"}


def shuffled(rows):
    rows = list(rows)
    random.Random(0).shuffle(rows)
    return rows


ISO = [(c, iso(at)) for c, at in CHECKINS]
SPANS = [(c, iso(s), iso(e)) for c, s, e in INTERVALS]
OPEN = [(c, iso(s), "" if e == END else iso(e)) for c, s, e in INTERVALS] + [("b", iso(END - 60), iso(END))]
WORDS = {"connected": "connected", "disconnected": "disconnected"}
DETAIL = [{"detail": {"clientId": c, "t": {"at": at}}, "kind": "x"} for c, at in CHECKINS]
EXCEL = [(c, f"{at / 86400 + 25569:.9f}") for c, at in CHECKINS]
KEPT = [(c, iso(at), "yes") for c, at in CHECKINS] + [("b", iso(ZERO + 10000), "no"), ("a", iso(ZERO + 5000), "0")]

READ = {
    "iso": checkins("%Y-%m-%dT%H:%M:%SZ"),
    "iso with blanks": checkins("%Y-%m-%d %H:%M:%S+00:00"),
    "iso with fractions": checkins("%Y-%m-%dT%H:%M:%S.123Z"),
    "iso without a zone": checkins("%Y-%m-%dT%H:%M:%S"),
    "a format of its own": checkins("%d.%m.%Y %H:%M", time_format="%d.%m.%Y %H:%M"),
    "American dates": checkins("%m/%d/%Y %I:%M:%S %p", time_format="%m/%d/%Y %I:%M:%S %p"),
    "epoch seconds": checkins(),
    "epoch milliseconds": text("log.csv", csv(["client", "timestamp"], [(c, at * 1000) for c, at in CHECKINS])),
    "epoch microseconds": text("log.csv", csv(["client", "timestamp"], [(c, at * 10**6) for c, at in CHECKINS])),
    "epoch nanoseconds": text("log.csv", csv(["client", "timestamp"], [(c, at * 10**9) for c, at in CHECKINS])),
    "epoch with decimals": text("log.csv", csv(["client", "timestamp"], [(c, f"{at}.25") for c, at in CHECKINS])),
    "epoch minutes, said": text(
        "log.csv", csv(["client", "timestamp"], [(c, at / 60) for c, at in CHECKINS]), time_unit="minutes"
    ),
    "epoch hours, said": text(
        "log.csv", csv(["client", "timestamp"], [(c, at / 3600) for c, at in CHECKINS]), time_unit="hours"
    ),
    "spreadsheet dates, said": text("log.csv", csv(["client", "timestamp"], EXCEL), time_unit="excel"),
    "seconds since the beginning": text(
        "log.csv", csv(["client", "timestamp"], [(c, at - ZERO) for c, at in CHECKINS])
    ),
    "milliseconds since the beginning, said": text(
        "log.csv",
        csv(["client", "timestamp"], [(c, (at - ZERO) * 1000) for c, at in CHECKINS]),
        time_unit="milliseconds",
    ),
    "semicolons": text("log.csv", csv(["client", "timestamp"], ISO, ";")),
    "tabs": text("log.tsv", csv(["client", "timestamp"], ISO, "\t")),
    "bars": text("log.csv", csv(["client", "timestamp"], ISO, "|")),
    "quotes": text("log.csv", csv(['"client"', '"timestamp"'], [(f'"{c}"', f'"{t}"') for c, t in ISO])),
    "Windows lines and a byte-order mark": text(
        "log.csv", b"\xef\xbb\xbf" + csv(["client", "timestamp"], ISO).replace("\n", "\r\n").encode()
    ),
    "gzip": text("log.csv.gz", gzip.compress(csv(["client", "timestamp"], ISO).encode())),
    "zstd": zstd,
    "further columns": text("log.csv", csv(["os", "client", "v", "timestamp"], [("x", c, 1, t) for c, t in ISO])),
    "a column called row": text("log.csv", csv(["row", "client", "timestamp"], [(7, c, t) for c, t in ISO])),
    "other names": text("log.csv", csv(["device", "when"], ISO), columns=Columns(client="device", timestamp="when")),
    "sorted by client": text("log.csv", csv(["client", "timestamp"], sorted(ISO))),
    "in no order": text("log.csv", csv(["client", "timestamp"], shuffled(ISO))),
    "backwards": text("log.csv", csv(["client", "timestamp"], ISO[::-1])),
    "every row twice": text("log.csv", csv(["client", "timestamp"], [row for row in ISO for _ in range(2)])),
    "intervals": text("log.csv", csv(["client", "start", "end"], SPANS)),
    "intervals in no order": text("log.csv", csv(["client", "start", "end"], shuffled(SPANS))),
    "intervals that overlap": text(
        "log.csv", csv(["client", "start", "end"], [*SPANS, ("b", iso(ZERO + 900), iso(ZERO + 5000))])
    ),
    "intervals, open ones empty": text("log.csv", csv(["client", "start", "end"], OPEN)),
    "intervals, open ones null": text(
        "log.csv", csv(["client", "start", "end"], [(c, s, e or "NULL") for c, s, e in OPEN])
    ),
    "intervals, open ones in 9999": text(
        "log.csv", csv(["client", "start", "end"], [(c, s, e or "9999-12-31 23:59:59Z") for c, s, e in OPEN])
    ),
    "intervals in seconds": text(
        "log.csv", csv(["client", "start", "end"], [(c, s - ZERO, e - ZERO) for c, s, e in INTERVALS])
    ),
    "connected and disconnected": events(WORDS),
    "online and offline": events({"connected": "ONLINE", "disconnected": "OFFLINE"}, "status"),
    "up and down": events({"connected": "up", "disconnected": "down"}, "event"),
    "1 and 0": events({"connected": 1, "disconnected": 0}, "online"),
    "true and false": events({"connected": "True", "disconnected": "False"}, "connected"),
    "events with a prefix": events(
        {"connected": "client.connected", "disconnected": "client.disconnected"}, "eventType"
    ),
    "words of its own, said": events(
        {"connected": "auf", "disconnected": "zu"}, "tor", columns=Columns(state="tor", on=("auf",), off=("zu",))
    ),
    "events sorted by client": text(
        "log.csv", csv(["client", "timestamp", "state"], sorted((c, iso(at), word) for at, c, word in EVENTS))
    ),
    "events with others between": text(
        "log.csv",
        csv(
            ["client", "timestamp", "state"],
            [row for at, c, w in EVENTS for row in ((c, iso(at), w), (c, iso(at + 5), "subscribed"))],
        ),
    ),
    "events with repeated beginnings": text(
        "log.csv",
        csv(
            ["client", "timestamp", "state"],
            sorted(
                [(c, iso(at), w) for at, c, w in EVENTS] + [("b", iso(ZERO + 5000), "connected")], key=lambda r: r[1]
            ),
        ),
    ),
    "events of AWS IoT": lines(
        {"clientId": c, "timestamp": at * 1000, "eventType": word, "sessionIdentifier": "s"} for at, c, word in EVENTS
    ),
    "JSON lines": lines({"client": c, "timestamp": t} for c, t in ISO),
    "JSON lines with numbers": lines({"timestamp": at, "client": c} for c, at in CHECKINS),
    "JSON lines with an open end": lines({"client": c, "start": s, "end": e or None} for c, s, e in OPEN),
    "JSON fields within fields": lines(DETAIL, columns=Columns(client="detail.clientId", timestamp="detail.t.at")),
    "JSON names with dots": lines(
        ({"a.b": c, "t": at} for c, at in CHECKINS), columns=Columns(client="a.b", timestamp="t")
    ),
    "parquet": parquet(frame(CHECKINS, ["client", "timestamp"])),
    "parquet of dates": parquet(
        frame(CHECKINS, ["client", "timestamp"]).with_columns(pl.from_epoch("timestamp", time_unit="s"))
    ),
    "parquet of intervals": parquet(
        frame(
            [(c, s, None if e == END else e) for c, s, e in INTERVALS] + [("b", END - 60, END)],
            ["client", "start", "end"],
        )
    ),
    "parquet of states": parquet(
        frame([(c, at, word == "connected") for at, c, word in EVENTS], ["client", "timestamp", "online"])
    ),
    "parquet of fields within fields": parquet(
        pl.DataFrame({"who": [{"id": c} for c, _ in CHECKINS], "timestamp": [at for _, at in CHECKINS]}),
        columns=Columns(client="who.id"),
    ),
    "parquet by partitions": partitioned,
    "several files": several(".csv", "each"),
    "a pattern": several(".csv"),
    "a pattern of gzip": several(".csv.gz"),
    "a folder of CSV": several(".csv", "folder"),
    "a folder of JSON lines": several(".jsonl", "folder"),
    "a folder of parquet": several(".parquet", "folder"),
    "a requirement": text(
        "log.csv", csv(["client", "timestamp", "charging"], KEPT), columns=Columns(require=("charging",))
    ),
    "a query of files": text(
        "log.csv", csv(["d", "t"], ISO), query="SELECT d AS client, t AS timestamp FROM log WHERE d <> 'z'"
    ),
    "a query of tabs": text(
        "log.tsv", csv(["d", "t"], ISO, "\t"), query="SELECT d AS client, t AS timestamp FROM log WHERE d <> 'z'"
    ),
    "a query of semicolons": text(
        "log.csv", csv(["d", "t"], ISO, ";"), query="SELECT d AS client, t AS timestamp FROM log"
    ),
    "a query of parquet": parquet(frame(CHECKINS, ["d", "t"]), query="SELECT d AS client, t AS timestamp FROM log"),
    "a query of a database": database,
    "a query of anything": anything,
}


@pytest.mark.parametrize("form", READ)
def test_it_is_read_as_it_was(tmp_path, form):
    paths, how = READ[form](tmp_path)
    if form == "events of AWS IoT":
        how = {"columns": Columns(client="clientId")}
    log = logs.read(paths, **how)
    assert log.clients == NAMES
    on = log.trace.on
    assert on.shape[0] <= ROUNDS
    assert np.array_equal(on, TRUTH[: len(on)]), on.astype(int).T
    assert not TRUTH[len(on) :].any() or len(on) == ROUNDS
    assert log.clock.start in (None, ZERO)
    if log.rows < 20:  # with so few, one cannot tell an order
        return
    assert not {"clock jumps", "clock jumps ahead", "far from all others"} & {found.kind for found in log.findings}


REFUSED = {
    "spreadsheet dates": (text("log.csv", csv(["client", "timestamp"], EXCEL)), "--time-unit excel"),
    "epoch minutes": (
        text("log.csv", csv(["client", "timestamp"], [(c, at / 60) for c, at in CHECKINS])),
        "--time-unit minutes",
    ),
    "epoch hours": (
        text("log.csv", csv(["client", "timestamp"], [(c, at / 3600) for c, at in CHECKINS])),
        "--time-unit hours",
    ),
    "a week of milliseconds since the beginning": (
        text("log.csv", csv(["client", "timestamp"], [("a", n * 600_000) for n in range(1008)])),
        "--time-unit milliseconds",
    ),
    "a day of milliseconds since the beginning": (
        text("log.csv", csv(["client", "timestamp"], [("a", n * 600_000) for n in range(144)])),
        "--time-unit milliseconds",
    ),
    "dates as numbers": (
        text("log.csv", csv(["client", "timestamp"], [("a", 20240501), ("b", 20240502)])),
        "--time-format",
    ),
    "an object for a client": (
        lines({"client": {"id": c, "os": "x"}, "timestamp": at} for c, at in CHECKINS),
        "is an object with id, os; name one of them, as in --client-column client.id",
    ),
    "an object for a client in parquet": (
        parquet(pl.DataFrame({"client": [{"id": c} for c, _ in CHECKINS], "timestamp": [at for _, at in CHECKINS]})),
        "is an object; name a field, as in --client-column client.id",
    ),
    "ends without beginnings": (
        events({"connected": "auf", "disconnected": "closed"}, "state"),
        "no word that means that a client is available|--on-values",
    ),
    "two columns of states": (
        text(
            "log.csv",
            csv(["client", "timestamp", "state", "status"], [(c, iso(at), w, w) for at, c, w in EVENTS]),
        ),
        "look like states; name one with --state-column",
    ),
    "a state column that is not there": (checkins(columns=Columns(state="nix")), "--state-column nix: found no such"),
    "a requirement that is not there": (checkins(columns=Columns(require=("wifi",))), "--require wifi: found no such"),
    "a unit that is none": (checkins(time_unit="fortnights"), "expected one of seconds"),
    "a pattern of nothing": (lambda folder: ([folder / "*.csv"], {}), "no file has such a name"),
    "different kinds": (
        lambda folder: (
            [text("a.csv", csv(["client", "timestamp"], ISO))(folder)[0][0], lines([{"client": 1}])(folder)[0][0]],
            {},
        ),
        "different kinds",
    ),
    "different columns": (
        lambda folder: (
            [
                text("a.csv", csv(["client", "timestamp"], ISO))(folder)[0][0],
                text("b.csv", csv(["client", "start", "end"], SPANS))(folder)[0][0],
            ],
            {},
        ),
        "have different columns",
    ),
    "one file twice": (lambda folder: (checkins()(folder)[0] * 2, {}), "named twice"),
    "a query that is wrong": (checkins(query="SELEKT nothing"), "--query: "),
    "a query of a column that is not there": (checkins(query="SELECT nix FROM log"), "--query: "),
    "a database without a query": (
        lambda folder: (text("fleet.db", "x")(folder)[0], {}),
        "is a database; say what to read with --query",
    ),
    "a spreadsheet": (text("log.xlsx", "PK"), "expected a trace"),
    "an empty folder": (lambda folder: ([folder], {}), "a folder without files of a log"),
    "intervals with a state": (
        text("log.csv", csv(["client", "start", "end"], SPANS), columns=Columns(state="start")),
        "has intervals, for which --state-column has no meaning",
    ),
}


@pytest.mark.parametrize("form", REFUSED)
def test_what_could_be_misread_is_refused_in_one_line(tmp_path, form):
    write, said = REFUSED[form]
    paths, how = write(tmp_path)
    with pytest.raises(UserError, match=said) as refusal:
        logs.read(paths, **how)
    assert "\n" not in str(refusal.value)


def test_there_are_at_least_sixty_forms():
    assert len(READ) >= 60
    assert len(READ) + len(REFUSED) >= 85


def kinds(log):
    return {found.kind: found for found in log.findings}


def test_events_and_open_sessions_are_said(tmp_path):
    found = kinds(logs.read(READ["connected and disconnected"](tmp_path)[0]))
    assert "connected begins and disconnected ends an interval" in found["events"].text
    assert found["open intervals"].count == 1
    found = kinds(logs.read(READ["intervals, open ones empty"](tmp_path)[0]))
    assert found["open intervals"].text == "1 interval without an end; counted as open until the log ends"


def test_a_session_that_began_before_the_log_or_before_since(tmp_path):
    rows = [("a", iso(ZERO), "online"), ("b", iso(ZERO + 3600), "offline"), ("b", iso(ZERO + 5400), "online")]
    path = tmp_path / "log.csv"
    path.write_text(csv(["client", "timestamp", "state"], [*rows, ("a", iso(ZERO + 7200), "offline")]))
    log = logs.read(path)
    assert log.trace.on.astype(int).T.tolist() == [[1] * 12 + [0], [1] * 6 + [0] * 3 + [1] * 4]
    assert kinds(log)["begun before"].count == 1
    later = logs.read(path, since=iso(ZERO + 1800), until=iso(ZERO + 4200))
    assert later.trace.on.astype(int).T.tolist() == [[1] * 4, [1] * 3 + [0]]


def test_events_and_intervals_have_the_same_clients_in_a_part_of_the_log(tmp_path):
    day, part = 86400, {"since": iso(ZERO + 2 * 86400), "until": iso(ZERO + 3 * 86400), "round_length": "1h"}
    spans = [("a", 0, 3600), ("b", day, 2 * day + 7200), ("c", 2 * day + 3600, 4 * day), ("d", 3 * day, 3 * day + 60)]
    words = [row for c, s, e in spans for row in ((c, iso(ZERO + s), "online"), (c, iso(ZERO + e), "offline"))]
    offline = [("e", iso(ZERO + at), "offline") for at in (0, 2 * day)]  # known to be offline in this part
    for name, header, rows in (
        ("spans.csv", ["client", "start", "end"], [(c, iso(ZERO + s), iso(ZERO + e)) for c, s, e in spans]),
        ("events.csv", ["client", "timestamp", "state"], words + offline),
    ):
        (tmp_path / name).write_text(csv(header, sorted(rows, key=lambda row: row[1])))
    one, other = (logs.read(tmp_path / name, **part) for name in ("spans.csv", "events.csv"))
    assert one.clients == ("b", "c")
    assert other.clients == ("b", "c", "e")
    assert np.array_equal(one.trace.on, other.trace.on[:, :2])
    assert not other.trace.on[:, 2].any()
    same = ("before --since", "after --until", "cut at --since", "cut at --until", "clients outside")
    assert [kinds(one)[kind].count for kind in same] == [kinds(other)[kind].count for kind in same] == [1, 1, 1, 1, 2]
    assert kinds(other)["before --since"].text == "1 interval dated before --since (row 1); left out"
    (tmp_path / "ons.csv").write_text(csv(["client", "timestamp", "state"], [r for r in words if r[2] == "online"]))
    assert logs.read(tmp_path / "ons.csv", **part).clients == ("c",)


def test_a_log_of_events_covers_the_time_in_which_nobody_is_available(tmp_path):
    """From the first event until the last: these clients are known to be offline from 00:00 and from 23:00."""
    hours = [(0, "a", "offline"), (0, "b", "offline"), (20, "a", "online"), (21, "b", "online")]
    hours += [(22, "a", "offline"), (23, "b", "offline"), (24, "a", "offline")]
    path = tmp_path / "log.csv"
    path.write_text(csv(["client", "timestamp", "state"], [(c, iso(ZERO + 3600 * h), w) for h, c, w in hours]))
    log = logs.read(path, round_length="1h")
    assert log.clock.when(0) == "2024-05-01 00:00"
    assert log.trace.on.sum(0).tolist() == [2, 2]
    assert np.flatnonzero(log.trace.on.any(1)).tolist() == [20, 21, 22]
    assert log.trace.rounds == 24
    assert kinds(log)["gaps"].count == 2
    part = logs.read(path, round_length="1h", since=iso(ZERO + 3600 * 18), until=iso(ZERO + 3600 * 22))
    assert part.trace.on.astype(int).T.tolist() == [[0, 0, 1, 1], [0, 0, 0, 1]]
    path.write_text(csv(["client", "timestamp", "state"], [(c, 3600 * h, w) for h, c, w in hours]))
    assert np.array_equal(logs.read(path, round_length="1h").trace.on, log.trace.on)


def test_an_event_that_does_not_meet_a_requirement_ends_the_interval(tmp_path):
    rows = [
        ("a", iso(ZERO), "connected", 1),
        ("b", iso(ZERO), "connected", 0),  # connected, but never as required
        ("c", iso(ZERO + 1200), "connected", 0),  # no end of something that began before the log
        ("a", iso(ZERO + 1800), "disconnected", 0),
        ("c", iso(ZERO + 2400), "heartbeat", 1),
        ("d", iso(ZERO + 2400), "disconnected", 0),
        ("c", iso(ZERO + 3600), "heartbeat", 0),
        ("c", iso(ZERO + 4200), "subscribed", 0),
        ("b", iso(ZERO + 4799), "disconnected", 1),
    ]
    path = tmp_path / "log.csv"
    path.write_text(csv(["client", "timestamp", "state", "charging"], rows))
    log = logs.read(path, columns=Columns(require=("charging",)))
    assert log.clients == ("a", "b", "c", "d")
    assert log.trace.on.astype(int).T[:, :6].tolist() == [[1, 1, 1, 0, 0, 0], [0] * 6, [0, 0, 0, 0, 1, 1], [0] * 6]
    assert not log.trace.on[6:].any()
    said = "3 rows that do not meet --require charging (rows 2, 3, 7); read as unavailable from then on"
    assert kinds(log)["requirements"].text == said
    path.write_text(csv(["client", "timestamp", "state", "charging"], [row for row in rows if row[2] == "connected"]))
    beginnings = logs.read(path, columns=Columns(require=("charging",)))
    assert beginnings.clients == ("a", "b", "c")
    assert beginnings.trace.on.tolist() == [[True, False, False]]


def test_a_requirement_never_adds_availability_also_by_what_if(tmp_path):
    from fedawe.audit.logs import Reader
    from fedawe.audit.whatif import default_algorithms, scenarios

    draw = random.Random(0)
    for n in range(20):
        times = sorted(draw.randrange(0, 86400, 60) for _ in range(60))
        rows = [
            (f"c{draw.randrange(6)}", iso(ZERO + at), draw.choice(["online", "offline", "sync"]), draw.choice("01"))
            for at in times
        ]
        (tmp_path / f"{n}.csv").write_text(csv(["client", "timestamp", "state", "charging"], rows))
        reader = Reader((tmp_path / f"{n}.csv",))
        every, some = reader.read(), reader.requiring(("charging",)).read()
        assert every.clients == some.clients
        later = round((some.clock.start - every.clock.start) / 600)
        assert (some.trace.on <= every.trace.on[later : later + some.trace.rounds]).all()
        rows = scenarios(reader, None, {"require": ["none", "charging"]}, default_algorithms())
        assert rows[0].updates_per_day * rows[0].rounds >= rows[1].updates_per_day * rows[1].rounds
        assert rows[1].updates_per_day == pytest.approx(some.trace.on.sum(1).mean() * 144)


def test_beginnings_alone_are_check_ins(tmp_path):
    path = tmp_path / "log.csv"
    path.write_text(csv(["client", "timestamp", "state"], [(c, t, "connected") for c, t in ISO]))
    log = logs.read(path)
    assert np.array_equal(log.trace.on, TRUTH[: len(log.trace.on)])
    assert "each row was read as a check-in" in kinds(log)["events"].text


def test_names_that_may_be_one_client_are_said(tmp_path):
    path = tmp_path / "log.csv"
    path.write_text(
        csv(["client", "timestamp"], itertools.product(["Phone-3", "phone-3", "5", "5.0", "7"], [ISO[0][1]]))
    )
    log = logs.read(path)
    assert len(log.clients) == 5
    assert "2 names written in more than one way (5 and 5.0, Phone-3 and phone-3)" in kinds(log)["names alike"].text


def test_events_that_mean_nothing_are_counted(tmp_path):
    found = kinds(logs.read(READ["events with others between"](tmp_path)[0]))
    assert found["other events"].count == len(EVENTS)
    assert "'subscribed'" in found["other events"].text


def test_rows_of_several_files_are_told_with_their_file(tmp_path):
    for name, rows in (("a.csv", ISO), ("b.csv", [("b", "never"), *ISO[:3]])):
        (tmp_path / name).write_text(csv(["client", "timestamp"], rows))
    found = kinds(logs.read([tmp_path / "a.csv", tmp_path / "b.csv"]))
    assert "(row 1 of b.csv, as 'never')" in found["unreadable times"].text


def test_one_file_named_twice_is_refused_however_many_there_are(tmp_path):
    (path,), _ = checkins()(tmp_path)
    with pytest.raises(UserError, match="is named twice"):
        logs.read([path] * 10_001)


def test_events_at_the_same_time_in_a_file_written_newest_first(tmp_path):
    """a is restarted after an hour, and b goes offline at once; c is in a file in order of time."""
    rows = [("a", 0, "online"), ("b", 600, "online"), ("b", 600, "offline")]
    rows += [("a", 3600, "offline"), ("a", 3600, "online"), ("a", 7200, "offline")]
    other = [("c", 0, "online"), ("c", 600, "offline"), ("c", 600, "online"), ("c", 7200, "offline")]
    for name, found in (("a.csv", rows[::-1]), ("b.csv", other)):
        text = csv(["client", "timestamp", "state"], [(c, iso(ZERO + at), word) for c, at, word in found])
        (tmp_path / name).write_text(text)
    on = logs.read(tmp_path).trace.on
    assert on.astype(int).T.tolist() == [[1] * 12, [0] * 12, [1] * 12]


def test_a_file_of_a_rotated_log_may_have_ends_alone(tmp_path):
    rows = [(c, iso(at), word) for at, c, word in EVENTS]
    rows[0:0] = [("a", iso(ZERO), "disconnected"), ("b", iso(ZERO), "disconnected")]
    for name, part in (("a.csv", rows[:2]), ("b.csv", rows[2:])):
        (tmp_path / name).write_text(csv(["client", "timestamp", "state"], part))
    assert np.array_equal(logs.read(tmp_path).trace.on, TRUTH)
    with pytest.raises(UserError, match=r"is available \(it has 'disconnected'\); name"):
        logs.read(tmp_path / "a.csv")


def test_a_log_read_in_batches_is_the_log_read_at_once(tmp_path, monkeypatch):
    from fedawe.audit.logs import rows

    rows_ = [*shuffled(ISO), ("b", "never"), ("z", "soon"), *ISO]
    (tmp_path / "log.csv").write_text(csv(["client", "timestamp"], rows_))
    (tmp_path / "events.csv").write_bytes(Path(READ["connected and disconnected"](tmp_path)[0][0]).read_bytes())
    (tmp_path / "log.csv").write_text(csv(["client", "timestamp"], rows_))
    whole = {name: logs.read(tmp_path / name) for name in ("log.csv", "events.csv")}
    monkeypatch.setattr(rows, "BATCH", 7)
    for name, log in whole.items():
        again = logs.read(tmp_path / name)
        assert np.array_equal(again.trace.on, log.trace.on)
        assert again.clients == log.clients
        assert again.findings == log.findings


@pytest.mark.parametrize("name", ["fleet.sqlite", "fleet.db"])
def test_sqlite_is_read_by_a_query_as_the_same_rows_of_a_csv(tmp_path, name):
    rows = [(f"d{n % 5}", f"2026-05-0{1 + n % 7}T0{n % 10}:00:00Z", n % 3) for n in range(200)] + [(None, "x", 1)]
    with contextlib.closing(sqlite3.connect(tmp_path / name)) as database:
        database.execute("CREATE TABLE heartbeats (device TEXT, seen TEXT, charging INTEGER)")
        database.executemany("INSERT INTO heartbeats VALUES (?, ?, ?)", rows)
        database.commit()
    (tmp_path / "log.csv").write_text("client,timestamp\n" + "".join(f"{c or ''},{t}\n" for c, t, k in rows if k))
    query = "SELECT device AS client, seen AS timestamp FROM heartbeats WHERE charging > 0;"
    found, same = logs.read(tmp_path / name, query=query), logs.read(tmp_path / "log.csv")
    assert found.clients == same.clients
    np.testing.assert_array_equal(found.trace.on, same.trace.on)
    for wrong, said in (("SELECT absent FROM heartbeats", "no such column"), ("DELETE FROM heartbeats", "readonly")):
        with pytest.raises(UserError, match=said):
            logs.read(tmp_path / name, query=wrong)
    with pytest.raises(UserError, match="--query"):
        logs.read(tmp_path / name)


def in_sqlite(folder, rows):
    with contextlib.closing(sqlite3.connect(folder / "fleet.sqlite")) as database:
        database.execute("CREATE TABLE log (client TEXT, timestamp TEXT)")
        database.executemany("INSERT INTO log VALUES (?, ?)", rows)
        database.commit()
    return folder / "fleet.sqlite"


@pytest.mark.parametrize(
    "names",
    [
        ["007", "7", "0012"],
        ["1e5", "100000", "2e3"],
        ["12345678901234567890", "12345678901234567891"],
        [*map(str, range(10_050)), "phone"],  # a name after all rows by which types are guessed
    ],
    ids=["leading zeros", "like powers", "long", "a late name"],
)
def test_a_query_does_not_change_the_names_of_clients(tmp_path, names):
    rows = [(c, iso(ZERO + n)) for n, c in enumerate(names)]
    (tmp_path / "log.csv").write_text(csv(["client", "timestamp"], rows))
    query, plain = "SELECT client, timestamp FROM log", logs.read(tmp_path / "log.csv")
    assert set(plain.clients) == set(names)
    for path in (tmp_path / "log.csv", in_sqlite(tmp_path, rows)):
        assert logs.read(path, query=query).clients == plain.clients


def test_a_query_may_count_with_columns_of_numbers(tmp_path):
    rows = [(n % 3, ZERO + 600 * n, level, n / 10) for n, level in enumerate([*"12345", "6.50", "1e-05", ""])]
    (tmp_path / "log.csv").write_text(csv(["id", "at", "level", "x"], rows))
    query = "SELECT id + 1 AS client, at AS timestamp FROM log WHERE level > 2.5 AND x < 0.55"
    log = logs.read(tmp_path / "log.csv", query=query)
    assert log.clients == ("1", "2", "3")
    assert log.trace.on.astype(int).tolist() == [[0, 0, 1], [1, 0, 0], [0, 1, 0], [0, 0, 1]]


def test_offsets_of_every_kind(tmp_path):
    rows = []
    for n, (c, at) in enumerate(CHECKINS):
        zone = timezone(timedelta(hours=(n % 24) - 11))
        rows.append((c, datetime.fromtimestamp(at, zone).isoformat()))
    (tmp_path / "log.csv").write_text(csv(["client", "timestamp"], rows))
    log = logs.read(tmp_path / "log.csv")
    assert np.array_equal(log.trace.on, TRUTH[: len(log.trace.on)])


def test_the_same_file_by_the_reader_of_traces(tmp_path):
    """One reader: clients are the numbers that the file has, whoever reads it."""
    from fedawe.availability.trace import Trace

    rows = [(n, s - ZERO, e - ZERO) for c, s, e in INTERVALS for n in [{"a": 3, "b": 17, "c": 40}[c]]]
    (tmp_path / "log.csv").write_text(csv(["client", "start", "end"], rows))
    log, trace = logs.read(tmp_path / "log.csv"), Trace.load(tmp_path / "log.csv", round_seconds=600)
    assert log.trace.clients == trace.clients == 3
    assert np.array_equal(log.trace.on, trace.on)
