"""Kernels of group and batch normalisation with what follows them: an addition, a ReLU.

Images are kept as [B, N pixels, C channels]. Statistics are of `images` images together, and of `groups` groups of
neighbouring channels: group normalisation takes every image for itself, and batch normalisation all images together
with every channel as a group of its own. `sets` is the number of such collections of images.
"""

from collections.abc import Callable, Sequence
from functools import cache
from typing import Any, NamedTuple

from llvmlite import ir

from fedawe.tasks.executors.kernels.machine_code import NUMBER, Code, Whole
from fedawe.tasks.executors.kernels.vectors import LANES

WHOLES = ("sets", "images", "count")  # count: the numbers that a statistic is of


class Norm(NamedTuple):
    """The sizes that kernels are written for, and what follows the normalisation."""

    channels: int
    groups: int
    pixels: int
    relu: bool
    added: bool

    @property
    def vectors(self) -> int:
        """Vectors of channels that are computed together."""
        return next(n for n in (4, 2, 1) if self.channels % (n * LANES) == 0)

    @property
    def unrolled(self) -> int:
        """Pixels that have sums of their own."""
        return next(n for n in (4, 2, 1) if self.pixels % n == 0 and n * self.vectors <= 8)


@cache
def forward(norm: Norm) -> Callable[..., None]:
    """y [B, N, C] from x, what is added to it, and weight and bias [C]; mean, var and rstd [sets, C] as they are."""
    arrays = ("x", "added", "weight", "bias", "eps", "y", "mean", "var", "rstd")
    code = Code(dict.fromkeys(arrays, "numbers"), WHOLES)
    sets, images, count = code.wholes.values()
    builder, eps, numbers = code.builder, code.element("eps", 0), code.real(count)
    with code.loop(sets) as n:
        base, at = n * images * (norm.pixels * norm.channels), n * norm.channels
        _reduced(code, norm, images, base, at, [("mean", lambda _: lambda i: code.load("x", i))])
        _shared(code, norm, at, "mean", lambda total: builder.fdiv(total, numbers))

        def squared(c: Whole) -> Callable[[Whole], Any]:
            mean = code.load("mean", at + c)

            def of(i: Whole) -> Any:
                away = builder.fsub(code.load("x", i), mean)
                return builder.fmul(away, away)

            return of

        _reduced(code, norm, images, base, at, [("var", squared)])
        _shared(code, norm, at, "var", lambda total: builder.fdiv(total, numbers))
        with code.loop(norm.channels) as c:
            deviation = code.root(builder.fadd(code.element("var", at + c), eps))
            code.put(builder.fdiv(ir.Constant(NUMBER, 1.0), deviation), "rstd", at + c)

        def normalised(c: Whole) -> Callable[[Whole], None]:
            mean, bias = code.load("mean", at + c), code.load("bias", c)
            scale = builder.fmul(code.load("rstd", at + c), code.load("weight", c))

            def of(i: Whole) -> None:
                y = code.multiply_add(builder.fsub(code.load("x", i), mean), scale, bias)
                if norm.added:
                    y = builder.fadd(y, code.load("added", i))
                if norm.relu:  # NaN stays NaN
                    y = builder.select(builder.fcmp_ordered("<", y, code.zeros()), code.zeros(), y)
                code.store(y, "y", i)

            return of

        _each(code, norm, images, base, normalised)
    return code.compiled()


@cache
def backward(norm: Norm) -> Callable[..., None]:
    """gx and the error gadded of what was added, [B, N, C], and gweight and gbias [C], from g, y, x and statistics.

    gweight and gbias must be zero before; a and d [C] are space for sums.
    """
    arrays = ("g", "y", "x", "weight", "mean", "rstd", "gx", "gadded", "gweight", "gbias", "a", "d")
    code = Code(dict.fromkeys(arrays, "numbers"), WHOLES)
    sets, images, count = code.wholes.values()
    builder, numbers = code.builder, code.real(count)

    def error(i: Whole) -> Any:
        g = code.load("g", i)
        if not norm.relu:
            return g
        # An error passes through NaN, as in torch.
        return builder.select(builder.fcmp_unordered(">", code.load("y", i), code.zeros()), g, code.zeros())

    with code.loop(sets) as n:
        base, at = n * images * (norm.pixels * norm.channels), n * norm.channels

        def away(c: Whole) -> Callable[[Whole], Any]:
            """(x - mean) / deviation."""
            mean, rstd = code.load("mean", at + c), code.load("rstd", at + c)
            return lambda i: builder.fmul(builder.fsub(code.load("x", i), mean), rstd)

        def product(c: Whole) -> Callable[[Whole], Any]:
            of = away(c)
            return lambda i: builder.fmul(error(i), of(i))

        _reduced(code, norm, images, base, code.whole(0), [("a", lambda _: error), ("d", product)])
        with code.loop(norm.channels, LANES) as c:
            for sums, total in (("a", "gbias"), ("d", "gweight")):
                value = code.load(sums, c)
                code.store(builder.fadd(code.load(total, c), value), total, c)
                code.store(builder.fmul(value, code.load("weight", c)), sums, c)
        for sums in ("a", "d"):
            _shared(code, norm, code.whole(0), sums, lambda total: builder.fdiv(total, numbers))

        def gradient(c: Whole) -> Callable[[Whole], None]:
            of, a, d = away(c), code.load("a", c), code.load("d", c)
            weight, rstd = code.load("weight", c), code.load("rstd", at + c)

            def write(i: Whole) -> None:
                g = error(i)
                if norm.added:
                    code.store(g, "gadded", i)
                inner = builder.fsub(builder.fsub(builder.fmul(g, weight), a), builder.fmul(of(i), d))
                code.store(builder.fmul(inner, rstd), "gx", i)

            return write

        _each(code, norm, images, base, gradient)
    return code.compiled()


def _reduced(
    code: Code,
    norm: Norm,
    images: Whole,
    base: Whole,
    at: Whole,
    what: Sequence[tuple[str, Callable[[Whole], Callable[[Whole], Any]]]],
) -> None:
    """For every channel the sum of each expression over all pixels, written to the array of its name from `at`.

    The sum of an image is complete before it is added to that of the others, so that rounding errors stay small.
    """
    V, U, C = norm.vectors, norm.unrolled, norm.channels
    with code.loop(C, V * LANES) as c:
        places = [c + LANES * v for v in range(V)]
        expressions = [(name, v, make(places[v])) for name, make in what for v in range(V)]

        def image(n: Whole, totals: Sequence[Any]) -> Sequence[Any]:
            first = base + n * (norm.pixels * C) + c

            def pixels(p: Whole, sums: Sequence[Any]) -> Sequence[Any]:
                return [
                    code.builder.fadd(sums[e * U + u], of(first + (p * U + u) * C + LANES * v))
                    for e, (_, v, of) in enumerate(expressions)
                    for u in range(U)
                ]

            sums = code.sums(code.whole(norm.pixels // U), [code.zeros()] * (len(expressions) * U), pixels)
            out = []
            for e, total in enumerate(totals):
                for u in range(U):
                    total = code.builder.fadd(total, sums[e * U + u])
                out.append(total)
            return out

        totals = code.sums(images, [code.zeros()] * len(expressions), image)
        for (name, v, _), total in zip(expressions, totals, strict=True):
            code.store(total, name, at + places[v])


def _each(code: Code, norm: Norm, images: Whole, base: Whole, make: Callable[[Whole], Callable[[Whole], None]]) -> None:
    """Applies a function to every vector of the images from base on."""
    V, C = norm.vectors, norm.channels
    with code.loop(C, V * LANES) as c:
        written = [make(c + LANES * v) for v in range(V)]
        with code.loop(images * norm.pixels) as p:
            for v, write in enumerate(written):
                write(base + p * C + c + LANES * v)


def _shared(code: Code, norm: Norm, at: Whole, name: str, final: Callable[[Any], Any]) -> None:
    """Replaces the numbers of an array by a function of their sum over each group of channels."""
    each = norm.channels // norm.groups
    with code.loop(norm.groups) as group:
        total: Any = ir.Constant(NUMBER, 0.0)
        for n in range(each):
            total = code.builder.fadd(total, code.element(name, at + group * each + n))
        value = final(total)
        for n in range(each):
            code.put(value, name, at + group * each + n)
