"""Kernels of convolutions, written for the sizes of one layer: outputs, gradient of the input, gradient of the weights.

Images are kept as [B, height, width, channels] and weights as [rows, columns, inputs, outputs], so that a vector holds
neighbouring channels. The sums of a tile of pixels stay in registers. No padding is written to memory: what would be
multiplied by it is left out, by columns when the code is written and by rows when it runs.
"""

from collections.abc import Callable, Sequence
from functools import cache
from itertools import pairwise
from typing import Any, NamedTuple

from fedawe.tasks.executors.kernels.machine_code import Code, Whole
from fedawe.tasks.executors.kernels.vectors import LANES, SUMS, vectors

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
        """Height and width of the output."""
        return (
            (self.height + 2 * self.down - self.rows) // self.stride + 1,
            (self.width + 2 * self.right - self.columns) // self.stride + 1,
        )


def tiles(width: int, most: int) -> list[tuple[int, int]]:
    """Begin and size of nearly equal parts of a row, each of at most `most` pixels."""
    parts = -(-width // most)
    ends = [width * n // parts for n in range(parts + 1)]
    return [(begin, end - begin) for begin, end in pairwise(ends)]


@cache
def forward(shape: Shape) -> Callable[..., None]:
    """y [B, P, Q, outputs] from x, w [rows, columns, inputs, outputs] and bias."""
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
    first = (0 - top).most(0)
    rows = (shape.height - top).least(shape.rows) - first
    taps = [
        (n, read, s)
        for n in range(size)
        for s in range(shape.columns)
        if 0 <= (read := (begin + n) * shape.stride + s - shape.right) < shape.width
    ]

    def row(n: Whole, sums: Sequence[Any]) -> Sequence[Any]:
        r = first + n
        x, w = (b * shape.height + top + r) * (shape.width * inputs), r * (shape.columns * inputs * C) + c
        return channels(code, taps, x, inputs, w, C, V, sums)

    return code.sums(rows, starts, row)


@cache
def backward_input(shape: Shape) -> Callable[..., None]:
    """The gradient y [B, height, width, inputs] of the input from errors x [B, P, Q, outputs].

    The weights w are given as [rows, columns, outputs, inputs]. A pixel of the input is reached by every `stride`-th
    row and column of the window, beginning with one that depends on where it is.
    """
    code = Code(dict.fromkeys(("x", "w", "y"), "numbers"), ("B",))
    C, V, stride, zero = shape.inputs, vectors(shape.inputs), shape.stride, code.zeros()
    with code.loop(code.wholes["B"]) as b:
        for phase in range(stride):
            with code.loop(len(range(phase, shape.height, stride))) as n, code.loop(C, V * LANES) as c:
                for begin, size in tiles(shape.width, SUMS // V):
                    sums = reached_sums(code, shape, b, phase, n, begin, size, c, V, [zero] * (size * V))
                    for q, each in enumerate(sums):
                        pixel = (b * shape.height + n * stride + phase) * shape.width + begin + q // V
                        code.store(each, "y", pixel * C + c + LANES * (q % V))
    return code.compiled()


def reached_sums(
    code: Code,
    shape: Shape,
    b: Whole,
    phase: int,
    n: Whole,
    begin: int,
    size: int,
    c: Whole,
    V: int,
    starts: Sequence[Any],
) -> list[Any]:
    """The sums of a tile: `size` pixels of row n stride + phase of the input, V vectors of its channels from c each."""
    (P, Q), C, outputs, stride = shape.size, shape.inputs, shape.outputs, shape.stride
    start = (phase + shape.down) % stride  # the first row of the window that reaches this row
    last = n + (phase + shape.down - start) // stride  # the row of errors that it meets; the next meets the one before
    first = (last - (P - 1)).most(0)
    rows = (last + 1).least(len(range(start, shape.rows, stride))) - first
    taps = [
        (q, (begin + q + shape.right - s) // stride, s)
        for q in range(size)
        for s in range(shape.columns)
        if (begin + q + shape.right - s) % stride == 0 and 0 <= begin + q + shape.right - s < Q * stride
    ]

    def row(k: Whole, sums: Sequence[Any]) -> Sequence[Any]:
        met = first + k
        x = (b * P + last - met) * (Q * outputs)
        w = (met * stride + start) * (shape.columns * outputs * C) + c
        return channels(code, taps, x, outputs, w, C, V, sums)

    return code.sums(rows, starts, row)


def channels(
    code: Code, taps: Sequence[Tap], x: Whole, pixel: int, w: Whole, C: int, V: int, sums: Sequence[Any]
) -> list[Any]:
    """sums + the products of one row of a window, over the `pixel` channels of what is read.

    x is where the row that is read begins, and w where the weights of the row of the window begin, [columns, pixel, C].
    """
    reads = sorted({read for _, read, _ in taps})
    columns = sorted({s for _, _, s in taps})

    def channel(k: Whole, sums: Sequence[Any]) -> Sequence[Any]:
        out = list(sums)
        weights = {(s, v): code.load("w", w + k * C + (s * pixel * C + LANES * v)) for s in columns for v in range(V)}
        for read in reads:
            value = code.repeated(code.element("x", x + k + read * pixel))
            for n, at, s in taps:
                if at == read:
                    for v in range(V):
                        out[n * V + v] = code.multiply_add(value, weights[s, v], out[n * V + v])
        return out

    return code.sums(code.whole(pixel), sums, channel)


@cache
def backward_weights(shape: Shape) -> Callable[..., None]:
    """Adds the gradient of the weights to w [rows, columns, inputs, outputs], from x and errors g."""
    code = Code(dict.fromkeys(("x", "g", "w"), "numbers"), ("B",))
    (P, Q), C, inputs, stride, V = shape.size, shape.outputs, shape.inputs, shape.stride, vectors(shape.outputs)
    if shape.columns * inputs <= SUMS // V:
        groups, chunk = [tuple(range(shape.columns))], inputs
    else:
        groups, chunk = [(s,) for s in range(shape.columns)], _chunk(inputs, SUMS // V)
    with code.loop(code.wholes["B"]) as b, code.loop(shape.rows) as r:
        # The rows of errors for which row r of the window is inside the image.
        begin = code.divided((shape.down - r).most(0) + (stride - 1), stride)
        end = code.divided((shape.height - 1 + shape.down - r + stride).most(0), stride).least(P)
        with code.loop(C, V * LANES) as c, code.loop(inputs, chunk) as k:
            for group in groups:
                at = {
                    (s, q, v): (r * shape.columns + s) * (inputs * C) + (k + q) * C + c + LANES * v
                    for s in group
                    for q in range(chunk)
                    for v in range(V)
                }

                def row(n: Whole, sums: Sequence[Any], group: tuple[int, ...] = group) -> Sequence[Any]:
                    i = begin + n
                    x = (b * shape.height + i * stride + r - shape.down) * (shape.width * inputs) + k
                    return _pixels(code, shape, group, chunk, x, ((b * P + i) * Q) * C + c, V, sums)

                sums = code.sums(end - begin, [code.zeros()] * len(at), row)
                for each, value in zip(at.values(), sums, strict=True):
                    code.store(code.builder.fadd(code.load("w", each), value), "w", each)
    return code.compiled()


def _chunk(n: int, most: int) -> int:
    """The largest divisor of n that is at most so large."""
    return next(each for each in range(most, 0, -1) if n % each == 0)


def _pixels(
    code: Code, shape: Shape, group: tuple[int, ...], chunk: int, x: Whole, g: Whole, V: int, sums: Sequence[Any]
) -> Sequence[Any]:
    """sums + the products of a row of errors, which begins at g, with those of the input, which begins at x."""
    Q, C, inputs, stride = shape.size[1], shape.outputs, shape.inputs, shape.stride

    def inside(j: int, s: int) -> bool:
        return 0 <= j * stride + s - shape.right < shape.width

    def pixel(j: Whole | int, s_inside: Sequence[int], sums: Sequence[Any]) -> Sequence[Any]:
        out = list(sums)
        errors = [code.load("g", g + j * C + LANES * v) for v in range(V)]
        for n, s in enumerate(group):
            if s not in s_inside:
                continue
            for q in range(chunk):
                value = code.repeated(code.element("x", x + j * (stride * inputs) + ((s - shape.right) * inputs + q)))
                for v in range(V):
                    place = (n * chunk + q) * V + v
                    out[place] = code.multiply_add(value, errors[v], out[place])
        return out

    whole = [j for j in range(Q) if all(inside(j, s) for s in group)]
    edges = [j for j in range(Q) if j not in whole and any(inside(j, s) for s in group)]
    for j in edges:
        sums = pixel(j, [s for s in group if inside(j, s)], sums)
    if not whole:
        return sums
    first = whole[0]
    return code.sums(code.whole(len(whole)), sums, lambda n, each: pixel(n + first, group, each))
