"""Small files that claim much, deep and wide ones, a file system that is full or read-only: one line, exit code 2."""

import errno
import json
import os
import resource
import signal
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from fedawe.results import record as records
from fedawe.results.head import read_head

Command = Callable[..., tuple[int, str, str]]
MANY = 10**6


def wide(first: str) -> str:
    return first + ",".join(f"c{n}" for n in range(MANY)) + "\n" + first + ",".join("1" * MANY) + "\n"


FILES = [  # name, content, verb, what the line must say
    ("t.csv", "round,client\n3999,999999\n", "run", "it has 4,000 rounds of 1,000,000 clients; number both from 0"),
    ("t.csv", "round,client\n3999,999999\n", "audit", "has 25 bytes and would take 4,000,000,000 bytes of memory"),
    ("t.csv", "# rounds=999999999 clients=999999999\nround,client\n0,0\n", "run", "would take 999,999,998,000,000,001"),
    ("t.csv", wide(""), "run", "expected a header 'round,client'"),
    ("t.csv", wide("client,timestamp,"), "audit", "the first line has more than 10,000 columns"),
    ("t.jsonl", '{"client":' * 10**5 + "1" + "}" * 10**5, "audit", "none of the first lines is a JSON object"),
    ("t.jsonl", "[" * 10**5, "audit", "none of the first lines is a JSON object"),
    ("t.json", "{" + ",".join(f'"{n}":1' for n in range(10**5)) + ',"a":1,"a":1}', "audit", "the key 'a' occurs twice"),
]


@pytest.mark.parametrize(("name", "content", "verb", "said"), FILES, ids=range(len(FILES)))
def test_a_small_file_costs_little(
    name: str, content: str, verb: str, said: str, command: Command, tmp_path: Path
) -> None:
    path = tmp_path / name
    path.write_text(content)
    how = ["run", "--dynamics", str(path), "--out", str(tmp_path / "out")] if verb == "run" else ["audit", str(path)]
    code, _, err = command(*how)
    assert (code, err.count("\n")) == (2, 1)
    assert said in err
    assert len(err) < 1000


def test_a_million_keys_are_read_once_each(command: Command, tmp_path: Path) -> None:
    """Different ones in every line: a list of all of them for every line would be a hundred million words."""
    lines = [
        json.dumps({"client": "a", "timestamp": 60 * n, **{f"k{n}_{i}": 1 for i in range(100)}}) for n in range(1000)
    ]
    (tmp_path / "log.jsonl").write_text("\n".join(lines) + "\n")
    code, out, _ = command("audit", str(tmp_path / "log.jsonl"), "--round", "1h")
    assert code == 0
    assert "columns not used" in out
    assert len(out) < 20_000


def test_deep_json_in_a_folder_is_damage(tmp_path: Path) -> None:
    deep = b"[" * 10**5 + b"]" * 10**5
    (tmp_path / records.NAME).write_bytes(deep + b"\n")
    (tmp_path / "experiment.json").write_bytes(deep)
    assert "damaged" in str(records.read(tmp_path / records.NAME).problem)
    assert read_head(tmp_path / "experiment.json") is None


@pytest.mark.parametrize("column", ["label", "client"])
def test_a_number_that_numpy_does_not_have(column: str, command: Command, tmp_path: Path) -> None:
    """As polars reads 26 digits."""
    rows = [
        f"{n},{n % 2 if column == 'client' else 10**26},{10**26 if column == 'client' else n % 3}" for n in range(9)
    ]
    (tmp_path / "d.csv").write_text("f0,label,client\n" + "\n".join(rows) + "\n")
    code, _, err = command("run", "--task", str(tmp_path / "d.csv"), "--out", str(tmp_path / "out"))
    assert (code, err.count("\n")) == (2, 1)
    assert f"the column '{column}' has numbers of 20 digits or more" in err


LONG = "x" * 300
WORDS = [
    ("run --eta0 1e300", "eta0 is 1e+300; expected a positive number, at most 1e+30"),
    ("run --algorithms fedavg:eta0=1e300", "fedavg(eta0=1e300): eta0 is 1e+300; expected a positive number"),
    ("run --algorithms fedadam:tau=1e300", "tau is 1e+300; expected a positive number, at most 1e+30"),
    ("run --clip-grad 1e300", "clip_grad is 1e+300; expected a positive number, at most 1e+30"),
    ("run --optimiser sgd:weight_decay=1e300", "weight_decay is 1e+300; expected a number from 0 and below 1e+30"),
    (f"run --algorithms fedau:K={10**27}", f"K is {10**27}; expected a whole number from 1"),
    (f"run --steps {10**27}", f"steps is {10**27}; expected a whole number from 1 to 1,000,000,000"),
    (f"run --rounds {10**27}", f"rounds is {10**27}; expected a whole number from 1 to 1,000,000,000"),
    (f"run --task quadratic --clients {10**27}", f"clients is {10**27}; expected a whole number from 1"),
    (f"run --dynamics sine:period={10**27}", f"period is {10**27}; expected a number at least 1 and at most 1e+15"),
    (f"run --dynamics {LONG}.csv", "File name too long"),
    (f"run --task {LONG}", "File name too long"),
    (f"run --out {LONG}", "File name too long"),
    (f"audit {LONG}.csv", "File name too long"),
    (f"check {LONG}", "File name too long"),
    (f"report {LONG}", "File name too long"),
]


@pytest.mark.parametrize(("line", "said"), WORDS, ids=range(len(WORDS)))
def test_a_word_that_is_too_large(
    line: str, said: str, command: Command, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    code, _, err = command(*line.split())
    assert (code, err.count("\n")) == (2, 1)
    assert said in err
    assert not list(tmp_path.rglob("*"))


def run(command: Command, out: Path) -> tuple[int, str, str]:
    return command(*f"run --task quadratic --rounds 40 --seeds 0 --algorithms fedawe --out {out}".split())


def limited(work: Callable[[], Any]) -> int:
    """The exit code of work in a child in which no file can have more than 3,000 bytes."""
    child = os.fork()
    if child == 0:
        signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
        resource.setrlimit(resource.RLIMIT_FSIZE, (3000, resource.RLIM_INFINITY))
        os._exit(work())
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
def test_no_room_while_a_record_grows(command: Command, tmp_path: Path) -> None:
    """The header has room, a later line has not: nothing is lost, and the same command goes on."""
    assert run(command, tmp_path / "whole")[0] == 0
    record = tmp_path / "whole" / "fedawe" / "seed-0" / records.NAME
    assert record.stat().st_size > 3000 > len(record.read_bytes().split(b"\n")[0])

    def work() -> int:
        code, _, err = run(command, tmp_path / "out")
        (tmp_path / "said").write_text(err)
        return code

    assert limited(work) == 2
    said = (tmp_path / "said").read_text().splitlines()
    assert len(said) == 1
    assert "record.jsonl" in said[0]
    assert run(command, tmp_path / "out")[0] == 0
    whole, again = (records.read(tmp_path / name / "fedawe" / "seed-0" / records.NAME) for name in ("whole", "out"))
    assert [{k: v for k, v in line.items() if not k.endswith("_seconds")} for line in whole.evaluations] == [
        {k: v for k, v in line.items() if not k.endswith("_seconds")} for line in again.evaluations
    ]


refusing: list[tuple[Path, int]] = []  # folders in which nothing can be written, and why


def _hook(event: str, arguments: tuple[Any, ...]) -> None:
    if not refusing or not isinstance(arguments[0] if arguments else None, str | Path):
        return
    writes = event == "open" and isinstance(arguments[1], str) and set(arguments[1]) & set("wax+")
    for folder, code in refusing:
        if (writes or event in ("os.mkdir", "os.rename", "os.remove")) and str(folder) in str(arguments[0]):
            raise OSError(code, os.strerror(code), str(arguments[0]))


sys.addaudithook(_hook)


@pytest.mark.parametrize("code", [errno.EROFS, errno.ENOSPC])
@pytest.mark.parametrize("begun", [False, True])
def test_a_file_system_that_takes_nothing(code: int, begun: bool, command: Command, tmp_path: Path) -> None:
    out = tmp_path / "out"
    if begun:
        assert command(*f"run --task quadratic --rounds 5 --seeds 0 --algorithms fedawe --out {out}".split())[0] == 0
    refusing.append((out, code))
    try:
        found, _, err = run(command, out)
    finally:
        refusing.clear()
    assert (found, err.count("\n")) == (2, 1)
    assert os.strerror(code) in err
    assert run(command, out)[0] == 0


@pytest.mark.parametrize(
    "algorithm",
    [
        {"class": "os:system", "command": "touch executed"},
        {"class": "subprocess:Popen", "args": ["touch", "executed"]},
        {"function": "os:system", "command": "touch executed"},
        {"class": "fedawe.algorithms.base:torch.os.system", "command": "touch executed"},
        {"class": "fedawe.algorithms.weighted:Weighted", "rule": {"class": "os:system", "command": "touch executed"}},
        {"class": "from_a_record:Anything"},
    ],
)
def test_a_record_executes_nothing(
    algorithm: dict[str, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, command: Command
) -> None:
    """Neither what it calls its algorithm, nor a module of that name that lies beside it."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))
    (tmp_path / "from_a_record.py").write_text("open('executed', 'w')\n")
    code, _, _ = command(
        *("run", "--task", "quadratic", "--algorithms", "fedavg", "fedawe", "--rounds", "5", "--seeds", "0"),
        *("--out", "runs"),
    )
    assert code == 0
    path = tmp_path / "runs" / "fedavg" / "seed-0" / records.NAME
    record = records.read(path)
    lines = [{**record.header, "algorithm": algorithm}, *record.evaluations, record.end or {}]
    path.write_text("".join(records.seal(line) + "\n" for line in lines))
    assert command("report", "runs")[0] == 0
    assert not (tmp_path / "executed").exists()
