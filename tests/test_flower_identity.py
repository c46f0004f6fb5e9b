"""Who is who: numbers that outlast node ids, and that nobody can take away from an authenticated node."""

from pathlib import Path
from typing import Any

import pytest
import torch
from flower_grid import FakeGrid, connected, rounds_in, run_digits

from fedawe.deploy.identity import Connection, Roster, connections
from fedawe.deploy.replay import deployed, replay
from fedawe.deploy.wire import Refused

A, B, C = Connection(1, "01", "a"), Connection(2, "02", "b"), Connection(3, "03", "c")


def online(*there: Connection) -> dict[int, Connection]:
    return {one.node: one for one in there}


def test_the_newest_connection_speaks_for_a_client() -> None:
    roster = Roster(2)
    roster.claim(A, 0)
    roster.claim(B, 0)
    assert roster.listed(online(A, B), 0) == {0: B}
    with pytest.raises(Refused, match="which is node 2"):
        roster.claim(A, 0)  # the older of two that are there
    assert roster.listed(online(A), 1) == {0: A}  # the newer one has gone


def test_under_authentication_a_client_belongs_to_the_first_key() -> None:
    roster = Roster(2, authenticated=True)
    roster.claim(A, 0)
    with pytest.raises(Refused, match="which is node 1"):
        roster.claim(C, 0)
    with pytest.raises(Refused, match="is client 0 and now says it is client 1"):
        roster.claim(A, 1)
    assert roster.listed(online(C), 0) == {}
    renumbered = Connection(77, "09", "a")  # the SuperLink lost its memory; the key is the same
    roster.claim(renumbered, 0)
    assert roster.listed(online(renumbered, C), 1) == {0: renumbered}


def test_authentication_that_comes_later_leaves_no_back_door() -> None:
    before = Roster(1)
    before.claim(A, 0)
    before.claim(B, 0)
    roster = Roster(1, authenticated=True)
    roster.restore(before.to_json())
    assert roster.listed(online(A), 0) == {}


@pytest.mark.parametrize("said", [-1, 2, True, "0", 1.0, None, [0]])
def test_only_numbers_of_clients_are_claims(said: Any) -> None:
    with pytest.raises(Refused, match="there are 0 to 1"):
        Roster(2).claim(A, said)


def test_nodes_get_numbers_as_they_come_and_keep_them() -> None:
    roster = Roster(2)
    assert [roster.seat(A, online(A, B)), roster.seat(B, online(A, B))] == [0, 1]
    assert roster.listed(online(A, B), 0) == {0: A, 1: B}
    with pytest.raises(Refused, match="one too many: all 2 clients have a node"):
        roster.seat(C, online(A, B, C))
    assert roster.listed(online(A, C), 5) == {0: A}
    assert roster.seat(C, online(A, C)) == 1  # of who has gone
    assert roster.listed(online(A, B, C), 6) == {0: A, 1: C}
    with pytest.raises(Refused):
        Roster(1, authenticated=True, holders={0: A}).seat(B, online(B))


def test_a_roster_is_what_it_was_written_as() -> None:
    roster = Roster(3)
    roster.claim(Connection(2**63 + 5, "01", "k"), 2)
    roster.claim(B, 1)
    roster.listed(online(B), 4)
    again = Roster(3)
    again.restore(roster.to_json())
    assert again == roster


def test_ids_of_nodes_that_are_gone_do_not_pile_up() -> None:
    roster = Roster(1)
    for node in range(100):
        one = Connection(node, f"{node:03d}")
        roster.claim(one, 0)
        roster.listed(online(one), node)
    assert len(roster.claims) <= 2


def test_connections_are_as_the_grid_lists_them() -> None:
    grid = FakeGrid()
    grid.connect(5, 0, key=b"key")
    (one,) = connections(grid).values()
    assert (one.node, one.since) == (5, "00000000.000")
    assert len(one.key) == 32


# Over a grid


def lines(out: Path) -> list[dict[str, Any]]:
    return rounds_in(out)


def test_a_node_that_restarts_under_another_id_is_the_same_client(tmp_path: Path) -> None:
    grid = connected()
    grid.plan(4.0, lambda: grid.connect(999, 3))  # the old one is still listed, and never answers again
    grid.plan(4.0, lambda: grid.behaviour.update({103: lambda m, r: []}))
    run_digits(grid, tmp_path, 6)
    assert all(line["clients"] in ([0, 1, 2, 3], [0, 1, 2]) for line in lines(tmp_path))
    assert lines(tmp_path)[-1]["clients"] == [0, 1, 2, 3]
    late = [message for message in grid.sent if message.metadata.dst_node_id == 103][-1]
    assert int(late.metadata.group_id) < 6  # the newest connection has won
    assert torch.equal(replay(tmp_path), deployed(tmp_path))


def test_nobody_takes_the_number_of_an_authenticated_client(tmp_path: Path) -> None:
    grid = FakeGrid()
    for client in range(3):
        grid.connect(100 + client, client, key=b"key %d" % client)
    grid.plan(3.0, lambda: grid.connect(666, 1, key=b"another key"))
    run_digits(grid, tmp_path, 5, authenticated=True)
    asked = {message.metadata.message_type for message in grid.sent if message.metadata.dst_node_id == 666}
    assert asked == {"query.client_id"}  # it never even gets a model
    assert sum(line["refused"].get("identity", 0) for line in lines(tmp_path)) == 1
    assert all(line["clients"] == [0, 1, 2] for line in lines(tmp_path))


def test_the_number_stays_taken_after_a_restart_of_the_server(tmp_path: Path) -> None:
    first = FakeGrid()
    first.connect(101, 1, key=b"first")
    run_digits(first, tmp_path, 1, authenticated=True)
    second = FakeGrid()
    second.connect(666, 1, key=b"another")
    run_digits(second, tmp_path, 2, authenticated=True)
    assert [line["clients"] for line in lines(tmp_path)] == [[1], []]


def test_without_authentication_the_newest_has_it(tmp_path: Path) -> None:
    grid = connected([0, 1])
    grid.plan(3.0, lambda: grid.connect(666, 1))
    run_digits(grid, tmp_path, 5)
    assert [m.metadata.dst_node_id for m in grid.sent if m.metadata.message_type == "train"][-2:] == [100, 666]


def test_a_node_that_comes_back_as_another_client_is_asked_again(tmp_path: Path) -> None:
    grid = connected([0, 1])
    grid.plan(3.0, lambda: grid.connect(101, 2))  # the same id, another configuration
    run_digits(grid, tmp_path, 5)
    assert lines(tmp_path)[-1]["clients"] == [0, 2]
    assert torch.equal(replay(tmp_path), deployed(tmp_path))


def test_a_reply_in_the_name_of_another_node_is_refused(tmp_path: Path) -> None:
    def forged(message: Any, reply: Any) -> Any:
        answer = reply()
        if message.metadata.message_type == "train":
            answer.metadata.__dict__["_src_node_id"] = 100
        return [(1.0, answer)]

    grid = connected([0])
    grid.connect(101, 1, forged)
    run_digits(grid, tmp_path, 1)
    assert (lines(tmp_path)[0]["clients"], lines(tmp_path)[0]["refused"]) == ([0], {"identity": 1})


@pytest.mark.parametrize("said", [{"client-id": 9}, {"client-id": -1}, {"client-id": 2.0}])
def test_a_number_that_is_none_is_refused_once(tmp_path: Path, said: dict[str, Any]) -> None:
    grid = connected([0])
    grid.connect(101, config=said)
    run_digits(grid, tmp_path, 3)
    refused = [line["refused"] for line in lines(tmp_path)]
    assert refused[0] in ({"identity": 1}, {"error": 1})
    assert all(line["clients"] == [0] for line in lines(tmp_path))
