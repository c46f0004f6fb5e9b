"""A stock Flower project becomes FedAWE by two lines; the strategy does what its algorithm does, whichever it is."""

import difflib
import re
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from flower_grid import TIMEOUT, FakeGrid
from flwr.app import Array, ArrayRecord, ConfigRecord, Context, Message, MetricRecord, RecordDict
from flwr.clientapp import ClientApp
from flwr.serverapp import ServerApp
from flwr.serverapp.strategy import Result, Strategy
from torch import nn

import fedawe
from fedawe.algorithms.base import OneGlobalModel, ServerState
from fedawe.core.errors import UserError
from fedawe.deploy import FlowerStrategy, wire
from fedawe.deploy import strategy as strategy_module
from fedawe.deploy.checkpoint import run_of
from fedawe.results import record as records

STOCK = """
import torch
from flwr.app import Array, ArrayRecord, ConfigRecord, Context
from flwr.serverapp import Grid, ServerApp
from flwr.serverapp.strategy import FedAvg

app = ServerApp()


@app.main()
def main(grid: Grid, context: Context) -> None:
    model = make_model()
    strategy = FedAvg()
    result = strategy.start(
        grid=grid,
        initial_arrays=ArrayRecord(model.state_dict()),
        train_config=ConfigRecord({"lr": context.run_config["learning-rate"]}),
        num_rounds=context.run_config["num-server-rounds"],
    )
    results.append(result)
    torch.save(result.arrays.to_torch_state_dict(), context.run_config["path"])
"""
CHANGES = {
    "from flwr.serverapp.strategy import FedAvg": "import fedawe.deploy",
    "    strategy = FedAvg()": "    strategy = fedawe.deploy.FlowerStrategy(fedawe.FedAWE(), clients=3)",
}


def make_model() -> nn.Module:
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(4, 8), nn.BatchNorm1d(8), nn.Tanh(), nn.Linear(8, 2))


def stock_client(own_evaluation: bool = True) -> ClientApp:
    """As `flwr new` writes it: the weights come back trained, with a loss and the number of samples."""
    app = ClientApp()

    @app.train()
    def train(message: Message, context: Context) -> Message:
        model = make_model()
        model.load_state_dict(message.content["arrays"].to_torch_state_dict())
        model.train()
        lr = message.content["config"]["lr"]
        node = context.node_id
        generator = torch.Generator().manual_seed(node)
        x = torch.randn(20, 4, generator=generator) + node % 3
        loss = nn.functional.cross_entropy(model(x), (x.sum(1) > 0).long())
        loss.backward()
        with torch.no_grad():
            for parameter in model.parameters():
                parameter -= lr * parameter.grad
        metrics = MetricRecord({"train_loss": loss.item(), "num-examples": 20})
        content = RecordDict({"arrays": ArrayRecord(model.state_dict()), "metrics": metrics})
        return Message(content=content, reply_to=message)

    if not own_evaluation:
        return app

    @app.evaluate()
    def evaluate(message: Message, context: Context) -> Message:
        weight = message.content["arrays"]["0.weight"].numpy()
        metrics = MetricRecord({"size": float(np.abs(weight).sum()), "num-examples": context.node_id})
        return Message(content=RecordDict({"metrics": metrics}), reply_to=message)

    return app


class StockGrid(FakeGrid):
    """One that stock strategies can use too."""

    def send_and_receive(self, messages: Iterable[Message], *, timeout: float | None = None) -> Iterable[Message]:
        self.push_messages(messages)
        self.sleep(1.0)
        return list(self.pull_messages([]))


def stock_grid(monkeypatch: pytest.MonkeyPatch, nodes: int = 3) -> StockGrid:
    grid = StockGrid(stock_client(), {})
    for node in range(nodes):
        grid.connect(200 + node)
    monkeypatch.setattr(strategy_module, "Clock", lambda: grid.clock)
    return grid


def run_app(source: str, grid: FakeGrid, path: Path) -> Result:
    names: dict[str, Any] = {"make_model": make_model, "results": []}
    exec(compile(source, "server_app.py", "exec"), names)
    app: ServerApp = names["app"]
    config = {"learning-rate": 0.5, "num-server-rounds": 4, "path": str(path)}
    app(grid, Context(1, 1, {}, RecordDict(), config))
    return names["results"][0]


def test_two_lines_turn_a_stock_project_into_fedawe(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    source = STOCK
    for old, new in CHANGES.items():
        assert old in source
        source = source.replace(old, new)
    diff = [line for line in difflib.ndiff(STOCK.splitlines(), source.splitlines()) if line[0] in "+-"]
    assert len(diff) == 2 * len(CHANGES) == 4
    result = run_app(source, stock_grid(monkeypatch), tmp_path / "ours.pt")
    stock = run_app(STOCK, stock_grid(monkeypatch), tmp_path / "stock.pt")
    assert sorted(result.train_metrics_clientapp) == sorted(stock.train_metrics_clientapp) == [1, 2, 3, 4]
    # Everyone is always there and has as many samples: FedAWE is FedAvg then.
    theirs, own = torch.load(tmp_path / "stock.pt"), torch.load(tmp_path / "ours.pt")
    assert list(theirs) == list(own)
    for name in theirs:
        if name.endswith("num_batches_tracked"):
            assert own[name] == 0  # the server's value
        else:
            assert torch.allclose(theirs[name].float(), own[name], atol=1e-5), name
    for n in range(1, 5):
        assert result.train_metrics_clientapp[n]["train_loss"] == pytest.approx(
            stock.train_metrics_clientapp[n]["train_loss"], abs=1e-5
        )


def started(strategy: Any, grid: FakeGrid, rounds: int = 3, **more: Any) -> Result:
    strategy.clock = grid.clock
    initial = ArrayRecord(make_model().state_dict())
    config = ConfigRecord({"lr": 0.5})
    return strategy.start(grid, initial, num_rounds=rounds, timeout=TIMEOUT, train_config=config, **more)


@dataclass(frozen=True)
class Momentum(OneGlobalModel[ServerState]):
    """A user's own: FedAvg with half of the step."""

    beta: float = 0.5

    def init(self, x0: torch.Tensor, m: int) -> ServerState:
        return ServerState(t=-1, m=m, x=x0.clone())

    def aggregate(self, state: ServerState, t: int, A: torch.Tensor, G: torch.Tensor) -> ServerState:
        return state.after(t, x=state.x - self.beta * G.mean(0)) if len(A) else state.after(t)


P = torch.full((10, 3), 0.5)
ALL = [
    fedawe.FedAWE(clip=0.5, max_echo=3),
    fedawe.FedAWE(average="all", max_absence=1),
    fedawe.FedAvg(eta_g=0.5),
    fedawe.FedAvgAll(),
    fedawe.FedAvgKnown(P),
    fedawe.FedAU(K=3),
    fedawe.F3AST(beta=0.1, capacity=2),
    fedawe.MIFA(warmup="all-seen"),
    fedawe.FedVARP(clip=1.0),
    Momentum(beta=0.25),
]


@pytest.mark.parametrize("algorithm", ALL, ids=lambda one: type(one).__name__)
def test_the_strategy_is_its_algorithm(algorithm: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    grid = stock_grid(monkeypatch)
    grid.behaviour[201] = lambda m, r: [(1.0, r())] if int(m.metadata.group_id) != 2 else []
    strategy = FlowerStrategy(algorithm, clients=3, quorum=2)
    assert isinstance(strategy, Strategy)
    result = started(strategy, grid)
    on = strategy.session.on
    assert 6 <= on.sum() < 9  # somebody was missing
    # The same innovations, by hand.
    layout, client = strategy.session.layout, stock_client()
    x, d = wire.read(layout, ArrayRecord(make_model().state_dict())), strategy.session.layout.parameters
    state, statistics = algorithm.init(x[:d], 3), x[d:]
    for t, row in enumerate(on):
        A = torch.from_numpy(np.flatnonzero(row))
        X, returned = algorithm.start(state, A), []
        for i, start in zip(A.tolist(), X, strict=True):
            arrays = wire.record(layout, torch.cat([start, statistics]))
            message = Message(RecordDict({"arrays": arrays, "config": ConfigRecord({"lr": 0.5})}), 1, "train")
            reply = client(message, Context(1, 200 + i, {}, RecordDict(), {}))
            returned.append(wire.read(layout, reply.content["arrays"]))
        G = torch.stack([start - end[:d] for start, end in zip(X, returned, strict=True)])
        state = algorithm.aggregate(state, t, A, G)
        statistics = torch.stack([end[d:].double() for end in returned]).mean(0).float()
    seen = algorithm.model(state) if getattr(algorithm, "average", "all") else state.mean_of_active()
    for name, array in wire.record(layout, torch.cat([seen, statistics])).items():
        close = (
            {"rtol": 1e-6, "atol": 1e-7} if "running" in name else {"rtol": 0, "atol": 0}
        )  # start minus (start - end)
        np.testing.assert_allclose(result.arrays[name].numpy(), array.numpy(), **close, err_msg=name)


def test_the_statistics_of_batch_normalisation_are_not_echoed(monkeypatch: pytest.MonkeyPatch) -> None:
    """An echoed running variance would be negative before long."""
    grid = stock_grid(monkeypatch)
    grid.behaviour[201] = lambda m, r: [(1.0, r())] if int(m.metadata.group_id) % 8 == 0 else []
    result = started(FlowerStrategy(fedawe.FedAWE(), clients=3), grid, 24)
    assert (result.arrays["1.running_var"].numpy() > 0).all()


def test_clients_may_evaluate(monkeypatch: pytest.MonkeyPatch) -> None:
    grid = stock_grid(monkeypatch)
    result = started(FlowerStrategy(fedawe.FedAWE(), clients=3, evaluate=True), grid, 2)
    expected = float(np.abs(result.arrays["0.weight"].numpy()).sum())
    assert result.evaluate_metrics_clientapp[2]["size"] == pytest.approx(expected)
    assert sorted(result.evaluate_metrics_clientapp) == [1, 2]
    assert (
        started(FlowerStrategy(fedawe.FedAWE(), clients=3), stock_grid(monkeypatch), 1).evaluate_metrics_clientapp == {}
    )


def test_what_clients_say_of_the_model_is_averaged_by_group_too(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """Nodes 200 to 203 are clients 0 to 3; each says its own number, and counts with its number of samples."""
    table = tmp_path / "groups.csv"
    table.write_text("client,group\n0,home\n1,home\n2,rarely on Wi-Fi\n")
    grid = stock_grid(monkeypatch, nodes=4)

    app = stock_client(own_evaluation=False)

    @app.evaluate()
    def evaluate(message: Message, context: Context) -> Message:
        metrics = MetricRecord({"accuracy": float(context.node_id - 200), "num-examples": context.node_id - 199})
        return Message(content=RecordDict({"metrics": metrics}), reply_to=message)

    grid.app = app
    rules: dict[str, Any] = {"clients": 4, "evaluate": True, "groups": table, "out": tmp_path / "out"}
    for rounds in (2, 3):  # the second goes on
        result = started(FlowerStrategy(fedawe.FedAWE(), **rules), grid, rounds, evaluate_fn=lambda n, _: None)
    record = records.read(run_of(tmp_path / "out") / records.NAME)
    expected = {"accuracy_home": 2 / 3, "accuracy_rarely on Wi-Fi": 2.0, "accuracy_gap": 4 / 3}
    assert len(record.rounds) == 3
    for line in record.evaluations[1:]:
        assert {name: line[name] for name in expected} == pytest.approx(expected)
    assert result.evaluate_metrics_serverapp == {}
    assert [mean["accuracy"] for mean in result.evaluate_metrics_clientapp.values()] == pytest.approx([2.0] * 3)
    table.write_text("client,group\nphone-3,home\n")
    with pytest.raises(UserError, match="expected a column 'client' with numbers from 0 to 3"):
        FlowerStrategy(fedawe.FedAWE(), **rules)
    with pytest.raises(UserError, match="which needs evaluations by the clients"):
        FlowerStrategy(fedawe.FedAWE(), clients=4, groups=table)


def test_the_server_evaluates_before_and_after_every_round(monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[int] = []

    def evaluate(n: int, arrays: ArrayRecord) -> MetricRecord:
        seen.append(n)
        return MetricRecord({"n": n})

    result = started(FlowerStrategy(fedawe.FedAvg(), clients=3), stock_grid(monkeypatch), 2, evaluate_fn=evaluate)
    assert seen == [0, 1, 2]
    assert {n: dict(record) for n, record in result.evaluate_metrics_serverapp.items()} == {n: {"n": n} for n in seen}


class Decaying(FlowerStrategy):
    """As Flower's guide has it: a hook that changes what clients are told."""

    def configure_train(self, server_round, arrays, config, grid):
        assert list(arrays) == list(make_model().state_dict())
        config["lr"] *= 0.5
        return super().configure_train(server_round, arrays, config, grid)


def test_a_hook_changes_the_configuration_once_a_round_whoever_comes_when(monkeypatch: pytest.MonkeyPatch) -> None:
    grid = stock_grid(monkeypatch, nodes=2)
    grid.behaviour[200] = lambda m, r: [(5.0, r())]
    grid.plan(2.0, lambda: grid.connect(202))
    started(Decaying(fedawe.FedAWE(), clients=3), grid, 3)
    said = {(m.metadata.group_id, m.content["config"]["lr"]) for m in grid.sent}
    assert said == {("1", 0.25), ("2", 0.125), ("3", 0.0625)}
    assert sum(m.metadata.group_id == "1" for m in grid.sent) == 3


def test_one_node_too_many_is_refused_and_the_others_go_on(monkeypatch: pytest.MonkeyPatch) -> None:
    strategy = FlowerStrategy(fedawe.FedAWE(), clients=2)
    started(strategy, stock_grid(monkeypatch, nodes=3), 2)
    assert strategy.session.on.all()


def test_metrics_of_a_hostile_client_break_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    grid = stock_grid(monkeypatch)

    def hostile(message: Message, reply: Any) -> Any:
        answer = reply()
        answer.content["metrics"] = MetricRecord({"train_loss": float("nan"), "num-examples": -5, "x": [1.0]})
        return [(1.0, answer)]

    grid.behaviour[201] = hostile
    result = started(FlowerStrategy(fedawe.FedAvg(), clients=3), grid, 1)
    assert result.train_metrics_clientapp == {}
    assert np.isfinite(result.arrays["0.weight"].numpy()).all()


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({}, "clients is missing"),
        ({"clients": 0}, "clients is 0"),
        ({"clients": 3, "fraction_train": 0.5}, "unknown option 'fraction_train'"),
        ({"clients": 3, "quorum": 4}, "quorum is 4, but there are 3 clients"),
        ({"clients": 3, "quorum": -1}, "quorum is -1"),
        ({"clients": 3, "max_norm": float("nan")}, "max_norm is nan"),
        ({"clients": 3, "max_versions": 2}, "give out"),
        ({"clients": 3, "identity": "name"}, "identity is 'name'"),
        ({"clients": 3, "max_statistics": -1}, "max_statistics is -1"),
        ({"clients": 3, "evaluate": "false"}, "evaluate is 'false'; expected true or false, without quotes"),
        ({"clients": 3, "authenticated": 1}, "authenticated is 1; expected true or false"),
    ],
)
def test_mistakes_are_said_in_one_line(given: dict[str, Any], message: str) -> None:
    with pytest.raises(UserError, match=message):
        FlowerStrategy(fedawe.FedAWE(), **given)


def test_rounds_and_timeouts_are_positive(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(UserError, match="num_rounds is 0"):
        started(FlowerStrategy(fedawe.FedAWE(), clients=3), stock_grid(monkeypatch), 0)


def test_initial_arrays_that_cannot_be_read(monkeypatch: pytest.MonkeyPatch) -> None:
    grid, strange = stock_grid(monkeypatch), ArrayRecord({"w": Array("float32", (1,), "pickle", b"1234")})
    with pytest.raises(UserError, match="initial_arrays: w is not in numpy's format"):
        FlowerStrategy(fedawe.FedAWE(), clients=3).start(grid, strange)


@pytest.mark.parametrize(
    ("algorithm", "message"),
    [
        (fedawe.FedAWE, "expected an object such as fedawe.FedAWE()"),
        ("fedawe", "algorithm is 'fedawe'"),
        (fedawe.FedAvgKnown(), "needs the probabilities of every round"),
    ],
)
def test_what_is_no_algorithm_is_said(algorithm: Any, message: str) -> None:
    with pytest.raises(UserError, match=re.escape(message)):
        FlowerStrategy(algorithm, clients=3)


@pytest.mark.parametrize("algorithm", [fedawe.FedProx(), fedawe.SCAFFOLD(), fedawe.FedNova()], ids=repr)
def test_stock_clients_do_not_run_it_as_fedavg(
    algorithm: Any, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """A client app that ignores what it was sent, or does not say how it trained, is refused in every round."""
    strategy = FlowerStrategy(algorithm, clients=3)
    result = started(strategy, stock_grid(monkeypatch), 2)
    assert not strategy.session.on.any()
    assert np.array_equal(result.arrays["0.weight"].numpy(), make_model()[0].weight.detach().numpy())
    assert caplog.text.count("changed nothing: all 3 replies were refused") == 2


def test_a_choice_is_made_before_anyone_trains(monkeypatch: pytest.MonkeyPatch) -> None:
    grid = stock_grid(monkeypatch, nodes=6)
    strategy = FlowerStrategy(fedawe.Chosen(fedawe.FedAWE(), fedawe.Uniform(2)), clients=6)
    started(strategy, grid, 8)
    assert strategy.session.on.sum(1).tolist() == [2] * 8
    assert strategy.session.on.any(0).sum() > 2
    assert len(grid.sent) == 16
    assert strategy.algorithm.rule.average == "active"  # a wrapper deploys its rule as that is deployed
