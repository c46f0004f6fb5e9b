"""Replies are fetched without any of them holding up the others."""

import threading
from collections.abc import Iterable, Iterator

import pytest
from flower_grid import FakeGrid
from flwr.app import Error, Message, RecordDict

from fedawe.deploy.pulls import GROUPS, IN_FLIGHT, TOGETHER, Pulls

SOON = 1.0  # seconds that a call is given which gets stuck; all others are back long before


class StuckGrid(FakeGrid):
    """A SuperLink that hands out a reply once, and waits in the middle of a call for arrays that do not come."""

    def __init__(self) -> None:
        super().__init__()
        self.there: set[str] = set()  # announced and not handed out
        self.incomplete: set[str] = set()
        self.arrived = threading.Event()
        self.calls: list[list[str]] = []

    def pull_messages(self, message_ids: Iterable[str]) -> Iterable[Message]:
        names = list(message_ids)
        self.calls.append(names)
        with self.lock:
            taken = [name for name in names if name in self.there]
            self.there -= set(taken)
        out = []
        for name in taken:
            if name in self.incomplete:
                self.arrived.wait()
            out.append(reply_to(name))
        return out


def reply_to(name: str, error: bool = False) -> Message:
    asked = Message(RecordDict(), 5, "train")
    asked.metadata.__dict__["_message_id"] = name
    return Message(Error(3, "no such message"), reply_to=asked) if error else Message(RecordDict(), reply_to=asked)


def names_of(replies: Iterable[Message]) -> list[str]:
    return sorted(reply.metadata.reply_to_message_id for reply in replies)


@pytest.fixture
def grid() -> Iterator[StuckGrid]:
    made = StuckGrid()
    yield made
    made.arrived.set()


def test_what_is_there_is_fetched_together(grid: StuckGrid) -> None:
    names = {f"m{n}": n for n in range(2 * TOGETHER + 1)}
    grid.there = {"m1", "m20", "m32"}
    pulls = Pulls(grid)
    assert names_of(pulls.replies(names)) == ["m1", "m20", "m32"]
    assert sorted(map(len, grid.calls)) == [1, TOGETHER, TOGETHER]
    assert pulls.replies({}) == []
    grid.calls.clear()
    pulls.replies({f"m{n}": n for n in range(5000)})
    assert len(grid.calls) == GROUPS


def test_a_reply_that_does_not_come_holds_up_no_later_one(grid: StuckGrid) -> None:
    pulls, names = Pulls(grid), {"bad": 1, "good": 2, "slow": 3, "other": 4}
    grid.there, grid.incomplete = {"bad"}, {"bad"}
    assert pulls.replies(names, SOON) == []
    grid.there = {"good"}
    assert names_of(pulls.replies(names)) == ["good"]
    grid.there = {"slow"}
    assert names_of(pulls.replies({"bad": 1, "slow": 3, "other": 4})) == ["slow"]
    grid.arrived.set()
    for pull in pulls.out:
        pull.replies.result(5)
    assert names_of(pulls.replies({})) == ["bad"]  # when it comes after all, it is there
    assert pulls.out == []


def test_a_node_that_did_it_once_is_fetched_alone(grid: StuckGrid) -> None:
    pulls = Pulls(grid)
    grid.there, grid.incomplete = {"bad"}, {"bad", "bad again"}
    pulls.replies({"bad": 1, "good": 2, "other": 3}, SOON)
    grid.there = {"good"}
    pulls.replies({"bad": 1, "good": 2, "other": 3})
    assert pulls.suspects == {1}  # the other has shown that it was in bad company
    grid.there = {"bad again", "good again"}
    assert names_of(pulls.replies({"bad again": 1, "good again": 2, "other": 3}, SOON)) == ["good again"]
    assert ["bad again"] in grid.calls
    before = len(grid.calls)
    pulls.replies({"bad again": 1}, SOON)
    assert len(grid.calls) == before  # it is out already


def test_that_there_is_no_such_reply_is_no_news_while_a_call_has_it(grid: StuckGrid, monkeypatch) -> None:
    pulls = Pulls(grid)
    grid.there, grid.incomplete = {"bad"}, {"bad"}
    pulls.replies({"bad": 1, "good": 2, "other": 3}, SOON)
    assert pulls.suspects == {1, 2}
    monkeypatch.setattr(grid, "pull_messages", lambda names: [reply_to(name, error=True) for name in names])
    assert pulls.replies({"bad": 1, "good": 2}) == []  # as before
    assert names_of(pulls.replies({"new": 3})) == ["new"]


def test_a_superlink_that_is_slow_makes_nobody_suspect(grid: StuckGrid) -> None:
    pulls, names = Pulls(grid), {f"m{n}": n for n in range(200)}
    grid.there, grid.incomplete = set(names), set(names)
    assert pulls.replies(names, SOON) == []
    assert (len(pulls.out), pulls.suspects) == (GROUPS, set())
    calls = len(grid.calls)
    assert pulls.replies(names, SOON) == []
    assert len(grid.calls) == calls  # all of them are out, and asked for no second time
    grid.arrived.set()
    for pull in pulls.out:
        pull.replies.result(5)
    assert names_of(pulls.replies(names)) == sorted(names)


def test_calls_at_once_are_few_and_everybody_has_a_turn(grid: StuckGrid) -> None:
    pulls, names = Pulls(grid), {f"m{n}": n for n in range(100)}
    pulls.suspects = set(names.values())
    for _ in range(10):
        before = len(grid.calls)
        pulls.replies(names)
        assert len(grid.calls) - before <= IN_FLIGHT
    assert {name for call in grid.calls for name in call} == set(names)


def test_many_that_are_stuck_keep_nobody_else_out(grid: StuckGrid) -> None:
    pulls, hostile = Pulls(grid), {f"bad{n}": n for n in range(40)}
    pulls.suspects = set(hostile.values())
    grid.there, grid.incomplete = set(hostile), set(hostile)
    for _ in range(3):
        pulls.replies(hostile, SOON)
    assert len(pulls.out) >= IN_FLIGHT
    grid.there |= {"good"}
    assert names_of(pulls.replies({**hostile, "good": 77}, SOON)) == ["good"]


def test_a_reply_that_cannot_be_read_is_named_and_costs_nobody_else_a_second_time(grid: StuckGrid, monkeypatch) -> None:
    def broken(names: list[str]) -> Iterable[Message]:
        if any(name.startswith("bad") for name in names):
            raise ValueError("no such class")
        return [reply_to(name) for name in names]

    monkeypatch.setattr(grid, "pull_messages", broken)
    pulls = Pulls(grid)
    assert names_of(pulls.replies({"bad": 1, "good": 2, "other": 3, "last": 4})) == ["last", "other"]
    assert (pulls.suspects, pulls.unreadable) == ({1, 2}, {})  # which of the two it was, nobody knows yet
    assert names_of(pulls.replies({"bad 2": 1, "good 2": 2})) == ["good 2"]
    assert (pulls.suspects, pulls.unreadable) == ({1}, {"bad 2": "ValueError: no such class"})


def test_an_interrupt_is_raised(grid: StuckGrid, monkeypatch) -> None:
    def interrupted(names: Iterable[str]) -> Iterable[Message]:
        raise KeyboardInterrupt

    monkeypatch.setattr(grid, "pull_messages", interrupted)
    with pytest.raises(KeyboardInterrupt):
        Pulls(grid).replies({"m": 1})
