"""A deployment's folder is an experiment with one run: everything that reads experiments reads it too."""

import itertools
import json
from pathlib import Path
from typing import Any

import pytest
import torch
from flower_grid import CONFIG, FakeGrid, connected, record_in, strategy_on
from flwr.app import ArrayRecord, ConfigRecord, Context, MetricRecord, RecordDict
from safetensors.torch import load_file

import fedawe
from fedawe.audit import logs
from fedawe.core.errors import UserError
from fedawe.deploy import digits
from fedawe.deploy import strategy as strategy_module
from fedawe.deploy.checkpoint import run_of
from fedawe.deploy.replay import deployed, replay
from fedawe.experiments.check import problems
from fedawe.experiments.experiment import Experiment
from fedawe.results import record as records

ROUNDS = 6


def deploy(out: Path, monkeypatch: pytest.MonkeyPatch, grid: FakeGrid | None = None, **config: Any) -> FakeGrid:
    """The digits app as `flwr run` starts it."""
    grid = grid or connected(config=config)
    grid.config = {**CONFIG, "num-rounds": ROUNDS, "timeout": 30.0, "out": str(out), **config}
    monkeypatch.setattr(strategy_module, "Clock", lambda: grid.clock)
    digits.server_app()(grid, Context(1, 1, {}, RecordDict(), grid.config))
    return grid


def test_it_has_the_header_and_the_lines_of_a_simulated_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    deploy(tmp_path / "deployed", monkeypatch, model="mlp")
    said = {**digits.settings({**CONFIG, "model": "mlp"})}
    experiment = Experiment(
        task=lambda seed: digits.task(said),
        algorithms={"fedawe": fedawe.FedAWE()},
        availability=fedawe.Trace.load(tmp_path / "deployed" / "traces" / "seed-0.npz"),
        local=digits.local(said),
        rounds=ROUNDS,
        seeds=(0,),
        evaluate_every=1,
    )
    experiment.run(tmp_path / "simulated")
    ours = record_in(tmp_path / "deployed")
    theirs = records.read(tmp_path / "simulated" / "fedawe" / "seed-0" / "record.jsonl")
    assert set(theirs.header) <= set(ours.header)
    for name in ("kind", "format", "label", "name", "local", "metrics", "parameters", "inputs", "classes", "clients"):
        assert ours.header[name] == theirs.header[name], name
    assert [line["round"] for line in ours.evaluations] == [line["round"] for line in theirs.evaluations]
    for one, other in zip(ours.evaluations, theirs.evaluations, strict=True):
        for name in ("active", "test_accuracy", "latest_test_loss", "client_loss", "echo_max", "live_versions"):
            if name in other:
                assert one[name] == pytest.approx(other[name], rel=1e-4), name
    assert json.loads((tmp_path / "deployed" / "experiment.json").read_text())["format"] == records.FORMAT


def test_every_reader_reads_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    deploy(tmp_path, monkeypatch, model="mlp")
    results = fedawe.load(tmp_path)
    final = record_in(tmp_path).evaluations[-1]
    frame = results.frame()
    assert frame["test_accuracy"].tolist()[-1] == final["test_accuracy"]
    assert frame["bytes_up"].tolist()[1:] == [line["bytes_up"] for line in record_in(tmp_path).rounds]
    assert f"{100 * final['test_accuracy']:.2f}" in str(results.table())
    assert list(problems(tmp_path)) == []
    module = fedawe.load_model(run_of(tmp_path))
    x = digits.task(digits.settings({**CONFIG, "model": "mlp"})).data.x_test
    with torch.no_grad():
        hits = module(x).argmax(1) == digits.task(digits.settings({**CONFIG, "model": "mlp"})).data.y_test
    assert float(hits.double().mean()) == pytest.approx(final["test_accuracy"])
    page = results.report()
    assert Path(page).read_text().count("FedAWE") > 0


def test_report_and_audit_read_the_folder_while_it_goes_on(tmp_path: Path) -> None:
    grid, read = connected(), []

    def evaluate(n: int, _: ArrayRecord) -> MetricRecord:
        if n >= 2:  # the folder has n - 1 rounds: this one is not over
            page = Path(fedawe.load(tmp_path).report()).read_text()
            read.append((n, logs.read(tmp_path).trace.rounds, "FedAWE" in page, list(problems(tmp_path))))
        return MetricRecord({"test_accuracy": 0.1 * n})

    arrays = ArrayRecord(digits.initial(grid.config))
    strategy_on(grid, tmp_path).start(grid, arrays, num_rounds=3, timeout=30.0, evaluate_fn=evaluate)
    assert read == [(2, 1, True, []), (3, 2, True, [])]


def test_a_model_with_batch_normalisation_is_loaded_with_its_statistics(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    deploy(tmp_path, monkeypatch, steps=8)
    module = fedawe.load_model(run_of(tmp_path), digits.normalised())
    problem = digits.task(digits.settings({**CONFIG, "steps": 8}))
    with torch.no_grad():
        hits = module(problem.data.x_test).argmax(1) == problem.data.y_test
    assert float(hits.double().mean()) == record_in(tmp_path).evaluations[-1]["test_accuracy"] > 0.5
    assert not torch.equal(module[2].running_var, torch.ones(32))
    assert torch.equal(replay(tmp_path), deployed(tmp_path))


def test_a_damaged_file_is_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    deploy(tmp_path, monkeypatch)
    model = run_of(tmp_path) / "model.safetensors"
    model.write_bytes(model.read_bytes()[:-1] + b"?")
    (found,) = problems(tmp_path)
    assert str(model) in found


def test_going_on_evaluates_further_models_and_keeps_what_was_said(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    deploy(tmp_path / "apart", monkeypatch, **{"num-rounds": 2})
    deploy(tmp_path / "apart", monkeypatch)
    deploy(tmp_path / "together", monkeypatch)
    lines = [
        [{k: v for k, v in line.items() if not k.endswith("_seconds")} for line in record_in(tmp_path / name).lines]
        for name in ("apart", "together")
    ]
    assert lines[0] == lines[1]
    assert all("latest_test_accuracy" in line for line in record_in(tmp_path / "apart").evaluations)
    latest = load_file(run_of(tmp_path / "apart") / "latest.safetensors")
    assert set(latest) == set(digits.normalised().state_dict())


def test_a_simulated_experiment_is_not_written_over(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    task = fedawe.Quadratic(torch.tensor([[0.0], [1.0]]))
    Experiment(task=task, algorithms={"fedawe": fedawe.FedAWE()}, p=0.5, rounds=2, seeds=(0,)).run(tmp_path)
    with pytest.raises(fedawe.UserError, match="holds an experiment that was simulated"):
        deploy(tmp_path, monkeypatch)


def test_a_long_trace_is_not_written_after_every_round(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each time takes as long as it has rounds; the last time it is whole."""
    written: list[int] = []
    save = fedawe.Trace.save

    def counted(trace: fedawe.Trace, path: Path) -> None:
        written.append(trace.rounds)
        save(trace, path)

    monkeypatch.setattr(fedawe.Trace, "save", counted)
    grid = connected([])
    strategy = strategy_on(grid, tmp_path)
    strategy.start(grid, ArrayRecord(digits.initial(grid.config)), num_rounds=301, timeout=0.5)
    assert written[:100] == list(range(1, 101))
    assert len(written) < 220
    assert all(after - before <= 0.01 * after + 1 for before, after in itertools.pairwise(written))
    assert fedawe.Trace.load(tmp_path / "traces" / "seed-0.npz").rounds == written[-1] == 301


@pytest.mark.parametrize("value", [b"key", [b"key"], float("nan")], ids=str)
def test_a_configuration_that_no_record_can_hold_is_refused_before_anything_is_written(
    tmp_path: Path, value: Any
) -> None:
    grid = connected()
    strategy = strategy_on(grid, tmp_path / "out")
    with pytest.raises(UserError, match=r"train_config: salt is .*, which a record cannot hold; expected text, finite"):
        strategy.start(grid, ArrayRecord(digits.initial(grid.config)), 1, 30.0, ConfigRecord({"salt": value}))
    assert not list(tmp_path.iterdir())
