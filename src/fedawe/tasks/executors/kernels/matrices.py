"""Kernels of products of matrices, whose sums stay in registers for a tile of rows and vectors at a time."""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import cache
from typing import Any, NamedTuple

from fedawe.tasks.executors.kernels.machine_code import Code, Whole
from fedawe.tasks.executors.kernels.vectors import LANES, SUMS

SIDE = 4 if SUMS >= 16 else 2  # rows and columns of a tile of scalar products


class Matrix(NamedTuple):
    """Numbers of an array: where they begin, and how far apart they are along both of their dimensions."""

    array: str
    begin: Whole
    by_row: int
    by_column: int = 1

    def at(self, row: Whole | int, column: Whole | int) -> Whole:
        return self.begin + row * self.by_row + column * self.by_column


def tile(M: int, most: int = 4) -> tuple[int, int]:
    """The numbers of rows and of vectors of a tile, for products [N, M]."""
    V = next(each for each in (4, 3, 2, 1) if each <= most and M % (each * LANES) == 0)
    return 1 << (SUMS // V).bit_length() - 1, V


def products(code: Code, x: Matrix, w: Matrix, count: Whole | int, starts: Sequence[Any], V: int) -> list[Any]:
    """starts[r, v] + the sum over k of x[r, k] w[k, v], for vectors v of w; a list by r first."""

    def body(k: Whole, sums: Sequence[Any]) -> Sequence[Any]:
        vectors = [code.load(w.array, w.at(k, v * LANES)) for v in range(V)]
        out = []
        for r in range(len(sums) // V):
            factor = code.repeated(code.element(x.array, x.at(r, k)))
            out += [code.multiply_add(factor, vectors[v], sums[r * V + v]) for v in range(V)]
        return out

    return code.sums(code.whole(count), starts, body)


def multiply(
    code: Code, rows: int, N: Whole, M: int, count: Whole | int, x: Matrix, w: Matrix, to: Matrix, most: int = 4
) -> None:
    """to [N, M] = the sum over k of x[n, k] w[k, m], in tiles of `rows` rows (at most N) and at most `most` vectors.

    The last tile ends with the last row, and computes rows again where tiles overlap.
    """
    _, V = tile(M, most)
    with code.loop(M, V * LANES) as j, code.loop(code.divided(N + rows - 1, rows)) as n:
        first = (n * rows).least(N - rows)
        left, right = x._replace(begin=x.at(first, 0)), w._replace(begin=w.at(0, j))
        sums = products(code, left, right, count, [code.constant(0.0)] * (rows * V), V)
        for m, each in enumerate(sums):
            code.store(each, to.array, to.at(first + m // V, j + m % V * LANES))


def multiply_and_add(code: Code, N: int, M: int, count: Whole, x: Matrix, w: Matrix, to: Matrix) -> None:
    """to [N, M] += the sum over k of x[n, k] w[k, m]; N is a multiple of the rows of a tile."""
    rows, V = tile(M)
    with code.loop(N, rows) as n, code.loop(M, V * LANES) as j:
        places = [to.at(n + r, j + v * LANES) for r in range(rows) for v in range(V)]
        starts = [code.load(to.array, at) for at in places]
        left, right = x._replace(begin=x.at(n, 0)), w._replace(begin=w.at(0, j))
        for at, each in zip(places, products(code, left, right, count, starts, V), strict=True):
            code.store(each, to.array, at)


@cache
def product(rows: int, M: int, by_row: int, by_column: int, apart: int) -> Callable[..., None]:
    """out [N, M] = x w, for x [N, K] with these strides, and w [K, M] whose rows are `apart` numbers apart."""
    code = Code(dict.fromkeys(("x", "w", "out"), "numbers"), ("N", "K"))
    (N, K), zero = code.wholes.values(), code.whole(0)
    x, w, out = Matrix("x", zero, by_row, by_column), Matrix("w", zero, apart), Matrix("out", zero, M)
    multiply(code, rows, N, M, K, x, w, out)
    return code.compiled()


@cache
def with_rows(K: int) -> Callable[..., None]:
    """y [M, N] = x [M, K] w [N, K]^T + bias [N]."""
    code = Code(dict.fromkeys(("x", "w", "bias", "y"), "numbers"), ("M", "N"))
    M, N = code.wholes.values()
    for n, columns in tiled(code, N, SIDE):
        with n as n:
            for m, rows in tiled(code, M, SIDE):
                with m as m:
                    _scalar_products(code, K, N, m, rows, n, columns)
    return code.compiled()


def _scalar_products(code: Code, K: int, N: Whole, m: Whole, rows: int, n: Whole, columns: int) -> None:
    def body(k: Whole, sums: Sequence[Any]) -> Sequence[Any]:
        x = [code.load("x", (m + i) * K + k * LANES) for i in range(rows)]
        w = [code.load("w", (n + j) * K + k * LANES) for j in range(columns)]
        return [code.multiply_add(x[i], w[j], sums[i * columns + j]) for i in range(rows) for j in range(columns)]

    sums = code.sums(code.whole(K // LANES), [code.zeros()] * (rows * columns), body)
    for i in range(rows):
        for j in range(columns):
            total = code.builder.fadd(code.total(sums[i * columns + j]), code.element("bias", n + j))
            code.put(total, "y", (m + i) * N + n + j)


def tiled(code: Code, count: Whole, size: int) -> Iterator[tuple[Any, int]]:
    """Two loops, each with the size of its steps: one in whole tiles, and one in single steps for the rest."""
    whole = code.divided(count, size) * size

    @contextmanager
    def rest() -> Iterator[Whole]:
        with code.loop(count - whole) as n:
            yield whole + n

    yield code.loop(whole, size), size
    yield rest(), 1
