"""A network of the user's own with --model, and in Python: it gets what the named networks get."""

import json
import shlex
import sys
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

import fedawe
from fedawe.cli.main import main
from fedawe.experiments.build import experiment_of
from fedawe.experiments.settings import Settings
from fedawe.tasks import ModuleNetwork

NETS = """
import torch
from torch import nn
from fedawe.tasks import ModuleNetwork

class Net(nn.Module):
    def __init__(self, width: int = 8):
        super().__init__()
        self.hidden, self.out = nn.Linear(64, width), nn.Linear(width, 10)
    def forward(self, x):
        return self.out(self.hidden(x.flatten(1)).relu())

class Needs(nn.Module):
    def __init__(self, n):
        super().__init__()

class Pair(Net):
    def forward(self, x):
        return super().forward(x), None

def five():
    return nn.Sequential(nn.Flatten(), nn.Linear(64, 5))

def narrow():
    return nn.Sequential(nn.Flatten(), nn.Linear(32, 10))

def weighted():
    return ModuleNetwork(Net, loss=half)

def half(outputs, targets):
    return nn.functional.cross_entropy(outputs, targets, reduction="none") / 2

def number():
    return 5

module = nn.Linear(64, 10)
"""


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    monkeypatch.delitem(sys.modules, "nets", raising=False)
    (tmp_path / "nets.py").write_text(NETS)
    return tmp_path


def run(monkeypatch: pytest.MonkeyPatch, words: str) -> int:
    monkeypatch.setattr(sys, "argv", ["fedawe", "run", *shlex.split(words)])
    try:
        main()
    except SystemExit as stopped:
        return int(stopped.code or 0)
    return 0


COMMON = "--task digits --clients 4 --algorithms fedavg --rounds 2 --seeds 0 --steps 2 --out out --model "


def test_it_trains_resumes_and_is_noticed_when_it_changes(
    folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(monkeypatch, f"{COMMON} nets.py:Net:width=6") == 0
    header = json.loads((folder / "out/fedavg/seed-0/record.jsonl").read_text().splitlines()[0])
    model = header["task"]["model"]
    assert (model["function"], model["width"]) == ("nets:Net", 6)
    assert header["parameters"]["hidden.weight"] == [6, 64]
    assert run(monkeypatch, f"{COMMON} nets.py:Net:width=6 --rounds 3 --workers 2") == 0
    assert run(monkeypatch, f"{COMMON} nets.py:Net:width=7") == 2
    (folder / "nets.py").write_text(NETS.replace("relu", "tanh"))
    del sys.modules["nets"]
    capsys.readouterr()
    assert run(monkeypatch, f"{COMMON} nets.py:Net:width=6 --rounds 3") == 2
    assert "another definition of task" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("model", "said"),
    [
        (
            "nets.py:five",
            "digits: the network returns a tensor of shape [1, 5] for one sample; expected a tensor [1, 10]",
        ),
        ("nets.py:Pair", "digits: the network returns a tuple for one sample; expected a tensor [1, 10]"),
        ("nets.py:narrow", "digits: the network cannot compute a sample of the shape [1, 8, 8] (mat1 and mat2 shapes"),
        ("nets.py:Needs", "Needs cannot be built from no options"),
        ("nets.py:number", "nets.py:number gives a int; expected a torch.nn.Module"),
        ("nets.py:module", "nets.py:module is a module; expected its class, or a function that builds it"),
        ("nets.py:nothing", "nets.py has no 'nothing'"),
        ("nets.py:Net:depth=3", "Net has no option 'depth'; it has width"),
        ("nets.py:Net:width=wide", "Net:width is 'wide'; expected a whole number"),
        ("resnet", "unknown network 'resnet'; choose from softmax, mlp, cnn, paper, lstm, or name your own"),
        ("mlp:width=5", "the network mlp has no options, but received 'mlp:width=5'"),
    ],
)
def test_a_mistake_is_one_line_before_anything_is_written(
    folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], model: str, said: str
) -> None:
    assert run(monkeypatch, COMMON + model) == 2
    (line,) = capsys.readouterr().err.strip().splitlines()
    assert said in line
    assert not (folder / "out").exists()


def make() -> nn.Module:
    return nn.Sequential(nn.Flatten(), nn.Linear(64, 10))


@pytest.mark.parametrize("model", [make, ModuleNetwork(make)], ids=["function", "ModuleNetwork"])
def test_a_function_is_a_network_in_python(model: Any) -> None:
    parts = [torch.arange(9).numpy(), torch.arange(9, 30).numpy()]
    task = fedawe.classification(fedawe.digits(), model, partition=parts)
    plain = fedawe.tasks.Classification(fedawe.digits(), ModuleNetwork(make), parts)
    assert torch.equal(task.initial(3), plain.initial(3))
    assert task.evaluate(task.initial(3)) == plain.evaluate(plain.initial(3))


def test_a_network_may_bring_a_loss(folder: Path) -> None:
    losses = []
    for model in ("nets.py:weighted", "nets.py:Net"):
        task = experiment_of(Settings(model=model, clients=4), ["fedavg"]).task
        assert callable(task)
        made: Any = task(0)
        losses.append(made.evaluate(made.initial(0))["test_loss"])
    assert losses[0] == pytest.approx(losses[1] / 2)


def test_a_task_of_ones_own_and_synthetic_take_it_too(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (folder / "own_digits.py").write_text(
        "import fedawe\n"
        "def task(seed, model='mlp'): return fedawe.classification(fedawe.digits(), model, 4, seed=seed)\n"
    )
    monkeypatch.delitem(sys.modules, "own_digits", raising=False)
    experiment = experiment_of(Settings(task="own_digits.py:task", model="nets.py:Net:width=3"), ["fedavg"])
    assert callable(experiment.task)
    assert len(experiment.task(0).initial(0)) == 64 * 3 + 3 + 3 * 10 + 10
    with pytest.raises(fedawe.UserError, match="cannot compute a sample of the shape"):
        experiment_of(Settings(task="synthetic", model="nets.py:Net"), ["fedavg"]).task(0)  # type: ignore[operator]


def test_labels_that_no_class_has_are_refused() -> None:
    x = torch.zeros(3, 4)
    data = fedawe.tasks.Data("mine", x, torch.tensor([0, 1, 1]), x, torch.tensor([0, 1, 2]))
    with pytest.raises(
        fedawe.UserError, match=r"y_test has a class 2, but there are 2 classes \(counted in y_train; give"
    ):
        data.checked()
