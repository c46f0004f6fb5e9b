"""Kernels of convolutions, written for the sizes of one layer: outputs, gradient of the input, gradient of the weights.

Images are kept as [B, height, width, channels] and weights as [rows, columns, inputs, outputs], so that a vector holds
neighbouring channels. The sums of a tile of pixels stay in registers. No padding is written to memory: what would be
multiplied by it is left out, by columns when the code is written and by rows when it runs.
"""

from collections.abc import Callable, Sequence
from functools import cache
from typing import Any, NamedTuple

from fedawe.tasks.executors.machine_code import Code, Whole
from fedawe.tasks.executors.vectors import LANES, SUMS

Tap = tuple[int, int, int]  # (pixel of the tile, column of what is read, column of the window)


class Shape(NamedTuple):
    """A convolution: its channels, window, stride and padding, and the height and width of its input."""

    inputs: int
    outputs: int
    rows: int
    columns: int
    stride: int
    down: int
    right: int
    height: int
    width: int

    @property
    def size(self) -> tuple[int, int]:
        """Height and width of what it gives."""
        return (
            (self.height + 2 * self.down - self.rows) // self.stride + 1,
            (self.width + 2 * self.right - self.columns) // self.stride + 1,
        )


def tiles(width: int, most: int) -> list[tuple[int, int]]:
    """Begin and size of nearly equal parts of a row, each of at most so many pixels."""
    parts = -(-width // most)
    ends = [width * n // parts for n in range(parts + 1)]
    return [(begin, end - begin) for begin, end in zip(ends, ends[1:], strict=False)]


def vectors(channels: int) -> int:
    """How many vectors of channels a tile has."""
    return 2 if channels % (2 * LANES) == 0 else 1


@cache
def forward(shape: Shape) -> Callable[..., None]:
    """y [B, P, Q, outputs] from x, w and bias."""
    code = Code(dict.fromkeys(("x", "w", "bias", "y"), "numbers"), ("B",))
    (P, Q), C, V = shape.size, shape.outputs, vectors(shape.outputs)
    with code.loop(code.wholes["B"]) as b, code.loop(P) as i, code.loop(C, V * LANES) as c:
        for begin, size in tiles(Q, SUMS // V):
            starts = [code.load("bias", c + LANES * v) for v in range(V)] * size
            sums = window_sums(code, shape, b, i, begin, size, c, V, starts)
            for n, each in enumerate(sums):
                code.store(each, "y", ((b * P + i) * Q + begin + n // V) * C + c + LANES * (n % V))
    return code.compiled()


def window_sums(
    code: Code, shape: Shape, b: Whole, i: Whole, begin: int, size: int, c: Whole, V: int, starts: Sequence[Any]
) -> list[Any]:
    """The sums of a tile: `size` pixels of row i of what the convolution gives, V vectors of channels from c each."""
    C, inputs = shape.outputs, shape.inputs
    top = i * shape.stride - shape.down  # the row of the input at which the window begins
    first = top.negative_part()
    rows = (code.whole(shape.height) - top).least(shape.rows) - first
    taps = [
        (n, (begin + n) * shape.stride + s - shape.right, s)
        for n in range(size)
        for s in range(shape.columns)
        if 0 <= (begin + n) * shape.stride + s - shape.right < shape.width
    ]

    def row(n: Whole, sums: Sequence[Any]) -> Sequence[Any]:
        r = first + n
        x, w = (b * shape.height + top + r) * (shape.width * inputs), r * (shape.columns * inputs * C) + c
        return channels(code, taps, x, inputs, w, inputs * C, C, V, sums)

    return code.sums(rows, starts, row)


def channels(
    code: Code, taps: Sequence[Tap], x: Whole, pixel: int, w: Whole, column: int, C: int, V: int, sums: Sequence[Any]
) -> list[Any]:
    """sums + the products of one row of a window, over all channels of what is read.

    x is where that row begins, and `pixel` its numbers of a pixel; w is where the weights of the row begin, `column`
    the numbers from one column of the window to the next, and C those from one channel to the next.
    """
    reads = sorted({read for _, read, _ in taps})
    columns = sorted({s for _, _, s in taps})

    def channel(k: Whole, sums: Sequence[Any]) -> Sequence[Any]:
        out = list(sums)
        weights = {
            (s, v): code.load("w", w + k * C + (s * column + LANES * v)) for s in columns for v in range(V)
        }
        for read in reads:
            value = code.repeated(code.element("x", x + k + read * pixel))
            for n, at, s in taps:
                if at == read:
                    for v in range(V):
                        out[n * V + v] = code.multiply_add(value, weights[s, v], out[n * V + v])
        return out

    return code.sums(code.whole(pixel), sums, channel)
