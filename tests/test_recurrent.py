"""LSTMs by kernels of our own: against plain PyTorch in double precision."""

import copy
import math

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from short_vectors import SHORT, only_with_long_vectors, passes_with_short_vectors
from torch import nn
from torch.nn import functional

from fedawe.tasks import ModuleNetwork
from fedawe.tasks.executors.kernels.machine_code import Code
from fedawe.tasks.executors.kernels.vectors import LANES
from fedawe.tasks.executors.layers import Layers
from fedawe.tasks.executors.recurrent import embedded_lstm, kernel_lstm

HIDDEN = [16, 32, 48, 128]


class Reader(nn.Module):
    """Reads codes or numbers, and gives all positions or one."""

    def __init__(self, codes=None, width=3, hidden=32, layers=1, biased=True, index=None, padding=None, both=False):
        super().__init__()
        self.embedding = nn.Identity() if codes is None else nn.Embedding(codes, width, padding)
        self.lstm = nn.LSTM(width, hidden, layers, biased, batch_first=True, bidirectional=both)
        self.index = index

    def forward(self, x):
        h = self.lstm(self.embedding(x))[0]
        return h if self.index is None else h[:, self.index]

    def by_kernels(self, x):
        own = self.lstm
        weights = [getattr(own, name) for group in own._all_weights for name in group]
        options = {"hidden": own.hidden_size, "layers": own.num_layers, "both": False, "biased": own.bias}
        if isinstance(self.embedding, nn.Identity):
            return kernel_lstm(x, *weights, **options, index=self.index)
        codes, padding = self.embedding.weight, self.embedding.padding_idx
        return embedded_lstm(x, codes, *weights, padding=padding, **options, index=self.index)


def same(ours, theirs, rtol=2e-5):
    assert ours.shape == theirs.shape
    assert ours.dtype == torch.float32
    largest = float(theirs.abs().max()) if theirs.numel() else 0.0
    torch.testing.assert_close(ours.double(), theirs, rtol=rtol, atol=rtol * largest + 1e-7, equal_nan=True)


def check(module, x, error=None, wanted=True):
    """Outputs and all gradients; `wanted`: that of the input too, if it is of numbers."""
    exact = copy.deepcopy(module).double()
    inputs = [x, x.double()] if x.is_floating_point() else [x, x]
    inputs = [each.requires_grad_(wanted and x.is_floating_point()) for each in inputs]
    outputs = [module.by_kernels(inputs[0]), exact(inputs[1])]
    same(outputs[0].detach(), outputs[1].detach())
    if error is None:
        error = torch.randn(outputs[0].shape, generator=torch.Generator().manual_seed(0))
    found = []
    for one, each, out in zip((module, exact), inputs, outputs, strict=True):
        asked = [*one.parameters(), *([each] if each.requires_grad else [])]
        found.append(torch.autograd.grad(out, asked, error.to(out.dtype)))
    for ours, theirs in zip(*found, strict=True):
        same(ours, theirs)


@st.composite
def readers(draw):
    torch.manual_seed(draw(st.integers(0, 2**32)))
    L, index = draw(st.integers(1, 9)), None
    if draw(st.booleans()):
        index = draw(st.integers(-L, L - 1))
    codes = draw(st.one_of(st.none(), st.integers(1, 30)))
    module = Reader(
        codes,
        draw(st.integers(1, 20)),
        draw(st.sampled_from([each for each in HIDDEN if each % LANES == 0])),
        draw(st.integers(1, 3)),
        draw(st.booleans()),
        index,
        draw(st.integers(0, codes - 1)) if codes and draw(st.booleans()) else None,
    )
    return module, draw(st.integers(1, 20)), L, draw(st.booleans())


@settings(max_examples=80, deadline=None)
@given(readers(), st.sampled_from([0.1, 1.0, 10.0]))
def test_layers_are_those_of_pytorch(reader, scale):
    module, B, L, wanted = reader
    if module.embedding is not None and isinstance(module.embedding, nn.Embedding):
        x = torch.randint(module.embedding.num_embeddings, (B, L))
    else:
        x = scale * torch.randn(B, L, module.lstm.input_size)
    check(module, x, wanted=wanted)


@pytest.mark.parametrize("index", [None, -1])
def test_a_long_sequence(index):
    torch.manual_seed(0)
    check(Reader(80, 8, 128, index=index), torch.randint(80, (16, 64)))


def test_saturated_gates():
    torch.manual_seed(0)
    check(Reader(), torch.randn(5, 4, 3).sign() * 100)


@pytest.mark.parametrize("size", [1e4, 1e30, math.inf])
def test_gates_far_beyond_saturation(size):
    torch.manual_seed(0)
    module = Reader(width=1)  # of a sum of such numbers rounding leaves nothing
    x = torch.randn(5, 4, 1).sign() * size
    out = module.by_kernels(x)
    same(out.detach(), copy.deepcopy(module).double()(x.double()).detach(), rtol=1e-3)
    if math.isfinite(size):
        assert all(each.isfinite().all() for each in torch.autograd.grad(out.sum(), list(module.parameters())))


def test_what_is_not_a_number_stays_so_and_reaches_only_its_own_sample():
    torch.manual_seed(0)
    module, x = Reader(), torch.randn(9, 5, 3)
    x[4, 2, 0] = math.nan
    out, exact = module.by_kernels(x).detach(), module(x).detach()
    assert torch.equal(out.isnan(), exact.isnan())
    assert out[4, 2:].isnan().all()
    assert not out[:4].isnan().any()
    for weight in module.parameters():
        assert torch.autograd.grad(module.by_kernels(x).sum(), weight)[0].isnan().any()


def test_errors_in_any_layout():
    torch.manual_seed(0)
    module, x = Reader(), torch.randn(6, 5, 3)
    wide = torch.randn(6, 5, 64)
    layouts = [wide[..., :32], wide[..., ::2], torch.randn(32, 5, 6).permute(2, 1, 0), torch.ones(()).expand(6, 5, 32)]
    for error in layouts:
        check(module, x, error)
    module.index = 2
    check(module, x, wide[:, 0, ::2])


def test_more_codes_than_samples_and_codes_that_do_not_exist():
    torch.manual_seed(0)
    module = Reader(1000, 5)
    check(module, torch.randint(1000, (3, 4)))
    for wrong in (-1, 30):
        with pytest.raises(IndexError):
            Reader(30, 5).by_kernels(torch.full((8, 5), wrong))


def test_codes_of_four_bytes():
    torch.manual_seed(0)
    module, codes = Reader(20, 5), torch.randint(20, (6, 7))
    assert torch.equal(module.by_kernels(codes.int()), module.by_kernels(codes))


@pytest.mark.parametrize("codes", [None, 20])
def test_a_sample_is_computed_the_same_whatever_is_beside_it(codes):
    torch.manual_seed(0)
    module = Reader(codes)
    x = torch.randn(300, 5, 3) if codes is None else torch.randint(codes, (300, 5))
    with torch.no_grad():
        whole = module.by_kernels(x)
        for part in (x[:1], x[:3], x[:17], x[:150]):
            assert torch.equal(module.by_kernels(part), whole[: len(part)])
    assert torch.equal(module.by_kernels(x).detach(), whole)


def test_inputs_that_do_not_fit_are_refused_by_pytorch():
    """A kernel would read beyond their end."""
    narrow, codes = Reader(width=3), Reader(20, 5)
    for wrong in (torch.randn(4, 5, 2), torch.randn(4, 5, 9), torch.randn(4, 5, 3).double()):
        with pytest.raises((RuntimeError, ValueError)):
            narrow.by_kernels(wrong)
    codes.embedding = nn.Embedding(20, 7)
    with pytest.raises(RuntimeError):
        codes.by_kernels(torch.randint(20, (8, 9)))


def test_no_samples():
    module = Reader()
    assert module.by_kernels(torch.zeros(0, 4, 3)).shape == module(torch.zeros(0, 4, 3)).shape


@pytest.mark.parametrize(
    ("module", "functions"),
    [
        (Reader(20), [embedded_lstm]),
        (Reader(20, index=1), [embedded_lstm]),
        (Reader(), [kernel_lstm]),
        (Reader(index=-1), [kernel_lstm]),
        (Reader(20, hidden=20), None),
        (Reader(20, both=True), None),
    ],
)
def test_where_the_kernels_are_used(module, functions):
    layers = ModuleNetwork(lambda: module).executor(1 if isinstance(module.embedding, nn.Embedding) else 2)
    assert isinstance(layers, Layers)
    used = None if layers.joined is None else [node.function for node in layers.joined.nodes]
    assert used == functions


def test_a_network_is_trained_as_in_double_precision():
    torch.manual_seed(0)
    module = nn.Sequential(Reader(20, 5, 32, 2, index=-1), nn.Linear(32, 20))
    network = ModuleNetwork(lambda: copy.deepcopy(module))
    executor, x = network.executor(1), network.layout.vector(module.state_dict())
    inputs, targets, weights = torch.randint(20, (9, 6)), torch.randint(20, (9,)), torch.full((9,), 1 / 9)
    exact = copy.deepcopy(module).double()
    optimiser = torch.optim.SGD(exact.parameters(), lr=0.5)
    for _ in range(3):
        optimiser.zero_grad()
        functional.cross_entropy(exact(inputs), targets).backward()
        optimiser.step()
    mine = x.clone()[None]
    executor.descend(mine, [(inputs[None], targets[None], weights[None], None)] * 3, 0.5)
    theirs = network.layout.vector({name: one.float() for name, one in exact.state_dict().items()})
    torch.testing.assert_close(mine[0], theirs, rtol=1e-4, atol=1e-6)
    assert not torch.equal(mine[0], x)


@pytest.mark.parametrize("name", ["sigmoid", "tanh"])
def test_nonlinearities_are_accurate_to_rounding(name):
    code = Code({"x": "numbers", "y": "numbers"}, ("n",))
    with code.loop(code.wholes["n"], LANES) as n:
        code.store(getattr(code, name)(code.load("x", n)), "y", n)
    run = code.compiled()
    draw = np.random.default_rng(0)
    spread = draw.choice([-1, 1], 2**16) * 10 ** draw.uniform(-6, 1.3, 2**16)
    x = torch.from_numpy(spread).float()
    y = torch.empty_like(x)
    run(x.data_ptr(), y.data_ptr(), len(x))
    exact = getattr(torch, name)(x.double())
    assert float(((y - exact) / exact).abs().max()) < 5e-7
    ends = torch.tensor([math.inf, -math.inf, math.nan, 0.0] * (LANES // 4))
    out = torch.empty_like(ends)
    run(ends.data_ptr(), out.data_ptr(), LANES)
    torch.testing.assert_close(out, getattr(torch, name)(ends), equal_nan=True)


@only_with_long_vectors
def test_kernels_for_shorter_vectors():
    passes_with_short_vectors(__file__)


def test_the_vectors_are_those_asked_for():
    assert (LANES == 8) == (SHORT or torch.backends.cpu.get_cpu_capability() != "AVX512")
