"""Trackers show what the records say: every evaluation once, whatever was killed in between."""

import json
import os
import signal
import struct
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

import fedawe
from fedawe.cli.main import main
from fedawe.core.errors import UserError
from fedawe.results import record as records
from fedawe.trackers import TrackedRun


def experiment(rounds: int = 20, **fields: Any) -> fedawe.Experiment:
    given = {
        "task": fedawe.Quadratic(torch.tensor([[0.0], [100.0]])),
        "algorithms": {"fedawe": fedawe.FedAWE(), "my avg": fedawe.FedAvg()},
        "availability": fedawe.Stationary(),
        "p": [0.9, 0.5],
        "rounds": rounds,
        "seeds": (0,),
        "evaluate_every": 3,
    }
    return fedawe.Experiment(**{**given, **fields})


def told(out: Path, label: str) -> list[dict[str, Any]]:
    """The evaluations of a record."""
    return records.read(out / label / "seed-0" / "record.jsonl").evaluations


class Kept(fedawe.Tracker):
    """Lines of a file, one for each evaluation; ends its own process when it has written so many."""

    def __init__(self, folder: Path, most: int | None = None) -> None:
        self.folder, self.most, self.said = folder, most, []

    def file(self, run: TrackedRun) -> Path:
        return self.folder / f"{run.label}-{run.id}.jsonl"

    def lines(self, run: TrackedRun) -> list[dict[str, Any]]:
        return [json.loads(line) for line in self.file(run).read_text().splitlines()] if self.file(run).exists() else []

    def started(self, run: TrackedRun) -> int:
        self.said.append((run.label, "started"))
        return max((line["round"] for line in self.lines(run)), default=-1)

    def evaluated(self, run: TrackedRun, rounds: int, metrics: Any) -> None:
        assert rounds == metrics["round"]
        with self.file(run).open("a") as file:
            file.write(json.dumps(metrics) + "\n")
        if self.most is not None:
            self.most -= 1
            if self.most == 0:
                os.kill(os.getpid(), signal.SIGKILL)

    def finished(self, run: TrackedRun, status: str) -> None:
        self.said.append((run.label, status))


def without_seconds(lines: list[dict[str, Any]]) -> list[dict[str, Any]]:
    return [{name: value for name, value in line.items() if name != "elapsed_seconds"} for line in lines]


def same(out: Path, kept: Path) -> None:
    """Every run has one file, with the evaluations of its record; only the seconds of a repeated part may differ."""
    files = {path.name.rpartition("-")[0]: path for path in kept.iterdir()}
    assert len(files) == len(list(kept.iterdir())) == 2
    for label in ("fedawe", "my avg"):
        found = [json.loads(line) for line in files[label].read_text().splitlines()]
        assert without_seconds(found) == without_seconds(told(out, label))
        assert [line["round"] for line in found] == [0, 3, 6, 9, 12, 15, 18, 20]


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
def test_every_evaluation_is_told_once_after_a_kill(tmp_path: Path) -> None:
    for n in (1, 2, 5, 8, 9, 12, 16, 17):
        out, kept = tmp_path / f"out-{n}", tmp_path / f"kept-{n}"
        kept.mkdir()
        how = {"checkpoint_every": 7, "engine": "stacked", "workers": 1}
        child = os.fork()
        if child == 0:
            try:
                experiment().run(out, trackers=[Kept(kept, most=n)], **how)
            except BaseException:
                os._exit(1)
            os._exit(0)
        _, status = os.waitpid(child, 0)
        assert os.WIFSIGNALED(status) == (n <= 16), "there are 16 evaluations"
        assert os.WIFSIGNALED(status) or os.WEXITSTATUS(status) == 0
        experiment().run(out, trackers=[Kept(kept)], **how)
        same(out, kept)
    again = Kept(kept)
    experiment().run(out, trackers=[again], **how)
    assert again.said == []  # all is complete there


def test_an_extended_run_goes_on_in_the_tracker(tmp_path: Path) -> None:
    kept = tmp_path / "kept"
    kept.mkdir()
    experiment(rounds=11).run(tmp_path / "out", trackers=[Kept(kept)])
    experiment(rounds=20).run(tmp_path / "out", trackers=[tracker := Kept(kept)])
    # The evaluation that ended the shorter run is in the tracker only: it is not due in the longer one.
    for path in kept.iterdir():
        lines = [json.loads(line)["round"] for line in path.read_text().splitlines()]
        assert lines == [0, 3, 6, 9, 11, 12, 15, 18, 20]
    assert tracker.said == [(each, what) for each in ("fedawe", "my avg") for what in ("started", "complete")]


def test_a_tracker_that_fails_stops_no_run_and_gets_the_rest_later(tmp_path: Path) -> None:
    kept, said = tmp_path / "kept", list[str]()
    kept.mkdir()

    class Broken(Kept):
        @property
        def destination(self) -> str:
            return "Kept"

        def evaluated(self, run: TrackedRun, rounds: int, metrics: Any) -> None:
            if rounds > 9 and run.label == "fedawe":
                raise ConnectionError("the server is gone")
            super().evaluated(run, rounds, metrics)

    results = experiment().run(tmp_path / "out", trackers=[Broken(kept)], warn=said.append)
    assert [run.status for run in results.runs.runs] == ["complete", "complete"]
    assert said == [
        "Broken failed on fedawe/seed-0 (ConnectionError: the server is gone) and receives no more of this run now; "
        "the record is not affected, and the same command again sends the rest"
    ]
    experiment().run(tmp_path / "out", trackers=[tracker := Kept(kept)], warn=pytest.fail)
    assert tracker.said == [("fedawe", "started"), ("fedawe", "complete")]
    same(tmp_path / "out", kept)


def test_runs_that_are_complete_are_told_to_a_new_tracker(tmp_path: Path) -> None:
    kept = tmp_path / "kept"
    kept.mkdir()
    experiment().run(tmp_path / "out")
    experiment().run(tmp_path / "out", trackers=[Kept(kept)])
    same(tmp_path / "out", kept)


def test_an_interrupted_run_is_told_to_be_unfinished(tmp_path: Path) -> None:
    kept = tmp_path / "kept"
    kept.mkdir()

    def stop(progress: Any) -> None:
        if progress.rounds == 10:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        experiment().run(tmp_path / "out", trackers=[tracker := Kept(kept)], tell=stop)
    assert tracker.said == [("fedawe", "started"), ("fedawe", "unfinished")]


def test_a_new_folder_in_the_same_place_is_another_run(tmp_path: Path) -> None:
    kept, out = tmp_path / "kept", tmp_path / "out"
    kept.mkdir()
    experiment().run(out, trackers=[Kept(kept)])
    out.rename(tmp_path / "moved")
    experiment().run(tmp_path / "moved", trackers=[Kept(kept)])
    assert len(list(kept.iterdir())) == 2  # a folder that was moved is the same
    experiment().run(out, trackers=[Kept(kept)])
    assert len(list(kept.iterdir())) == 4
    (out / "tracking.json").write_text("{}")
    said: list[str] = []
    experiment().run(out, trackers=[Kept(kept)], warn=said.append)
    assert said == [f"{out / 'tracking.json'} is damaged; trackers receive all runs of the folder again, as new ones"]
    assert len(list(kept.iterdir())) == 6


# The real tools

SCRIPT = """
import json, os, pathlib, signal, sys
import torch, fedawe
sys.path.insert(0, {tests!r})
from test_trackers import experiment
from fedawe.trackers import MLflow, TensorBoard, WandB


class Killer(fedawe.Tracker):
    def evaluated(self, run, rounds, metrics):
        if rounds == 12 and run.label == "my avg":
            os.kill(os.getpid(), signal.SIGKILL)


mlflow = MLflow("file:mlruns")
trackers = [TensorBoard(), mlflow, WandB(mode="offline")]
if __name__ == "__main__":
    if sys.argv[1] == "kill":
        experiment().run("out", trackers=[*trackers, Killer()], checkpoint_every=7, jobs=2)
    experiment().run("out", trackers=trackers, checkpoint_every=7, workers=2)
    found = {{}}
    for run in mlflow._client.search_runs([mlflow._client.get_experiment_by_name("fedawe").experiment_id]):
        history = {{key: mlflow._client.get_metric_history(run.info.run_id, key) for key in run.data.metrics}}
        steps = {{key: [(each.step, each.value) for each in many] for key, many in history.items()}}
        found[run.info.run_name] = [run.info.status, run.data.params, steps]
    print(json.dumps(found))
"""


def offline(file: Path) -> Iterator[dict[str, Any]]:
    """The steps in an offline file of Weights & Biases: the log format of LevelDB, with messages in it."""
    from wandb.proto.wandb_internal_pb2 import Record

    content, at, message = file.read_bytes(), 7, b""
    while at + 7 <= len(content):
        if (left := 32768 - at % 32768) < 7:  # no header begins at the end of a block
            at += left
            continue
        size, kind = struct.unpack("<HB", content[at + 4 : at + 7])
        message += content[at + 7 : at + 7 + size]
        at += 7 + size
        if kind in (1, 4):  # whole, or the last part
            record, message = Record.FromString(message), b""
            if record.WhichOneof("record_type") == "history":
                yield {
                    each.key or ".".join(each.nested_key): json.loads(each.value_json) for each in record.history.item
                }


@pytest.mark.long
def test_the_tools_show_the_numbers_of_the_record_after_a_kill(tmp_path: Path) -> None:
    (tmp_path / "script.py").write_text(SCRIPT.format(tests=str(Path(__file__).parent)))
    environment = {**os.environ, "MLFLOW_ALLOW_FILE_STORE": "true", "PYTHONWARNINGS": "ignore"}

    def run(word: str) -> subprocess.CompletedProcess[str]:
        command = [sys.executable, "script.py", word]
        return subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True, check=False)

    killed = run("kill")
    assert killed.returncode == -signal.SIGKILL, killed.stderr
    out = tmp_path / "out"
    events = out / "tensorboard" / "my avg" / "seed-0" / "events.out.tfevents.fedawe"
    with events.open("ab") as file:  # half an event, as after a loss of power
        file.write(struct.pack("<Q", 100) + b"abc")
    # MLflow's store of files writes one metric after another: this kill hit between two of them.
    torn = [path for path in tmp_path.glob("mlruns/*/*/metrics/*") if path.name in ("round", "active")]
    for path in torn:
        lines = path.read_text().splitlines(keepends=True)
        if len(lines) > 1:
            path.write_text("".join(lines[:-1]))
        else:
            path.unlink()  # it was not begun
    assert len(torn) >= 2
    done = run("resume")
    assert done.returncode == 0, done.stderr
    mlflow = json.loads(done.stdout.splitlines()[-1])
    assert set(mlflow) == {"fedawe/seed-0", "my avg/seed-0"}
    wandb = [list(offline(file)) for file in (out / "wandb").glob("offline-run-*/*.wandb")]
    assert len(wandb) == 2
    for label in ("fedawe", "my avg"):
        lines = told(out, label)
        rounds = [line["round"] for line in lines]
        assert rounds == [0, 3, 6, 9, 12, 15, 18, 20]
        status, params, metrics = mlflow[f"{label}/seed-0"]
        assert (status, params["label"], params["algorithm.eta_g"]) == ("FINISHED", label, "1.0")
        steps = next(many for many in wandb if many[-1]["distance"] == lines[-1]["distance"])
        assert [step["_step"] for step in steps] == rounds
        for name in ("distance", "loss", "active", "round"):
            assert metrics[name] == [[line["round"], line[name]] for line in lines]
            assert [step[name] for step in steps] == [line[name] for line in lines]
        folder = str(out / "tensorboard" / label / "seed-0")
        scalars = EventAccumulator(folder, size_guidance={"scalars": 0}).Reload().Scalars("metrics/distance")
        assert [event.step for event in scalars] == rounds
        assert [event.value for event in scalars] == [float(torch.tensor(line["distance"])) for line in lines]


# Mistakes


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        ("--track mlfow", "unknown tracker 'mlfow'; choose from mlflow, tensorboard, wandb, or name your own, as in"),
        ("--track wandb:mode=off", "wandb:mode is 'off'; expected online, offline or none"),
        ("--track tensorboard:folder=x", "tensorboard has no option 'folder'; it has none"),
        ("--track math:pi", "a tracker is a float; expected an object of a fedawe.Tracker"),
    ],
)
def test_mistakes_are_found_before_anything_is_written(arguments, expected, tmp_path, monkeypatch, capsys) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "argv", ["fedawe", "run", "--task", "quadratic", "--out", "x", *arguments.split()])
    with pytest.raises(SystemExit) as stopped:
        main()
    assert stopped.value.code == 2
    assert expected in capsys.readouterr().err
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(("tool", "name"), [("mlflow", "MLflow"), ("wandb", "WandB"), ("tensorboard", "TensorBoard")])
def test_a_tool_that_is_not_installed_is_named(tool: str, name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, tool, None)
    with pytest.raises(UserError, match=rf"{tool} is not installed; install it with: pip install 'fedawe\[{tool}\]'"):
        getattr(fedawe.trackers, name)()
