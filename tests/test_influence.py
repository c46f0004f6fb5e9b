"""Who counts how much: the fast way equals the definition, and the definition is what training does."""

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

import fedawe
from fedawe.audit import by_identity, influence
from fedawe.availability.trace import Trace
from fedawe.core.errors import UserError

# Every kind of rule and every option that changes a weight; p is what known-p is told.
RULES = {
    "fedawe": lambda p: fedawe.FedAWE(),
    "fedawe max_echo": lambda p: fedawe.FedAWE(eta_g=0.7, max_echo=2),
    "fedavg": lambda p: fedawe.FedAvg(eta_g=0.7),
    "fedavg-all": lambda p: fedawe.FedAvgAll(),
    "fedavg-known": lambda p: fedawe.FedAvgKnown(p),
    "fedau": lambda p: fedawe.FedAU(),
    "fedau K": lambda p: fedawe.FedAU(K=2),
    "f3ast": lambda p: fedawe.F3AST(),
    "f3ast clients": lambda p: fedawe.F3AST(beta=0.1, normalise="clients"),
    "f3ast share": lambda p: fedawe.F3AST(beta=0.3, r0="share"),
    "f3ast capacity": lambda p: fedawe.F3AST(beta=0.2, capacity=2, normalise="capacity"),
    "f3ast by number": lambda p: fedawe.F3AST(beta=0.2, normalise="capacity"),
    "mifa": lambda p: fedawe.MIFA(),
    "mifa warmup": lambda p: fedawe.MIFA(eta_g=0.7, warmup="all-seen"),
    "fedvarp": lambda p: fedawe.FedVARP(),
}


@st.composite
def traces(draw, max_m=5, max_rounds=12):
    """Anyone may be there in any round; some rounds and some clients have nobody and nothing."""
    m, T = draw(st.integers(1, max_m)), draw(st.integers(1, max_rounds))
    return Trace([[draw(st.booleans()) for _ in range(m)] for _ in range(T)])


def probabilities(trace):
    return np.random.default_rng(0).uniform(0.1, 1.0, trace.on.shape)


@pytest.mark.parametrize("latest", [False, True], ids=["model", "latest"])
@pytest.mark.parametrize("rule", RULES)
@given(trace=traces(), data=st.data())
@settings(max_examples=40)
def test_the_fast_way_is_the_definition(rule, latest, trace, data):
    algorithm = RULES[rule](probabilities(trace))
    after = sorted(data.draw(st.sets(st.integers(1, trace.rounds), min_size=1, max_size=4)))
    expected, found = (way(algorithm, trace, after, latest).counted for way in (by_identity, influence))
    np.testing.assert_allclose(found, expected, rtol=1e-12, atol=1e-13)


def run(algorithm, trace, G):
    """The model and the last aggregate after the trace, when client i answers G[t, i] [d]."""
    state = algorithm.init(torch.zeros(G.shape[2], dtype=torch.float64), trace.clients)
    for t in range(trace.rounds):
        A = trace.active(t)
        state = algorithm.aggregate(state, t, A, G[t, A])
    return algorithm.model(state), state.latest


@pytest.mark.parametrize("rule", RULES)
@given(trace=traces(max_m=3, max_rounds=6), seed=st.integers(0, 2**32 - 1))
@settings(max_examples=10)
def test_the_definition_is_what_perturbing_a_run_shows(rule, trace, seed):
    """x is linear in every answer: the coefficients of all answers of a client add up to its influence."""
    algorithm = RULES[rule](probabilities(trace))
    draw = np.random.default_rng(seed)
    G = torch.from_numpy(draw.normal(size=(trace.rounds, trace.clients, 2)))
    v = torch.tensor([1.0, -2.0], dtype=torch.float64)
    models = run(algorithm, trace, G)
    for latest in (False, True):
        counted = np.zeros(trace.clients)
        for t, i in zip(*np.nonzero(trace.on), strict=True):
            perturbed = G.clone()
            perturbed[t, i] += v
            change = run(algorithm, trace, perturbed)[latest] - models[latest]
            torch.testing.assert_close(change, change[0] * v, rtol=0, atol=1e-9)  # along v, in no other direction
            counted[i] -= float(change[0])
        np.testing.assert_allclose(by_identity(algorithm, trace, latest=latest).counted[0], counted, rtol=0, atol=1e-9)


@given(trace=traces(max_m=8, max_rounds=30), eta_g=st.sampled_from([1.0, 0.7, 3.0]), data=st.data())
@settings(max_examples=200)
def test_fedawe_counts_everyone_of_the_last_round_exactly_the_same(trace, eta_g, data):
    """Proposition 1, for every trace and every last round R: (tau_i + 1)/m, so R/m for all that are active in R - 1."""
    after = sorted(data.draw(st.sets(st.integers(1, trace.rounds), min_size=1, max_size=4)))
    found = influence(fedawe.FedAWE(eta_g=eta_g), trace, after)
    for R, counted in zip(after, found.counted, strict=True):
        on = trace.on[:R]
        assert (counted[on[-1]] == eta_g * (R / trace.clients)).all()
        last = np.where(on.any(0), R - 1 - on[::-1].argmax(0), -1)
        assert (counted == eta_g * ((last + 1) / trace.clients)).all()
    assert len(set(found.shares[trace.on[after[-1] - 1]])) <= 1


def test_fedawe_is_exactly_uniform_where_thirds_and_sevenths_would_not_add_up():
    trace = Trace.draw(fedawe.Stationary(), np.linspace(0.1, 0.9, 6), rounds=1000, seed=0)
    on = np.concatenate([np.concatenate([trace.on, ~trace.on[:, :1]], axis=1), np.ones((1, 7), bool)])
    found = influence(fedawe.FedAWE(), Trace(on))
    assert set(found.counted[0]) == {1001 / 7}
    assert len(set(found.shares)) == 1


@pytest.mark.parametrize("rule", [name for name in RULES if "capacity" not in name])
def test_everyone_always_there_counts_the_same(rule):
    trace = Trace(np.ones((9, 4)))
    found = influence(RULES[rule](np.ones((9, 4))), trace)
    assert found.total_variation == pytest.approx(0, abs=1e-15)
    assert found.effective_clients == pytest.approx(4)


@pytest.mark.parametrize("latest", [False, True], ids=["model", "latest"])
@pytest.mark.parametrize("rule", RULES)
def test_training_goes_where_influence_points(rule, latest):
    """Quadratics with optima far apart: after small steps x = eta_l sum_i c_i u_i, for every rule and both models."""
    trace = Trace.draw(fedawe.Sine(), [0.9, 0.5, 0.2, 0.1], rounds=60, seed=3)
    u = torch.diag(torch.tensor([100.0, -50.0, 25.0, 400.0], dtype=torch.float64))
    algorithm, eta = RULES[rule](probabilities(trace)), 1e-9
    local = fedawe.Local(fedawe.Rate(eta, "constant"), steps=1)
    *_, last = fedawe.simulate(fedawe.Quadratic(u), algorithm, trace, local, seed=0)
    x = last.state.latest if latest else last.x
    counted = influence(algorithm, trace, latest=latest).counted[0]
    np.testing.assert_allclose(x.numpy() / eta, counted @ u.numpy(), rtol=1e-5)


def test_training_settles_where_influence_settles():
    """Long runs forget their beginning: the mean of the iterates is where the shares since then put it."""
    rounds, forgotten = 4000, 800
    trace = Trace.draw(fedawe.Stationary(), [0.9, 0.3], rounds=rounds, seed=0)
    u = torch.tensor([[0.0], [100.0]], dtype=torch.float64)
    local = fedawe.Local(fedawe.Rate(0.01, "constant"), steps=1)

    def settled(algorithm):
        run = fedawe.simulate(fedawe.Quadratic(u), algorithm, trace, local, seed=0)
        return float(np.mean([float(r.x) for r in run][forgotten:]))

    def predicted(algorithm):
        counted = influence(algorithm, trace, after=[forgotten, rounds]).counted
        since = counted[1] - counted[0]
        return float(since @ u.numpy()[:, 0] / since.sum())

    assert settled(fedawe.FedAvg()) == pytest.approx(predicted(fedawe.FedAvg()), abs=0.5)
    assert predicted(fedawe.FedAvg()) == pytest.approx(17.742, abs=1.0)  # 50 p2 (2 - p1) / (p1 + p2 - p1 p2)
    assert settled(fedawe.FedAWE()) == pytest.approx(predicted(fedawe.FedAWE()), abs=0.5)
    assert predicted(fedawe.FedAWE()) == pytest.approx(50, abs=0.1)


def test_one_who_never_comes_counts_nothing_and_nobody_at_all_is_no_crash():
    trace = Trace([[1, 0], [1, 0]])
    for rule in RULES:
        found = influence(RULES[rule](np.full((2, 2), 0.5)), trace)
        assert found.counted[0, 1] == 0
    empty = Trace([[0, 0], [0, 0]])
    found = influence(fedawe.FedAvg(), empty)
    assert found.total_variation == 1
    assert found.effective_clients == 0
    assert found.shares.tolist() == [0, 0]


def test_measures():
    found = influence(fedawe.FedAvg(), Trace([[1, 1, 0, 0], [1, 0, 0, 0]]), after=[1, 2])
    np.testing.assert_allclose(found.counted, [[0.5, 0.5, 0, 0], [1.5, 0.5, 0, 0]])
    np.testing.assert_allclose(found.fair, [3, 1, 0, 0])
    assert found.total_variation == pytest.approx(0.5)
    assert found.among(np.array([True, True, False, False])) == pytest.approx(0.25)
    assert found.effective_clients == pytest.approx(1.6)
    assert found.speed == 1
    np.testing.assert_allclose(found.over_time(), [0.5, 0.5])
    assert found.forgotten(3) == [2, 3, 1]


def test_an_algorithm_of_ones_own_goes_by_the_definition():
    class Halved(fedawe.FedAvg):
        """Moves half as far."""

        def aggregate(self, state, t, A, G):
            return super().aggregate(state, t, A, G / 2)

    assert influence(Halved(), Trace([[1, 0], [1, 1]])).counted.tolist() == [[0.75, 0.25]]


@pytest.mark.parametrize(
    ("algorithm", "after", "said"),
    [
        (fedawe.FedAWE(clip=0.5), None, "a clip is not linear"),
        (fedawe.MIFA(memory_rate=lambda t: 0.1), None, "memory_rate depends on the learning rates"),
        (fedawe.FedAvg(), [0], "must increase within 1 to 2 rounds"),
        (fedawe.FedAvg(), [2, 1], "must increase within 1 to 2 rounds"),
        (fedawe.FedAvg(), [3], "must increase within 1 to 2 rounds"),
        (fedawe.FedAvgKnown(np.array([[1.0, 0.5], [0.0, 0.5]])), None, "its p is 0"),
    ],
)
def test_what_cannot_be_audited_is_refused(algorithm, after, said):
    with pytest.raises(UserError, match=said):
        influence(algorithm, Trace([[1, 0], [1, 1]]), after)
