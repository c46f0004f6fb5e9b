"""Models with buffers: batch normalisation is simulated as PyTorch computes it, on every engine, after every stop."""

import dataclasses

import batch_norm
import numpy as np
import pytest
import torch
from batch_norm import CLASSES, CLIENTS, module, plain_fedavg, task, trace
from table import ROUNDS, ROWS
from torch import nn

import fedawe
from fedawe.algorithms import WithBuffers
from fedawe.algorithms.base import pack, unpack
from fedawe.algorithms.buffers import with_buffers
from fedawe.experiments import checkpoint
from fedawe.tasks import Classification, Layout, ModuleNetwork
from fedawe.tasks.base import Work
from fedawe.training.engines import Inline, Processes
from fedawe.training.engines.base import innovations
from fedawe.training.shares import trained

LOCAL = fedawe.Local(fedawe.Rate(0.1), steps=5, batch=8)


def accuracy(of: nn.Module, t: Classification) -> float:
    with torch.no_grad():
        return float((of(t.data.x_test).argmax(1) == t.data.y_test).double().mean())


# The layout


def test_there_and_back() -> None:
    made = module()
    layout = Layout.of(made)
    assert (layout.parameters, layout.buffers) == (16 * 12 + 12 + 24 + 12 * 4 + 4, 24)
    x = layout.vector(made.state_dict())
    assert x[: layout.parameters].tolist() == torch.cat([p.detach().flatten() for p in made.parameters()]).tolist()
    assert x[layout.parameters :].tolist() == [0.0] * 12 + [1.0] * 12
    back = layout.state_dict(x)
    assert list(back) == list(made.state_dict())
    assert all(torch.equal(back[name], tensor) for name, tensor in made.state_dict().items())
    assert back["2.num_batches_tracked"].dtype == torch.int64
    assert layout.variances.tolist() == [False] * 12 + [True] * 12


def test_names_alone_tell_the_same_of_batch_normalisation() -> None:
    of, named = Layout.of(module()), Layout.of_tensors(module().state_dict())
    assert named.entries == of.entries


class Tied(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = nn.Linear(3, 3), nn.Linear(3, 3)
        self.second.weight = self.first.weight
        self.register_buffer("scale", torch.ones(2))
        self.register_buffer("cache", torch.ones(5), persistent=False)


def test_a_tied_parameter_is_one_entry_and_a_buffer_outside_the_state_dict_is_none() -> None:
    tied = Tied()
    layout = Layout.of(tied)
    assert (layout.parameters, layout.buffers) == (9 + 3 + 3, 2)
    x = layout.vector(tied.state_dict()) + 1
    other = Tied()
    other.load_state_dict(layout.state_dict(x))
    assert torch.equal(other.second.weight, tied.first.weight + 1)


def test_tensors_that_do_not_fit_are_refused() -> None:
    layout = Layout.of(nn.Linear(2, 2))
    with pytest.raises(fedawe.UserError, match=r"weight is of shape \[3, 2\]; expected a tensor of shape \[2, 2\]"):
        layout.vector(nn.Linear(2, 3).state_dict())
    with pytest.raises(fedawe.UserError, match="bias is missing"):
        layout.vector(nn.Linear(2, 2, bias=False).state_dict())
    with pytest.raises(fedawe.UserError, match="the vector has 7 numbers; expected 6"):
        layout.tensors(torch.zeros(7))


def test_half_precision_is_kept_in_single_precision_and_given_back_in_half() -> None:
    layout = Layout.of(nn.Linear(2, 2).half())
    x = layout.vector(nn.Linear(2, 2).half().state_dict())
    assert x.dtype == torch.float32
    assert layout.state_dict(x)["weight"].dtype == torch.float16
    tied = Tied().half()
    found = (layout := Layout.of(tied)).state_dict(layout.vector(tied.state_dict()))
    assert {name: one.dtype for name, one in found.items()} == dict.fromkeys(tied.state_dict(), torch.float16)


@pytest.mark.parametrize("dtype", [torch.complex64, torch.int64], ids=str)
def test_parameters_that_are_not_floating_point_are_refused(dtype: torch.dtype) -> None:
    made = nn.Linear(2, 2)
    made.scale = nn.Parameter(torch.ones(2, dtype=dtype), requires_grad=False)
    with pytest.raises(fedawe.UserError, match=rf"the parameter scale is {dtype}; expected floating-point parameters"):
        Layout.of(made)


# The wrapper


# SCAFFOLD's option 1 needs gradients besides, which `aggregate` does not have.
# Robust rules trim buffers too, and private ones refuse them: tests/test_robust.py and tests/test_private.py.
OTHER_BUFFERS = (fedawe.Robust, fedawe.Private)
AVERAGED = [row for row in ROWS if not isinstance(row.make(torch.ones(ROUNDS, 5)), OTHER_BUFFERS)]


@pytest.mark.parametrize("row", [row for row in AVERAGED if row.name != "scaffold option 1"], ids=lambda row: row.name)
def test_the_algorithm_sees_its_parameters_only(row) -> None:
    """The first d columns are the algorithm alone; the last b are the mean of what active clients ended with."""
    m, d, b, draw = 5, 3, 2, torch.Generator().manual_seed(0)
    alone = row.make(torch.full((6, m), 0.5))
    algorithm = WithBuffers(alone, b)
    x0 = torch.randn(d + b, generator=draw)
    state, own = algorithm.init(x0, m), alone.init(x0[:d], m)
    buffers = x0[d:]
    for t in range(6):
        A = torch.randperm(m, generator=draw)[: [2, 0, 5, 1, 3, 4][t]]
        X, G = algorithm.start(state, A), torch.randn(len(A), d + b, generator=draw)
        assert torch.equal(X, torch.cat([alone.start(own, A), buffers.expand(len(A), -1)], 1))
        before = {name: tensor.clone() for name, tensor in pack(state).items()}
        after = algorithm.aggregate(state, t, A, G)
        assert all(torch.equal(tensor, before[name]) for name, tensor in pack(state).items())
        shuffled = torch.randperm(len(A), generator=draw)
        other = algorithm.aggregate(state, t, A[shuffled], G[shuffled])
        assert all(torch.equal(tensor, pack(after)[name]) for name, tensor in pack(other).items())
        own = alone.aggregate(own, t, A, G[:, :d])
        if len(A):
            buffers = (X[:, d:].double() - G[:, d:].double()).mean(0).float()
        state = unpack(after, pack(after))
        torch.testing.assert_close(state.buffers, buffers, rtol=1e-6, atol=1e-7)
        buffers = state.buffers
        assert torch.equal(algorithm.model(state), torch.cat([alone.model(own), buffers]))
        assert torch.equal(state.latest, torch.cat([own.latest, buffers]))


def test_variances_stay_above_zero_whatever_is_rounded() -> None:
    algorithm = WithBuffers(fedawe.FedAvg(), 1)
    state = algorithm.init(torch.tensor([0.0, 0.1]), 3)
    G = torch.tensor([[0.0, 0.1]]).repeat(3, 1)  # all end at zero; a mean of 0.1s is a little more than 0.1
    assert float(algorithm.aggregate(state, 0, torch.arange(3), G).buffers) >= 0


def test_without_buffers_there_is_no_wrapper() -> None:
    algorithm = fedawe.FedAWE()
    assert with_buffers(algorithm, 0) is algorithm
    wrapped = with_buffers(algorithm, 3)
    assert with_buffers(wrapped, 3) is wrapped


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda a, s: a.init(torch.zeros(2), 3), "a vector of parameters and 2 buffers"),
        (lambda a, s: a.init(torch.tensor([0.0, 1.0, float("inf")]), 3), "not finite"),
        (lambda a, s: a.aggregate(s, 0, torch.tensor([1]), torch.zeros(1, 3)), r"G must be of shape \[1, 5\]"),
        (lambda a, s: a.aggregate(s, 0, torch.tensor([7]), torch.zeros(1, 5)), "client 7 is unknown"),
        (lambda a, s: WithBuffers(fedawe.FedAvg(), 0), "b is 0"),
    ],
)
def test_mistakes_are_said(call, message: str) -> None:
    algorithm = WithBuffers(fedawe.FedAvg(), 2)
    with pytest.raises(fedawe.UserError, match=message):
        call(algorithm, algorithm.init(torch.zeros(5), 3))


# Training


def test_it_is_plain_fedavg_with_averaged_buffers() -> None:
    problem, on = task(), trace()
    local = fedawe.Local(fedawe.Rate(0.3), steps=10, batch=8)
    *_, last = fedawe.simulate(problem, fedawe.FedAvg(), on, local, seed=3)
    twin = plain_fedavg(problem, on.on, local, 3)
    named = problem.layout.state_dict(last.x)
    for name, tensor in twin.state_dict().items():
        if not name.endswith("num_batches_tracked"):
            torch.testing.assert_close(named[name], tensor, rtol=1e-4, atol=1e-5, msg=lambda m, n=name: f"{n}: {m}")
    found = problem.evaluate(last.x)
    assert found["test_accuracy"] == pytest.approx(accuracy(twin, problem), abs=1 / 60)
    # Statistics of mean 0 and variance 1, as if nobody had measured any, are worth much less here.
    without = torch.cat([last.x[: problem.layout.parameters], problem.initial(3)[problem.layout.parameters :]])
    assert found["test_accuracy"] > 0.8
    assert problem.evaluate(without)["test_loss"] > 3 * found["test_loss"]


class Cumulative(nn.Module):
    """Running statistics that are plain means over the batches of a client's round, counted by an integer."""

    def __init__(self) -> None:
        super().__init__()
        self.norm, self.last = nn.BatchNorm1d(16, momentum=None), nn.Linear(16, CLASSES)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.last(self.norm(x.flatten(1)))


class Counted(nn.Module):
    """Counts its calls, in evaluation too: in a buffer that is in the `state_dict`, and in one that is not."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(16, CLASSES)
        self.register_buffer("calls", torch.zeros((), dtype=torch.int64))
        self.register_buffer("more", torch.zeros(()), persistent=False)

    def forward(self, x):
        self.calls += 1
        self.more += 1
        return self.layer(x) + self.calls + self.more


def test_evaluation_leaves_the_buffers_of_the_module_as_they_are() -> None:
    network = ModuleNetwork(Counted)
    x, inputs = network.initial(0), torch.zeros(1, 16)
    first = network.outputs(x, inputs)
    assert torch.equal(network.outputs(x, inputs), first)


def test_integers_live_for_one_round_of_a_client() -> None:
    problem, on = task(ModuleNetwork(Cumulative)), trace(4)
    assert torch.equal(problem.network.module.norm.num_batches_tracked, torch.tensor(0))
    *_, last = fedawe.simulate(problem, fedawe.FedAvg(), on, LOCAL, seed=1)
    twin = plain_fedavg(problem, on.on, LOCAL, 1)
    named = problem.layout.state_dict(last.x)
    for name in ("norm.running_mean", "norm.running_var", "last.weight"):
        torch.testing.assert_close(named[name], twin.state_dict()[name], rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("stacked", [False, True])
def test_a_gradient_at_the_start_leaves_no_trace_in_training(stacked: bool) -> None:
    """SCAFFOLD's option 1 asks for it: the integers that count batches begin anew in training."""
    problem = task(ModuleNetwork(Cumulative))
    A, x = torch.arange(3), problem.initial(0).repeat(3, 1)
    shift = torch.full((3, problem.layout.parameters), 0.1)
    without, asked = (
        trained(problem, LOCAL, fedawe.Broadcast(x, shift, gradient=gradient), A, 0, 0, torch.zeros_like(A), stacked)
        for gradient in (False, True)
    )
    assert torch.equal(asked.G, without.G)
    assert asked.gradient is not None


class Reassigned(nn.Module):
    """A buffer that is replaced, not written to, and a parameter that must not be trained."""

    def __init__(self) -> None:
        super().__init__()
        self.frozen, self.last = nn.Linear(16, 8).requires_grad_(False), nn.Linear(8, CLASSES)
        self.register_buffer("mean", torch.zeros(8))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        h = self.frozen(x.flatten(1))
        if self.training:
            self.mean = 0.9 * self.mean + 0.1 * h.mean(0)
        return self.last(h - self.mean)


@pytest.mark.parametrize("stacked", [False, True])
def test_buffers_may_be_replaced_and_frozen_parameters_stay(stacked: bool) -> None:
    problem = task(ModuleNetwork(Reassigned))
    problem.stacked = stacked
    x0 = problem.initial(0)
    G = innovations(problem, LOCAL, x0.repeat(2, 1), torch.tensor([0, 4]), 0, 0)
    named = [problem.layout.tensors(row) for row in G]
    for one in named:
        assert not one["frozen.weight"].any()
        assert one["last.weight"].abs().min() > 0
        assert one["mean"].abs().min() > 0
    assert not torch.equal(named[0]["mean"], named[1]["mean"])
    assert torch.equal(problem.network.module.mean, torch.zeros(8))  # the task itself is left alone


@pytest.mark.parametrize("make", [module, Cumulative], ids=["momentum", "cumulative"])
def test_stacked_and_one_by_one_agree_to_rounding(make) -> None:
    problem, A = task(ModuleNetwork(make)), torch.arange(CLIENTS)
    X = problem.initial(0).repeat(CLIENTS, 1)
    one = innovations(problem, LOCAL, X, A, 0, 0)
    problem.stacked = True
    together = innovations(problem, LOCAL, X, A, 0, 0)
    torch.testing.assert_close(together, one, rtol=1e-3, atol=1e-4)


def test_padding_is_not_in_the_statistics() -> None:
    """Clients with few samples are stacked with others only where no sample is made up."""
    parts = [np.arange(0, 3), np.arange(3, 40), np.arange(40, 45), np.arange(45, 144)]
    problem, A = task(parts=parts), torch.arange(4)
    X = problem.initial(0).repeat(4, 1)
    one = innovations(problem, LOCAL, X, A, 0, 0)
    problem.stacked = True
    torch.testing.assert_close(innovations(problem, LOCAL, X, A, 0, 0), one, rtol=1e-4, atol=1e-5)


def test_a_batch_of_one_is_said_in_one_line() -> None:
    problem = task(parts=[np.arange(1), np.arange(1, 144)])
    with pytest.raises(fedawe.UserError, match="a batch of one sample"):
        innovations(problem, LOCAL, problem.initial(0)[None], torch.tensor([0]), 0, 0)


def test_a_client_without_samples_returns_the_buffers_it_was_given() -> None:
    problem = Classification(batch_norm.data(), ModuleNetwork(module), [np.arange(0), np.arange(144)], keep_empty=True)
    assert not innovations(problem, LOCAL, problem.initial(0)[None], torch.tensor([0]), 0, 0).any()


def test_clipped_gradients_leave_the_buffers_their_own_way() -> None:
    problem, A = task(), torch.arange(2)
    X = problem.initial(0).repeat(2, 1)
    clipped = fedawe.Local(fedawe.Rate(0.1), steps=1, batch=8, clip_grad=1e-3)
    free = fedawe.Local(fedawe.Rate(0.1), steps=1, batch=8)
    short, long = (innovations(problem, local, X, A, 0, 0) for local in (clipped, free))
    d = problem.layout.parameters
    assert torch.equal(short[:, d:], long[:, d:])  # of the same forward pass
    assert short[:, :d].norm(dim=1).tolist() == pytest.approx([1e-4] * 2, rel=1e-4)


# The same bits


def test_any_number_of_workers_gives_the_same_bits() -> None:
    problem = task()
    expected = batch_norm.outcome(problem, LOCAL, Inline(problem, LOCAL))
    engine = Processes(problem, LOCAL, 2, CLIENTS, problem.initial(0))
    try:
        x, metrics = batch_norm.outcome(problem, LOCAL, engine)
    finally:
        engine.close()
    assert torch.equal(x, expected[0])
    assert metrics == expected[1]


@pytest.mark.parametrize("stop", [0, 1, 2, 5])
def test_going_on_from_a_checkpoint_gives_the_same_bits(stop: int, tmp_path) -> None:
    problem, algorithm = task(), fedawe.FedAWE(clip=0.5)
    whole = list(fedawe.simulate(problem, algorithm, trace(), LOCAL, seed=0))
    checkpoint.save(tmp_path, whole[stop].state)
    kept = checkpoint.load(tmp_path, whole[0].state, lambda n: True, pytest.fail)
    resumed = list(fedawe.simulate(problem, algorithm, trace(), LOCAL, seed=0, resume=kept))
    assert len(resumed) == len(whole) - stop - 1
    assert torch.equal(resumed[-1].x, whole[-1].x)
    assert len(resumed[-1].x) == problem.layout.parameters + 24


# What a user's own task says is what happens


class Halved(Classification):
    """A task with a way of its own to go down."""

    def descend(self, x, batches, steps, update):
        super().descend(x, batches, steps, dataclasses.replace(update, rate=update.rate / 2))


def test_clipping_goes_through_an_overridden_descend() -> None:
    parts, network = list(np.arange(144).reshape(6, 24)), ModuleNetwork(module)
    clipped = fedawe.Local(fedawe.Rate(0.1), steps=1, batch=8, clip_grad=0.5)
    plain, own = (kind(batch_norm.data(), network, parts) for kind in (Classification, Halved))
    X, A, d = plain.initial(0)[None], torch.tensor([0]), plain.layout.parameters
    full = innovations(plain, clipped, X, A, 0, 0)[:, :d]
    torch.testing.assert_close(innovations(own, clipped, X, A, 0, 0)[:, :d], full / 2, rtol=1e-3, atol=1e-6)


def squared(outputs: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
    return ((outputs - nn.functional.one_hot(targets, CLASSES)) ** 2).sum(1)


def test_the_users_loss_is_what_is_trained_and_what_is_evaluated() -> None:
    problem = task(ModuleNetwork(module, squared))
    x = problem.initial(0)
    before = problem.network.module
    before.load_state_dict(problem.layout.state_dict(x))
    with torch.no_grad():
        outputs = before.eval()(problem.data.x_test)
    found = problem.evaluate(x)
    assert found["test_loss"] == pytest.approx(float(squared(outputs, problem.data.y_test).mean()), rel=1e-5)
    *_, last = fedawe.simulate(problem, fedawe.FedAvg(), trace(), LOCAL, seed=0)
    assert problem.evaluate(last.x)["train_loss"] < 0.5 * found["train_loss"]


def test_a_loss_over_the_whole_batch_is_refused() -> None:
    problem = task(ModuleNetwork(module, nn.functional.cross_entropy))
    with pytest.raises(fedawe.UserError, match=r"shape \[\] for 8 samples; expected one loss per sample"):
        innovations(problem, LOCAL, problem.initial(0)[None], torch.tensor([0]), 0, 0)


def test_the_work_of_a_round_is_drawn_as_ever() -> None:
    work = Work(torch.tensor([2]), 1, 0, 2, 4, "iid", torch.tensor([0]))
    problem = task()
    assert torch.equal(problem.batches(work).samples[:, 0], torch.from_numpy(problem.samples(2, 0, work).copy()))
