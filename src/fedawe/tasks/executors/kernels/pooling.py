"""Kernels of a convolution followed by max-pooling and ReLU, written for the sizes of one layer.

Images are kept as [B, height, width, channels], so that a row of a patch is one stretch of memory. Pooling takes
one number of every window, and all other errors in the window are zero: each error that is not zero is multiplied with
the patch of the input that it belongs to, and no other product is computed.
"""

from collections.abc import Callable, Sequence
from functools import cache
from typing import Any, NamedTuple

from llvmlite import ir

from fedawe.tasks.executors.kernels.convolution import Shape, tiles, window_sums
from fedawe.tasks.executors.kernels.machine_code import BYTES, NUMBER, SHORT, WHOLE, Code, Whole
from fedawe.tasks.executors.kernels.vectors import LANES, SUMS, WIDEST, piece_of, vectors

STRIDES = ("by_image", "by_row", "by_column", "by_channel")  # of g


class Layer(NamedTuple):
    """The sizes that kernels are written for; they are compiled when first used in a process."""

    inputs: int
    outputs: int
    rows: int
    columns: int
    k: int
    relu: bool

    @property
    def is_first(self) -> bool:
        """Whether its patches are of few channels: such a layer has no gradient of its input."""
        return piece_of(self.columns * self.inputs) is None

    @property
    def patch(self) -> int:
        """The numbers of a patch, in whole vectors."""
        return -(-self.rows * self.columns * self.inputs // LANES) * LANES

    @cache  # noqa: B019 (layers are few, and live as long as the process)
    def forward(self, height: int, width: int) -> Callable[..., None]:
        """h [B, P, Q, C] = the largest of every window of the convolution of x [B, height, width, inputs], and
        which [B, P, Q, C] = its number: the first of several that are equal; NaN is the largest.

        The convolution of one row of windows at a time is written to z [k, width, C], which stays in the nearest cache.
        """
        arrays = dict.fromkeys(("x", "w", "bias", "z", "h"), "numbers") | {"which": "bytes"}
        code = Code(arrays, ("B",))
        shape = Shape(self.inputs, self.outputs, self.rows, self.columns, 1, 0, 0, height, width)
        (H, W), C, k = shape.size, self.outputs, self.k
        P, Q, V = H // k, W // k, vectors(C)
        with code.loop(code.wholes["B"]) as b, code.loop(P) as i:
            with code.loop(k) as n, code.loop(C, V * LANES) as c:
                for begin, size in tiles(Q * k, SUMS // V):
                    starts = [code.load("bias", c + LANES * v) for v in range(V)] * size
                    sums = window_sums(code, shape, b, i * k + n, begin, size, c, V, starts)
                    for q, each in enumerate(sums):
                        code.store(each, "z", (n * W + begin + q // V) * C + c + LANES * (q % V))
            with code.loop(Q) as j, code.loop(C, LANES) as c:
                self._pooled(code, W, j, c, ((b * P + i) * Q + j) * C + c)
        return code.compiled()

    def _pooled(self, code: Code, W: int, j: Whole, c: Whole, to: Whole) -> None:
        """Window j of the row in z, a vector of channels from c."""
        C, k, builder = self.outputs, self.k, code.builder
        at = j * (k * C) + c
        best, number = code.load("z", at), ir.Constant(BYTES, [0] * LANES)
        for n in range(1, k * k):
            one = code.load("z", at + (W * (n // k) + n % k) * C)
            better = builder.or_(builder.fcmp_ordered(">", one, best), builder.fcmp_unordered("uno", one, one))
            best = builder.select(better, one, best)
            number = builder.select(better, ir.Constant(BYTES, [n] * LANES), number)
        if self.relu:
            best = builder.select(builder.fcmp_ordered("<", best, code.zeros()), code.zeros(), best)
        code.store(best, "h", to)
        code.store(number, "which", to)

    @cache  # noqa: B019 (layers are few, and live as long as the process)
    def backward(self) -> Callable[..., None]:
        """Adds to gw [C, rows, columns inputs], gb [C] and, if it is wanted, gx [B, Hp, Wp, inputs].

        Images are computed in tiles of so many rows of windows that they stay in the nearest cache. The errors of a
        tile are collected by channel: the i-th of channel c is factors[c, i], and its patch begins at places[c, i].
        """
        arrays = dict.fromkeys(("g", "h", "x", "w", "gw", "gb", "gx", "factors"), "numbers")
        arrays |= {"which": "bytes", "places": "places", "counts": "wholes"}
        code = Code(arrays, ("B", "P", "Q", "Hp", "Wp", "tile", "wanted", *STRIDES))
        B, P, Q, Hp, Wp, tile, wanted = list(code.wholes.values())[:7]
        C, across = self.outputs, self.columns * self.inputs
        piece, row, most = piece_of(across) or 0, Wp * self.inputs, tile * Q + 1
        together = self.rows if self.rows * piece <= WIDEST else 1  # rows of a patch whose sums fit into registers
        parts = [(r, part) for r in range(together) for part in range(0, piece, LANES)]
        with code.loop(B) as b, code.loop(code.divided(P + tile - 1, tile)) as n:
            with code.loop(C) as c:
                code.put(ir.Constant(WHOLE, 0), "counts", c)
            with code.loop((P - n * tile).least(tile)) as down, code.loop(Q) as j:
                i = n * tile + down
                with code.loop(C) as c:
                    at, to = ((b * P + i) * Q + j) * C + c, c * most + code.number("counts", c)
                    place = self._place(code, at, i, j, row, self.inputs)
                    code.put(code.builder.trunc(place.value, SHORT), "places", to)
                    code.put(code.element("g", _strided(code, b, i, j, c)), "factors", to)
                    code.put((code.number("counts", c) + self._let_through(code, at)).value, "counts", c)
            with code.loop(C) as c:
                count = code.number("counts", c)
                self._bias(code, c, c * most, count)
                with code.loop(self.rows, together) as r, code.loop(across, piece) as q:
                    at, shift = (c * self.rows + r) * across + q, (b * Hp + r) * row + q
                    weights = [at + (r * across + part) for r, part in parts]
                    numbers = [shift + (row * r + part) for r, part in parts]
                    _gather(code, weights, numbers, c * most, count)
                    with code.where(code.builder.icmp_signed("!=", wanted.value, ir.Constant(WHOLE, 0))):
                        _scatter(code, weights, numbers, c * most, count)
        return code.compiled()

    @cache  # noqa: B019 (layers are few, and live as long as the process)
    def backward_first(self) -> Callable[..., None]:
        """The same for few channels, gw [C, patch]: the patches that a row of windows needs are first copied."""
        arrays = dict.fromkeys(("g", "h", "x", "gw", "gb", "patches"), "numbers") | {"which": "bytes"}
        code = Code(arrays, ("B", "P", "Q", "Hp", "Wp", *STRIDES))
        B, P, Q, Hp, Wp = list(code.wholes.values())[:5]
        C, k, across, patch = self.outputs, self.k, self.columns * self.inputs, self.patch
        row, W = Wp * self.inputs, Q * k
        with code.loop(B) as b, code.loop(P) as i:
            with code.loop(k) as n, code.loop(W) as j, code.loop(self.rows) as r:
                begin = (b * Hp + i * k + n + r) * row + j * self.inputs
                for q in range(0, across, LANES):  # too long by part of a vector, which the next row overwrites
                    code.store(code.load("x", begin + q), "patches", (n * W + j) * patch + r * across + q)
            with code.loop(C) as c:
                self._first_sums(code, b, i, P, Q, c, W * patch)
        return code.compiled()

    def _first_sums(self, code: Code, b: Whole, i: Whole, P: Whole, Q: Whole, c: Whole, row: Whole) -> None:
        """Adds to gw and gb the errors of channel c in row i of the windows, whose patches have been copied."""
        builder, parts, places = (
            code.builder,
            range(0, self.patch, LANES),
            [c * self.patch + q for q in range(0, self.patch, LANES)],
        )

        def body(j: Whole, sums: Sequence[Any]) -> Sequence[Any]:
            at = ((b * P + i) * Q + j) * self.outputs + c
            error = code.element("g", _strided(code, b, i, j, c))
            if self.relu:
                error = builder.select(self._positive(code, at), error, ir.Constant(NUMBER, 0.0))
            factor, begin = code.repeated(error), self._place(code, at, code.whole(0), j, row, self.patch)
            products = [
                code.multiply_add(factor, code.load("patches", begin + part), each)
                for part, each in zip(parts, sums, strict=False)
            ]
            return [*products, builder.fadd(sums[-1], factor)]

        *sums, errors = code.sums(Q, [*(code.load("gw", place) for place in places), code.zeros()], body)
        for place, each in zip(places, sums, strict=True):
            code.store(each, "gw", place)
        code.put(builder.fadd(code.element("gb", c), code.first(errors)), "gb", c)

    def _place(self, code: Code, at: Whole, i: Whole, j: Whole, row: Whole, column: int) -> Whole:
        """The position of the patch from which window (i, j) took its number."""
        which = code.number("which", at)
        down = code.divided(which, self.k)
        return (i * self.k + down) * row + (j * self.k + (which - down * self.k)) * column

    def _let_through(self, code: Code, at: Whole) -> Whole:
        """1 where ReLU lets the error through, else 0."""
        return Whole(code, code.builder.zext(self._positive(code, at), WHOLE)) if self.relu else code.whole(1)

    def _positive(self, code: Code, at: Whole) -> Any:
        """Whether h is positive or NaN: an error passes through both, as in torch."""
        return code.builder.fcmp_unordered(">", code.element("h", at), ir.Constant(NUMBER, 0.0))

    def _bias(self, code: Code, c: Whole, first: Whole, count: Whole) -> None:
        with code.loop(count) as n:
            code.put(code.builder.fadd(code.element("gb", c), code.element("factors", first + n)), "gb", c)


def _strided(code: Code, *place: Whole) -> Whole:
    """The position of a number in g, which may be a part of a larger array."""
    b, i, j, c = (each * code.wholes[stride] for each, stride in zip(place, STRIDES, strict=True))
    return b + i + j + c


def _gather(code: Code, weights: Sequence[Whole], numbers: Sequence[Whole], first: Whole, count: Whole) -> None:
    """gw[weight] += the sum over the errors of error x[place + number], a vector for every weight and its number."""

    def body(n: Whole, sums: Sequence[Any]) -> Sequence[Any]:
        place, error = code.number("places", first + n), code.repeated(code.element("factors", first + n))
        pairs = zip(numbers, sums, strict=True)
        return [code.multiply_add(error, code.load("x", place + number), each) for number, each in pairs]

    sums = code.sums(count, [code.load("gw", weight) for weight in weights], body)
    for weight, each in zip(weights, sums, strict=True):
        code.store(each, "gw", weight)


def _scatter(code: Code, weights: Sequence[Whole], numbers: Sequence[Whole], first: Whole, count: Whole) -> None:
    """gx[place + number] += error w[weight], for every error and a vector for every weight and its number."""
    loaded = [code.load("w", weight) for weight in weights]
    with code.loop(count) as n:
        place, error = code.number("places", first + n), code.repeated(code.element("factors", first + n))
        for number, weight in zip(numbers, loaded, strict=True):
            at = place + number
            code.store(code.multiply_add(error, weight, code.load("gx", at)), "gx", at)
