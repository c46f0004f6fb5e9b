"""FedAWE against Algorithm 1 with a copy of the model per client, and what the paper proves of it."""

import importlib.util
import itertools
import tracemalloc
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

import fedawe
from fedawe.algorithms.versions import Versions

_path = Path(__file__).parents[1] / "examples" / "literal.py"
_spec = importlib.util.spec_from_file_location("literal", _path)
assert _spec is not None
assert _spec.loader is not None
literal: Any = importlib.util.module_from_spec(_spec)
_spec.loader.exec_module(literal)

D = 3
U = torch.from_numpy(np.random.default_rng(4).normal(size=(6, D)))  # where each of up to six clients is drawn to
X0 = torch.tensor([0.3, -1.2, 2.0], dtype=torch.float64)
Map = Callable[[int, int, Tensor], Tensor]


def local(t: int, i: int, x: Tensor) -> Tensor:
    """s steps of somebody's training: nonlinear, another for every client and every round, and deterministic."""
    return x - 0.1 / (1 + 0.2 * t) * (torch.sinh(0.3 * (x - U[i])) + 0.2 * torch.cos(5 * x + i))


def local_of_client(t: int, i: int, x: Tensor) -> Tensor:
    """The same in every round."""
    return local(0, i, x)


@st.composite
def availability(draw: Any) -> tuple[int, list[list[int]]]:
    """The number of clients, and who is there round by round."""
    m = draw(st.integers(1, 6))
    return m, draw(st.lists(st.lists(st.integers(0, m - 1), unique=True), max_size=25))


Case = tuple[int, list[list[int]]]
rates = st.sampled_from([1.0, 0.5, 1.7])


def play(algorithm: fedawe.FedAWE, case: Case, step: Map = local) -> list[Versions]:
    """The states before, between and after the rounds."""
    m, active = case
    states = [algorithm.init(X0, m)]
    for t, clients in enumerate(active):
        A = torch.tensor(clients, dtype=torch.int64)
        X = algorithm.start(states[-1], A)
        G = torch.stack([x - step(t, i, x) for i, x in zip(clients, X, strict=True)]) if clients else X
        states.append(algorithm.aggregate(states[-1], t, A, G))
    return states


# Algorithm 1


@given(case=availability(), eta_g=rates)
def test_it_is_algorithm_1_with_a_copy_per_client(case: Case, eta_g: float) -> None:
    m, active = case
    algorithm = fedawe.FedAWE(eta_g)
    for rounds, state in enumerate(play(algorithm, case)):
        x, tau, latest = literal.fedawe(X0, m, active[:rounds], local, eta_g)
        torch.testing.assert_close(algorithm.start(state, torch.arange(m)), torch.stack(x), rtol=0, atol=1e-9)
        torch.testing.assert_close(state[torch.arange(m)], torch.stack(x), rtol=0, atol=1e-9)
        torch.testing.assert_close(state.latest, latest, rtol=0, atol=1e-9)
        torch.testing.assert_close(algorithm.model(state), torch.stack(x).mean(0), rtol=0, atol=1e-9)
        assert state.tau.tolist() == tau
        assert state.t == rounds - 1


def test_start_gives_the_rows_in_the_order_asked_for() -> None:
    state = play(fedawe.FedAWE(), (4, [[0], [1], [3, 0]]))[-1]
    everyone = fedawe.FedAWE().start(state, torch.arange(4))
    some = torch.tensor([3, 1, 2])
    assert torch.equal(fedawe.FedAWE().start(state, some), everyone[some])
    assert torch.equal(everyone[2], X0)
    assert len({tuple(row) for row in everyone[:3].tolist()}) == 3
    assert torch.equal(everyone[3], everyone[0])


@given(case=availability(), eta_g=rates, c=st.sampled_from([0.01, 0.05, 0.2, 100.0]))
def test_clip_is_that_of_the_authors_code(case: Case, eta_g: float, c: float) -> None:
    """n_i starts at 1, grows by 1 in a missed round and is 1 again after an active one.

    x^{t+1} = (1/k) sum_A x_i + eta_g clip_c((1/k) sum_A n_i Delta_i).
    """
    m, active = case
    x, n, latest = [X0.clone() for _ in range(m)], [1] * m, X0
    states = play(fedawe.FedAWE(eta_g, clip=c), case)
    for t, clients in enumerate(active):
        if clients:
            update = sum(n[i] * (local(t, i, x[i]) - x[i]) for i in clients) / len(clients)
            norm = float((update**2).sum()) ** 0.5
            latest = sum(x[i] for i in clients) / len(clients) + eta_g * (update if norm <= c else c * update / norm)
        for i in range(m):
            n[i] = 1 if i in clients else n[i] + 1
            x[i] = latest if i in clients else x[i]
        torch.testing.assert_close(states[t + 1][torch.arange(m)], torch.stack(x), rtol=0, atol=1e-9)
        torch.testing.assert_close(states[t + 1].latest, latest, rtol=0, atol=1e-9)


@given(case=availability(), most=st.integers(1, 4))
def test_max_echo_bounds_every_echo_and_nothing_else(case: Case, most: int) -> None:
    m, active = case
    x, tau = [X0.clone() for _ in range(m)], [-1] * m
    states = play(fedawe.FedAWE(max_echo=most), case)
    for t, clients in enumerate(active):
        if clients:
            shared = sum(x[i] - min(t - tau[i], most) * (x[i] - local(t, i, x[i])) for i in clients) / len(clients)
        for i in clients:
            x[i], tau[i] = shared, t
        torch.testing.assert_close(states[t + 1][torch.arange(m)], torch.stack(x), rtol=0, atol=1e-9)
        assert states[t + 1].tau.tolist() == tau  # time is not bounded, only what is made of it


@given(case=availability(), most=st.integers(1, 4))
def test_what_a_largest_echo_cuts_off_can_be_owed(case: Case, most: int) -> None:
    m, active = case
    x, owed = [X0.clone() for _ in range(m)], [0] * m
    states = play(fedawe.FedAWE(max_echo=most, carry=True), case)
    for t, clients in enumerate(active):
        owed = [rounds + 1 for rounds in owed]
        echo = [min(rounds, most) for rounds in owed]
        if clients:
            shared = sum(x[i] - echo[i] * (x[i] - local(t, i, x[i])) for i in clients) / len(clients)
        for i in clients:
            x[i], owed[i] = shared, owed[i] - echo[i]
        torch.testing.assert_close(states[t + 1][torch.arange(m)], torch.stack(x), rtol=0, atol=1e-9)
        assert (t - states[t + 1].paid).tolist() == owed


def test_who_comes_late_echoes_once_for_every_round_so_far() -> None:
    one, g = torch.tensor([1]), torch.full((1, 1), 0.01, dtype=torch.float64)
    for t in (0, 1, 7, 100):
        state = fedawe.FedAWE().init(torch.zeros(1, dtype=torch.float64), 3)
        state = fedawe.FedAWE().aggregate(state, t, one, g)
        assert float(state.latest) == pytest.approx(-(t + 1) * 0.01)
        assert float(fedawe.FedAWE().model(state)) == pytest.approx(-(t + 1) * 0.01 / 3)
    clipped = fedawe.FedAWE(eta_g=2.0, clip=0.5)
    state = clipped.aggregate(clipped.init(torch.zeros(1, dtype=torch.float64), 3), 100, one, g)
    assert float(state.latest) == pytest.approx(-2.0 * 0.5)  # bounded by clip eta_g, whatever the echo


# What is proved of it


@given(case=availability(), eta_g=rates)
def test_the_pathwise_identity(case: Case, eta_g: float) -> None:
    """z_i^t = x_i^t - eta_g (e_i(t) - 1) G_i(x_i^t) has zbar^{t+1} = zbar^t - eta_g (1/m) sum_i G_i(x_i^t), always."""
    m, _ = case
    everyone = torch.arange(m)

    def G(x: Tensor) -> Tensor:
        return torch.stack([row - local_of_client(0, i, row) for i, row in enumerate(x)])

    states = play(fedawe.FedAWE(eta_g), case, local_of_client)
    z_bar = [
        (state[everyone] - eta_g * (t - state.tau - 1)[:, None].double() * G(state[everyone])).mean(0)
        for t, state in enumerate(states)
    ]
    for t, state in enumerate(states[:-1]):
        torch.testing.assert_close(z_bar[t + 1], z_bar[t] - eta_g * G(state[everyone]).mean(0), rtol=0, atol=1e-9)


@given(case=availability(), eta_g=rates)
def test_proposition_1_every_client_weighs_the_same_up_to_its_last_round(case: Case, eta_g: float) -> None:
    """sum_{t<R} 1{i in A^t} (t - tau_i(t)) = R if i was there in round R-1; what x-bar has of each client, times m."""
    m, active = case
    algorithm = fedawe.FedAWE(eta_g)
    state = algorithm.init(torch.zeros(m, dtype=torch.float64), m)
    for t, clients in enumerate(active):
        A = torch.tensor(clients, dtype=torch.int64)
        state = algorithm.aggregate(state, t, A, torch.eye(m, dtype=torch.float64)[A])  # client i along coordinate i
        weight = -algorithm.model(state) * m / eta_g
        last = [max((q for q in range(t + 1) if i in active[q]), default=-1) for i in range(m)]
        torch.testing.assert_close(weight, torch.tensor(last, dtype=torch.float64) + 1, rtol=0, atol=1e-9)


@given(case=availability(), eta_g=rates)
def test_x_bar_moves_by_the_echoes_alone(case: Case, eta_g: float) -> None:
    """x-bar^{t+1} = x-bar^t - (eta_g/m) sum_A (t - tau_i) G_i: what the gossip does to the models cancels in it."""
    m, active = case
    algorithm = fedawe.FedAWE(eta_g)
    states = play(algorithm, case)
    for t, clients in enumerate(active):
        x, tau = states[t][torch.arange(m)], states[t].tau
        push = sum(((t - int(tau[i])) * (x[i] - local(t, i, x[i])) for i in clients), torch.zeros_like(X0))
        expected = algorithm.model(states[t]) - eta_g / m * push
        torch.testing.assert_close(algorithm.model(states[t + 1]), expected, rtol=0, atol=1e-9)


@given(case=availability())
def test_on_example_1_the_mean_over_time_of_x_bar_is_the_optimum_but_for_the_ends(case: Case) -> None:
    """(1/T) sum_t xbar^t - ubar = (zbar^0 - zbar^T)/(b T) for every trace."""
    m, active = case
    if not active:
        return
    b, eta_g, T = 0.15, 0.5, len(active)
    algorithm = fedawe.FedAWE(eta_g)
    states = play(algorithm, case, lambda t, i, x: x - b / eta_g * (x - U[i]))
    end = states[-1]
    echo = (T - end.tau)[:, None].double()
    z_T = (end[torch.arange(m)] - b * (echo - 1) * (end[torch.arange(m)] - U[:m])).mean(0)
    mean_over_time = torch.stack([algorithm.model(state) for state in states[:-1]]).mean(0)
    torch.testing.assert_close(mean_over_time - U[:m].mean(0), (X0 - z_T) / (b * T), rtol=0, atol=1e-9)


# Versions instead of copies


@given(case=availability())
def test_the_live_versions_are_the_distinct_tau(case: Case) -> None:
    for state in play(fedawe.FedAWE(), case):
        tau = state.tau.tolist()
        assert set(state.models) == set(state.holders) == set(tau)
        assert state.holders == {v: tau.count(v) for v in set(tau)}


@given(case=availability())
def test_a_version_is_stored_once_however_many_states_have_it(case: Case) -> None:
    states = play(fedawe.FedAWE(), case)
    for before, after in itertools.pairwise(states):
        shared = set(before.models) & set(after.models)
        assert all(before.models[v] is after.models[v] for v in shared)


def test_a_million_clients() -> None:
    m, k, d = 1_000_000, 1_000, 4
    draw = np.random.default_rng(0)
    algorithm = fedawe.FedAWE()
    state = algorithm.init(torch.zeros(d, dtype=torch.float64), m)
    tau = np.full(m, -1)
    weight = np.zeros(m)
    for t in range(12):
        A = draw.choice(m if t % 3 else 3 * k, k, replace=False)  # every third round, the same few come back
        weight[A] += t - tau[A]
        tau[A] = t
        tracemalloc.start()  # counts what Python allocates, not what torch does
        X = algorithm.start(state, torch.from_numpy(A))
        state = algorithm.aggregate(state, t, torch.from_numpy(A), torch.ones(k, d, dtype=torch.float64))
        x_bar = algorithm.model(state)
        _, peak = tracemalloc.get_traced_memory()
        tracemalloc.stop()
        assert X.shape == (k, d)
        assert peak < 1_000_000  # a list with an entry per client would be eight times that
        assert len(state.models) == len(np.unique(tau)) <= t + 2
        np.testing.assert_array_equal(state.tau.numpy(), tau)
        np.testing.assert_allclose(x_bar.numpy(), -weight.sum() / m, rtol=1e-9)


# Clients that are absent for very long, and clients that are never active


def test_the_number_of_versions_has_a_bound() -> None:
    algorithm = fedawe.FedAWE(max_absence=7)
    state = algorithm.init(torch.zeros(1), 50)
    for t in range(200):
        state = algorithm.aggregate(state, t, torch.tensor([t % 50]), torch.ones(1, 1))
        assert len(state.models) <= 8
        assert (state.t + 1 - state.tau <= 7).all()
        assert sum(state.holders.values()) == 50


def test_the_average_over_active_clients_is_the_paper_s_among_them() -> None:
    """A federation that counts 27 clients too many arrives where one of the right size does (Proposition 1 there)."""
    draw = torch.Generator().manual_seed(0)
    few, many = fedawe.FedAWE(), fedawe.FedAWE(average="active")
    x0 = torch.randn(4, generator=draw, dtype=torch.float64)
    small, large = few.init(x0, 3), many.init(x0, 30)
    total = torch.zeros(4, dtype=torch.float64)
    for t in range(12):
        A = torch.randperm(3, generator=draw)[: 1 + t % 3]
        G = torch.randn(len(A), 4, generator=draw, dtype=torch.float64)
        total += ((t - small.tau[A])[:, None] * G).sum(0)
        small, large = few.aggregate(small, t, A, G), many.aggregate(large, t, A, G)
    assert (small.tau >= 0).all()
    torch.testing.assert_close(many.model(large), few.model(small), rtol=1e-12, atol=1e-12)
    torch.testing.assert_close(many.model(large), x0 - total / 3, rtol=1e-12, atol=1e-12)
    torch.testing.assert_close(fedawe.FedAWE().model(large), x0 - total / 30, rtol=1e-12, atol=1e-12)


def test_clients_that_were_never_active_do_not_count_however_short_an_absence_may_be() -> None:
    """Without max_absence the same, since no client that is active was away for long."""
    bounded, free = (fedawe.FedAWE(max_absence=limit, average="active") for limit in (3, None))
    states = [algorithm.init(torch.zeros(1), 50) for algorithm in (bounded, free)]
    for t in range(12):
        A, G = torch.tensor([t % 3]), torch.tensor([[1.0 + t]])
        states = [rule.aggregate(state, t, A, G) for rule, state in zip((bounded, free), states, strict=True)]
    torch.testing.assert_close(bounded.model(states[0]), free.model(states[1]))
    assert (states[0].tau >= 0).all(), "the other 47 hold a newer version, which a client that joins begins with"


def test_before_anyone_is_active_every_average_is_the_initial_model() -> None:
    for average in ("all", "active"):
        algorithm = fedawe.FedAWE(average=average)
        assert torch.equal(algorithm.model(algorithm.init(torch.arange(3.0), 5)), torch.arange(3.0))


def test_a_deployment_takes_the_average_over_active_clients_unless_told_otherwise() -> None:
    assert fedawe.FedAWE(clip=0.5).deployed() == fedawe.FedAWE(clip=0.5, average="active")
    assert fedawe.FedAWE(average="all").deployed().average == "all"
    with pytest.raises(fedawe.UserError, match="average is 'some'; expected 'all' or 'active'"):
        fedawe.FedAWE(average="some")
    with pytest.raises(fedawe.UserError, match="max_absence is 0"):
        fedawe.FedAWE(max_absence=0)
