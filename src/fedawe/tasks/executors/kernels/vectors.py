"""The vectors of the processor, and the sizes of layers for which there are kernels."""

import torch

WIDE = torch.backends.cpu.get_cpu_capability() == "AVX512"
LANES = 16 if WIDE else 8  # numbers in a vector: what one instruction computes
SUMS = 16 if WIDE else 8  # vectors that are summed in registers at once
WIDEST = 24 * LANES if WIDE else 96  # numbers that are summed in registers
FIRST = 96  # numbers of a patch of a first layer


def piece_of(n: int) -> int | None:
    """The longest piece, of whole vectors, in which n numbers can be summed; None if there is none."""
    return next((each for each in range(WIDEST, 0, -LANES) if n % each == 0), None)


def vectors(channels: int) -> int:
    """How many vectors of channels are computed together."""
    return 2 if channels % (2 * LANES) == 0 else 1


def suits(inputs: int, outputs: int, rows: int, columns: int, first: bool) -> bool:
    """Whether there are kernels for a convolution with pooling, with these channels and this window.

    `first`: it is a layer whose input needs no gradient.
    """
    if outputs % LANES:
        return False
    return piece_of(columns * inputs) is not None or (first and rows * columns * inputs <= FIRST)


def has_kernel(inputs: int, outputs: int, rows: int, columns: int, first: bool) -> bool:
    """Whether there are kernels for a convolution with these channels and this window, without pooling."""
    return outputs % LANES == 0 and (first or inputs % LANES == 0) and rows * columns <= 49
