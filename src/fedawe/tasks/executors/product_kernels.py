"""Kernels of matrix products, as a linear layer needs them: outputs, gradient of the input, gradient of the weights.

Matrices are kept row by row. The sums of a tile of the result stay in registers.
"""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import cache
from typing import Any

from fedawe.tasks.executors.machine_code import Code, Whole
from fedawe.tasks.executors.vectors import LANES, SUMS, vectors

SIDE = 4 if SUMS >= 16 else 2  # rows and columns of a tile of scalar products


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


@cache
def plain(N: int) -> Callable[..., None]:
    """y [M, N] = x [M, K] w [K, N]."""
    code = Code(dict.fromkeys(("x", "w", "y"), "numbers"), ("M", "K"))
    (M, K), V = code.wholes.values(), vectors(N)
    with code.loop(N, V * LANES) as c:
        for m, rows in tiled(code, M, SUMS // V):
            with m as m:

                def body(k: Whole, sums: Sequence[Any], m: Whole = m, rows: int = rows) -> Sequence[Any]:
                    w = [code.load("w", k * N + c + LANES * v) for v in range(V)]
                    x = [code.repeated(code.element("x", (m + i) * K + k)) for i in range(rows)]
                    return [code.multiply_add(x[i], w[v], sums[i * V + v]) for i in range(rows) for v in range(V)]

                for n, each in enumerate(code.sums(K, [code.zeros()] * (rows * V), body)):
                    code.store(each, "y", (m + n // V) * N + c + LANES * (n % V))
    return code.compiled()


@cache
def of_columns(N: int) -> Callable[..., None]:
    """y [K, N] = x [M, K]^T w [M, N]."""
    code = Code(dict.fromkeys(("x", "w", "y"), "numbers"), ("M", "K"))
    (M, K), V = code.wholes.values(), vectors(N)
    with code.loop(N, V * LANES) as c:
        for k, rows in tiled(code, K, SUMS // V):
            with k as k:

                def body(m: Whole, sums: Sequence[Any], k: Whole = k, rows: int = rows) -> Sequence[Any]:
                    w = [code.load("w", m * N + c + LANES * v) for v in range(V)]
                    x = [code.repeated(code.element("x", m * K + k + i)) for i in range(rows)]
                    return [code.multiply_add(x[i], w[v], sums[i * V + v]) for i in range(rows) for v in range(V)]

                for n, each in enumerate(code.sums(M, [code.zeros()] * (rows * V), body)):
                    code.store(each, "y", (k + n // V) * N + c + LANES * (n % V))
    return code.compiled()


def tiled(code: Code, count: Whole, size: int) -> Iterator[tuple[Any, int]]:
    """Two loops, each with the size of its steps: one in whole tiles, and one in single steps for what is left."""
    whole = code.divided(count, size) * size

    @contextmanager
    def rest() -> Iterator[Whole]:
        with code.loop(count - whole) as n:
            yield whole + n

    yield code.loop(whole, size), size
    yield rest(), 1
