"""A fixed small part of the fuzzing campaign, and whether the campaign notices what it must notice.

`make fuzz` runs as long as one likes, in processes with limits; the inputs here are the first of it.
"""

import os
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest

sys.path.insert(0, str(Path(__file__).parent / "fuzz"))

import campaign
import readers
from mutate import mutated

INPUTS = 12  # of each reader
SLOW = {"run-record": 4, "run-head": 4, "run-clients": 4, "run-trace": 4, "run-model": 4}  # each copies a folder


@pytest.mark.parametrize("name", list(readers.TARGETS))
def test_every_reader_returns_or_refuses_in_one_line(name: str, tmp_path: Path) -> None:
    target = readers.TARGETS[name]
    seeds = target.seeds()
    for n in range(SLOW.get(name, INPUTS)):
        assert campaign.try_one(target, 0, n, seeds, tmp_path) is None, f"{name}/0/{n}"


@pytest.mark.parametrize("name", ["log-parquet/1/318"])
def test_an_input_that_once_failed(name: str, tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    reader, seed, n = name.split("/")
    target = readers.TARGETS[reader]
    assert campaign.try_one(target, int(seed), int(n), target.seeds(), tmp_path) is None
    assert capfd.readouterr().err == ""  # nor did a thread say that it panicked


def test_an_input_is_the_same_on_every_machine() -> None:
    assert mutated("x/0/2", [b"round,client\n0,1\n"]) == mutated("x/0/2", [b"round,client\n0,1\n"])
    assert len({mutated(f"x/0/{n}", [b"round,client\n0,1\n"]) for n in range(50)}) > 30


def hang(content: bytes, folder: Path) -> None:
    time.sleep(3600)


def grow(content: bytes, folder: Path) -> Any:
    return np.ones(campaign.MEMORY // 4, dtype=np.float64)


def end(content: bytes, folder: Path) -> None:
    if folder.name == "input":  # not while it is tried with what is good
        os._exit(3)


def stray(content: bytes, folder: Path) -> None:
    if folder.name == "input":
        (Path.home() / ".fuzz-stray").open("w").close()
        (Path.home() / ".fuzz-stray").unlink()


def fail(content: bytes, folder: Path) -> None:
    if folder.name == "input":
        raise KeyError("a bug")


@pytest.mark.parametrize(
    ("read", "said"),
    [(grow, "MemoryError"), (end, "the process ended"), (stray, "written outside"), (fail, "KeyError: 'a bug'")],
)
def test_the_campaign_notices(read: Any, said: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    for name in ("home", "temporary"):
        (tmp_path / name).mkdir()
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "temporary"))  # where alone inputs may be written
    monkeypatch.setattr(campaign, "refusals", lambda: (ValueError,))  # without importing Flower in every child
    tally = campaign.Tally()
    target = readers.Target("fake", lambda: [b"x"] if read is not grow else [], read)
    if read is grow:  # it has nothing good to begin with
        monkeypatch.setattr(campaign, "mutated", lambda *_: b"")
    campaign.turn(target, 0, 0, 0.05, tally)
    assert tally.tried > 0
    assert said in tally.faults[0]


def test_the_campaign_notices_a_hang(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(campaign, "PATIENCE", 0.5)
    monkeypatch.setattr(campaign, "refusals", lambda: (ValueError,))
    monkeypatch.setattr(campaign, "mutated", lambda *_: b"")
    tally = campaign.Tally()
    campaign.turn(readers.Target("fake", list, hang), 0, 7, 60.0, tally)
    assert tally.faults == ["fake/0/7: no answer within 0.5 s"]
