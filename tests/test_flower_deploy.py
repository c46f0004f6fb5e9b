"""The processes of a local federation, its keys and mistakes; whole federations: tests/deploy_federations.py."""

import os
import signal
import socket
import subprocess
import sys
import time
import tomllib
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from cryptography.hazmat.primitives.serialization import load_ssh_private_key, load_ssh_public_key

from fedawe.cli.flower import Up, _completed
from fedawe.core.errors import UserError
from fedawe.deploy.local import federation as local_federation
from fedawe.deploy.local.app import write_app
from fedawe.deploy.local.federation import Federation
from fedawe.deploy.local.keys import make_certificates, make_key_pair
from fedawe.deploy.local.processes import MARK, Process, Supervisor, marked, sweep, until

PYTHON = sys.executable
SECONDS = 1200.0  # after which something is wrong, not slow


# ------------------------------------------------------------------------------------------------------ processes


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Callable[..., Process]]:
    """Makes processes of Python code, all with one mark, and clears up."""
    mark = f"test-{os.getpid()}-{time.monotonic_ns()}"

    def make(code: str, name: str = "one") -> Process:
        environment = os.environ | {MARK: mark}
        return Process(name, [PYTHON, "-c", code], tmp_path / f"{name}.log", environment)

    make.mark = mark  # type: ignore[attr-defined]
    yield make
    sweep(mark)


SLEEP = "import time; print('up', flush=True); time.sleep(600)"
CHILD = f"import subprocess, sys, time; subprocess.Popen([sys.executable, '-c', {SLEEP!r}]); time.sleep(600)"
ORPHAN = CHILD.replace("])", "], start_new_session=True)")


def test_what_a_process_started_dies_with_it(start: Any) -> None:
    process = start(CHILD)
    process.start()
    assert until(lambda: len(marked(start.mark)) == 2, 20)
    process.kill()
    assert until(lambda: not marked(start.mark), 5)


def test_a_sweep_finds_those_who_left_their_group(start: Any) -> None:
    process = start(ORPHAN)
    process.start()
    assert until(lambda: len(marked(start.mark)) == 2, 20)
    process.kill()
    assert len(marked(start.mark)) == 1
    assert len(set(sweep(start.mark))) == 1
    assert not marked(start.mark)


def test_a_suspended_process_is_stopped_too(start: Any) -> None:
    process = start(SLEEP)
    process.start()
    assert until(lambda: process.said("up"), 20)
    process.suspend()
    assert process.suspended
    process.stop()
    assert not process.alive


def test_the_supervisor_starts_again_whoever_exits_and_waits_longer_each_time(start: Any, tmp_path: Path) -> None:
    log = tmp_path / "lives"
    process, supervisor = start(f"import time; open({str(log)!r}, 'a').write(f'{{time.monotonic()}}\\n')"), Supervisor()

    def lives() -> list[float]:
        return [float(line) for line in log.read_text().split()] if log.exists() else []

    try:
        supervisor.keep(process)
        assert until(lambda: len(lives()) >= 4, 60)
        supervisor.release(process)
        until(lambda: not process.alive, 20)
        seen = lives()
        time.sleep(supervisor.FIRST_SECONDS + 0.5)
        assert lives() == seen
    finally:
        supervisor.close()
    assert supervisor.restarts == len(seen) - 1
    assert seen[2] - seen[1] > 2 * supervisor.FIRST_SECONDS
    assert seen[3] - seen[2] > 4 * supervisor.FIRST_SECONDS


def test_nothing_is_left_when_whoever_began_it_is_killed(tmp_path: Path) -> None:
    mark = f"test-{os.getpid()}-keeper"
    code = f"""
import os, subprocess, sys, time
os.environ["{MARK}"] = "{mark}"
keeper = subprocess.Popen([sys.executable, "-m", "fedawe.deploy.local.keeper", "{mark}"], stdin=subprocess.PIPE)
subprocess.Popen([sys.executable, "-c", {SLEEP!r}], start_new_session=True)
time.sleep(600)
"""
    owner = subprocess.Popen([PYTHON, "-c", code], stdout=subprocess.DEVNULL)
    try:
        assert until(lambda: len(marked(mark)) == 2, 60)
        time.sleep(1)
        owner.send_signal(signal.SIGKILL)
        owner.wait(10)
        assert until(lambda: not marked(mark), 60)
    finally:
        owner.kill()
        sweep(mark)


# ------------------------------------------------------------------------------------------- keys, app, mistakes


def test_keys_are_their_owners_alone(tmp_path: Path) -> None:
    make_certificates(tmp_path)
    make_key_pair(tmp_path / "node-0")
    for name in ("server.key", "node-0"):
        assert (tmp_path / name).stat().st_mode & 0o077 == 0
    private = load_ssh_private_key((tmp_path / "node-0").read_bytes(), None)
    public = load_ssh_public_key((tmp_path / "node-0.pub").read_bytes())
    assert private.public_key().public_numbers() == public.public_numbers()  # type: ignore[union-attr]


def test_the_app_made_from_the_package_takes_what_the_example_takes(tmp_path: Path) -> None:
    example = Path(__file__).parents[1] / "examples" / "flower" / "pyproject.toml"
    made = tomllib.loads((write_app(tmp_path) / "pyproject.toml").read_text())
    config = tomllib.loads(example.read_text())["tool"]["flwr"]["app"]["config"]
    assert made["tool"]["flwr"]["app"]["config"] == config


def test_a_busy_or_impossible_port_is_refused(tmp_path: Path) -> None:
    with socket.socket() as other:
        other.bind(("127.0.0.1", 0))
        other.listen()
        port = other.getsockname()[1]
        with pytest.raises(UserError, match=f"port {port} cannot be used"):
            Federation(1, tmp_path, port=port)
    with pytest.raises(UserError, match="port is 70000; expected a whole number from 1 to 65535"):
        Federation(1, tmp_path, port=70000)
    with pytest.raises(UserError, match="nodes is 0; expected a whole number from 1"):
        Federation(0, tmp_path)


@pytest.mark.parametrize(
    ("flags", "said"),
    [
        (("--nodes", "0"), "nodes is 0; expected a whole number from 1"),
        (("--rounds", "-1"), "rounds is -1; expected a whole number from 1"),
        (("--algorithm", "fedavg-known"), "FedAvg-known needs the probabilities of every round"),
        (("--nodes", "three"), "Error parsing --nodes"),
    ],
)
def test_a_mistake_is_one_line(flags: tuple[str, str], said: str, tmp_path: Path, command: Any) -> None:
    code, _, error = command("flower", "up", *flags, "--out", tmp_path / "out")
    assert (code, error.count("\n")) == (2, 1)
    assert said in error
    assert not (tmp_path / "out").exists()


def test_without_flower_it_says_how_to_install_it(tmp_path: Path) -> None:
    code = "import sys; sys.modules['flwr'] = None; from fedawe.cli.main import main; main()"
    flags = ["flower", "up", "--out", str(tmp_path / "out")]
    done = subprocess.run([PYTHON, "-c", code, *flags], capture_output=True, text=True, timeout=120)
    assert (done.returncode, done.stderr.count("\n")) == (2, 1)
    assert "pip install 'fedawe[flower]'" in done.stderr


class Losing:
    """A federation whose runs end as they are told to, each after so many rounds."""

    def __init__(self, folder: Path, ends: list[tuple[str, int]]) -> None:
        self.folder, self.ends, self.runs, self.done = folder, ends, 0, 0
        self.link = SimpleNamespace(alive=True, log=folder / "link.log")
        (folder / "logs").mkdir()
        self.link.log.write_text("flwr.Error: out of memory\n")

    def run(self) -> str:
        status, rounds = self.ends[self.runs]
        (self.folder / "logs" / f"run-{self.runs}.log").write_text("ValueError: the disk is full\n")
        self.runs, self.done = self.runs + 1, self.done + rounds
        return status


def followed(tmp_path: Path, ends: list[tuple[str, int]]) -> tuple[str, Path]:
    federation = Losing(tmp_path, ends)
    shown = SimpleNamespace(told=0)
    shown.tell = lambda: setattr(shown, "told", federation.done)
    return _completed(federation, shown, federation.run)


def test_losses_count_only_while_no_round_completes(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    ends = [("died", 1)] * 20 + [("lost", 0)] * 4 + [("died", 2)] + [("lost", 0)] * 4 + [("finished:completed", 1)]
    assert followed(tmp_path, ends)[0] == "finished:completed"
    assert "the server app ended; continuing with round 2\n" in capsys.readouterr().out


def test_giving_up_says_why(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="the server app ended 5 times without completing a round: the disk is full"):
        followed(tmp_path, [("died", 1)] + [("died", 0)] * 5)


@pytest.mark.parametrize(
    ("status", "message"),
    [
        ("late", "the run took longer than 155 s; the same command continues it; see "),
        ("finished:failed", r"the run failed \(finished:failed\): the disk is full; see "),
    ],
)
def test_up_says_how_a_run_failed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, status: str, message: str) -> None:
    class Failing(Losing):
        port = 1

        def __init__(self, nodes: int, folder: Path, *, tls: bool, port: int) -> None:
            folder.mkdir()
            super().__init__(folder, [(status, 0)])

        def __enter__(self) -> "Failing":
            return self

        def __exit__(self, *error: object) -> None:
            pass

        def run(self, *arguments: object) -> str:
            return super().run()

    monkeypatch.setattr(local_federation, "Federation", Failing)
    with pytest.raises(UserError, match=message):
        Up(nodes=1, rounds=1, out=tmp_path).run()
