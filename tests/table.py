"""The one table of algorithms that the laws are tested over, and the histories they are run on.

A new algorithm or a new option is a new row; it then obeys every law in `test_laws.py` or says here why it cannot.
"""

import dataclasses
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from hypothesis import strategies as st
from torch import Tensor

import fedawe
from fedawe.algorithms.base import State

ROUNDS = 40  # more than any history has; known-p wants probabilities for that many


@dataclass(frozen=True)
class Row:
    """An algorithm with its options, and what it is when everyone is always there."""

    name: str
    make: Callable[[Tensor], Any]  # from the probabilities p [T, m], which only known-p looks at
    fedavg: fedawe.FedAvg | None = None  # FedAvg with the same rate and clip; None if it is something else even then
    counts_everyone: bool = True  # whether everyone who is there has a say in the round

    def __repr__(self) -> str:
        return self.name


def halving(t: int) -> float:
    """A learning rate that falls, eta_l(t); nothing in it is round in binary."""
    return 0.3 / (1 + t)


ROWS = [
    Row("fedawe", lambda p: fedawe.FedAWE(), fedawe.FedAvg()),
    Row("fedawe eta_g", lambda p: fedawe.FedAWE(eta_g=0.7), fedawe.FedAvg(eta_g=0.7)),
    Row("fedawe clip", lambda p: fedawe.FedAWE(eta_g=0.7, clip=0.4), fedawe.FedAvg(eta_g=0.7, clip=0.4)),
    Row("fedawe max_echo", lambda p: fedawe.FedAWE(max_echo=2), fedawe.FedAvg()),
    Row("fedawe max_absence", lambda p: fedawe.FedAWE(max_absence=2), fedawe.FedAvg()),
    Row("fedawe active", lambda p: fedawe.FedAWE(average="active"), fedawe.FedAvg()),
    Row("fedavg", lambda p: fedawe.FedAvg(eta_g=0.7), fedawe.FedAvg(eta_g=0.7)),
    Row("fedavg clip", lambda p: fedawe.FedAvg(clip=0.4), fedawe.FedAvg(clip=0.4)),
    Row("fedavg-all", lambda p: fedawe.FedAvgAll(eta_g=0.7), fedawe.FedAvg(eta_g=0.7)),
    Row("fedavg-all clip", lambda p: fedawe.FedAvgAll(clip=0.2), fedawe.FedAvg(clip=0.2)),
    Row("fedavg-known", lambda p: fedawe.FedAvgKnown(p, eta_g=0.7), fedawe.FedAvg(eta_g=0.7)),
    Row("fedavg-known clip", lambda p: fedawe.FedAvgKnown(p, clip=0.4), fedawe.FedAvg(clip=0.4)),
    Row("fedau", lambda p: fedawe.FedAU(), fedawe.FedAvg()),
    Row("fedau K", lambda p: fedawe.FedAU(K=3, eta_g=0.7), fedawe.FedAvg(eta_g=0.7)),
    Row("fedau clip", lambda p: fedawe.FedAU(K=2, clip=0.4), fedawe.FedAvg(clip=0.4)),
    Row("f3ast", lambda p: fedawe.F3AST(), fedawe.FedAvg()),
    Row("f3ast beta", lambda p: fedawe.F3AST(beta=0.2, eta_g=0.7), fedawe.FedAvg(eta_g=0.7)),
    Row("f3ast clip", lambda p: fedawe.F3AST(beta=0.2, clip=0.4), fedawe.FedAvg(clip=0.4)),
    Row("f3ast share", lambda p: fedawe.F3AST(beta=0.1, r0="share")),  # 1/m at first: no estimate of 1
    Row("f3ast r0", lambda p: fedawe.F3AST(beta=0.1, r0=0.3)),
    Row("f3ast self", lambda p: fedawe.F3AST(beta=0.1, r0=0.3, normalise="self"), fedawe.FedAvg()),
    Row("f3ast by capacity", lambda p: fedawe.F3AST(beta=0.1, normalise="capacity")),  # divided by |A| once more
    Row("f3ast capacity", lambda p: fedawe.F3AST(beta=0.1, capacity=2), counts_everyone=False),
    Row(
        "f3ast capacity by capacity",
        lambda p: fedawe.F3AST(beta=0.1, capacity=2, r0="share", normalise="capacity"),
        counts_everyone=False,
    ),
    Row(
        "f3ast capacity self",
        lambda p: fedawe.F3AST(beta=0.1, capacity=2, normalise="self", clip=0.4),
        counts_everyone=False,
    ),
    Row("mifa", lambda p: fedawe.MIFA(eta_g=0.7), fedawe.FedAvg(eta_g=0.7)),
    Row("mifa clip", lambda p: fedawe.MIFA(clip=0.4), fedawe.FedAvg(clip=0.4)),
    Row("mifa memory_rate", lambda p: fedawe.MIFA(memory_rate=halving), fedawe.FedAvg()),
    Row("mifa warmup", lambda p: fedawe.MIFA(warmup="all-seen"), fedawe.FedAvg()),
    Row(
        "mifa memory_rate warmup",
        lambda p: fedawe.MIFA(memory_rate=halving, warmup="all-seen", clip=0.4),
        fedawe.FedAvg(clip=0.4),
    ),
    Row("fedvarp", lambda p: fedawe.FedVARP(eta_g=0.7), fedawe.FedAvg(eta_g=0.7)),
    Row("fedvarp clip", lambda p: fedawe.FedVARP(clip=0.4), fedawe.FedAvg(clip=0.4)),
    Row("fedvarp memory_rate", lambda p: fedawe.FedVARP(memory_rate=halving), fedawe.FedAvg()),
]


@dataclass(frozen=True)
class History:
    """What a server was told: x0 [d], and round by round who was there and what they returned."""

    x0: Tensor
    m: int
    p: Tensor  # [T, m], of which the history is no draw; any numbers in (0, 1] will do
    rounds: list[tuple[Tensor, Tensor]]  # (A [k], G [k, d])

    def __repr__(self) -> str:
        return f"History(m={self.m}, A={[A.tolist() for A, _ in self.rounds]}, x0={self.x0.tolist()})"


def history(m: int, active: list[list[int]], seed: int = 0, d: int = 3, dtype: torch.dtype = torch.float64) -> History:
    """Normal innovations and probabilities in (0.1, 1) for the given rounds."""
    draw = np.random.default_rng(seed)
    numbers = lambda *shape: torch.from_numpy(draw.normal(size=shape)).to(dtype)  # noqa: E731
    x0, rounds = numbers(d), [(torch.tensor(A, dtype=torch.int64), numbers(len(A), d)) for A in active]
    return History(x0, m, torch.from_numpy(draw.uniform(0.1, 1.0, size=(ROUNDS, m))), rounds)


@st.composite
def histories(draw: Any, max_m: int = 5, max_rounds: int = 14, dtype: torch.dtype = torch.float64) -> History:
    """Any number of clients, any rounds, in any order of arrival; empty rounds and clients never there included."""
    m = draw(st.integers(1, max_m))
    active = draw(st.lists(st.lists(st.integers(0, m - 1), unique=True), max_size=max_rounds))
    return history(m, active, draw(st.integers(0, 2**32 - 1)), dtype=dtype)


def run(algorithm: Any, given: History) -> State:
    """The state after the whole history."""
    state = algorithm.init(given.x0, given.m)
    for t, (A, G) in enumerate(given.rounds):
        state = algorithm.aggregate(state, t, A, G)
    return state


def differences(one: Any, other: Any, tolerance: float = 0.0) -> list[str]:
    """The names of the fields in which two states differ; bit for bit without a tolerance."""
    assert type(one) is type(other)
    return [
        field.name
        for field in dataclasses.fields(one)
        if not _same(getattr(one, field.name), getattr(other, field.name), tolerance)
    ]


def _same(one: Any, other: Any, tolerance: float) -> bool:
    if isinstance(one, Tensor):
        if not isinstance(other, Tensor) or (one.dtype, one.shape) != (other.dtype, other.shape):
            return False
        return torch.equal(one, other) if tolerance == 0 else torch.allclose(one, other, rtol=0, atol=tolerance)
    if isinstance(one, Mapping):
        return set(one) == set(other) and all(_same(one[key], other[key], tolerance) for key in one)
    return type(one) is type(other) and one == other
