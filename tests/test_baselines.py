"""Each baseline against a slow reference: plain loops over clients and coordinates, from the published rules.

Innovations enter the rules as Delta_i = -G_i, as the literature writes them.
"""

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from table import ROWS, History, Row, histories, history

import fedawe

Vector = list[float]
Deltas = dict[int, Vector]  # client -> Delta_i, of whoever is there


def clip(v: Vector, c: float | None) -> Vector:
    norm = math.sqrt(sum(entry**2 for entry in v))
    return v if c is None or norm <= c else [c * entry / norm for entry in v]


def moved(x: Vector, h: Any, update: Vector) -> Vector:
    return [a + h.eta_g * b for a, b in zip(x, clip(update, h.clip), strict=True)]


def weighted(weights: dict[int, float], deltas: Deltas, d: int) -> Vector:
    return [sum(weights[i] * deltas[i][j] for i in weights) for j in range(d)]


def fedavg(h: Any, x: Vector, m: int, rounds: list[Deltas], p: Any) -> Vector:
    for deltas in rounds:
        if deltas:
            x = moved(x, h, weighted({i: 1 / len(deltas) for i in deltas}, deltas, len(x)))
    return x


def fedavg_all(h: Any, x: Vector, m: int, rounds: list[Deltas], p: Any) -> Vector:
    for deltas in rounds:
        x = moved(x, h, weighted(dict.fromkeys(deltas, 1 / m), deltas, len(x)))
    return x


def fedavg_known(h: Any, x: Vector, m: int, rounds: list[Deltas], p: Any) -> Vector:
    for t, deltas in enumerate(rounds):
        x = moved(x, h, weighted({i: 1 / (m * p[t][i]) for i in deltas}, deltas, len(x)))
    return x


def fedau(h: Any, x: Vector, m: int, rounds: list[Deltas], p: Any) -> Vector:
    """With the list of all intervals, counting misses: whoever comes ends an interval, and so does the K-th miss."""
    intervals: list[list[int]] = [[] for _ in range(m)]
    misses = [0] * m
    for deltas in rounds:
        omega = {i: float(np.mean(intervals[i])) if intervals[i] else 1.0 for i in deltas}
        x = moved(x, h, weighted({i: omega[i] / m for i in deltas}, deltas, len(x)))
        for i in range(m):
            if i in deltas:
                intervals[i].append(misses[i] + 1)
                misses[i] = 0
            else:
                misses[i] += 1
                if misses[i] >= h.K:
                    intervals[i].append(misses[i])
                    misses[i] = 0
    return x


def f3ast(h: Any, x: Vector, m: int, rounds: list[Deltas], p: Any) -> Vector:
    """Steps 1 to 5 of the authors' code with p_k = 1/m; the last of them divides by K in one of the variants."""
    r = [1 / m if h.r0 == "share" else h.r0] * m
    for deltas in rounds:
        K = len(deltas) if h.capacity is None else h.capacity
        by_score = sorted(deltas, key=lambda k: (-((1 / m) ** 2) / r[k] ** 2, k))
        S = by_score[:K]
        r = [(1 - h.beta) * r[k] + (h.beta if k in S else 0.0) for k in range(m)]
        if S:
            w = {k: (1 / m) / r[k] for k in S}
            if h.normalise == "capacity":
                w = {k: w[k] / K for k in S}
            if h.normalise == "self":
                w = {k: (1 / r[k]) / sum(1 / r[j] for j in S) for k in S}
            x = moved(x, h, weighted(w, deltas, len(x)))
    return x


def mifa(h: Any, x: Vector, m: int, rounds: list[Deltas], p: Any) -> Vector:
    eta: Callable[[int], float] = h.memory_rate or (lambda t: 1.0)
    memory = [[0.0] * len(x) for _ in range(m)]
    seen: set[int] = set()
    for t, deltas in enumerate(rounds):
        seen |= set(deltas)
        for i in deltas:
            memory[i] = [entry / eta(t) for entry in deltas[i]]
        if h.warmup == "none" or len(seen) == m:
            x = moved(x, h, [eta(t) * sum(row[j] for row in memory) / m for j in range(len(x))])
    return x


def fedvarp(h: Any, x: Vector, m: int, rounds: list[Deltas], p: Any) -> Vector:
    eta: Callable[[int], float] = h.memory_rate or (lambda t: 1.0)
    y = [[0.0] * len(x) for _ in range(m)]
    for t, deltas in enumerate(rounds):
        if deltas:
            new = {i: [entry / eta(t) for entry in deltas[i]] for i in deltas}
            surprise = [sum(new[i][j] - y[i][j] for i in new) / len(new) for j in range(len(x))]
            mean = [sum(row[j] for row in y) / m for j in range(len(x))]
            x = moved(x, h, [eta(t) * (a + b) for a, b in zip(surprise, mean, strict=True)])
            for i in new:
                y[i] = new[i]
    return x


REFERENCES: dict[type[Any], Callable[[Any, Vector, int, list[Deltas], Any], Vector]] = {
    fedawe.FedAvg: fedavg,
    fedawe.FedAvgAll: fedavg_all,
    fedawe.FedAvgKnown: fedavg_known,
    fedawe.FedAU: fedau,
    fedawe.F3AST: f3ast,
    fedawe.MIFA: mifa,
    fedawe.FedVARP: fedvarp,
}
BASELINES = [row for row in ROWS if not row.name.startswith("fedawe")]


def compare(algorithm: Any, past: History) -> None:
    """After every round of the history, model and reference agree to 1e-9, and everyone starts from the model."""
    reference, deltas = REFERENCES[type(algorithm)], []
    state = algorithm.init(past.x0, past.m)
    for t, (A, G) in enumerate(past.rounds):
        deltas.append({i: [-g for g in row] for i, row in zip(A.tolist(), G.tolist(), strict=True)})
        state = algorithm.aggregate(state, t, A, G)
        x = torch.tensor(reference(algorithm, past.x0.tolist(), past.m, deltas, past.p.tolist()), dtype=torch.float64)
        torch.testing.assert_close(algorithm.model(state), x, rtol=0, atol=1e-9)
        torch.testing.assert_close(state.latest, x, rtol=0, atol=1e-9)
        everyone = torch.arange(past.m)
        torch.testing.assert_close(algorithm.start(state, everyone), x.expand(past.m, 3), rtol=0, atol=1e-9)


@pytest.mark.parametrize("row", BASELINES, ids=repr)
@settings(max_examples=40)
@given(past=histories())
def test_every_round_is_as_in_the_reference(row: Row, past: History) -> None:
    compare(row.make(past.p), past)


@pytest.mark.parametrize("row", BASELINES, ids=repr)
def test_a_longer_run_with_long_absences_is_as_in_the_reference(row: Row) -> None:
    draw = np.random.default_rng(11)
    active = [np.flatnonzero(draw.random(6) < (0.9, 0.5, 0.2, 0.1, 0.05, 0.02)).tolist() for _ in range(40)]
    past = history(6, active, seed=12)
    compare(row.make(past.p), past)


# Details in which published implementations differ from each other, one by one


def one_client(algorithm: Any, there: str, m: int = 1) -> list[float]:
    """How much client 0 moves the model in every round of `there` (x: it is there with G = 1, .: it is not)."""
    state, steps = algorithm.init(torch.zeros(1, dtype=torch.float64), m), []
    for t, mark in enumerate(there):
        A = torch.tensor([0] if mark == "x" else [], dtype=torch.int64)
        before = algorithm.model(state)
        state = algorithm.aggregate(state, t, A, torch.ones(len(A), 1, dtype=torch.float64))
        steps.append(float(before - algorithm.model(state)))
    return steps


def test_fedau_uses_an_interval_only_from_the_next_round_on() -> None:
    assert one_client(fedawe.FedAU(K=50), "..xx.x") == pytest.approx([0, 0, 1, 3, 0, 2])  # 1; 3; mean of 3, 1


def test_fedau_cuts_an_interval_at_K_misses_and_not_at_one_less() -> None:
    assert one_client(fedawe.FedAU(K=3), "..x.x") == pytest.approx([0, 0, 1, 0, 3])  # two misses: one interval of 3
    assert one_client(fedawe.FedAU(K=3), "...xx") == pytest.approx([0, 0, 0, 3, 2])  # three: 3, and then 1
    assert one_client(fedawe.FedAU(K=1), ".....x") == pytest.approx([0, 0, 0, 0, 0, 1])


@given(there=st.text("x.", min_size=1, max_size=30), K=st.integers(1, 8))
def test_fedau_never_weighs_more_than_K(there: str, K: int) -> None:
    assert max(one_client(fedawe.FedAU(K=K), there)) <= K + 1e-9


def test_f3ast_updates_the_rates_before_it_weighs() -> None:
    # r is .5, then .75: the weight is (1/m)/.75. Weighing first would give (1/m)/.5.
    assert one_client(fedawe.F3AST(beta=0.5, normalise="clients"), ".x", m=2) == pytest.approx([0, 0.5 / 0.75])


@given(away=st.integers(0, 3000), beta=st.floats(0.01, 1.0))
def test_f3ast_never_weighs_more_than_one_over_m_beta(away: int, beta: float) -> None:
    f3ast_ = fedawe.F3AST(beta=beta, normalise="clients")
    state = f3ast_.init(torch.zeros(1, dtype=torch.float64), 2)
    state = f3ast_.aggregate(state, min(away, 300), torch.tensor([1]), torch.ones(1, 1, dtype=torch.float64))
    assert 0 < -float(f3ast_.model(state)) <= 1 / (2 * beta) * (1 + 1e-12)


def test_f3ast_selects_whoever_was_selected_least_and_counts_only_the_selected() -> None:
    f3ast_ = fedawe.F3AST(beta=0.1, capacity=2)
    state = f3ast_.init(torch.zeros(4, dtype=torch.float64), 4)
    chosen = []
    for t in range(4):
        before = f3ast_.model(state)
        A = torch.tensor([1, 2, 3])
        state = f3ast_.aggregate(state, t, A, torch.eye(4, dtype=torch.float64)[A])
        chosen.append((before - f3ast_.model(state)).nonzero().flatten().tolist())
    # All alike: the lowest numbers. Then 3, with 1 before 2. Then 2, the longest away, and 3 or 1: 1 came earlier less.
    assert chosen[:2] == [[1, 2], [1, 3]]
    assert chosen[2] == [2, 3]
    assert chosen[3] == [1, 2]


def test_f3ast_divides_by_the_capacity_also_when_fewer_are_there() -> None:
    # The authors' code divides by K, the number of clients a round is meant to have.
    full = one_client(fedawe.F3AST(beta=0.1, normalise="clients"), "x", m=6)[0]
    assert one_client(fedawe.F3AST(beta=0.1, capacity=3, normalise="capacity"), "x", m=6)[0] == pytest.approx(full / 3)


def test_mifa_moves_in_empty_rounds_and_fedvarp_does_not() -> None:
    assert one_client(fedawe.MIFA(), "x..x", m=2) == pytest.approx([0.5, 0.5, 0.5, 0.5])
    assert one_client(fedawe.FedVARP(), "x..x", m=2) == pytest.approx([1, 0, 0, 0.5])


def test_mifa_waits_for_everyone_if_told_to() -> None:
    mifa_ = fedawe.MIFA(warmup="all-seen")
    state, one = mifa_.init(torch.zeros(1), 2), torch.ones(1, 1)
    for t, (i, x) in enumerate([(0, 0.0), (0, 0.0), (1, -1.0), (0, -2.0)]):
        state = mifa_.aggregate(state, t, torch.tensor([i]), one)
        assert float(mifa_.model(state)) == x


@pytest.mark.parametrize("kind", [fedawe.MIFA, fedawe.FedVARP])
def test_an_old_memory_keeps_its_old_step_unless_it_is_stored_by_rate(kind: type[Any]) -> None:
    rate = fedawe.Rate(0.1)
    for memory_rate, expected in ((None, rate(0) / 2), (rate, rate(1) / 2)):
        algorithm = kind(memory_rate=memory_rate)
        # Each of two clients pushes with its learning rate along its own coordinate; client 1 is there in round 0 only.
        pushes = torch.eye(2, dtype=torch.float64)
        first = algorithm.init(torch.zeros(2, dtype=torch.float64), 2)
        first = algorithm.aggregate(first, 0, torch.tensor([0, 1]), rate(0) * pushes)
        second = algorithm.aggregate(first, 1, torch.tensor([0]), rate(1) * pushes[:1])
        assert float((algorithm.model(first) - algorithm.model(second))[1]) == pytest.approx(expected)


def test_known_p_divides_by_the_probability_of_this_round_and_this_client() -> None:
    p = torch.tensor([[0.5, 0.2], [0.25, 1.0]], dtype=torch.float64)
    known = fedawe.FedAvgKnown(p)
    state = known.init(torch.zeros(2, dtype=torch.float64), 2)
    for t in range(2):
        state = known.aggregate(state, t, torch.tensor([1, 0]), torch.eye(2, dtype=torch.float64)[[1, 0]])
    assert known.model(state).tolist() == pytest.approx([-(2 + 4) / 2, -(5 + 1) / 2])


def test_known_p_refuses_who_cannot_have_been_there_and_rounds_without_p() -> None:
    known = fedawe.FedAvgKnown(torch.tensor([[0.5, 0.0]]))
    state = known.init(torch.zeros(1), 2)
    with pytest.raises(fedawe.UserError, match="client 1 was there in round 0"):
        known.aggregate(state, 0, torch.tensor([0, 1]), torch.ones(2, 1))
    with pytest.raises(fedawe.UserError, match="rounds 0 to 0, but this is round 1"):
        known.aggregate(state, 1, torch.tensor([0]), torch.ones(1, 1))


def test_known_p_keeps_its_own_copy_of_p() -> None:
    p = np.full((1, 1), 0.5)
    known = fedawe.FedAvgKnown(p)
    p[:] = 1.0
    assert one_client(known, "x") == pytest.approx([2.0])


@pytest.mark.parametrize("algorithm", [fedawe.FedAvg(eta_g=0.7, clip=0.4), fedawe.FedAWE(eta_g=0.7, clip=0.4)])
def test_clip_gives_the_same_step_whatever_the_size_of_the_innovation(algorithm: Any) -> None:
    # In float32 the square of 1e25 is infinite, the number itself is not.
    state = algorithm.init(torch.zeros(2), 1)
    state = algorithm.aggregate(state, 0, torch.tensor([0]), torch.tensor([[3e25, -4e25]]))
    expected = algorithm.eta_g * algorithm.clip * torch.tensor([-0.6, 0.8])
    torch.testing.assert_close(algorithm.model(state), expected)
