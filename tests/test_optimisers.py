"""Local optimisers are those of torch.optim, step by step; epochs give every client its own number of steps."""

from typing import Any

import numpy as np
import pytest
import torch

import fedawe
from fedawe.algorithms.exchange import Broadcast
from fedawe.tasks import Classification, ModuleNetwork, Update, network_for
from fedawe.training.engines import Inline
from fedawe.training.engines.base import innovations
from fedawe.training.shares import trained

PAIRS: dict[str, tuple[Any, Any]] = {
    "sgd": (fedawe.SGD(), lambda p: torch.optim.SGD(p, lr=0.1)),
    "decay": (fedawe.SGD(weight_decay=0.2), lambda p: torch.optim.SGD(p, lr=0.1, weight_decay=0.2)),
    "momentum": (fedawe.SGD(momentum=0.9), lambda p: torch.optim.SGD(p, lr=0.1, momentum=0.9)),
    "nesterov": (
        fedawe.SGD(momentum=0.9, nesterov=True, weight_decay=0.1),
        lambda p: torch.optim.SGD(p, lr=0.1, momentum=0.9, nesterov=True, weight_decay=0.1),
    ),
    "adam": (fedawe.Adam(), lambda p: torch.optim.Adam(p, lr=0.1)),
    "adam options": (
        fedawe.Adam(0.8, 0.95, 1e-3, 0.1),
        lambda p: torch.optim.Adam(p, lr=0.1, betas=(0.8, 0.95), eps=1e-3, weight_decay=0.1),
    ),
    "adamw": (fedawe.AdamW(weight_decay=0.3), lambda p: torch.optim.AdamW(p, lr=0.1, weight_decay=0.3)),
}


@pytest.mark.parametrize("name", PAIRS)
def test_every_step_is_that_of_torch(name: str) -> None:
    ours, theirs = PAIRS[name]
    draw = torch.Generator().manual_seed(3)
    rows = torch.randn(3, 4, generator=draw, dtype=torch.float64)
    x = rows.clone()
    parameters = [torch.nn.Parameter(row.clone()) for row in rows]
    optimisers, move = [theirs([p]) for p in parameters], Update(0.1, optimiser=ours).begin(x)
    for _ in range(6):
        g = torch.randn(3, 4, generator=draw, dtype=torch.float64)
        move(g.clone())
        for p, optimiser, row in zip(parameters, optimisers, g, strict=True):
            p.grad = row.clone()
            optimiser.step()
        torch.testing.assert_close(x, torch.stack([p.data for p in parameters]), rtol=1e-12, atol=1e-12)


def test_clip_shift_and_prox_come_before_the_optimiser() -> None:
    x = torch.tensor([[1.0, 2.0]], dtype=torch.float64)
    shift = torch.tensor([[0.5, -0.5]], dtype=torch.float64)
    move = Update(0.1, clip=1.0, shift=shift, prox=2.0, optimiser=fedawe.SGD(momentum=0.5)).begin(x)
    y, b, g = np.array([1.0, 2.0]), np.zeros(2), np.array([3.0, 4.0])
    for step in range(4):
        total = g / 5 + shift.numpy()[0] + 2.0 * (y - np.array([1.0, 2.0]))
        b = total if step == 0 else 0.5 * b + total
        y = y - 0.1 * b
        move(torch.from_numpy(g)[None])
        np.testing.assert_allclose(x[0].numpy(), y, rtol=1e-12)


@pytest.mark.parametrize("optimiser", [fedawe.SGD(), fedawe.SGD(0.9), fedawe.SGD(0.7, nesterov=True), None])
@pytest.mark.parametrize("prox", [0.0, 0.5])
def test_the_weight_is_the_innovation_of_constant_gradients_over_the_rate(optimiser: Any, prox: float) -> None:
    if prox and optimiser is not None and optimiser.remembers:
        return  # no closed form
    local = fedawe.Local(fedawe.Rate(0.2, "constant"), steps=7, optimiser=optimiser)
    x = torch.zeros(1, 1, dtype=torch.float64)
    move = local.update(0, None, prox, None).begin(x)
    for _ in range(7):
        move(torch.ones(1, 1, dtype=torch.float64))
    assert float(local.weights(None, 1, 0, prox)) == pytest.approx(-float(x) / 0.2, rel=1e-12)


def half_frozen() -> torch.nn.Module:
    module = torch.nn.Sequential(torch.nn.Flatten(), torch.nn.Linear(64, 8), torch.nn.Tanh(), torch.nn.Linear(8, 10))
    module[1].requires_grad_(False)
    return module


@pytest.mark.parametrize("stacked", [False, True])
@pytest.mark.parametrize("name", ["decay", "nesterov", "adam options", "adamw"])
def test_what_is_not_trained_comes_back_as_it_was_sent_and_the_rest_as_from_torch(name: str, stacked: bool) -> None:
    data, (ours, theirs) = fedawe.digits(), PAIRS[name]
    task = Classification(data, ModuleNetwork(half_frozen), [np.arange(5), np.arange(5, 60)])
    local = fedawe.Local(fedawe.Rate(0.1, "constant"), steps=4, batch=8, optimiser=ours)
    x, A = task.initial(0), torch.arange(2)
    G = innovations(task, local, x.repeat(2, 1), A, 0, 0, stacked=stacked)
    assert list(task.layout.frozen) == ["1.weight", "1.bias"]
    for i in A.tolist():
        module = half_frozen()
        module.load_state_dict(task.layout.state_dict(x))
        optimiser = theirs(module.parameters())
        for rows in task.samples(i, 0, local.work(A[i : i + 1], 0, 0)):
            optimiser.zero_grad()
            inputs = data.inputs(data.x_train, torch.from_numpy(rows))
            torch.nn.functional.cross_entropy(module(inputs), data.y_train[rows]).backward()
            optimiser.step()
        torch.testing.assert_close(G[i], x - task.layout.vector(module.state_dict()), rtol=1e-3, atol=1e-5)
    assert not any(G[:, at].any() for at in task.layout.frozen.values())
    down = Broadcast(x.repeat(2, 1), shift=torch.ones(2, len(x)), prox=0.5)
    shifted = trained(task, local, down, A, 0, 0, torch.zeros_like(A), stacked).G
    assert not any(shifted[:, at].any() for at in task.layout.frozen.values())


def uneven() -> Classification:
    data = fedawe.digits()
    return Classification(data, network_for(data, "softmax"), [np.arange(5), np.arange(5, 60), np.arange(60, 100)])


@pytest.mark.parametrize("optimiser", [None, fedawe.Adam()])
@pytest.mark.parametrize("batches", ["iid", "epochs"])
def test_epochs_give_each_client_its_own_number_of_steps(optimiser: Any, batches: Any) -> None:
    task, A = uneven(), torch.arange(3)
    local = fedawe.Local(fedawe.Rate(0.01), batch=10, batches=batches, optimiser=optimiser, epochs=2)
    counts = local.counts(task, A)
    assert counts is not None
    assert counts.tolist() == [2, 10, 8]
    X = task.initial(0).repeat(3, 1)
    together = innovations(task, local, X, A, 3, 0, stacked=True)
    alone = innovations(task, local, X, A, 3, 0, stacked=False)
    torch.testing.assert_close(together, alone, rtol=0, atol=1e-6)
    for i, steps in enumerate(counts.tolist()):  # as if everyone had been told its own number of steps
        own = fedawe.Local(fedawe.Rate(0.01), int(steps), 10, batches=batches, optimiser=optimiser)
        torch.testing.assert_close(innovations(task, own, X[:1], A[i : i + 1], 3, 0)[0], alone[i], rtol=0, atol=1e-6)


def test_fednova_receives_the_numbers_of_steps() -> None:
    task = uneven()
    local = fedawe.Local(fedawe.Rate(0.05), batch=10, epochs=1)
    engine = Inline(task, local)
    A = torch.arange(3)
    up = engine.train(fedawe.Broadcast(task.initial(0).repeat(3, 1)), A, 0, 0, torch.zeros(3, dtype=torch.int64))
    assert up.weight.tolist() == [1, 5, 4]
    trace = fedawe.Trace(np.ones((3, 3), dtype=bool))
    nova, avg = (
        list(fedawe.simulate(task, a, trace, local, seed=0))[-1].x for a in (fedawe.FedNova(), fedawe.FedAvg())
    )
    assert not torch.allclose(nova, avg)


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: fedawe.SGD(momentum=1.0), "momentum is 1.0; expected a number from 0 and below 1"),
        (lambda: fedawe.SGD(nesterov=True), "needs a momentum"),
        (lambda: fedawe.SGD(weight_decay=-1), "weight_decay is -1"),
        (lambda: fedawe.Adam(b2=1.0), "b2 is 1.0"),
        (lambda: fedawe.Adam(eps=0), "eps is 0"),
        (lambda: fedawe.Adam(eps="1e-8"), "eps is '1e-8'; expected a positive number"),
        (lambda: fedawe.Adam(b1="0.9"), "b1 is '0.9'; expected a number from 0 and below 1"),
        (lambda: fedawe.Local(optimiser="adam"), "optimiser is 'adam'; expected fedawe.SGD"),
        (lambda: fedawe.Local(epochs=0), "epochs is 0"),
    ],
)
def test_optimisers_that_make_no_sense_are_refused(make: Any, message: str) -> None:
    with pytest.raises(fedawe.UserError, match=message):
        make()


def test_numbers_of_numpy_are_taken() -> None:
    assert fedawe.SGD(momentum=np.float32(0.5)) == fedawe.SGD(momentum=0.5)
    assert fedawe.AdamW(eps=np.float32(0.5), weight_decay=np.float16(0.25)) == fedawe.AdamW(eps=0.5, weight_decay=0.25)
