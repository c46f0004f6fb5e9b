"""Engines: the same numbers whoever computes them."""

import dataclasses
import json
import os
import platform
import resource
import time
from collections.abc import Callable

import numpy as np
import pytest
import torch
from torch import nn

import fedawe
from fedawe.experiments.build import experiment_of
from fedawe.experiments.execution import Execution
from fedawe.experiments.run import Progress
from fedawe.experiments.settings import Settings
from fedawe.results import record as records
from fedawe.tasks import Augment, Classification, Data, ModuleNetwork, Task
from fedawe.tasks.models import dense, paper
from fedawe.training.engines import Inline, Processes, cores, keep_freed_memory
from fedawe.training.engines.base import innovations
from fedawe.training.shares import STACK, groups
from fedawe.training.stacking import is_stacked


def images(clients=20, each=24, size=8, classes=4):
    draw = np.random.default_rng(0)
    n = clients * each
    x, y = draw.integers(256, size=(n, size, size, 3), dtype=np.uint8), draw.integers(classes, size=n)
    x[y == 0, :4] //= 4  # something to learn
    data = Data("svhn", torch.from_numpy(x), torch.from_numpy(y), torch.from_numpy(x[:50]), torch.from_numpy(y[:50]))
    data = dataclasses.replace(data, mean=(0.4, 0.5, 0.6), std=(0.2, 0.3, 0.4))
    return data, list(np.arange(n).reshape(clients, each))


def small(network=None, **kwargs) -> Classification:
    data, parts = images()
    return Classification(data, network or paper((3, 8, 8), (16,), 4), parts, **kwargs)


@pytest.fixture(scope="module")
def two():
    """An engine of two processes, which take seconds to start; `use` gives it a task."""
    task = small()
    engine = Processes(task, fedawe.Local(), 2, 20, task.initial(0))
    yield engine
    engine.close()


def test_any_number_of_workers_gives_the_same_bits(two):
    local = fedawe.Local(fedawe.Rate(0.1), steps=3, batch=8, batches="epochs")
    trace = fedawe.Trace(np.random.default_rng(1).random((4, 20)) < 0.9)
    tasks = small(augment=Augment(flip=True)), small(augment=Augment(flip=True))
    tasks[1].stacked = True
    made = [Processes(tasks[0], local, workers, 20, tasks[0].initial(0)) for workers in (1, 3)]
    try:
        for task in tasks:
            alone = Inline(task, local)
            *_, last = fedawe.simulate(task, fedawe.FedAWE(), trace, local, seed=0, engine=alone)
            for engine in (*made, two):
                engine.use(task, local)
                *_, other = fedawe.simulate(task, fedawe.FedAWE(), trace, local, seed=0, engine=engine)
                assert torch.equal(other.x, last.x)
                assert engine.evaluate(other.x) == alone.evaluate(last.x)
    finally:
        for engine in made:
            engine.close()


def half_frozen():
    module = paper((3, 8, 8), (16,), 4).make()
    next(module.parameters()).requires_grad_(False)
    return module


def test_what_is_not_trained_stays_in_worker_processes_too(two):
    task = small(ModuleNetwork(half_frozen))
    local = fedawe.Local(fedawe.Rate(0.1), steps=3, batch=8, optimiser=fedawe.AdamW(weight_decay=0.5))
    two.use(task, local)
    trace = fedawe.Trace(np.ones((2, 20), dtype=bool))
    *_, last = fedawe.simulate(task, fedawe.FedAvg(), trace, local, seed=0, engine=two)
    moved = task.layout.tensors(last.x - task.initial(0))
    assert [name for name, one in moved.items() if not one.any()] == list(task.layout.frozen)


def test_the_number_of_threads_does_not_decide_the_bits():
    """Threads share the sums of a gradient, whose order decides the last bits."""
    data, parts = images()
    task, local = Classification(data, dense((192, 64, 4)), parts), fedawe.Local(fedawe.Rate(0.1), steps=3, batch=32)
    trace, before, found = fedawe.Trace(np.ones((3, 20))), torch.get_num_threads(), []
    try:
        for threads in (1, 2):
            torch.set_num_threads(threads)
            engine = Inline(task, local, stacked=False)
            *_, last = fedawe.simulate(task, fedawe.FedAvg(), trace, local, seed=0, engine=engine)
            found.append(last.x)
            assert torch.get_num_threads() == threads
    finally:
        torch.set_num_threads(before)
    assert torch.equal(*found)


@pytest.mark.parametrize("network", [paper((3, 8, 8), (16,), 4), dense((192, 8, 4))], ids=["convolutions", "dense"])
def test_stacked_and_one_by_one_agree_to_rounding(network):
    task = small(network)
    local = fedawe.Local(fedawe.Rate(0.1), steps=5, batch=8)
    A = torch.arange(20)
    X = task.initial(0).repeat(20, 1)
    G = {}
    for stacked in (False, True):
        task.stacked = stacked
        G[stacked] = innovations(task, local, X, A, 0, 0)
    torch.testing.assert_close(G[True], G[False], rtol=1e-4, atol=1e-6)
    assert not torch.equal(G[True], torch.zeros_like(G[True]))


def test_groups_cover_everyone_once_and_depend_on_nothing_else():
    for k in (0, 1, STACK - 1, STACK, STACK + 1, 3 * STACK + 2, 1000):
        for stacked in (False, True):
            rows = [n for group in groups(k, 650, stacked) for n in range(group.start, group.stop)]
            assert rows == list(range(k))
    assert len(groups(1000, 650, stacked=True)) == 8
    assert len(groups(160, 10**6, stacked=True)) == 10


class Broken(Classification):
    def batches(self, work):
        raise RuntimeError("no such kernel")


def test_a_worker_that_fails_says_why_and_one_that_is_killed_is_noticed():
    data, parts = images()
    task = Broken(data, paper((3, 8, 8), (16,), 4), parts)
    engine = Processes(task, fedawe.Local(steps=1, batch=4), 2, 2, task.initial(0))
    try:
        with pytest.raises(RuntimeError, match="no such kernel"):
            engine.train(fedawe.Broadcast(task.initial(0).repeat(2, 1)), torch.arange(2), 0, 0, torch.zeros(2))
        for process in engine.processes:
            process.kill()
            process.join()
        with pytest.raises(RuntimeError, match="a worker process died"):
            engine.train(fedawe.Broadcast(task.initial(0).repeat(2, 1)), torch.arange(2), 1, 0, torch.zeros(2))
    finally:
        engine.close()


def test_divergence_names_the_client_whoever_computes_it(two):
    task = small()
    two.use(task, fedawe.Local(fedawe.Rate(1e30), steps=3, batch=4))
    with pytest.raises(fedawe.Diverged, match=r"round 5 at client 3 with learning rate"):
        two.train(fedawe.Broadcast(task.initial(0).repeat(2, 1)), torch.tensor([3, 9]), 5, 0, torch.zeros(2))


class Branching(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(64, 10)

    def forward(self, x):
        h = self.layer(x.flatten(1))
        return h if float(h.detach().sum()) > 1e9 else h * 1.0  # a branch on data: vmap cannot follow


class Noisy(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(64, 10)

    def forward(self, x):
        h = self.layer(x.flatten(1))
        return h + 0.1 * torch.randn_like(h)


def convolving(channels: int) -> Callable[[], nn.Module]:
    layers = (nn.Conv2d(1, channels, 3, padding=1), nn.ReLU(), nn.Flatten(), nn.Linear(channels * 64, 10))
    return lambda: nn.Sequential(*layers)


def normalised(inner: int) -> Callable[[], nn.Module]:
    return lambda: nn.Sequential(
        nn.Flatten(), nn.Linear(64, inner), nn.LayerNorm(inner), nn.GELU(), nn.Linear(inner, 10)
    )


@pytest.mark.parametrize(
    ("make", "stacked"),
    [
        pytest.param(lambda: nn.Sequential(nn.Flatten(), nn.Linear(64, 4000), nn.ReLU(), nn.Linear(4000, 10)), True),
        pytest.param(normalised(64), True),
        pytest.param(normalised(2590), True),  # 199,440 parameters
        pytest.param(normalised(2600), False),  # 200,210 parameters
        pytest.param(convolving(4), True),  # without kernels
        pytest.param(convolving(16), False),  # with kernels
        pytest.param(
            lambda: nn.Sequential(nn.Flatten(), *[nn.Linear(64, 64), nn.GELU()] * 60, nn.Linear(64, 10)), False
        ),  # one layer, 60 times
        pytest.param(Branching, False),
        pytest.param(Noisy, False),
    ],
    ids=["dense", "small", "wide", "wider", "convolutions", "kernels", "deep", "branch", "noise"],
)
def test_small_networks_are_stacked_and_no_clock_decides(make, stacked, monkeypatch):
    """Large ones are not, nor those that torch cannot stack, nor those that draw random numbers by themselves."""
    monkeypatch.setattr(time, "perf_counter", None)
    data = fedawe.digits()
    parts = fedawe.dirichlet_partition(data.y_train, 20, 1.0, fedawe.rng(0, "partition"))
    network = ModuleNetwork(make)
    before = torch.get_rng_state()
    task = Classification(data, network, parts)
    assert task.stacked is stacked
    assert torch.equal(torch.get_rng_state(), before)
    assert is_stacked(task, fedawe.Local(batch=8)) is stacked
    assert is_stacked(task, fedawe.Local(batch=8), asked=not stacked) is not stacked


class Rows(fedawe.Quadratic):
    """Says nothing of stacking, and can do several clients."""

    stacked = None


class FirstRow(Rows):
    """Can do one client alone: the others receive what the first should."""

    def gradients(self, x, batches, step):
        return super().gradients(x, batches, step)[:1].expand_as(x)


class Alone(Rows):
    def batches(self, work):
        assert len(work.A) == 1
        return super().batches(work)


class FirstModel(Rows):
    """Takes the model of the first client for all: the same as long as all begin at the same model."""

    def gradients(self, x, batches, step):
        return super().gradients(x[:1].expand_as(x), batches, step)


class Poor(Rows):
    """Has a client without data, of which torch makes no number."""

    def batches(self, work):
        assert 3 not in work.A.tolist()
        return super().batches(work)


ALONE = [FirstRow, FirstModel, Alone, Poor]
TRAINING = {
    "sgd": fedawe.Local(fedawe.Rate(0.1), steps=2),
    "adam": fedawe.Local(fedawe.Rate(0.1), steps=2, optimiser=fedawe.Adam()),
    "clip": fedawe.Local(fedawe.Rate(0.1), steps=2, clip_grad=1e-3),
    "warm-up": fedawe.Local(lambda t: 0.01 * t, steps=2),
}


@pytest.mark.parametrize("local", list(TRAINING.values()), ids=list(TRAINING))
@pytest.mark.parametrize(("kind", "stacked"), [(Rows, True), *((kind, False) for kind in ALONE)])
def test_whether_a_task_can_be_stacked_does_not_depend_on_the_training(kind, stacked, local):
    """Adam's first step is as long as the rate for any gradient, a clipped one as the clip, a warm-up begins with 0."""
    before = torch.get_rng_state()
    assert is_stacked(kind(torch.tensor([[5.0], [6.0], [7.0], [8.0]])), local) is stacked
    assert torch.equal(torch.get_rng_state(), before)


class Draws(Rows):
    def gradients(self, x, batches, step):
        return super().gradients(x, batches, step) + torch.randn(x.shape)


def test_a_trial_draws_nothing_that_training_would_draw():
    """A task that draws from torch's own generator gets the same numbers, whether it was tried before or not."""
    u, local, trace = torch.zeros(2, 1), fedawe.Local(fedawe.Rate(0.1), steps=2), fedawe.Trace(np.ones((2, 2), bool))
    found = []
    for engine in (None, Inline(Draws(u), local, stacked=False)):
        torch.manual_seed(0)
        *_, last = fedawe.simulate(Draws(u), fedawe.FedAvg(), trace, local, seed=0, engine=engine)
        found.append(last.x)
    assert torch.equal(*found)


class Measured(Rows):
    """Two parameters and a buffer, of which the second client's is wrong when it is not alone."""

    buffers = 1

    def initial(self, seed):
        return torch.zeros(3)

    def gradients(self, x, batches, step):
        x[0, 2:] += 1000.0
        return super().gradients(x[:, :2], batches, step)


def test_buffers_count_beside_parameters_and_hide_nothing():
    class Hidden(Measured):
        def gradients(self, x, batches, step):
            x[:, 2:] += 1000.0
            return FirstRow.gradients(self, x[:, :2], batches, step)

    for kind in (Measured, Hidden):
        task = kind(torch.arange(12.0).reshape(6, 2))
        assert is_stacked(task, fedawe.Local(fedawe.Rate(0.1))) is False


def test_small_gradients_are_not_lost_in_the_rounding_of_a_step():
    """A step of 1e-7 from a model of size 1 has no digit that is right: the gradients themselves tell."""

    class Small(Rows):
        def initial(self, seed):
            return torch.ones(2000)

        def gradients(self, x, batches, step):
            """As sums of several clients in another order than that of one: rounded otherwise."""
            g = 1e-6 * super().gradients(x, batches, step)
            return g * (1 + 1e-4) if len(x) > 1 else g

    class SmallFirst(Small):
        def gradients(self, x, batches, step):
            return super().gradients(x, batches, step)[:1].expand_as(x)

    u = torch.linspace(0, 1, 8000).reshape(4, 2000)
    assert is_stacked(Small(u), fedawe.Local()) is True
    assert is_stacked(SmallFirst(u), fedawe.Local()) is False


def test_a_large_task_that_says_nothing_is_not_tried():
    class Large(Rows):
        def gradients(self, x, batches, step):
            raise AssertionError("it was tried")

    assert is_stacked(Large(torch.zeros(2, 200_001)), fedawe.Local()) is False


@pytest.mark.parametrize(("kind", "stacked"), [(Rows, True), (FirstRow, False), (FirstModel, False), (Alone, False)])
def test_a_task_that_says_nothing_is_stacked_if_that_gives_the_same(kind, stacked):
    task, local = kind(torch.arange(12.0).reshape(6, 2)), fedawe.Local(fedawe.Rate(0.1), steps=2)
    assert is_stacked(task, local) is stacked
    assert Inline(task, local).stacked is stacked
    trace = fedawe.Trace(np.ones((3, 6), dtype=bool))
    *_, last = fedawe.simulate(task, fedawe.FedAvg(), trace, local, seed=0)
    *_, right = fedawe.simulate(fedawe.Quadratic(task.u), fedawe.FedAvg(), trace, local, seed=0)
    torch.testing.assert_close(last.x, right.x)


class OneAtATime(Classification):
    """A way of its own to compute gradients, for the first row alone."""

    def gradients(self, x, batches, step):
        return super().gradients(x, batches, step)[:1].expand(len(x), -1)

    def descend(self, x, batches, steps, update):
        Task.descend(self, x, batches, steps, update)


class Says(OneAtATime):
    stacked = False


class Further(Classification):
    """Overrides what has nothing to do with training."""

    def evaluate(self, x):
        return {**super().evaluate(x), "size": 1.0}


@pytest.mark.parametrize(
    ("kind", "said", "stacked"), [(OneAtATime, None, False), (Says, False, False), (Further, True, True)]
)
def test_a_classification_that_trains_in_a_way_of_its_own_is_tried_first(kind, said, stacked):
    """What is known of the network says nothing of the methods of a subclass, and what a class says is taken."""
    data, parts = images()
    task = kind(
        data, ModuleNetwork(lambda: nn.Sequential(nn.Flatten(), nn.Linear(192, 8), nn.GELU(), nn.Linear(8, 4))), parts
    )
    local = fedawe.Local(fedawe.Rate(0.1), steps=2, batch=4)
    for one in (task, task.to(torch.device("cpu"))):
        assert one.stacked is said
        assert is_stacked(one, local) is stacked


@pytest.mark.skipif(not hasattr(os, "sched_setaffinity"), reason="this system does not bind processes to cores")
def test_cores_are_those_that_this_process_may_use():
    allowed = os.sched_getaffinity(0)
    try:
        os.sched_setaffinity(0, {min(allowed)})
        assert cores() == 1
    finally:
        os.sched_setaffinity(0, allowed)
    assert 1 <= cores() <= len(allowed)


@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="only glibc can be asked to keep freed memory")
def test_freed_memory_is_used_again():
    def fetched():
        """How many pages of memory the kernel hands over while ten large tensors are made and freed."""
        before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
        for _ in range(10):
            torch.ones(1 << 23)  # 32 MB: 8,192 pages of the usual size, or 16 huge ones
        return resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before

    assert keep_freed_memory()
    fetched()
    assert fetched() < 100


def stable(path):
    lines = [json.loads(line) for line in path.read_text().splitlines()]
    return [{k: v for k, v in line.items() if not k.endswith("_seconds")} for line in lines]


def test_jobs_and_workers_change_no_record(tmp_path):
    settings = Settings(model="softmax", clients=20, rounds=12, batch=16)
    experiment = experiment_of(settings, ["fedawe", "fedavg", "mifa"], (0, 1))
    for name, how in {"alone": {}, "jobs": {"jobs": 2}, "workers": {"workers": 2}}.items():
        told: list[Progress] = []
        found = experiment.run(tmp_path / name, tell=told.append, engine="stacked", **how)
        assert [run.status for run in found.runs.runs] == ["complete"] * 6
        assert len(told) == 6 * 12
    for record in (tmp_path / "alone").rglob("record.jsonl"):
        below = record.relative_to(tmp_path / "alone")
        for name in ("jobs", "workers"):
            assert stable(tmp_path / name / below) == stable(record)
            model = below.with_name("model.safetensors")
            assert (tmp_path / name / model).read_bytes() == (tmp_path / "alone" / model).read_bytes()


def test_a_run_that_fails_leaves_the_others_complete(tmp_path):
    settings = Settings(model="softmax", clients=20, rounds=5, batch=16)
    (tmp_path / "x" / "fedavg").mkdir(parents=True)
    (tmp_path / "x" / "fedavg" / "seed-0").write_text("in the way of the folder")
    (tmp_path / "x").rename(tmp_path / "later")
    experiment_of(settings, ["fedawe"], (1,)).run(tmp_path / "x")
    (tmp_path / "later" / "fedavg").rename(tmp_path / "x" / "fedavg")
    with pytest.raises(fedawe.UserError, match="1 of 3 runs failed, the others are complete"):
        experiment_of(settings, ["fedawe", "fedavg", "mifa"], (0,)).run(tmp_path / "x", jobs=2)
    for name in ("fedawe", "mifa"):
        assert records.read(tmp_path / "x" / name / "seed-0" / "record.jsonl").status == "complete"


def test_another_engine_needs_another_folder(tmp_path):
    settings = Settings(model="softmax", clients=20, rounds=2, batch=16)
    experiment_of(settings, ["fedavg"], (0,)).run(tmp_path / "x", engine="one")
    experiment_of(settings, ["fedavg"], (1,)).run(tmp_path / "x")  # auto: as it began
    with pytest.raises(fedawe.UserError, match="begun with engine one, not stacked"):
        experiment_of(settings, ["fedavg"], (2,)).run(tmp_path / "x", engine="stacked")


def test_what_is_moved_to_a_device_gives_the_same_there():
    """The path a CUDA device takes, on the only device there is here: data, state, batches and answers all follow."""
    experiment = experiment_of(Settings(model="mlp", clients=10, rounds=3, batch=8), ["fedawe"], (0,))
    outcomes = []
    for device in (None, torch.device("cpu", 0)):
        population = experiment.population(0, device)
        task, local = population.task, experiment.local_of("fedawe")
        *_, last = fedawe.simulate(task, fedawe.FedAWE(), population.trace, local, seed=0)
        assert last.x.device.type == "cpu"
        outcomes.append((last.x, task.evaluate(last.x)))
    assert torch.equal(outcomes[0][0], outcomes[1][0])
    assert outcomes[0][1] == outcomes[1][1]


def test_a_device_that_is_not_there_is_refused():
    if torch.cuda.is_available():
        Execution(device="cuda").check()
    else:
        with pytest.raises(fedawe.UserError, match="device is cuda, but this machine has no CUDA device"):
            Execution(device="cuda").check()
    with pytest.raises(fedawe.UserError, match="2 jobs with 2 workers each"):
        Execution(jobs=2, workers=2, device="cpu").check()


class Picky(fedawe.Quadratic):
    """A task that refuses to train one client."""

    def batches(self, work):
        if 5 in work.A.tolist():
            raise fedawe.UserError("client 5 has no data")
        return super().batches(work)


def test_what_a_task_refuses_is_said_by_every_process(two):
    """Whoever trains client 5: a mistake of the user is no failure of a worker."""
    task = Picky(torch.zeros(20, 1))
    two.use(task, fedawe.Local(), False)
    trace = fedawe.Trace(np.ones((1, 20), dtype=bool))
    for seed in range(4):
        with pytest.raises(fedawe.UserError, match=r"^client 5 has no data$"):
            list(fedawe.simulate(task, fedawe.FedAvg(), trace, fedawe.Local(), seed=seed, engine=two))
