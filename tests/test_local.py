"""Local training against a plain torch.nn loop with torch.optim.SGD on the same batches."""

from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn
from torch.nn.utils import parameters_to_vector, vector_to_parameters

import fedawe
from fedawe.tasks import Classification, Data, ModuleNetwork, network_for
from fedawe.training.engines.base import innovations

CLASSES = 4
MODELS = ["softmax", "mlp", "cnn"]
every_model = pytest.mark.parametrize("model", MODELS)
NOBODY = torch.empty(0, dtype=torch.int64)


def some_data(dtype: torch.dtype = torch.float32) -> Data:
    """Images of 8 x 8 with a trace of their class in them."""
    draw = np.random.default_rng(0)
    y = draw.integers(CLASSES, size=120)
    x = draw.normal(size=(120, 1, 8, 8)) + y[:, None, None, None] / 2
    inputs, labels = torch.from_numpy(x).to(dtype), torch.from_numpy(y)
    return Data("noise", inputs[:100], labels[:100], inputs[100:], labels[100:])


SIZES = [40, 8, 26, 16, 9, 1]  # with batches of 16: more than one, less, as many
PARTS = np.split(np.random.default_rng(1).permutation(100), np.cumsum(SIZES)[:-1])


def task_of(model: Any, dtype: torch.dtype = torch.float32, parts: list[np.ndarray] = PARTS, **options: Any) -> Any:
    data = some_data(dtype)
    network = network_for(data, model)
    if dtype == torch.float64:
        network = ModuleNetwork(lambda: network_for(data, model).make().double())
    return Classification(data, network, parts, **options)


def plain_module(model: str) -> nn.Module:
    """What anybody would write."""
    if model == "softmax":
        return nn.Sequential(nn.Flatten(), nn.Linear(64, CLASSES))
    if model == "mlp":
        return nn.Sequential(nn.Flatten(), nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, CLASSES))
    return nn.Sequential(
        nn.Conv2d(1, 8, 3, padding=1),
        nn.ReLU(),
        nn.MaxPool2d(2),
        nn.Conv2d(8, 16, 3, padding=1),
        nn.ReLU(),
        nn.MaxPool2d(2),
        nn.Flatten(),
        nn.Linear(64, CLASSES),
    )


def plain_training(model: str, data: Data, x: Tensor, batches: list[Tensor], lr: float, clip: float | None) -> Tensor:
    """x^(s), by autograd and torch's own SGD; `batches` has the samples of each step."""
    module = plain_module(model).to(x.dtype)
    vector_to_parameters(x.clone(), module.parameters())
    optimiser = torch.optim.SGD(module.parameters(), lr=lr)
    for samples in batches:
        optimiser.zero_grad()
        nn.functional.cross_entropy(module(data.x_train[samples]), data.y_train[samples]).backward()
        if clip is not None:
            norm = torch.sqrt(sum(((p.grad**2).sum() for p in module.parameters()), torch.zeros(())))
            for parameter in module.parameters():
                assert parameter.grad is not None
                parameter.grad *= min(1.0, clip / float(norm))
        optimiser.step()
    return parameters_to_vector(module.parameters()).detach()


def batches_of(i: int, t: int, local: fedawe.Local, seed: int) -> list[Tensor]:
    """The samples client i looks at, step by step, by the rule: named draws, or all it has if that is no more."""
    mine = torch.from_numpy(PARTS[i])
    if len(mine) <= local.batch:
        return [mine] * local.steps
    draws = fedawe.rng(seed, "batch", t, i).integers(len(mine), size=(local.steps, local.batch))
    return [mine[torch.from_numpy(row)] for row in draws]


def starts(task: Any, k: int, dtype: torch.dtype) -> Tensor:
    """Another model for each of k clients."""
    return torch.stack([task.initial(seed) for seed in range(k)]).to(dtype)


@every_model
@pytest.mark.parametrize("clip_grad", [None, 0.3])
@pytest.mark.parametrize(("dtype", "tolerance"), [(torch.float64, 1e-13), (torch.float32, 1e-5)], ids=str)
def test_it_is_plain_sgd(model: str, clip_grad: float | None, dtype: torch.dtype, tolerance: float) -> None:
    task, t, seed = task_of(model, dtype), 7, 3
    local = fedawe.Local(fedawe.Rate(0.2), steps=5, batch=16, clip_grad=clip_grad)
    A = torch.tensor([4, 2, 0, 3, 1, 5])
    X = starts(task, len(A), dtype)
    before = X.clone()
    G = innovations(task, local, X, A, t, seed)
    assert G.dtype == dtype
    assert torch.equal(X, before)
    for n, i in enumerate(A.tolist()):
        lr = 0.2 / (t / 10 + 1) ** 0.5
        end = plain_training(model, task.data, X[n], batches_of(i, t, local, seed), lr, clip_grad)
        assert float((X[n] - end).norm()) > 0.01
        torch.testing.assert_close(G[n], X[n] - end, rtol=0, atol=tolerance)


def test_the_clip_was_in_force() -> None:
    # With one step the length of the innovation is the rate times the clip, or the rate times the gradient.
    task, A = task_of("mlp", torch.float64), torch.tensor([0, 2])
    X = starts(task, 2, torch.float64)
    free, clipped, loose = (
        innovations(task, fedawe.Local(fedawe.Rate(0.1), steps=1, batch=8, clip_grad=c), X, A, 0, 0).norm(dim=1)
        for c in (None, 0.5, 1e6)
    )
    assert (free > 0.05).all()
    torch.testing.assert_close(clipped, torch.full((2,), 0.05, dtype=torch.float64))
    torch.testing.assert_close(loose, free)


@every_model
def test_stacked_is_one_at_a_time(model: str) -> None:
    task, A = task_of(model), torch.tensor([3, 0, 4, 2, 1, 5])
    local = fedawe.Local(fedawe.Rate(0.1), steps=6, batch=10)
    X = starts(task, 6, torch.float32)
    together = innovations(task, local, X, A, 4, 9)
    for n in range(6):
        alone = innovations(task, local, X[n : n + 1], A[n : n + 1], 4, 9)
        torch.testing.assert_close(together[n : n + 1], alone, rtol=1e-4, atol=1e-6)


def test_many_clients_are_one_at_a_time() -> None:
    u = torch.from_numpy(np.random.default_rng(2).normal(size=(75, 3)))  # more than are ever stacked, and no multiple
    task, A = fedawe.Quadratic(u, noise=0.1), torch.from_numpy(np.random.default_rng(3).permutation(75))
    X = torch.from_numpy(np.random.default_rng(4).normal(size=(75, 3)))
    together = innovations(task, fedawe.Local(steps=3), X, A, 4, 9)
    for n in range(75):
        alone = innovations(task, fedawe.Local(steps=3), X[n : n + 1], A[n : n + 1], 4, 9)
        torch.testing.assert_close(together[n : n + 1], alone, rtol=0, atol=1e-12)


def tasks_of_all_kinds() -> dict[str, Any]:
    u = torch.arange(12.0).reshape(6, 2)
    quadratics = {"quadratic": fedawe.Quadratic(u), "quadratic with noise": fedawe.Quadratic(u, noise=0.1)}
    return {**{model: task_of(model) for model in MODELS}, **quadratics}


every_task = pytest.mark.parametrize("name", tasks_of_all_kinds())


@every_task
def test_nobody_has_no_innovations(name: str) -> None:
    task = tasks_of_all_kinds()[name]
    X = task.initial(0).repeat(0, 1)
    G = innovations(task, fedawe.Local(steps=2), X, NOBODY, 0, 0)
    assert G.shape == (0, len(task.initial(0)))
    assert G.dtype == X.dtype


@every_task
def test_a_run_with_empty_rounds(name: str) -> None:
    task = tasks_of_all_kinds()[name]
    trace = fedawe.Trace([[False] * 6, [True, False, True, False, False, False], [False] * 6])
    rounds = list(fedawe.simulate(task, fedawe.FedAWE(), trace, fedawe.Local(steps=1), seed=0))
    assert torch.equal(rounds[0].x, task.initial(0))
    assert not torch.equal(rounds[1].x, rounds[0].x)
    assert torch.equal(rounds[2].x, rounds[1].x)


@every_task
def test_what_a_client_does_depends_on_seed_round_and_client_alone(name: str) -> None:
    task = tasks_of_all_kinds()[name]
    local, X = fedawe.Local(steps=3, batch=8), task.initial(0).repeat(6, 1)
    torch.manual_seed(0)
    one = innovations(task, local, X, torch.arange(6), 2, 7)
    torch.manual_seed(1)
    same = innovations(task, local, X, torch.arange(6), 2, 7)
    assert torch.equal(one, same)
    backwards = innovations(task, local, X, torch.arange(6).flip(0), 2, 7).flip(0)
    torch.testing.assert_close(backwards, one, rtol=1e-4, atol=1e-6)
    if name != "quadratic":  # where nothing is random
        constant = fedawe.Local(fedawe.Rate(schedule="constant"), steps=3, batch=8)
        G = [innovations(task, constant, X, torch.arange(6), t, seed)[0] for t, seed in ((2, 7), (3, 7), (2, 8))]
        assert not torch.equal(G[0], G[1])
        assert not torch.equal(G[0], G[2])


def test_a_module_with_dropout_is_as_reproducible_as_any() -> None:
    data = some_data()
    network = ModuleNetwork(lambda: nn.Sequential(nn.Flatten(), nn.Dropout(0.5), nn.Linear(64, CLASSES)))
    task = Classification(data, network, PARTS)
    X, A = task.initial(0).repeat(2, 1), torch.tensor([0, 2])
    torch.manual_seed(0)
    one = innovations(task, fedawe.Local(steps=2, batch=8), X, A, 0, 0)
    torch.manual_seed(1)
    other = innovations(task, fedawe.Local(steps=2, batch=8), X, A, 0, 0)
    assert torch.equal(one, other)


class AlwaysDropping(nn.Module):
    """Drops units in evaluation too, as `dropout` does unless it is told whether the module trains."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(64, CLASSES)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.layer(nn.functional.dropout(x.flatten(1)))


def test_a_module_that_draws_in_evaluation_is_as_reproducible_as_any() -> None:
    task = Classification(some_data(), ModuleNetwork(AlwaysDropping), PARTS)
    x, before = task.initial(0), torch.get_rng_state()
    found = task.evaluate(x)
    assert torch.equal(torch.get_rng_state(), before)
    torch.rand(3)
    assert task.evaluate(x) == found
    work = fedawe.Local(batch=8).work(torch.arange(3), 0, 0)
    one, other = (task.losses(x.repeat(3, 1), task.batches(work)) for _ in range(2))
    assert torch.equal(one, other)


def test_the_buffers_of_a_module_stay_as_they_were_made() -> None:
    data = some_data()
    network = ModuleNetwork(lambda: nn.Sequential(nn.Flatten(), nn.BatchNorm1d(64), nn.Linear(64, CLASSES)))
    task = Classification(data, network, PARTS)
    before = {name: buffer.clone() for name, buffer in network.module.named_buffers()}
    assert before
    innovations(task, fedawe.Local(steps=2, batch=8), task.initial(0).repeat(1, 1), torch.tensor([0]), 0, 0)
    for name, buffer in network.module.named_buffers():
        assert torch.equal(buffer, before[name]), name


# Samples


@every_model
def test_a_client_looks_at_its_own_samples_only(model: str) -> None:
    task, local = task_of(model), fedawe.Local(steps=3, batch=16)
    X, A = starts(task, len(PARTS), torch.float32), torch.arange(len(PARTS))
    G = innovations(task, local, X, A, 0, 0)
    for i, part in enumerate(PARTS):
        data = some_data()
        others = torch.ones(100, dtype=torch.bool)
        others[part] = False
        data.x_train[others] += 1.0
        data.y_train[others] = (data.y_train[others] + 1) % CLASSES
        changed = innovations(Classification(data, network_for(data, model), PARTS), local, X, A, 0, 0)
        assert [torch.equal(changed[j], G[j]) for j in range(len(PARTS))] == [j == i for j in range(len(PARTS))]


@every_model
def test_a_client_with_no_more_than_a_batch_uses_every_sample_in_every_step(model: str) -> None:
    task, local = task_of(model), fedawe.Local(fedawe.Rate(0.1, "constant"), steps=1, batch=16)
    X = task.initial(0).repeat(1, 1)
    for i in (1, 3, 4, 5):
        G = [innovations(task, local, X, torch.tensor([i]), t, seed) for t, seed in ((0, 0), (1, 0), (0, 1))]
        assert torch.equal(G[0], G[1])  # nothing is left to chance
        assert torch.equal(G[0], G[2])
        for sample in PARTS[i]:
            data = some_data()
            data.x_train[sample] += 1.0
            other = Classification(data, network_for(data, model), PARTS)
            assert not torch.equal(innovations(other, local, X, torch.tensor([i]), 0, 0), G[0])


@every_model
def test_a_client_without_samples_is_refused_or_stays_where_it_is(model: str) -> None:
    parts = [np.arange(0, 50), np.array([], dtype=np.int64), np.arange(50, 100)]
    with pytest.raises(fedawe.UserError, match="1 of 3 clients have no data"):
        task_of(model, parts=parts)
    task = task_of(model, parts=parts, keep_empty=True)
    X = task.initial(0).repeat(3, 1)
    for A in ([0, 1, 2], [1], [2, 1]):
        G = innovations(task, fedawe.Local(steps=3, batch=8), X[A], torch.tensor(A), 0, 0)
        for n, i in enumerate(A):
            assert bool(G[n].any()) is (i != 1)
    assert all(np.isfinite(value).all() for value in task.evaluate(X[0]).values())


# The rate


def test_the_rate_of_the_paper_and_a_constant_one() -> None:
    for t in (0, 1, 10, 30, 1999):
        assert fedawe.Rate(0.1)(t) == pytest.approx(0.1 / (t / 10 + 1) ** 0.5)
        assert fedawe.Rate(0.1, "constant")(t) == 0.1
    assert fedawe.Rate(0.1)(30) == 0.05


def test_the_rate_is_that_of_the_round() -> None:
    task = fedawe.Quadratic(torch.tensor([[1.0]], dtype=torch.float64))
    X, A = torch.zeros(1, 1, dtype=torch.float64), torch.tensor([0])
    for t in (0, 30, 100):
        rate = 0.1 / (t / 10 + 1) ** 0.5
        for steps in (1, 4):
            G = innovations(task, fedawe.Local(fedawe.Rate(0.1), steps=steps), X, A, t, 0)
            assert float(G) == pytest.approx(-(1 - (1 - rate) ** steps))


def test_a_quadratic_has_the_curvature_and_the_noise_it_says() -> None:
    u, h = torch.tensor([[1.0, 2.0], [3.0, 4.0]], dtype=torch.float64), torch.tensor([[0.5, 1.0], [2.0, 3.0]]).double()
    G = innovations(fedawe.Quadratic(u, h), fedawe.Local(steps=3), torch.zeros_like(u), torch.tensor([0, 1]), 0, 0)
    torch.testing.assert_close(G, -u * (1 - (1 - 0.1 * h) ** 3))
    noisy = fedawe.Quadratic(torch.zeros(1, 5_000, dtype=torch.float64), noise=2.0)
    one = fedawe.Local(fedawe.Rate(0.1), steps=1)
    G = innovations(noisy, one, torch.zeros(1, 5_000, dtype=torch.float64), torch.tensor([0]), 0, 0)
    # 5000 independent coordinates: the deviation is known to a share of 1/sqrt(2 * 5000), the mean to 0.2/sqrt(5000).
    assert float(G.std()) == pytest.approx(0.1 * 2.0, rel=4.5 / (2 * 5_000) ** 0.5)
    assert abs(float(G.mean())) < 4.5 * 0.2 / 5_000**0.5


# Refusals


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: fedawe.Rate(0.0), "eta0 is 0.0"),
        (lambda: fedawe.Rate(-0.1), "eta0 is -0.1"),
        (lambda: fedawe.Rate(float("nan")), "eta0 is nan"),
        (lambda: fedawe.Rate(float("inf")), "eta0 is inf"),
        (lambda: fedawe.Rate(0.1, "cosine"), "schedule is 'cosine'"),
        (lambda: fedawe.Local(steps=0), "steps is 0"),
        (lambda: fedawe.Local(steps=1.5), "steps is 1.5"),
        (lambda: fedawe.Local(steps=True), "steps is True; expected a whole number"),
        (lambda: fedawe.Local(steps=None), "steps is None; expected a whole number"),
        (lambda: fedawe.Local(epochs=0), "epochs is 0; expected a whole number from 1 to 1,000,000,000, or None for"),
        (lambda: fedawe.Local(batch=0), "batch is 0"),
        (lambda: fedawe.Local(batch=-3), "batch is -3"),
        (lambda: fedawe.Local(clip_grad=0.0), "clip_grad is 0.0"),
        (lambda: fedawe.Local(clip_grad=float("nan")), "clip_grad is nan"),
    ],
)
def test_training_that_cannot_be_meant_is_refused(make: Any, message: str) -> None:
    with pytest.raises(fedawe.UserError, match=message):
        make()


def test_whole_numbers_of_numpy_are_those_of_python() -> None:
    found = fedawe.Local(steps=np.int64(3), batch=np.int32(8), epochs=np.int8(2))
    assert repr(found) == repr(fedawe.Local(steps=3, batch=8, epochs=2))


@pytest.mark.parametrize("clients", [[0, 1, 2], [2], [2, 0]])
def test_divergence_names_round_client_and_rate(clients: list[int]) -> None:
    # Client 2 alone is so steep that every step multiplies its distance by some thousands.
    h = torch.ones(3, 2)
    h[2] = 1e5
    task = fedawe.Quadratic(torch.ones(3, 2), h)
    A = torch.tensor(clients)
    with pytest.raises(fedawe.Diverged) as refusal:
        innovations(task, fedawe.Local(fedawe.Rate(0.1), steps=30), torch.zeros(len(A), 2), A, 30, 0)
    text = str(refusal.value)
    assert "round 30" in text
    assert "client 2" in text
    assert "0.05" in text  # the rate of the round, not eta_0
    assert "\n" not in text
    assert isinstance(refusal.value, fedawe.UserError)


@every_model
def test_divergence_of_a_network_is_found_too(model: str) -> None:
    task = task_of(model)
    X = task.initial(0).repeat(2, 1)
    X[1, 0] = float("inf")
    with pytest.raises(fedawe.Diverged, match="round 5 at client 2 with learning rate"):
        innovations(task, fedawe.Local(steps=2, batch=8), X, torch.tensor([0, 2]), 5, 0)


# How networks begin


def test_dense_layers_begin_as_the_authors_do() -> None:
    """Hidden layers N(0, 2/fan_in) with zero bias; the last U(-1/sqrt(fan_in), 1/sqrt(fan_in)), bias too."""
    task = task_of("mlp")
    x = task.initial(0)
    W1, b1, W2, b2 = x.split([64 * 64, 64, 64 * CLASSES, CLASSES])
    assert not b1.any()
    assert float(W1.std()) == pytest.approx((2 / 64) ** 0.5, rel=4.5 / (2 * 64 * 64) ** 0.5)
    last = torch.cat([W2, b2])
    assert float(last.abs().max()) <= 1 / 8
    assert float(last.abs().max()) > 0.95 / 8
    assert b2.any()
    assert torch.equal(task.initial(0), x)
    assert not torch.equal(task.initial(1), x)


def test_a_module_begins_by_the_seed_and_leaves_the_global_generator_alone() -> None:
    task = task_of("cnn")
    torch.manual_seed(5)
    state = torch.get_rng_state()
    one = task.initial(0)
    assert torch.equal(torch.get_rng_state(), state)
    torch.manual_seed(6)
    assert torch.equal(task.initial(0), one)
    assert not torch.equal(task.initial(1), one)
