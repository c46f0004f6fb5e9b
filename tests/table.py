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
    Row("fedawe carry", lambda p: fedawe.FedAWE(max_echo=2, carry=True), fedawe.FedAvg()),
    Row("fedawe max_absence", lambda p: fedawe.FedAWE(max_absence=2), fedawe.FedAvg()),
    Row("fedawe max_absence active", lambda p: fedawe.FedAWE(max_absence=2, average="active"), fedawe.FedAvg()),
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
    Row("f3ast clip", lambda p: fedawe.F3AST(beta=0.2, normalise="clients", clip=0.4), fedawe.FedAvg(clip=0.4)),
    Row("f3ast share", lambda p: fedawe.F3AST(beta=0.1, r0="share", normalise="clients")),  # 1/m at first: not 1
    Row("f3ast r0", lambda p: fedawe.F3AST(beta=0.1, r0=0.3, normalise="clients")),
    Row("f3ast clients", lambda p: fedawe.F3AST(beta=0.1, normalise="clients"), fedawe.FedAvg()),
    Row("f3ast self", lambda p: fedawe.F3AST(beta=0.1, r0=0.3), fedawe.FedAvg()),
    Row("f3ast by capacity", lambda p: fedawe.F3AST(beta=0.1, normalise="capacity")),  # divided by |A| once more
    Row("f3ast capacity", lambda p: fedawe.F3AST(beta=0.1, capacity=2, normalise="clients"), counts_everyone=False),
    Row(
        "f3ast capacity by capacity",
        lambda p: fedawe.F3AST(beta=0.1, capacity=2, r0="share", normalise="capacity"),
        counts_everyone=False,
    ),
    Row(
        "f3ast capacity self",
        lambda p: fedawe.F3AST(beta=0.1, capacity=2, clip=0.4),
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
    Row("mifa client", lambda p: fedawe.MIFA(memory="client"), fedawe.FedAvg()),
    Row("fedvarp client", lambda p: fedawe.FedVARP(memory="client"), fedawe.FedAvg()),
    Row("fedprox", lambda p: fedawe.FedProx(mu=0.3, eta_g=0.7), fedawe.FedAvg(eta_g=0.7)),
    Row("fedprox clip", lambda p: fedawe.FedProx(clip=0.4), fedawe.FedAvg(clip=0.4)),
    Row("scaffold", lambda p: fedawe.SCAFFOLD(eta_g=0.7), fedawe.FedAvg(eta_g=0.7)),
    Row("scaffold option 1", lambda p: fedawe.SCAFFOLD(option=1, clip=0.4), fedawe.FedAvg(clip=0.4)),
    Row("scaffold period", lambda p: fedawe.SCAFFOLD(period=3), fedawe.FedAvg()),
    Row("feddyn", lambda p: fedawe.FedDyn(alpha=0.3)),  # adds the mean of all innovations so far
    Row("feddyn clip", lambda p: fedawe.FedDyn(clip=0.3)),
    Row("fednova", lambda p: fedawe.FedNova(eta_g=0.7), fedawe.FedAvg(eta_g=0.7)),
    Row("fednova clip", lambda p: fedawe.FedNova(clip=0.4), fedawe.FedAvg(clip=0.4)),
    Row("fedavgm", lambda p: fedawe.FedAvgM(beta=0.5, eta_s=0.7)),
    Row("fedavgm 0", lambda p: fedawe.FedAvgM(beta=0, rule=fedawe.FedAU(clip=0.4)), fedawe.FedAvg(clip=0.4)),
    Row("fedavgm mifa", lambda p: fedawe.FedAvgM(rule=fedawe.MIFA())),
    Row("fedavgm scaffold", lambda p: fedawe.FedAvgM(beta=0.5, rule=fedawe.SCAFFOLD())),
    Row("fedadam", lambda p: fedawe.FedAdam()),
    Row("fedadam all", lambda p: fedawe.FedAdam(0.2, 0.8, 0.9, 0.1, fedawe.FedAvgKnown(p))),
    Row("fedyogi", lambda p: fedawe.FedYogi(0.2, 0.8, 0.9, 0.1, fedawe.FedAU(K=3))),
    Row("fedadagrad", lambda p: fedawe.FedAdagrad(0.2, 0.1)),
    Row("amplified", lambda p: fedawe.Amplified(period=3)),
    Row("amplified 1", lambda p: fedawe.Amplified(period=2, gamma=1.0), fedawe.FedAvg()),
    Row("amplified scaffold", lambda p: fedawe.Amplified(fedawe.SCAFFOLD(period=3), period=3, gamma=2.0)),
    Row("fedstale", lambda p: fedawe.FedStale(eta_g=0.7), fedawe.FedAvg(eta_g=0.7)),
    Row("fedstale beta", lambda p: fedawe.FedStale(beta=0.3, K=3, clip=0.4), fedawe.FedAvg(clip=0.4)),
    Row("fedstale p", lambda p: fedawe.FedStale(beta=0.3, p=p), fedawe.FedAvg()),
    Row("mimic", lambda p: fedawe.MimiC(eta_g=0.7), fedawe.FedAvg(eta_g=0.7)),
    Row("mimic clip", lambda p: fedawe.MimiC(clip=0.4), fedawe.FedAvg(clip=0.4)),
    Row("fedpbc", lambda p: fedawe.FedPBC(), fedawe.FedAvg()),
    Row("fedpbc clip", lambda p: fedawe.FedPBC(clip=0.3), fedawe.FedAvg(clip=0.3)),
    Row("fedbuff", lambda p: fedawe.FedBuff(K=3)),
    Row("fedbuff 1", lambda p: fedawe.FedBuff(K=1, eta_g=0.7, clip=0.4), fedawe.FedAvg(eta_g=0.7, clip=0.4)),
    Row("fedasync", lambda p: fedawe.FedAsync()),
    Row("fedasync clip", lambda p: fedawe.FedAsync(clip=0.3)),
    Row("fedasync 1", lambda p: fedawe.FedAsync(alpha=1, power=0.3), fedawe.FedAvg()),
    Row("ca2fl", lambda p: fedawe.CA2FL(K=3)),
    Row("ca2fl 1", lambda p: fedawe.CA2FL(K=1, eta_g=0.7, clip=0.4), fedawe.FedAvg(eta_g=0.7, clip=0.4)),
    Row("area", lambda p: fedawe.AREA(), fedawe.FedAvg()),
    Row("area clip", lambda p: fedawe.AREA(clip=0.3)),  # x is then not the mean of all y_i
    Row("fedlaavg", lambda p: fedawe.FedLaAvg(eta_g=0.7), fedawe.FedAvg(eta_g=0.7)),
    Row("fedlaavg k", lambda p: fedawe.FedLaAvg(k=2, clip=0.4), fedawe.FedAvg(clip=0.4)),
    Row("clusterfedvarp", lambda p: fedawe.ClusterFedVARP(p[0] > 0.5, eta_g=0.7), fedawe.FedAvg(eta_g=0.7)),
    Row("clusterfedvarp clip", lambda p: fedawe.ClusterFedVARP((p[0] * 3).long(), clip=0.4), fedawe.FedAvg(clip=0.4)),
    Row("weighted", lambda p: fedawe.Weighted(fedawe.FedAvg(), p[0]), counts_everyone=False),
    Row(
        "weighted some",
        lambda p: fedawe.Weighted(fedawe.FedAvg(), p[0] * (p[0] >= p[0].median())),
        counts_everyone=False,
    ),
    Row("weighted fedawe", lambda p: fedawe.Weighted(fedawe.FedAWE(), p[0]), counts_everyone=False),
    Row("weighted alike", lambda p: fedawe.Weighted(fedawe.FedAU(), torch.full_like(p[0], 3.0)), fedawe.FedAvg()),
    Row("chosen", lambda p: fedawe.Chosen(), fedawe.FedAvg()),
    Row("chosen fedawe", lambda p: fedawe.Chosen(fedawe.FedAWE(), fedawe.LongestAbsent(2)), fedawe.FedAvg()),
    Row("chosen loss", lambda p: fedawe.Chosen(fedawe.FedAvg(), fedawe.PowerOfChoice(3, 2)), fedawe.FedAvg()),
    Row("robust bound", lambda p: fedawe.Robust(fedawe.FedAWE(), fedawe.NormBound(1e6)), fedawe.FedAvg()),
    Row("robust trimmed", lambda p: fedawe.Robust(fedawe.FedAvg(0.7), fedawe.Trimmed(0.3)), counts_everyone=False),
    Row("robust median", lambda p: fedawe.Robust(fedawe.FedAWE(), fedawe.Median()), counts_everyone=False),
    Row("private", lambda p: fedawe.Private(fedawe.FedAWE(), 0.5, 0.1, None, 1e-4, seed=1), counts_everyone=False),
    Row("private add", lambda p: fedawe.Private(denominator=3.0, seed=2), counts_everyone=False),
    Row("chosen oort", lambda p: fedawe.Chosen(fedawe.SCAFFOLD(), fedawe.Oort(2, explore=0.5)), fedawe.FedAvg()),
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
    if isinstance(one, State):
        return type(one) is type(other) and differences(one, other, tolerance) == []
    if isinstance(one, Mapping):
        return set(one) == set(other) and all(_same(one[key], other[key], tolerance) for key in one)
    return type(one) is type(other) and one == other
