"""Every executor computes what plain autograd computes."""

import copy
import pickle
import re
from collections.abc import Callable

import cloudpickle
import modules
import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor, nn
from torch.nn import functional

import fedawe
from fedawe.tasks import Classification, Data, ModuleNetwork
from fedawe.tasks.executors import Batch
from fedawe.tasks.executors import sequences as sequences_of
from fedawe.tasks.executors.dense import Dense
from fedawe.tasks.executors.layers import Layers
from fedawe.training.engines import Inline, Processes
from fedawe.training.engines.base import innovations
from fedawe.training.local import Precision

SAMPLES = 6
RATE = 0.1


def batches(shape: tuple[int, ...], clients: int, steps: int = 3, dtype: torch.dtype = torch.float64) -> list[Batch]:
    draw = torch.Generator().manual_seed(len(shape))
    out: list[Batch] = []
    for step in range(steps):
        inputs = torch.randn(clients, SAMPLES, *shape, generator=draw, dtype=dtype)
        targets = torch.randint(modules.CLASSES, (clients, SAMPLES), generator=draw)
        weights = torch.rand(clients, SAMPLES, generator=draw, dtype=dtype)
        out.append((inputs, targets, weights, [100 * step + client for client in range(clients)]))
    return out


def with_masks(module: nn.Module, masks: list[Tensor]) -> nn.Module:
    """The module with these masks in the place of its dropout."""
    left = iter(masks)

    class Given(nn.Module):
        def forward(self, h: Tensor) -> Tensor:
            return h * next(left)

    for parent in list(module.modules()):
        for name, child in list(parent.named_children()):
            if isinstance(child, nn.Dropout) and child.p:
                setattr(parent, name, Given())
    return module


def plainly(network: ModuleNetwork, x: Tensor, client: int, of: list[Batch]) -> Tensor:
    """x [d + b] after plain SGD by autograd, with the masks that the executor draws."""
    executor = network.executor(of[0][0].ndim - 2)
    module = network.make().to(x.dtype)
    module.load_state_dict({**module.state_dict(), **network.layout.tensors(x)})
    for inputs, targets, weights, seeds in of:
        assert seeds is not None
        masks: list[Tensor] = []
        if isinstance(executor, Dense):
            masks = [mask[0] for mask in executor._masks(inputs[client][None], [seeds[client]]).values()]
        elif isinstance(executor, Layers):
            masks = [mask[0] for mask in executor.draw(x[None], inputs[client][None], [seeds[client]])]
        trained = with_masks(copy.deepcopy(module), masks).train()
        parameters = [p for p in trained.parameters() if p.requires_grad]
        loss = (
            weights[client] * functional.cross_entropy(trained(inputs[client]), targets[client], reduction="none")
        ).sum()
        for parameter, g in zip(parameters, torch.autograd.grad(loss, parameters, allow_unused=True), strict=True):
            if g is not None:
                parameter.data -= RATE * g
        module.load_state_dict(trained.state_dict())
    return torch.cat([module.state_dict()[entry.name].reshape(-1) for entry in network.layout.ordered])


def agree(make: Callable[[], nn.Module], shape: tuple[int, ...], name: str, clients: int, dtype: torch.dtype) -> None:
    """Steps and gradients are those of plain autograd; stacked or one at a time."""
    network = ModuleNetwork(make)
    executor = network.executor(len(shape))
    assert executor.name == name, executor.why
    of = batches(shape, clients, dtype=dtype)
    x0 = torch.stack([network.initial(seed) for seed in range(clients)]).to(dtype)
    tolerance = {"rtol": 1e-9, "atol": 1e-11} if dtype == torch.float64 else {"rtol": 2e-4, "atol": 2e-5}
    fused, stepwise, kept = x0.clone(), x0.clone(), {}
    executor.descend(fused, of, RATE)
    for batch in of:
        g = executor.gradients(stepwise, batch, kept)
        stepwise[:, : g.shape[1]] -= RATE * g
    for client in range(clients):
        expected = plainly(network, x0[client], client, of)
        assert not torch.equal(expected, x0[client])
        torch.testing.assert_close(fused[client], expected, **tolerance)
        torch.testing.assert_close(stepwise[client], expected, **tolerance)
    module = make().to(dtype).eval()
    module.load_state_dict({**module.state_dict(), **network.layout.tensors(fused[0])})
    with torch.no_grad():
        torch.testing.assert_close(executor.outputs(fused[0], of[0][0][0]), module(of[0][0][0]), **tolerance)


@settings(max_examples=40, deadline=None)
@given(seed=st.integers(0, 10**6), clients=st.sampled_from([1, 3]), single=st.booleans())
def test_random_networks_of_the_usual_layers(seed: int, clients: int, single: bool) -> None:
    def make() -> nn.Module:
        return modules.convolutional(seed).to(torch.get_default_dtype())

    agree(make, (3, 12, 12), "layers", clients, torch.float32 if single else torch.float64)


@settings(max_examples=40, deadline=None)
@given(seed=st.integers(0, 10**6), clients=st.sampled_from([1, 4]))
def test_random_chains_of_linear_layers(seed: int, clients: int) -> None:
    agree(lambda: modules.dense(seed), (9,), "dense", clients, torch.float64)


class Block(nn.Module):
    """Of a ResNet."""

    def __init__(self, fan_in: int, width: int, stride: int, norm: Callable[[int], nn.Module]) -> None:
        super().__init__()
        self.conv1, self.norm1 = nn.Conv2d(fan_in, width, 3, stride, 1, bias=False), norm(width)
        self.conv2, self.norm2 = nn.Conv2d(width, width, 3, 1, 1, bias=False), norm(width)
        self.short: nn.Module = nn.Identity()
        if stride > 1:
            self.short = nn.Sequential(nn.Conv2d(fan_in, width, 1, stride, bias=False), norm(width))

    def forward(self, x: Tensor) -> Tensor:
        out = functional.relu(self.norm1(self.conv1(x)), inplace=True)
        return functional.relu(self.norm2(self.conv2(out)) + self.short(x))


def residual(norm: Callable[[int], nn.Module]) -> nn.Module:
    blocks = [Block(16, 16, 1, norm), Block(16, 32, 2, norm)]
    last = [nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(32, modules.CLASSES)]
    return nn.Sequential(nn.Conv2d(3, 16, 3, 1, 1, bias=False), norm(16), nn.ReLU(), *blocks, *last)


NORMS = {"batch": nn.BatchNorm2d, "group": lambda width: nn.GroupNorm(4, width)}


@pytest.mark.parametrize("clients", [1, 2])
@pytest.mark.parametrize("norm", NORMS)
def test_residual_networks(norm: str, clients: int) -> None:
    network = ModuleNetwork(lambda: residual(NORMS[norm]))
    executor = network.executor(3)
    assert isinstance(executor, Layers)
    assert executor.chain is not None  # by kernels
    assert not executor.blocks
    agree(network.make, (3, 8, 8), "layers", clients, torch.float32)


def without_kernels(norm: Callable[[int], nn.Module]) -> nn.Module:
    """Convolutions that are dilated or in groups, of whole blocks of channels."""
    first = [nn.Conv2d(3, 16, 3, padding=2, dilation=2), norm(16), nn.ReLU(), nn.MaxPool2d(2)]
    second = [nn.Conv2d(16, 32, 3, padding=1, groups=2, bias=False), norm(32), nn.ReLU()]
    last = [nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(32, modules.CLASSES)]
    return nn.Sequential(*first, *second, nn.MaxPool2d(2), norm(32), *last)


@pytest.mark.parametrize("clients", [1, 2])
@pytest.mark.parametrize("norm", ["batch", "none"])
def test_convolutions_without_kernels_are_computed_in_blocks(norm: str, clients: int) -> None:
    def make() -> nn.Module:
        return without_kernels(nn.BatchNorm2d if norm == "batch" else lambda _: nn.Identity())

    executor = ModuleNetwork(make).executor(3)
    assert isinstance(executor, Layers)
    assert executor.chain is None
    assert executor.blocks
    agree(make, (3, 8, 8), "layers", clients, torch.float32)


def test_a_forward_method_as_people_write_it() -> None:
    agree(lambda: modules.Written(3, 8, 0.0), (3, 8, 8), "layers", 2, torch.float64)
    program = ModuleNetwork(lambda: modules.Written(3, 8, 0.3)).executor(3).program  # type: ignore[union-attr]
    assert program.dropped == [0.3]
    functions = [node.function.__name__ for node in program.nodes]
    assert functions == ["conv2d", "max_pool2d", "relu", "flatten", "linear", "tanh", "dropout", "linear"]


class Shared(nn.Module):
    """What a ReLU makes is pooled and used as it is, too."""

    def __init__(self) -> None:
        super().__init__()
        self.conv, self.out = nn.Conv2d(3, 16, 3, padding=1), nn.Linear(16, modules.CLASSES)

    def forward(self, x: Tensor) -> Tensor:
        h = functional.relu(self.conv(x))
        most, mean = functional.max_pool2d(h, 8), functional.adaptive_avg_pool2d(h, 1)
        return self.out(torch.flatten(most + mean, 1))


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64], ids=str)
def test_pooling_does_not_overtake_a_relu_that_is_used_elsewhere(dtype: torch.dtype) -> None:
    agree(Shared, (3, 8, 8), "layers", 2, dtype)
    agree(Shared, (3, 8, 8), "layers", 1, dtype)


class Twice(nn.Module):
    """The same layer twice, and a weight that two layers share."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.second, self.out = nn.Linear(9, 9), nn.Linear(9, 9), nn.Linear(9, modules.CLASSES)
        self.second.weight = self.first.weight

    def forward(self, x: Tensor) -> Tensor:
        return self.out(torch.tanh(self.second(torch.tanh(self.first(torch.tanh(self.first(x)))))))


class Unused(nn.Module):
    """One layer that is not trained and one that has no part in the outputs."""

    def __init__(self) -> None:
        super().__init__()
        self.frozen, self.spare = nn.Linear(9, 6).requires_grad_(False), nn.Linear(3, 3)
        self.out = nn.Linear(6, modules.CLASSES)

    def forward(self, x: Tensor) -> Tensor:
        return self.out(functional.relu(self.frozen(x)))


@pytest.mark.parametrize("clients", [1, 3])
@pytest.mark.parametrize("make", [Twice, Unused])
def test_shared_frozen_and_unused_parameters(make: Callable[[], nn.Module], clients: int) -> None:
    agree(make, (9,), "layers", clients, torch.float64)


class Own(nn.Linear):
    def forward(self, x: Tensor) -> Tensor:
        return 2 * super().forward(x)


class Overwritten(nn.Module):
    """The sum is twice the ReLU, since the input of the ReLU is overwritten."""

    def __init__(self) -> None:
        super().__init__()
        self.layer, self.out = nn.Linear(9, 9), nn.Linear(9, modules.CLASSES)

    def forward(self, x: Tensor) -> Tensor:
        h = self.layer(x)
        return self.out(functional.relu(h, inplace=True) + h)


class Branching(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(9, modules.CLASSES)

    def forward(self, x: Tensor) -> Tensor:
        return self.layer(x) if float(x.detach().sum()) > 1e9 else self.layer(x) * 0.5


class Modal(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layer, self.out = nn.Linear(9, 9), nn.Linear(9, modules.CLASSES)

    def forward(self, x: Tensor) -> Tensor:
        h = self.layer(x)
        return self.out(functional.relu(h) if self.training else h)


class Aliased(nn.Module):
    """What is overwritten has two names."""

    def __init__(self, again: Callable[[Tensor], Tensor]) -> None:
        super().__init__()
        self.layer, self.out, self.again = nn.Linear(9, 9), nn.Linear(9, modules.CLASSES), again

    def forward(self, x: Tensor) -> Tensor:
        h = self.layer(x)
        c = self.again(h)
        c += x
        return self.out(c + h)


class Reshaped(nn.Module):
    """By the whole shape of another tensor."""

    def __init__(self) -> None:
        super().__init__()
        self.layer, self.out = nn.Linear(9, 9), nn.Linear(9, modules.CLASSES)

    def forward(self, x: Tensor) -> Tensor:
        return self.out(torch.reshape(self.layer(x), x.shape))


class Added(nn.Module):
    """Parameters that are used outside of a layer."""

    def __init__(self, how: Callable[[Tensor, Tensor], Tensor]) -> None:
        super().__init__()
        self.p, self.q, self.how = nn.Parameter(torch.ones(9)), nn.Parameter(torch.ones(9)), how
        self.out = nn.Linear(9, modules.CLASSES)

    def forward(self, x: Tensor) -> Tensor:
        return self.out(x + self.how(self.p, self.q))


class Measured(nn.Module):
    """Batch normalisation that is used as it was measured before, as in fine-tuning."""

    def __init__(self) -> None:
        super().__init__()
        self.layer, self.norm, self.out = nn.Linear(9, 9), nn.BatchNorm1d(9), nn.Linear(9, modules.CLASSES)

    def train(self, mode: bool = True) -> "Measured":
        super().train(mode)
        self.norm.eval()
        return self

    def forward(self, x: Tensor) -> Tensor:
        return self.out(functional.relu(self.norm(self.layer(x))))


def hooked() -> nn.Module:
    module = nn.Sequential(nn.Linear(9, modules.CLASSES))
    module[0].register_forward_hook(lambda _module, _inputs, output: output * 3)
    return module


OTHERS: dict[str, tuple[Callable[[], nn.Module], str]] = {
    "derived layer": (lambda: nn.Sequential(Own(9, modules.CLASSES)), "it calls|outside of a layer"),
    "overwritten": (Overwritten, "overwrites a tensor that is used elsewhere"),
    "branches": (Branching, "torch.fx cannot trace it"),
    "training": (Modal, "depends on `training`"),
    "hooks": (hooked, "has hooks"),
    "overwritten by another name": (lambda: Aliased(nn.Identity()), "overwrites a tensor that is used elsewhere"),
    "overwritten as contiguous": (
        lambda: Aliased(lambda h: h.contiguous()),
        "overwrites a tensor that is used elsewhere",
    ),
    "reshaped": (Reshaped, "reshapes samples together"),
    "two parameters": (lambda: Added(torch.add), "adds two of its parameters"),
    "a parameter by another name": (lambda: Added(lambda p, _: p.contiguous()), "something else than a tensor"),
    "not in training": (Measured, "norm does not follow `training`"),
    "another layer": (lambda: nn.Sequential(nn.Softplus(), nn.Linear(9, modules.CLASSES)), "is a Softplus"),
}


@pytest.mark.parametrize("clients", [1, 3])
@pytest.mark.parametrize("name", OTHERS)
def test_what_is_not_made_of_the_usual_layers_runs_as_it_is(name: str, clients: int) -> None:
    make, why = OTHERS[name]
    agree(make, (9,), "autograd", clients, torch.float64)
    assert re.search(why, ModuleNetwork(make).executor(1).why)
    with pytest.raises(fedawe.UserError, match="executor is layers, which cannot compute this module"):
        ModuleNetwork(make, executor="layers").executor(1)


@pytest.mark.parametrize("clients", [1, 2])
@pytest.mark.parametrize("channels", [12, 16])
@pytest.mark.parametrize("first", ["frozen", "none"])
def test_group_normalisation_of_what_is_not_trained(first: str, channels: int, clients: int) -> None:
    """Its input needs no gradient."""

    def make() -> nn.Module:
        before = [nn.Conv2d(3, channels, 3, padding=1).requires_grad_(False)] if first == "frozen" else []
        norm = nn.GroupNorm(4 if before else 3, channels if before else 3)
        after = [nn.Conv2d(channels if before else 3, channels, 3, padding=1), nn.GroupNorm(4, channels), nn.ReLU()]
        return nn.Sequential(*before, norm, *after, nn.Flatten(), nn.Linear(channels * 64, modules.CLASSES))

    agree(make, (3, 8, 8), "layers", clients, torch.float32)


class Centred(nn.Module):
    """The mean over the samples of a batch counts."""

    def __init__(self) -> None:
        super().__init__()
        self.layer, self.out = nn.Linear(9, 9), nn.Linear(9, modules.CLASSES)

    def forward(self, x: Tensor) -> Tensor:
        h = self.layer(x)
        return self.out(functional.relu(h - h.mean(0)))


def test_padding_is_not_among_the_samples_of_a_batch() -> None:
    """Clients with fewer samples than a batch are trained as one after another, also where they are stacked."""
    draw = torch.Generator().manual_seed(0)
    x, y = torch.randn(60, 9, generator=draw), torch.randint(modules.CLASSES, (60,), generator=draw)
    parts = [np.arange(n, n + 2 + n % 7) for n in range(20)]
    task = Classification(Data("few", x, y, x, y), ModuleNetwork(Centred), parts)
    local, A = fedawe.Local(fedawe.Rate(0.1), steps=2, batch=8), torch.arange(20)
    X = task.initial(0).repeat(20, 1)
    stacked, alone = (innovations(task, local, X, A, 0, 0, stacked=each) for each in (True, False))
    torch.testing.assert_close(stacked, alone, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize(
    ("make", "said"),
    [
        (lambda: nn.Sequential(nn.Linear(9, 3)).requires_grad_(False), "no parameter of the module has requires_grad"),
        (lambda: nn.Sequential(nn.LazyLinear(3)), "0.weight has no shape yet"),
    ],
)
def test_modules_that_cannot_be_trained_are_refused(make: Callable[[], nn.Module], said: str) -> None:
    with pytest.raises(fedawe.UserError, match=said):
        ModuleNetwork(make).executor(1)


@pytest.mark.parametrize(
    ("make", "said"),
    [
        (nn.Linear(9, 3), "make is the module Linear itself; expected a function that builds it, as in lambda: "),
        (lambda: None, "make returned NoneType; expected a torch.nn.Module"),
    ],
)
def test_a_function_that_builds_no_module_is_refused(make: Callable[[], nn.Module], said: str) -> None:
    with pytest.raises(fedawe.UserError, match=said):
        ModuleNetwork(make)


def test_an_initial_vector_of_another_length_is_refused() -> None:
    network = ModuleNetwork(lambda: nn.Linear(9, 3), start=lambda seed: torch.zeros(3))
    with pytest.raises(fedawe.UserError, match=r"start returned a tensor of shape \[3\]; expected \[30\]"):
        network.initial(0)


def test_an_executor_can_be_asked_for() -> None:
    def make() -> nn.Module:
        return modules.dense(3)

    of = batches((9,), 2)
    ends = []
    for name in ("dense", "layers", "autograd"):
        network = ModuleNetwork(make, executor=name)  # type: ignore[arg-type]
        assert network.executor(1).name == name
        x = network.initial(0).double().repeat(2, 1)
        network.executor(1).descend(x, of, RATE)
        ends.append(x)
    with pytest.raises(fedawe.UserError, match="executor is dense, but the module is not a chain of linear layers"):
        ModuleNetwork(Twice, executor="dense").executor(1)
    if not any(isinstance(part, nn.Dropout) for part in make().modules()):
        torch.testing.assert_close(ends[1], ends[0])
        torch.testing.assert_close(ends[2], ends[0])


# Sequences


def codes(clients: int, steps: int = 3) -> list[Batch]:
    """As `batches`, with inputs that are texts."""
    draw = torch.Generator().manual_seed(0)
    return [
        (torch.randint(modules.CLASSES, (clients, SAMPLES, 7), generator=draw), *rest)
        for _, *rest in batches((7,), clients, steps)
    ]


READERS: dict[str, Callable[[], nn.Module]] = {
    "norm after": lambda: modules.Reader(at=-1),
    "norm before": lambda: modules.Reader(at=0, norm_first=True),
    "gelu": lambda: modules.Reader(at=3, activation="gelu", norm=True),
    "two positions": lambda: modules.Reader(at=-1, twice=True),
    "lstm": modules.Characters,
    "state of an lstm": lambda: modules.Characters(layers=2, state=True),
    "deep lstm": lambda: modules.Characters(layers=2, both=True),
}


@pytest.mark.parametrize("clients", [1, 2])
@pytest.mark.parametrize("name", READERS)
def test_networks_that_read_sequences(name: str, clients: int) -> None:
    make = READERS[name]
    network, of = ModuleNetwork(make), codes(clients)
    executor = network.executor(1)
    assert executor.name == "layers", executor.why
    x0 = torch.stack([network.initial(seed) for seed in range(clients)]).double()
    fused, stepwise, kept = x0.clone(), x0.clone(), {}
    executor.descend(fused, of, RATE)
    for batch in of:
        stepwise -= RATE * executor.gradients(stepwise, batch, kept)
    for client in range(clients):
        expected = plainly(network, x0[client], client, of)
        assert not torch.equal(expected, x0[client])
        torch.testing.assert_close(fused[client], expected, rtol=1e-9, atol=1e-11)
        torch.testing.assert_close(stepwise[client], expected, rtol=1e-9, atol=1e-11)
    module = make().double().eval()
    module.load_state_dict(network.layout.tensors(fused[0]))
    with torch.no_grad():
        torch.testing.assert_close(executor.outputs(fused[0], of[0][0][0]), module(of[0][0][0]), rtol=1e-9, atol=1e-11)


def test_long_sequences_are_attended_to_piece_by_piece(monkeypatch: pytest.MonkeyPatch) -> None:
    for at in (-1, 2):
        network, inputs = ModuleNetwork(lambda at=at: modules.Reader(at)), codes(1)[0][0][0]
        x = network.initial(0).double()
        expected = network.outputs(x, inputs)
        with monkeypatch.context() as patched:
            patched.setattr(sequences_of, "LONG", 3)
            torch.testing.assert_close(network.outputs(x, inputs), expected, rtol=1e-9, atol=1e-11)


def test_only_the_position_that_is_used_is_computed() -> None:
    def functions(make: Callable[[], nn.Module]) -> list[str]:
        program = ModuleNetwork(make).executor(1).program  # type: ignore[union-attr]
        return [node.function.__name__ for node in program.nodes]

    layer = ["attention", "add", "layer_norm", "linear", "relu", "linear", "add", "layer_norm"]
    begin = ["embedding", "add_parameter"]
    assert functions(lambda: modules.Reader(at=-1)) == [*begin, *layer, "position", *layer, "linear"]
    both = functions(lambda: modules.Reader(at=-1, twice=True))  # nothing is computed twice
    assert both == [*begin, *layer, *layer, "position", "position", "add", "linear"]


class Feature(nn.Module):
    """Takes one feature of a vector, which is no position of a sequence."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.out = nn.Linear(9, 4), nn.Linear(1, modules.CLASSES)

    def forward(self, x: Tensor) -> Tensor:
        return self.out(torch.tanh(self.first(x))[:, 2].reshape(-1, 1))


@pytest.mark.parametrize("clients", [1, 3])
def test_a_feature_is_not_taken_for_a_position(clients: int) -> None:
    agree(Feature, (9,), "layers", clients, torch.float64)


def sequences(make: Callable[[], nn.Module]) -> Classification:
    draw = np.random.default_rng(0)
    x = torch.from_numpy(draw.integers(modules.CLASSES, size=(90, 7)))
    data = Data("text", x[:72], x[:72, -1], x[72:], x[72:, -1])
    return Classification(data, ModuleNetwork(make), list(np.arange(72).reshape(6, 12)))


@pytest.mark.parametrize("make", [modules.Characters, modules.Attention])
def test_recurrent_and_attention_models_learn_resume_and_come_back(make: Callable[[], nn.Module]) -> None:
    task, local = sequences(make), fedawe.Local(fedawe.Rate(0.5), steps=4, batch=6)
    assert task.executor == ("layers" if make is modules.Characters else "autograd")
    trace = fedawe.Trace(np.random.default_rng(1).random((6, 6)) < 0.8)
    whole = list(fedawe.simulate(task, fedawe.FedAWE(), trace, local, seed=0))
    resumed = list(fedawe.simulate(task, fedawe.FedAWE(), trace, local, seed=0, resume=whole[2].state))
    assert torch.equal(resumed[-1].x, whole[-1].x)
    assert task.evaluate(whole[-1].x)["train_loss"] < task.evaluate(whole[0].x)["train_loss"]
    engine = Processes(task, local, 2, 6, task.initial(0))
    try:
        *_, last = fedawe.simulate(task, fedawe.FedAWE(), trace, local, seed=0, engine=engine)
    finally:
        engine.close()
    assert torch.equal(last.x, whole[-1].x)
    mine = make().eval()
    mine.load_state_dict(task.layout.state_dict(last.x))
    with torch.no_grad():
        outputs = mine(task.data.x_test)
    torch.testing.assert_close(task.network.outputs(last.x, task.data.x_test), outputs, rtol=1e-4, atol=1e-5)


def test_an_lstm_is_trained_as_torch_trains_it() -> None:
    task, local = sequences(modules.Characters), fedawe.Local(fedawe.Rate(0.5), steps=4, batch=6)
    x0 = task.initial(0)
    G = innovations(task, local, x0[None], torch.tensor([2]), 0, 0)[0]
    mine = modules.Characters()
    mine.load_state_dict(task.layout.state_dict(x0))
    optimizer = torch.optim.SGD(mine.parameters(), lr=0.5)
    for rows in task.samples(2, 0, local.work(torch.tensor([2]), 0, 0)):
        optimizer.zero_grad()
        functional.cross_entropy(mine(task.data.x_train[rows]), task.data.y_train[rows]).backward()
        optimizer.step()
    torch.testing.assert_close(x0 - G, task.layout.vector(mine.state_dict()), rtol=1e-4, atol=1e-6)


# The same bits, wherever they are computed


def test_a_network_survives_pickling() -> None:
    for make in (lambda: modules.convolutional(1), lambda: modules.dense(2), modules.Characters):
        network = ModuleNetwork(make)
        shape = (7,) if make is modules.Characters else (3, 12, 12) if network.layout.parameters > 500 else (9,)
        executor = network.executor(len(shape))
        x = network.initial(0)
        inputs = torch.zeros(2, *shape, dtype=torch.int64 if make is modules.Characters else torch.float32)
        copied = pickle.loads(cloudpickle.dumps(network))
        assert torch.equal(copied.outputs(x, inputs), executor.outputs(x, inputs))


@pytest.mark.parametrize("seed", [1, 5, 11])
def test_any_number_of_workers_gives_the_same_bits(seed: int) -> None:
    draw = torch.Generator().manual_seed(seed)
    x = torch.randn(120, 3, 12, 12, generator=draw)
    y = torch.randint(modules.CLASSES, (120,), generator=draw)
    network = ModuleNetwork(lambda: modules.convolutional(seed))
    task = Classification(Data("noise", x[:96], y[:96], x[96:], y[96:]), network, list(np.arange(96).reshape(6, 16)))
    local = fedawe.Local(fedawe.Rate(0.1), steps=3, batch=8, batches="epochs")
    X, A, visits = task.initial(0).repeat(6, 1), torch.arange(6), torch.arange(6)
    expected = Inline(task, local).train(fedawe.Broadcast(X), A, 2, 0, visits).G
    engine = Processes(task, local, 3, 6, X[0])
    try:
        assert torch.equal(engine.train(fedawe.Broadcast(X), A, 2, 0, visits).G, expected)
    finally:
        engine.close()


# Devices


class Waiting(Exception):
    """Something asked a device for a number."""


@pytest.mark.parametrize("precision", ["float32", "bfloat16"])
@pytest.mark.parametrize(
    "make",
    [
        lambda: modules.dense(1),
        lambda: modules.convolutional(3),
        lambda: nn.Sequential(nn.Softplus(), nn.Linear(9, 5)),
    ],
    ids=["dense", "layers", "autograd"],
)
def test_nothing_waits_for_a_device_while_clients_are_trained(
    make: Callable[[], nn.Module], precision: Precision, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What would make a host wait for a device raises here, where tensors are on the only device there is."""
    network = ModuleNetwork(make)
    images = any(isinstance(part, nn.Conv2d) for part in network.module.modules())
    draw = torch.Generator().manual_seed(0)
    x, y = torch.randn(60, *((3, 12, 12) if images else (9,)), generator=draw), torch.arange(60) % modules.CLASSES
    task = Classification(Data("noise", x[:48], y[:48], x[48:], y[48:]), network, list(np.arange(48).reshape(4, 12)))
    local = fedawe.Local(fedawe.Rate(0.1), steps=3, batch=6, precision=precision)
    X = task.initial(0).repeat(4, 1)
    got = task.batches(local.work(torch.arange(4), 0, 0))  # drawn on the host, and sent to the device once
    before = X.clone()

    def wait(*_: object, **__: object) -> None:
        raise Waiting

    with monkeypatch.context() as patched:
        for name in ("item", "tolist", "cpu", "numpy", "nonzero", "__bool__", "__float__", "__int__", "__index__"):
            patched.setattr(torch.Tensor, name, wait)
        with pytest.raises(Waiting):
            X.sum().item()
        with local.autocast(X.device):
            task.descend(X, got, 3, fedawe.tasks.Update(0.1))
    assert not torch.equal(X, before)
