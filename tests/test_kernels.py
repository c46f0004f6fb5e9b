"""Convolutions, normalisation and linear layers by kernels, and the gradient of networks of them: against plain PyTorch
in double precision."""

import copy
import gc
import math
import weakref
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from random import Random
from typing import Any

import modules
import pytest
import torch
from hypothesis import assume, example, given, note, settings
from hypothesis import strategies as st
from short_vectors import SHORT, only_with_long_vectors, passes_with_short_vectors
from torch import Tensor, nn
from torch.nn import functional
from torch.overrides import TorchFunctionMode

import fedawe
from fedawe.tasks import ModuleNetwork
from fedawe.tasks.executors import Batch, chain
from fedawe.tasks.executors.convolved import convolved
from fedawe.tasks.executors.differentiated import Differentiated
from fedawe.tasks.executors.kernels.vectors import LANES, has_kernel
from fedawe.tasks.executors.layers import Layers
from fedawe.tasks.executors.linear import linear
from fedawe.tasks.executors.normalised import batch_normalised, group_normalised
from fedawe.tasks.executors.pooled import convolved_pooled

EXAMPLES = 6 if SHORT else 40
RTOL = 2e-5
# Sizes are drawn under a seed: drawn one by one by hypothesis, most examples differ from others in one size only.
SEEDS = st.integers(0, 2**32 - 1)


def same(ours: Tensor | None, theirs: Tensor | None, rtol: float = RTOL) -> None:
    """Equal to rounding: to a part of the largest number."""
    assert ours is not None
    assert theirs is not None
    assert ours.shape == theirs.shape
    assert ours.dtype == torch.float32
    assert theirs.dtype == torch.float64
    largest = float(theirs.abs().max()) if theirs.numel() else 0.0
    torch.testing.assert_close(ours.double(), theirs, rtol=rtol, atol=rtol * largest + 1e-7)


def wide(tensors: Sequence[Tensor | None]) -> list[Tensor | None]:
    """The same numbers in double precision, apart from autograd."""
    return [None if each is None else each.detach().double().requires_grad_(each.requires_grad) for each in tensors]


def asked(tensors: Sequence[Tensor | None]) -> list[Tensor]:
    return [each for each in tensors if each is not None and each.requires_grad]


def check(
    ours: Callable[..., Tensor],
    theirs: Callable[..., Tensor],
    tensors: Sequence[Tensor | None],
    kink: Callable[..., Tensor] | None = None,
    rtol: float = RTOL,
) -> None:
    """Outputs, and the gradients of those tensors that want one.

    `kink` gives what a ReLU receives: errors are zero where that is nearer to zero than 1e-3, since rounding may decide
    on which side it is.
    """
    exact = wide(tensors)
    found, expected = ours(*tensors), theirs(*exact)
    same(found.detach(), expected.detach(), rtol)
    error = torch.randn(found.shape, generator=torch.Generator().manual_seed(987654321))
    if kink is not None:
        error = error * (kink(*exact).detach().abs() > 1e-3)
    pairs = zip(
        torch.autograd.grad(found, asked(tensors), error),
        torch.autograd.grad(expected, asked(exact), error.double()),
        strict=True,
    )
    for one, other in pairs:
        same(one, other, rtol)


def numbers(seed: int) -> Callable[..., Tensor]:
    draw = torch.Generator().manual_seed(seed)
    return lambda *shape, wanted=True: torch.randn(shape, generator=draw).requires_grad_(wanted)


# Convolutions


def check_convolution(
    samples: int,
    channels: tuple[int, int],
    window: tuple[int, int],
    stride: int,
    padding: tuple[int, int],
    size: tuple[int, int],
    biased: bool = True,
    seed: int = 0,
) -> None:
    randn, (inputs, outputs) = numbers(seed), channels
    assert has_kernel(inputs, outputs, *window, first=bool(inputs % LANES))
    x = randn(samples, inputs, *size, wanted=inputs % LANES == 0)
    tensors = [x, randn(outputs, inputs, *window), randn(outputs) if biased else None]
    check(
        lambda *given: convolved(*given, stride, padding),
        lambda *given: functional.conv2d(*given, stride, padding),
        tensors,
    )


def convolution(draw: Random) -> tuple[Any, ...]:
    inputs = draw.choice([LANES, 2 * LANES, 3 * LANES, draw.randint(1, 20)])
    window, padding = (draw.randint(1, 5), draw.randint(1, 5)), (draw.randint(0, 3), draw.randint(0, 3))
    height, width = (draw.randint(max(1, k - 2 * pad), 20) for k, pad in zip(window, padding, strict=True))
    channels = inputs, LANES * draw.randint(1, 3)
    return draw.randint(1, 4), channels, window, draw.randint(1, 3), padding, (height, width), draw.random() < 0.5


@settings(max_examples=EXAMPLES, deadline=None)
@given(SEEDS)
def test_convolutions_are_those_of_pytorch(seed: int) -> None:
    layer = convolution(Random(seed))
    note(f"samples, channels, window, stride, padding, size, bias: {layer}")
    check_convolution(*layer, seed=seed)


@pytest.mark.parametrize(
    ("window", "stride", "padding", "size"),
    [
        ((3, 3), 3, (1, 1), (1, 1)),  # the last row and column of the window are never in the image
        ((3, 1), 3, (1, 0), (1, 5)),
        ((7, 7), 2, (3, 3), (1, 2)),
        ((5, 2), 3, (2, 1), (2, 1)),
        ((1, 1), 2, (3, 3), (1, 1)),  # most windows have nothing of the image in them
        ((1, 1), 3, (1, 2), (4, 3)),
        ((2, 5), 1, (3, 0), (1, 5)),
        ((1, 5), 1, (0, 2), (20, 1)),
        ((5, 1), 2, (0, 0), (5, 19)),
        ((2, 2), 3, (0, 0), (7, 8)),  # pixels that no window reaches
        ((3, 3), 1, (1, 1), (2, 37)),
    ],
)
def test_convolutions_at_the_edges_of_images(
    window: tuple[int, int], stride: int, padding: tuple[int, int], size: tuple[int, int]
) -> None:
    for inputs in (LANES, 3):
        check_convolution(3, (inputs, 2 * LANES), window, stride, padding, size)


def test_errors_of_a_convolution_in_any_layout() -> None:
    randn = numbers(0)
    x, weight = randn(2, LANES, 5, 6), randn(LANES, LANES, 3, 3)
    for error in (
        torch.ones(()).expand(2, LANES, 3, 4),
        randn(2, LANES, 6, 8)[:, :, ::2, ::2],
        randn(4, 3, LANES, 2).permute(3, 2, 1, 0),
    ):
        exact = wide([x, weight])
        found = torch.autograd.grad(convolved(x, weight, None, 1, (0, 0)), [x, weight], error)
        expected = torch.autograd.grad(functional.conv2d(*exact), asked(exact), error.double())
        for one, other in zip(found, expected, strict=True):
            same(one, other)


# Normalisation


def rounding(mean: float) -> float:
    """What the rounding of a sum of numbers about `mean`, with deviations from 1/2 to 3/2, leaves uncertain.

    A variance that is computed with cancellation is wrong by more.
    """
    return RTOL * (1 + abs(mean) / 20)


def group_checked(tensors: Sequence[Tensor | None], groups: int, eps: float, relu: bool, rtol: float) -> None:
    """tensors: x, what is added or None, weight, bias."""

    def ours(x: Tensor, added: Tensor | None, weight: Tensor, bias: Tensor) -> Tensor:
        rest = (weight, bias) if added is None else (added, weight, bias)
        return group_normalised(x, *rest, groups=groups, eps=eps, relu=relu)

    def before(x: Tensor, added: Tensor | None, weight: Tensor, bias: Tensor) -> Tensor:
        h = functional.group_norm(x, groups, weight, bias, eps)
        return h if added is None else h + added

    def theirs(*given: Tensor) -> Tensor:
        return before(*given).relu() if relu else before(*given)

    check(ours, theirs, tensors, before if relu else None, rtol)


def normalised(draw: Random) -> tuple[Any, ...]:
    """Shape of the images, their mean, eps, whether there are a ReLU and an addition."""
    shape = draw.randint(1, 4), LANES * draw.choice([1, 2, 3, 4, 6]), draw.randint(1, 12), draw.randint(1, 12)
    layer = (
        shape,
        draw.choice([0.0, 100.0, -30.0]),
        draw.choice([1e-5, 1e-3, 0.3]),
        draw.random() < 0.5,
        draw.random() < 0.5,
    )
    note(f"shape, mean, eps, relu, addition: {layer}")
    return layer


def images(shape: tuple[int, ...], mean: float, added: bool, seed: int) -> list[Tensor | None]:
    """x, what is added to it or None, weight, bias."""
    randn, C = numbers(seed), shape[1]
    x = (randn(*shape, wanted=False) * (0.5 + torch.rand(C, 1, 1)) + mean).requires_grad_()
    return [x, randn(*shape) if added else None, randn(C), randn(C)]


@settings(max_examples=EXAMPLES, deadline=None)
@given(SEEDS)
def test_group_normalisation_is_that_of_pytorch(seed: int) -> None:
    draw = Random(seed)
    shape, mean, eps, relu, added = normalised(draw)
    C, pixels = shape[1], shape[2] * shape[3]
    groups = draw.choice([n for n in range(1, C + 1) if C % n == 0])
    note(f"groups: {groups}")
    assume(C // groups * pixels >= 8)  # of fewer numbers the deviation may be too small to divide by
    torch.manual_seed(seed)
    group_checked(images(shape, mean, added, seed), groups, eps, relu, rounding(mean))


@settings(max_examples=EXAMPLES, deadline=None)
@given(SEEDS)
def test_batch_normalisation_is_that_of_pytorch(seed: int) -> None:
    draw = Random(seed)
    (shape, mean, eps, relu, added), momentum = normalised(draw), draw.choice([0.0, 0.1, 1.0, draw.random()])
    assume(shape[0] * shape[2] * shape[3] >= 8)
    torch.manual_seed(seed)
    tensors, C = images(shape, mean, added, seed), shape[1]
    exact = nn.BatchNorm2d(C, eps, momentum).double()
    statistics = [torch.randn(C), torch.rand(C)]
    for own, one in zip((exact.running_mean, exact.running_var), statistics, strict=True):
        assert own is not None
        own.copy_(one)

    def ours(
        x: Tensor, added: Tensor | None, weight: Tensor, bias: Tensor, statistics: list[Tensor], training: bool
    ) -> Tensor:
        rest = (weight, bias) if added is None else (added, weight, bias)
        return batch_normalised(x, *rest, *statistics, momentum=momentum, eps=eps, relu=relu, training=training)

    def before(of: nn.Module, x: Tensor, added: Tensor | None, weight: Tensor, bias: Tensor) -> Tensor:
        h = torch.func.functional_call(of, {"weight": weight, "bias": bias}, (x,))
        return h if added is None else h + added

    def theirs(*given: Tensor) -> Tensor:
        return before(exact, *given).relu() if relu else before(exact, *given)

    spare = copy.deepcopy(exact)
    kink = partial(before, spare) if relu else None
    check(lambda *given: ours(*given, statistics, True), theirs, tensors, kink, rounding(mean))
    same(statistics[0], exact.running_mean)
    same(statistics[1], exact.running_var)
    exact.eval()
    before_evaluation = [one.clone() for one in statistics]
    same(ours(*tensors, statistics, False).detach(), theirs(*wide(tensors)).detach())  # type: ignore[arg-type]
    assert all(torch.equal(one, other) for one, other in zip(statistics, before_evaluation, strict=True))


@pytest.mark.parametrize("pixels", [1, 2, 3])
def test_normalisation_of_few_numbers(pixels: int) -> None:
    """The deviation is small against eps, or cancels: errors are measured by the numbers that cancel."""
    torch.manual_seed(pixels)
    x, weight, bias, eps = torch.randn(3, LANES, 1, pixels), torch.randn(LANES), torch.randn(LANES), 1e-5
    given = [each.requires_grad_() for each in (x, weight, bias)]
    exact = [each.detach().double().requires_grad_() for each in given]
    found = group_normalised(*given, groups=LANES, eps=eps, relu=False)
    expected = functional.group_norm(exact[0], LANES, *exact[1:], eps)
    scale = float(weight.detach().abs().max()) / math.sqrt(eps)
    torch.testing.assert_close(found.double(), expected, rtol=2e-5, atol=3e-7 * scale)
    error = torch.randn_like(x)
    pairs = zip(
        torch.autograd.grad(found, given, error), torch.autograd.grad(expected, exact, error.double()), strict=True
    )
    for one, other in pairs:
        torch.testing.assert_close(one.double(), other, rtol=2e-5, atol=3e-7 * scale * float(error.abs().max()))


@pytest.mark.parametrize("relu", [False, True])
def test_variance_of_numbers_far_from_zero(relu: bool) -> None:
    """The mean of the squares less the square of the mean would leave nothing of a variance of 1e-4."""
    torch.manual_seed(0)
    x = (100 + 0.01 * torch.randn(4, LANES, 8, 8)).requires_grad_()
    weight, bias = torch.ones(LANES), torch.zeros(LANES)
    mean, var = torch.zeros(LANES), torch.zeros(LANES)
    batch_normalised(x, weight, bias, mean, var, momentum=1.0, eps=1e-5, relu=relu, training=True)
    exact = x.detach().double()
    same(var, exact.var((0, 2, 3)), rtol=1e-4)
    same(mean, exact.mean((0, 2, 3)), rtol=1e-6)


def test_a_statistic_of_one_number_is_refused_as_by_pytorch() -> None:
    x, weight, bias = torch.randn(1, LANES, 1, 1), torch.ones(LANES), torch.zeros(LANES)
    statistics = torch.zeros(LANES), torch.ones(LANES)
    for relu in (False, True):
        with pytest.raises(ValueError, match="more than 1 value per channel"):
            batch_normalised(x, weight, bias, *statistics, momentum=0.1, eps=1e-5, relu=relu, training=True)
        with pytest.raises(ValueError, match="more than 1 value per channel"):
            group_normalised(x, weight, bias, groups=LANES, eps=1e-5, relu=relu)
        batch_normalised(x, weight, bias, *statistics, momentum=0.1, eps=1e-5, relu=relu, training=False)
        group_normalised(x, weight, bias, groups=1, eps=1e-5, relu=relu)
    assert not statistics[0].any()


def test_a_client_with_a_batch_of_one_pixel_is_refused() -> None:
    def make() -> nn.Module:
        return nn.Sequential(nn.Conv2d(3, LANES, 3), nn.BatchNorm2d(LANES), nn.Flatten(), nn.Linear(LANES, 5))

    network = ModuleNetwork(make)
    batch = (torch.randn(1, 1, 3, 3, 3), torch.zeros(1, 1, dtype=torch.int64), torch.ones(1, 1), None)
    x = network.initial(0)[None]
    for run in (
        lambda: network.executor(3).descend(x, [batch], 0.1),
        lambda: network.executor(3).gradients(x, batch, {}),
    ):
        with pytest.raises(fedawe.UserError, match="a client has a batch of one sample"):
            run()


# Linear layers


@settings(max_examples=EXAMPLES, deadline=None)
@given(SEEDS)
def test_linear_layers_are_those_of_pytorch(seed: int) -> None:
    draw = Random(seed)
    rows = draw.choice([(draw.randint(1, 40),), (draw.randint(1, 6), draw.randint(1, 7))])
    vectors, outputs, biased, wanted = draw.randint(1, 5), draw.randint(1, 20), draw.random() < 0.5, draw.random() < 0.8
    note(f"rows, vectors of inputs, outputs, bias, gradient of the input: {rows, vectors, outputs, biased, wanted}")
    randn, inputs = numbers(seed), vectors * LANES
    tensors = [randn(*rows, inputs, wanted=wanted), randn(outputs, inputs), randn(outputs) if biased else None]
    check(linear, functional.linear, tensors)


def test_linear_layers_of_any_layout() -> None:
    randn = numbers(0)
    x, weight, bias = randn(LANES, 9), randn(LANES, 7), randn(7)
    check(
        lambda *given: linear(given[0].T, given[1].T, given[2]),
        lambda *given: functional.linear(given[0].T, given[1].T, given[2]),
        [x, weight, bias],
    )
    error = torch.ones(()).expand(4, 7)
    one = torch.autograd.grad(linear(x.T[:4], weight.T, bias), [x, weight], error)
    other = torch.autograd.grad(linear(x.T[:4], weight.T, bias), [x, weight], error.contiguous())
    assert all(torch.equal(a, b) for a, b in zip(one, other, strict=True))


# Whatever the layer


@pytest.mark.parametrize("groups", [1, 4, LANES])
def test_a_sample_is_computed_the_same_whatever_is_beside_it(groups: int) -> None:
    randn = numbers(0)
    x, weight, rows, columns = (
        randn(9, LANES, 5, 7),
        randn(LANES, LANES, 3, 3),
        randn(9, 2 * LANES),
        randn(7, 2 * LANES),
    )
    gain, bias = randn(LANES), randn(LANES)

    def layers(n: int) -> Iterator[Tensor]:
        yield convolved(x[:n], weight, bias, 2, (1, 1))
        yield group_normalised(x[:n], gain, bias, groups=groups, eps=1e-5, relu=True)
        yield linear(rows[:n], columns, None)

    with torch.no_grad():
        for n in (1, 2, 3, 5, 8):
            for part, whole in zip(layers(n), layers(9), strict=True):
                assert torch.equal(part, whole[:n])


@pytest.mark.parametrize("odd", [math.nan, math.inf, -math.inf], ids=str)
def test_what_is_not_finite_reaches_the_outputs_and_no_others(odd: float) -> None:
    def agree(ours: Tensor, theirs: Tensor) -> None:
        assert torch.equal(ours.isnan(), theirs.isnan())
        assert torch.equal(ours.isposinf(), theirs.isposinf())
        assert torch.equal(ours.isneginf(), theirs.isneginf())
        assert not theirs.isfinite().all()

    torch.manual_seed(0)
    weight, gain, bias = torch.randn(LANES, LANES, 3, 2), torch.rand(LANES) + 0.5, torch.randn(LANES)
    for place in ((0, 0, 0, 0), (1, LANES - 1, 5, 4), (1, 2, 3, 3)):
        x, clean = torch.randn(2, LANES, 6, 5), torch.randn(2, LANES, 6, 5)
        x[place] = odd
        agree(
            convolved(x, weight, bias, 1, (1, 1)), functional.conv2d(x.double(), weight.double(), bias.double(), 1, 1)
        )
        for groups, relu in ((1, True), (4, True), (LANES, False)):
            found = group_normalised(x, gain, bias, groups=groups, eps=1e-5, relu=relu)
            each, (sample, channel) = LANES // groups, place[:2]
            group = channel // each
            affected = torch.zeros_like(x, dtype=torch.bool)
            affected[sample, group * each : (group + 1) * each] = True
            assert torch.equal(~found.isfinite(), affected)
            added = group_normalised(clean, x, gain, bias, groups=groups, eps=1e-5, relu=relu)
            plain = functional.group_norm(clean, groups, gain, bias, 1e-5) + x
            if relu and odd == -math.inf:
                assert added[place] == 0
                assert added.isfinite().all()
            else:
                agree(added, plain.relu() if relu else plain)
        statistics = torch.zeros(LANES), torch.ones(LANES)
        found = batch_normalised(x, gain, bias, *statistics, momentum=0.1, eps=1e-5, relu=True, training=True)
        assert not found[:, place[1]].isfinite().any()
        assert found[:, [n for n in range(LANES) if n != place[1]]].isfinite().all()
        assert not statistics[0][place[1]].isfinite()
    rows, columns = torch.randn(5, LANES), torch.randn(7, LANES)
    rows[4, LANES - 1] = odd
    agree(linear(rows, columns, None), functional.linear(rows.double(), columns.double()))


@pytest.mark.parametrize("added", [False, True])
def test_errors_where_something_is_not_a_number_are_those_of_pytorch(added: bool) -> None:
    tensors = images((2, LANES, 4, 4), 0.0, added, 0)
    x, weight = torch.randn(2, LANES, 4, 4), torch.randn(LANES, LANES, 1, 1)
    with torch.no_grad():
        tensors[0][0, 1, 2, 2] = math.nan  # type: ignore[index]
        x[0, 1, 2, 2] = math.nan
        if added:
            tensors[1][1, 0, 0, 0] = math.nan  # type: ignore[index]

    def ours(*given: Tensor) -> Tensor:
        return group_normalised(*given, groups=4, eps=1e-5, relu=True)

    def theirs(x: Tensor, *rest: Tensor) -> Tensor:
        *others, weight, bias = rest
        return (functional.group_norm(x, 4, weight, bias) + sum(others)).relu()

    def pooled(weight: Tensor, bias: Tensor) -> Tensor:
        return convolved_pooled(x, weight, bias, (0, 0), 2, relu=True)

    def plainly(weight: Tensor, bias: Tensor) -> Tensor:
        return functional.max_pool2d(functional.conv2d(x.to(weight), weight, bias), 2).relu()

    last = [weight.requires_grad_(), torch.randn(LANES).requires_grad_()]
    for one, other, own in ((ours, theirs, asked(tensors)), (pooled, plainly, last)):
        exact = wide(own)
        found, expected = one(*own), other(*exact)  # type: ignore[arg-type]
        assert torch.equal(found.isnan(), expected.isnan())
        errors = [torch.full_like(out, math.nan) for out in (found, expected)]
        pairs = zip(
            torch.autograd.grad(found, own, errors[0]),
            torch.autograd.grad(expected, asked(exact), errors[1]),
            strict=True,
        )
        for a, b in pairs:
            assert torch.equal(a.isnan(), b.isnan())


@pytest.mark.parametrize("norm", ["group", "batch"])
def test_what_is_not_a_number_is_not_hidden_by_a_network(norm: str) -> None:
    network = ModuleNetwork(lambda: residual(norm))
    executor, x = network.executor(3), network.initial(0)
    inputs, targets, weights, seeds = batch_for((3, 8, 8))
    inputs[0, 2, 0, 4, 4] = math.nan
    outputs = executor.outputs(x, inputs[0])
    assert outputs[2].isnan().all()
    assert outputs[[0, 1, 3, 4, 5]].isfinite().all()
    stepped = x[None].clone()
    executor.descend(stepped, [(inputs, targets, weights, seeds)], 0.1)
    assert all(one.isnan().any() for one in network.layout.parts(stepped[0, : executor.d], "parameter").values())  # type: ignore[attr-defined]


WRONG: dict[str, Callable[[], Tensor]] = {
    "channels": lambda: convolved(torch.zeros(2, 3, 5, 5), torch.zeros(LANES, LANES, 3, 3), None, 1, (1, 1)),
    "no samples": lambda: convolved(torch.zeros(LANES - 1, 5, 5), torch.zeros(LANES, LANES, 3, 3), None, 1, (1, 1)),
    "small": lambda: convolved(torch.zeros(2, LANES, 2, 5), torch.zeros(LANES, LANES, 5, 3), None, 2, (1, 1)),
    "bytes": lambda: convolved(torch.zeros(2, 3, 5, 5).byte(), torch.zeros(LANES, 3, 3, 3), None, 1, (1, 1)),
    "doubles": lambda: convolved(torch.zeros(2, 3, 5, 5).double(), torch.zeros(LANES, 3, 3, 3), None, 1, (1, 1)),
    "pooled channels": lambda: convolved_pooled(
        torch.zeros(2, 3, 5, 5), torch.zeros(LANES, LANES, 3, 3), None, (1, 1), 2, True
    ),
    "pooled small": lambda: convolved_pooled(
        torch.zeros(2, LANES, 3, 5), torch.zeros(LANES, LANES, 3, 3), None, (0, 0), 2, True
    ),
    "pooled bytes": lambda: convolved_pooled(
        torch.zeros(2, 3, 5, 5).byte(), torch.zeros(LANES, 3, 3, 3), None, (1, 1), 2, True
    ),
    "columns": lambda: linear(torch.zeros(2, 2 * LANES), torch.zeros(5, LANES), None),
    "rows of doubles": lambda: linear(torch.zeros(2, LANES).double(), torch.zeros(5, LANES), None),
    "group weights": lambda: group_normalised(
        torch.zeros(2, 2 * LANES, 3, 3), torch.ones(LANES), torch.ones(LANES), groups=2, eps=1e-5, relu=True
    ),
    "batch weights": lambda: batch_normalised(
        torch.zeros(2, 2 * LANES, 3, 3), *torch.ones(4, LANES), momentum=0.1, eps=1e-5, relu=True, training=True
    ),
}


@pytest.mark.parametrize("name", WRONG)
def test_tensors_that_do_not_fit_are_refused_by_pytorch(name: str) -> None:
    """A kernel would read beyond their end."""
    with pytest.raises(
        RuntimeError,
        match=r"expected|Expected|should be the same|cannot be multiplied|too small|greater|should contain",
    ):
        WRONG[name]()


def test_inputs_that_do_not_fit_a_network_are_refused_by_pytorch() -> None:
    network = ModuleNetwork(lambda: residual("batch"))
    x, images = network.initial(0), torch.randn(2, 3, 8, 8)
    assert network.executor(3).outputs(x, images).isfinite().all()
    for wrong in (images.double(), images.byte(), images[:, :2]):
        with pytest.raises(RuntimeError):
            network.executor(3).outputs(x, wrong)


# Which layers of a network are computed by kernels


class Block(nn.Module):
    """Of a ResNet; `first`: the shortcut is the first term of the sum."""

    def __init__(self, fan_in: int, width: int, stride: int, norm: str, first: bool) -> None:
        super().__init__()
        self.conv1, self.norm1 = nn.Conv2d(fan_in, width, 3, stride, 1, bias=False), normalisation(norm, width)
        self.conv2, self.norm2 = nn.Conv2d(width, width, 3, 1, 1, bias=False), normalisation(norm, width)
        self.short: nn.Module = nn.Identity()
        if stride > 1 or fan_in != width:
            self.short = nn.Sequential(nn.Conv2d(fan_in, width, 1, stride, bias=False), normalisation(norm, width))
        self.first = first

    def forward(self, x: Tensor) -> Tensor:
        if self.first:
            short = self.short(x)
            return functional.relu(short + self.norm2(self.conv2(functional.relu(self.norm1(self.conv1(x))))))
        out = self.norm2(self.conv2(functional.relu(self.norm1(self.conv1(x)))))
        return functional.relu(out + self.short(x))


def normalisation(norm: str, width: int) -> nn.Module:
    return nn.BatchNorm2d(width, momentum=0.3) if norm == "batch" else nn.GroupNorm(4, width)


def residual(norm: str, first: bool = False) -> nn.Module:
    width = LANES
    blocks = [Block(width, width, 1, norm, first), Block(width, 2 * width, 2, norm, first)]
    last = [nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(2 * width, modules.CLASSES)]
    return nn.Sequential(
        nn.Conv2d(3, width, 3, 1, 1, bias=False), normalisation(norm, width), nn.ReLU(), *blocks, *last
    )


def layers_of(make: Callable[[], nn.Module]) -> Layers:
    executor = ModuleNetwork(make).executor(3)
    assert isinstance(executor, Layers)
    return executor


def functions(*layers: nn.Module) -> list[str]:
    program = layers_of(lambda: nn.Sequential(*layers)).joined
    return [] if program is None else [node.function.__name__ for node in program.nodes]


@pytest.mark.parametrize("first", [False, True])
@pytest.mark.parametrize("norm", ["group", "batch"])
def test_a_residual_network_is_computed_by_kernels(norm: str, first: bool) -> None:
    executor = layers_of(lambda: residual(norm, first))
    assert executor.joined is not None
    assert executor.chain is not None
    nodes = executor.joined.nodes
    names = [node.function.__name__ for node in nodes]
    assert sorted(set(names)) == sorted({"convolved", f"{norm}_normalised", "adaptive_avg_pool2d", "flatten", "linear"})
    added = [(len(node.inputs), node.options["relu"]) for node in nodes if "relu" in node.options]
    assert added.count((2, True)) == 2
    assert added.count((1, True)) == 3
    assert added.count((1, False)) == 1


def test_which_layers_have_kernels() -> None:
    def conv(inputs: int = 3, outputs: int = LANES, size: int = 3, **options: Any) -> nn.Module:
        return nn.Conv2d(inputs, outputs, size, **options)

    W = LANES
    assert functions(conv(), nn.Tanh()) == ["convolved", "tanh"]
    assert functions(conv(stride=2), nn.GroupNorm(2, W), nn.ReLU()) == ["convolved", "group_normalised"]
    assert functions(conv(), nn.GroupNorm(2, W), nn.Tanh()) == ["convolved", "group_normalised", "tanh"]
    assert functions(conv(), nn.MaxPool2d(2), nn.BatchNorm2d(W)) == ["convolved_pooled", "batch_norm"]
    for without in (nn.GroupNorm(2, W, affine=False), nn.BatchNorm2d(W, track_running_stats=False)):
        assert functions(conv(), without, nn.ReLU())[0] == "convolved"
        assert functions(conv(), without, nn.ReLU())[1] in ("group_norm", "batch_norm")
    for none in ({"dilation": 2}, {"stride": (1, 2)}, {"outputs": W + 1}, {"size": 8}):
        assert functions(conv(**none), nn.Tanh()) == []  # type: ignore[arg-type]
    assert functions(conv(W, W, groups=2), nn.Tanh()) == []
    assert functions(conv(outputs=2 * W), conv(2 * W, W)) == ["convolved", "convolved"]
    assert functions(conv(outputs=4), conv(4, W)) == []  # not the first layer
    assert functions(nn.Flatten(), nn.Linear(3, 2), nn.Linear(2, 2)) == []
    assert functions(nn.Flatten(), nn.Linear(3, W), nn.Linear(W, 2), nn.Tanh()) == [
        "flatten",
        "linear",
        "linear",
        "tanh",
    ]


# The gradient of a network without autograd


def batch_for(shape: tuple[int, ...], samples: int = 6, seed: int = 0) -> Batch:
    draw = torch.Generator().manual_seed(seed)
    inputs, targets = torch.randn(1, samples, *shape, generator=draw), torch.randint(5, (1, samples), generator=draw)
    return inputs, targets, torch.rand(1, samples, generator=draw), [seed]


NEAR = 5e-6  # of a smaller number rounding may decide on which side of zero it is


class Nearest(TorchFunctionMode):
    """How near to zero the inputs of ReLUs come without being zero."""

    def __init__(self) -> None:
        super().__init__()
        self.least = math.inf

    def __torch_function__(self, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        del types
        kwargs, name = kwargs or {}, getattr(function, "__name__", "")
        if name in ("relu", "relu_", "leaky_relu", "threshold"):
            sizes = args[0].detach().abs()
            self.least = min(self.least, float(sizes[sizes > 0].min())) if sizes.any() else self.least
        return function(*args, **kwargs)


def with_masks(module: nn.Module, masks: Sequence[Tensor]) -> nn.Module:
    """The module with these masks in the place of its dropout."""
    left = iter(masks)

    class Given(nn.Module):
        def forward(self, h: Tensor) -> Tensor:
            return h * next(left).to(h)

    for parent in list(module.modules()):
        for name, child in list(parent.named_children()):
            if isinstance(child, nn.Dropout):
                setattr(parent, name, Given())
    return module


def exact_gradients(network: ModuleNetwork, x: Tensor, batch: Batch) -> tuple[dict[str, Tensor], nn.Module, float]:
    """By autograd in double precision: gradients by name, the module afterwards, and how near to a kink it came."""
    executor, (inputs, targets, weights, seeds) = network.executor(batch[0].ndim - 2), batch
    assert isinstance(executor, Layers)
    module = network.make()
    module.load_state_dict(network.layout.state_dict(x))
    module = with_masks(module, [mask[0] for mask in executor.draw(x[None], inputs, seeds)]).double().train()
    with Nearest() as nearest:
        outputs = module(inputs[0].double())
    loss = (weights[0].double() * network.per_sample(outputs, targets[0])).sum()
    trained = {name: one for name, one in module.named_parameters() if one.requires_grad}
    found = torch.autograd.grad(loss, list(trained.values()), allow_unused=True)
    zero = {name: torch.zeros_like(one) for name, one in module.named_parameters()}
    given = {name: one for name, one in zip(trained, found, strict=True) if one is not None}
    return {**zero, **given}, module, nearest.least


def chain_agrees(
    network: ModuleNetwork, batch: Batch, seed: int = 0, rtol: float = 5e-5, strict: bool = True
) -> dict[str, Tensor]:
    """The gradients of a network by the chain of its kernels are those in double precision; buffers change alike."""
    executor, least = network.executor(batch[0].ndim - 2), 0.0
    assert isinstance(executor, Layers)
    assert executor.chain is not None
    for each in range(seed, seed + 8):
        x = network.initial(each)
        expected, module, least = exact_gradients(network, x, batch)
        if least > NEAR:
            break
    if not strict:
        assume(least > NEAR)
    assert least > NEAR
    rows = x[None].clone()
    g = executor.gradients(rows, batch, {})
    found = network.layout.parts(g[0], "parameter")
    scale = max(float(each.abs().max()) for each in expected.values())
    for name, one in found.items():
        torch.testing.assert_close(
            one.double(), expected[name], rtol=rtol, atol=rtol * scale, msg=lambda m, n=name: f"{n}: {m}"
        )
    after = module.state_dict()
    for name, one in network.layout.parts(rows[0, executor.d :], "buffer").items():
        same(one, after[name])
    # Autograd, of the same kernels.
    other = Differentiated.gradients(executor, x[None].clone(), batch, {})
    torch.testing.assert_close(g, other, rtol=1e-4, atol=1e-5 * scale)
    return found


@settings(max_examples=EXAMPLES // 2, deadline=None)
@given(st.integers(0, 10**6))
@example(3)
def test_random_networks(seed: int) -> None:
    network = ModuleNetwork(lambda: modules.convolutional(seed, size=8))
    executor = network.executor(3)
    assert isinstance(executor, Layers)
    assume(executor.chain is not None)
    chain_agrees(network, batch_for((3, 8, 8), samples=4, seed=seed), strict=False)


@pytest.mark.parametrize("first", [False, True])
@pytest.mark.parametrize("norm", ["group", "batch"])
def test_residual_networks(norm: str, first: bool) -> None:
    chain_agrees(ModuleNetwork(lambda: residual(norm, first)), batch_for((3, 8, 6)))


MIXED: dict[str, Callable[[], list[nn.Module]]] = {
    "few channels": lambda: [nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4), nn.ReLU(), nn.Conv2d(4, LANES, 3)],
    "normalised after relu": lambda: [
        nn.Conv2d(3, LANES, 5),
        nn.ReLU(),
        nn.BatchNorm2d(LANES),
        nn.Conv2d(LANES, LANES, 1),
    ],
    "in groups": lambda: [nn.Conv2d(3, LANES, 5), nn.Conv2d(LANES, LANES, 1, groups=2)],
    "dilated": lambda: [
        nn.Conv2d(3, LANES, 1),
        nn.BatchNorm2d(LANES),
        nn.ReLU(),
        nn.Conv2d(LANES, LANES, 3, dilation=2),
    ],
}


@pytest.mark.parametrize("last", [4, LANES])
@pytest.mark.parametrize("name", MIXED)
def test_batch_normalisation_by_kernels_beside_layers_without(name: str, last: int) -> None:
    """All weights and statistics are parts of one vector, of which a change would be an error to autograd."""

    def make() -> nn.Module:
        head = [nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(LANES, last), nn.Tanh(), nn.Linear(last, 5)]
        return nn.Sequential(*MIXED[name](), nn.BatchNorm2d(LANES), nn.ReLU(), *head)

    network, batch = ModuleNetwork(make), batch_for((3, 8, 8))
    executor = network.executor(3)
    assert isinstance(executor, Layers)
    assert executor.joined is not None
    assert batch_normalised in [node.function for node in executor.joined.nodes]
    chain_agrees(network, batch)
    x = network.initial(0)[None]
    one, other = x.clone(), x.clone()
    executor.descend(one, [batch], 0.1)
    g = executor.gradients(other, batch, {})
    other[:, : g.shape[1]].sub_(g, alpha=0.1)
    assert torch.equal(one, other)


class Shapes(nn.Module):
    """Networks of the kinds that are easily computed wrongly."""

    def __init__(self, kind: str) -> None:
        super().__init__()
        W = LANES
        self.kind, self.conv, self.other = kind, nn.Conv2d(3, W, 3, padding=1), nn.Conv2d(W, W, 3, padding=1)
        self.third, self.norm, self.more = nn.Conv2d(W, W, 1), nn.GroupNorm(2, W), nn.BatchNorm2d(W, momentum=0.3)
        self.out, self.drop = nn.Linear(W, modules.CLASSES), nn.Dropout(0.4)
        self.wide, self.spare = nn.Linear(W, W), nn.Linear(W, 3)

    def forward(self, x: Tensor) -> Tensor:
        h = torch.tanh(self.conv(x))
        kind = self.kind
        if kind == "three uses":
            h = functional.relu(self.norm(self.other(h)) + h) + self.third(h)
        elif kind == "added to itself":
            h = self.norm(self.other(h) + h) + self.more(self.third(h))
            h = h + h
        elif kind == "normalised and not":
            h = self.other(h)
            h = functional.relu(self.norm(h) + h)
        elif kind == "two normalisations added":
            h = functional.relu(self.norm(self.other(h)) + self.more(self.third(h)))
        elif kind == "two normalisations added without a relu":
            h = self.norm(self.other(h)) + self.more(self.third(h))
        elif kind == "a sum of two uses":
            h = functional.relu(self.norm(self.other(h)) + self.third(h))
            h = h + functional.adaptive_avg_pool2d(h, 1)
        elif kind == "a smaller image added":
            h = functional.relu(self.norm(self.other(h)) + functional.adaptive_avg_pool2d(h, 1))
        elif kind == "a larger image added":
            h = functional.relu(self.more(self.other(functional.adaptive_avg_pool2d(h, (1, 1)))) + h)
        elif kind == "the same layer twice":
            h = torch.tanh(self.norm(self.other(torch.tanh(self.norm(self.other(h))))))
        elif kind == "the same convolution twice":
            h = self.norm(self.other(h)) + torch.tanh(self.other(h))
        elif kind == "an unused branch":
            self.norm(self.third(h))
            h = functional.relu(self.more(self.other(h)))
        elif kind == "dropout":
            h = self.drop(functional.relu(self.norm(self.drop(self.other(h)))))
        elif kind == "pooled":
            h = functional.max_pool2d(functional.relu(self.other(h)), 2)
            h = functional.relu(functional.max_pool2d(self.third(h), 2))
        elif kind == "what is normalised used twice":
            h = self.norm(self.other(h))
            h = functional.relu(h) + h
        elif kind == "a sum used twice":
            h = self.more(self.other(h)) + h
            h = functional.relu(h) + h
        elif kind == "a convolution used twice":
            h = self.other(h)
            h = functional.max_pool2d(h, 2) + functional.adaptive_avg_pool2d(h, (3, 2))
        elif kind == "what is pooled used twice":
            h = functional.max_pool2d(self.other(h), 2)
            h = functional.relu(h) + h
        elif kind == "relu between":
            h = functional.relu(self.other(functional.relu(h)))
        h = torch.flatten(functional.adaptive_avg_pool2d(h, 1), 1)
        if kind == "dropout":
            h = self.drop(self.wide(h))
        return self.out(h + self.wide(h))


KINDS = [
    "three uses",
    "added to itself",
    "normalised and not",
    "two normalisations added",
    "two normalisations added without a relu",
    "a sum of two uses",
    "a smaller image added",
    "a larger image added",
    "the same layer twice",
    "the same convolution twice",
    "an unused branch",
    "dropout",
    "relu between",
    "pooled",
    "what is normalised used twice",
    "a sum used twice",
    "a convolution used twice",
    "what is pooled used twice",
]


@pytest.mark.parametrize("kind", KINDS)
def test_gradients_of_networks(kind: str) -> None:
    found = chain_agrees(ModuleNetwork(lambda: Shapes(kind)), batch_for((3, 6, 5), seed=len(kind)), rtol=2e-5)
    assert not found["spare.weight"].any()
    assert found["conv.weight"].all()


def tied() -> nn.Module:
    module = nn.Sequential(
        nn.Flatten(), nn.Linear(LANES, LANES), nn.Tanh(), nn.Linear(LANES, LANES), nn.Tanh(), nn.Linear(LANES, 5)
    )
    module[3].weight = module[1].weight
    return module


def test_tied_parameters() -> None:
    network = ModuleNetwork(tied)
    assert isinstance(network.executor(1), Layers)
    chain_agrees(network, batch_for((LANES,)))


ENDS: dict[str, list[Callable[[], nn.Module]]] = {
    "convolution": [lambda: nn.Conv2d(LANES, LANES, 3)],
    "normalisation": [lambda: nn.Conv2d(LANES, LANES, 3), lambda: nn.GroupNorm(2, LANES)],
    "relu": [lambda: nn.Conv2d(LANES, LANES, 3), lambda: nn.GroupNorm(2, LANES), nn.ReLU],
    "pooling": [lambda: nn.Conv2d(LANES, LANES, 3), lambda: nn.MaxPool2d(2)],
    "flatten": [lambda: nn.Conv2d(LANES, LANES, 3), nn.Flatten],
    "linear": [lambda: nn.Linear(8, LANES), lambda: nn.Linear(LANES, 2)],
    "residual": [lambda: Block(LANES, LANES, 1, "batch", first=True)],
}


def squares(outputs: Tensor, targets: Tensor) -> Tensor:
    """A loss of outputs of any shape; its error is not contiguous in memory."""
    return (outputs.flatten(1) - 0.1 * targets[:, None]).square().t().sum(0)


@pytest.mark.parametrize("end", ENDS)
def test_networks_that_end_with_any_layer(end: str) -> None:
    def make() -> nn.Module:
        return nn.Sequential(nn.Conv2d(3, LANES, 3), nn.Tanh(), *(each() for each in ENDS[end]))

    chain_agrees(ModuleNetwork(make, loss=squares), batch_for((3, 9, 10)))


@pytest.mark.parametrize("frozen", ["0.", "1.", "3.conv2", "3.norm2", "4.short", "7."])
@pytest.mark.parametrize("norm", ["group", "batch"])
def test_frozen_parameters(norm: str, frozen: str) -> None:
    def make() -> nn.Module:
        module = residual(norm)
        for name, one in module.named_parameters():
            one.requires_grad_(not name.startswith(frozen))
        return module

    network, batch = ModuleNetwork(make), batch_for((3, 8, 8))
    names = [name for name, one in make().named_parameters() if not one.requires_grad]
    assert names
    found = chain_agrees(network, batch)
    x = network.initial(0)[None]
    stepped = x.clone()
    network.executor(3).descend(stepped, [batch, batch], 0.1)
    before, after = (network.layout.parts(each[0, : network.layout.parameters], "parameter") for each in (x, stepped))
    for name in found:
        assert bool(found[name].any()) is (name not in names)
        assert torch.equal(before[name], after[name]) is (name in names)


# Steps


def training(name: str) -> tuple[ModuleNetwork, list[Batch]]:
    makes: dict[str, Callable[[], nn.Module]] = {
        "group": lambda: residual("group"),
        "batch": lambda: residual("batch", first=True),
        "dropout": lambda: Shapes("dropout"),
        "pooled": lambda: nn.Sequential(
            nn.Conv2d(3, LANES, 5, padding=2), nn.ReLU(), nn.MaxPool2d(2), nn.Flatten(), nn.Linear(LANES * 16, 5)
        ),
    }
    return ModuleNetwork(makes[name]), [batch_for((3, 8, 8), seed=seed) for seed in range(4)]


@pytest.mark.parametrize("name", ["group", "batch", "dropout", "pooled"])
def test_a_plain_step_is_a_gradient_and_a_step_to_the_bit(name: str) -> None:
    network, batches = training(name)
    executor = network.executor(3)
    x = network.initial(0)[None]
    fused, stepwise, again, kept = x.clone(), x.clone(), x.clone(), {}
    executor.descend(fused, batches, 0.1)
    executor.descend(again, batches, 0.1)
    for batch in batches:
        g = executor.gradients(stepwise, batch, kept)
        stepwise[:, : g.shape[1]].sub_(g, alpha=0.1)
    assert torch.equal(fused, again)
    assert torch.equal(fused, stepwise)
    assert not torch.equal(fused, x)


@pytest.mark.parametrize("name", ["group", "batch", "dropout", "pooled"])
def test_nothing_is_left_behind(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    network, batches = training(name)
    executor, x = network.executor(3), network.initial(0)[None]
    executor.descend(x, batches, 0.1)  # kernels are compiled
    made: list[weakref.ref[Any]] = []

    class Noted(chain.Step):
        def __init__(self, needs: tuple[bool, ...]) -> None:
            super().__init__(needs)
            made.append(weakref.ref(self))

    monkeypatch.setattr(chain, "Step", Noted)
    gc.collect()
    gc.disable()
    try:
        executor.descend(x, batches, 0.1)
        executor.gradients(x, batches[0], {})
        assert len(made) >= 5 * 3
        assert all(each() is None for each in made)
        gc.set_debug(gc.DEBUG_SAVEALL)
        gc.collect()
        assert not [each for each in gc.garbage if isinstance(each, Tensor | chain.Step)]
    finally:
        gc.set_debug(0)
        gc.garbage.clear()
        gc.enable()


# Shorter vectors


@only_with_long_vectors
def test_kernels_for_shorter_vectors() -> None:
    """The same tests, of fewer examples."""
    passes_with_short_vectors(__file__)


def test_the_vectors_are_those_asked_for() -> None:
    assert (LANES == 8) == (SHORT or torch.backends.cpu.get_cpu_capability() != "AVX512")
