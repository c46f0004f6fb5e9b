"""The audit as a whole: what a fleet is like, what follows for groups, what is said, and how it is shown."""

import dataclasses
import itertools
import json
import re
import shlex
from pathlib import Path

import numpy as np
import pytest
import torch
import tyro
from hypothesis import given, settings
from hypothesis import strategies as st

import fedawe
from fedawe.audit import Log, audit, describe, logs, read_roster
from fedawe.audit import page as audit_page
from fedawe.audit.as_json import as_json
from fedawe.audit.dealt import dealt
from fedawe.audit.gate import quantities
from fedawe.audit.logs import Clock, Finding
from fedawe.audit.text import durations
from fedawe.availability.fit import Daily
from fedawe.availability.trace import Trace
from fedawe.cli.audit import Audit
from fedawe.core.errors import UserError
from fedawe.tasks.data.labelled import digits as bundled
from fedawe.training.diagnostics import diagnostics, last_active

EIGHT = ["fedawe", "fedawe-latest", "fedavg", "fedavg-all", "fedavg-known", "fedau", "f3ast", "mifa", "fedvarp"]


@st.composite
def traces(draw):
    m, T = draw(st.integers(1, 5)), draw(st.integers(1, 15))
    return Trace([[draw(st.booleans()) for _ in range(m)] for _ in range(T)])


def runs_of(column, state):
    """Lengths of complete stretches: not the first and not the last."""
    edges = [0, *(np.flatnonzero(np.diff(column.astype(int))) + 1), len(column)]
    stretches = [(column[a], b - a) for a, b in itertools.pairwise(edges)]
    return [n for there, n in stretches[1:-1] if there == state]


# What the fleet is like.


@given(trace=traces())
@settings(max_examples=100)
def test_the_facts_are_what_counting_gives(trace):
    fleet, on = describe(trace), trace.on
    np.testing.assert_allclose(fleet.rates, on.mean(0))
    assert fleet.k.tolist() == on.sum(1).tolist()
    assert fleet.empty == int((on.sum(1) == 0).sum())
    assert np.repeat(np.arange(trace.rounds + 2), fleet.echo.histogram).tolist() == sorted(trace.echoes().tolist())
    stale = [t - last_active(trace, t) for t in range(trace.rounds)]
    assert np.bincount(np.concatenate(stale), minlength=trace.rounds + 2).tolist() == fleet.staleness.histogram.tolist()
    for state, found in ((True, fleet.on_runs), (False, fleet.off_runs)):
        expected = sorted(n for i in range(trace.clients) for n in runs_of(on[:, i], state))
        assert np.repeat(np.arange(trace.rounds + 2), found.histogram).tolist() == expected
    ever = on[:, on.any(0)].T
    longest = [
        max((len(list(run)) for row in ever for s, run in itertools.groupby(row) if s == state), default=0)
        for state in (True, False)
    ]
    assert [fleet.longest_on, fleet.longest_off] == longest


def test_the_last_aggregate_is_there_whatever_fedawe_is_called():
    found = audit(Trace(np.ones((20, 2))), algorithms={"FedAWE": fedawe.FedAWE(), "fedavg": fedawe.FedAvg()})
    assert list(found.influences) == ["FedAWE", "FedAWE-latest", "fedavg"]
    assert "FedAWE-latest" in audit_page.render(found)


def test_an_absence_that_lasts_until_the_end_is_the_longest(tmp_path):
    on = np.ones((100, 3), dtype=bool)
    on[40:, 0] = False
    on[::2, 1] = False
    on[:, 2] = np.arange(100) < 5
    found = audit(Trace(on))
    assert quantities(found)["fleet.longest_absence"] == 95
    known = np.ones_like(on)
    known[60:] = False  # what is unknown is no absence, and nobody is absent who is never available
    never = np.concatenate([on, np.zeros((100, 1), dtype=bool)], axis=1)
    fleet = describe(Trace(never).knowing(np.concatenate([known, known[:, :1]], axis=1)))
    assert (fleet.longest_on, fleet.longest_off) == (40, 55)


def test_how_long_clients_stay_is_said_of_stretches_that_the_log_cuts_too():
    on = np.ones((10, 4), dtype=bool)
    on[5:] = False
    fleet = describe(Trace(on))  # all vanish, nobody returns
    assert durations(fleet, None) == (
        "5.0 rounds on average, longest 5",
        "up to 5 rounds, including stretches cut by the ends of the log",
    )
    on[2, 0] = False
    said = durations(describe(Trace(on)), Clock(3600.0))
    assert said[1] == "up to 5 rounds (5 h), including stretches cut by the ends of the log"  # 21 rounds for one return
    assert durations(describe(Trace(np.ones((5, 2)))), None) == ("the availability of no client changes",) * 2
    found = as_json(audit(Trace(on)))["fleet"]
    assert (found["off_rounds"]["most"], found["on_rounds"]["most"]) == (5, 5)


@given(trace=traces())
@settings(max_examples=60)
def test_live_versions_are_those_that_fedawe_keeps(trace):
    algorithm, kept = fedawe.FedAWE(), []
    state = algorithm.init(torch.zeros(1), trace.clients)
    for t in range(trace.rounds):
        A = trace.active(t)
        state = algorithm.aggregate(state, t, A, torch.ones(len(A), 1))
        kept.append(len(state.models))
    assert describe(trace).live_versions.tolist() == kept


def test_hours_and_persistence_and_durations():
    clock = Clock(3600.0)
    profile = np.where(np.arange(24) < 12, 1.8, 0.2)
    trace = Trace.draw(Daily(profile, 0.7, clock), np.full(40, 0.5), rounds=24 * 60, seed=0)
    fleet = describe(trace, clock)
    np.testing.assert_allclose(fleet.by_hour, 0.5 * profile, atol=0.06)
    markov = describe(Trace.draw(fedawe.Markov(q=0.1), np.full(50, 0.4), rounds=3000, seed=0))
    assert markov.persistence == pytest.approx(1 - 0.1 - 0.15, abs=0.02)  # 1 - P(come) - P(go)
    assert markov.mean_on == pytest.approx(1 / 0.15, rel=0.05)
    assert markov.mean_off == pytest.approx(10, rel=0.05)


def test_drift_is_found_where_there_is_some_and_only_there():
    draw = np.random.default_rng(0)
    p = draw.uniform(0.2, 0.6, 100)
    same = describe(Trace(draw.random((1000, 100)) < p))
    assert same.drift.fleet_p > 0.05
    assert same.drift.changed <= 12  # 5 of 100 by chance
    halved = np.where(np.arange(1000)[:, None] < 600, p, p / 2)
    changed = describe(Trace(draw.random((1000, 100)) < halved))
    assert changed.drift.fleet_p < 0.01
    assert changed.drift.changed > 60
    assert abs(changed.drift.change - 600) <= 24  # within a block
    one = np.where((np.arange(1000)[:, None] >= 500) & (np.arange(100) == 3), 0.9, p * 0.5)
    assert describe(Trace(draw.random((1000, 100)) < one)).drift.p_values[3] < 0.01
    assert describe(Trace(np.ones((30, 2)))).drift is None


def test_days_are_the_blocks_of_a_fleet_with_a_daily_rhythm():
    """A night is no drift."""
    clock = Clock(3600.0)
    night = np.where(np.arange(24) < 8, 0.0, 1.5)
    fleet = describe(Trace.draw(Daily(night, 0.0, clock), np.full(30, 0.4), rounds=24 * 14, seed=0), clock)
    assert (fleet.drift.unit, fleet.drift.blocks, fleet.drift.days) == ("blocks of 8 h", 42, 14)
    assert fleet.drift.fleet_p > 0.05
    assert fleet.unseen_hours == pytest.approx(8 / 24, abs=0.02)


def test_clients_that_go_together_are_found():
    draw = np.random.default_rng(0)
    alone = describe(Trace(draw.random((2000, 50)) < 0.5))
    assert abs(alone.together.correlation) < 0.003
    assert alone.together.outages == []
    shared = (draw.random((2000, 1)) < 0.2) | (draw.random((2000, 50)) < 0.3)
    assert describe(Trace(shared)).together.correlation > 0.2
    outage = draw.random((2000, 50)) < 0.5
    outage[700:720] = draw.random((20, 50)) < 0.02
    assert describe(Trace(outage)).together.outages == [(700, 20)]


def test_a_shared_rhythm_is_no_dependence_beyond_the_hour():
    clock = Clock(3600.0)
    rhythm = np.where(np.arange(24) < 12, 1.7, 0.3)
    fleet = describe(Trace.draw(Daily(rhythm, 0.0, clock), np.full(40, 0.5), rounds=24 * 40, seed=0), clock)
    assert fleet.together.correlation > 0.3
    assert abs(fleet.together.beyond_hour) < 0.01


# Words.


def holds(trace, clock=None):
    return [verdict.holds for verdict in audit(Log(trace, tuple(map(str, range(trace.clients))), clock, ())).assumption]


def test_assumption_1_is_judged_part_by_part():
    draw = np.random.default_rng(0)
    independent = draw.random((1500, 30)) < draw.uniform(0.2, 0.9, 30)
    assert holds(Trace(independent)) == ["plausible", "plausible", "plausible"]
    never = independent.copy()
    never[:, 4] = False
    assert holds(Trace(never)) == ["no", "plausible", "plausible"]
    assert holds(Trace.draw(fedawe.Markov(q=0.1), np.full(30, 0.4), 1500, 0))[1] == "no"
    together = independent & (draw.random((1500, 1)) < 0.7)
    assert holds(Trace(together))[2] == "no"


def test_a_rhythm_of_the_day_is_no_dependence_between_rounds():
    """p_i^t may change as it likes under Assumption 1; only what the hour does not explain is dependence."""
    clock = Clock(600.0)
    rhythm = np.where(np.arange(24) < 12, 1.7, 0.3)
    for days, phi in ((1, 0.0), (14, 0.0), (14, 0.6)):
        trace = Trace.draw(Daily(rhythm, phi, clock), np.full(40, 0.5), rounds=144 * days, seed=0)
        fleet = describe(trace, clock)
        assert fleet.persistence > 0.4
        assert fleet.persistence_beyond_hour == pytest.approx(phi, abs=0.03)  # less than phi where the rhythm turns
        assert holds(trace, clock)[1] == ("no" if phi else "plausible")
    assert describe(trace).persistence_beyond_hour is None


def test_clients_that_repeat_themselves_cannot_tell_whether_rates_change():
    draw = np.random.default_rng(0)
    on = draw.random((960, 6)) < np.where(np.arange(960)[:, None] < 480, 0.8, 0.2)
    repeats = np.array([960, 960, 960, 480, 480, 480])
    log = Log(Trace(on), tuple("abcdef"), Clock(1800.0), (), repeats=repeats)
    found = audit(log)
    assert (found.fleet.drift.tested, found.fleet.drift.changed) == (3, 3)
    assert np.isnan(found.fleet.drift.p_values[3:]).all()
    note = "the days of 3 of 6 clients are repeated, so that they are not tested for changes of their rates"
    assert note in found.notes
    nobody = audit(dataclasses.replace(log, repeats=np.full(6, 480)))
    assert nobody.fleet.drift is None


def test_fair_fleets_are_told_to_average_and_unfair_ones_are_not():
    fair = audit(Trace.draw(fedawe.Stationary(), np.full(20, 0.5), 1000, 0))
    assert fair.advice.algorithm == "fedavg"
    assert "no other rule is needed" in fair.advice.text
    assert fair.advice.headline.startswith("Plain averaging would count the clients of this fleet about equally")
    unfair = audit(Trace.draw(fedawe.Stationary(), np.linspace(0.05, 0.95, 20), 1000, 0))
    assert unfair.advice.algorithm == "fedawe"
    assert "times less influence on a model trained by plain averaging" in unfair.advice.headline
    assert list(unfair.influences) == EIGHT
    (slow,) = (said for said in unfair.advice.cautions if said.startswith("A small bias does not mean"))
    bias = {name: np.abs(one.shares - 1 / 20).sum() / 2 for name, one in unfair.influences.items()}
    near = {name for name in EIGHT if bias[name] <= bias["fedawe"] + 0.05}
    named = {name for name in EIGHT if f"{name} (bias " in slow}
    assert named == near - {"fedawe", "fedawe-latest", "fedavg-known"}
    assert "mifa" in named
    assert not any("A small bias" in said for said in fair.advice.cautions)
    nobody = audit(Trace(np.zeros((5, 3))))
    assert nobody.advice.algorithm == "none"
    # Half of the fleet left long before the end, so that fedawe, which is owed their rounds, is not the closest.
    left = np.ones((100, 10), dtype=bool)
    left[30:, :5] = False
    gone = audit(Trace(left))
    assert gone.advice.algorithm == "mifa"
    few = {"fedavg": fedawe.FedAvg(), "fedawe": fedawe.FedAWE(), "fedvarp": fedawe.FedVARP()}
    assert audit(Trace(left), algorithms=few).advice.algorithm == "fedvarp"
    assert "clients that are unavailable when the log ends count less" in gone.advice.text


def test_cautions_name_what_to_beware_of():
    draw = np.random.default_rng(0)
    on = draw.random((400, 12)) < np.linspace(0.1, 0.9, 12)
    on[:, 0] = False
    on[50:53] = False
    said = " ".join(audit(Trace(on)).advice.cautions)
    assert "1 of 12 clients was never available" in said
    assert "rounds are empty, up to 3 in a row" in said
    assert "multiplies" not in said


def test_fedawe_is_not_advised_where_its_echoes_are_unbearable():
    """Half of the clients come for an hour every two days, in ten-minute rounds: few answers, hundredfold."""
    on = np.ones((4032, 10), dtype=bool)
    for i in range(5):
        on[:, i] = (np.arange(4032) + 50 * i) % 288 < 6
    clock = Clock(600.0)
    found = audit(Log(Trace(on), tuple("abcdefghij"), clock, ()))
    e = Trace(on).echoes().astype(float)
    assert found.fleet.multiplier == pytest.approx((e**2).sum() / e.sum())
    assert found.fleet.multiplier > 100
    assert found.influences["fedawe"].total_variation < 0.05
    assert found.advice.algorithm not in ("fedawe", "fedavg")
    said = "unavailable for up to 282 rounds (47 h) before they return, and it multiplies an update by up to 283"
    assert said in found.advice.text
    remedy = next(remedy for remedy in found.advice.remedies if "times as long" in remedy)
    times = int(remedy.split("With rounds ")[1].split(" times")[0])
    slower = describe(Trace(on[::times]))
    assert slower.multiplier <= 15 < describe(Trace(on[:: times // 2])).multiplier


def test_known_probabilities_are_used_or_their_absence_is_said():
    trace = Trace.draw(fedawe.Stationary(), np.array([0.9, 0.1]), 200, 0)
    assert audit(trace).notes == ()
    assert "by construction" in audit(Trace(trace.on)).notes[0]
    estimated = audit(Trace(trace.on)).influences["fedavg-known"]
    joined = audit(Trace(trace.on).knowing(np.arange(200)[:, None] >= [0, 100]))  # the second client enrolls halfway
    np.testing.assert_allclose(joined.influences["fedavg-known"].shares, [2 / 3, 1 / 3], rtol=1e-12)
    assert "count in proportion to the number of these rounds" in joined.notes[0]
    assert estimated.total_variation == pytest.approx(0, abs=1e-12)
    inside = {"averaged": fedawe.FedAvgM(beta=0.0, rule=fedawe.FedAvgKnown())}
    found = audit(Trace(trace.on), algorithms=inside)
    np.testing.assert_allclose(found.influences["averaged"].shares, estimated.shares, rtol=1e-12)
    assert "averaged was given" in found.notes[0]


def test_checkpoints_end_at_the_end_and_do_not_exceed_the_rounds():
    found = audit(Trace(np.ones((7, 2))), checkpoints=24)
    assert found.influences["fedavg"].after.tolist() == [1, 2, 3, 4, 5, 6, 7]


# Groups.


def roster(tmp_path, text):
    path = tmp_path / "clients.csv"
    path.write_text(text)
    return path


def test_groups_and_classes_count_what_their_clients_count(tmp_path):
    table = read_roster(roster(tmp_path, "client,group,cat,dog\n0,north,3,1\n1,north,0,4\n2,south,2,2\n"))
    found = audit(Trace([[1, 1, 0], [1, 0, 0], [1, 1, 1]]), groups=table)
    shares = found.influences["fedavg"].shares
    group, label = found.groups
    np.testing.assert_allclose(group.fair(shares), [(shares[0] + shares[1]) / (2 / 3), shares[2] / (1 / 3)])
    cat = (0.75 * shares[0] + 0.5 * shares[2]) / ((0.75 + 0.5) / 3)
    np.testing.assert_allclose(label.fair(shares)[0], cat)
    assert (label.kind, label.names) == ("class", ("cat", "dog"))
    np.testing.assert_allclose(group.fair(np.full(3, 1 / 3)), 1)
    assert any("The group south has" in caution for caution in found.advice.cautions)


def test_tables_of_clients_as_spreadsheets_write_them(tmp_path):
    for text in ("client;group\na;x\nb;y\n", "client\tgroup\r\na\tx\r\nb\ty\r\n", "\ufeffclient,group\na,x\n\nb,y\n\n"):
        table = read_roster(roster(tmp_path, text))
        assert table.clients == ("a", "b")
        assert table.tables[0].names == ("x", "y")
    path = tmp_path / "clients.csv"
    path.write_bytes("client,group\na,x\n".encode("utf-16"))
    with pytest.raises(UserError, match="is UTF-16 text; save it as UTF-8"):
        read_roster(path)


def test_clients_without_labels_are_named(tmp_path):
    table = read_roster(roster(tmp_path, "client,cat,dog\n0,3,1\n1,0,0\n"))
    found = audit(Trace([[1, 1, 1], [1, 0, 1]]), groups=table)
    assert "1 client in no group (2)" in found.notes
    assert "1 client without labels, in no class (1)" in found.notes


def test_clients_without_a_group_are_named(tmp_path):
    table = read_roster(roster(tmp_path, "client,group\n0,north\n"))
    found = audit(Trace([[1, 1], [1, 0]]), groups=table)
    assert any("1 client in no group (1)" in note for note in found.notes)
    with pytest.raises(UserError, match="no client of the log"):
        audit(Trace([[1]]), groups=dataclasses.replace(table, clients=("z",)))


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "expected a column 'client' .* found nothing"),
        ("client,group\n", "has no row below the header"),
        ("client,group\n\n,\n", "has no row below the header|row 2 has no client"),
        ("client,group,group\na,x,y\n", "the column 'group' twice"),
        (" client,client\na,b\n", "the column 'client' twice"),
        ("client,group\na,x,y\n", "cannot be read as CSV"),
        ("\x1b[2Jid,group\na,x\n", r"found \\x1b\[2Jid, group"),
        ("client\x00,group\n", "not a text file"),
        ("id,group\n1,a\n", "expected a column 'client'"),
        ("client\n1\n", "has clients only"),
        ("client,group\n1,a\n1,b\n", "'1' has more than one row"),
        ("client,group\n,a\n", "row 1 has no client"),
        ("client,cat\n1,many\n", "'many' in the column 'cat'; expected a label count"),
        ("client,cat\n1,-2\n", "expected a label count"),
        ("client,cat\n1,\n", "expected a label count"),
    ],
)
def test_tables_of_clients_that_are_wrong(tmp_path, text, said):
    with pytest.raises(UserError, match=said):
        read_roster(roster(tmp_path, text))


# For machines, at a terminal, as a page.


@pytest.fixture(scope="module")
def found():
    clock = Clock(1800.0, start=1_700_000_000.0, timezone="Europe/Berlin")
    p = np.concatenate([[0.0], np.linspace(0.05, 0.9, 29)])
    trace = Trace(Trace.draw(Daily(np.ones(24), 0.5, clock), p, rounds=48 * 8, seed=0).on)
    names = (*(f"phone-{i}" for i in range(29)), "<script>alert(1)</script>[red]")
    return audit(Log(trace, names, clock, (Finding("gaps", 3, "3 gaps & <b>more</b>"),), 12345))


def test_json_is_plain_and_complete(found):
    out = json.loads(json.dumps(as_json(found), allow_nan=False))
    assert list(out["algorithms"]) == EIGHT
    for algorithm in out["algorithms"].values():
        assert sum(algorithm["shares"]) == pytest.approx(1)
        assert algorithm["over_time"]["shares"][-1] == algorithm["shares"]
        assert len(algorithm["over_time"]["shares"]) == len(algorithm["over_time"]["after"]) == 24
    assert out["algorithms"]["fedavg"]["total_variation"] == found.influences["fedavg"].total_variation
    assert out["fleet"]["never"] == ["phone-0"]
    assert out["findings"] == [{"kind": "gaps", "count": 3, "text": "3 gaps & <b>more</b>"}]
    assert as_json(audit(Trace([[0], [0]])))["fleet"]["persistence"] is None


def test_the_page_needs_nothing_else_and_escapes_what_a_log_says(found, tmp_path):
    path = tmp_path / "page.html"
    audit_page.write_page(found, path)
    page = path.read_text()
    ours = page.replace(audit_page.get_plotlyjs(), "")
    assert "<title>Influence of 30 clients, 2023-11-14 to 2023-11-22" in ours
    assert ours.split("<h1>")[1].startswith("The 3 clients that are available least would have")
    assert "<script>alert" not in ours
    assert "3 gaps &amp; &lt;b&gt;more" in ours
    assert "http://" not in ours
    assert "https://" not in ours
    assert ours.count('role="img"') == 7
    data = json.loads(ours.split('id="data">')[1].split("</script>")[0])
    assert len(data["figures"]["bars"]["fair"]["fedavg"]) == 30
    assert data["figures"]["bars"]["rates"] == sorted(data["figures"]["bars"]["rates"])
    assert {a["key"] for a in data["algorithms"]} == set(EIGHT)


def test_the_page_of_a_large_fleet_stays_light():
    draw = np.random.default_rng(0)
    data = audit_page._figures(audit(Trace(draw.random((900, 700)) < draw.random(700))))
    assert len(data["bars"]["names"]) == audit_page.BARS
    assert data["heat"]["z"]["shape"] == f"{audit_page.ROWS}, {audit_page.COLUMNS}"


def test_the_page_of_a_fleet_where_nothing_happens(tmp_path):
    audit_page.write_page(audit(Trace([[0, 0], [0, 0]])), tmp_path / "p.html")
    assert "No client was ever available" in (tmp_path / "p.html").read_text()


@pytest.mark.parametrize("days", [None, 5])
def test_what_is_not_a_number_is_not_shown(days, capsys, tmp_path):
    """A log of one row, and clients that are available at the same hours of every day."""
    stamps = ["2024-05-01T00:00:00Z"] if days is None else [f"2024-05-0{n + 1}T08:00:00Z" for n in range(days)]
    rows = [f"{name},{at}\n" for name in ("ab" if days else "a") for at in stamps]
    (tmp_path / "log.csv").write_text("client,timestamp\n" + "".join(rows))
    out = told(capsys, tmp_path / "log.csv", "--round", "1h", "--html", tmp_path / "p.html")
    page = re.sub(r"<(script|style).*?</(script|style)>", "", (tmp_path / "p.html").read_text(), flags=re.DOTALL)
    for text in (out, page):
        assert not re.search(r"\bnan\b", text, re.IGNORECASE)
    assert ("mean correlation unknown; 0 outages" in page) is (days is None)
    assert ("the fleet: not tested" in " ".join(out.split())) is (days is not None)
    assert "FedAWE multiplies updates on average, weighted by influence; ×" in page


CHECKINS = "".join(
    f"{'often' if minute % 60 else 'seldom'},2024-05-01T{minute // 60:02d}:{minute % 60:02d}:00Z\n"
    for minute in range(0, 1440, 10)
)


def told(capsys, *args):
    tyro.cli(Audit, args=[str(a) for a in args], config=(tyro.conf.FlagCreatePairsOff,)).run()
    return capsys.readouterr().out


@pytest.fixture
def log(tmp_path):
    path = tmp_path / "log.csv"
    path.write_text("client,timestamp,os\n" + CHECKINS)
    return path


def test_the_command_tells_all_that_was_found(capsys, log, tmp_path):
    groups = roster(tmp_path, "client,group\noften,A\nseldom,B\nnever,B\n")
    args = ["--groups", groups, "--html", tmp_path / "o" / "p.html", "--save", tmp_path / "o" / "fleet.npz"]
    out = told(capsys, log, *args)
    for part in (
        "columns not used: 'os'",
        "Assumption 1",
        "fedawe, last aggregate",
        "Influence of each group",
        "plain averaging",
    ):
        assert part in out
    assert "1 of 3 clients was never available" in out
    fleet = logs.read(tmp_path / "o" / "fleet.npz")
    assert fleet.clients == ("often", "seldom", "never")
    assert (tmp_path / "o" / "p.html").exists()
    assert f"fedawe run --dynamics {tmp_path / 'o' / 'fleet.npz'} --task fedawe.audit.dealt:digits" in out


def test_the_command_for_machines_prints_json_alone(capsys, log):
    out = json.loads(told(capsys, log, "--json", "--round", "30min", "--algorithms", "fedavg", "fedawe:max_echo=3"))
    assert list(out["algorithms"]) == ["fedavg", "fedawe(max_echo=3)"]
    assert out["rounds"] == 48


def test_names_are_shown_as_they_are(capsys, tmp_path):
    path = tmp_path / "log.csv"
    path.write_text("client,timestamp\n[bold]x,2024-05-01T00:00:00Z\n[/],2024-05-01T00:10:00Z\n" * 2)
    assert "[bold]x" in told(capsys, path)


@pytest.mark.parametrize(
    ("args", "said"),
    [
        (["--algorithms", "sgd"], "unknown algorithm"),
        (["--algorithms", "fedavg", "fedavg"], "named twice"),
        (["--algorithms", "fedawe:clip=0.5"], "a clip is not linear"),
        (["--groups", "nowhere.csv"], "no such file"),
        (["--save", "fleet.csv"], "written as .npz"),
        (["--html", "."], "is a folder; --html takes the name of a file"),
        (["--round", "soon"], "expected something like"),
    ],
)
def test_mistakes(capsys, log, args, said):
    with pytest.raises(UserError, match=said):
        told(capsys, log, *args)


def test_ready_commands_can_be_pasted_into_a_shell(capsys, log):
    out = told(capsys, log, "--algorithms", "fedau:K=20", "fedavg-all")
    command = next(line for line in out.splitlines() if "fedawe run" in line)
    assert shlex.split(command)[-3:] == ["fedau:K=20", "fedavg", "fedawe"]


def test_a_fleet_with_more_clients_than_the_digits_suffice_for_is_simulated_on_the_quadratic(capsys, tmp_path):
    digits = "fedawe.audit.dealt:digits:trace=fleet.npz"
    for clients, task in ((719, digits), (720, "quadratic")):
        Trace(np.ones((2, clients))).save(tmp_path / "t.npz")
        run = next(line for line in told(capsys, tmp_path / "t.npz").splitlines() if "fedawe run" in line)
        assert shlex.split(run)[4:6] == ["--task", task]
    dealt(bundled().y_train.numpy(), np.ones((719, 10)), np.random.default_rng(0))
    with pytest.raises(UserError, match="at most 719 can share them"):
        dealt(bundled().y_train.numpy(), np.ones((720, 10)), np.random.default_rng(0))


def test_large_groups_are_counted_in_full(capsys, tmp_path):
    Trace(np.ones((2, 1667))).save(tmp_path / "t.npz")
    groups = roster(tmp_path, "client,group\n" + "".join(f"{n},a\n" for n in range(1667)))
    out = told(capsys, tmp_path / "t.npz", "--groups", groups, "--html", tmp_path / "p.html")
    assert re.search(r"^ +a +1,667 ", out, re.MULTILINE)
    assert '<td class="number">1,667</td>' in (tmp_path / "p.html").read_text()


def test_names_with_control_characters_reach_no_terminal(capsys, tmp_path):
    path = tmp_path / "log.csv"
    path.write_text("client,timestamp\n\x1b[31mred,2024-05-01T00:00:00Z\n\x07bell,2024-05-01T00:10:00Z\n")
    groups = roster(tmp_path, "client,group\n\x1b[31mred,\x1b[2J\n\x07bell,b\n")
    out = told(capsys, path, "--groups", groups)
    assert "\x1b" not in out
    assert "\x07" not in out
    assert "\\x1b[31mred" in out


@pytest.mark.parametrize("verb", ["audit", "fit"])
def test_a_fleet_without_anyone_is_refused_by_both_commands(tmp_path, command, verb):
    Trace(np.zeros((5, 3))).save(tmp_path / "t.npz")
    said = f"fedawe: {tmp_path / 't.npz'}: no client is available in any round\n"
    assert command(verb, tmp_path / "t.npz") == (2, "", said)


def test_the_flags_of_a_ready_command_are_those_that_were_given():
    reading = Audit((Path("my log.csv"),), round_length="1h", timezone="Asia/Tokyo", days=3)
    assert reading.again() == "'my log.csv' --round 1h --timezone Asia/Tokyo --days 3"


# Diagnostics of runs.


def test_diagnostics_are_those_of_the_trace_and_of_the_models():
    trace = Trace.draw(fedawe.Sine(), np.linspace(0.1, 0.9, 6), rounds=40, seed=0)
    u = torch.randn(6, 3, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    local = fedawe.Local(fedawe.Rate(0.1, "constant"), steps=2)
    fleet = describe(trace)
    echoes = iter(trace.echoes().tolist())
    for step in fedawe.simulate(fedawe.Quadratic(u), fedawe.FedAWE(), trace, local, seed=0):
        found = {**diagnostics(step.state, trace), **fedawe.FedAWE().diagnostics(step.state)}
        assert found["active"] == len(step.A)
        assert found["live_versions"] == fleet.live_versions[step.t]
        X = step.state[torch.arange(6)]  # every client's own model
        assert found["consensus"] == pytest.approx(float(((X - X.mean(0)) ** 2).sum(1).mean()))
        now = [next(echoes) for _ in step.A]
        assert found.get("echo_max", 0) == max(now, default=0)
        assert found["staleness_max"] == max(step.t - int(tau) for tau in last_active(trace, step.t))
    assert fedawe.FedAWE().init(torch.ones(2), 3).consensus() == 0


def test_diagnostics_of_other_algorithms_and_mistakes():
    trace = Trace([[1, 0], [1, 1]])
    state = fedawe.FedAvg().init(torch.zeros(1), 2)
    with pytest.raises(UserError, match="no round"):
        diagnostics(state, trace)
    state = fedawe.FedAvg().aggregate(state, 1, trace.active(1), torch.ones(2, 1))
    assert diagnostics(state, trace) == {
        "active": 2, "echo_mean": 1.5, "echo_max": 2, "staleness_mean": 1.5, "staleness_max": 2,
    }  # fmt: skip
    with pytest.raises(UserError, match="3 clients, the state 2"):
        diagnostics(state, Trace(np.ones((2, 3))))
    with pytest.raises(UserError, match="before round 9"):
        last_active(trace, 9)
