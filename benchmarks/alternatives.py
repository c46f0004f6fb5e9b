"""Other ways to compute the networks of the benchmark that were tried and are not used: milliseconds on one thread.

usage: python benchmarks/alternatives.py

Processor time, the best of several tries in turns; one training step of one client, or one layer forward and backward.
"""

import time
from collections.abc import Callable, Iterable
from functools import partial
from typing import Any

import torch
from hand_written import cnn, resnet8_group
from torch import Tensor, nn
from torch.nn import functional

from fedawe.tasks import ModuleNetwork
from fedawe.tasks.executors import Batch
from fedawe.tasks.executors.layers import Layers
from fedawe.training.engines import keep_freed_memory

STEPS, TRIES = 4, 7


def best(ways: dict[str, Callable[[], object]]) -> dict[str, float]:
    """Milliseconds of each."""
    found: dict[str, list[float]] = {name: [] for name in ways}
    for turn in range(TRIES + 1):
        for name, work in ways.items():
            began = time.process_time()
            work()
            if turn:
                found[name].append(1e3 * (time.process_time() - began))
    return {name: min(times) for name, times in found.items()}


def batches(clients: int, size: int, samples: int) -> list[Batch]:
    draw = torch.Generator().manual_seed(0)
    return [
        (
            torch.randn(clients, samples, 3, size, size, generator=draw),
            torch.randint(10, (clients, samples), generator=draw),
            torch.full((clients, samples), 1 / samples),
            None,
        )
        for _ in range(STEPS)
    ]


APART: dict[str, Any] = {"joined": None, "blocks": False, "channels_last": False}  # torch's layout, layer by layer
BLOCKED, LAST = {**APART, "blocks": True}, {**APART, "channels_last": True}


def steps(
    make: Callable[[], nn.Module], size: int, samples: int, clients: int = 1, **layout: Any
) -> Callable[[], None]:
    """Training steps in this layout, with the clients stacked if they are several."""
    network = ModuleNetwork(make)
    executor, x, of = network.executor(3), network.initial(0).repeat(clients, 1), batches(clients, size, samples)
    assert isinstance(executor, Layers)
    for name, value in layout.items():
        setattr(executor, name, value)
    return lambda: executor.descend(x.clone(), of, 0.05)


def step_times(ways: dict[str, tuple[Callable[[], object], float]]) -> None:
    """Prints the time of one step, given how many such steps each way makes."""
    for name, ms in best({name: work for name, (work, _) in ways.items()}).items():
        print(f"| {name} | {ms / ways[name][1]:.2f} |", flush=True)


def product_of_patches() -> Callable[[], object]:
    """The second convolution of the 16 x 16 network as products of its patches."""
    h, weight, error = torch.randn(32, 32, 8, 8), torch.randn(32, 288), torch.randn(32, 32, 64)

    def work() -> object:
        patches = functional.unfold(h, 3, padding=1)  # [B, 288, 64]
        back = functional.fold(weight.T @ error, (8, 8), 3, padding=1)
        return weight @ patches, torch.einsum("bop,bip->oi", error, patches), back

    return work


def convolution() -> Callable[[], object]:
    """The same by oneDNN."""
    h, weight = torch.randn(32, 32, 8, 8).to_mkldnn().requires_grad_(), torch.randn(32, 32, 3, 3).requires_grad_()
    error = torch.randn(32, 32, 8, 8).to_mkldnn()
    return lambda: torch.autograd.grad(functional.conv2d(h, weight, padding=1), [h, weight], error)


def convolutions(channels_last: bool) -> Callable[[], object]:
    """All convolutions of ResNet-8 for a batch of 32, forward and backward, and nothing else."""
    layout = torch.channels_last if channels_last else torch.contiguous_format
    work = []
    sizes = [(3, 16, 32, 3, 1), (16, 16, 32, 3, 1), (16, 16, 32, 3, 1), (16, 32, 32, 3, 2), (16, 32, 32, 1, 2)]
    sizes += [(32, 32, 16, 3, 1), (32, 64, 16, 3, 2), (32, 64, 16, 1, 2), (64, 64, 8, 3, 1)]
    for inputs, outputs, side, window, stride in sizes:
        x = torch.randn(32, inputs, side, side).contiguous(memory_format=layout).requires_grad_(inputs > 3)
        weight = torch.randn(outputs, inputs, window, window, requires_grad=True)
        error = torch.randn(32, outputs, side // stride, side // stride).contiguous(memory_format=layout)
        work.append((x, weight, error, stride, window // 2))

    def run() -> object:
        found = []
        for x, weight, error, stride, padding in work:
            wanted = [x, weight] if x.requires_grad else [weight]
            found.append(torch.autograd.grad(functional.conv2d(x, weight, None, stride, padding), wanted, error))
        return found

    return run


class Recurrent:
    """An LSTM of 128 over 64 positions for 10 clients in batched products, gradient by hand."""

    def __init__(
        self, clients: int = 10, samples: int = 16, length: int = 64, inputs: int = 8, hidden: int = 128
    ) -> None:
        self.x = torch.randn(length, clients, inputs, samples)
        self.W = torch.randn(clients, 4 * hidden, inputs) / 8
        self.U = torch.randn(clients, 4 * hidden, hidden) / 11
        self.b = torch.zeros(clients, 4 * hidden, 1)
        self.gates, self.error = (torch.empty(length, clients, 4 * hidden, samples) for _ in range(2))
        self.h, self.c = (torch.zeros(length + 1, clients, hidden, samples) for _ in range(2))

    def __call__(self) -> Iterable[Tensor]:
        length, k, n, B = self.gates.shape
        H = n // 4
        for t in range(length):
            z = torch.baddbmm(self.b, self.W, self.x[t], out=self.gates[t]).baddbmm_(self.U, self.h[t])
            z[:, : 3 * H].sigmoid_()
            z[:, 3 * H :].tanh_()
            i, f, o, g = z.chunk(4, 1)
            torch.mul(f, self.c[t], out=self.c[t + 1]).addcmul_(i, g)
            torch.mul(o, self.c[t + 1].tanh(), out=self.h[t + 1])
        dh, dc = torch.randn(k, H, B), torch.zeros(k, H, B)
        for t in reversed(range(length)):
            (i, f, o, g), (di, df, do, dg) = self.gates[t].chunk(4, 1), self.error[t].chunk(4, 1)
            s = self.c[t + 1].tanh()
            dc = dc + dh * o * (1 - s * s)
            torch.mul(dc * g, i * (1 - i), out=di)
            torch.mul(dc * self.c[t], f * (1 - f), out=df)
            torch.mul(dh * s, o * (1 - o), out=do)
            torch.mul(dc * i, 1 - g * g, out=dg)
            dc, dh = dc * f, torch.bmm(self.U.mT, self.error[t])
        error, h, x = (each.permute(1, 2, 0, 3).flatten(2) for each in (self.error, self.h[:-1], self.x))
        return torch.bmm(error, h.mT), torch.bmm(error, x.mT), error.sum(2)


def fused_lstm() -> Callable[[], object]:
    """The same for one client by oneDNN."""
    layer, x = nn.LSTM(8, 128, batch_first=True), torch.randn(16, 64, 8)
    error = torch.randn(16, 128)
    return lambda: torch.autograd.grad(layer(x)[0][:, -1], list(layer.parameters()), error)


def main() -> None:
    torch.set_num_threads(1)
    keep_freed_memory()
    print("| what | ms |\n|---|---|")
    small = partial(cnn, 16)
    step_times(
        {
            "16 x 16, batch 32: convolution, pooling and ReLU joined (used)": (steps(small, 16, 32), STEPS),
            "the same layer by layer, blocked layout": (steps(small, 16, 32, **BLOCKED), STEPS),
            "the same layer by layer, channels_last": (steps(small, 16, 32, **LAST), STEPS),
            "the same layer by layer, torch's layout": (steps(small, 16, 32, **APART), STEPS),
            "the same, 4 clients stacked by vmap": (steps(small, 16, 32, clients=4), 4 * STEPS),
        }
    )
    step_times(
        {
            "its second convolution: oneDNN": (convolution(), 1),
            "the same as products of patches": (product_of_patches(), 1),
        }
    )
    step_times(
        {
            "SVHN network, batch 128: convolution, pooling and ReLU joined (used)": (steps(cnn, 32, 128), STEPS),
            "the same in 4 parts of 32": (steps(cnn, 32, 32), STEPS / 4),
            "the same layer by layer, blocked layout": (steps(cnn, 32, 128, **BLOCKED), STEPS),
            "the same layer by layer, channels_last": (steps(cnn, 32, 128, **LAST), STEPS),
            "the same layer by layer, torch's layout": (steps(cnn, 32, 128, **APART), STEPS),
        }
    )
    step_times(
        {
            "ResNet-8, GroupNorm: channels_last (used)": (steps(resnet8_group, 32, 32), STEPS),
            "the same, convolutions in the blocked layout": (steps(resnet8_group, 32, 32, **BLOCKED), STEPS),
            "the same in torch's layout": (steps(resnet8_group, 32, 32, **APART), STEPS),
            "its convolutions alone, forward and backward, channels_last": (convolutions(channels_last=True), 1),
            "the same in torch's layout, as the hand-written loop has them": (convolutions(channels_last=False), 1),
        }
    )
    step_times(
        {
            "LSTM layer: oneDNN (used)": (fused_lstm(), 1),
            "the same, 10 clients stacked, gradient by hand": (Recurrent(), 10),
        }
    )


if __name__ == "__main__":
    main()
