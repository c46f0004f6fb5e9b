"""The mean of the models that clients received last, beside any algorithm: against a list of models, one per client."""

import dataclasses
import json
from pathlib import Path
from typing import Any

import pytest
import safetensors.torch
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from table import ROWS, History, Row, differences, histories, history, run

import fedawe
from fedawe.algorithms.base import State, pack, unpack
from fedawe.algorithms.received import Received, ReceivedState
from fedawe.experiments.build import experiment_of
from fedawe.experiments.settings import Settings

ALL = ("fedawe", "fedavg", "fedavg-all", "fedavg-known", "fedau", "f3ast", "mifa", "fedvarp")
SETTINGS = Settings(
    model="softmax", clients=12, rounds=10, batch=16, steps=2, evaluate_every=3, alpha=0.5, evaluate_received=True
)


def last_received(algorithm: Any, given: History) -> list[torch.Tensor]:
    """What each client holds in the end, kept the plain way: whoever is there is handed the new global model."""
    state, held = algorithm.init(given.x0, given.m), [given.x0] * given.m
    for t, (A, G) in enumerate(given.rounds):
        state = algorithm.aggregate(state, t, A, G)
        for i in A.tolist():
            held[i] = state.latest.clone()
    return held


def different(one: ReceivedState, other: ReceivedState) -> list[str]:
    parts = [(one.own, other.own), (one.held, other.held)]
    return [name for a, b in parts for name in differences(a, b)] + [
        name for name in ("t", "m") if getattr(one, name) != getattr(other, name)
    ]


@pytest.mark.parametrize("row", ROWS, ids=repr)
@settings(max_examples=20)
@given(given=histories())
def test_it_is_the_mean_of_what_everyone_received_last(row: Row, given: History) -> None:
    algorithm = row.make(given.p)
    wrapped = Received(algorithm)
    state: Any = run(wrapped, given)
    naive = torch.stack(last_received(algorithm, given)).mean(0)
    torch.testing.assert_close(wrapped.received(state), naive, rtol=0, atol=1e-10)
    # The algorithm has not noticed: bit for bit the same state, model and starts.
    alone: Any = run(algorithm, given)
    assert differences(state.own, alone) == []
    assert state.t == alone.t
    assert torch.equal(wrapped.model(state), algorithm.model(alone))
    assert torch.equal(state.latest, alone.latest)
    everyone = torch.arange(given.m)
    assert torch.equal(wrapped.start(state, everyone), algorithm.start(alone, everyone))
    # And as packed and unpacked.
    again = unpack(wrapped.init(given.x0, given.m), safetensors.torch.load(safetensors.torch.save(pack(state))))
    assert different(again, state) == []


@settings(max_examples=60)
@given(given=histories(), seed=st.integers(0, 2**16))
def test_the_received_mean_of_fedawe_is_its_own_model(given: History, seed: int) -> None:
    for algorithm in (fedawe.FedAWE(), fedawe.FedAWE(eta_g=0.7, clip=0.4), fedawe.FedAWE(max_echo=1)):
        wrapped = Received(algorithm)
        state: Any = run(wrapped, given)
        assert torch.equal(wrapped.received(state), algorithm.model(state.own))


def test_it_goes_on_from_an_unpacked_state() -> None:
    given = history(4, [[0, 1], [], [3], [2, 0], [1], [0, 1, 2, 3], [2]], seed=3)
    for row in ROWS:
        wrapped = Received(row.make(given.p))
        whole: Any = run(wrapped, given)
        state: Any = run(wrapped, dataclasses.replace(given, rounds=given.rounds[:4]))
        state = unpack(wrapped.init(given.x0, given.m), pack(state))
        for t in range(4, 7):
            state = wrapped.aggregate(state, t, *given.rounds[t])
        assert different(state, whole) == [], row


@pytest.mark.parametrize(
    "A", [[2, 0], torch.tensor([2, 0], dtype=torch.uint8), torch.tensor([2, 0], dtype=torch.int32)]
)
def test_clients_may_be_named_as_for_the_algorithm_itself(A: Any) -> None:
    algorithm = Received(fedawe.FedAvg())
    state = algorithm.aggregate(algorithm.init(torch.zeros(1), 4), 0, A, torch.tensor([[1.0], [3.0]]))
    assert state.held.tau.tolist() == [0, -1, 0, -1]
    assert algorithm.received(state).tolist() == [-1.0]  # two of four hold -2


def test_a_mistake_is_refused_as_by_the_algorithm_itself() -> None:
    algorithm = Received(fedawe.FedAvg())
    state = algorithm.init(torch.zeros(1), 4)
    with pytest.raises(ValueError, match="client 4 is unknown"):
        algorithm.aggregate(state, 0, torch.tensor([4]), torch.zeros(1, 1))
    with pytest.raises(ValueError, match="round -1 cannot follow"):
        algorithm.aggregate(state, -1, torch.tensor([0]), torch.zeros(1, 1))


# Runs on disk


class Crash(Exception):
    pass


def execute(
    out: Path, given: Settings = SETTINGS, crash_at: int | None = None, algorithms: tuple[str, ...] = ALL
) -> None:
    def tell(progress: Any) -> None:
        if progress.rounds == crash_at:
            raise Crash

    experiment_of(given, algorithms, (0,)).run(out, checkpoint_every=2, engine="stacked", workers=1, tell=tell)


def lines(out: Path, label: str) -> list[dict[str, Any]]:
    """Of a record, without what depends on the clock."""
    found = [json.loads(line) for line in (out / label / "seed-0" / "record.jsonl").read_text().splitlines()]
    return [{key: value for key, value in line.items() if not key.endswith("_seconds")} for line in found]


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("whole") / "x"
    execute(out)
    return out


@pytest.mark.parametrize("crash_at", [1, 5, 9])
@pytest.mark.parametrize("label", ALL)
def test_a_crash_changes_nothing(whole: Path, tmp_path: Path, label: str, crash_at: int) -> None:
    with pytest.raises(Crash):
        execute(tmp_path / "x", crash_at=crash_at, algorithms=(label,))
    execute(tmp_path / "x", algorithms=(label,))
    assert lines(tmp_path / "x", label) == lines(whole, label)
    models = [out / label / "seed-0" / "model.safetensors" for out in (tmp_path / "x", whole)]
    assert models[0].read_bytes() == models[1].read_bytes()


def test_asking_for_it_changes_no_other_number(whole: Path, tmp_path: Path) -> None:
    execute(tmp_path / "x", dataclasses.replace(SETTINGS, evaluate_received=False))
    for label in ALL:
        with_it, without = (
            [line for line in lines(out, label) if line["kind"] == "evaluation"] for out in (whole, tmp_path / "x")
        )
        kept = [{k: v for k, v in line.items() if not k.startswith("received_") and k != "crc"} for line in with_it]
        assert kept == [{k: v for k, v in line.items() if k != "crc"} for line in without]
        models = [out / label / "seed-0" / "model.safetensors" for out in (tmp_path / "x", whole)]
        assert models[0].read_bytes() == models[1].read_bytes()


@pytest.mark.parametrize("label", ALL)
def test_the_record_has_the_metrics_of_that_mean(whole: Path, label: str) -> None:
    """Simulated anew with one model per client; FedAWE's received mean is its own model and is not evaluated twice."""
    experiment = experiment_of(dataclasses.replace(SETTINGS, evaluate_received=False), [label], (0,))
    population = experiment.population(0)
    task, algorithm = population.task, experiment.algorithm(label, population.trace)
    held = [task.initial(0)] * 12
    expected = {0: task.evaluate(torch.stack(held).mean(0))}
    for step in fedawe.simulate(task, algorithm, population.trace, experiment.local_of(label), seed=0):
        state: State = step.state
        for i in step.A.tolist():
            held[i] = state.latest
        expected[step.t + 1] = task.evaluate(torch.stack(held).mean(0))
    prefix = "" if label == "fedawe" else "received_"
    evaluations = [line for line in lines(whole, label) if line["kind"] == "evaluation"]
    assert [line["round"] for line in evaluations] == [0, 3, 6, 9, 10]
    for line in evaluations:
        for name, value in expected[line["round"]].items():
            assert line[f"{prefix}{name}"] == pytest.approx(value, abs=1e-5), name
        assert label == "fedawe" or line["round"] == 0 or line["received_test_loss"] != line["test_loss"]
        assert ("received_test_loss" in line) == (label != "fedawe")
