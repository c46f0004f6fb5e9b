"""What a fleet engineer asks: what to run and what would change that, what if, what changed, and a gate."""

import json
import re
import subprocess
import sys
import xml.etree.ElementTree as ElementTree
from dataclasses import replace
from datetime import UTC, datetime
from html import unescape

import numpy as np
import pytest
import tyro

import fedawe
from fedawe.audit import Log, audit, describe, gate, logs, periods, read_roster, whatif
from fedawe.audit.candidates import Candidate, choose
from fedawe.audit.dealt import dealt, digits, groups_of, labels_of
from fedawe.audit.logs import Clock, Reader
from fedawe.audit.logs.times import Times
from fedawe.availability.trace import Trace
from fedawe.cli.audit import Audit
from fedawe.cli.main import parse
from fedawe.core.errors import UserError
from fedawe.experiments.build import algorithm_spec

MONDAY = 1714348800.0  # 2024-04-29T00:00:00Z
DAY = 144
CLOCK = Clock(600.0, start=MONDAY)


def log_of(on, clock=CLOCK, **more):
    return Log(Trace(on), tuple(f"c{n:03d}" for n in range(on.shape[1])), clock, (), **more)


def command(capsys, *args):
    tyro.cli(Audit, args=[str(arg) for arg in args], config=(tyro.conf.FlagCreatePairsOff,)).run()
    return capsys.readouterr().out


# Advice.


def sparse(seed=0, m=60, days=14):
    """Clients that are available in long stretches, days apart, some much less than others."""
    p = np.linspace(0.02, 0.5, m)
    return Trace.draw(fedawe.Markov(q=0.004), p, DAY * days, seed).on


def made(*texts):
    return {algorithm_spec(text).label: algorithm_spec(text).build() for text in texts}


def test_names_with_options_are_considered():
    """A rule that keeps one number per client goes before one that keeps a model each, if about as close."""
    found = audit(log_of(sparse()), algorithms=made("fedavg", "fedawe", "fedau:K=2000"))
    assert found.fleet.multiplier > 15
    assert found.advice.algorithm == "fedau(K=2000)"
    rules = made("fedavg", "f3ast:r0=share", "mifa", "fedawe")
    label = "f3ast(r0=share)"
    bias, echoes = dict(zip(rules, (0.34, 0.099, 0.09, 0.09), strict=True)), {"fedawe": 110.0}
    candidates = [Candidate(name, rule, bias[name], echoes.get(name)) for name, rule in rules.items()]
    assert choose(candidates).name == label


@pytest.mark.parametrize(
    ("text", "keeps"),
    [("fedavg", False), ("fedau", False), ("f3ast", False), ("fedawe", False), ("mifa", True), ("fedvarp", True)],
)
def test_whether_a_rule_keeps_a_model_of_every_client_is_measured(text, keeps):
    assert Candidate(text, made(text)[text], 0.0, None).keeps_models is keeps


@pytest.mark.parametrize("seed", range(3))
def test_a_remedy_remedies(seed):
    """Whatever is offered is done, and the advice becomes what was promised."""
    found = audit(log_of(sparse(seed)))
    assert found.advice.algorithm != "fedawe"
    offered = [line for line in found.advice.remedies if "times as long" in line]
    for line in offered:
        times = int(line.split("With rounds ")[1].split(" times")[0])
        again = audit(found.log.longer(times))
        assert again.advice.algorithm == "fedawe"
        assert again.fleet.multiplier <= 15
        assert f"{int(again.fleet.seen.sum())} of 60 clients active" in line
    for line in (line for line in found.advice.remedies if "max_echo=" in line):
        limit = int(line.split("max_echo=")[1].split(" ")[0])
        assert describe(found.log.trace).echo.multiplier(limit) <= 15
    assert offered or "Neither longer rounds nor a limit on the echo would change that." in found.advice.remedies


def test_check_ins_within_a_longer_round_are_joined_and_sessions_are_met_when_it_begins():
    on = np.zeros((12, 2), dtype=bool)
    on[1, 0] = on[3, 1] = True
    assert log_of(on, checkins=True).longer(3).trace.on.tolist() == [[True, False], [False, True], *[[False] * 2] * 2]
    assert log_of(on).longer(3).trace.on.tolist() == [[False, False], [False, True], *[[False] * 2] * 2]


def test_the_first_sentence_names_the_group(tmp_path):
    on = np.ones((200, 10), dtype=bool)
    on[:, 6:] = np.random.default_rng(0).random((200, 4)) < 0.1
    table = tmp_path / "clients.csv"
    table.write_text(
        "client,group\n" + "".join(f"c{n:03d},{'home' if n < 6 else 'rarely on Wi-Fi'}\n" for n in range(10))
    )
    headline = audit(log_of(on), groups=read_roster(table)).advice.headline
    assert headline.startswith("Clients of the group rarely on Wi-Fi would have ")
    assert headline.endswith(
        " times less influence on a model trained by plain averaging than their share of the fleet."
    )


def test_no_headline_says_that_less_is_more():
    """Clients that are available least, but in rounds with few others, have more than their share."""
    on = np.zeros((35, 297), dtype=bool)
    for i in range(297):
        on[i // 10 : i // 10 + 5, i] = True
    on[:1, :2] = False
    headline = audit(log_of(on)).advice.headline
    assert headline.startswith("Plain averaging would count the clients of this fleet unequally (its bias is ")
    assert "times less" not in headline


# Enrolment: a fleet whose churn, outage and enrolment are known.


@pytest.fixture(scope="module")
def known():
    """Ten days: 40 clients throughout, 20 that enrol on day 4, 15 that leave on day 6, an outage on day 8."""
    draw = np.random.default_rng(0)
    on = Trace.draw(fedawe.Markov(q=0.2), np.full(75, 0.5), DAY * 10, 0).on.copy()
    on[: DAY * 4, 40:60] = False
    on[DAY * 6 :, 60:] = False
    on[DAY * 8 + 30 : DAY * 8 + 60] &= draw.random((30, 75)) < 0.02
    return on


def as_csv(on, path, column="timestamp"):
    t, i = np.nonzero(on)
    stamp = [datetime.fromtimestamp(MONDAY + 600 * n + 60, UTC).strftime("%Y-%m-%dT%H:%M:%SZ") for n in t]
    path.write_text(f"client,{column}\n" + "".join(f"c{c:03d},{at}\n" for c, at in zip(i, stamp, strict=True)))
    return path


def test_what_is_said_of_a_fleet_is_what_was_built_into_it(known, tmp_path):
    log = logs.read(as_csv(known, tmp_path / "log.csv"))
    found = {one.kind: one for one in log.findings}
    assert found["enrolled late"].count == 20
    assert found["left"].count == 15
    inside = np.ones_like(known)
    inside[: DAY * 4, 40:60] = False
    inside[DAY * 6 :, 60:] = False
    assert (log.trace.known != inside).mean() < 0.002  # to the first and last sign of life
    fleet = describe(log.trace, log.clock)
    np.testing.assert_allclose(fleet.rates[40:], 0.5, atol=0.12)  # not halved by the days before and after
    assert [start for start, _ in fleet.together.outages] == [DAY * 8 + 30]
    assert fleet.together.outages[0][1] == pytest.approx(30, abs=2)
    assert not fleet.drift.fleet_changes
    ignorant = describe(Trace(known), log.clock)
    assert ignorant.rates[60:].mean() < 0.35
    said = audit(log).advice.cautions
    assert any(line.startswith("35 clients belonged to the fleet for a part of the log only") for line in said)
    assert any(line.startswith("1 outage: ") for line in said)


def test_words_that_readers_did_not_understand_are_gone(known, tmp_path, capsys):
    known[:, :30] &= np.random.default_rng(1).random((len(known), 30)) < 0.1
    html = tmp_path / "page.html"
    said = command(capsys, as_csv(known, tmp_path / "checkins-of-may.csv"), "--html", html)
    page = re.sub(r"<script.*?</script>", "", html.read_text(), flags=re.DOTALL)
    for text in (" ".join(said.split()), page):
        for words in (
            "wrong hands",
            "% off",
            "as if",
            "comer",
            "influence comes",
            "1 outages",
            "is there",
            "stays for",
        ):
            assert words not in text, words
    assert said.index("What to run") < said.index("Influence of the clients") < said.index("What the fleet is like")
    headline = page.partition("<h1>")[2].partition("</h1>")[0]
    assert headline in " ".join(said.split())
    assert "times less influence" in headline
    assert "checkins-of-may" not in page.partition("<title>")[2].partition("</title>")[0] + headline


def test_a_table_says_when_clients_belonged_to_the_fleet(known, tmp_path):
    rows = ["client,group,enrolled,left"]
    for n in range(75):
        late, gone = 40 <= n < 60, n >= 60
        rows.append(f"c{n:03d},a,{'2024-05-03' if late else ''},{'2024-05-05' if gone else ''}")
    (tmp_path / "clients.csv").write_text("\n".join(rows) + "\n")
    roster = read_roster(tmp_path / "clients.csv")
    log = logs.read(as_csv(known, tmp_path / "log.csv"), roster=roster.clients, enrolled=roster.enrolled)
    inside = np.ones_like(known)
    inside[: DAY * 4, 40:60] = False
    inside[DAY * 6 :, 60:] = False
    assert (log.trace.known == inside).all()


def test_a_table_speaks_of_clients_that_the_log_has_never_seen(known, tmp_path):
    rows = ["client,group,enrolled,left", *(f"c{n:03d},a,," for n in range(60))]
    rows += [f"c{n:03d},a,,2024-05-05" for n in range(60, 75)]
    rows += ["unseen-late,a,2024-05-04,", "unseen,b,,", "after,b,2024-07-01,", "before,b,,2023-01-01"]
    (tmp_path / "clients.csv").write_text("\n".join(rows) + "\n")
    roster = read_roster(tmp_path / "clients.csv")
    path = as_csv(known, tmp_path / "log.csv")
    log = logs.read(path, roster=roster.clients, enrolled=roster.enrolled)
    found = {one.kind: one for one in log.findings}
    late = log.trace.known[:, log.clients.index("unseen-late")]
    assert late.tolist() == [t >= DAY * 5 for t in range(len(late))]
    assert found["outside the log"].text == (
        "2 clients that belonged to the fleet in no round of the log (after, before); not counted"
    )
    assert {"after", "before"}.isdisjoint(log.clients)
    assert "enrolled after the log began (1 as the table of clients says)" in found["enrolled late"].text
    assert "15 clients left before the log ended (15 as the table of clients says)" in found["left"].text
    judged = audit(log, groups=roster)
    assert [log.clients[n] for n in judged.fleet.never] == ["unseen-late", "unseen"]
    (tmp_path / "clients.csv").write_text("client,enrolled\nc000,\nunseen,soon\n")
    wrong = read_roster(tmp_path / "clients.csv")
    with pytest.raises(UserError, match="column 'enrolled' of client unseen: cannot read the time 'soon'"):
        logs.read(path, roster=wrong.clients, enrolled=wrong.enrolled)


def test_dates_of_a_table_are_read_at_once(tmp_path, monkeypatch):
    """Each took milliseconds, and a table may have thousands."""
    calls, settle = [], Times.settle
    monkeypatch.setattr(Times, "settle", lambda *given: calls.append(1) or settle(*given))
    on = np.zeros((DAY, 50), dtype=bool)
    on[-1] = True
    log_of(on).save(tmp_path / "t.npz")
    said = {f"c{n:03d}": (f"2024-04-29T00:{n:02d}", "2024-05-03") for n in range(50)}
    log = logs.read(tmp_path / "t.npz", enrolled=said)
    assert log.trace.known.argmax(0).tolist() == [-(-n // 10) for n in range(50)]
    assert len(calls) == 1


def test_a_client_that_is_available_after_it_left_has_the_rate_of_all_this_time(tmp_path):
    """Rounds in which it is available alone would make its rate 1."""
    on = np.zeros((DAY * 3, 2), dtype=bool)
    on[:, 0] = True
    on[DAY : DAY * 2 : 10, 1] = True
    log_of(on).save(tmp_path / "t.npz")
    log = logs.read(tmp_path / "t.npz", enrolled={"c001": (None, "2024-04-29T12:00")})
    last = int(np.flatnonzero(on[:, 1])[-1])
    assert log.trace.known[:, 1].tolist() == [t <= last for t in range(len(on))]
    found = {one.kind: one for one in log.findings}
    assert "1 client available before enrolling or after leaving (c001)" in found["outside enrolment"].text
    assert "as the table of clients says" not in found["left"].text


def test_a_table_speaks_of_traces_with_a_clock_and_of_no_others(tmp_path):
    on = np.random.default_rng(0).random((DAY * 3, 4)) < 0.5
    on[DAY:, 1] = False
    on[:3, 0] = False
    said = {"c000": ("2024-04-30", None), "c001": (None, "2024-04-30")}
    log_of(on).save(tmp_path / "t.npz")
    log = logs.read(tmp_path / "t.npz", enrolled=said)
    first = int(on[:, 0].argmax())
    assert 0 < first < DAY
    assert log.trace.known[:, 0].tolist() == [t >= first for t in range(len(on))]
    assert log.trace.known[:, 1].tolist() == [t < DAY for t in range(len(on))]
    assert {"enrolled late", "left", "outside enrolment"} == {one.kind for one in log.findings}
    for when in (("20240430", None), (None, "20240430"), (None, "-1")):
        with pytest.raises(UserError, match=r"of client c000 has .*: a number means seconds since 1970; write a"):
            logs.read(tmp_path / "t.npz", enrolled={"c000": when})
    Trace(on).save(tmp_path / "bare.npz")
    with pytest.raises(UserError, match="is a trace without a clock; omit the columns 'enrolled' and 'left'"):
        logs.read(tmp_path / "bare.npz", enrolled={"0": ("2024-04-30", None)})
    assert logs.read(tmp_path / "bare.npz", enrolled={"0": (None, None)}).trace.known is None
    with pytest.raises(UserError, match=r"has the date '2024-04-30', but times count .*; give a number of seconds"):
        logs.read(tmp_path / "bare.npz", round_length="10min", enrolled={"0": ("2024-04-30", None)})


def test_a_client_of_which_nothing_is_known_is_in_no_rate():
    on = np.array([[1, 0, np.nan], [1, 1, np.nan]])
    fleet = describe(Trace(on))
    assert fleet.never == []
    assert (fleet.rate, fleet.delta) == (0.75, 0.5)


def test_nobody_enrolled_yet_is_no_outage():
    on = Trace.draw(fedawe.Markov(q=0.2), np.full(50, 0.6), DAY * 7, 0).on.copy()
    known = np.ones_like(on)
    on[: DAY * 2, 5:] = known[: DAY * 2, 5:] = False
    assert describe(Trace(on), CLOCK).together.outages
    assert describe(Trace(on).knowing(known), CLOCK).together.outages == []


def test_an_outage_that_goes_on_is_no_departure(tmp_path):
    on = Trace.draw(fedawe.Markov(q=0.2), np.full(50, 0.6), DAY * 7, 0).on.copy()
    on[DAY * 5 :, 5:] = False
    log = logs.read(as_csv(on, tmp_path / "log.csv"))
    found = {one.kind: one for one in log.findings}
    assert found["outage at the end"].count == 45
    assert "left" not in found
    assert describe(log.trace, log.clock).together.outages


def states(hours, *clients):
    """A log of events in which clients (name, first, end, offline) connect in every third hour of [first, end), for an
    hour, and say that they are offline at the hours `offline`."""
    rows = []
    for name, first, end, offline in clients:
        for hour in range(hours):
            at = datetime.fromtimestamp(MONDAY + 3600 * hour, UTC).isoformat()
            if first <= hour < end and hour % 3 < 2:
                rows.append(f"{name},{at},{'online' if hour % 3 == 0 else 'offline'}")
            elif hour in offline:
                rows.append(f"{name},{at},offline")
    return "client,timestamp,state\n" + "\n".join(rows) + "\n"


def test_an_event_of_any_kind_shows_that_a_client_is_enrolled(tmp_path):
    """Silent is who is in no event: to be offline is to belong to the fleet."""
    hours, everyone = 7 * 24, [(f"c{n}", 0, 7 * 24, ()) for n in range(8)]
    (tmp_path / "log.csv").write_text(
        states(
            hours,
            *everyone,
            ("early", 72, hours, range(0, 72)),
            ("late", 72, hours, ()),
            ("later", 72, hours, (48, 49)),
            ("gone", 0, 72, ()),
            ("goner", 0, 72, (95,)),
            ("stayed", 0, 72, range(72, hours)),
        )
    )
    log = logs.read(tmp_path / "log.csv", round_length="1h")
    found = {one.kind: one for one in log.findings}
    windows = {}
    for name in ("early", "late", "later", "gone", "goner", "stayed"):
        known = np.flatnonzero(log.trace.known[:, log.clients.index(name)])
        windows[name] = (int(known[0]), int(known[-1]) + 1)
    T = log.trace.rounds
    assert windows == {
        "early": (0, T),
        "late": (72, T),
        "later": (0, T),  # its first event is an end: it was available since the log began
        "gone": (0, 70),
        "goner": (0, 95),
        "stayed": (0, T),
    }
    assert (found["enrolled late"].count, found["left"].count) == (1, 2)
    later = logs.read(tmp_path / "log.csv", round_length="1h", since="2024-04-30", until="2024-05-04")
    known = {name: later.trace.known[:, n] for n, name in enumerate(later.clients)}
    assert known["early"].all()
    assert known["stayed"].all()
    assert int(known["late"].argmax()) == 48


def test_an_interval_between_two_rounds_shows_that_a_client_is_enrolled(tmp_path):
    rows = ["client,start,end"]
    for name, first, end in (*((f"c{n}", 0, 168) for n in range(8)), ("stayed", 0, 72), ("gone", 0, 72)):
        for hour in range(168):
            start = datetime.fromtimestamp(MONDAY + 3600 * hour, UTC)
            if first <= hour < end and hour % 3 == 0:
                rows.append(f"{name},{start.isoformat()},{start.replace(minute=50).isoformat()}")
            elif name == "stayed" and hour % 3 == 0:
                rows.append(f"{name},{start.replace(minute=10).isoformat()},{start.replace(minute=50).isoformat()}")
    (tmp_path / "log.csv").write_text("\n".join(rows) + "\n")
    log = logs.read(tmp_path / "log.csv", round_length="1h")
    assert log.trace.known[:, log.clients.index("stayed")][:166].all()
    assert not log.trace.known[70:, log.clients.index("gone")].any()


def test_rare_clients_are_not_called_late(tmp_path):
    """Memoryless clients, some seen a few times only: hardly any may be taken for one that enrolled late or left."""
    on = np.random.default_rng(0).random((DAY * 14, 200)) < np.geomspace(0.001, 0.2, 200)
    found = {one.kind: one.count for one in logs.read(as_csv(on, tmp_path / "log.csv")).findings}
    assert found.get("enrolled late", 0) + found.get("left", 0) <= 4


def test_unknown_entries_of_a_trace_are_left_out_of_rates(tmp_path):
    on = np.random.default_rng(0).random((400, 6)).round() * 1.0
    on[200:, 0] = np.nan
    np.savez(tmp_path / "t.npz", on=on)
    log = logs.read(tmp_path / "t.npz")
    assert describe(log.trace).rates[0] == pytest.approx(np.nanmean(on[:, 0]))
    log.save(tmp_path / "again.npz")
    assert (logs.read(tmp_path / "again.npz").trace.known == ~np.isnan(on)).all()


# What if.


def test_what_if_is_what_each_log_alone_would_give(known, tmp_path, capsys):
    path = as_csv(known, tmp_path / "log.csv")
    reader = Reader((path,))
    rows = whatif.scenarios(reader, None, whatif.parse(["round=10min,1h", "choose=all,5"]), whatif.default_algorithms())
    assert [(row.round, row.choose) for row in rows] == [("10min", "all"), ("10min", "5"), ("1h", "all"), ("1h", "5")]
    hour = audit(logs.read(path, round_length="1h"))
    row = rows[2]
    assert row.bias["fedavg"] == hour.influences["fedavg"].among(hour.fleet.seen)
    assert row.bias["fedawe"] == hour.influences["fedawe"].among(hour.fleet.seen)
    assert row.multiplier == hour.fleet.multiplier
    assert row.staleness == hour.fleet.staleness.mean
    assert row.updates_per_day == pytest.approx(hour.fleet.k.mean() * 24)
    assert row.advised == hour.advice.algorithm
    assert rows[1].updates_per_day <= 5 * 144
    assert rows[1].staleness > rows[0].staleness
    out = command(capsys, path, "--what-if", "round=1h,3h", "choose=5")
    assert "What if" in out
    assert out.split("What if")[1].split("What to run")[0].count("fedawe") >= 1


def test_the_server_chooses_among_the_available():
    trace = Trace.draw(fedawe.Stationary(), np.full(30, 0.5), 200, 0)
    some = whatif.chosen(trace, 4)
    assert (some.on <= trace.on).all()
    assert (some.on.sum(1) == np.minimum(trace.on.sum(1), 4)).all()
    np.testing.assert_allclose(some.on.mean(0), 4 / 30, atol=0.08)


def test_what_if_a_requirement_is_dropped(tmp_path):
    rows = ["client,timestamp,charging"]
    rows += [f"a,2024-05-01T{h:02d}:00:00Z,{int(h % 2 == 0)}" for h in range(24)]
    rows += [f"b,2024-05-01T{h:02d}:00:00Z,1" for h in range(24)]
    (tmp_path / "log.csv").write_text("\n".join(rows) + "\n")
    asked = whatif.parse(["require=none,charging", "round=1h"])
    free, charging = whatif.scenarios(Reader((tmp_path / "log.csv",)), None, asked, whatif.default_algorithms())
    assert (free.updates_per_day, charging.updates_per_day) == (48, 36)


@pytest.mark.parametrize("word", ["round", "round=", "size=3", "choose=0", "choose=some", "round=soon"])
def test_what_cannot_be_asked(word):
    with pytest.raises(UserError):
        whatif.parse([word])


def test_traces_are_asked_in_multiples_of_their_rounds(tmp_path):
    log_of(np.random.default_rng(0).random((300, 5)) < 0.5).save(tmp_path / "t.npz")
    reader = Reader((tmp_path / "t.npz",))
    rows = whatif.scenarios(reader, None, whatif.parse(["round=1h"]), whatif.default_algorithms())
    assert rows[0].rounds == 50
    with pytest.raises(UserError, match="is no multiple"):
        whatif.scenarios(reader, None, whatif.parse(["round=15min"]), whatif.default_algorithms())


# Two periods.


def test_two_weeks_are_compared(tmp_path):
    on = Trace.draw(fedawe.Markov(q=0.1), np.full(60, 0.5), DAY * 8, 0).on.copy()
    rest = Trace.draw(fedawe.Markov(q=0.1), np.full(60, 0.5), DAY * 8, 1).on
    on[DAY * 4 :, :20] &= rest[DAY * 4 :, :20]  # a third of the fleet falls to half
    on[DAY * 4 :, 58] = on[: DAY * 4, 59] = False
    (tmp_path / "g.csv").write_text(
        "client,group\n" + "".join(f"c{n:03d},{'fell' if n < 20 else 'same'}\n" for n in range(60))
    )
    change = periods.compare(*periods.split(log_of(on), "2024-05-03"), read_roster(tmp_path / "g.csv"))
    assert (change.vanished, change.appeared) == (("c058",), ("c059",))
    groups = {group.name: group for group in change.groups}
    assert groups["fell"].p < 0.01
    assert groups["same"].p > 0.05
    assert groups["fell"].rates[0] == pytest.approx(0.5, abs=0.05)
    assert groups["fell"].rates[1] == pytest.approx(0.25, abs=0.05)
    assert groups["fell"].fair[0] == pytest.approx(1, abs=0.1)
    assert groups["fell"].fair[1] < 0.75
    assert len([i for i in change.changed if i < 20]) >= 12
    assert len([i for i in change.changed if 20 <= i < 58]) <= 6
    assert change.fleet_p < 0.05


def test_two_periods_of_one_fleet_are_alike():
    ps, alarms = [], 0
    for seed in range(20):
        on = Trace.draw(fedawe.Markov(q=0.05), np.full(40, 0.4), DAY * 7, seed).on
        change = periods.compare(*periods.split(log_of(on), "2024-05-02"))
        alarms += change.fleet_p < 0.05
        ps += [p for p in change.p_values if np.isfinite(p)]
    assert alarms <= 4
    assert np.mean(np.array(ps) < 0.05) <= 0.1


@pytest.mark.parametrize("hours", [96, 84])
def test_days_go_on_where_times_count_from_the_beginning(hours):
    """A daily rhythm and a fall by a quarter after so many hours, found whether or not the log has dates."""
    day = (np.arange(8 * 24) % 24 >= 8) & (np.arange(8 * 24) % 24 < 20)
    p = np.outer(np.where(day, 0.9, 0.1), np.linspace(0.5, 1, 60))
    p[hours:] *= 0.75
    on = np.random.default_rng(1).random(p.shape) < p
    at = str(hours * 3600)
    counted = periods.compare(*periods.split(log_of(on, Clock(3600.0, None, "Asia/Tokyo")), at))
    dated = periods.compare(*periods.split(log_of(on, Clock(3600.0, 0.0)), at))
    assert counted.fleet_p == dated.fleet_p < 0.02
    np.testing.assert_array_equal(counted.p_values, dated.p_values)


def test_clients_that_repeat_their_days_tell_no_change():
    """Half of the clients repeat themselves after five days of eight: neither part repeats anything by itself."""
    on = np.concatenate([np.random.default_rng(0).random((DAY * 4, 20)) < p for p in (0.6, 0.3)])
    repeats = np.repeat([DAY * 5, DAY * 8], 10)
    change = periods.compare(*periods.split(log_of(on, repeats=repeats), "2024-05-03"))
    assert np.isnan(change.p_values[:10]).all()
    assert np.isfinite(change.p_values[10:]).all()
    assert change.fleet_p < 0.02  # of the others
    halves = [replace(log_of(part), repeats=repeats // 2) for part in (on[: DAY * 4], on[DAY * 4 :])]
    np.testing.assert_array_equal(periods.compare(*halves).p_values, change.p_values)
    nobody = periods.compare(*periods.split(log_of(on, repeats=repeats // 2), "2024-05-03"))
    assert nobody.tested == 0
    assert np.isnan(nobody.fleet_p)


@pytest.mark.parametrize("days", [(100, 100), (198, 2), (151, 50)])
def test_periods_of_many_days_are_compared(days):
    hourly = Clock(3600.0, start=MONDAY)
    same, fallen = (np.random.default_rng(0).random((24 * sum(days), 20)) < 0.5 for _ in range(2))
    fallen[24 * days[0] :] &= np.random.default_rng(1).random((24 * days[1], 20)) < 0.5
    for on, changes in ((same, False), (fallen, True)):
        change = periods.compare(*periods.split(log_of(on, hourly), str(MONDAY + 86400 * days[0])))
        assert change.tested == 20
        assert (change.fleet_p < 0.01) is changes
        assert changes or len(change.changed) <= 4


def test_why_rates_are_not_tested_is_said(tmp_path, capsys):
    on = np.random.default_rng(0).random((DAY * 8, 5)) < 0.5
    unknown = np.arange(DAY * 8)[:, None] >= [DAY * 2] * 5
    few, hardly = on[: DAY * 3], np.arange(DAY * 8)[:, None] % (DAY * 2) < np.arange(1, 6) * DAY // 6
    reasons = {
        "two whole days are needed on either side": log_of(few),
        "no client is known for 80% of both periods": replace(log_of(on), trace=Trace(on).knowing(unknown)),
        "no client is known for 80% of both periods and does not repeat its days": log_of(
            on, repeats=np.full(5, DAY * 2)
        ),
        "no client changes often enough between available and unavailable": log_of(hardly[: DAY * 5]),
    }
    for reason, log in reasons.items():
        log.save(tmp_path / "t.npz")
        cut = ["--split", "2024-05-02" if len(log.trace.on) > DAY * 4 else "2024-05-01", "--html", tmp_path / "t.html"]
        said = " ".join(command(capsys, tmp_path / "t.npz", *cut).split())
        assert f"rates of clients were not tested: {reason} ·" in said
        assert f"not tested: {reason}</dd>" in (tmp_path / "t.html").read_text()


def test_the_command_compares_two_files_and_two_parts(known, tmp_path, capsys):
    one = as_csv(known[: DAY * 5], tmp_path / "one.csv")
    half = known[: DAY * 5].copy()
    half[:, 3] = False
    other = as_csv(half, tmp_path / "other.csv")
    out = command(capsys, one, "--against", other)
    assert "1 client vanished (c003)" in out
    found = json.loads(command(capsys, one, "--split", "2024-05-02", "--json"))
    assert found["change"]["vanished"] == []
    with pytest.raises(UserError, match="outside of the log"):
        command(capsys, one, "--split", "2030-01-01")
    with pytest.raises(UserError, match="omit one of them"):
        command(capsys, one, "--split", "2024-05-02", "--against", other)


def test_what_is_wrong_with_the_other_log_is_said(known, tmp_path, capsys):
    one, other = as_csv(known[: DAY * 5], tmp_path / "one.csv"), as_csv(known[: DAY * 5], tmp_path / "other.csv")
    lines = other.read_text().splitlines()
    lines[1::3] = [line.replace("T", "t o'clock ") for line in lines[1::3]]
    lines.append(lines[2])
    other.write_text("\n".join(lines) + "\n")
    html = tmp_path / "page.html"
    said = " ".join(command(capsys, one, "--against", other, "--html", html).split())
    change = json.loads(command(capsys, one, "--against", other, "--json"))["change"]
    assert {finding["kind"] for finding in change["findings"]} >= {"unreadable times", "duplicates"}
    (caution,) = change["cautions"]
    assert caution.startswith("In the other log: ")
    assert caution in said.partition("What changed")[2].partition("availability:")[0]
    page = html.read_text()
    for finding in change["findings"]:
        assert finding["text"] in said
        assert unescape(page).count(finding["text"]) >= 1
    assert caution in unescape(page)
    part = json.loads(command(capsys, other, "--split", "2024-05-02", "--json"))["change"]
    assert (part["findings"], part["cautions"]) == ([], [])


def test_one_log_that_is_split_changes_as_its_two_halves_do(tmp_path, capsys):
    """c002 vanishes, c007 appears, c008 enrols later, c009 leaves; `never` is in neither half."""
    on = np.random.default_rng(0).random((DAY * 8, 10)) < np.linspace(0.3, 0.7, 10)
    on[[0, DAY * 4 - 1, DAY * 4, -1], 0] = True  # the halves begin and end where the log is cut
    on[DAY * 4 :, [2, 9]] = on[: DAY * 4, [7, 8]] = False
    rows = [f"c{n:03d},{'ab'[n > 5]},{'2024-05-03' * (n == 8)},{'2024-05-03' * (n == 9)}\n" for n in range(10)]
    (tmp_path / "g.csv").write_text("client,group,enrolled,left\n" + "".join(rows) + "never,b,,\nlate,c,2024-05-03,\n")
    first, second = on.copy(), on.copy()
    first[DAY * 4 :] = second[: DAY * 4] = False
    whole, one, other = (as_csv(part, tmp_path / f"{n}.csv") for n, part in enumerate((on, first, second)))
    groups = ["--groups", tmp_path / "g.csv", "--json"]
    split = json.loads(command(capsys, whole, "--split", "2024-05-03", *groups))["change"]
    halves = json.loads(command(capsys, one, "--against", other, *groups))["change"]
    numbers = []
    for change in (split, halves):
        order = np.argsort(change["clients"])
        each = [
            np.array(row, dtype=float)[order] for row in (change["p_values"], *change["fair"], *change["client_rates"])
        ]
        of_groups = [[*group["rates"], *group["fair"], group["p"]] for group in change["groups"]]
        numbers.append(
            np.array([*np.ravel(each), *change["rates"], change["fleet_p"], *np.ravel(of_groups)], dtype=float)
        )
    np.testing.assert_allclose(*numbers, rtol=1e-9)
    assert [split[name] for name in ("vanished", "appeared")] == [halves[name] for name in ("vanished", "appeared")]
    a, b, c = split["groups"]
    assert a["rates"][1] == pytest.approx(on[DAY * 4 :, :6].mean())  # c002 is unavailable
    assert b["rates"][0] == pytest.approx(on[: DAY * 4, [6, 7, 9]].sum() / (4 * DAY * 4))  # `never` is, c008 unknown
    assert (c["rates"], c["size"]) == ([None, 0.0], 1.0)
    said = command(capsys, one, "--against", other, *groups[:2], "--html", tmp_path / "page.html")
    assert "unknown" in said.partition("What changed")[2].partition("What to run")[0]
    assert "nan" not in re.sub(r"<script.*?</script>", "", (tmp_path / "page.html").read_text(), flags=re.DOTALL)


# The gate.


@pytest.fixture
def fleet(tmp_path):
    on = np.ones((200, 10), dtype=bool)
    on[:, 6:] = np.random.default_rng(0).random((200, 4)) < 0.1
    log_of(on).save(tmp_path / "fleet.npz")
    (tmp_path / "clients.csv").write_text("client,group\n" + "".join(f"c{n:03d},{'ab'[n > 5]}\n" for n in range(10)))
    return tmp_path / "fleet.npz"


def gated(fleet, *more):
    args = [sys.executable, "-m", "fedawe", "audit", str(fleet), "--groups", str(fleet.parent / "clients.csv"), *more]
    return subprocess.run(args, capture_output=True, text=True)


def test_a_gate_that_fails_says_so_in_one_line_and_exits_with_3(fleet, tmp_path):
    done = gated(
        fleet, "--fail-if", "fedavg.bias > 0.2", "fedawe.bias > 0.2", "--junit", str(tmp_path / "g.xml"), "--github"
    )
    assert done.returncode == 3
    assert done.stderr.count("\n") == 1
    assert done.stderr.startswith("fedawe: gate: fedavg.bias is 0.3")
    assert "::error title=fedawe audit::fedavg.bias is 0.3" in done.stdout
    assert "::notice title=fedawe audit::fedawe.bias is" in done.stdout
    suite = ElementTree.parse(tmp_path / "g.xml").getroot()
    assert (suite.get("tests"), suite.get("failures")) == ("2", "1")
    assert [case.find("failure") is not None for case in suite] == [True, False]


def test_a_gate_leaves_json_as_it_is(fleet):
    """A quantity without a value is null, and annotations are no part of the JSON."""
    done = gated(fleet, "--fail-if", "fleet.drift_p < 0.01", "fedavg.bias > 0.9", "--json", "--github")
    assert done.returncode == 3
    told = json.loads(done.stdout)["gate"]
    assert [(one["value"] is None, one["failed"]) for one in told] == [(True, True), (False, False)]
    error, notice, line = done.stderr.splitlines()
    assert error.startswith("::error title=fedawe audit::fleet.drift_p has no value in this log")
    assert notice.startswith("::notice title=fedawe audit::fedavg.bias is")
    assert line.startswith("fedawe: gate: fleet.drift_p has no value")


def test_a_gate_that_holds_lets_pass(fleet):
    done = gated(fleet, "--fail-if", "group.b.share > 0.5", "fleet.never > 0")
    assert (done.returncode, done.stderr) == (0, "")


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("fedavg.bais > 0.2", "perhaps you meant fedavg.bias"),
        ("fedavg.bias", "expected a quantity, one of > < >= <= and a number"),
        ("fedavg.bias > much", "expected a quantity"),
        ("group.z.share < 0.5", "unknown quantity"),
    ],
)
def test_conditions_that_are_none(fleet, capsys, text, said):
    with pytest.raises(UserError, match=said):
        command(capsys, fleet, "--groups", fleet.parent / "clients.csv", "--fail-if", text)


def test_what_has_no_value_fails(fleet, capsys):
    found = audit(log_of(np.random.default_rng(0).random((DAY * 4, 5)) < 0.5))
    short = audit(Trace(np.ones((5, 2))))
    assert not gate.judged(found, [gate.Condition.parse("fleet.drift_p < 0.0001")])[0].failed
    assert gate.judged(short, [gate.Condition.parse("fleet.drift_p < 0.01")])[0].failed
    assert gate.Condition.parse("fedavg.bias >= 20 %").limit == 0.2


def test_a_large_value_is_told_without_an_exponent():
    many = gate.Result(gate.Condition.parse("fleet.longest_absence > 10000"), 12345.0)
    assert many.sentence == "fleet.longest_absence is 12345, which is > 10000"


# The task that the printed command trains on.


def test_labels_depend_on_groups_or_on_availability():
    rates = np.linspace(0, 1, 20)
    labels, how = labels_of(rates, None, None)
    assert how == "classes that depend on availability"
    assert labels[:2].argmax(1).tolist() == [0, 0]
    assert labels[-2:].argmax(1).tolist() == [9, 9]
    np.testing.assert_allclose(labels.sum(1), 1)
    counts = np.array([[3.0, 1.0], [0.0, 4.0]]) / 4
    labels, _ = labels_of(rates[:2], counts, "class")
    np.testing.assert_allclose(labels[0], [0.15, 0.05] * 5)
    labels, _ = labels_of(rates[:2], np.eye(2), "group")
    assert labels[0, ::2].sum() == pytest.approx(0.9)
    assert labels[1, ::2].sum() == pytest.approx(0.1)


def test_every_sample_is_dealt_once_by_the_frequencies():
    y = np.repeat(np.arange(10), 60)
    frequencies, _ = labels_of(np.linspace(0, 1, 30), None, None)
    parts = dealt(y, frequencies, np.random.default_rng(0))
    assert sorted(np.concatenate(parts).tolist()) == list(range(600))
    assert [np.bincount(y[part], minlength=10).argmax() for part in parts] == [n // 3 for n in range(30)]
    with pytest.raises(UserError, match="too few for 500 clients"):
        dealt(y, np.ones((500, 10)), np.random.default_rng(0))


def test_the_printed_command_trains_on_labels_that_depend_on_availability(tmp_path, monkeypatch):
    """Plain averaging forgets what rare clients hold, as the audit says, and the advised rule does not."""
    monkeypatch.chdir(tmp_path)
    on = np.random.default_rng(0).random((150, 20)) < np.repeat([0.02, 0.9], 10)
    group, names = groups_of(on.mean(0), None, ())
    labels = labels_of(on.mean(0), None, None)[0]
    log_of(on).save(tmp_path / "fleet.npz", labels=labels, group=group, groups=list(names))
    task = "fedawe.audit.dealt:digits:trace=fleet.npz"
    args = ["--dynamics", "fleet.npz", "--task", task, "--algorithms", "fedavg", "fedawe", "--seeds", "0"]
    parse(["run", *args, "--out", "runs/x", "--evaluate-every", "50"]).run()
    records = sorted((tmp_path / "runs" / "x").rglob("record.jsonl"))
    assert len(records) == 2
    for record in records:
        lines = [json.loads(line) for line in record.read_text().splitlines()]
        assert "dealt" in json.dumps(lines[0])
        last = next(line for line in lines if line.get("round") == 150)
        each = [last[f"accuracy_{name}"] for name in names]
        assert last["accuracy_gap"] == pytest.approx(max(each) - min(each))
        assert any(metric["name"] == "accuracy_gap" for metric in lines[0]["metrics"])


def test_the_accuracies_of_groups_are_parts_of_the_accuracy(tmp_path):
    rates = np.linspace(0, 1, 21)
    group, names = groups_of(rates, None, ())
    labels = labels_of(rates, None, None)[0]
    log_of(np.ones((5, 21), dtype=bool)).save(tmp_path / "f.npz", labels=labels, group=group, groups=list(names))
    task = digits(0, str(tmp_path / "f.npz"))
    found = task.evaluate(task.initial(0))
    sizes = np.array([task.sizes[group == n].sum() for n in range(3)])
    parts = np.array([found[f"accuracy_{name}"] for name in names])
    assert sizes @ parts / sizes.sum() == pytest.approx(found["train_accuracy"])
    assert found["accuracy_gap"] == pytest.approx(np.ptp(parts))
    log_of(np.ones((5, 2), dtype=bool)).save(tmp_path / "g.npz")
    with pytest.raises(UserError, match="has no label frequencies"):
        digits(0, str(tmp_path / "g.npz"))


def test_few_rounds_and_one_client_are_too_few_to_tell():
    first = audit(log_of(np.ones((1, 3), dtype=bool))).advice.cautions[0]
    assert first.startswith("The log has 1 round only, fewer than 20: too few to tell how often clients are available")
    assert (
        audit(log_of(np.ones((30, 1), dtype=bool))).advice.cautions[0].startswith("Only one client is ever available")
    )
    assert audit(log_of(np.ones((30, 2), dtype=bool))).advice.cautions == ()


def test_one_client_has_its_share():
    on = np.ones((100, 4), dtype=bool)
    on[5:, 0] = False
    headline = audit(log_of(on)).advice.headline
    assert re.fullmatch("The client that is available least would have .* than its share of the fleet[.]", headline)
