"""Whole apps: any module and data loader, every algorithm by name, and the digits app of the examples."""

import inspect
import logging
import runpy
import subprocess
import sys
import tomllib
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from flower_grid import CONFIG, FakeGrid, connected, record_in, rounds_in, run_digits
from flwr.app import Context, RecordDict
from flwr.clientapp import ClientApp
from flwr.serverapp import ServerApp
from safetensors.torch import load_file
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

from fedawe.algorithms import ALGORITHMS
from fedawe.cli.main import parse
from fedawe.core.errors import UserError
from fedawe.deploy import client_app, digits, server_app
from fedawe.deploy import strategy as strategy_module
from fedawe.deploy.apps import algorithm_from
from fedawe.deploy.checkpoint import run_of
from fedawe.deploy.replay import deployed, main, replay
from fedawe.deploy.rules import checked_rules, options_from

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
    assert record_in(tmp_path / "one").evaluations[-1]["accuracy"] > 0.9
    lines = rounds_in(tmp_path / "one")
    assert lines[-1]["train"]["train-loss"] < lines[0]["train"]["train-loss"]
    one, two = (load_file(run_of(tmp_path / name) / "model.safetensors") for name in ("one", "two"))
    assert set(one) == set(net().state_dict())
    assert all(torch.equal(one[name], two[name]) for name in one)  # shuffling and dropout are named too


def test_clients_of_an_app_weigh_as_much_as_they_have_samples(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def linear() -> nn.Module:
        return nn.Linear(2, 2)

    def unequal(client: int) -> DataLoader[Any]:
        return DataLoader(TensorDataset(*(each[: (16, 48)[client]] for each in data(client).dataset.tensors)), 16)  # type: ignore[attr-defined]

    models = []
    for active in ([0], [1], [0, 1]):
        grid = FakeGrid(client_app(linear, unequal))
        for client in active:
            grid.connect(10 + client, client)
        said = {"clients": 2, "num-rounds": 1, "timeout": 5.0, "steps": 1, "eta0": 0.5, "seed": 4}
        out = tmp_path / str(len(models))
        serve(server_app(linear), grid, monkeypatch, **said, algorithm="weighted", out=str(out))
        models.append(load_file(run_of(out) / "model.safetensors")["weight"])
    torch.testing.assert_close(models[2], (16 * models[0] + 48 * models[1]) / 64)


def test_the_precision_of_the_run_configuration(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    models = {}
    for name, own in (("none", {}), ("float32", {"precision": "float32"}), ("bfloat16", {"precision": "bfloat16"})):
        grid = FakeGrid(client_app(net, data))
        for client in range(2):
            grid.connect(10 + client, client)
        said = {"clients": 2, "num-rounds": 2, "eta0": 0.5, "seed": 4, **own}
        serve(server_app(net), grid, monkeypatch, **said, out=str(tmp_path / name))
        assert record_in(tmp_path / name).header["local"]["precision"] == (own or {"precision": "float32"})["precision"]
        models[name] = torch.cat(
            [each.flatten() for each in load_file(run_of(tmp_path / name) / "model.safetensors").values()]
        )
    assert torch.equal(models["none"], models["float32"])
    assert models["bfloat16"].dtype == torch.float32
    assert 1e-4 < float((models["bfloat16"] - models["float32"]).norm() / models["float32"].norm()) < 0.05
    with pytest.raises(UserError, match="precision is 'half'; expected 'float32' or 'bfloat16'"):
        serve(server_app(net), grid, monkeypatch, **{**said, "precision": "half"}, out=str(tmp_path / "half"))


def test_the_digits_in_bfloat16_are_replayed_in_bfloat16(tmp_path: Path) -> None:
    run_digits(connected(config={"precision": "bfloat16"}), tmp_path / "low", 2)
    run_digits(connected(), tmp_path / "high", 2)
    assert record_in(tmp_path / "low").header["local"]["precision"] == "bfloat16"
    assert torch.equal(replay(tmp_path / "low"), deployed(tmp_path / "low"))
    assert not torch.equal(deployed(tmp_path / "low"), deployed(tmp_path / "high"))
    with pytest.raises(UserError, match=r"local\.precision = bfloat16, not float32; choose another out"):
        run_digits(connected(), tmp_path / "low", 3)


def test_a_client_without_batches_is_an_error_and_not_there(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    grid = FakeGrid(client_app(net, lambda client: data(client) if client else []))
    for client in range(2):
        grid.connect(10 + client, client)
    serve(server_app(net), grid, monkeypatch, clients=2, out=str(tmp_path), **{"num-rounds": 1})
    (line,) = rounds_in(tmp_path)
    assert (line["clients"], line["refused"]) == ([1], {"error": 1})


OPTIONS = ("fedawe:clip=0.5", "fedawe:average=all", "fedawe:max_absence=2", "mifa:memory_rate=local")


# FedAvg-known needs probabilities, Weighted sizes; Private draws noise from a secret that no replay has.
ELSEWHERE = {"fedavg-known", "weighted", "private"}


@pytest.mark.parametrize("spec", [*sorted(set(ALGORITHMS) - ELSEWHERE), *OPTIONS])
def test_every_algorithm_by_name_and_replayed(tmp_path: Path, spec: str) -> None:
    grid = connected(config={"algorithm": spec})
    grid.plan(2.0, lambda: grid.disconnect(102))
    grid.plan(5.0, lambda: grid.connect(902, 2))
    run_digits(grid, tmp_path, 6)
    assert torch.equal(replay(tmp_path), deployed(tmp_path))


def test_an_algorithm_that_asks_for_gradients_is_refused(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="SCAFFOLD asks its clients for gradients"):
        run_digits(connected(config={"algorithm": "scaffold:option=1"}), tmp_path, 1)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("model", ["softmax", "mlp", "norm", "cnn"])
def test_every_model_of_the_digits(tmp_path: Path, model: str) -> None:
    grid = connected(config={"model": model})
    run_digits(grid, tmp_path, 2)
    assert torch.allclose(replay(tmp_path), deployed(tmp_path), rtol=1e-4, atol=1e-6)
    problem = digits.task(digits.settings(grid.config))
    module = digits.module(problem)
    module.load_state_dict(load_file(run_of(tmp_path) / "model.safetensors"))
    x = problem.data.x_test[:5]
    with torch.no_grad():
        assert torch.allclose(module.eval()(x), problem.network.outputs(deployed(tmp_path), x), atol=1e-5)


def test_a_replay_does_not_depend_on_the_number_of_threads(tmp_path: Path) -> None:
    run_digits(connected(config={"model": "mlp", "batch": 32}), tmp_path, 4)
    before = torch.get_num_threads()
    torch.set_num_threads(2)
    try:
        assert torch.equal(replay(tmp_path), deployed(tmp_path))
    finally:
        torch.set_num_threads(before)


def test_replay_tells_another_model_from_this_one(tmp_path: Path) -> None:
    run_digits(connected(), tmp_path, 3)
    assert main(str(tmp_path)).startswith("the simulator arrives at the same model: 2538 parameters")
    model = run_of(tmp_path) / "model.safetensors"
    model.rename(tmp_path / "aside")
    with pytest.raises(UserError, match=r"is not complete: it has no model\.safetensors yet; replay it when"):
        main(str(tmp_path))
    (tmp_path / "aside").rename(model)
    on = np.load(tmp_path / "traces" / "seed-0.npz")["on"]
    on[1, 2] = False
    np.savez(tmp_path / "traces" / "seed-0.npz", on=on)
    with pytest.raises(UserError, match="arrives at another model"):
        main(str(tmp_path))


def test_a_federation_that_goes_on_is_not_compared_with_the_model_that_it_had(tmp_path: Path) -> None:
    """It was complete, more rounds were asked for, and it was killed before the last of them."""
    run_digits(connected(), tmp_path, 2)
    assert main(str(tmp_path)).startswith("the simulator arrives at the same model")
    grid = connected()

    def killed() -> None:
        raise KeyboardInterrupt

    grid.plan(4.0, killed)
    with pytest.raises(KeyboardInterrupt):
        run_digits(grid, tmp_path, 9)
    assert len(record_in(tmp_path).rounds) > 2
    with pytest.raises(
        UserError, match="is not complete: its record has no last line yet; replay it when it has ended"
    ):
        main(str(tmp_path))
    run_digits(connected(), tmp_path, 9)
    assert main(str(tmp_path)).startswith("the simulator arrives at the same model")


def test_a_run_of_the_simulator_is_no_federation(tmp_path: Path) -> None:
    parse(["run", "--algorithms", "fedavg", "--rounds", "2", "--seeds", "0", "--out", str(tmp_path / "run")]).run()
    for client in (None, f"{__name__}:CLIENT"):
        with pytest.raises(UserError, match="holds a run of the simulator; expected the folder of a federation"):
            main(str(tmp_path / "run"), client)


def normal_net() -> nn.Module:
    return nn.Sequential(nn.Linear(2, 8), nn.BatchNorm1d(8), nn.Tanh(), nn.Dropout(0.1), nn.Linear(8, 2))


CLIENT = client_app(normal_net, data)


OVER_FLOWER = ["fedawe", "mifa:memory_rate=local", "scaffold", "fedprox:mu=0.5", "fedavgm:rule=fedau(K=9),beta=0.5"]


@pytest.mark.parametrize("algorithm", OVER_FLOWER)
def test_any_app_can_be_replayed_by_its_client(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, algorithm: str) -> None:
    grid = FakeGrid(CLIENT)
    for client in range(3):
        grid.connect(10 + client, client)
    grid.plan(2.0, lambda: grid.disconnect(11))
    said = {"clients": 3, "num-rounds": 6, "timeout": 30.0, "steps": 4, "eta0": 0.2, "seed": 4, "algorithm": algorithm}
    serve(server_app(normal_net, accuracy), grid, monkeypatch, **said, out=str(tmp_path))
    assert record_in(tmp_path).evaluations[-1]["active"] == 2
    assert torch.equal(replay(tmp_path, CLIENT), deployed(tmp_path))
    with pytest.raises(UserError, match=r"name its client app, as in --client my_app\.client_app:app"):
        replay(tmp_path)
    imports = "import torch\nfrom torch import nn\nfrom torch.utils.data import DataLoader, TensorDataset\n"
    imports += "from typing import Any\nfrom fedawe.deploy import client_app\n"
    text = imports + inspect.getsource(normal_net) + inspect.getsource(data) + "app = client_app(normal_net, data)\n"
    (tmp_path / "client.py").write_text(text)
    assert main(str(tmp_path), f"{tmp_path / 'client.py'}:app").endswith("at most 0")
    with pytest.raises(UserError, match="expected a Flower ClientApp"):
        main(str(tmp_path), f"{tmp_path / 'client.py'}:normal_net")
    with pytest.raises(UserError, match="has no 'other'"):
        main(str(tmp_path), f"{tmp_path / 'client.py'}:other")


def test_the_example_is_an_app_with_every_option(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    app = tomllib.loads((EXAMPLE / "pyproject.toml").read_text())["tool"]["flwr"]["app"]
    agreed = "algorithm clients num-rounds timeout quorum seed eta0 steps batch model alpha out max-norm max-versions"
    assert {*agreed.split(), "precision", "max-statistics", "authenticated"} == set(app["config"])
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
    assert record_in(tmp_path).status == "complete"


def test_options_come_in_kebab_case() -> None:
    rules = checked_rules(options_from({"clients": 5, "max-norm": 2.0, "max-versions": 7, "out": "/x", "batch": 3}))
    assert (rules.clients, rules.max_norm, rules.max_versions, rules.out) == (5, 2.0, 7, "/x")
    assert options_from({"clients": 5, "out": ""})["out"] is None


@pytest.mark.parametrize(
    ("spec", "message"),
    [
        ("fedaverage", "unknown algorithm"),
        ("fedavg-known", "needs the probabilities of every round"),
        ("fedawe:beta=1", "no option 'beta'"),
    ],
)
def test_algorithms_that_there_are_not(spec: str, message: str) -> None:
    with pytest.raises(UserError, match=message):
        algorithm_from({"algorithm": spec})


def test_a_mistake_in_the_configuration_is_logged_without_a_traceback(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(UserError) as caught:
        serve(server_app(net), FakeGrid(CLIENT), monkeypatch, clients=3, algorithm="fedaverage")
    error = caught.value
    said = logging.Formatter().formatException((type(error), error, error.__traceback__))  # as Flower's log has it
    assert said == f"fedawe.deploy.apps.ServerAppError: {error}"
    assert "unknown algorithm" in said


@pytest.mark.parametrize(
    ("name", "value", "expected"),
    [
        ("num-rounds", "ten", "a whole number"),
        ("num-rounds", 2.5, "a whole number"),
        ("seed", "x", "a whole number"),
        ("steps", float("inf"), "a whole number"),
        ("eta0", "fast", "a number"),
        ("timeout", float("nan"), "a number"),
    ],
)
def test_a_configuration_with_a_wrong_number_is_refused(
    monkeypatch: pytest.MonkeyPatch, name: str, value: object, expected: str
) -> None:
    for app in (server_app(net), digits.server_app()):
        with pytest.raises(UserError, match=f"{name} is {value!r}; expected {expected}$"):
            serve(app, FakeGrid(CLIENT), monkeypatch, **{"clients": 3, name: value})


def test_models_that_there_are_not() -> None:
    with pytest.raises(UserError, match="expected softmax, mlp, norm, cnn"):
        digits.initial({**CONFIG, "model": "paper"})


def test_without_flower_the_line_to_install_it_is_said() -> None:
    code = "import sys; sys.modules['flwr'] = None; import fedawe.deploy"
    said = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert "pip install 'fedawe[flower]'" in said.stderr.splitlines()[-1]
