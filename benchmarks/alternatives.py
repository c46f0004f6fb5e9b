"""Other ways to compute the networks of the benchmark, beside the one that is used: milliseconds on one thread.

usage: python benchmarks/alternatives.py

Processor time, the best of several tries in turns; one training step of one client, or one layer forward and backward.
"""

import time
from collections.abc import Callable
from functools import partial
from typing import Any

import torch
from hand_written import CHARACTERS, LENGTH, CharacterLSTM, cnn, resnet8_batch, resnet8_group
from torch import Tensor, nn
from torch.nn import functional

from fedawe.tasks import ModuleNetwork
from fedawe.tasks.executors import Batch
from fedawe.tasks.executors.convolved import convolved
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


def batches(size: int, samples: int) -> list[Batch]:
    draw = torch.Generator().manual_seed(0)
    return [
        (
            torch.randn(1, samples, 3, size, size, generator=draw),
            torch.randint(10, (1, samples), generator=draw),
            torch.full((1, samples), 1 / samples),
            None,
        )
        for _ in range(STEPS)
    ]


APART: dict[str, Any] = {
    "joined": None,
    "chain": None,
    "blocks": False,
    "channels_last": False,
}  # torch's layout, layer by layer
BLOCKED, LAST = {**APART, "blocks": True}, {**APART, "channels_last": True}


def steps(make: Callable[[], nn.Module], size: int, samples: int, **layout: Any) -> Callable[[], None]:
    """Training steps of one client in this layout."""
    network = ModuleNetwork(make)
    executor, x, of = network.executor(3), network.initial(0)[None], batches(size, samples)
    assert isinstance(executor, Layers)
    for name, value in layout.items():
        setattr(executor, name, value)
    return lambda: executor.descend(x.clone(), of, 0.05)


def texts(**layout: Any) -> Callable[[], None]:
    """Training steps of the character LSTM."""
    network, draw = ModuleNetwork(CharacterLSTM), torch.Generator().manual_seed(0)
    executor, x = network.executor(1), network.initial(0)[None]
    codes = torch.randint(CHARACTERS, (STEPS, 1, 16, LENGTH + 1), generator=draw)
    of: list[Batch] = [
        (each[..., :-1].contiguous(), each[..., -1], torch.full((1, 16), 1 / 16), None) for each in codes
    ]
    for name, value in layout.items():
        setattr(executor, name, value)
    return lambda: executor.descend(x.clone(), of, 0.05)


def step_times(ways: dict[str, tuple[Callable[[], object], float]]) -> None:
    """Prints the time of one step, given how many such steps each way makes."""
    for name, ms in best({name: work for name, (work, _) in ways.items()}).items():
        print(f"| {name} | {ms / ways[name][1]:.2f} |", flush=True)


def by_kernels(x: Tensor, weight: Tensor, bias: None, stride: int, padding: int) -> Tensor:
    return convolved(x, weight, bias, stride, (padding, padding))


def convolutions(convolution: Callable[..., Tensor], channels_last: bool) -> Callable[[], object]:
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
            found.append(torch.autograd.grad(convolution(x, weight, None, stride, padding), wanted, error))
        return found

    return run


def main() -> None:
    torch.set_num_threads(1)
    keep_freed_memory()
    print("| what | ms |\n|---|---|")
    networks: dict[str, tuple[Callable[[], nn.Module], int, int]] = {
        "SVHN network at 16 x 16, batch 32": (partial(cnn, 16), 16, 32),
        "SVHN network, batch 128": (cnn, 32, 128),
        "ResNet-8, GroupNorm": (resnet8_group, 32, 32),
        "ResNet-8, BatchNorm": (resnet8_batch, 32, 32),
    }
    for name, (make, size, samples) in networks.items():
        step_times(
            {
                f"{name}: by kernels, without autograd (used)": (steps(make, size, samples), STEPS),
                "the same by kernels under autograd": (steps(make, size, samples, chain=None), STEPS),
                "the same layer by layer, blocked layout": (steps(make, size, samples, **BLOCKED), STEPS),
                "the same layer by layer, channels_last": (steps(make, size, samples, **LAST), STEPS),
                "the same layer by layer, torch's layout": (steps(make, size, samples, **APART), STEPS),
            }
        )
    step_times(
        {
            "the convolutions of ResNet-8 alone, oneDNN, channels_last": (convolutions(functional.conv2d, True), 1),
            "the same in torch's layout, as the hand-written loop has them": (
                convolutions(functional.conv2d, False),
                1,
            ),
            "the same by kernels": (convolutions(by_kernels, True), 1),
        }
    )
    step_times(
        {
            "character LSTM: by kernels (used)": (texts(), STEPS),
            "the same by oneDNN": (texts(joined=None, chain=None), STEPS),
        }
    )


if __name__ == "__main__":
    main()
