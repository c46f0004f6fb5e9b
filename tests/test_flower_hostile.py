"""Hostile and broken clients, clients that never come: what they cannot do, and what is said of it."""

import logging
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from flower_grid import CONFIG, FakeGrid, connected, record_in, rounds_in, run_digits, shipped, strategy_on
from flwr.app import Array, ArrayRecord, Context, Message, MetricRecord, RecordDict
from flwr.clientapp import ClientApp
from flwr.serverapp import Grid
from torch import nn

import fedawe
from fedawe.deploy import FlowerStrategy, digits
from fedawe.deploy.checkpoint import run_of
from fedawe.deploy.replay import deployed, replay
from fedawe.deploy.rounds import LOGGED

ROUNDS = 6


def with_arrays(change: Callable[[dict[str, np.ndarray]], None]) -> Callable[..., Any]:
    """A client whose trained arrays are changed before they are sent."""

    def behave(message: Message, reply: Callable[[], Message]) -> Any:
        answer = reply()
        if message.metadata.message_type == "train":
            arrays = {name: array.numpy().copy() for name, array in answer.content["arrays"].items()}
            change(arrays)
            answer.content["arrays"] = ArrayRecord({name: Array(array) for name, array in arrays.items()})
        return [(1.0, answer)]

    return behave


def setting(name: str, value: float) -> Callable[..., Any]:
    return with_arrays(lambda arrays: arrays[name].fill(value))


def accuracy(out: Path) -> float:
    return float(record_in(out).evaluations[-1]["test_accuracy"])


def evaluated(grid: FakeGrid, out: Path, **rules: Any) -> None:
    """As the digits app does it, with the server's evaluation."""
    strategy = FlowerStrategy(
        fedawe.FedAWE(), about=digits.about(grid.config), identity="client-id", clients=4, out=out, **rules
    )
    strategy.clock = grid.clock

    def evaluate(n: int, arrays: ArrayRecord) -> MetricRecord:
        return MetricRecord(dict(digits.evaluate(dict(arrays.to_torch_state_dict()), grid.config)))

    initial = ArrayRecord(digits.initial(grid.config))
    strategy.start(grid, initial, num_rounds=ROUNDS, timeout=30.0, evaluate_fn=evaluate)


@pytest.mark.parametrize("value", [-5.0, 3.4e38, 1e12, -1e-3], ids=str)
@pytest.mark.parametrize("name", ["2.running_var", "2.running_mean"])
def test_statistics_of_one_client_do_not_touch_the_others(tmp_path: Path, name: str, value: float) -> None:
    """The federation arrives where it would without that client, whatever `max_norm` is."""
    harmless = name == "2.running_mean" and abs(value) < 100
    grid = connected(config={"steps": 8})
    grid.behaviour[101] = setting(name, value)
    evaluated(grid, tmp_path / "hostile")
    lines = rounds_in(tmp_path / "hostile")
    if harmless:
        assert all(line["refused"] == {} for line in lines)
        return
    assert [line["refused"] for line in lines] == [{"statistics": 1}] * ROUNDS
    evaluated(connected([0, 2, 3], {"steps": 8}), tmp_path / "without")
    assert torch.equal(deployed(tmp_path / "hostile"), deployed(tmp_path / "without"))
    assert accuracy(tmp_path / "hostile") > 0.5
    assert torch.equal(replay(tmp_path / "hostile"), deployed(tmp_path / "hostile"))


def test_statistics_may_be_as_large_as_the_data_are(tmp_path: Path) -> None:
    """Before anything was measured, honest clients with large inputs are not taken for liars."""
    grid = connected()
    for node in grid.behaviour:
        grid.behaviour[node] = setting("2.running_var", 1e6)
    run_digits(grid, tmp_path, 2)
    assert all(line["clients"] == [0, 1, 2, 3] for line in rounds_in(tmp_path))
    assert float(shipped(run_digits(connected(), None, 1))[-1]) < 10


def test_a_round_in_which_all_are_refused_is_said_loudly(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    grid = connected()
    for node in grid.behaviour:
        grid.behaviour[node] = setting("2.running_var", -1.0)
    strategy = run_digits(grid, tmp_path, 1)
    (line,) = rounds_in(tmp_path)
    assert (line["clients"], line["dropped"]) == ([], "all 4 replies were refused")
    assert "round 1 changed nothing: all 4 replies were refused" in caplog.text
    assert torch.equal(shipped(strategy), digits.task(digits.settings(CONFIG)).initial(0))


# Half precision


def half() -> nn.Module:
    torch.manual_seed(0)
    return nn.Linear(3, 2).half()


def moved(by: float) -> ClientApp:
    app = ClientApp()

    @app.train()
    def train(message: Message, context: Any) -> Message:
        arrays = {name: Array(array.numpy() + np.float16(by)) for name, array in message.content["arrays"].items()}
        return Message(RecordDict({"arrays": ArrayRecord(arrays)}), reply_to=message)

    return app


def test_half_precision_that_would_overflow_after_an_echo_drops_the_round(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """Each reply fits; the echoed mean does not. The model stays, and honest clients go on from it."""
    grid = FakeGrid(moved(30_000.0))
    grid.connect(100)
    strategy = FlowerStrategy(fedawe.FedAWE(eta_g=2.5), clients=1, out=tmp_path)
    strategy.clock = grid.clock
    result = strategy.start(grid, ArrayRecord(half().state_dict()), num_rounds=1, timeout=30.0)
    (line,) = rounds_in(tmp_path)
    assert line["dropped"] == "weight would not be finite in float16"
    assert (line["clients"], line["refused"]) == ([], {})
    assert "round 1 changed nothing: weight would not be finite in float16" in caplog.text
    assert torch.equal(result.arrays.to_torch_state_dict()["weight"], half().weight)
    grid.app = moved(0.5)
    result = strategy.start(grid, ArrayRecord(half().state_dict()), num_rounds=3, timeout=30.0)
    assert [line["clients"] for line in rounds_in(tmp_path)] == [[], [0], [0]]
    assert np.isfinite(result.arrays["weight"].numpy()).all()
    assert result.arrays["weight"].numpy().dtype == np.float16
    assert fedawe.Trace.load(tmp_path / "traces" / "seed-0.npz").on.tolist() == [[False], [True], [True]]


# Clients that never come


def test_clients_that_never_come_do_not_water_down_the_model(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """Three nodes, thirty clients: the model is as good as that of a federation of three."""

    def run(out: Path, algorithm: fedawe.FedAWE, m: int) -> float:
        config = {**CONFIG, "clients": 3, "steps": 10}
        grid = connected([0, 1, 2], config)
        strategy = FlowerStrategy(algorithm, about=digits.about(config), identity="client-id", clients=m, out=out)
        strategy.clock = grid.clock

        def evaluate(n: int, arrays: ArrayRecord) -> MetricRecord:
            return MetricRecord(dict(digits.evaluate(dict(arrays.to_torch_state_dict()), config)))

        strategy.start(grid, ArrayRecord(digits.initial(config)), num_rounds=8, timeout=30.0, evaluate_fn=evaluate)
        return accuracy(out)

    few = run(tmp_path / "few", fedawe.FedAWE(), 3)
    caplog.clear()
    many = run(tmp_path / "many", fedawe.FedAWE(), 30)
    assert many == pytest.approx(few, abs=0.02)
    assert "never been active" not in caplog.text
    assert [line["never_active"] for line in rounds_in(tmp_path / "many")] == [27] * 8
    watered = run(tmp_path / "watered", fedawe.FedAWE(average="all"), 30)
    assert watered < few - 0.2
    said = [one.getMessage() for one in caplog.records if one.levelno == logging.WARNING]
    assert len(said) == 8
    assert said[0].startswith("27 of 30 clients have never been active: 90% of the model is the initial model")
    latest = {path.name for path in run_of(tmp_path / "watered").iterdir()}
    assert {"model.safetensors", "latest.safetensors", "initial.safetensors"} <= latest


# Whatever a client writes


def test_metrics_of_a_client_are_few_and_short(tmp_path: Path) -> None:
    def chatty(message: Message, reply: Callable[[], Message]) -> Any:
        answer = reply()
        if message.metadata.message_type == "train":
            many = {f"metric-{n}": float(n) for n in range(1000)}
            long = {"x" * 4_000_000: 1.0, "forged\nline": 2.0, "num-examples": 5}
            answer.content["metrics"] = MetricRecord({**long, **many})
        return [(1.0, answer)]

    grid = connected([0])
    grid.behaviour[100] = chatty
    run_digits(grid, tmp_path, 3)
    run = run_of(tmp_path)
    assert (run / "record.jsonl").stat().st_size < 30_000
    assert all(path.stat().st_size < 200_000 for path in run.glob("checkpoint-*"))
    assert set(rounds_in(tmp_path)[0]["train"]) == {f"metric-{n}" for n in range(61)}


def test_a_model_far_away_is_recorded_and_the_federation_goes_on(tmp_path: Path) -> None:
    """Squared, its distance from that of a client which is absent is beyond float32."""
    grid = connected()
    far = setting("1.weight", 1e22)
    for n, node in enumerate((100, 101, 102)):
        grid.behaviour[node] = lambda message, reply, n=n: (
            far(message, reply) if n == 1 and message.metadata.group_id == "2" else [(1.0, reply())]
        )
    grid.plan(1.5, lambda: grid.disconnect(103))
    for rounds in (2, 3):
        strategy = strategy_on(grid, tmp_path)
        initial = ArrayRecord(digits.initial(grid.config))
        result = strategy.start(grid, initial, num_rounds=rounds, timeout=30.0)
    assert [line["round"] for line in record_in(tmp_path).evaluations] == [0, 1, 2, 3]
    assert rounds_in(tmp_path)[1]["clients"] == [0, 1, 2]
    assert result.evaluate_metrics_serverapp == {}  # what the record says of the algorithm is no metric


def test_numbers_of_two_groups_may_be_as_far_apart_as_numbers_go(tmp_path: Path) -> None:
    app, table = digits.client_app(), tmp_path / "groups.csv"
    table.write_text("client,group\n0,a\n1,b\n2,c\n3,c\n")

    @app.evaluate()
    def evaluate(message: Message, context: Context) -> Message:
        said = MetricRecord({"accuracy": [1e308, -1e308, 0.5, 0.5][int(context.node_config["client-id"])]})
        return Message(RecordDict({"metrics": said}), reply_to=message)

    grid = connected()
    grid.app = app
    for rounds in (2, 3):
        run_digits(grid, tmp_path / "out", rounds, evaluate=True, groups=table)
    for line in record_in(tmp_path / "out").evaluations[1:]:
        assert line["accuracy_c"] == 0.5
        assert "accuracy_gap" not in line


def test_refusals_of_a_round_are_logged_so_many_times(caplog: pytest.LogCaptureFixture) -> None:
    grid = connected([0])

    def stutter(message: Message, reply: Callable[[], Message]) -> Any:
        if message.metadata.message_type != "train":
            return [(1.0, reply())]
        answer = reply()
        answer.content["arrays"] = ArrayRecord()
        return [(1.0, answer)] * (LOGGED + 50)

    grid.behaviour[100] = stutter
    strategy = run_digits(grid, None, 1)
    assert strategy.desk.tally.refused.total() == LOGGED + 50
    lines = [one for one in caplog.records if "refused" in one.getMessage() and one.levelno == logging.WARNING]
    assert len(lines) == LOGGED + 2  # one that says so, one that the round changed nothing
    assert isinstance(grid, Grid)
