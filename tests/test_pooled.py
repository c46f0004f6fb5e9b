"""Convolution, pooling and ReLU joined: against plain PyTorch in double precision."""

import copy
import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn
from torch.nn import functional

from fedawe.tasks import ModuleNetwork
from fedawe.tasks.executors.kernels.vectors import LANES, piece_of, suits
from fedawe.tasks.executors.layers import Layers
from fedawe.tasks.executors.pooled import convolved_pooled


def plain(x, weight, bias, padding, k, relu):
    h = functional.max_pool2d(functional.conv2d(x, weight, bias, padding=padding), k)
    return h.relu() if relu else h


def both(x, weight, bias, padding, k, relu, error=None):
    """Outputs and gradients of weight, bias and input, by the kernels and by PyTorch in float64."""
    found = []
    for function, kind in ((convolved_pooled, torch.float32), (plain, torch.float64)):
        given = [None if each is None else each.detach().to(kind).requires_grad_() for each in (weight, bias, x)]
        if suits(weight.shape[1], *weight.shape[:1], *weight.shape[2:], first=False) is False:
            given[2].requires_grad_(False)
        out = function(given[2], given[0], given[1], padding, k, relu)
        wanted = [each for each in given if each is not None and each.requires_grad]
        g = torch.ones_like(out) if error is None else error.to(kind)
        found.append([out.detach(), *torch.autograd.grad(out, wanted, g)])
    return found


def same(ours, theirs):
    for one, other in zip(ours, theirs, strict=True):
        assert one.shape == other.shape
        assert one.dtype == torch.float32
        assert torch.allclose(one.double(), other, rtol=1e-4, atol=2e-5 * max(1.0, float(other.abs().max())))


@st.composite
def layers(draw):
    rows, columns = draw(st.integers(1, 5)), draw(st.integers(1, 5))
    inputs = draw(st.sampled_from([1, 3, 8, 16, 24, 32, 40]))
    k = draw(st.integers(2, 3))
    padding = (draw(st.integers(0, 2)), draw(st.integers(0, 2)))
    least = [k + size - 1 - 2 * pad for size, pad in zip((rows, columns), padding, strict=True)]
    height, width = (draw(st.integers(max(1, each), max(1, each) + 7)) for each in least)
    outputs, samples = draw(st.sampled_from([16, 32, 48])), draw(st.integers(1, 4))
    biased, relu = draw(st.booleans()), draw(st.booleans())
    return (samples, inputs, height, width), (outputs, inputs, rows, columns), padding, k, biased, relu


@settings(max_examples=60, deadline=None)
@given(layers(), st.integers(0, 2**32))
def test_joined_layers_are_plain_pytorch(layer, seed):
    shape, window, padding, k, biased, relu = layer
    if not suits(window[1], window[0], *window[2:], first=True):
        return
    draw = torch.Generator().manual_seed(seed)
    x, weight = torch.randn(shape, generator=draw), torch.randn(window, generator=draw)
    bias = torch.randn(window[0], generator=draw) if biased else None
    P, Q = ((shape[2 + n] + 2 * padding[n] - window[2 + n] + 1) // k for n in range(2))
    error = torch.randn(shape[0], window[0], P, Q, generator=draw)
    # Where two numbers of a window are equal to rounding, float64 may choose another: there is no error there.
    z = functional.conv2d(x.double(), weight.double(), None if bias is None else bias.double(), padding=padding)
    windows = functional.unfold(z.flatten(0, 1)[:, None, : P * k, : Q * k], k, stride=k)
    two = windows.topk(2, dim=1).values
    clear = (two[:, 0] - two[:, 1] > 1e-3) & (two[:, 0].abs() > 1e-3)
    error = error * clear.view(error.shape)
    same(*both(x, weight, bias, padding, k, relu, error))


def test_errors_may_be_a_part_of_a_larger_array():
    x, weight = torch.randn(2, 8, 8, 8), torch.randn(16, 8, 3, 3)
    error = torch.randn(2, 6, 6, 16)[:, 1:-1, 1:-1].permute(0, 3, 1, 2)
    assert not error.is_contiguous()
    same(*both(x, weight, None, (1, 1), 2, True, error))


def test_the_first_of_equal_numbers_is_chosen_as_by_pytorch():
    x, weight = torch.ones(1, 16, 4, 4), torch.ones(16, 16, 1, 1)
    same(*both(x, weight, None, (0, 0), 2, False, torch.randn(1, 16, 2, 2)))


@pytest.mark.parametrize("place", [(0, 0), (0, 1), (1, 0), (1, 1)])
@pytest.mark.parametrize("relu", [False, True])
def test_what_is_not_a_number_is_not_hidden(place, relu):
    x = torch.randn(1, 16, 4, 4)
    x[0, 0, place[0], place[1]] = math.nan
    h = convolved_pooled(x, torch.ones(16, 16, 1, 1), None, (0, 0), 2, relu)
    assert h[0, :, 0, 0].isnan().all()
    assert h[0, :, 1:, 1:].isfinite().all()


def test_there_are_kernels_for_whole_vectors_alone():
    pieces = {8: [96, 96, 48, 80, 40, None, None], 16: [96, 192, 48, 160, None, None, None]}
    assert [piece_of(n) for n in (96, 192, 48, 160, 40, 9, 27)] == pieces[LANES]
    assert suits(LANES, LANES, 3, 3, first=False)
    assert not suits(LANES, LANES + LANES // 2, 3, 3, first=True)
    assert suits(LANES // 2, LANES, 2, 2, first=False)  # a row of a patch is a whole vector
    assert not suits(LANES // 2, LANES, 2, 3, first=False)
    assert suits(3, 32, 3, 3, first=True)
    assert not suits(3, 32, 3, 3, first=False)
    assert not suits(32, 30, 3, 3, first=True)
    assert not suits(3, 32, 7, 7, first=True)


def joins(*layers_):
    executor = ModuleNetwork(lambda: nn.Sequential(*layers_)).executor(3)
    assert isinstance(executor, Layers)
    found = executor.joined
    return 0 if found is None else sum(node.function is convolved_pooled for node in found.nodes)


def test_what_is_joined():
    def layer(**options):
        return nn.Conv2d(3, 16, 3, **options)

    assert joins(layer(), nn.ReLU(), nn.MaxPool2d(2), nn.Flatten()) == 1
    assert joins(layer(), nn.MaxPool2d(2), nn.Flatten()) == 1
    assert joins(layer(), nn.MaxPool2d(2), nn.Tanh(), nn.Flatten()) == 1
    assert joins(layer(), nn.ReLU(), nn.MaxPool2d(2), nn.Conv2d(16, 16, 3), nn.MaxPool2d(3), nn.Flatten()) == 2
    for options in ({"stride": 2}, {"dilation": 2}):
        assert joins(layer(**options), nn.MaxPool2d(2), nn.Flatten()) == 0
    for pool in (nn.MaxPool2d(2, 1), nn.MaxPool2d(2, padding=1), nn.MaxPool2d(2, ceil_mode=True), nn.MaxPool2d((2, 1))):
        assert joins(layer(), pool, nn.Flatten()) == 0
    assert joins(layer(), nn.BatchNorm2d(16), nn.MaxPool2d(2), nn.Flatten()) == 0


def test_a_network_trains_alike_joined_and_not_joined():
    def make():
        return nn.Sequential(
            nn.Conv2d(3, 16, 5, padding=2), nn.ReLU(), nn.MaxPool2d(2),
            nn.Conv2d(16, 32, 3), nn.ReLU(), nn.MaxPool2d(2), nn.Flatten(), nn.Linear(32 * 9, 10),
        )  # fmt: skip

    network = ModuleNetwork(make)
    joined = network.executor(3)
    apart = copy.copy(joined)
    apart.joined, apart.chain = None, None
    x = network.initial(0)[None]
    batches = [
        (torch.randn(1, 6, 3, 16, 16), torch.randint(10, (1, 6)), torch.full((1, 6), 1 / 6), None) for _ in range(5)
    ]
    rows = [x.clone(), x.clone()]
    for executor, row in zip((joined, apart), rows, strict=True):
        executor.descend(row, batches, 0.05)
    assert torch.allclose(*rows, rtol=1e-4, atol=1e-6)
    assert (rows[0] != x).any()
    images = batches[0][0][0]
    assert torch.allclose(joined.outputs(rows[0][0], images), apart.outputs(rows[0][0], images), rtol=1e-4, atol=1e-5)
