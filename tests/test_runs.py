"""Runs on disk: whatever interrupts them, the same call again ends with the same bits."""

import json
import os
import random
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
import safetensors.torch
import torch

from fedawe.core.errors import UserError
from fedawe.experiments import checkpoint
from fedawe.experiments import schedule as suite
from fedawe.experiments.schedule import Execution
from fedawe.experiments.settings import Contender, Settings, World
from fedawe.results import record as records

SETTINGS = Settings(model="softmax", clients=20, rounds=30, batch=16, evaluate_every=4)
ALL = ("fedawe", "fedavg", "fedavg-all", "fedavg-known", "fedau", "f3ast", "mifa", "fedvarp")


class Crash(Exception):
    pass


def execute(
    out, algorithms=("fedawe",), settings=SETTINGS, crash_at=None, checkpoint_every=3, warnings=None, seeds=(0,), **how
):
    """The records; or a crash in the middle of round `crash_at`."""

    def tell(progress):
        if progress.rounds == crash_at:
            raise Crash

    contenders = [Contender.parse(text) for text in algorithms]
    warn = (lambda _: None) if warnings is None else warnings.append
    execution = Execution(checkpoint_every=checkpoint_every, **{"engine": "stacked", **how})
    found = suite.run(settings, contenders, seeds, out, command="test", execution=execution, tell=tell, warn=warn)
    return list(found)


def stable(path: Path) -> list[str]:
    """The lines of a record without wall-clock fields."""
    lines = [json.loads(line) for line in path.read_text().splitlines()]
    return [json.dumps({k: v for k, v in line.items() if not k.endswith("_seconds")}) for line in lines]


def result(out: Path, label="fedawe", seed=0) -> tuple[list[str], bytes]:
    folder = out / label / f"seed-{seed}"
    return stable(folder / "record.jsonl"), (folder / "model.safetensors").read_bytes()


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    """An experiment that nothing interrupted."""
    out = tmp_path_factory.mktemp("whole") / "x"
    assert [record.status for record in execute(out, ALL)] == ["complete"] * len(ALL)
    return out


def test_a_record_has_a_header_evaluations_and_a_last_line(whole):
    record = records.read(whole / "fedawe" / "seed-0" / "record.jsonl")
    assert record.header["algorithm"] == "fedawe"
    assert [line["round"] for line in record.evaluations] == [0, 4, 8, 12, 16, 20, 24, 28, 30]
    assert record.end is not None
    assert record.status == "complete"
    assert record.problem is None
    assert {"test_accuracy", "latest_test_accuracy", "live_versions"} <= set(record.evaluations[-1])


def test_learning_happens(whole):
    for label in ALL:
        record = records.read(whole / label / "seed-0" / "record.jsonl")
        assert record.evaluations[-1]["test_accuracy"] > 0.5 > record.evaluations[0]["test_accuracy"]


@pytest.mark.parametrize("label", ALL)
@pytest.mark.parametrize("crash_at", [1, 3, 4, 17, 29, 30])
def test_a_crash_changes_nothing(whole, tmp_path, label, crash_at):
    with pytest.raises(Crash):
        execute(tmp_path / "x", (label,), crash_at=crash_at)
    execute(tmp_path / "x", (label,))
    assert result(tmp_path / "x", label) == result(whole, label)


def test_many_crashes_change_nothing(whole, tmp_path):
    for crash_at in (5, 6, 11, 12, 13, 28):
        with pytest.raises(Crash):
            execute(tmp_path / "x", crash_at=crash_at)
    execute(tmp_path / "x")
    assert result(tmp_path / "x") == result(whole)


def test_the_checkpoint_interval_changes_nothing(whole, tmp_path):
    execute(tmp_path / "x", checkpoint_every=1)
    assert result(tmp_path / "x") == result(whole)


def test_a_complete_run_is_left_alone(whole):
    before = {path: path.stat().st_mtime_ns for path in whole.rglob("*") if path.is_file() and path.name != ".lock"}
    execute(whole, ALL, crash_at=1)  # would crash if a round were computed
    after = {path: path.stat().st_mtime_ns for path in whole.rglob("*") if path.is_file() and path.name != ".lock"}
    assert before == after


def test_complete_runs_start_no_process(whole, monkeypatch):
    monkeypatch.delattr(suite, "ProcessPoolExecutor")
    assert [record.status for record in execute(whole, ALL, jobs=2)] == ["complete"] * len(ALL)


def test_no_checkpoint_and_no_part_is_left(whole):
    assert not [path for path in whole.rglob("*") if path.name.startswith("checkpoint") or path.suffix == ".part"]


def crashed(out: Path, crash_at=20) -> Path:
    with pytest.raises(Crash):
        execute(out, crash_at=crash_at)
    return out / "fedawe" / "seed-0"


def flip(path: Path, at: float) -> None:
    content = bytearray(path.read_bytes())
    content[int(at * (len(content) - 1))] ^= 0x40
    path.write_bytes(content)


@pytest.mark.parametrize("at", [0.0, 0.3, 0.9, 1.0])
def test_a_damaged_checkpoint_is_named_and_the_one_before_is_used(whole, tmp_path, at):
    folder = crashed(tmp_path / "x")
    _, newest = sorted(folder.glob("checkpoint-*"))
    flip(newest, at)
    warnings: list[str] = []
    execute(tmp_path / "x", warnings=warnings)
    assert len(warnings) == 1
    assert str(newest) in warnings[0]
    assert result(tmp_path / "x") == result(whole)


def test_two_damaged_checkpoints_start_anew(whole, tmp_path):
    folder = crashed(tmp_path / "x")
    warnings: list[str] = []
    for path in folder.glob("checkpoint-*"):
        path.write_bytes(path.read_bytes()[:-5])
    execute(tmp_path / "x", warnings=warnings)
    assert len(warnings) == 2
    assert result(tmp_path / "x") == result(whole)


@pytest.mark.parametrize("line", [1, 2, 4, 6])
def test_a_damaged_record_is_named_and_mended(whole, tmp_path, line):
    file = crashed(tmp_path / "x") / "record.jsonl"
    lines = file.read_bytes().split(b"\n")
    lines[line - 1] = lines[line - 1].replace(b"0", b"1", 1)
    file.write_bytes(b"\n".join(lines))
    warnings: list[str] = []
    execute(tmp_path / "x", warnings=warnings)
    assert any(f"{file}:{line}:" in warning for warning in warnings)
    assert result(tmp_path / "x") == result(whole)


def test_half_a_line_is_mended(whole, tmp_path):
    file = crashed(tmp_path / "x") / "record.jsonl"
    file.write_bytes(file.read_bytes()[:-40])
    execute(tmp_path / "x")
    assert result(tmp_path / "x") == result(whole)


def test_a_damaged_record_of_a_complete_run_is_mended(whole, tmp_path):
    execute(tmp_path / "x")
    file = tmp_path / "x" / "fedawe" / "seed-0" / "record.jsonl"
    flip(file, 0.5)
    warnings: list[str] = []
    execute(tmp_path / "x", warnings=warnings)
    assert str(file) in warnings[0]
    assert result(tmp_path / "x") == result(whole)


@pytest.mark.parametrize("harm", ["delete", "flip"])
def test_a_lost_or_damaged_model_is_made_again(whole, tmp_path, harm):
    execute(tmp_path / "x")
    model = tmp_path / "x" / "fedawe" / "seed-0" / "model.safetensors"
    model.unlink() if harm == "delete" else flip(model, 0.7)
    execute(tmp_path / "x")
    assert result(tmp_path / "x") == result(whole)


def test_the_model_is_the_one_that_was_evaluated(whole):
    world = World.of(SETTINGS.resolved(), 0)
    x = safetensors.torch.load((whole / "fedawe" / "seed-0" / "model.safetensors").read_bytes())["x"]
    last = records.read(whole / "fedawe" / "seed-0" / "record.jsonl").evaluations[-1]
    assert world.task.evaluate(x)["test_loss"] == last["test_loss"]


def test_algorithms_and_seeds_can_be_added(whole, tmp_path):
    execute(tmp_path / "x", ("fedavg",))
    execute(tmp_path / "x", ("fedavg", "fedawe"), seeds=(0, 1))
    assert result(tmp_path / "x") == result(whole)
    assert result(tmp_path / "x", seed=1) != result(whole)


def test_other_settings_need_another_folder(whole):
    with pytest.raises(UserError, match=r"alpha = 0\.1, not 0\.5"):
        execute(whole, settings=Settings(**{**vars(SETTINGS), "alpha": 0.5}))


def test_a_second_process_on_the_folder_is_refused(tmp_path):
    seen: list[str] = []

    def tell(_):
        if not seen:
            code = (
                f"import sys; sys.path.insert(0, {str(Path(__file__).parent)!r}); from pathlib import Path; "
                f"import test_runs; test_runs.execute(Path({str(tmp_path / 'x')!r}))"
            )
            other = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
            seen.append(other.stderr)

    contenders = [Contender.parse("fedavg")]
    list(suite.run(SETTINGS, contenders, (0,), tmp_path / "x", command="test", tell=tell))
    assert "in use by another process" in seen[0]


def test_divergence_stops_that_run_and_no_other(tmp_path):
    found = execute(tmp_path / "x", ("fedavg:eta0=3e38", "fedawe"))
    assert [record.status for record in found] == ["diverged", "complete"]
    end = found[0].end
    assert end is not None
    assert "round 0" in end["message"]
    assert "client" in end["message"]
    assert "learning rate 3e+38" in end["message"]
    again = execute(tmp_path / "x", ("fedavg:eta0=3e38", "fedawe"), crash_at=1)
    assert [record.status for record in again] == ["diverged", "complete"]


def test_nothing_is_written_when_something_is_wrong(tmp_path):
    for wrong in (
        {"settings": Settings(clients=10**6)},
        {"settings": Settings(dynamics="sine:gamma=-1")},
        {"algorithms": ("fedawe", "fedau:K=0")},
        {"algorithms": ("fedawe", "fedawe")},
        {"seeds": (0, -1)},
        {"checkpoint_every": 0},
    ):
        with pytest.raises(UserError):
            execute(tmp_path / "x", **wrong)
        assert not (tmp_path / "x").exists(), wrong


def test_a_checkpoint_holds_its_own_checksum(tmp_path):
    import fedawe

    state = fedawe.FedAWE().init(torch.zeros(3), 2)
    state = fedawe.FedAWE().aggregate(state, 0, torch.tensor([1]), torch.ones(1, 3))
    checkpoint.save(tmp_path, state)
    loaded = checkpoint.load(tmp_path, state, lambda _: True, print)
    assert loaded is not None
    assert loaded.tau.tolist() == [-1, 0]
    assert loaded.holders == state.holders


def test_kill_minus_nine_changes_nothing(tmp_path, command):
    """Real processes, killed at random moments as soon as they have got further, against one that was left alone."""
    flags = "run --algorithms fedawe mifa --model softmax --clients 20 --rounds 400 --evaluate-every 7 --seeds 0"
    call = [*flags.split(), "--checkpoint-every", "5", "--out"]
    draw, killed, codes = random.Random(0), tmp_path / "killed", []

    def progress():
        return {path: path.stat().st_mtime_ns for path in killed.rglob("record.jsonl")}

    for _ in range(3):
        process = subprocess.Popen(
            [sys.executable, "-m", "fedawe", *call, str(killed)], stdout=subprocess.PIPE, stderr=subprocess.STDOUT
        )
        before = progress()
        while progress() == before and process.poll() is None:
            time.sleep(0.01)
        time.sleep(draw.uniform(0, 0.15))
        process.send_signal(signal.SIGKILL)
        process.communicate()
        codes.append(process.returncode)
    assert -signal.SIGKILL in codes, codes
    for out in (killed, tmp_path / "alone"):
        code, _, said = command(*call, out)
        assert code == 0, said
    for label in ("fedawe", "mifa"):
        assert result(killed, label) == result(tmp_path / "alone", label)
    assert not [name for name in os.listdir(killed) if name.endswith(".part")]


WAYS = pytest.mark.parametrize("how", [["--jobs", "2"], ["--workers", "2"]], ids=["jobs", "workers"])


def start(out, *how):
    flags = ["--model", "softmax", "--clients", "20", "--rounds", "500", "--seeds", "0", "--checkpoint-every", "5"]
    return subprocess.Popen(
        [sys.executable, "-m", "fedawe", "run", "--algorithms", "fedawe", "fedavg", *flags, *how, "--out", str(out)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,  # a process group of its own, as a terminal gives it
    )


def under_way(out, *how):
    """A command all of whose processes are at work."""
    process, runs = start(out, *how), 2 if "--jobs" in how else 1
    while process.poll() is None:
        if len(list(out.rglob("record.jsonl"))) >= runs and list(out.rglob("checkpoint-*")):
            break
        time.sleep(0.01)
    return process


@pytest.fixture(scope="module")
def alone(tmp_path_factory):
    """What one process makes of it if nothing stops it."""
    out = tmp_path_factory.mktemp("alone") / "x"
    assert "2 of 2 runs complete" in start(out).communicate()[0]
    return out


@WAYS
def test_ctrl_c_stops_all_processes_and_the_same_command_goes_on(alone, tmp_path, how):
    process = under_way(tmp_path / "stopped", *how)
    os.killpg(process.pid, signal.SIGINT)
    _, said = process.communicate(timeout=60)  # returns when every process that holds the pipe has ended
    assert process.returncode == 130, said
    assert said.splitlines()[-1] == "fedawe: stopped; the same command goes on from the last checkpoint"
    assert "Traceback" not in said
    assert "2 of 2 runs complete" in start(tmp_path / "stopped", *how).communicate()[0]
    for label in ("fedawe", "fedavg"):
        assert result(tmp_path / "stopped", label) == result(alone, label)


@WAYS
@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM])
def test_no_worker_outlives_its_command(tmp_path, how, number):
    """It would write into runs that the next command goes on with, and hold its memory for ever."""
    process = under_way(tmp_path, *how)
    process.send_signal(number)
    process.communicate(timeout=30)  # returns when every process that holds the pipe has ended
