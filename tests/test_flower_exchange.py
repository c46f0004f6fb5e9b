"""What goes over Flower besides models: shifts and scalars down, weights and rates up; refused where it is ignored."""

import fedawe.deploy  # first, since it takes care of the warnings of what Flower imports

# isort: split
from pathlib import Path
from typing import Any

import pytest
import torch
from flower_grid import CONFIG, TIMEOUT, FakeGrid, record_in
from flwr.app import ArrayRecord, ConfigRecord, Context, Message, MetricRecord, RecordDict
from flwr.clientapp import ClientApp

import fedawe
from fedawe.core.errors import UserError
from fedawe.deploy import FlowerStrategy, digits, wire
from fedawe.deploy.apps import client_app_of
from fedawe.deploy.replay import deployed, replay


def run(algorithm: Any, out: Path, app: ClientApp | None = None, rounds: int = 3) -> Any:
    """Some rounds with four clients of which one leaves."""
    grid = FakeGrid(app)
    for client in range(4):
        grid.connect(10 + client, client)
    grid.plan(2.0, lambda: grid.disconnect(12))
    problem = digits.task(digits.settings(grid.config))
    strategy = FlowerStrategy(
        algorithm,
        layout=digits.layout(problem),
        about=digits.about(grid.config),
        identity="client-id",
        clients=4,
        out=out,
    )
    strategy.clock = grid.clock
    strategy.start(grid, ArrayRecord(digits.initial(grid.config)), rounds, TIMEOUT)
    return grid, record_in(out)


def deaf() -> ClientApp:
    """A client app that trains as it always did, and knows nothing of shifts."""
    app = client_app_of(digits.train)
    own = ClientApp()

    @own.query("client_id")
    def who(message: Message, context: Context) -> Message:
        return app(message, context)

    @own.train()
    def train(message: Message, context: Context) -> Message:
        arrays = next(iter(message.content.array_records.values()))
        n = next(iter(message.content.config_records.values()))[wire.ROUND]
        content = {"arrays": arrays, "metrics": MetricRecord({"num-examples": 3}), "c": ConfigRecord({wire.ROUND: n})}
        return Message(RecordDict(content), reply_to=message)

    return own


EXCHANGES = [
    fedawe.SCAFFOLD(),
    fedawe.FedProx(mu=0.2),
    fedawe.FedDyn(alpha=0.2),
    fedawe.FedPBC(),
    fedawe.FedAvgM(rule=fedawe.SCAFFOLD()),
    fedawe.Weighted(fedawe.FedAvg()),
    fedawe.Chosen(fedawe.FedAWE(), fedawe.Uniform(2)),
    fedawe.Chosen(fedawe.SCAFFOLD(), fedawe.PowerOfChoice(3, 2)),
    fedawe.Robust(fedawe.FedAWE(), fedawe.Trimmed(0.4)),
]


@pytest.mark.parametrize("algorithm", EXCHANGES, ids=repr)
def test_a_federation_is_the_simulator(algorithm: Any, tmp_path: Path) -> None:
    _, record = run(algorithm, tmp_path, rounds=4)
    torch.testing.assert_close(deployed(tmp_path), replay(tmp_path), rtol=0, atol=2e-6)
    assert not any(line["refused"] for line in record.rounds)
    chosen = isinstance(algorithm, fedawe.Chosen)
    assert {len(line["clients"]) for line in record.rounds} == ({2} if chosen else {4, 3})


def test_a_shift_is_counted_in_the_bytes_that_go_down(tmp_path: Path) -> None:
    plain, shifted = (
        run(algorithm, tmp_path / name, rounds=1)[1].rounds[0]
        for name, algorithm in (("a", fedawe.FedAvg()), ("b", fedawe.SCAFFOLD()))
    )
    d = digits.layout(digits.task(digits.settings(CONFIG))).parameters
    assert shifted["bytes_down"] - plain["bytes_down"] >= 4 * 4 * d
    assert abs(shifted["bytes_up"] - plain["bytes_up"]) < 1000


@pytest.mark.parametrize("algorithm", [fedawe.SCAFFOLD(), fedawe.FedProx()], ids=repr)
def test_a_client_app_that_ignores_what_it_is_sent_is_refused(algorithm: Any, tmp_path: Path) -> None:
    _, record = run(algorithm, tmp_path / "ignores", deaf(), rounds=1)
    assert record.rounds[0]["refused"] == {"fields": 4}
    assert record.rounds[0]["clients"] == []
    _, record = run(algorithm, tmp_path / "knows", client_app_of(digits.train), rounds=1)
    assert record.rounds[0]["refused"] == {"error": 4}  # the app says so itself
    _, record = run(fedawe.FedAvg(), tmp_path / "plain", deaf(), rounds=1)
    assert record.rounds[0]["refused"] == {}


def test_a_reply_without_weight_is_refused_where_it_is_needed(tmp_path: Path) -> None:
    _, record = run(fedawe.FedNova(), tmp_path, deaf(), rounds=1)
    assert record.rounds[0]["refused"] == {"fields": 4}


def test_gradients_do_not_go_over_flower(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="asks its clients for gradients at the start of a round"):
        run(fedawe.SCAFFOLD(option=1), tmp_path)
