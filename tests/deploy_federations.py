"""Federations of real processes: they survive kills of nodes and servers, let no stranger in and leave nothing behind.

They take minutes. A node that was killed keeps its id and is let in again when its lease is over, which takes Flower
about a minute. Run: make test-deploy (not part of make test).
"""

import os
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

from fedawe import Trace
from fedawe.deploy.local.app import write_app
from fedawe.deploy.local.federation import Federation
from fedawe.deploy.local.processes import marked, until
from fedawe.deploy.replay import deployed, replay
from fedawe.results import record as records

SECONDS = 1200.0  # after which something is wrong, not slow


def rounds_of(out: Path) -> list[dict[str, Any]]:
    """The rounds that the record has, without wall-clock times."""
    paths = sorted(out.glob("*/seed-*/record.jsonl"))
    return records.read(paths[0]).rounds if paths else []


def once(ready: Callable[[], bool], do: Callable[[], object]) -> Callable[[], None]:
    """Does it as soon as it is time, and no second time."""
    done: list[bool] = []

    def look() -> None:
        if not done and ready():
            done.append(True)
            do()

    return look


def assert_one_history(out: Path, rounds: int) -> None:
    """Every round once, with the clients of the trace; the model is the one that the simulator makes of that trace."""
    lines = rounds_of(out)
    assert [line["round"] for line in lines] == list(range(1, rounds + 1)), "a round is lost or counted twice"
    assert [line["clients"] for line in lines] == [
        row.nonzero()[0].tolist() for row in Trace.load(out / "traces" / "seed-0.npz").on
    ]
    assert sum(len(line["clients"]) for line in lines) > len(lines), "hardly anybody ever answered"
    torch.testing.assert_close(deployed(out), replay(out), rtol=1e-4, atol=1e-5)


def crash_and_return(federation: Federation, out: Path, config: dict[str, Any]) -> None:
    """SIGKILL to a node, to the SuperLink with its server app, and to the server app alone; the record goes on."""
    app = write_app(federation.folder / "app")
    config = {"clients": len(federation.nodes), "model": "norm", "out": out, "num-rounds": 60, **config}

    def full(rounds: int) -> bool:
        return sum(len(line["clients"]) >= 2 for line in rounds_of(out)) >= rounds

    def kill_first_a_node_then_the_link() -> None:
        kill_node()
        kill_link()

    kill_node = once(lambda: full(1), lambda: federation.kill_node(2))
    kill_link = once(lambda: full(2) and federation.restarts >= 1, federation.kill_link)
    assert federation.run(app, config, SECONDS, kill_first_a_node_then_the_link) == "lost"
    first = rounds_of(out)

    federation.start_link()
    is_back = lambda: any(2 in line["clients"] for line in rounds_of(out)[len(first) + 1 :])  # noqa: E731
    assert federation.run(app, config, SECONDS, once(is_back, federation.kill_server_app)) == "died"
    second = rounds_of(out)
    assert second[: len(first)] == first, "a round that was done is done again"

    config["num-rounds"] = len(second) + 2
    assert federation.run(app, config, SECONDS) == "finished:completed"
    third = rounds_of(out)
    assert third[: len(second)] == second
    assert_one_history(out, len(second) + 2)


@pytest.mark.long
def test_a_federation_survives_kills_of_a_node_and_of_its_servers(tmp_path: Path) -> None:
    with Federation(3, tmp_path / "local") as federation:
        crash_and_return(federation, tmp_path / "out", {"timeout": 30.0, "quorum": 2})
        mark = federation.setup.mark
        assert marked(mark)
    assert not marked(mark)


def test_crashes_with_tls_and_authentication(tmp_path: Path) -> None:
    with Federation(4, tmp_path / "local", tls=True, warm=False) as federation:
        crash_and_return(federation, tmp_path / "out", {"timeout": 120.0, "quorum": 3, "authenticated": True})
        mark = federation.setup.mark
    assert not marked(mark)


def test_rules_that_send_more_than_a_model_are_the_simulator_over_real_processes(tmp_path: Path) -> None:
    with Federation(3, tmp_path / "local") as federation:
        app = write_app(federation.folder / "app")
        for algorithm in ("scaffold", "fedprox:mu=0.5", "fedavgm:beta=0.5"):
            out = tmp_path / algorithm.partition(":")[0]
            config = {"clients": 3, "out": out, "num-rounds": 4, "timeout": 60.0, "algorithm": algorithm, "quorum": 2}
            assert federation.run(app, config, SECONDS) == "finished:completed"
            assert sum(len(line["clients"]) for line in rounds_of(out)) >= 6
            assert not any(set(line["refused"]) - {"late"} for line in rounds_of(out))
            torch.testing.assert_close(deployed(out), replay(out), rtol=1e-4, atol=1e-5)


def test_strangers_and_impostors_are_not_let_in(tmp_path: Path) -> None:
    out = tmp_path / "out"
    with Federation(3, tmp_path / "local", tls=True) as federation:
        app = write_app(tmp_path / "app")
        config = {"clients": 3, "model": "softmax", "out": out, "timeout": 60.0, "authenticated": True}
        assert federation.run(app, config | {"num-rounds": 2}, 1200) == "finished:completed"
        assert {client for line in rounds_of(out) for client in line["clients"]} == {0, 1, 2}

        setup = federation.setup
        flags = ["--superlink", f"127.0.0.1:{federation.port}", "--root-certificates", str(setup.keys / "ca.crt")]
        keyless = setup.process("keyless", "flower-supernode", *flags, "--port", "0", "--node-config", "client-id=1")
        keyless.start()
        assert until(lambda: not keyless.alive, 120), "a node without a registered key stays connected"

        federation.stop_node(2)  # and comes back, with its own key, as client 0
        flags += ["--auth-supernode-private-key", str(setup.key(2)), "--node-config", "client-id=0", "--port", "19094"]
        impostor = setup.process("impostor", "flower-supernode", *flags)
        impostor.start()
        assert until(lambda: impostor.said("SuperNode ID"), 120)
        assert federation.run(app, config | {"num-rounds": 4}, 1200) == "finished:completed"
        impostor.stop()
        later = rounds_of(out)[2:]
        assert sum(line["refused"].get("identity", 0) for line in later) >= 1
        assert all(set(line["clients"]) <= {0, 1} for line in later)


def test_ctrl_c_leaves_nothing(tmp_path: Path) -> None:
    out = tmp_path / "out"
    command = [sys.executable, "-m", "fedawe", "flower", "up", "--nodes", "2", "--rounds", "100", "--out", str(out)]
    said = tmp_path / "said"
    with said.open("wb") as stdout:
        up = subprocess.Popen(command, stdout=stdout, stderr=subprocess.PIPE, text=True)
    try:
        assert until(lambda: "round 1 of 100: " in said.read_text(), 600)
        assert len(processes_of(out)) > 4
        up.send_signal(signal.SIGINT)
        _, error = up.communicate(timeout=120)
    finally:
        up.kill()
    assert up.returncode == 130
    assert error == "fedawe: stopped; the same command continues from the last checkpoint\n"
    assert not processes_of(out)


def processes_of(out: Path) -> list[int]:
    """Processes that have the folder in their environment."""
    found = []
    for entry in Path("/proc").glob("[0-9]*"):
        try:
            if f"FLWR_HOME={out}".encode() in (entry / "environ").read_bytes() and int(entry.name) != os.getpid():
                found.append(int(entry.name))
        except OSError:
            continue
    return found
