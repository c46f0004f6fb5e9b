"""Local training in bfloat16: torch.autocast in the passes, float32 everywhere else."""

import sys
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import modules
import numpy as np
import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional

import fedawe
from fedawe.cli.main import main
from fedawe.core.describe import first_difference
from fedawe.experiments.build import experiment_of
from fedawe.experiments.settings import Settings
from fedawe.results import record as records
from fedawe.tasks import Classification, Data, ModuleNetwork
from fedawe.training.engines import Inline, Processes
from fedawe.training.engines.base import innovations

CLIENTS = 4
ROUNDED = fedawe.Local(fedawe.Rate(0.1), steps=8, batch=6, precision="bfloat16")
EXACT = fedawe.Local(fedawe.Rate(0.1), steps=8, batch=6)
A = torch.arange(CLIENTS)


def chain() -> nn.Module:
    layers = [nn.Linear(9, 20), nn.Tanh(), nn.Linear(20, 15, bias=False), nn.ReLU(), nn.Linear(15, modules.CLASSES)]
    return nn.Sequential(*layers)


def unusual() -> nn.Module:
    return nn.Sequential(nn.Softplus(), nn.Linear(9, 12), nn.Softplus(), nn.Linear(12, modules.CLASSES))


def convolutions() -> nn.Module:
    """In float32 these are computed in oneDNN's own layout."""
    return nn.Sequential(
        nn.Conv2d(3, 16, 3, padding=1),
        nn.ReLU(),
        nn.MaxPool2d(2),
        nn.Conv2d(16, 32, 3, padding=1),
        nn.ReLU(),
        nn.Flatten(),
        nn.Linear(32 * 16, modules.CLASSES),
    )


def normalised() -> nn.Module:
    layers = [nn.Conv2d(3, 16, 3), nn.BatchNorm2d(16), nn.ReLU(), nn.Flatten(), nn.Linear(16 * 36, modules.CLASSES)]
    return nn.Sequential(*layers)


KINDS: dict[str, tuple[Callable[[], nn.Module], tuple[int, ...]]] = {
    "dense": (chain, (9,)),
    "layers": (convolutions, (3, 8, 8)),
    "autograd": (unusual, (9,)),
}
every_kind = pytest.mark.parametrize("kind", KINDS)


def task_of(make: Callable[[], nn.Module], shape: tuple[int, ...], executor: Any = "auto") -> Classification:
    draw = torch.Generator().manual_seed(0)
    x, y = torch.randn(60, *shape, generator=draw), torch.arange(60) % modules.CLASSES
    parts = list(np.arange(48).reshape(CLIENTS, 12))
    return Classification(Data("noise", x[:48], y[:48], x[48:], y[48:]), ModuleNetwork(make, executor=executor), parts)


def task_of_kind(kind: str) -> Classification:
    task = task_of(*KINDS[kind])
    assert task.executor == kind
    return task


def plainly(task: Classification, i: int, local: fedawe.Local, rounded: bool) -> Tensor:
    """The innovation of client i as anybody would compute it: torch.autocast around the forward pass."""
    module, x0 = task.network.make().train(), task.initial(0)
    module.load_state_dict({**module.state_dict(), **task.layout.tensors(x0)})  # type: ignore[union-attr]
    optimizer = torch.optim.SGD(module.parameters(), lr=local.rate(0))
    for rows in task.samples(i, 0, local.work(torch.tensor([i]), 0, 0)):
        optimizer.zero_grad()
        with torch.autocast("cpu", dtype=torch.bfloat16, enabled=rounded):
            loss = functional.cross_entropy(module(task.data.x_train[rows]), task.data.y_train[rows])
        loss.backward()
        optimizer.step()
    after = module.state_dict()
    return x0 - torch.cat([after[entry.name].reshape(-1) for entry in task.network.layout.ordered])


def trained(task: Classification, local: fedawe.Local, stacked: bool) -> Tensor:
    return innovations(task, local, task.initial(0).repeat(CLIENTS, 1), A, 0, 0, stacked=stacked)


def apart(G: Tensor, other: Tensor) -> float:
    """Their distance, as a share of the length of the other."""
    return float((G - other).norm() / other.norm())


@every_kind
@pytest.mark.parametrize("stacked", [False, True], ids=["alone", "stacked"])
def test_it_is_training_under_autocast(kind: str, stacked: bool) -> None:
    task = task_of_kind(kind)
    G = trained(task, ROUNDED, stacked)
    low, high = (torch.stack([plainly(task, i, EXACT, rounded) for i in range(CLIENTS)]) for rounded in (True, False))
    rounding = apart(low, high)  # what bfloat16 does to the innovations
    assert 1e-3 < rounding < 0.1
    # As far from float32 as torch's own. What is computed in the same order is near to torch's own; under vmap torch
    # rounds once more, after a product and before its bias is added.
    assert 0.5 * rounding < apart(G, high) < 1.5 * rounding
    assert apart(G, low) < (1.5 if stacked and kind != "dense" else 0.5) * rounding
    assert apart(trained(task, EXACT, stacked), high) < 1e-4


@every_kind
def test_parameters_and_innovations_stay_float32(kind: str) -> None:
    task, x = task_of_kind(kind), task_of_kind(kind).initial(0).repeat(CLIENTS, 1)
    G = trained(task, ROUNDED, task.stacked)
    assert G.dtype == torch.float32
    assert not torch.equal(G, G.bfloat16().float())
    # A step that is too small for bfloat16 is not lost: the weights to which it is added are those of float32.
    small = fedawe.Local(fedawe.Rate(1e-5), steps=1, batch=6, precision="bfloat16")
    for stacked in (False, True):
        G = innovations(task, small, x, A, 0, 0, stacked=stacked)
        moved = x != x - G
        assert moved.float().mean() > 0.5
        assert (x.bfloat16() != (x - G).bfloat16()).float().mean() < 0.05


def test_evaluations_and_losses_are_those_of_float32() -> None:
    task = task_of_kind("dense")
    x = task.initial(0)
    down = fedawe.Broadcast(x.repeat(CLIENTS, 1), loss=True)
    ups = [Inline(task, local).train(down, A, 0, 0, torch.zeros_like(A)) for local in (ROUNDED, EXACT)]
    assert torch.equal(ups[0].loss, ups[1].loss)  # type: ignore[arg-type]
    assert not torch.equal(ups[0].G, ups[1].G)
    assert Inline(task, ROUNDED).evaluate(x) == Inline(task, EXACT).evaluate(x)


def test_every_way_to_train_is_rounded() -> None:
    """Also rounds that are owed, gradients at the start, and steps that are not fused with their gradient."""
    task = task_of_kind("dense")
    x = task.initial(0).repeat(CLIENTS, 1)
    owed = fedawe.Broadcast(x, rounds=torch.tensor([1, 2, 1, 3]))
    asked = fedawe.Broadcast(x, gradient=True)
    visits = torch.full_like(A, 3)
    for name, down, of in (("owed", owed, "G"), ("gradient", asked, "gradient")):
        low, high = (getattr(Inline(task, local).train(down, A, 3, 0, visits), of) for local in (ROUNDED, EXACT))
        assert low.dtype == torch.float32
        assert 1e-4 < apart(low, high) < 0.1, name
    clipped = [fedawe.Local(EXACT.rate, 8, 6, clip_grad=0.3, precision=p) for p in ("bfloat16", "float32")]
    low, high = (trained(task, local, stacked=True) for local in clipped)
    assert 1e-4 < apart(low, high) < 0.1


@pytest.mark.parametrize("executor", ["layers", "autograd"])
@pytest.mark.parametrize("stacked", [False, True], ids=["alone", "stacked"])
def test_batch_normalisation_keeps_its_statistics_in_float32(executor: str, stacked: bool) -> None:
    task = task_of(normalised, (3, 8, 8), executor)
    low, high = trained(task, ROUNDED, stacked), trained(task, EXACT, stacked)
    b = task.buffers
    assert low.dtype == torch.float32
    assert b > 0
    assert 1e-5 < apart(low[:, -b:], high[:, -b:]) < 0.05
    assert 1e-4 < apart(low, high) < 0.2
    if executor == "layers":  # of other modules torch may know no rule for several clients at once in mixed types
        assert task.computed.stackable  # type: ignore[attr-defined]


def test_dropout_is_drawn_as_in_float32() -> None:
    def make() -> nn.Module:
        return nn.Sequential(nn.Dropout(0.4), nn.Linear(9, 20), nn.ReLU(), nn.Dropout(0.3), nn.Linear(20, 5))

    for executor in ("dense", "layers"):
        task = task_of(make, (9,), executor)
        assert apart(trained(task, ROUNDED, True), trained(task, EXACT, True)) < 0.05  # other masks: more than 0.5


@every_kind
def test_one_and_two_workers_give_the_same_bits(kind: str) -> None:
    task = task_of_kind(kind)
    X = task.initial(0).repeat(CLIENTS, 1)
    down = fedawe.Broadcast(X)
    expected = Inline(task, ROUNDED, False).train(down, A, 2, 0, A).G
    engine = Processes(task, ROUNDED, 2, CLIENTS, X[0], False)
    try:
        assert torch.equal(engine.train(down, A, 2, 0, A).G, expected)
    finally:
        engine.close()
    assert not torch.equal(expected, Inline(task, EXACT, False).train(down, A, 2, 0, A).G)


# What is refused


def test_another_precision_is_refused() -> None:
    for given in ("float16", "double", None, torch.bfloat16):
        with pytest.raises(fedawe.UserError) as refusal:
            fedawe.Local(precision=given)  # type: ignore[arg-type]
        assert str(refusal.value) == f"precision is {given!r}; expected 'float32' or 'bfloat16'"


def refusal_of(task: Any, x: Any) -> str:
    with pytest.raises(fedawe.UserError) as refusal:
        ROUNDED.check_precision(task, x)
    assert "\n" not in str(refusal.value)
    return str(refusal.value)


def test_tasks_and_devices_that_cannot_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    quadratic, trace = fedawe.Quadratic(torch.zeros(3, 2)), fedawe.Trace(np.ones((2, 3), bool))
    with pytest.raises(fedawe.UserError, match=r"Quadratic is not trained under torch\.autocast"):
        fedawe.simulate(quadratic, fedawe.FedAvg(), trace, ROUNDED, seed=0)
    task = task_of_kind("dense")
    assert "the models are torch.float64; expected torch.float32" in refusal_of(task, task.initial(0).double())
    monkeypatch.setattr(torch.cuda, "is_bf16_supported", lambda: False)
    old = SimpleNamespace(dtype=torch.float32, device=torch.device("cuda"))
    assert "this CUDA device does not have" in refusal_of(task, old)
    EXACT.check_precision(fedawe.Quadratic(torch.zeros(3, 2).double()), torch.zeros(1).double())


def test_a_processor_without_an_lstm_in_bfloat16_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    def missing(*_: object) -> None:
        raise RuntimeError("could not create a primitive descriptor for the LSTM forward propagation primitive.")

    draw = np.random.default_rng(0)
    x = torch.from_numpy(draw.integers(modules.CLASSES, size=(60, 7)))
    network, parts = ModuleNetwork(modules.Characters), list(np.arange(48).reshape(CLIENTS, 12))
    task = Classification(Data("text", x[:48], x[:48, -1], x[48:], x[48:, -1]), network, parts)
    monkeypatch.setattr(torch._VF, "lstm", missing)
    with pytest.raises(fedawe.UserError, match="in which this processor cannot compute the network; use float32"):
        trained(task, ROUNDED, False)
    with pytest.raises(RuntimeError, match="could not create a primitive"):
        trained(task, EXACT, False)


# Experiments


def run(out: Path, precision: Any) -> dict[str, Any]:
    settings = Settings(clients=4, rounds=2, steps=2, alpha=10.0, precision=precision)
    experiment_of(settings, ["fedavg"], [0]).run(out)
    record = records.read(out / "fedavg" / "seed-0" / records.NAME)
    return {"header": record.header, "loss": record.evaluations[-1]["test_loss"]}


def test_a_record_says_the_precision_and_its_folder_takes_no_other(tmp_path: Path) -> None:
    low, high = run(tmp_path / "low", "bfloat16"), run(tmp_path / "high", "float32")
    assert low["header"]["local"]["precision"] == "bfloat16"
    assert high["header"]["local"]["precision"] == "float32"
    assert low["loss"] != high["loss"]
    assert low["loss"] == pytest.approx(high["loss"], rel=0.02)
    with pytest.raises(fedawe.UserError, match=r"local\.precision = bfloat16, not float32; choose another --out"):
        run(tmp_path / "low", "float32")


def test_the_flag_of_the_command_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    words = "--clients 4 --rounds 2 --steps 2 --alpha 10 --algorithms fedavg --seeds 0 --workers 1"
    monkeypatch.setattr(
        sys, "argv", ["fedawe", "run", *words.split(), "--precision", "bfloat16", "--out", str(tmp_path / "cli")]
    )
    main()
    record = records.read(tmp_path / "cli" / "fedavg" / "seed-0" / records.NAME)
    assert record.header["local"]["precision"] == "bfloat16"
    assert record.evaluations[-1]["test_loss"] == run(tmp_path / "api", "bfloat16")["loss"]


def test_a_record_of_before_was_made_in_float32() -> None:
    before = {"local": {"steps": 10}}
    assert first_difference(before, {"local": {"steps": 10, "precision": "float32"}}) is None
    found = first_difference(before, {"local": {"steps": 10, "precision": "bfloat16"}})
    assert found == ("local.precision", "float32", "bfloat16")
