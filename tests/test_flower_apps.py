"""Whole apps: any module and data loader, every algorithm by name, and the digits app of the examples."""

import runpy
import subprocess
import sys
import tomllib
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from flower_grid import CONFIG, FakeGrid, connected, run_digits
from flwr.app import Context, RecordDict
from flwr.clientapp import ClientApp
from flwr.serverapp import ServerApp
from safetensors.torch import load_file
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

from fedawe.algorithms import ALGORITHMS
from fedawe.core.errors import UserError
from fedawe.deploy import client_app, digits, server_app
from fedawe.deploy import strategy as strategy_module
from fedawe.deploy.apps import algorithm_from
from fedawe.deploy.replay import deployed, main, replay
from fedawe.deploy.rules import rules_from
from fedawe.results import record as records

EXAMPLE = Path(__file__).parent.parent / "examples" / "flower"


def net() -> nn.Module:
    return nn.Sequential(nn.Linear(2, 8), nn.Tanh(), nn.Dropout(0.1), nn.Linear(8, 2))


def data(client: int) -> DataLoader[Any]:
    x = torch.randn(64, 2, generator=torch.Generator().manual_seed(client))
    return DataLoader(TensorDataset(x, (x[:, 0] > 0).long()), batch_size=16, shuffle=True)


def accuracy(module: nn.Module) -> dict[str, float]:
    x = torch.randn(200, 2, generator=torch.Generator().manual_seed(99))
    with torch.no_grad():
        return {"accuracy": float((module(x).argmax(1) == (x[:, 0] > 0)).float().mean())}


def serve(app: ServerApp, grid: FakeGrid, monkeypatch: pytest.MonkeyPatch, **config: Any) -> None:
    monkeypatch.setattr(strategy_module, "Clock", lambda: grid.clock)
    grid.config = config
    app(grid, Context(1, 1, {}, RecordDict(), config))


def test_any_module_and_loader(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    said = {"clients": 3, "num-rounds": 10, "timeout": 30.0, "steps": 10, "eta0": 0.5, "seed": 4}
    for name in ("one", "two"):
        grid = FakeGrid(client_app(net, data))
        for client in range(3):
            grid.connect(10 + client, client)
        serve(server_app(net, accuracy), grid, monkeypatch, **said, out=str(tmp_path / name))
    lines = records.read(tmp_path / "one" / "record.jsonl").evaluations
    assert lines[-1]["evaluate"]["accuracy"] > 0.9
    assert lines[-1]["train"]["train-loss"] < lines[0]["train"]["train-loss"]
    one, two = (load_file(tmp_path / name / "model.safetensors") for name in ("one", "two"))
    assert set(one) == set(net().state_dict())
    assert all(torch.equal(one[name], two[name]) for name in one)  # shuffling and dropout are named too


def test_a_client_without_batches_is_an_error_and_not_there(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    grid = FakeGrid(client_app(net, lambda client: data(client) if client else []))
    for client in range(2):
        grid.connect(10 + client, client)
    serve(server_app(net), grid, monkeypatch, clients=2, out=str(tmp_path), **{"num-rounds": 1})
    (line,) = records.read(tmp_path / "record.jsonl").evaluations
    assert (line["clients"], line["refused"]) == ([1], {"error": 1})


@pytest.mark.parametrize(
    "spec", [*sorted(set(ALGORITHMS) - {"fedavg-known"}), "fedawe:clip=0.5", "mifa:memory_rate=local"]
)
def test_every_algorithm_by_name_and_replayed(tmp_path: Path, spec: str) -> None:
    grid = connected(config={"algorithm": spec})
    grid.plan(2.0, lambda: grid.disconnect(102))
    grid.plan(5.0, lambda: grid.connect(902, 2))
    run_digits(grid, tmp_path, 6)
    assert torch.equal(replay(tmp_path), deployed(tmp_path))


@pytest.mark.parametrize("model", ["softmax", "mlp", "cnn"])
def test_every_model_of_the_digits(tmp_path: Path, model: str) -> None:
    grid = connected(config={"model": model})
    run_digits(grid, tmp_path, 2)
    assert torch.allclose(replay(tmp_path), deployed(tmp_path), rtol=1e-4, atol=1e-6)
    problem = digits.task(digits.settings(grid.config))
    module = digits.module(problem)
    module.load_state_dict(load_file(tmp_path / "model.safetensors"))
    x = problem.data.x_test[:5]
    with torch.no_grad():
        assert torch.allclose(module.eval()(x), problem.network.outputs(deployed(tmp_path), x), atol=1e-5)


def test_replay_tells_another_model_from_this_one(tmp_path: Path) -> None:
    run_digits(connected(), tmp_path, 3)
    assert main(str(tmp_path)).startswith("the simulator arrives at the same model: 650 parameters")
    on = np.load(tmp_path / "trace.npz")["on"]
    on[1, 2] = False
    np.savez(tmp_path / "trace.npz", on=on)
    with pytest.raises(UserError, match="arrives elsewhere"):
        main(str(tmp_path))


def test_replay_is_for_digits(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    grid = FakeGrid(client_app(net, data))
    grid.connect(10, 0)
    serve(server_app(net), grid, monkeypatch, clients=1, out=str(tmp_path), **{"num-rounds": 1})
    with pytest.raises(UserError, match="only the digits app"):
        replay(tmp_path)


def test_the_example_is_an_app_with_every_option(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    app = tomllib.loads((EXAMPLE / "pyproject.toml").read_text())["tool"]["flwr"]["app"]
    agreed = "algorithm clients num-rounds timeout quorum seed eta0 steps batch model alpha out max-norm max-versions"
    assert {*agreed.split(), "authenticated"} == set(app["config"])
    for name, value in digits.DEFAULTS.items():
        assert app["config"][name] == value
    monkeypatch.syspath_prepend(EXAMPLE)
    found = {}
    for kind in ("serverapp", "clientapp"):
        module, attribute = app["components"][kind].split(":")
        found[kind] = runpy.run_path(str(EXAMPLE / (module.replace(".", "/") + ".py")))[attribute]
    assert isinstance(found["clientapp"], ClientApp)
    grid = FakeGrid(found["clientapp"])
    for client in range(4):
        grid.connect(10 + client, client)
    serve(found["serverapp"], grid, monkeypatch, **{**app["config"], "out": str(tmp_path), "num-rounds": 2})
    assert main(str(tmp_path)).endswith("at most 0")
    assert records.read(tmp_path / "record.jsonl").status == "complete"


def test_options_come_in_kebab_case() -> None:
    rules = rules_from(
        {"clients": 5, "max-norm": 2.0, "max-versions": 7, "out": "/x", "num-rounds": 3}, identity="node"
    )
    assert (rules.clients, rules.max_norm, rules.max_versions, rules.out) == (5, 2.0, 7, "/x")
    assert rules_from({"clients": 5, "out": ""}).out is None


@pytest.mark.parametrize(
    ("spec", "message"),
    [("fedprox", "unknown algorithm"), ("fedavg-known", "FedAvgKnown"), ("fedawe:beta=1", "no option 'beta'")],
)
def test_algorithms_that_there_are_not(spec: str, message: str) -> None:
    with pytest.raises(UserError, match=message):
        algorithm_from({"algorithm": spec})


def test_models_that_there_are_not() -> None:
    with pytest.raises(UserError, match="expected softmax, mlp or cnn"):
        digits.initial({**CONFIG, "model": "paper"})


def test_without_flower_the_line_to_install_it_is_said() -> None:
    code = "import sys; sys.modules['flwr'] = None; import fedawe.deploy"
    said = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert "pip install 'fedawe[flower]'" in said.stderr.splitlines()[-1]
