"""Clocks of logs: units, jumps, time zones, parts of a log, and clients whose clocks leave nothing of them."""

import gzip
import json

import numpy as np
import polars as pl
import pytest

from fedawe.audit import audit, logs
from fedawe.audit.logs import Clock
from fedawe.availability.trace import Trace
from fedawe.core.errors import UserError

HEAD, SPAN = "client,timestamp\n", "client,start,end\n"
BERLIN = {"timezone": "Europe/Berlin"}
START = 1_714_550_400  # 2024-05-01T08:00:00Z


def write(folder, text, name="log.csv"):
    path = folder / name
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    return path


def read(folder, text, name="log.csv", **how):
    return logs.read(write(folder, text, name), **how)


def kinds(log):
    return {finding.kind: finding for finding in log.findings}


def iso(seconds):
    return pl.Series([int(seconds * 1e6)]).cast(pl.Datetime("us"))[0].isoformat() + "Z"


# Clients of which nothing is left.


@pytest.mark.parametrize(
    ("rows", "why"),
    [
        (["c,1970-01-01T00:00:07Z", "c,1970-01-02T00:00:00Z"], "clock not set"),
        (["c,2150-01-01"], "clock not set"),
        (["c,yesterday"], "unreadable times"),
        (["c,1970-01-01", "c,soon"], "clock not set"),
    ],
)
def test_a_client_without_usable_rows_is_named_and_was_never_there(tmp_path, rows, why):
    text = HEAD + "a,2024-05-01T08:00:00Z\nb,2024-05-01T08:20:00Z\n" + "\n".join(rows) + "\n"
    log = read(tmp_path, text)
    assert log.clients == ("a", "b", "c")
    assert log.trace.on.astype(int).tolist() == [[1, 0, 0], [0, 0, 0], [0, 1, 0]]
    found = kinds(log)["clients without rows"]
    assert found.count == 1
    assert f"1 client has no usable row (c: {why})" in found.text


def test_a_client_with_some_usable_rows_is_not_called_missing(tmp_path):
    log = read(tmp_path, HEAD + "a,2024-05-01T08:00:00Z\na,1970-01-01\nb,2024-05-01T08:00:00Z\n")
    assert log.clients == ("a", "b")
    assert "clients without rows" not in kinds(log)


def test_many_clients_without_usable_rows_are_counted_and_the_first_named(tmp_path):
    broken = "".join(f"x{n},1970-01-01\n" for n in range(5))
    log = read(tmp_path, HEAD + "a,2024-05-01T08:00:00Z\n" + broken)
    assert log.trace.clients == 6
    assert "5 clients have no usable row (x0: clock not set, x1: clock not set, x2: clock not set ...)" in (
        kinds(log)["clients without rows"].text
    )


# Units.


@pytest.mark.parametrize(("unit", "factor"), [("milliseconds", 10**3), ("microseconds", 10**6), ("nanoseconds", 10**9)])
def test_one_client_in_another_unit_is_read_in_its_own_and_named(tmp_path, unit, factor):
    rows = [f"a,{START + 600 * n}" for n in range(4)] + [f"b,{(START + 600 * n) * factor}" for n in (0, 2)]
    log = read(tmp_path, HEAD + "\n".join(rows) + "\n")
    assert log.clients == ("a", "b")
    assert log.trace.on.astype(int).T.tolist() == [[1, 1, 1, 1], [1, 0, 1, 0]]
    found = kinds(log)["mixed units"]
    assert found.count == 2
    assert f"times in {unit}, while most are in seconds (of b)" in found.text


def test_an_end_in_another_unit_than_the_beginning(tmp_path):
    log = read(tmp_path, SPAN + f"a,{START},{(START + 1200) * 1000}\n")
    assert log.trace.on.tolist() == [[True], [True]]
    assert "in milliseconds, while most are in seconds" in kinds(log)["mixed units"].text


def test_a_clock_that_was_not_set_is_no_other_unit(tmp_path):
    log = read(tmp_path, HEAD + f"a,{START}\na,{START + 60}\nb,5\n")
    assert "mixed units" not in kinds(log)
    assert kinds(log)["clock not set"].count == 1


def test_milliseconds_among_seconds_since_the_log_began(tmp_path):
    rows = [f"{client},{600 * n * (1000 if client == 'z' else 1)}" for n in range(30) for client in "abcz"]
    log = read(tmp_path, HEAD + "\n".join(rows) + "\n")
    assert "1 client with times about 1,000 times those of most others (z)" in kinds(log)["mixed units"].text
    same = [f"{client},{600 * n}" for n in range(30) for client in "abcz"]
    assert "mixed units" not in kinds(read(tmp_path, HEAD + "\n".join(same) + "\n"))


def test_dates_since_1970_among_times_since_the_log_began(tmp_path):
    log = read(tmp_path, HEAD + f"a,0\na,600\na,1200\nb,{START}\n")
    assert log.clients == ("a", "b")
    assert log.trace.rounds == 3
    assert kinds(log)["another zero"].count == 1


def test_dates_written_as_numbers_are_not_seconds(tmp_path):
    path = write(tmp_path, HEAD + "a,20240501\nb,20240502\n")
    with pytest.raises(UserError, match=r"20240501 look like dates .* --time-format %Y%m%d"):
        logs.read(path)
    log = logs.read(path, time_format="%Y%m%d", round_length="1d")
    assert log.trace.on.astype(int).tolist() == [[1, 0], [0, 1]]


# Jumps.


def arrivals(n, wrong=None, client=None):
    """Thirty clients in turn, a check-in a minute in order of arrival; off by so much in a row, or of a client."""
    rows = []
    for row in range(n):
        name = f"{row % 30:02d}"
        off = (wrong or {}).get(row, 0) + (client or {}).get(name, 0)
        rows.append(f"{name},{iso(START + 60 * row + off)}")
    return HEAD + "\n".join(rows) + "\n"


def test_a_clock_that_jumps_forward_is_reported_with_its_rows(tmp_path):
    found = kinds(read(tmp_path, arrivals(300, {100: 86400 * 3, 130: 86400 * 3})))["clock jumps ahead"]
    assert found.count == 2
    assert "2 rows dated after the rows around, by up to 3 days (of 10) (rows 101, 131)" in found.text


def test_a_clock_that_is_always_fast_is_reported_with_its_client(tmp_path):
    found = kinds(read(tmp_path, arrivals(300, client={"07": 7200})))["clock jumps ahead"]
    assert "(of 07)" in found.text
    assert found.count >= 9


def test_a_clock_that_jumps_forward_in_a_log_written_client_by_client(tmp_path):
    rows = [
        f"{name},{iso(START + 600 * n + (86400 if (name, n) == ('b', 40) else 0))}" for name in "abc" for n in range(99)
    ]
    found = kinds(read(tmp_path, HEAD + "\n".join(rows) + "\n"))
    assert "(of b) (row 140)" in found["clock jumps ahead"].text
    assert found["clock jumps ahead"].count == 1


@pytest.mark.parametrize(
    "text",
    [
        arrivals(300),
        # An absence of ten days, for everyone.
        HEAD + "".join(f"{'ab'[n % 2]},{iso(START + 600 * n + 864000 * (n > 99))}\n" for n in range(200)),
        # Client by client, a few rows each, twice.
        HEAD
        + "".join(f"{c},{iso(START + 28800 * n + 86400 * d)}\n" for d in (0, 1) for c in range(50) for n in range(3)),
        # Two regions, one after the other.
        HEAD + "".join(f"{'abcdefgh'[4 * r + n % 4]},{iso(START + 600 * n)}\n" for r in (0, 1) for n in range(400)),
    ],
    ids=["in order", "an absence", "client by client", "two logs in one"],
)
def test_what_is_no_jump_is_not_called_one(tmp_path, text):
    found = kinds(read(tmp_path, text))
    assert "clock jumps ahead" not in found
    assert "clock jumps" not in found


def test_a_clock_that_goes_back_is_reported_as_before(tmp_path):
    found = kinds(read(tmp_path, arrivals(300, {100: -86400})))
    assert found["clock jumps"].count == 1
    assert "clock jumps ahead" not in found


@pytest.mark.parametrize(
    ("off", "side", "flag"),
    [
        (86400 * 300, "after", "--until 2024-05-01T12:59:01Z"),
        (-86400 * 300, "before", "--since 2024-05-01T08:00:00Z"),
    ],
)
def test_one_row_far_from_all_others_is_named_with_the_way_out(tmp_path, off, side, flag):
    lines = arrivals(300).splitlines(keepends=True)
    odd = f"d,{iso(START + off)}\n"
    path = write(tmp_path, "".join([lines[0], odd, *lines[1:]] if off < 0 else [*lines, odd]))
    found = kinds(logs.read(path))["far from all others"]
    assert found.count == 1
    assert f"{side} all others, which lie within 5 h (of d)" in found.text
    assert flag in found.text
    assert f"In the log: {found.text}." in audit(logs.read(path)).advice.cautions
    name, value = flag.split()
    log = logs.read(path, **{name[2:]: value})
    assert "d" not in log.clients
    assert (log.trace.clients, log.trace.rounds) == (30, 30)


def test_an_end_after_2100_is_a_clock_that_was_not_set(tmp_path):
    log = read(tmp_path, SPAN + "a,2024-05-01,2024-05-02\nb,2024-05-01,2150-01-01\n")
    assert kinds(log)["clock not set"].count == 1
    assert log.clients == ("a", "b")
    assert log.trace.rounds == 144


def test_an_end_far_ahead_is_refused_with_the_date_and_row_of_the_end(tmp_path):
    with pytest.raises(UserError, match=r"between 2024-05-01 \(row 1\) and 2099-01-01 \(row 2\)"):
        read(tmp_path, SPAN + "a,2024-05-01,2024-05-02\nb,2024-05-01,2099-01-01\na,2024-05-03,2024-05-04\n")


# Time zones.


def test_an_hour_that_clocks_skip_is_counted_once_and_quoted_with_its_row(tmp_path):
    log = read(tmp_path, HEAD + "a,2024-03-31 01:30\nb,2024-03-31 02:30\n", **BERLIN)
    assert [f.kind for f in log.findings] == ["skipped times", "clients without rows"]
    found = kinds(log)["skipped times"]
    assert (found.count, "(row 2)" in found.text, "None" in found.text) == (1, True, False)


def test_a_skipped_beginning_and_end_are_one_row(tmp_path):
    log = read(tmp_path, SPAN + "a,2024-03-31 00:00,2024-03-31 01:00\na,2024-03-31 02:10,2024-03-31 02:50\n", **BERLIN)
    assert kinds(log)["skipped times"].count == 1
    assert "unreadable times" not in kinds(log)


def test_an_interval_over_the_hour_that_happens_twice(tmp_path):
    """02:50 until 02:10 is twenty minutes: from the first 02:50 to the second 02:10."""
    log = read(tmp_path, SPAN + "a,2024-10-27 02:50,2024-10-27 02:10\n", **BERLIN)
    assert log.trace.on.tolist() == [[True], [True]]
    assert "reversed intervals" not in kinds(log)
    assert kinds(log)["ambiguous times"].count == 2


def test_times_that_cannot_be_read_are_quoted_and_empty_ones_are_called_empty(tmp_path):
    log = read(tmp_path, "x," + HEAD + 2 * "x,a,2024-05-01T08:00:00Z\n" + "x,a,\nx,a,1e300\n")
    assert kinds(log)["no time"].text == "1 row without a time (row 3); left out"
    assert "as '1e300'" in kinds(log)["unreadable times"].text
    log = read(tmp_path, SPAN + "a,0,1200\na,,1200\na,1300,soon\na,1400,1500\n")
    assert "1 row without a beginning (row 2)" in kinds(log)["no beginning"].text
    assert "an end that cannot be read (row 3, as 'soon')" in kinds(log)["unreadable times"].text


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        ("2024-05-01 10:00:00+02", START),  # as PostgreSQL writes it
        ("2024-05-01t08:00:00z", START),
        ("2024-05-01 08:00:00,250 UTC", START + 0.25),  # as Python's logging does
        ("2024-05-01T04:30:00-0330", START),
        ("2024-05-01T08:00Z", START),
        ("Wed, 01 May 2024 10:00:00 +0200", START),
        ("01.05.2024 10:00", START),
    ],
)
def test_ways_to_write_a_time(tmp_path, text, seconds):
    form = {"W": "%a, %d %b %Y %H:%M:%S %z", "0": "%d.%m.%Y %H:%M"}.get(text[0])
    log = read(
        tmp_path, f'client\ttimestamp\na\t"{text}"\n', "log.tsv", time_format=form, round_length="0.25s", **BERLIN
    )
    assert log.clock.start == seconds


def test_seconds_since_1970_by_a_format_are_in_no_time_zone(tmp_path):
    log = read(tmp_path, HEAD + f"a,@{START}\nb,@{START + 600}\n", time_format="@%s", **BERLIN)
    assert log.clock.start == START
    assert "time zone" not in kinds(log)


def test_names_of_time_zones_are_refused_or_written_out(tmp_path):
    path = write(tmp_path, HEAD + "a,2024-05-01 08:00 UTC\n")
    with pytest.raises(UserError, match=r"--time-format .*%Z.* is ambiguous; read an offset with %z, or") as caught:
        logs.read(path, time_format="%Y-%m-%d %H:%M %Z", **BERLIN)
    assert "\n" not in str(caught.value)
    assert logs.read(path, time_format="%Y-%m-%d %H:%M UTC").clock.start == START


def test_a_format_is_all_that_is_tried_and_named_where_it_fails(tmp_path):
    path = write(tmp_path, HEAD + "a,01/05/2024\nb,1714550400\n")
    found = kinds(logs.read(path, time_format="%d/%m/%Y"))
    assert "by --time-format %d/%m/%Y (row 2, as '1714550400')" in found["unreadable times"].text


PHONE = {
    "messages": "2024-03-30 06:00:00 \twifi\n2024-03-30 12:05:00 \t4G\n2024-03-31 06:00:00 \twifi\n"
    "2024-03-31 12:05:00 \t4G\n2024-04-01 06:00:00 \twifi\n2024-04-01 07:00:00 \t4G\n"
}


def test_device_events_are_in_the_time_zone_that_is_named(tmp_path):
    """Clocks on the wall go forward on 31 March; the phone goes by them."""
    path = write(tmp_path, json.dumps({"0": PHONE}), "events.json")
    plain = logs.read(path, rule="wifi", round_length="1h", days=2)
    there = logs.read(path, rule="wifi", round_length="1h", days=2, **BERLIN)
    assert plain.clock == Clock(3600.0, 1711756800.0, "UTC")
    assert there.clock == Clock(3600.0, 1711756800.0 - 3600, "Europe/Berlin")
    assert there.clock.hours(48)[there.trace.on[:, 0]].tolist() == [*range(6, 13), *range(6, 13)]
    assert "in local time (read as that of Europe/Berlin)" in kinds(there)["repeated days"].text
    assert "in local time (time zone not known)" in kinds(plain)["repeated days"].text


def test_a_table_says_when_phones_belonged_to_the_fleet(tmp_path):
    path = write(tmp_path, json.dumps({"0": PHONE}), "events.json")
    said = {"0": ("2024-03-30T03:00", "2024-03-31")}
    log = logs.read(path, rule="wifi", round_length="1h", days=2, roster=["0", "1"], enrolled={**said, "1": said["0"]})
    assert log.trace.known[:, 1].tolist() == [3 <= t < 24 for t in range(48)]
    last = int(np.flatnonzero(log.trace.on[:, 0])[-1])
    assert last > 24
    assert log.trace.known[:, 0].tolist() == [3 <= t <= last for t in range(48)]
    assert kinds(log)["outside enrolment"].count == 1


def test_an_event_of_an_unset_clock_does_not_stretch_the_days(tmp_path):
    wrong = {"messages": "1970-01-01 00:00:01 \twifi\n" + PHONE["messages"]}
    log = read(tmp_path, json.dumps({"0": wrong, "1": PHONE}), "events.json", rule="wifi")
    assert kinds(log)["undated events"].count == 1
    assert (log.trace.on[:, 0] == log.trace.on[:, 1]).all()
    assert log.clock.when(0) == "2024-03-30 00:00"


def test_which_phones_repeat_themselves_is_known_and_kept(tmp_path):
    path = write(tmp_path, json.dumps({"0": PHONE}), "events.json")
    log = logs.read(path, rule="wifi", days=2)
    assert not log.repeating.any()
    long = logs.read(path, rule="wifi", days=3, roster=["0", "z"])
    assert long.repeating.tolist() == [True, False]
    long.save(tmp_path / "fleet.npz")
    assert logs.read(tmp_path / "fleet.npz").repeating.tolist() == [True, False]


# Parts.


def test_intervals_are_cut_at_the_ends_of_the_part_that_is_read(tmp_path):
    text = SPAN + "a,2024-05-01T00:00Z,2024-05-03T00:00Z\nb,2024-05-01T00:00Z,2024-05-01T12:00Z\n"
    log = read(tmp_path, text, since="2024-05-02", until="2024-05-02T12:00", round_length="1h")
    assert log.clients == ("a",)
    assert log.clock.when(0) == "2024-05-02 00:00"
    assert log.trace.on.tolist() == [[True]] * 12
    assert kinds(log)["cut at --since"].count == kinds(log)["cut at --until"].count == 1
    assert "1 client with rows only outside --since and --until (b)" in kinds(log)["clients outside"].text


@pytest.mark.parametrize(
    ("text", "how", "said"),
    [
        (HEAD + "a,2024-05-01\n", {"since": "2024"}, "--since 2024: a number means seconds since 1970"),
        (HEAD + "a,5\n", {"until": "2024-05-01"}, "--until 2024-05-01: times count from the beginning of the log"),
        (HEAD + "a,2024-05-01\n", {"since": "2024-05-02", "until": "2024-05-02"}, "is not before --until"),
        (HEAD + "a,2024-05-01\n", {"until": "nan"}, "--until: cannot read the time 'nan'"),
        (HEAD + "a,2024-05-01\n", {"rule": "wifi"}, "is a log, for which --rule has no meaning"),
        (HEAD + "a,2024-05-01\n", {"days": 3}, "is a log, for which --days has no meaning"),
        ("round,client\n0,0\n", {"since": "2024-05-01"}, "a trace without a clock, for which --since and --until"),
        ("round,client\n0,0\n", {"timezone": "Asia/Tokyo"}, "a trace without a clock, for which --timezone"),
        ("round,client\n0,0\n", {"time_format": "%Y"}, "is a trace, for which --time-format has no meaning"),
        ("round,client\n0,0\n", {"rule": "wifi"}, "is a trace, for which --rule has no meaning"),
    ],
)
def test_flags_that_cannot_be_meant_are_refused(tmp_path, text, how, said):
    with pytest.raises(UserError, match=said):
        read(tmp_path, text, **how)


@pytest.mark.parametrize("flag", ["since", "until", "time_format"])
def test_device_events_have_no_parts(tmp_path, flag):
    path = write(tmp_path, json.dumps({"0": PHONE}), "events.json")
    with pytest.raises(UserError, match=f"is device events, for which --{flag.replace('_', '-')} has no meaning"):
        logs.read(path, **{flag: "2024-03-30"})


def test_a_part_of_a_trace_with_a_clock(tmp_path):
    log = read(tmp_path, HEAD + "".join(f"a,{iso(START + 600 * n)}\n" for n in range(20)))
    log.save(tmp_path / "fleet.npz")
    part = logs.read(tmp_path / "fleet.npz", since="2024-05-01T09:00", until="2024-05-01T10:00")
    assert part.trace.rounds == 6
    assert part.clock.when(0) == "2024-05-01 09:00"
    assert kinds(part)["cut"].text == "6 of 20 rounds begin between --since and --until"
    with pytest.raises(UserError, match="no round begins between --since and --until"):
        logs.read(tmp_path / "fleet.npz", since="2025-01-01")
    with pytest.raises(UserError, match=r"a trace with rounds of 10 min; omit --round"):
        logs.read(tmp_path / "fleet.npz", round_length="1h")


def test_a_part_keeps_probabilities_and_so_does_a_roster(tmp_path):
    p = np.linspace(0.1, 0.6, 6).reshape(3, 2)
    np.savez(tmp_path / "t.npz", on=np.ones((3, 2), bool), p=p, round_seconds=60.0, start=float(START))
    part = logs.read(tmp_path / "t.npz", since=str(START + 60), roster=["1", "z"])
    np.testing.assert_array_equal(part.trace.p, [[*p[1], 0], [*p[2], 0]])


def test_a_part_of_a_trace_whose_clock_has_no_date(tmp_path):
    Trace(np.eye(48, dtype=bool)).save(tmp_path / "t.npz")
    part = logs.read(tmp_path / "t.npz", round_length="1h", since="86400", until="172800")
    assert (part.trace.on == np.eye(48, dtype=bool)[24:]).all()
    with pytest.raises(UserError, match="whole days"):
        logs.read(tmp_path / "t.npz", round_length="1h", since="3600")


# Nobody.


@pytest.mark.parametrize(
    ("name", "text", "said"),
    [
        ("log.csv", SPAN + "a,2024-05-01T08:01Z,2024-05-01T08:02Z\n", "no interval contains the beginning of a round"),
        ("events.json", json.dumps({"0": PHONE}), "no device could train .* under --rule strict"),
        ("trace.csv", "# rounds=3 clients=2\nround,client\n", "no client is available in any round"),
    ],
)
def test_a_fleet_in_which_nobody_is_ever_there_is_refused(tmp_path, name, text, said):
    with pytest.raises(UserError, match=said):
        read(tmp_path, text, name)


# Bytes.


@pytest.mark.parametrize(
    ("name", "content", "said"),
    [
        ("log.csv", (HEAD + "a,1\n").encode("utf-16"), "is UTF-16 text; save it as UTF-8"),
        ("log.csv", (HEAD + "a,1\n").encode("utf-16-le"), "is UTF-16 text; save it as UTF-8"),
        ("log.csv", (HEAD + "a,1\n").encode("utf-16-be"), "is UTF-16 text; save it as UTF-8"),
        ("log.jsonl", '{"client": "a", "timestamp": 1}\n'.encode("utf-16"), "is UTF-16 text"),
        ("log.csv.gz", gzip.compress((HEAD + "a,1\n").encode("utf-16"), mtime=0), "is UTF-16 text"),
        ("log.csv", b"\x7fELF\x02\x01\x01\x00\x00\x00" + bytes(range(256)), "is not a text file"),
        ("log.csv", b"\x1b[31mid\x07,when\n1,2\n", r"found \\x1b\[31mid\\x07, when"),
        (
            "log.json",
            b'{"client":"a","timestamp":1}\n{"client":"b","timestamp":2}\n',
            r"JSON lines are .* named \.jsonl",
        ),
        ("log.json", b'[{"client":"a","timestamp":1}]', r"a log of check-ins is read as CSV, JSON lines \(\.jsonl\)"),
        ("log.json", b'{"0": {"messages": "x"}, "0": {"messages": "y"}}', "the key '0' occurs twice"),
        ("log.json", b"[" * 200_000, "cannot be read as JSON"),
    ],
)
def test_what_is_no_text_or_another_kind_is_refused_in_printable_words(tmp_path, name, content, said):
    with pytest.raises(UserError, match=said) as caught:
        read(tmp_path, content, name)
    assert str(caught.value).isprintable()


def test_parquet_that_lacks_a_part_is_refused_in_one_line(tmp_path, command):
    """Also on the process's own stderr, where the threads of the reader would complain."""
    rows = {"client": [f"c{n % 7}" for n in range(5000)], "timestamp": range(START, START + 5000)}
    path = tmp_path / "log.parquet"
    pl.DataFrame(rows).write_parquet(path)
    whole = path.read_bytes()
    path.write_bytes(whole[:4] + whole[2004:])
    said = f"fedawe: {path}: cannot be read (it is damaged, or a part of it is missing)\n"
    assert command("audit", path) == (2, "", said)


def test_zeros_that_a_crash_left_in_a_log_are_rows_that_cannot_be_read(tmp_path):
    """Blocks that were never written are zeros on many file systems."""
    rows = [f"a,{iso(START + 600 * n)}\n" for n in range(4)]
    log = read(tmp_path, HEAD + "".join(rows[:2]) + "\0" * 500 + "\n" + "".join(rows[2:]))
    assert log.clients == ("a",)
    assert log.trace.on.all()
    assert kinds(log)["unreadable rows"].count == 1


def test_quotes_in_the_middle_of_fields(tmp_path):
    rows = "".join(f"{'abc'[n % 3]},{iso(START + 60 * n)}\n" for n in range(60))
    log = read(
        tmp_path,
        HEAD
        + rows.replace("b,2024-05-01T08:04", 'b,2024-05"-01T08:04').replace(
            "c,2024-05-01T08:20", 'c",2024-05-01T08:20'
        ),
    )
    assert set("abc") <= set(log.clients)
    assert log.rows >= 57


def test_an_open_quote_before_bytes_that_are_no_text(tmp_path):
    rotten = b'client,timestamp\na,2024-05-01T08:00:00Z\n"b,2024-05-01T08:00:00Z\nc,\xff\x1b\na,2024-05-01T08:10:00Z\n'
    log = read(tmp_path, rotten)
    assert log.trace.on[:, log.clients.index("a")].tolist() == [True, True]
    assert kinds(log)["quotes"].count == 1


def test_names_with_control_characters_are_told_printably(tmp_path):
    log = read(tmp_path, HEAD + "a,2024-05-01\n\x1b[31mred,1970-01-01\n")
    assert "\\x1b[31mred: clock not set" in kinds(log)["clients without rows"].text
    assert all(finding.text.isprintable() for finding in log.findings)


def test_one_and_many_are_told_apart(tmp_path):
    one = kinds(read(tmp_path, '{"client":"a","timestamp":1}\n{"x\n', "log.jsonl"))
    two = kinds(read(tmp_path, 2 * '{"client":"a","timestamp":1}\n' + '{"x\ny\n', "log.jsonl"))
    assert one["unreadable rows"].text.startswith("1 row that cannot be read as a JSON object")
    assert two["unreadable rows"].text.startswith("2 rows that cannot be read as a JSON object")


def test_sessions_whose_ends_are_all_unknown_have_no_far_date(tmp_path):
    """Found by the fuzzing campaign: the latest of the ends was not a number."""
    path = tmp_path / "log.csv"
    lines = b"b,2024-01-01 01:0:0:&\xb50:00,\n1-01 00:00,2024-01-01 02:00\n" * 30
    path.write_bytes(b"client,start,end\na,2024-01-01 00:00,2024-01-01 02:00\n" + lines)
    assert logs.read(path).trace.clients == 3


def test_times_since_the_beginning_are_in_no_time_zone():
    plain, there = Clock(3600.0), Clock(3600.0, None, "America/New_York")
    assert there.when(0) == "day 0, 00:00"
    assert there.hours(30).tolist() == plain.hours(30).tolist()
    assert there.days(30).tolist() == plain.days(30).tolist()
