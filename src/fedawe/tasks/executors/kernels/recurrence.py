"""Kernels of an LSTM that reads its sequences one way, written for the size of its state.

At every step the gates are the contribution of the input plus the previous state times the weights. Arrays are by step
first, [L, B, ...], and the gates of a sample are [4 H]: input, forget, cell and output gate of all units, as in torch.
A tile is the four gates of one vector of units, for a few samples. Its sums stay in registers until the new state is
computed from them.
"""

from collections.abc import Callable
from functools import cache
from typing import Any

from fedawe.tasks.executors.kernels.machine_code import Code, Whole
from fedawe.tasks.executors.kernels.matrices import Matrix, multiply, multiply_and_add, products, tile
from fedawe.tasks.executors.kernels.vectors import LANES, SUMS

GATES = 4
KEPT = 5  # vectors for every vector of units: the four gates and tanh of the cell
TILE = SUMS // GATES  # samples of a tile
PAIR = 2  # vectors of a tile of the errors of the state, which reads many weights


def width(H: int) -> int:
    """The numbers from the errors of one sample's gates to the next's; more than 4 H, to share no cache lines."""
    return GATES * H + LANES


def samples(H: int) -> int:
    """The samples of a tile of the errors of the state."""
    return tile(H, PAIR)[0]


@cache
def pack(H: int) -> Callable[..., None]:
    """packed [H / LANES, H, 4, LANES] from w [4, H, H], so that a tile reads its weights one after another."""
    code = Code(dict.fromkeys(("w", "packed"), "numbers"), ())
    with code.loop(H, LANES) as j, code.loop(GATES) as gate, code.loop(H, LANES) as k:
        rows = [code.load("w", (gate * H + j + n) * H + k) for n in range(LANES)]
        for n, each in enumerate(code.transposed(rows)):
            code.store(each, "packed", (j * H + (k + n) * LANES) * GATES + gate * LANES)
    return code.compiled()


@cache
def forward(H: int, rows: int) -> Callable[..., None]:
    """h [1 + L, B, H], cells [1 + L, B, H] and kept [L, B, H / LANES, 5, LANES]; the first of h and cells are zero.

    The input contributes inputs[which[t, b]] to the gates of sample b at step t. There are at least `rows`
    samples. The last tile ends with the last sample, and computes samples again where tiles overlap.
    """
    arrays = {**dict.fromkeys(("inputs", "packed", "h", "cells", "kept"), "numbers"), "which": "wholes"}
    code = Code(arrays, ("L", "B"))
    (L, B), builder = code.wholes.values(), code.builder
    clear(code, B * H, "h", "cells")
    with code.loop(L) as t, code.loop(H, LANES) as j, code.loop(code.divided(B + rows - 1, rows)) as n:
        first = t * B + (n * rows).least(B - rows)
        given = [code.number("which", first + r) * (GATES * H) + j for r in range(rows)]
        starts = [code.load("inputs", at + gate * H) for at in given for gate in range(GATES)]
        weights = Matrix("packed", j * (H * GATES), GATES * LANES)
        sums = products(code, Matrix("h", first * H, H), weights, H, starts, GATES)
        for r in range(rows):
            before = [sums[r * GATES + gate] for gate in range(GATES)]
            i, f, g, o = (code.tanh(each) if gate == 2 else code.sigmoid(each) for gate, each in enumerate(before))
            at = (first + r) * H + j
            cell = code.multiply_add(f, code.load("cells", at), builder.fmul(i, g))
            bent = code.tanh(cell)
            code.store(cell, "cells", B * H + at)
            code.store(builder.fmul(o, bent), "h", B * H + at)
            for m, each in enumerate((i, f, g, o, bent)):
                code.store(each, "kept", at * KEPT + m * LANES)
    return code.compiled()


@cache
def backward(H: int, rows: int, every: bool, table: bool) -> Callable[..., None]:
    """gw [4 H, H], and the errors of the gates: all of them [L B, width(H)], or with `table` their sums by `which`.

    gh and gc [B, H] are the errors of the state and of the cell. With `every` the state of step t also has the error
    g[t]; otherwise only the last state has one, which is given as gh. The steps are computed backwards, in blocks of T,
    so that the errors of a block are still in a near cache when gw is computed from them. With `table` the sums are
    gi [N, width(H)], and `errors` is only as long as a block.
    """
    arrays = dict.fromkeys(("g", "w", "h", "cells", "kept", "errors", "gh", "gc", "gw", "gi"), "numbers")
    code = Code({**arrays, "which": "wholes"}, ("L", "B", "T", "N", "by_step", "by_sample"))
    (L, B, T, N), W, zero = list(code.wholes.values())[:4], width(H), code.whole(0)
    clear(code, code.whole(GATES * H * H), "gw")
    clear(code, B * H, "gc", *(["gh"] if every else []))
    if table:
        clear(code, N * W, "gi")
    with code.loop(code.divided(L + T - 1, T)) as n:
        last = L - n * T
        first = (last - T).most(0)
        block = zero if table else first * B * W
        with code.loop(last - first) as m:
            t = last - 1 - m
            at = block + (t - first) * B * W
            _gates(code, H, every, table, t, B, at)
            errors, weights, state = Matrix("errors", at, W), Matrix("w", zero, H), Matrix("gh", zero, H)
            with code.where(code.builder.icmp_signed(">", t.value, zero.value)):
                multiply(code, rows, B, H, GATES * H, errors, weights, state, PAIR)
        errors, before = Matrix("errors", block, 1, W), Matrix("h", first * B * H, H)
        multiply_and_add(code, GATES * H, H, (last - first) * B, errors, before, Matrix("gw", zero, H))
    return code.compiled()


def clear(code: Code, count: Whole, *arrays: str) -> None:
    """Sets the first `count` numbers of arrays, which are whole vectors, to zero."""
    with code.loop(count, LANES) as n:
        for array in arrays:
            code.store(code.constant(0.0), array, n)


def _gates(code: Code, H: int, every: bool, table: bool, t: Whole, B: Whole, errors: Whole) -> None:
    """The errors of the gates of step t, from those of its state and of its cell."""
    builder, one = code.builder, code.constant(1.0)

    def before_sigmoid(error: Any, gate: Any) -> Any:
        return builder.fmul(error, builder.fmul(gate, builder.fsub(one, gate)))

    with code.loop(B) as b, code.loop(H, LANES) as j:
        to = code.number("which", t * B + b) * width(H) + j
        here, at = b * H + j, (t * B + b) * H + j
        i, f, g, o, bent = (code.load("kept", at * KEPT + n * LANES) for n in range(KEPT))
        state = code.load("gh", here)
        if every:
            given = code.load("g", t * code.wholes["by_step"] + b * code.wholes["by_sample"] + j)
            state = builder.fadd(state, given)
        slope = builder.fsub(one, builder.fmul(bent, bent))
        cell = code.multiply_add(builder.fmul(state, o), slope, code.load("gc", here))
        code.store(builder.fmul(cell, f), "gc", here)
        found = (
            before_sigmoid(builder.fmul(cell, g), i),
            before_sigmoid(builder.fmul(cell, code.load("cells", at)), f),
            builder.fmul(builder.fmul(cell, i), builder.fsub(one, builder.fmul(g, g))),
            before_sigmoid(builder.fmul(state, bent), o),
        )
        for n, each in enumerate(found):
            code.store(each, "errors", errors + b * width(H) + n * H + j)
            if table:
                code.store(builder.fadd(code.load("gi", to + n * H), each), "gi", to + n * H)
