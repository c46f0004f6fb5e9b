"""Whatever a user brings gets everything that the built-in parts get: files, modules, plug-ins, objects."""

import dataclasses
import enum
import functools
import io
import json
import logging
import os
import runpy
import shutil
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from children import Child
from rich.console import Console
from torch import Tensor

import fedawe
from fedawe.algorithms.base import ServerState, pack, unpack
from fedawe.algorithms.exchange import first_state
from fedawe.cli import show
from fedawe.cli.main import main, parse
from fedawe.core.describe import described, first_difference, rebuilt
from fedawe.core.errors import UserError
from fedawe.experiments import names
from fedawe.experiments.build import algorithm_spec, experiment_of
from fedawe.experiments.settings import Settings
from fedawe.results.head import head_content, read_head
from fedawe.results.metrics import metrics_of
from fedawe.testing import check_task

ROOT = Path(__file__).resolve().parent.parent
STUDY = ROOT / "examples" / "study.py"


def evaluations(out: Path) -> dict[str, list[dict[str, Any]]]:
    """All evaluations of all runs without wall-clock fields and checksums."""
    found = {}
    for path in sorted(out.rglob("record.jsonl")):
        lines = [json.loads(line) for line in path.read_text().splitlines()]
        found[str(path.relative_to(out))] = [
            {k: v for k, v in line.items() if k != "crc" and not k.endswith("_seconds")}
            for line in lines
            if line["kind"] == "evaluation"
        ]
    return found


def models(out: Path) -> dict[str, bytes]:
    return {str(path.relative_to(out)): path.read_bytes() for path in sorted(out.rglob("model.safetensors"))}


def typed(monkeypatch: pytest.MonkeyPatch, *words: str) -> None:
    monkeypatch.setattr(sys, "argv", ["fedawe", *words])
    main()


def test_the_study_is_short() -> None:
    assert len(STUDY.read_text().splitlines()) <= 60


@pytest.mark.parametrize("file", [STUDY, ROOT / "examples" / "plugin" / "src" / "fedawe_median" / "__init__.py"])
def test_the_median_of_the_examples_takes_every_option_of_fedavg(file: Path) -> None:
    rule = runpy.run_path(str(file))["Median"](eta_g=0.5, clip=1.0)
    state = rule.aggregate(rule.init(torch.zeros(1), 3), 0, torch.arange(3), torch.tensor([[2.0], [4.0], [90.0]]))
    assert rule.model(state).tolist() == [-0.5]


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The study, run without interruption."""
    out = tmp_path_factory.mktemp("study") / "s"
    parse(["run", str(STUDY), "--out", str(out)]).run()
    return out


def test_a_study_survives_kill_and_comes_out_the_same(whole: Path, tmp_path: Path) -> None:
    out = tmp_path / "s"
    command = ["run", STUDY, "--out", out, "--checkpoint-every", "20"]

    def checkpoints() -> set[Path]:
        return set(out.rglob("checkpoint-*"))

    for _ in range(4):
        before = checkpoints()
        assert Child(*command).kill_when(lambda: len(checkpoints() - before) >= 2) == -signal.SIGKILL  # noqa: B023
    code, _, said = Child(*command).wait()
    assert code == 0, said
    assert evaluations(out) == evaluations(whole)
    assert models(out) == models(whole)


def test_a_study_in_processes_and_workers_is_the_same(whole: Path, tmp_path: Path) -> None:
    for flag in ("--jobs", "--workers"):
        out = tmp_path / flag
        parse(["run", str(STUDY), "--out", str(out), flag, "2", "--seeds", "0", "1"]).run()
        kept = {name: lines for name, lines in evaluations(whole).items() if "seed-2" not in name}
        assert evaluations(out) == kept


def test_the_header_says_what_it_was_made_from(whole: Path) -> None:
    header = json.loads((whole / "Median" / "seed-1" / "record.jsonl").read_text().splitlines()[0])
    assert header["algorithm"]["class"] == "study:Median"
    assert header["algorithm"]["eta_g"] == 0.5
    assert len(header["algorithm"]["definition"]) == 16
    assert header["task"]["class"] == "study:Letters"
    assert header["availability"]["class"] == "study:Weekend"
    assert header["metrics"][0] == {
        "name": "test_perplexity", "title": "test perplexity", "better": "lower", "unit": "", "decides": True
    }  # fmt: skip
    assert (header["seed"], header["rounds"], header["clients"]) == (1, 200, 20)


def test_a_changed_definition_is_noticed_and_a_changed_comment_is_not(
    whole: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    out, study = tmp_path / "s", tmp_path / "study.py"
    monkeypatch.delitem(sys.modules, "study")  # a copy of it takes its place
    shutil.copytree(whole, out)
    text = STUDY.read_text()

    def run_changed(old: str, new: str) -> tuple[int, str]:
        assert old in text
        study.write_text(text.replace(old, new))
        code, _, said = Child("run", study, "--out", out).wait()
        return code, said

    assert run_changed("        A, G = received(", "        # checked\n        A, G = received(") == (0, "")
    for old, new in (("median(0)", "nanmedian(0)"), ("t % 7 >= 5", "t % 7 >= 4"), ("np.ones(6)", "2 * np.ones(6)")):
        code, said = run_changed(old, new)
        assert code == 2
        assert "another definition of" in said
        assert len(said.splitlines()) == 1
    assert models(out) == models(whole)


def test_a_finished_study_can_be_extended_from_the_command_line(tmp_path: Path) -> None:
    longer, extended = tmp_path / "longer", tmp_path / "extended"
    run = ["run", str(STUDY), "--seeds", "0", "--out"]
    parse([*run, str(longer), "--rounds", "33"]).run()
    parse([*run, str(extended), "--rounds", "17"]).run()  # whose last evaluation is not one of the longer run
    parse([*run, str(extended), "--rounds", "33"]).run()
    assert evaluations(extended) == evaluations(longer)
    assert models(extended) == models(longer)
    with pytest.raises(UserError, match="rounds = 33, not 17: runs can be extended, not shortened"):
        parse([*run, str(extended), "--rounds", "17"]).run()


def test_the_commands_that_repeat_a_folder_are_kept_in_their_order(tmp_path: Path) -> None:
    def run(command: str, **changes: Any) -> str:
        return quadratic(**changes).run(tmp_path / "out", command=command).runs.command

    assert run("fedawe run --rounds 20", rounds=20) == "fedawe run --rounds 20"
    assert run("fedawe run --rounds 20", rounds=20) == "fedawe run --rounds 20"
    assert run("", rounds=20) == "fedawe run --rounds 20"
    both = "fedawe run --rounds 20\nfedawe run --rounds 2"
    assert run("fedawe run --rounds 2", rounds=21) == both  # part of the first, and not the same
    assert run("fedawe run --rounds 20", rounds=21) == both
    assert "--rounds 20\nfedawe run" in fedawe.load(tmp_path / "out").report().read_text()


# Names on the command line


def test_a_plug_in_registers_its_names(tmp_path: Path) -> None:
    site, out = tmp_path / "site", tmp_path / "out"
    install = [sys.executable, "-m", "pip", "install", "-q", "--no-deps", "--no-build-isolation", "--target", str(site)]
    subprocess.run([*install, str(ROOT / "examples" / "plugin")], check=True, capture_output=True)
    words = (
        "run --algorithms median fedavg median:share=0.4 --task letters:clients=10 --dynamics weekend:days=3 --p 0.3"
    )
    command = [
        sys.executable,
        "-m",
        "fedawe",
        *words.split(),
        "--p",
        "0.3",
        "--rounds",
        "6",
        "--seeds",
        "0",
        "--out",
        str(out),
    ]
    path = os.pathsep.join([str(site), os.environ.get("PYTHONPATH", "")])
    done = subprocess.run(command, capture_output=True, text=True, check=False, env={**os.environ, "PYTHONPATH": path})
    assert done.returncode == 0, done.stderr
    assert {each.name for each in out.iterdir()} >= {"median", "fedavg", "median(share=0.4)"}
    header = json.loads((out / "median(share=0.4)" / "seed-0" / "record.jsonl").read_text().splitlines()[0])
    assert header["algorithm"]["class"] == "fedawe_median:Median"
    assert header["name"] == "Median (share=0.4)"
    assert header["availability"]["days"] == 3


OWN = """
import fedawe
import torch
from dataclasses import dataclass

@dataclass(frozen=True)
class Mine(fedawe.FedAvg):
    beta: float = 0.5
    loud: bool = False

def task(seed, clients=4):
    return fedawe.classification(fedawe.digits(), "softmax", clients, 1.0, seed)

class Half(fedawe.Dynamics):
    def trajectory(self, t, p):
        return 0.5 * p

class Net(torch.nn.Module):
    pass

def nothing(labels, seed):
    pass

def labels_only(labels):
    return [labels]
"""


def test_a_file_and_a_module_are_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "own_parts.py").write_text(OWN)
    monkeypatch.chdir(tmp_path)
    for place in ("own_parts.py", "own_parts"):
        spec = algorithm_spec(f"{place}:Mine:beta=0.9,loud=true")
        built = spec.build()
        assert (type(built).__name__, built.beta, built.loud) == ("Mine", 0.9, True)
        assert spec.label == "Mine(beta=0.9,loud=true)"
    settings = Settings(task="own_parts.py:task", dynamics="own_parts.py:Half", clients=5, rounds=3)
    experiment = experiment_of(settings, ["own_parts.py:Mine", "fedavg"], (0,))
    assert experiment.population(0).task.clients == 5
    assert list(experiment.algorithms) == ["Mine", "fedavg"]


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ("--algorithms nowhere.py:Mine", "nowhere.py: no such file"),
        ("--algorithms no.such.module:Mine", "cannot import 'no.such.module'"),
        ("--algorithms broken:Mine", "cannot import 'broken' (SyntaxError: "),
        ("--algorithms .broken:Mine", "cannot import '.broken' (TypeError: "),
        ("--algorithms :Mine", "cannot import '' (ValueError: "),
        ("--algorithms own_parts.py:Yours", "own_parts.py has no 'Yours'; it has"),
        ("--algorithms own_parts.py:Mine:gamma=1", "Mine has no option 'gamma'; it has eta_g, clip, beta, loud"),
        ("--algorithms own_parts.py:Mine:loud=perhaps", "expected true or false"),
        ("--algorithms broken.py:Mine", "broken.py: cannot be imported (SyntaxError"),
        ("--algorithms mine", "unknown algorithm 'mine'; choose from fedawe"),
        ("--algorithms own_parts.py:Half", "is not an algorithm: Half has no init"),
        ("--task own_parts.py:Half", "is not a fedawe.tasks.Task"),
        (
            "--task own_parts.py:Net",
            "own_parts.py:Net is a torch.nn.Module, which is a network, not a task; name the data with --task, and the "
            "network with --model own_parts.py:Net",
        ),
        (
            "--partition own_parts.py:nothing",
            "the partition nothing returned None; expected the samples of each client, a list of vectors of sample "
            "numbers: is a return missing?",
        ),
        (
            "--partition own_parts.py:labels_only",
            "the partition labels_only cannot be called with (labels, seed): too many positional arguments; expected a",
        ),
        ("--task own_parts.py:task:size=3", "task has no option 'size'; it has clients"),
        ("--dynamics own_parts.py:task", "task cannot be built from no options: task() missing 1 required"),
        ("--dynamics week", "unknown dynamics 'week'; choose from stationary"),
        ("own_parts.py", "must define one fedawe.Experiment, but defines none"),
        ("study.py --alpha 0.3", "defines the experiment; only --rounds, --seeds, --out"),
        ("missing.py", "missing.py: no such file"),
        ("--algorithms random.py:Mine", "random.py: has the same name as random, a module of Python; rename the"),
        ("--algorithms numpy.py:Mine", "numpy.py: a module numpy is already loaded, from "),
        (
            "--algorithms own_parts.py:Mine b/others.py:Mine",
            "b/others.py:Mine and another algorithm are both called Mine",
        ),
        ("--algorithms own_parts.py:Mine own_parts.py:Mine", "an algorithm was given twice: own_parts.py:Mine own_"),
        ("--algorithms own_parts.py:Mine b/own_parts.py:Mine", "b/own_parts.py: a module own_parts is already loaded"),
    ],
)
def test_what_cannot_be_found_is_said_in_one_line(
    words: str, said: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "own_parts.py").write_text(OWN)
    (tmp_path / "broken.py").write_text("def (:")
    (tmp_path / "b").mkdir()
    for name in ("random.py", "numpy.py", "b/own_parts.py", "b/others.py"):
        (tmp_path / name).write_text(OWN)
    shutil.copy(STUDY, tmp_path / "study.py")
    monkeypatch.chdir(tmp_path)
    with pytest.raises(SystemExit) as stopped:
        typed(monkeypatch, "run", *words.split(), "--rounds", "2", "--out", "out")
    assert stopped.value.code == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert said in line
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize("text", ["fedau:K=20,K=30", "fedau:K=20, K=30", "fedau: =20", "fedau:K= "])
def test_an_option_is_given_once_and_has_a_value(text: str) -> None:
    with pytest.raises(UserError, match="cannot read"):
        algorithm_spec(text)


def test_a_name_of_ones_own_comes_after_the_built_in_ones() -> None:
    assert names.parse("mine", "algorithms", {"mine": fedawe.FedAvg}).target is fedawe.FedAvg


# From Python


class Tool(fedawe.Tracker):
    """A tracker that does nothing."""

    def evaluated(self, run: Any, rounds: int, metrics: Any) -> None:
        pass


def quadratic(**changes: Any) -> fedawe.Experiment:
    fields: dict[str, Any] = {
        "task": fedawe.Quadratic(torch.tensor([[0.0], [100.0]])),
        "algorithms": {"ours": fedawe.FedAWE(), "plain": fedawe.FedAvg(), "known": fedawe.FedAvgKnown()},
        "availability": fedawe.Stationary(),
        "p": [0.9, 0.3],
        "local": fedawe.Local(fedawe.Rate(0.01, "constant"), steps=1),
        "rounds": 20,
    }
    return fedawe.Experiment(**{**fields, **changes})


def test_a_script_needs_no_guard_to_use_processes(tmp_path: Path) -> None:
    (tmp_path / "script.py").write_text(
        "from dataclasses import dataclass\n"
        "import fedawe, torch\n"
        "@dataclass(frozen=True)\n"
        "class Mine(fedawe.FedAvg):\n"
        "    pass\n"
        "experiment = fedawe.Experiment(task=fedawe.Quadratic(torch.tensor([[0.0], [9.0]])), p=0.5, rounds=5,\n"
        "    algorithms={'mine': Mine(), 'fedavg': fedawe.FedAvg()}, seeds=(0, 1))\n"
        "results = experiment.run('out', jobs=2)\n"
        "print('done')\n"
    )
    done = subprocess.run([sys.executable, "script.py"], cwd=tmp_path, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout) == (0, "done\n"), done.stderr
    assert evaluations(tmp_path / "out")["mine/seed-1/record.jsonl"][-1]["round"] == 5


def test_a_script_and_the_command_line_write_the_same_folder(tmp_path: Path) -> None:
    (tmp_path / "script.py").write_text(
        "from dataclasses import dataclass\n"
        "import fedawe, torch\n"
        "from fedawe.core.describe import described, rebuilt\n"
        "ONE = 1.0\n"
        "@dataclass(frozen=True)\n"
        "class Mine(fedawe.FedAvg):\n"
        "    def model(self, state):\n"
        "        return ONE * super().model(state)\n"
        "experiment = fedawe.Experiment(task=lambda seed: fedawe.Quadratic(torch.tensor([[0.0], [9.0]])), p=0.5,\n"
        "    algorithms={'mine': Mine()}, seeds=(0, 1), rounds=3)\n"
        "if __name__ == '__main__':\n"
        "    experiment.run('out')\n"
        "    assert rebuilt(described(Mine())) == Mine()\n"
    )

    def run(*words: str) -> dict[str, bytes]:
        done = subprocess.run([sys.executable, *words], cwd=tmp_path, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stderr
        return {str(path): path.read_bytes() for path in (tmp_path / "out").rglob("record.jsonl")}

    before = run("script.py")
    header = json.loads((tmp_path / "out" / "mine" / "seed-0" / "record.jsonl").read_text().splitlines()[0])
    assert header["algorithm"]["class"] == "script:Mine"
    assert header["task"]["function"] == "script:<lambda>"
    assert run("-m", "fedawe", "run", "script.py", "--out", "out", "--jobs", "2") == before
    assert run("script.py") == before


def test_dynamics_are_drawn_for_every_seed_and_a_recorded_trace_is_shared() -> None:
    drawn = quadratic()
    assert not np.array_equal(drawn.population(0).trace.on, drawn.population(1).trace.on)
    trace = fedawe.Trace(np.random.default_rng(0).random((20, 2)) < 0.5)
    shared = quadratic(availability=trace, p=None, algorithms={"a": fedawe.FedAvg()})
    assert np.array_equal(shared.population(0).trace.on, shared.population(1).trace.on)


def test_other_probabilities_behind_the_same_trace_are_noticed(tmp_path: Path) -> None:
    on = np.random.default_rng(0).random((20, 2)) < 0.5

    def run(p: Any) -> None:
        trace = fedawe.Trace(on, p=None if p is None else np.full((20, 2), p))
        algorithms = {"a": fedawe.FedAvg() if p is None else fedawe.FedAvgKnown()}
        quadratic(availability=trace, p=None, algorithms=algorithms, seeds=(0,)).run(tmp_path)

    run(0.6)
    run(0.6)
    with pytest.raises(UserError, match=r"holds an experiment with other content of availability\.p; choose another"):
        run(0.9)
    head = read_head(tmp_path / "experiment.json")
    assert head is not None
    del head["experiment"]["availability"]["p"]  # as earlier versions had it
    (tmp_path / "experiment.json").write_bytes(head_content(head))
    with pytest.raises(UserError, match=r"seed-0\.npz: is not the trace of this experiment; choose another"):
        run(0.9)
    run(0.6)


def test_an_algorithm_may_be_trained_in_its_own_way() -> None:
    own = fedawe.Local(steps=3)
    local = quadratic(local={"ours": own, "default": fedawe.Local(steps=7)})
    assert (local.local_of("ours").steps, local.local_of("plain").steps) == (3, 7)


def test_seeds_may_be_an_array() -> None:
    assert quadratic(seeds=np.arange(3)).seeds == quadratic(seeds=torch.arange(3)).seeds == (0, 1, 2)
    assert quadratic(seeds=np.array(4)).seeds == (4,)


def test_labels_that_cannot_be_file_names_are_quoted(tmp_path: Path) -> None:
    experiment = quadratic(algorithms={"a/b: c?": fedawe.FedAvg()}, seeds=(0,))
    experiment.run(tmp_path / "out")
    (record,) = evaluations(tmp_path / "out")
    assert record.count("/") == 2
    header = json.loads((tmp_path / "out" / record).read_text().splitlines()[0])
    assert header["label"] == "a/b: c?"


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"algorithms": {}}, "no algorithm given"),
        ({"algorithms": {"a": fedawe.FedAvg}}, "a is a class; expected an object, as in FedAvg()"),
        ({"algorithms": {"a": object()}}, "a is not an algorithm: object has no init, start, aggregate, model"),
        ({"algorithms": {"": fedawe.FedAvg()}}, "must be text that can name a folder"),
        ({"task": 3}, "task is a int; expected a Task, or a function of the seed"),
        ({"availability": 3}, "availability is a int; expected dynamics, a Trace, or the path of a trace"),
        ({"availability": fedawe.Sine}, "availability is a class; expected an object, as in Sine()"),
        ({"availability": "sine"}, "availability is 'sine', which is not the path of a trace; for these dynamics give"),
        ({"availability": "interleaved:gamma=1"}, "give the object fedawe.InterleavedSine()"),
        ({"local": 0.1}, "local is 0.1; expected how clients train, as in fedawe.Local(fedawe.Rate(0.1), steps=10)"),
        ({"local": {"ours": 0.1}}, "local of ours is 0.1; expected how clients train"),
        (
            {"local": {1: fedawe.Local(), "x": fedawe.Local()}},
            "local names 1, x, but the algorithms are ours, plain, kn",
        ),
        ({"seeds": np.array([0.5, 1.0])}, "a seed is a whole number from 0, not 0.5"),
        ({"seeds": np.array([[0, 1]])}, "a seed is a whole number from 0, not [0, 1]"),
        ({"local": fedawe.Local}, "expected how clients train"),
        ({"task": torch.nn.Linear(2, 2)}, "task is a torch.nn.Module, which is a network, not a task; expected fedawe"),
        ({"task": torch.nn.Linear}, "task is a torch.nn.Module, which is a network, not a task"),
        ({"p": "often"}, "probabilities must be numbers: could not convert string to float: 'often'"),
        ({"p": ["a", "b"]}, "probabilities must be numbers"),
        ({"seeds": ()}, "no seed given"),
        ({"seeds": (0, 0)}, "a seed was given twice"),
        ({"seeds": (-1,)}, "a seed is a whole number from 0, not -1"),
        ({"rounds": 0}, "rounds is 0; expected a whole number from 1"),
        ({"evaluate_every": 0}, "evaluate_every is 0"),
        ({"local": {"theirs": fedawe.Local()}}, "local names theirs, but the algorithms are ours, plain, known"),
        (
            {"availability": fedawe.Trace([[1, 1]]), "p": None, "rounds": 1},
            "known needs the probabilities of every round",
        ),
        ({"availability": fedawe.Trace([[1, 1]])}, "rounds is 20, but the recorded trace has 1; use at most"),
        ({"availability": fedawe.Trace([[1, 1]]), "rounds": 1}, "p has no meaning for a recorded trace"),
    ],
)
def test_a_wrong_experiment_is_refused(changes: dict[str, Any], said: str) -> None:
    with pytest.raises(UserError) as refused:
        quadratic(**changes)
    assert said in str(refused.value)


# Mistakes in classes of one's own


class Own(fedawe.tasks.Task):
    """A task as anybody would write it: the number of clients is set in `__init__`."""

    def __init__(self, clients: Any = 3, width: int = 2) -> None:
        if clients is not None:
            self.clients = clients
        self.width = width

    def initial(self, seed: int) -> Tensor:
        return torch.zeros(2)

    def batches(self, work: Any) -> Any:
        return None

    def gradients(self, x: Tensor, batches: Any, step: int) -> Tensor:
        return torch.ones(len(x), self.width)

    def evaluate(self, x: Tensor) -> Any:
        return {"loss": float(x.sum())}


class Said(Own):
    """A task that says more of its clients."""

    def __init__(self, sizes: Any = None, losses: Any = None) -> None:
        super().__init__()
        self.sizes, self.found = sizes, losses

    def losses(self, x: Tensor, batches: Any) -> Any:
        return self.found(x)


class OneByOne(Own):
    """A task that trains one client at a time."""

    def gradients(self, x: Tensor, batches: Any, step: int) -> Tensor:
        return torch.ones(1, self.width)


@dataclasses.dataclass(frozen=True)
class Verbs:
    """An algorithm with four verbs and perhaps a fault."""

    fault: str = ""

    def init(self, x0: Tensor, m: int) -> Any:
        found = {"dict": {"x": x0, "t": -1}, "none": None, "plain": Plain(x0, m)}
        return found.get(self.fault, ServerState(-1, m, x0))

    def start(self, state: Any, A: Tensor) -> Any:
        return None if self.fault == "start" else state.x.repeat(len(A), 1)

    def aggregate(self, state: Any, t: int, A: Tensor, G: Tensor) -> Any:
        wrong = {"forgets": None, "other": {"t": t}, "stays": state, "tensor": state.x}
        wrong["another"] = Plain(state.x, state.m, t)
        return wrong[self.fault] if self.fault in wrong else state.after(t)

    def model(self, state: Any) -> Any:
        return None if self.fault == "model" else state.x


class Plain:
    """Everything that a state has, but no dataclass."""

    def __init__(self, x0: Tensor, m: int, t: int = -1) -> None:
        self.t, self.m, self.x, self.latest = t, m, x0, x0


@dataclasses.dataclass(frozen=True)
class Remembering(Verbs):
    """An algorithm whose state holds something besides the model, as a function of the model."""

    made: Any = None

    def init(self, x0: Tensor, m: int) -> Any:
        return Remembered(-1, m, x0, self.made(x0))


@dataclasses.dataclass(frozen=True)
class Remembered(ServerState):
    h: Any


@dataclasses.dataclass(frozen=True)
class Counting(ServerState):
    calls: int = dataclasses.field(default=0, init=False)


class Bare(Own):
    metrics: Any = fedawe.Metric("loss")  # without a comma, no tuple

    def __init__(self, *metrics: Any) -> None:
        super().__init__()
        self.metrics = metrics or self.metrics


class Held(Verbs):
    metrics: Any = fedawe.Metric("loss")


class Holder:
    """An algorithm that is no dataclass and has something that it calls its rule."""

    init, start, aggregate, model = Verbs().init, Verbs().start, Verbs().aggregate, Verbs().model

    def __init__(self, rule: Any) -> None:
        self.rule = rule


class Absorbing(Verbs):
    def absorb(self, state: Any, t: int, A: Tensor, upload: Any) -> Any:
        return None


class Sending(Verbs):
    """An algorithm that sends something of each client's model, besides where it begins."""

    def broadcast(self, state: Any, t: int, A: Tensor) -> Any:
        x = state.x.repeat(len(A), 1)
        return fedawe.Broadcast(**{"x": x, **self.fault(t, x)})


class Times(fedawe.Dynamics):
    def __init__(self, found: Any) -> None:
        self.found = found

    def trajectory(self, t: Any, p: Any) -> Any:
        return self.found(t, p)


class Alone:
    """Dynamics that have nothing but `probabilities`."""

    def probabilities(self, t: Any, p: Any) -> Any:
        return np.where(np.asarray(t)[..., None] == 7, 1.5, 0.5) * np.ones(len(p))


class Late(Times):
    def available(self, seed: int, t: int, p: Any, before: Any) -> Any:
        return np.ones(len(p), dtype=bool)


class Short(fedawe.Stationary):
    def available(self, seed: int, t: int, p: Any, before: Any) -> Any:
        return np.ones(2, dtype=bool)


def own(**changes: Any) -> fedawe.Experiment:
    fields: dict[str, Any] = {
        "task": Own(), "algorithms": {"a": Verbs()}, "availability": fedawe.Stationary(), "p": 0.9, "rounds": 10,
        "seeds": (0,),
    }  # fmt: skip
    return fedawe.Experiment(**{**fields, **changes})


def test_a_task_may_set_its_number_of_clients_when_it_is_made(tmp_path: Path) -> None:
    assert own().run(tmp_path / "out").frame().shape[0] > 0
    check_task(Own())


class Several(Own):
    """A task with a metric that decides, and others whose names end alike."""

    metrics = (fedawe.Metric("loss", better="lower", decides=True),)

    def evaluate(self, x: Tensor) -> Any:
        return {"loss": float(x.sum()), "train_loss": 1.0, "max_loss": 2.0}


def test_metrics_whose_names_end_alike_are_no_further_models(tmp_path: Path) -> None:
    algorithms = {"FedAvg": fedawe.FedAvg(), "FedAWE": fedawe.FedAWE()}
    results = own(task=Several(), algorithms=algorithms).run(tmp_path / "out")
    assert [s.name for s in results.compare().standings if s.variant] == ["FedAWE, last aggregate"]
    assert {"train_loss", "max_loss"} <= {metric.name for metric in metrics_of(results.runs)}
    headers = {run.label: run.header for run in results.runs.runs}
    assert (headers["FedAvg"]["models"], headers["FedAWE"]["models"]) == ([], ["latest"])
    assert "models" not in results.runs.settings


def test_a_class_that_is_no_dataclass_may_call_something_its_rule(tmp_path: Path) -> None:
    for n, rule in enumerate(("mean", fedawe.FedAvg())):
        assert own(algorithms={"a": Holder(rule)}).run(tmp_path / str(n)).frame().shape[0] > 0


def test_labels_are_no_markup_in_the_progress(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    screen = io.StringIO()
    monkeypatch.setattr(show, "Console", lambda stderr: Console(file=screen, force_terminal=True, width=160))
    with show.progress(1) as shown:
        quadratic(algorithms={"mine [/b]": fedawe.FedAvg()}, seeds=(0,)).run(tmp_path / "out", tell=shown.tell)
        shown.warn("FedAWE [clip=0.5] is damaged [/b]")
        assert shown.bars is not None
        shown.bars.update(shown.one, description="mine [/b], seed 0")
        shown.bars.refresh()
    assert "FedAWE [clip=0.5] is damaged [/b]" in screen.getvalue()
    assert "mine [/b], seed 0" in screen.getvalue()


def test_a_task_that_trains_one_client_at_a_time_is_never_stacked(tmp_path: Path) -> None:
    own(task=OneByOne()).run(tmp_path / "out")
    header = json.loads((tmp_path / "out" / "a" / "seed-0" / "record.jsonl").read_text().splitlines()[0])
    assert header["stacked"] is False


@pytest.mark.parametrize(
    ("made", "said"),
    [
        (
            lambda x: None,
            "whose h is None, which a checkpoint cannot store; expected a tensor, a number, a State, or",
        ),
        (lambda x: "adam", "whose h is a str, which a checkpoint"),
        (lambda x: [1.0, 2.0], "whose h is a list, which a checkpoint"),
        (lambda x: [x], "whose h is a list, which a checkpoint"),
        (lambda x: (x, x), "whose h is a tuple, which a checkpoint"),
        (lambda x: np.zeros(3), "whose h is a ndarray, which a checkpoint"),
        (lambda x: {"a": x}, "whose h is a dict from str to Tensor, which a checkpoint"),
        (lambda x: {0: {1: x}}, "whose h is a dict from int to dict, which a checkpoint"),
        (lambda x: {0: x, 1: 0.5}, "whose h is a dict from int to Tensor and float, which a checkpoint"),
        (lambda x: {0: x[0]}, "whose h is a dict from int to Tensor, which a checkpoint"),
        (lambda x: Remembered(-1, 3, x, [x]), "whose h.h is a list, which a checkpoint"),
        (lambda x: Counting(-1, 3, x), "which cannot be restored from its fields ("),
    ],
)
def test_a_state_of_which_no_checkpoint_can_be_made_is_refused(made: Any, said: str) -> None:
    for algorithm in (Remembering(made=made), fedawe.FedAvgM(rule=Remembering(made=made))):
        with pytest.raises(UserError, match=r"Remembering.init returned a Remembered") as refused:
            fedawe.simulate(Own(), algorithm, fedawe.Trace(np.ones((2, 3))), fedawe.Local(), seed=0)
        assert said in str(refused.value)
        assert "\n" not in str(refused.value)


@pytest.mark.parametrize(
    "made", [lambda x: x, lambda x: 0.1, lambda x: True, np.float32, np.int64, lambda x: {}, lambda x: {np.int64(2): x}]
)
def test_a_state_comes_back_from_a_checkpoint_as_it_was(made: Any) -> None:
    made = made if not isinstance(made, type) else (lambda x, kind=made: kind(3))
    state = first_state(Remembering(made=made), torch.zeros(2), 3)
    found = unpack(state, pack(state)).h
    assert type(found) is type(state.h)
    assert torch.equal(found, state.h) if isinstance(found, Tensor) else found == state.h


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"task": Own(None)}, "Own does not say how many clients it has; give it `clients`, as in self.clients = 10"),
        ({"task": Own("3")}, "Own.clients is '3'; expected the number of clients, a whole number from 1"),
        ({"task": Own(width=3)}, "Own.gradients returned a tensor of shape [1, 3] for x of shape [1, 2]; expected"),
        ({"algorithms": {"a": Verbs("dict")}}, "Verbs.init returned a dict, which has no t, m, latest; expected"),
        ({"algorithms": {"a": Verbs("none")}}, "Verbs.init returned None; expected a dataclass with t, m and latest"),
        ({"algorithms": {"a": Verbs("plain")}}, "Verbs.init returned a Plain, which is no dataclass"),
        ({"algorithms": {"a": fedawe.FedAvgM(rule=Verbs("dict"))}}, "Verbs.init returned a dict, which has no t"),
        ({"algorithms": {"a": Verbs("start")}}, "Verbs.start returned NoneType for one client; expected a tensor of"),
        ({"algorithms": {"a": Verbs("model")}}, "Verbs.model returned NoneType; expected a tensor of shape [2]"),
        ({"task": Said([3, 4])}, "Said.sizes is int64 of shape [2]; expected the number of samples of each of the 3"),
        ({"task": Said([3, 4, 0.5])}, "Said.sizes is float64 of shape [3]; expected the number of samples of each of"),
        (
            {"task": Said(5)},
            "Said.sizes is int64 of shape []; expected the number of samples of each of the 3 clients,",
        ),
        (
            {"availability": Times(lambda t, p: np.ones(5))},
            "Times.trajectory returned an array of shape [5] for 3 clients; expected one number per client, [3] or",
        ),
        ({"availability": Times(lambda t, p: None)}, "Times gives client 0 the probability nan in round 0"),
        (
            {"availability": Times(lambda t, p: np.where(t == 4, np.nan, p))},
            "Times gives client 0 the probability nan in round 4; expected a number in [0, 1]",
        ),
        (
            {"availability": Late(lambda t, p: np.where(t == 4, np.nan, p))},
            "Late gives client 0 the probability nan in round 4; expected a number in [0, 1]",
        ),
        ({"availability": Alone()}, "Alone gives client 0 the probability 1.5 in round 7; expected a number in [0, 1]"),
        ({"availability": Short()}, "Short.available returned an array of shape [2] in round 0; expected whether"),
        (
            {"task": Bare()},
            "Bare.metrics is a Metric; expected a tuple of metrics, as in (fedawe.Metric('loss', better='lower'),)",
        ),
        ({"task": Bare(fedawe.Metric("loss"), "x")}, "Bare.metrics has a str; expected a tuple of metrics"),
        ({"algorithms": {"a": Held()}}, "Held.metrics is a Metric; expected a tuple of metrics"),
        (
            {"algorithms": {"a": Holder(fedawe.FedAvgKnown())}},
            "Holder is no dataclass and cannot be given its rule; make it a dataclass with a field rule",
        ),
        ({"task": lambda seed: torch.nn.Linear(2, 2)}, "task(seed) returned a Linear; expected a fedawe.tasks.Task;"),
    ],
)
def test_a_mistake_in_a_class_of_ones_own_is_named_before_anything_is_written(
    changes: dict[str, Any], said: str, tmp_path: Path
) -> None:
    with pytest.raises(UserError) as refused:
        own(**changes).run(tmp_path / "out")
    assert said in str(refused.value)
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize(
    ("algorithm", "said"),
    [
        (Verbs("forgets"), "Verbs.aggregate returned None in round 0; expected the state after the round, a Server"),
        (Verbs("other"), "Verbs.aggregate returned a dict in round 0; expected the state after the round, a Server"),
        (Verbs("stays"), "Verbs.aggregate returned a ServerState with t = -1 in round 0; expected t = 0, as state."),
        (Verbs("tensor"), "Verbs.aggregate returned a Tensor in round 0; expected the state after the round, a Server"),
        (Verbs("another"), "Verbs.aggregate returned a Plain in round 0; expected the state after the round, a Server"),
        (Absorbing(), "Absorbing.absorb returned None in round 0; expected the state after the round"),
        (fedawe.FedAvgM(rule=Verbs("forgets")), "Verbs.aggregate returned None in round 0"),
    ],
)
def test_a_round_without_a_state_after_it_is_named(algorithm: Any, said: str) -> None:
    trace = fedawe.Trace(np.ones((2, 3), dtype=bool))
    with pytest.raises(UserError) as refused:
        next(fedawe.simulate(Own(), algorithm, trace, fedawe.Local(), seed=0))
    assert said in str(refused.value)


@pytest.mark.parametrize(
    ("sent", "said"),
    [
        (
            lambda t, x: {"x": x[:1]},
            "x is torch.float32 of shape [1, 2] in round 0; expected one row per client, [3, 2]",
        ),
        (
            lambda t, x: {"shift": x[0]},
            "shift is torch.float32 of shape [2] in round 0; expected one row per client, [1",
        ),
        (
            lambda t, x: {"shift": x[:1]},
            "shift is torch.float32 of shape [1, 2] in round 0; expected one row per client",
        ),
        (lambda t, x: {"shift": [0.0]}, "shift is a list in round 0; expected one row per client, [1, 2]"),
        (lambda t, x: {"rounds": [1] * len(x)}, "rounds is a list in round 0; expected how many rounds of work each"),
        (lambda t, x: {"rounds": torch.ones(len(x))}, "rounds is torch.float32 of shape [1] in round 0; expected how"),
        (lambda t, x: {"rounds": torch.ones(1).long()}, "rounds is torch.int64 of shape [1] in round 0; expected how"),
        (
            lambda t, x: {"rounds": torch.full((len(x),), t)},
            "rounds has 0 in round 0; expected how many rounds of work",
        ),
        (
            lambda t, x: {"rounds": torch.full((len(x),), 2 * t + 1)},
            "rounds has 3 in round 1; expected how many rounds",
        ),
    ],
)
def test_what_clients_cannot_receive_is_refused(sent: Any, said: str) -> None:
    trace = fedawe.Trace(np.ones((2, 3), dtype=bool))
    with pytest.raises(UserError) as refused:
        list(fedawe.simulate(Own(), Sending(sent), trace, fedawe.Local(), seed=0))
    assert f"Broadcast.{said}" in str(refused.value)


@pytest.mark.parametrize(
    ("losses", "said"),
    [
        (
            lambda x: torch.tensor(1.0),
            "Said.losses returned a tensor of shape [] for x of shape [1, 2]; expected a tensor",
        ),
        (
            lambda x: torch.ones(2),
            "Said.losses returned a tensor of shape [2] for x of shape [1, 2]; expected a tensor",
        ),
        (
            lambda x: [1.0] * len(x),
            "Said.losses returned a list for x of shape [1, 2]; expected a tensor with one loss",
        ),
        (lambda x: None, "Said.losses returned a NoneType for x of shape [1, 2]; expected a tensor with one loss for"),
    ],
)
def test_losses_are_one_number_for_each_client(losses: Any, said: str) -> None:
    trace, oort = fedawe.Trace(np.ones((2, 3), dtype=bool)), fedawe.Chosen(fedawe.FedAvg(), fedawe.Oort(1))
    with pytest.raises(UserError) as refused:
        list(fedawe.simulate(Said(losses=losses), oort, trace, fedawe.Local(), seed=0))
    assert said in str(refused.value)


@pytest.mark.parametrize("sizes", [[3, 400, 5], torch.tensor([3, 400, 5])])
def test_sizes_may_be_a_list(sizes: Any) -> None:
    trace, local = fedawe.Trace(np.ones((1, 3), dtype=bool)), fedawe.Local(epochs=1, batch=100)
    found = next(fedawe.simulate(Said(sizes), fedawe.FedAvg(), trace, local, seed=0))
    torch.testing.assert_close(found.x, torch.full((2,), -0.1 * (1 + 4 + 1) / 3))


@pytest.mark.parametrize("rate", [None, "0.1", -1.0, float("nan"), torch.ones(2)])
def test_a_rate_that_is_no_number_is_refused(rate: Any) -> None:
    trace, local = fedawe.Trace(np.ones((1, 3), dtype=bool)), fedawe.Local(lambda t: rate)
    with pytest.raises(UserError) as refused:
        next(fedawe.simulate(Own(), fedawe.FedAvg(), trace, local, seed=0))
    assert f"the learning rate of round 0 is {rate!r}; expected a number from 0 to 1e+30" in str(refused.value)


@pytest.mark.parametrize("kind", [np.float32, torch.tensor])
def test_a_rate_may_be_a_number_of_numpy_or_torch(kind: Any) -> None:
    trace = fedawe.Trace(np.ones((3, 3), dtype=bool))
    *_, last = fedawe.simulate(Own(), fedawe.SCAFFOLD(), trace, fedawe.Local(lambda t: kind(0.25)), seed=0)
    *_, same = fedawe.simulate(Own(), fedawe.SCAFFOLD(), trace, fedawe.Local(lambda t: 0.25), seed=0)
    assert torch.equal(last.x, same.x)


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"trackers": Tool()}, "trackers is a Tool; expected a list, as in trackers=[...]"),
        ({"jobs": "2"}, "jobs is '2'; expected a whole number from 1"),
        ({"workers": 1.5}, "workers is 1.5; expected a whole number from 1"),
        ({"checkpoint_every": None}, "checkpoint_every is None; expected a whole number from 1"),
        ({"device": "gpu"}, "device is 'gpu'; expected cpu or cuda"),
        ({"device": "mps"}, "device is 'mps'; expected cpu or cuda"),
    ],
)
def test_a_wrong_way_to_run_is_refused(changes: dict[str, Any], said: str, tmp_path: Path) -> None:
    with pytest.raises(UserError) as refused:
        quadratic().run(tmp_path / "out", **changes)
    assert said in str(refused.value)
    assert not (tmp_path / "out").exists()


def test_probabilities_must_fit_the_clients(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="p has 3 numbers for 2 clients"):
        quadratic(p=[0.1, 0.2, 0.3]).run(tmp_path / "out")
    with pytest.raises(UserError, match="p is needed: the task has no labels"):
        quadratic(p=None).run(tmp_path / "out")
    with pytest.raises(UserError, match="run has no option 'cores'; it has engine, workers, jobs"):
        quadratic().run(tmp_path / "out", cores=3)
    assert not (tmp_path / "out").exists()


def test_more_algorithms_and_seeds_join_a_folder_and_another_experiment_does_not(tmp_path: Path) -> None:
    one = quadratic(algorithms={"plain": fedawe.FedAvg()}, seeds=(0,))
    one.run(tmp_path / "out")
    before = models(tmp_path / "out")
    dataclasses.replace(one, algorithms={"ours": fedawe.FedAWE()}, seeds=(0, 1)).run(tmp_path / "out")
    assert len(models(tmp_path / "out")) == 3
    assert before.items() <= models(tmp_path / "out").items()
    with pytest.raises(UserError, match=r"holds an experiment with p = \[0.9, 0.3\], not \[0.5\]; choose another"):
        quadratic(p=0.5).run(tmp_path / "out")
    with pytest.raises(UserError, match=r"was made with algorithm\.eta_g = 1.0, not 0.5"):
        quadratic(algorithms={"plain": fedawe.FedAvg(eta_g=0.5)}, seeds=(0,)).run(tmp_path / "out")


# Objects of one's own, made from something else


class Rule:
    """An algorithm that is no dataclass."""

    linear = True

    def __init__(self, most: int = 1) -> None:
        self.inner = fedawe.FedAWE(max_echo=most)

    def init(self, x0: Tensor, m: int) -> Any:
        return self.inner.init(x0, m)

    def start(self, state: Any, A: Tensor) -> Any:
        return self.inner.start(state, A)

    def aggregate(self, state: Any, t: int, A: Tensor, G: Tensor) -> Any:
        return self.inner.aggregate(state, t, A, G)

    def model(self, state: Any) -> Any:
        return self.inner.model(state)


class Doubled(Rule):
    """What it holds has the name of its argument, and is something else."""

    def __init__(self, most: int = 1) -> None:
        super().__init__(2 * most)
        self.most = 2 * most


class Capped(Rule):
    """It can be made again from what it holds."""

    def __init__(self, inner: Any = None) -> None:
        self.inner = inner or fedawe.FedAWE()


class Later(fedawe.FedAvg):
    """A subclass of a dataclass that is none."""

    def __init__(self, wait: int) -> None:
        super().__init__()
        object.__setattr__(self, "wait", wait)


class Mode(enum.Enum):
    ONE = 1
    TWO = 2


@dataclasses.dataclass(frozen=True)
class With(fedawe.FedAvg):
    """Anything as a hyper-parameter."""

    value: Any = None


class First:
    """A way to choose clients that is no dataclass."""

    def __init__(self, k: int) -> None:
        self.k = k

    def pick(self, state: Any, t: int, A: Tensor, draw: Any) -> Any:
        return A[: self.k]


def nested(width: int) -> Any:
    def task(seed: int) -> Own:
        return Own(3, width)

    return task


class Maker:
    def __init__(self, clients: int) -> None:
        self.clients = clients

    def task(self, seed: int) -> Own:
        return Own(self.clients)


CHANGED: dict[str, tuple[dict[str, Any], dict[str, Any]]] = {
    "task": ({"task": Own(3)}, {"task": Own(4)}),
    "dynamics": ({"availability": Times(np.add)}, {"availability": Times(np.subtract)}),
    "closure": ({"task": nested(2)}, {"task": nested(3)}),
    "lambda": ({"task": lambda seed: Own(3)}, {"task": lambda seed: Own(4)}),
    "default": tuple({"task": lambda seed, clients=n: Own(clients)} for n in (3, 4)),  # type: ignore[dict-item]
    "method": ({"task": Maker(3).task}, {"task": Maker(4).task}),
    "partial": tuple({"task": functools.partial(Maker(n).task)} for n in (3, 4)),  # type: ignore[dict-item]
    **{
        f"algorithm {n}": ({"algorithms": {"a": one}}, {"algorithms": {"a": other}})
        for n, (one, other) in enumerate(
            [
                (Rule(1), Rule(2)),
                (Later(1), Later(2)),
                (fedawe.Chosen(fedawe.FedAvg(), First(2)), fedawe.Chosen(fedawe.FedAvg(), First(3))),
                (With(value=Mode.ONE), With(value=Mode.TWO)),
                (With(value=range(3)), With(value=range(4))),
                (With(value=b"one"), With(value=b"two")),
                (With(value=torch.float32), With(value=torch.float64)),
                (With(value=[1.5] * 5000), With(value=[1.5] * 4999 + [2.5])),
                (With(value=torch.ones(2, dtype=torch.bfloat16)), With(value=torch.zeros(2, dtype=torch.bfloat16))),
                (With(value=np.array([1, None])), With(value=np.array([2, None]))),
            ]
        )
    },
}


@pytest.mark.parametrize("changed", CHANGED)
def test_whatever_an_object_is_made_from_is_described(changed: str) -> None:
    found = []
    for changes in CHANGED[changed]:
        experiment = own(**changes)
        found.append(json.dumps([experiment.described(), described(experiment.algorithms["a"])]))
    assert found[0] != found[1]
    assert "0x" not in found[0]


def test_a_task_that_is_made_from_something_else_is_refused(tmp_path: Path) -> None:
    own(task=Own(3), seeds=(0, 1)).run(tmp_path, jobs=2)
    own(task=Own(3), seeds=(0, 1)).run(tmp_path)
    with pytest.raises(UserError, match=r"holds an experiment with task\.clients = 3, not 4; choose another --out"):
        own(task=Own(4)).run(tmp_path)


class Busy(Own):
    """A task with much that is another thing in every process, and nothing of which changes a result."""

    def __init__(self) -> None:
        super().__init__()
        self.net = torch.nn.Sequential(torch.nn.Linear(2, 2))  # not seeded: only the structure counts
        self.log, self.numpy, self.me = logging.getLogger(__name__), np, self
        self.handlers = {print: object(), Own: torch.Generator()}
        self.lines = ["a line"] * 1000

    @functools.cached_property
    def slow(self) -> int:
        return 3


def test_what_is_another_thing_in_every_process_is_not_described(tmp_path: Path) -> None:
    one, two = Busy(), Busy()
    assert two.slow == 3
    assert described(one) == described(two)
    two.net.append(torch.nn.Linear(2, 2))
    assert described(one) != described(two)
    text = json.dumps(described(one))
    assert len(text) < 2000
    assert "0x" not in text


def test_a_run_does_not_change_what_it_was_made_from(tmp_path: Path) -> None:
    class Counting(Own):
        seen = 0

        def evaluate(self, x: Tensor) -> Any:
            self.seen += 1
            return super().evaluate(x)

    experiment = own(task=Counting(), seeds=(0, 1))
    experiment.run(tmp_path)
    experiment.run(tmp_path, jobs=2)


def test_an_algorithm_is_made_again_only_from_what_it_was_made_from() -> None:
    assert rebuilt(described(Capped(fedawe.FedAWE(max_echo=7)))).inner.max_echo == 7
    for algorithm in (Rule(5), Doubled(5), With(value=b"bytes"), With(value=Mode.ONE)):
        with pytest.raises(UserError, match=r"cannot be rebuilt|cannot rebuild .*, which the record names"):
            rebuilt(described(algorithm))
    with pytest.raises(UserError, match="its inner would differ"):  # of a record without its attributes
        rebuilt({name: value for name, value in described(Rule()).items() if name != "inner"})


def shared_out(data: Any = None, parts: Any = None, width: int = 4, **more: Any) -> Any:
    def make() -> torch.nn.Module:
        return torch.nn.Sequential(torch.nn.Flatten(), torch.nn.Linear(64, width), torch.nn.Linear(width, 10))

    halves = [np.arange(100), np.arange(100, 200)]
    network = fedawe.tasks.ModuleNetwork(make)
    return Scaled(data or fedawe.digits(), network, halves if parts is None else parts, **more)


class Scaled(fedawe.tasks.Classification):
    """A classification with an attribute of its own."""

    def __init__(self, *args: Any, scale: float = 1.0, **more: Any) -> None:
        self.scale = scale
        super().__init__(*args, **more)

    @functools.cached_property
    def slow(self) -> int:
        return 3


def test_other_data_parts_and_networks_are_refused(tmp_path: Path) -> None:
    task = shared_out()
    assert task.slow == 3
    own(task=task, rounds=1).run(tmp_path)
    own(task=shared_out(), rounds=1).run(tmp_path)
    data = fedawe.digits()
    y_test = data.y_test.clone()
    y_test[0] = (y_test[0] + 1) % 10
    for task, said in (
        (shared_out(dataclasses.replace(data, y_test=y_test)), "other content of task.data"),
        (shared_out(parts=[np.arange(99), np.arange(99, 200)]), "other content of task.parts"),
        (shared_out(width=5), "task.network.make.given.width = 4, not 5"),
        (shared_out(held_out=[np.arange(200, 210), np.arange(210, 220)]), "task.held_out = None, not"),
        (shared_out(scale=2.0), "task.scale = 1.0, not 2.0"),
    ):
        with pytest.raises(UserError) as refused:
            own(task=task, rounds=1).run(tmp_path)
        assert said in str(refused.value)


def test_a_folder_of_a_version_that_did_not_describe_the_data_is_accepted() -> None:
    kind = "fedawe.tasks.classification:Classification"
    now = {"task": {"class": kind, "data": {"name": "digits", "sha256": "0"}, "parts": {"clients": 3}}}
    assert first_difference({"task": {"class": kind}}, now) is None
    assert first_difference({"task": {"class": kind, "data": {"name": "other"}}}, now) is not None
    assert first_difference({"task": {"class": "my:Task"}}, {"task": {"class": "my:Task", "data": 3}}) is not None


def test_other_clients_are_refused_and_a_damaged_file_of_them_is_written_again(tmp_path: Path) -> None:
    class Sized(Own):
        sizes = np.array([3, 4, 5])

    def run() -> list[str]:
        warnings: list[str] = []
        own(task=Sized(), rounds=1).run(tmp_path, warn=warnings.append)
        return warnings

    path = tmp_path / "clients" / "seed-0.npz"
    assert run() == []
    before = path.read_bytes()
    Sized.sizes = np.array([3, 4, 6])  # as if it had been read from a file
    with pytest.raises(UserError, match=r"seed-0\.npz: has other clients than this experiment; choose another"):
        run()
    assert path.read_bytes() == before
    Sized.sizes = np.array([3, 4, 5])
    path.write_bytes(before[: len(before) // 2])
    (warning,) = run()
    assert "cannot be read as npz" in warning
    assert run() == []
