"""The paper's Example 1, F_i(x) = (x - u_i)^2 / 2, in closed form: where each algorithm ends up, and how far off.

s steps of rate eta_l make Delta_i = -a (x - u_i) with a = 1 - (1 - eta_l)^s, and b = eta_g a. The coordinates of one
run have different curvatures and so different b: one run is a test of several.

Two ways to an expectation. Where the algorithm has no memory, the mean over the next round is summed over all 2^m sets
of active clients, to rounding error. Otherwise a long run is averaged over time, and its standard error is that of the
means of 40 batches of at least 100 rounds, ten times the memory of the process (some 1/b rounds, b from 0.1) and
therefore nearly independent; a closed form may be 4.5 of those standard errors away.
"""

import itertools
import math
from typing import Any

import numpy as np
import pytest
import torch

import fedawe

STANDARD_ERRORS = 4.5
BATCHES = 40
F64 = torch.float64


def two_clients(curvatures: list[float]) -> fedawe.Quadratic:
    """u = (0, 100) in every coordinate."""
    d = len(curvatures)
    u = torch.tensor([[0.0] * d, [100.0] * d], dtype=F64)
    return fedawe.Quadratic(u, torch.tensor([curvatures] * 2, dtype=F64))


def local_for(steps: int, b: list[float], eta_g: float = 1.0) -> tuple[fedawe.Quadratic, fedawe.Local]:
    """The task and the training whose coordinates have these b: 1 - (1 - eta_l h)^s = b / eta_g, eta_l = 0.1."""
    eta_l = 0.1
    h = [(1 - (1 - one / eta_g) ** (1 / steps)) / eta_l for one in b]
    return two_clients(h), fedawe.Local(fedawe.Rate(eta_l, "constant"), steps=steps)


def averages(samples: list[torch.Tensor]) -> tuple[np.ndarray, np.ndarray]:
    """The mean over time of [T, ...] and its standard error, by batch means; the first tenth is left out."""
    x = torch.stack(samples).numpy()
    x = x[len(x) // 10 :]
    length = len(x) // BATCHES
    assert length >= 100
    means = x[: length * BATCHES].reshape(BATCHES, length, *x.shape[1:]).mean(1)
    return means.mean(0), means.std(0, ddof=1) / math.sqrt(BATCHES)


def within(samples: list[torch.Tensor], expected: Any, most: float) -> None:
    """The mean over time is as expected, and known to `most`: otherwise the comparison would be worth little."""
    mean, error = averages(samples)
    assert (error < most).all(), error
    np.testing.assert_array_less(np.abs(mean - np.asarray(expected)), STANDARD_ERRORS * error)


def expected_weights(algorithm: Any, p: list[float]) -> torch.Tensor:
    """E[w_i 1{i in A}] [m], summed over all sets A; client i pushes along coordinate i, so a step shows the weights."""
    m = len(p)
    state = algorithm.init(torch.zeros(m, dtype=F64), m)
    total = torch.zeros(m, dtype=F64)
    for there in itertools.product([False, True], repeat=m):
        chance = math.prod(one if on else 1 - one for one, on in zip(p, there, strict=True))
        if chance:  # known-p refuses what cannot happen
            A = torch.tensor(there).nonzero().flatten()
            total += chance * -algorithm.model(algorithm.aggregate(state, 0, A, torch.eye(m, dtype=F64)[A]))
    return total


PAIRS = [(0.9, 0.3), (0.2, 0.8), (0.5, 0.5), (1.0, 0.1), (0.0, 0.4), (1.0, 1.0), (0.01, 0.02)]
SEVERAL = [[0.3], [0.9, 0.3], [0.2, 0.5, 0.7], [0.9, 0.1, 0.4, 0.05, 1.0], [0.6, 0.6, 0.0, 0.3]]


# FedAvg over active clients, 6.1


@pytest.mark.parametrize("p", PAIRS)
def test_fedavg_one_round_in_expectation(p: tuple[float, float]) -> None:
    """E[x'] = (1 - bq) x + b [u1 (p1 - p1 p2/2) + u2 (p2 - p1 p2/2)]: exact, for any x."""
    p1, p2 = p
    q = p1 + p2 - p1 * p2
    u, x, eta_g, a = torch.tensor([0.0, 100.0], dtype=F64), 30.0, 0.8, 0.25
    fedavg = fedawe.FedAvg(eta_g)
    state, mean = fedavg.init(torch.tensor([x], dtype=F64), 2), 0.0
    for there in itertools.product([0, 1], repeat=2):
        A = torch.tensor(there).nonzero().flatten()
        chance = math.prod(one if on else 1 - one for one, on in zip(p, there, strict=True))
        mean += chance * float(fedavg.model(fedavg.aggregate(state, 0, A, a * (x - u[A])[:, None])))
    b = eta_g * a
    assert mean == pytest.approx((1 - b * q) * x + b * 100 * (p2 - p1 * p2 / 2), abs=1e-10)


@pytest.mark.parametrize("p", PAIRS)
def test_fedavg_ends_where_figure_2_says(p: tuple[float, float]) -> None:
    """|E[x_output] - 50| = 50 |p1 - p2| / (p1 + p2 - p1 p2)."""
    p1, p2 = p
    pi = expected_weights(fedawe.FedAvg(), [p1, p2])
    x_output = float(100 * pi[1] / pi.sum())
    assert x_output == pytest.approx(100 * p2 * (1 - p1 / 2) / (p1 + p2 - p1 * p2), abs=1e-10)
    assert abs(x_output - 50) == pytest.approx(50 * abs(p1 - p2) / (p1 + p2 - p1 * p2), abs=1e-10)


@pytest.mark.parametrize("p", SEVERAL)
def test_fedavg_weights_of_any_number_of_clients(p: list[float]) -> None:
    """pi_i = p_i sum_k P(|A without i| = k)/(k+1), and their sum is P(A not empty)."""
    pi = expected_weights(fedawe.FedAvg(), p)
    for i, chance in enumerate(p):
        others = np.ones(1)  # the law of how many of the others are there
        for other in p[:i] + p[i + 1 :]:
            others = np.convolve(others, [1 - other, other])
        assert float(pi[i]) == pytest.approx(chance * sum(others / (np.arange(len(others)) + 1)), abs=1e-12)
    assert float(pi.sum()) == pytest.approx(1 - math.prod(1 - chance for chance in p), abs=1e-12)


@pytest.mark.parametrize(("p", "printed"), [((0.9, 0.3), 17.742), ((0.2, 0.8), 85.714)])
def test_fedavg_runs_to_its_biased_limit_whatever_the_rate(p: tuple[float, float], printed: float) -> None:
    task, local = local_for(steps=5, b=[0.1, 0.15, 0.3])
    trace = fedawe.Trace.draw(fedawe.Stationary(), p, rounds=4_500, seed=1)
    runs = fedawe.simulate(task, fedawe.FedAvg(), trace, local, seed=0)
    expected = 100 * p[1] * (1 - p[0] / 2) / (p[0] + p[1] - p[0] * p[1])
    assert expected == pytest.approx(printed, abs=5e-4)
    within([one.x for one in runs], expected, most=0.5)


# FedAvg over all, known p, 6.2 and 6.3


@pytest.mark.parametrize("p", SEVERAL)
def test_fedavg_over_all_weighs_by_p(p: list[float]) -> None:
    """x_output = sum p_i u_i / sum p_i: the weights are p_i / m."""
    expected = torch.tensor(p, dtype=F64) / len(p)
    torch.testing.assert_close(expected_weights(fedawe.FedAvgAll(), p), expected, rtol=0, atol=1e-12)


@pytest.mark.parametrize("p", SEVERAL)
def test_known_p_weighs_everyone_the_same_who_ever_comes(p: list[float]) -> None:
    weights = expected_weights(fedawe.FedAvgKnown(torch.tensor([p], dtype=F64)), p)
    expected = torch.tensor([1.0 if chance else 0.0 for chance in p], dtype=F64) / len(p)
    torch.testing.assert_close(weights, expected, rtol=0, atol=1e-12)


def test_fedavg_over_all_runs_to_the_mean_weighted_by_p() -> None:
    task, local = local_for(steps=5, b=[0.1, 0.15])
    trace = fedawe.Trace.draw(fedawe.Stationary(), (0.9, 0.3), rounds=6_000, seed=2)
    within([one.x for one in fedawe.simulate(task, fedawe.FedAvgAll(), trace, local, seed=0)], 25.0, most=0.5)


def test_known_p_runs_to_the_mean() -> None:
    task, local = local_for(steps=5, b=[0.1, 0.15])
    trace = fedawe.Trace.draw(fedawe.Sine(), (0.9, 0.3), rounds=4_500, seed=3)  # also when p_i^t varies
    known = fedawe.FedAvgKnown(trace.p)
    within([one.x for one in fedawe.simulate(task, known, trace, local, seed=0)], 50.0, most=0.8)


# FedAU and F3AST, 6.3: the mean in the limit of exact weights


def test_fedau_learns_one_over_p_and_then_runs_to_the_mean() -> None:
    """omega_i is the mean of n_i intervals, of standard deviation sqrt(1-p)/p each: 1/p up to sqrt((1-p)/n_i)/p.

    With weights off by a share of e_i, x_output is off by 25 (e_2 - e_1); that adds to the error of the run.
    """
    p, rounds = np.array([0.9, 0.3]), 12_000
    task, local = local_for(steps=5, b=[0.1, 0.15])
    trace = fedawe.Trace.draw(fedawe.Stationary(), p, rounds, seed=4)
    states = list(fedawe.simulate(task, fedawe.FedAU(), trace, local, seed=0))
    share = np.sqrt((1 - p) / trace.on.sum(0))
    omega = states[-1].state.omega.numpy()
    np.testing.assert_array_less(np.abs(omega * p - 1), STANDARD_ERRORS * share)
    early = np.sqrt((1 - p) / (p * rounds / 10))  # the weights are at their worst where the average begins
    mean, error = averages([one.x for one in states])
    off = STANDARD_ERRORS * np.sqrt(error**2 + 25**2 * (early**2).sum())
    assert (off < 6).all()  # FedAvg over all would be off by 25
    np.testing.assert_array_less(np.abs(mean - 50), off)


@pytest.mark.parametrize("p", [0.1, 0.5, 0.9])
def test_f3ast_rates_have_the_mean_and_the_variance_of_a_moving_average(p: float) -> None:
    """E r(t) = p + (1-beta)^t (r(0) - p); in the long run the variance is beta/(2-beta) p (1-p).

    3000 clients with the same p are 3000 independent samples: the standard error of their mean is the deviation over
    sqrt(3000), that of their variance sqrt(2/3000) of it, as for a normal law (r is a sum of many small terms).
    """
    m, beta, rounds = 3000, 0.05, 200
    f3ast = fedawe.F3AST(beta=beta)
    trace = fedawe.Trace.draw(fedawe.Stationary(), [p] * m, rounds, seed=5)
    state = f3ast.init(torch.zeros(1, dtype=F64), m)
    for t in range(rounds):
        state = f3ast.aggregate(state, t, trace.active(t), torch.zeros(len(trace.active(t)), 1, dtype=F64))
        expected = p + (1 - beta) ** (t + 1) * (1 - p)
        variance = beta / (2 - beta) * p * (1 - p) * (1 - (1 - beta) ** (2 * (t + 1)))
        assert abs(float(state.r.mean()) - expected) < STANDARD_ERRORS * math.sqrt(variance / m)
    assert float(state.r.var()) == pytest.approx(beta / (2 - beta) * p * (1 - p), rel=STANDARD_ERRORS * (2 / m) ** 0.5)


# MIFA and FedVARP, 6.4


@pytest.mark.parametrize("algorithm", [fedawe.MIFA(), fedawe.FedVARP()], ids=repr)
def test_memories_converge_and_the_model_to_the_mean(algorithm: Any) -> None:
    # Nothing is random but who is there, and once the memories are right that no longer matters: no standard error.
    task, local = local_for(steps=5, b=[0.02, 0.05])
    trace = fedawe.Trace.draw(fedawe.Stationary(), (0.9, 0.3), rounds=3_000, seed=6)
    *_, last = fedawe.simulate(task, algorithm, trace, local, seed=0)
    torch.testing.assert_close(last.x, torch.full((2,), 50.0, dtype=F64), rtol=0, atol=1e-6)


# FedAWE, 6.6


def fedawe_limits(p1: float, p2: float, b: np.ndarray) -> dict[str, np.ndarray]:
    """E of x_1, x_2, x-bar and the last aggregate with u = (0, 100)."""
    kappa, U, q = 1 - (p1 + p2) / 2, 100.0, p1 + p2 - p1 * p2
    D = U * b * kappa / (p1 * p2 + b * kappa)
    X = (U - D) / 2
    server = 50 - (p1 - p2) * (D + b * X) / (2 * q)
    return {"x1": 50 - D / 2, "x2": 50 + D / 2, "x_bar": np.full_like(b, 50.0), "server": server}


def test_fedawe_limits_as_printed() -> None:
    limits = fedawe_limits(0.9, 0.3, np.array([0.1]))
    assert [round(float(limits[name][0]), 3) for name in ("x1", "x2", "server")] == [43.548, 56.452, 44.433]


@pytest.mark.parametrize("p", [(0.9, 0.3), (0.4, 0.7)])
def test_fedawe_runs_to_its_limits_and_x_bar_to_the_optimum(p: tuple[float, float]) -> None:
    b, eta_g = [0.1, 0.15, 0.2], 2.0
    task, local = local_for(steps=3, b=b, eta_g=eta_g)
    trace = fedawe.Trace.draw(fedawe.Stationary(), p, rounds=7_500, seed=7)
    seen: dict[str, list[torch.Tensor]] = {"x1": [], "x2": [], "x_bar": [], "server": []}
    for one in fedawe.simulate(task, fedawe.FedAWE(eta_g), trace, local, seed=0):
        own = one.state[torch.arange(2)]
        for name, x in zip(seen, (own[0], own[1], one.x, one.state.latest), strict=True):
            seen[name].append(x)
    limits = fedawe_limits(*p, np.array(b))
    for name, samples in seen.items():
        within(samples, limits[name], most=0.5)
    # That the test can tell them apart: the last aggregate is biased by more than the tolerance, x-bar is not.
    mean, error = averages(seen["server"])
    assert (np.abs(mean - 50) > STANDARD_ERRORS * error).all()


@pytest.mark.parametrize("p", [0.3, 0.7])
def test_fedawe_alone_has_a_second_moment_below_the_stated_rate(p: float) -> None:
    """One client: an absence of e rounds multiplies the distance by 1 - b e, and E (1 - b e)^2 < 1 iff b < 2p/(2-p)."""
    for b in (0.99 * 2 * p / (2 - p), 1.01 * 2 * p / (2 - p)):
        second, algorithm = 0.0, fedawe.FedAWE()
        for e in range(1, 250):  # (1 - 0.3)^250 is nothing
            state = algorithm.init(torch.ones(1, dtype=F64), 1)  # one away from u = 0
            state = algorithm.aggregate(state, e - 1, torch.tensor([0]), torch.tensor([[b]], dtype=F64))
            second += p * (1 - p) ** (e - 1) * float(algorithm.model(state)) ** 2
        assert (second < 1) is (b < 2 * p / (2 - p))
        assert second == pytest.approx(1 - 2 * b / p + b**2 * (2 - p) / p**2, abs=1e-9)


# The round loop that carried all this


@pytest.mark.parametrize("stop", [0, 7, 29])
def test_a_run_that_goes_on_from_any_round_is_the_same_run(stop: int) -> None:
    task = fedawe.Quadratic(torch.tensor([[0.0, 1.0], [5.0, -1.0], [3.0, 3.0]]), noise=0.5)
    trace = fedawe.Trace.draw(fedawe.Stationary(), [0.5, 0.3, 1.0], rounds=30, seed=0)
    for algorithm in (fedawe.FedAWE(), fedawe.FedAU(), fedawe.MIFA()):
        rounds = list(fedawe.simulate(task, algorithm, trace, fedawe.Local(steps=2), seed=3))
        assert [one.t for one in rounds] == list(range(30))
        again = list(fedawe.simulate(task, algorithm, trace, fedawe.Local(steps=2), seed=3, resume=rounds[stop].state))
        assert [one.t for one in again] == list(range(stop + 1, 30))
        for one, other in zip(rounds[stop + 1 :], again, strict=True):
            assert torch.equal(one.x, other.x)
            assert torch.equal(one.A, other.A)
            assert torch.equal(one.A, trace.active(one.t))


def test_another_seed_is_another_run_on_the_same_trace() -> None:
    task = fedawe.Quadratic(torch.tensor([[0.0], [5.0]]), noise=0.5)
    trace = fedawe.Trace([[True, True]])
    one, other = (next(fedawe.simulate(task, fedawe.FedAvg(), trace, fedawe.Local(), seed=seed)) for seed in (0, 1))
    assert not torch.equal(one.x, other.x)


def test_a_trace_of_other_clients_is_refused() -> None:
    task = fedawe.Quadratic(torch.tensor([[0.0], [5.0]]))
    with pytest.raises(fedawe.UserError, match="3 clients, the task 2"):
        next(fedawe.simulate(task, fedawe.FedAvg(), fedawe.Trace([[True] * 3]), fedawe.Local(), seed=0))


def test_the_optimum_of_a_quadratic_is_where_its_loss_is_least() -> None:
    draw = np.random.default_rng(0)
    u, h = torch.from_numpy(draw.normal(size=(4, 3))), torch.from_numpy(draw.uniform(0.1, 2.0, size=(4, 3)))
    task = fedawe.Quadratic(u, h)
    x = task.optimum
    assert task.evaluate(x)["distance"] == 0
    for step in torch.cat([1e-3 * torch.eye(3), -1e-3 * torch.eye(3), torch.zeros(1, 3)]).to(F64):
        y = x + step
        loss = sum(float((h[i] * (y - u[i]) ** 2).sum()) / 2 for i in range(4)) / 4
        assert task.evaluate(y)["loss"] == pytest.approx(loss, abs=1e-12)
        # On a parabola, the step squared times half the mean curvature above the least value: the slope is zero.
        above = float((h.mean(0) * step**2).sum()) / 2
        assert task.evaluate(y)["loss"] - task.evaluate(x)["loss"] == pytest.approx(above, abs=1e-12)
