"""Runs on disk: whatever interrupts them, the same call again ends with the same bits."""

import dataclasses
import importlib
import json
import linecache
import math
import multiprocessing
import os
import random
import re
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest
import safetensors.torch
import torch
from children import Child

import fedawe
from fedawe.core.describe import described
from fedawe.core.errors import UserError
from fedawe.experiments import checkpoint, schedule
from fedawe.experiments import folder as folders
from fedawe.experiments.build import experiment_of
from fedawe.experiments.settings import Settings
from fedawe.experiments.workers import at_once
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

    experiment = experiment_of(settings, algorithms, seeds)
    warn = (lambda _: None) if warnings is None else warnings.append
    experiment.run(out, tell=tell, warn=warn, checkpoint_every=checkpoint_every, **{"engine": "stacked", **how})
    return [
        records.read(out / label / f"seed-{seed}" / "record.jsonl") for seed in seeds for label in experiment.algorithms
    ]


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
    assert (record.header["label"], record.header["name"]) == ("fedawe", "FedAWE")
    assert record.header["algorithm"]["class"] == "fedawe.algorithms.fedawe:FedAWE"
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
    monkeypatch.delattr(schedule, "at_once")
    assert [record.status for record in execute(whole, ALL, jobs=2)] == ["complete"] * len(ALL)


def test_one_checkpoint_is_left_to_extend_the_run_from_and_no_part(whole):
    for label in ALL:
        (left,) = (whole / label / "seed-0").glob("checkpoint-*")
        assert left.name.startswith("checkpoint-00000030-")
    assert not [path for path in whole.rglob("*") if path.suffix == ".part"]


def test_what_a_killed_export_leaves_is_removed(whole, tmp_path):
    out = shutil.copytree(whole, tmp_path / "x")
    left = out / ".tensorboard.1a2b3c4d.part"
    (left / "fedawe").mkdir(parents=True)
    (left / "fedawe" / ".events.5e6f.part").write_bytes(b"half")
    execute(out)
    assert not left.exists()
    assert result(out) == result(whole)


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


def test_resuming_in_another_environment_warns(whole, tmp_path, monkeypatch):
    """The numbers may then differ in their last bits; here they do not, because only the name of a version does."""
    crashed(tmp_path / "x")
    elsewhere = {**folders.environment(), "torch": "9.9.9"}
    monkeypatch.setattr(folders, "environment", lambda: elsewhere)
    warnings: list[str] = []
    execute(tmp_path / "x", warnings=warnings)
    (said,) = warnings
    assert said.startswith(f"{tmp_path / 'x'} was begun with torch = {torch.__version__}, not 9.9.9")
    assert result(tmp_path / "x") == result(whole)
    assert json.loads((tmp_path / "x" / "experiment.json").read_text())["environment"]["torch"] == torch.__version__


# More rounds than before


def longer(rounds: int) -> Settings:
    return dataclasses.replace(SETTINGS, rounds=rounds)


@pytest.mark.parametrize("label", ALL)
@pytest.mark.parametrize("rounds", [10, 12])
def test_a_finished_run_that_is_extended_is_the_longer_run(whole, tmp_path, label, rounds):
    """Evaluations are due every 4 rounds: that of round 10 was only due because the run ended there."""
    execute(tmp_path / "x", (label,), settings=longer(rounds))
    record = records.read(tmp_path / "x" / label / "seed-0" / "record.jsonl")
    assert (record.status, record.evaluations[-1]["round"]) == ("complete", rounds)
    computed: list[int] = []
    experiment_of(SETTINGS, [label], (0,)).run(
        tmp_path / "x", engine="stacked", tell=lambda progress: computed.append(progress.rounds)
    )
    assert computed == list(range(rounds + 1, 31)), "what is there is not computed again"
    assert result(tmp_path / "x", label) == result(whole, label)


def test_an_extended_run_survives_a_crash(whole, tmp_path):
    execute(tmp_path / "x", settings=longer(10))
    for crash_at in (11, 14, 29):
        with pytest.raises(Crash):
            execute(tmp_path / "x", crash_at=crash_at)
    execute(tmp_path / "x")
    assert result(tmp_path / "x") == result(whole)


def test_an_extended_run_whose_checkpoint_is_damaged_starts_anew(whole, tmp_path):
    execute(tmp_path / "x", settings=longer(10))
    (last,) = (tmp_path / "x" / "fedawe" / "seed-0").glob("checkpoint-*")
    flip(last, 0.5)
    warnings: list[str] = []
    execute(tmp_path / "x", warnings=warnings)
    assert str(last) in warnings[0]
    assert result(tmp_path / "x") == result(whole)


def test_a_run_is_not_shortened(whole):
    with pytest.raises(UserError, match=r"rounds = 30, not 12: runs can be extended, not shortened"):
        execute(whole, settings=longer(12))


@pytest.mark.parametrize("jobs", [1, 2])
def test_a_changed_definition_of_a_users_class_is_refused_in_one_line(tmp_path, monkeypatch, jobs):
    """By the same words on the command line; a changed comment or docstring changes nothing."""
    monkeypatch.syspath_prepend(tmp_path)
    file = tmp_path / "own_rule.py"
    text = (
        "import dataclasses\nimport fedawe\n\n\n@dataclasses.dataclass(frozen=True)\nclass Own(fedawe.FedAvg):\n"
        "    'A rule.'\n\n    def model(self, state):\n        return 1.0 * super().model(state)\n"
    )

    def call(content):
        file.write_text(content)
        flags = ["--clients", "20", "--model", "softmax", "--rounds", "4", "--seeds", "0", "1", "--out", tmp_path / "x"]
        return Child("run", "--algorithms", f"{file}:Own", "--jobs", jobs, *flags).wait()

    assert call(text)[0] == 0
    before = result(tmp_path / "x", "Own")
    code, said, _ = call(text.replace("'A rule.'", "'Another docstring.'  # and a comment"))
    assert (code, "they were already" in said) == (0, True)
    code, _, said = call(text.replace("1.0", "2.0"))
    assert code == 2
    (line,) = said.splitlines()
    assert line.startswith("fedawe: ")
    assert "was made with another definition of algorithm; choose another --out" in line
    assert result(tmp_path / "x", "Own") == before


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
    task = experiment_of(SETTINGS).population(0).task
    tensors = safetensors.torch.load((whole / "fedawe" / "seed-0" / "model.safetensors").read_bytes())
    x = tensors["x"] if task.layout is None else task.layout.vector(tensors)
    last = records.read(whole / "fedawe" / "seed-0" / "record.jsonl").evaluations[-1]
    assert task.evaluate(x)["test_loss"] == last["test_loss"]


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
            flags = "--model softmax --clients 20 --rounds 30 --batch 16 --evaluate-every 4 --seeds 0"
            seen.append(Child("run", "--algorithms", "fedawe", *flags.split(), "--out", tmp_path / "x").wait()[2])

    experiment_of(SETTINGS, ["fedavg"], (0,)).run(tmp_path / "x", tell=tell)
    (line,) = seen[0].splitlines()
    assert "in use by another process" in line


def test_divergence_stops_that_run_and_no_other(tmp_path):
    two_layers = Settings(**{**vars(SETTINGS), "model": "mlp"})
    found = execute(tmp_path / "x", ("fedavg:eta0=1e29", "fedawe"), two_layers)
    assert [record.status for record in found] == ["diverged", "complete"]
    end = found[0].end
    assert end is not None
    assert "round 0" in end["message"]
    assert "client" in end["message"]
    assert "learning rate 1e+29" in end["message"]
    again = execute(tmp_path / "x", ("fedavg:eta0=1e29", "fedawe"), two_layers, crash_at=1)
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
        before = progress()
        child = Child(*call, killed)
        codes.append(child.kill_when(lambda: progress() != before, draw.uniform(0, 0.15)))  # noqa: B023
    assert -signal.SIGKILL in codes, codes
    for out in (killed, tmp_path / "alone"):
        code, _, said = command(*call, out)
        assert code == 0, said
    for label in ("fedawe", "mifa"):
        assert result(killed, label) == result(tmp_path / "alone", label)
    assert not [name for name in os.listdir(killed) if name.endswith(".part")]


# Processes that are killed


def killing(folder: Path, mortal: dict[str, int]):
    """A function of jobs that are named: each counts its tries in a file, and is killed in its first `mortal[name]`."""

    def work(job, say):
        path = folder / job
        path.write_text(path.read_text() + "x" if path.exists() else "x")
        if len(path.read_text()) <= mortal.get(job, 0):
            os.kill(os.getpid(), signal.SIGKILL)
        say(f"{job} works")
        return job.upper()

    return work


def tries(folder: Path) -> dict[str, int]:
    return {path.name: len(path.read_text()) for path in folder.iterdir()}


def test_only_the_run_that_was_under_way_is_charged_a_try(tmp_path):
    heard: list[str] = []
    jobs = ["a", "b", "c", "d", "e", "f"]
    found = {o.job: o for o in at_once(killing(tmp_path, {"b": 1, "e": 9}), jobs, 2, heard.append)}
    assert {job: outcome.kind for job, outcome in found.items()} == {**dict.fromkeys(jobs, "done"), "e": "failed"}
    assert found["b"].said == "B"
    assert found["e"].said == "its process was killed (exit code -9)"
    assert tries(tmp_path) == {"a": 1, "b": 2, "c": 1, "d": 1, "e": 2, "f": 1}
    assert sorted(heard) == [f"{job} works" for job in "abcdf"]


def test_a_process_that_is_killed_while_idle_costs_no_run_a_try(tmp_path):
    """Two processes; the second has no more to do and is killed. Then the first is, and its run needs another."""

    def work(job, say):
        path = tmp_path / job
        path.write_text(path.read_text() + "x" if path.exists() else "x")
        if job == "long" and path.read_text() == "x":
            while not (tmp_path / "short").exists():
                time.sleep(0.01)
            time.sleep(0.3)  # until the other process waits for a job
            say(os.getpid())
            while not (tmp_path / "killed").exists():
                time.sleep(0.01)
            os.kill(os.getpid(), signal.SIGKILL)
        return job

    def hear(pid):
        (idle,) = [child for child in multiprocessing.active_children() if child.pid != pid]
        os.kill(idle.pid, signal.SIGKILL)
        idle.join()
        (tmp_path / "killed").touch()

    found = {outcome.job: outcome.kind for outcome in at_once(work, ["long", "short"], 2, hear)}
    assert found == {"long": "done", "short": "done"}
    assert (tmp_path / "long").read_text() == "xx"
    assert (tmp_path / "short").read_text() == "x"


def test_runs_whose_process_is_killed_come_out_the_same(whole, tmp_path):
    """Both processes are killed in the middle of their runs; a run is given two tries and resumes in its second."""
    killed: list[int] = []

    def tell(progress):
        if progress.rounds == 15 and not killed:
            for child in multiprocessing.active_children():
                killed.append(child.pid)
                os.kill(child.pid, signal.SIGKILL)
                child.join()

    labels = ["fedawe", "mifa"]
    experiment_of(SETTINGS, labels, (0,)).run(tmp_path / "x", tell=tell, engine="stacked", jobs=2, checkpoint_every=3)
    assert killed
    for label in labels:
        assert result(tmp_path / "x", label) == result(whole, label)


def test_a_run_that_is_killed_again_and_again_is_named_and_the_others_are_complete(tmp_path):
    @dataclasses.dataclass(frozen=True)
    class Mortal(fedawe.FedAvg):
        def aggregate(self, state, t, A, G):
            if t == 5:
                os.kill(os.getpid(), signal.SIGKILL)
            return super().aggregate(state, t, A, G)

    plain = experiment_of(SETTINGS, ["fedavg"], (0, 1))
    both = dataclasses.replace(
        plain, algorithms={**plain.algorithms, "mortal": Mortal()}, local=plain.local_of("fedavg"), seeds=(0,)
    )
    with pytest.raises(RuntimeError) as caught:
        both.run(tmp_path / "x", jobs=2, engine="stacked", checkpoint_every=3)
    assert str(caught.value).splitlines() == [
        "1 of 2 runs failed, the others are complete:",
        "mortal, seed 0: its process was killed (exit code -9)",
    ]
    assert records.read(tmp_path / "x" / "fedavg" / "seed-0" / "record.jsonl").status == "complete"
    assert records.read(tmp_path / "x" / "mortal" / "seed-0" / "record.jsonl").status == "unfinished"


FLAGS = "run --algorithms fedawe fedavg --model softmax --clients 20 --rounds 300 --seeds 0 --checkpoint-every 5 --out"


def under_way(out, *how):
    """A command all of whose processes are at work."""
    process = subprocess.Popen(
        [sys.executable, "-m", "fedawe", *FLAGS.split(), str(out), *how],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,  # a process group of its own, as a terminal gives it
    )
    before, runs = set(out.rglob("checkpoint-*")), 2 if "--jobs" in how else 1
    while process.poll() is None:
        if len({path.parent for path in set(out.rglob("checkpoint-*")) - before}) >= runs:
            break
        time.sleep(0.01)
    return process


@pytest.mark.long
@pytest.mark.parametrize(
    ("how", "number"),
    [(["--jobs", "2"], signal.SIGKILL), (["--workers", "2"], signal.SIGTERM)],
    ids=["jobs", "workers"],
)
def test_no_process_outlives_its_command_and_the_same_command_goes_on(tmp_path, how, number, command):
    """A process left behind would write into runs that the next command goes on with, and hold its memory for ever."""
    process = under_way(tmp_path / "stopped", *how)
    process.send_signal(number)
    process.communicate(timeout=60)  # returns when every process that holds the pipe has ended
    assert process.returncode
    process = under_way(tmp_path / "stopped", *how)
    os.killpg(process.pid, signal.SIGINT)
    _, said = process.communicate(timeout=60)
    assert process.returncode == 130, said
    assert said.splitlines()[-1] == "fedawe: stopped; the same command continues from the last checkpoint"
    assert "Traceback" not in said
    for out, options in ((tmp_path / "stopped", how), (tmp_path / "alone", [])):
        code, told, _ = command(*FLAGS.split(), out, *options)
        assert (code, "2 of 2 runs complete" in told) == (0, True)
    for label in ("fedawe", "fedavg"):
        assert result(tmp_path / "stopped", label) == result(tmp_path / "alone", label)


# Mistakes that only a task can tell


class Silent(fedawe.Quadratic):
    """A task that tells neither sizes nor losses of its clients."""

    losses = fedawe.tasks.Task.losses


@pytest.mark.parametrize(
    ("algorithm", "local", "message"),
    [
        (fedawe.FedAvg(), fedawe.Local(epochs=2), "epochs is 2, but Silent does not say how many samples"),
        (fedawe.Chosen(fedawe.FedAvg(), fedawe.Oort(1)), fedawe.Local(), "Silent does not tell the losses"),
    ],
)
def test_what_the_task_does_not_have_is_refused_before_anything_is_written(tmp_path, algorithm, local, message):
    experiment = fedawe.Experiment(
        task=lambda seed: Silent(torch.zeros(3, 1)),
        algorithms={"mine": algorithm},
        availability=fedawe.Stationary(),
        p=[0.5] * 3,
        rounds=4,
        seeds=(0,),
        local=local,
    )
    with pytest.raises(UserError, match=message):
        experiment.run(tmp_path / "out")
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize("kind", [fedawe.MIFA, fedawe.FedVARP])
def test_a_memory_rate_is_a_schedule(kind):
    with pytest.raises(UserError, match=r"memory_rate is 0.1; expected the local schedule"):
        kind(memory_rate=0.1)


def test_a_command_that_was_overtaken_does_not_change_the_experiment(tmp_path, monkeypatch):
    """Another command with other settings begins and ends while this one prepares."""
    out, settings = tmp_path / "out", dataclasses.replace(SETTINGS, rounds=2)
    began = schedule._stacked

    def overtaken(*arguments):
        monkeypatch.setattr(schedule, "_stacked", began)
        execute(out, settings=dataclasses.replace(settings, evaluate_every=1))
        return began(*arguments)

    monkeypatch.setattr(schedule, "_stacked", overtaken)
    with pytest.raises(UserError, match="holds an experiment with evaluate_every = 1, not 4"):
        execute(out, settings=settings)
    execute(out, settings=dataclasses.replace(settings, evaluate_every=1))  # it can still go on


def test_a_command_that_was_overtaken_does_not_change_how_clients_are_grouped(tmp_path, monkeypatch):
    """Another command begins and ends after this one has found the folder empty."""
    out, settings = tmp_path / "out", dataclasses.replace(SETTINGS, rounds=2)
    began = schedule._stacked

    def overtaken(*arguments):
        monkeypatch.setattr(schedule, "_stacked", began)
        found = began(*arguments)
        execute(out, settings=settings, engine="one")
        return found

    monkeypatch.setattr(schedule, "_stacked", overtaken)
    with pytest.raises(UserError, match=r"began in .* meanwhile, with engine one; enter the same command again"):
        execute(out, ("fedavg",), settings=settings, engine="stacked")
    execute(out, settings=settings, engine="auto")  # it can still go on


# What a task's evaluate returns


class Measured(fedawe.Quadratic):
    """A task whose evaluation is given."""

    metrics = (fedawe.Metric("distance", better="lower", decides=True), fedawe.Metric("other", better=None))
    returned = staticmethod(lambda x: {})

    def evaluate(self, x):
        return self.returned(x)


def measured(returned, metrics=Measured.metrics):
    kind = type("Measured", (Measured,), {"returned": staticmethod(returned), "metrics": metrics})
    return fedawe.Experiment(
        task=lambda seed: kind(torch.zeros(3, 1)),
        algorithms={"FedAWE": fedawe.FedAWE()},
        availability=fedawe.Stationary(),
        p=[0.5] * 3,
        rounds=4,
        seeds=(0,),
        evaluate_every=1,
    )


@pytest.mark.parametrize(
    ("returned", "message"),
    [
        (lambda x: None, "Measured.evaluate returned NoneType; expected a dict of numbers by name"),
        (lambda x: {"distance": "near", "other": 0.0}, "Measured.evaluate: distance is 'near'; expected a number"),
        (
            lambda x: {"distance": torch.zeros(2), "other": 0.0},
            "Measured.evaluate: distance has 2 numbers; expected one, by which algorithms are ranked",
        ),
        (lambda x: {"distanz": 0.0, "other": 0.0}, "Measured declares the metrics distance, which evaluate does not"),
        (lambda x: {"distance": float("nan"), "other": 0.0}, "gives distance = nan for the initial model"),
        *[
            (
                lambda x, name=name: {"distance": 0.0, "other": 0.0, name: 2.5},
                f"Measured.evaluate: a metric cannot be called {name}; expected another name than active, algorithm, ",
            )
            for name in ("test_seconds", "active", "round", "kind", "crc", "seed", "status", "clients", "seconds")
        ],
        (
            lambda x: {"distance": 0.0, "other": 0.0, "latest_other": 1.0},
            "FedAWE, further model latest: latest_other is also the name of another metric; rename one of them",
        ),
        (
            lambda x: {"distance": 0.0, "other": 0.0, "consensus": 1.0},
            "FedAWE, diagnostics: consensus is also the name of another metric; rename one of them",
        ),
    ],
)
def test_an_evaluation_that_cannot_be_used_is_refused(tmp_path, returned, message):
    with pytest.raises(UserError, match=re.escape(message)):
        measured(returned).run(tmp_path / "out")


def test_only_one_metric_decides(tmp_path):
    two = tuple(fedawe.Metric(name, decides=True) for name in ("a", "b"))
    with pytest.raises(UserError, match="a, b all have decides=True; expected one of them"):
        measured(lambda x: {"a": 0.0, "b": 0.0}, two).run(tmp_path / "out")
    assert not (tmp_path / "out").exists()


def test_a_name_that_records_use_is_refused_before_anything_is_written(tmp_path):
    declared = (fedawe.Metric("test_seconds", better="lower", decides=True),)
    with pytest.raises(UserError, match=r"Measured\.metrics: a metric cannot be called test_seconds; expected another"):
        measured(lambda x: {"test_seconds": 0.0}, declared).run(tmp_path / "out")
    assert not (tmp_path / "out").exists()


def test_numbers_of_libraries_are_numbers_and_undeclared_ones_may_be_missing(tmp_path):
    """As an area under a curve that is not defined for some model."""
    given = {"distance": torch.tensor(1.5), "other": np.float32(2.0), "auc": float("nan"), "each": np.array([1.0, 2.0])}
    given |= {"hits_by_class": [0.5, float("nan")], "none_by_class": [float("nan")] * 2}
    results = measured(lambda x: given).run(tmp_path / "out")
    (record,) = [run.record for run in results.runs.runs]
    assert record.status == "complete"
    assert len(record.evaluations) == 5
    for line in record.evaluations:
        assert (line["distance"], line["other"], line["auc"], line["each"]) == (1.5, 2.0, None, [1.0, 2.0])
        assert (line["latest_distance"], line["latest_auc"]) == (1.5, None)
        assert (line["hits_by_class"], line["none_by_class"]) == ([0.5, None], None)
    assert results.frame()["auc"].isna().all()
    results.report(tmp_path / "report.html")


def test_a_declared_number_that_is_not_finite_ends_the_run(tmp_path):
    """x-bar and the last aggregate are evaluated each time: the fifth call is after the second round."""
    calls = iter(range(100))
    returned = lambda x: {"distance": 0.0 if next(calls) < 4 else math.inf, "other": 0.0}  # noqa: E731
    (run,) = measured(returned).run(tmp_path / "out").runs.runs
    assert run.status == "diverged"
    assert "distance is not finite after 2 rounds" in run.message


# Base probabilities


@pytest.mark.parametrize("p", [[0.5, 30.0, 0.5], -5.0])
def test_a_base_probability_is_one(p):
    with pytest.raises(UserError, match=r"p of client [01] is (30|-5); expected a probability from 0 to 1"):
        dataclasses.replace(measured(lambda x: {}), p=p)


# A changed definition

MODULE = """
from fedawe import FedAvg
from helping_x import halved
from starred_x import *
import constants_x as constants
import package_x.inner
try:
    from tried_x import tried
except ImportError:
    def tried():
        pass

FACTOR = 1.0
UNUSED = 0

class Base(FedAvg):
    def aggregate(self, state, t, A, G):
        from late_x import late
        import package_x.late as other
        tried()
        return super().aggregate(state, t, A, halved(G) * FACTOR * constants.TWO * package_x.inner.SIX * star(late()))

class Mine(Base):
    'A rule.'
"""


@pytest.mark.parametrize(
    ("file", "before", "after", "noticed"),
    [
        ("rules", "FACTOR = 1.0", "FACTOR = 0.5", True),
        ("rules", "G) * FACTOR", "G) * FACTOR * 3", True),
        ("rules", "UNUSED = 0", "UNUSED = 1", False),
        ("rules", "'A rule.'", "'Another text.'", False),
        ("helping", "HALF = 0.5", "HALF = 0.25", True),
        ("helping", "HALF = 0.5", "HALF = 0.5  # a half", False),
        ("constants", "TWO = 2", "TWO = 1 + 2", True),
        ("starred", "STAR = 1", "STAR = 2", True),
        ("further", "FAR = 1", "FAR = 2", True),
        ("starred", "OTHER = 1", "OTHER = 2", False),
        ("package_x/inner", "SIX = 6", "SIX = 7", True),
        ("late", "LATE = 1", "LATE = 2", True),  # which is imported when it is called
        ("package_x/late", "SEVEN = 7", "SEVEN = 8", True),
        ("tried", "TRIED = 1", "TRIED = 2", True),
    ],
)
def test_whatever_a_class_is_made_from_belongs_to_its_definition(tmp_path, monkeypatch, file, before, after, noticed):
    monkeypatch.syspath_prepend(tmp_path)
    found = []
    for now in (before, after):
        texts = {
            "rules": MODULE,
            "helping": "HALF = 0.5\n\ndef halved(G):\n    return HALF * G\n",
            "constants": "TWO = 2\nTHREE = TWO + 1\n",
            "starred": "from further_x import *\nSTAR = 1\nOTHER = 1\n\ndef star(x):\n    return STAR * x * FAR\n",
            "further": "FAR = 1\n",
            "late": "LATE = 1\n\ndef late():\n    return LATE\n",
            "tried": "TRIED = 1\n\ndef tried():\n    return TRIED\n",
            "package_x/__init__": "",
            "package_x/inner": "SIX = 6\n",
            "package_x/late": "SEVEN = 7\n",
        }
        assert before in texts[file]
        texts[file] = texts[file].replace(before, now)
        (tmp_path / "package_x").mkdir(exist_ok=True)
        for name, text in texts.items():
            (tmp_path / f"{name if '/' in name else name + '_x'}.py").write_text(text, encoding="utf-8")
        shutil.rmtree(tmp_path / "__pycache__", ignore_errors=True)
        importlib.invalidate_caches()
        linecache.clearcache()
        rule = importlib.import_module("rules_x").Mine()
        found.append(described(rule)["definition"])
        importlib.import_module("late_x")  # as when it was called
        importlib.import_module("package_x.late")
        assert described(rule)["definition"] == found[-1]
        for name in [name for name in sys.modules if name.partition(".")[0].endswith("_x")]:
            del sys.modules[name]
    assert (found[0] != found[1]) == noticed


class Unreachable(fedawe.Quadratic):
    """A task whose evaluation fails in a way that has nothing to do with the folder of the experiment."""

    def evaluate(self, x):
        raise self.error


@pytest.mark.parametrize("error", [FileNotFoundError(2, "No such file", "/elsewhere/x.csv"), ConnectionError("gone")])
def test_an_error_of_a_task_is_not_one_of_the_folder(tmp_path, error):
    task = Unreachable(torch.tensor([[0.0], [1.0]]))
    task.error = error
    experiment = fedawe.Experiment(
        task=task, algorithms={"FedAvg": fedawe.FedAvg()}, availability=fedawe.Stationary(), p=0.5, rounds=2, seeds=(0,)
    )
    with pytest.raises(type(error)) as raised:
        experiment.run(tmp_path)
    assert raised.value is error
