"""Rounds over a grid: who counts, when a round ends, and that the simulator agrees with whatever happened."""

from collections.abc import Callable, Iterable
from pathlib import Path

import numpy as np
import pytest
import torch
from flower_grid import CONFIG, TIMEOUT, Answers, FakeGrid, connected, honest, rounds_in, run_digits, shipped
from flwr.app import Array, ArrayRecord, Error, Message, RecordDict
from hypothesis import given, settings
from hypothesis import strategies as st

import fedawe
from fedawe.deploy.identity import Connection
from fedawe.deploy.pulls import Pulls
from fedawe.deploy.replay import deployed, replay
from fedawe.deploy.rounds import Desk


def changed(reply: Message, change: Callable[[Array], Array]) -> Message:
    """The reply with one of its arrays changed."""
    arrays = reply.content.array_records["arrays"]
    name = next(iter(arrays))
    arrays[name] = change(arrays[name])
    return reply


def times(factor: float) -> Callable[[Array], Array]:
    return lambda array: Array(array.numpy() * np.float32(factor))


def renamed(reply: Message) -> Message:
    arrays = dict(reply.content.array_records["arrays"])
    arrays["other"] = arrays.pop(next(iter(arrays)))
    reply.content["arrays"] = ArrayRecord(arrays)
    return reply


def from_round(reply: Message, n: int) -> Message:
    reply.content.config_records["config"]["server-round"] = n
    return reply


def failed(message: Message) -> Message:
    return Message(Error(2, "the client app raised"), reply_to=message)


def empty(reply: Message) -> Message:
    reply.content = RecordDict()
    return reply


def strange(array: Array) -> Array:
    array.dtype = 7  # as Flower reads it from a stranger's JSON
    return array


# What a client may do in a round, and what becomes of it: None if it counts.
DEEDS: dict[str, tuple[Callable[[Message, Callable[[], Message]], Answers], str | None]] = {
    "honest": (honest, None),
    "at the last moment": (lambda m, r: [(TIMEOUT - 1, r())], None),
    "twice": (lambda m, r: [(1.0, r()), (1.5, r())], None),
    "lost": (lambda m, r: [], ""),
    "late": (lambda m, r: [(TIMEOUT + 1, r())], ""),
    "raises": (lambda m, r: [(1.0, failed(m))], "error"),
    "NaN": (lambda m, r: [(1.0, changed(r(), times(np.nan)))], "non-finite"),
    "infinite": (
        lambda m, r: [(1.0, changed(r(), lambda a: Array(np.full(a.shape, np.inf, np.float32))))],
        "non-finite",
    ),
    "huge": (lambda m, r: [(1.0, changed(r(), times(1e30)))], "norm"),
    "float64": (lambda m, r: [(1.0, changed(r(), lambda a: Array(a.numpy().astype(np.float64))))], "dtype"),
    "other shape": (lambda m, r: [(1.0, changed(r(), lambda a: Array(a.numpy()[:1])))], "shape"),
    "oversized": (lambda m, r: [(1.0, changed(r(), lambda a: Array(a.dtype, a.shape, a.stype, a.data * 9)))], "shape"),
    "other names": (lambda m, r: [(1.0, renamed(r()))], "names"),
    "other round": (lambda m, r: [(1.0, from_round(r(), 999))], "version"),
    "dtype that is none": (lambda m, r: [(1.0, changed(r(), strange))], "malformed"),
    "nothing in it": (lambda m, r: [(1.0, empty(r()))], "version"),
}


class Scripted:
    """A grid on which client i does `script[round][i]`."""

    def __init__(self, script: list[list[str]]) -> None:
        self.grid = FakeGrid()
        for client in range(CONFIG["clients"]):
            self.grid.connect(100 + client, client, self.behaviour(script, client))

    @staticmethod
    def behaviour(script: list[list[str]], client: int) -> Callable[[Message, Callable[[], Message]], Answers]:
        def behave(message: Message, reply: Callable[[], Message]) -> Answers:
            if message.metadata.message_type != "train":
                return honest(message, reply)
            return DEEDS[script[int(message.metadata.group_id) - 1][client]][0](message, reply)

        return behave


scripts = st.lists(st.lists(st.sampled_from(sorted(DEEDS)), min_size=4, max_size=4), min_size=1, max_size=6)


@given(scripts)
@settings(max_examples=30)
def test_whatever_clients_do_the_simulator_agrees(tmp_path_factory: pytest.TempPathFactory, script) -> None:
    out = tmp_path_factory.mktemp("out")
    run_digits(Scripted(script).grid, out, rounds=len(script))
    on = fedawe.Trace.load(out / "traces" / "seed-0.npz").on
    slow: set[int] = set()
    for t, row in enumerate(script):
        counted = {i for i, deed in enumerate(row) if DEEDS[deed][1] is None}
        # Who was slow before is not waited for, unless everyone was: then only who is quick enough counts.
        assert set(np.flatnonzero(on[t])) <= counted
        assert counted - slow <= set(np.flatnonzero(on[t]))
        closed = rounds_in(out)[t]["closed"]
        if closed == "deadline":
            slow |= {i for i, deed in enumerate(row) if deed in ("lost", "late")}
        slow -= set(np.flatnonzero(on[t]).tolist())
    assert torch.equal(replay(out), deployed(out))
    assert torch.isfinite(deployed(out)).all()


@pytest.mark.parametrize(("deed", "reason"), [(deed, reason) for deed, (_, reason) in DEEDS.items() if reason])
def test_what_is_refused_is_counted_and_changes_nothing(tmp_path: Path, deed: str, reason: str) -> None:
    run_digits(Scripted([["honest", deed, "honest", "honest"]]).grid, tmp_path, 1)
    (line,) = rounds_in(tmp_path)
    assert (line["clients"], line["refused"]) == ([0, 2, 3], {reason: 1})
    without = run_digits(connected([0, 2, 3]), None, 1)
    assert torch.equal(deployed(tmp_path), shipped(without))


def test_a_second_reply_is_a_duplicate(tmp_path: Path) -> None:
    run_digits(Scripted([["twice", "at the last moment", "honest", "honest"]]).grid, tmp_path, 1)
    (line,) = rounds_in(tmp_path)
    assert (line["clients"], line["refused"]) == ([0, 1, 2, 3], {"duplicate": 1})


def test_a_late_reply_is_refused_and_counted_in_the_round_in_which_it_comes(tmp_path: Path) -> None:
    script = [["late", "honest", "honest", "honest"], ["honest", "at the last moment", "honest", "honest"]]
    run_digits(Scripted(script).grid, tmp_path, 2)
    first, second = rounds_in(tmp_path)
    assert (first["clients"], first["closed"], first["refused"]) == ([1, 2, 3], "deadline", {})
    assert second["refused"] == {"late": 1}


def test_the_reply_of_an_older_round_is_refused(tmp_path: Path) -> None:
    """What was a good reply once is sent again as a reply to the question of another round."""
    kept: list[Message] = []

    def replays(message: Message, reply: Callable[[], Message]) -> Answers:
        own = reply()
        if message.metadata.message_type != "train":
            return [(1.0, own)]
        kept.append(own)
        return [(1.0, Message(kept[0].content, reply_to=message))]

    grid = connected([1, 2, 3])
    grid.connect(100, 0, replays)
    run_digits(grid, tmp_path, 3)
    lines = rounds_in(tmp_path)
    assert [line["clients"] for line in lines] == [[0, 1, 2, 3], [1, 2, 3], [1, 2, 3]]
    assert [line["refused"] for line in lines] == [{}, {"version": 1}, {"version": 1}]


def test_a_reply_that_flower_cannot_read_is_malformed(tmp_path: Path) -> None:
    class Unreadable(FakeGrid):
        def pull_messages(self, message_ids: Iterable[str]) -> Iterable[Message]:
            found = list(super().pull_messages(message_ids))
            if any(one.metadata.src_node_id == 101 and one.metadata.message_type == "train" for one in found):
                raise ValueError("cannot be put together again")
            return found

    grid = Unreadable()
    for client in range(3):
        grid.connect(100 + client, client, lambda m, r, i=client: [(1.0 + i, r())])
    run_digits(grid, tmp_path, 3)
    lines = rounds_in(tmp_path)
    assert all(1 not in line["clients"] for line in lines)
    assert lines[-1]["clients"] == [0, 2]
    assert torch.equal(replay(tmp_path), deployed(tmp_path))


def test_a_norm_above_the_limit_is_refused() -> None:
    strict = run_digits(connected(), None, 1, max_norm=1e-6)
    assert strict.session.on.sum() == 0
    assert run_digits(connected(), None, 1, max_norm=100.0).session.on.all()


# When a round ends


def test_a_round_ends_at_the_quorum() -> None:
    grid = FakeGrid()
    for client in range(4):
        grid.connect(100 + client, client, lambda m, r, i=client: [(1.0 + 3 * i, r())])
    strategy = run_digits(grid, None, 1, quorum=2)
    assert strategy.session.on.tolist() == [[True, True, False, False]]
    assert grid.time < 9  # client 2 would have answered 7 seconds after it was asked who it is, and then 7 more


def test_a_node_at_work_on_an_old_question_is_not_asked_another(tmp_path: Path) -> None:
    grid = connected([0, 1])
    grid.connect(102, 2, lambda m, r: [(1.0 if m.metadata.message_type != "train" else 12.0, r())])
    run_digits(grid, tmp_path, 20, quorum=2)
    asked = [m.metadata.group_id for m in grid.sent if m.metadata.dst_node_id == 102 and m.metadata.group_id != "1"]
    late = sum(line["refused"].get("late", 0) for line in rounds_in(tmp_path))
    assert 1 <= late <= len(asked) <= late + 1  # each was answered before the next


def test_silent_nodes_are_not_waited_for_again() -> None:
    grid = connected([0, 1, 2])
    grid.connect(103, 3, lambda m, r: honest(m, r) if m.metadata.message_type != "train" else [])
    run_digits(grid, None, 40)
    assert grid.time < TIMEOUT + 39 * 2  # one round to the deadline, the others quick
    asked = [m for m in grid.sent if m.metadata.dst_node_id == 103 and m.metadata.message_type == "train"]
    assert len(asked) == 1 + 2  # and then once in the time that a round may take


def test_a_node_that_answers_in_time_once_is_waited_for_again(tmp_path: Path) -> None:
    script = [["late"] + ["honest"] * 3, ["honest"] * 4, ["at the last moment"] + ["honest"] * 3, ["honest"] * 4]
    run_digits(Scripted(script).grid, tmp_path, 4)
    on = fedawe.Trace.load(tmp_path / "traces" / "seed-0.npz").on
    assert on[:, 0].tolist() == [False, True, True, True]


def test_if_all_were_slow_all_are_waited_for() -> None:
    def behave(message: Message, reply: Callable[[], Message], seconds: float) -> Answers:
        first = message.metadata.message_type == "train" and message.metadata.group_id == "1"
        return [] if first else [(seconds, reply())]

    grid = FakeGrid()
    grid.connect(100, 0, lambda m, r: behave(m, r, 1.0))
    grid.connect(101, 1, lambda m, r: behave(m, r, 9.0))
    strategy = run_digits(grid, None, 2)
    assert strategy.session.on[:, :2].tolist() == [[False, False], [True, True]]


def test_nobody_there_is_an_empty_round_and_no_hurry() -> None:
    grid = FakeGrid()
    strategy = run_digits(grid, None, 3)
    assert strategy.session.on.sum() == 0
    assert grid.time == pytest.approx(3 * TIMEOUT)


def test_who_comes_during_a_round_takes_part() -> None:
    grid = FakeGrid()
    grid.plan(10.0, lambda: grid.connect(100, 0))
    strategy = run_digits(grid, None, 1)
    assert strategy.session.on.tolist() == [[True, False, False, False]]
    assert grid.time < 15


def test_a_node_that_goes_is_missed_once(tmp_path: Path) -> None:
    grid = connected()
    grid.plan(3.0, lambda: grid.disconnect(102))
    run_digits(grid, tmp_path, 4)
    on = fedawe.Trace.load(tmp_path / "traces" / "seed-0.npz").on
    assert on[0].all()
    assert not on[-1, 2]
    assert torch.equal(replay(tmp_path), deployed(tmp_path))


def test_a_late_reply_that_cannot_be_read_is_refused_once() -> None:
    """It was an answer: its node is free again, and it is not fetched again at every look."""
    grid = connected([0])
    desk, to, pulled = Desk(grid, grid.clock), Connection(100), []

    class Broken(FakeGrid):
        def pull_messages(self, message_ids: Iterable[str]) -> Iterable[Message]:
            pulled.append(list(message_ids))
            raise ValueError("cannot be put together again")

    desk.pulls = Pulls(Broken())
    desk.open(30.0)
    desk.ask([(to, 0, Message(RecordDict(), 100, "train"))])
    desk.open(30.0)  # a quorum has closed the round
    assert desk.busy() == {to}
    for _ in range(3):
        assert desk.answers() == []
    assert desk.tally.refused == {"malformed": 1}
    assert desk.busy() == set()
    assert len(pulled) == 1


def test_bytes_are_counted(tmp_path: Path) -> None:
    run_digits(connected([0, 1], {"model": "softmax"}), tmp_path, 1)
    (line,) = rounds_in(tmp_path)
    one = sum(len(array.data) for array in ArrayRecord({"1.weight": Array(np.zeros((10, 64), np.float32))}).values())
    one += len(Array(np.zeros(10, np.float32)).data)
    assert line["bytes_down"] == line["bytes_up"] == 2 * one


def test_clients_on_one_version_share_one_record() -> None:
    grid = connected()
    run_digits(grid, None, 1)
    records_sent = {id(m.content.array_records["arrays"]) for m in grid.sent if m.metadata.message_type == "train"}
    assert len(records_sent) == 1


def test_no_message_outlives_its_round_by_much() -> None:
    grid = connected()
    run_digits(grid, None, 2)
    assert all(0 < m.metadata.ttl <= TIMEOUT + 60 for m in grid.sent)


def test_an_empty_round_is_not_followed_by_a_wait_for_evaluations() -> None:
    grid = FakeGrid()
    run_digits(grid, None, 2, evaluate=True)
    assert grid.time == 2 * TIMEOUT
