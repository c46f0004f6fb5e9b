"""Writes loops over vectors of numbers as machine code for the processor at hand, by LLVM.

Python expressions stand for instructions: `i * row + j` with two `Whole` numbers is computed whenever the compiled loop
runs. Arrays are given as addresses; positions count numbers from there.
"""

import ctypes
import math
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import cache
from typing import Any

import llvmlite.binding as llvm
import numpy as np
from llvmlite import ir

from fedawe.tasks.executors.kernels.vectors import LANES

NUMBER, WHOLE, BYTE, SHORT = ir.FloatType(), ir.IntType(64), ir.IntType(8), ir.IntType(32)
NUMBERS, BYTES = ir.VectorType(NUMBER, LANES), ir.VectorType(BYTE, LANES)
KINDS = {"numbers": NUMBER, "bytes": BYTE, "places": SHORT, "wholes": WHOLE}  # of the arrays


class Whole:
    """A whole number that is known when the code runs."""

    def __init__(self, code: "Code", value: Any) -> None:
        self.code, self.value = code, value

    def __add__(self, other: "Whole | int") -> "Whole":
        return Whole(self.code, self.code.builder.add(self.value, self.code.whole(other).value))

    def __sub__(self, other: "Whole | int") -> "Whole":
        return Whole(self.code, self.code.builder.sub(self.value, self.code.whole(other).value))

    def __mul__(self, other: "Whole | int") -> "Whole":
        return Whole(self.code, self.code.builder.mul(self.value, self.code.whole(other).value))

    __radd__, __rmul__ = __add__, __mul__

    def __rsub__(self, other: int) -> "Whole":
        return self.code.whole(other) - self

    def least(self, other: "Whole | int") -> "Whole":
        """The smaller of both."""
        return self._chosen("<", other)

    def most(self, other: "Whole | int") -> "Whole":
        """The larger of both."""
        return self._chosen(">", other)

    def _chosen(self, relation: str, other: "Whole | int") -> "Whole":
        other, builder = self.code.whole(other), self.code.builder
        return Whole(
            self.code, builder.select(builder.icmp_signed(relation, self.value, other.value), self.value, other.value)
        )


class Code:
    """A function of arrays (kinds as in KINDS, by name) and whole numbers (by name)."""

    def __init__(self, arrays: dict[str, str], wholes: Sequence[str]) -> None:
        self.module = ir.Module()
        kinds = [KINDS[kind].as_pointer() for kind in arrays.values()] + [WHOLE] * len(wholes)
        self.function = ir.Function(self.module, ir.FunctionType(ir.VoidType(), kinds), "run")
        self.builder = ir.IRBuilder(self.function.append_basic_block())
        self.arrays = dict(zip(arrays, self.function.args, strict=False))
        self.wholes = {
            name: Whole(self, each) for name, each in zip(wholes, self.function.args[len(arrays) :], strict=True)
        }
        for argument in self.function.args[: len(arrays)]:
            argument.add_attribute("noalias")

    def whole(self, value: Whole | int) -> Whole:
        return value if isinstance(value, Whole) else Whole(self, ir.Constant(WHOLE, value))

    def divided(self, value: Whole, by: Whole | int) -> Whole:
        """value / by, rounded down; both are positive."""
        return Whole(self, self.builder.udiv(value.value, self.whole(by).value))

    @contextmanager
    def loop(self, count: Whole | int, step: int = 1) -> Iterator[Whole]:
        """A loop over 0, step, ... below count."""
        with self._loop(self.whole(count), step, ()) as (n, _, _):
            yield n

    def sums(
        self, count: Whole, starts: Sequence[Any], body: Callable[[Whole, Sequence[Any]], Sequence[Any]]
    ) -> list[Any]:
        """A loop over 0, 1, ... below count, in which `body` makes new vectors of the old ones; returns the last."""
        with self._loop(count, 1, starts) as (n, vectors, new):
            new.extend(body(n, vectors))
        return list(vectors)

    @contextmanager
    def _loop(self, count: Whole, step: int, starts: Sequence[Any]) -> Iterator[tuple[Whole, list[Any], list[Any]]]:
        builder, before = self.builder, self.builder.block
        head, inside, after = (builder.append_basic_block() for _ in range(3))
        builder.branch(head)
        builder.position_at_end(head)
        n, vectors = builder.phi(WHOLE), [builder.phi(NUMBERS) for _ in starts]
        for phi, start in zip([n, *vectors], [ir.Constant(WHOLE, 0), *starts], strict=True):
            phi.add_incoming(start, before)
        builder.cbranch(builder.icmp_signed("<", n, count.value), inside, after)
        builder.position_at_end(inside)
        new: list[Any] = []
        yield Whole(self, n), vectors, new
        for phi, value in zip([n, *vectors], [builder.add(n, ir.Constant(WHOLE, step)), *new], strict=True):
            phi.add_incoming(value, builder.block)
        builder.branch(head)
        builder.position_at_end(after)

    @contextmanager
    def where(self, condition: Any) -> Iterator[None]:
        """Code that runs only if the condition holds."""
        with self.builder.if_then(condition):
            yield

    def element(self, array: str, at: Whole | int) -> Any:
        return self.builder.load(self.builder.gep(self.arrays[array], [self.whole(at).value]))

    def put(self, value: Any, array: str, at: Whole | int) -> None:
        self.builder.store(value, self.builder.gep(self.arrays[array], [self.whole(at).value]))

    def number(self, array: str, at: Whole) -> Whole:
        """An element of an array of whole numbers, of whatever size."""
        return Whole(self, self.builder.zext(self.element(array, at), WHOLE))

    def load(self, array: str, at: Whole | int) -> Any:
        """The vector that begins at this position."""
        return self.builder.load(self._place(array, at, NUMBERS), align=4)

    def store(self, vector: Any, array: str, at: Whole | int) -> None:
        align = 4 if vector.type == NUMBERS else 1
        self.builder.store(vector, self._place(array, at, vector.type), align=align)

    def _place(self, array: str, at: Whole | int, kind: Any) -> Any:
        where = self.builder.gep(self.arrays[array], [self.whole(at).value])
        return self.builder.bitcast(where, kind.as_pointer())

    def real(self, whole: Whole) -> Any:
        """A whole number as a number."""
        return self.builder.sitofp(whole.value, NUMBER)

    def root(self, number: Any) -> Any:
        """The square root."""
        return self.builder.call(self._intrinsic("llvm.sqrt.f32", NUMBER, 1), [number])

    def zeros(self) -> Any:
        """A vector of zeros."""
        return ir.Constant(NUMBERS, [0.0] * LANES)

    def total(self, vector: Any) -> Any:
        """The sum of the numbers of a vector, in an order that suits the processor."""
        name, kinds = f"llvm.vector.reduce.fadd.v{LANES}f32", [NUMBER, NUMBERS]
        reduce = self.module.globals.get(name) or ir.Function(self.module, ir.FunctionType(NUMBER, kinds), name)
        return self.builder.call(reduce, [ir.Constant(NUMBER, -0.0), vector], fastmath=("reassoc",))

    def first(self, vector: Any) -> Any:
        """The first number of a vector."""
        return self.builder.extract_element(vector, ir.Constant(SHORT, 0))

    def repeated(self, number: Any) -> Any:
        """A vector of the same number."""
        nothing = ir.Constant(NUMBERS, ir.Undefined)
        first = self.builder.insert_element(nothing, number, ir.Constant(SHORT, 0))
        return self.builder.shuffle_vector(first, nothing, ir.Constant(ir.VectorType(SHORT, LANES), [0] * LANES))

    def constant(self, number: float) -> Any:
        """A vector of the same number, which is known when the code is written."""
        return ir.Constant(NUMBERS, [number] * LANES)

    def transposed(self, rows: Sequence[Any]) -> list[Any]:
        """The columns of a square of LANES vectors, by exchanging blocks beside the diagonal, of sizes 1, 2, 4, ..."""
        out, kind, size = list(rows), ir.VectorType(SHORT, LANES), 1
        while size < LANES:
            upper = [n + LANES - size if n & size else n for n in range(LANES)]
            lower = [n + LANES if n & size else n + size for n in range(LANES)]
            for n in range(LANES):
                if not n & size:
                    a, b = out[n], out[n + size]
                    out[n] = self.builder.shuffle_vector(a, b, ir.Constant(kind, upper))
                    out[n + size] = self.builder.shuffle_vector(a, b, ir.Constant(kind, lower))
            size *= 2
        return out

    def sigmoid(self, x: Any) -> Any:
        """1 / (1 + exp(-x))."""
        one, (power, series, f) = self.constant(1.0), self._exponential(x, -1.0)
        return self.builder.fdiv(one, self.multiply_add(power, self.multiply_add(series, f, one), one))

    def tanh(self, x: Any) -> Any:
        """(exp(2 x) - 1) / (exp(2 x) + 1), where exp(2 x) - 1 is computed without cancellation near zero."""
        builder, (power, series, f) = self.builder, self._exponential(x, 2.0)
        less_one = self.multiply_add(power, builder.fmul(series, f), builder.fsub(power, self.constant(1.0)))
        return builder.fdiv(less_one, builder.fadd(less_one, self.constant(2.0)))

    def _exponential(self, x: Any, factor: float) -> tuple[Any, Any, Any]:
        """power, series and f with exp(factor x) = power (1 + series f), for |factor x| <= 80; NaN stays NaN.

        factor x / log(2) = n + f for a whole n and |f| <= 1/2; power = 2^n and 1 + series f = 2^f. A larger |x| counts
        as the largest.
        """
        builder, most, rate = self.builder, 80 / abs(factor), self.constant(factor / math.log(2))
        for bound, beyond in ((most, ">"), (-most, "<")):
            x = builder.select(builder.fcmp_ordered(beyond, x, self.constant(bound)), self.constant(bound), x)
        # Numbers of this size are whole, and their last bits are n + 127, which is how the exponent of 2^n is stored.
        whole = self.constant(1.5 * 2**23 + 127)
        shifted, bits = self.multiply_add(x, rate, whole), ir.VectorType(SHORT, LANES)
        f = self.multiply_add(x, rate, builder.fsub(whole, shifted))
        power = builder.shl(builder.bitcast(shifted, bits), ir.Constant(bits, [23] * LANES))
        *lower, highest = _series()
        series = self.constant(highest)
        for each in reversed(lower):
            series = self.multiply_add(series, f, self.constant(each))
        return builder.bitcast(power, NUMBERS), series, f

    def multiply_add(self, a: Any, b: Any, c: Any) -> Any:
        """a b + c."""
        return self.builder.call(self._intrinsic(f"llvm.fmuladd.v{LANES}f32", NUMBERS, 3), [a, b, c])

    def _intrinsic(self, name: str, kind: Any, arguments: int) -> Any:
        found = self.module.globals.get(name)
        return found or ir.Function(self.module, ir.FunctionType(kind, [kind] * arguments), name)

    def compiled(self) -> Callable[..., None]:
        """The function, called with addresses and whole numbers in the order of its arguments."""
        self.builder.ret_void()
        machine = _machine()
        module = llvm.parse_assembly(str(self.module))
        module.verify()
        passes = llvm.create_pass_builder(machine, llvm.create_pipeline_tuning_options(speed_level=3))
        passes.getModulePassManager().run(module, passes)
        engine = llvm.create_mcjit_compiler(module, machine)
        engine.finalize_object()
        kinds = [ctypes.c_void_p] * len(self.arrays) + [ctypes.c_int64] * len(self.wholes)
        run = ctypes.CFUNCTYPE(None, *kinds)(engine.get_function_address("run"))
        run.engine = engine  # type: ignore[attr-defined]  # the code lives as long as this does
        return run


@cache
def _series() -> list[float]:
    """The coefficients of a polynomial that is (2^f - 1) / f for |f| <= 1/2, to a relative error of 1e-8."""
    nodes = np.cos((np.arange(6) + 0.5) * math.pi / 6) / 2  # Chebyshev's, between -1/2 and 1/2
    found = np.polynomial.Polynomial.fit(nodes, np.expm1(nodes * math.log(2)) / nodes, 5)
    return [float(each) for each in found.convert().coef]


def _machine() -> Any:
    """The machine on which this runs; every engine needs one of its own, which it frees."""
    target = _target()
    features = llvm.get_host_cpu_features().flatten()
    return target.create_target_machine(cpu=llvm.get_host_cpu_name(), features=features, opt=3)


@cache
def _target() -> Any:
    llvm.initialize_native_target()
    llvm.initialize_native_asmprinter()
    return llvm.Target.from_default_triple()
