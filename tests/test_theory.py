"""The theory's numbers against enumeration, simulation and the paper's own."""

import itertools
import json
import math

import numpy as np
import pytest
import tyro
from hypothesis import given, settings
from hypothesis import strategies as st

import fedawe
from fedawe.audit import theory
from fedawe.audit.theory import Mixing, Problem
from fedawe.availability.trace import Trace
from fedawe.cli.theory import Theory
from fedawe.core.errors import UserError
from fedawe.training.diagnostics import last_active


def enumerated(p):
    """E[W] and E[W^2] over all 2^m sets of active clients."""
    m = len(p)
    first, second = np.zeros((m, m)), np.zeros((m, m))
    for A in itertools.product([0, 1], repeat=m):
        on = np.array(A)
        W = np.diag(1.0 - on) + (np.outer(on, on) / on.sum() if on.any() else 0)
        chance = np.prod(np.where(on, p, 1 - p))
        first, second = first + chance * W, second + chance * W @ W
    return first, second


probabilities = st.lists(st.floats(0, 1), min_size=1, max_size=7).map(np.array)


@given(p=probabilities)
@settings(max_examples=60)
def test_mixing_matrix_and_rho_equal_enumeration(p):
    first, second = enumerated(p)
    np.testing.assert_allclose(Mixing.of(p).matrix(), first, atol=1e-12)
    np.testing.assert_allclose(first, second, atol=1e-12)  # W is idempotent
    if len(p) > 1:
        assert theory.rho(p) == pytest.approx(np.linalg.eigvalsh(first)[-2], abs=1e-10)


@pytest.mark.parametrize("m", [2, 3, 30, 400, 2500])
@pytest.mark.parametrize("p", [0.01, 0.3, 1.0])
def test_equal_probabilities_have_a_closed_form(m, p):
    """Also across the two ways of finding an eigenvalue, with and without the matrix."""
    assert theory.rho(np.full(m, p)) == pytest.approx(theory.rho_equal(p, m), abs=1e-9)


@given(p=st.lists(st.floats(0.05, 1), min_size=2, max_size=9).map(np.array))
@settings(max_examples=60)
def test_bounds_hold_and_ours_is_tighter(p):
    delta = p.min()
    assert theory.rho(p) <= theory.rho_simple(delta) + 1e-12
    assert theory.rho_simple(delta) <= theory.rho_paper(delta, len(p)) + 1e-12


def test_numbers_of_the_paper_s_setting():
    assert theory.rho_paper(0.1, 100) == pytest.approx(0.9999875, abs=1e-8)
    assert theory.rho_equal(0.1, 100) == pytest.approx(0.909, abs=1e-3)
    assert Problem(100, 0.1, theory.rho_paper(0.1, 100)).smallest_T() == pytest.approx(5.2e19, rel=0.02)
    assert Problem(100, 0.1, theory.rho_equal(0.1, 100)).smallest_T() == pytest.approx(9.0e11, rel=0.02)


def test_rho_over_rounds_is_the_worst_round():
    p = fedawe.Sine(gamma=0.3, period=20).probabilities(np.arange(20), np.array([0.5, 0.8, 0.3]))
    assert theory.rho(p) == max(theory.rho(row) for row in p) == theory.rho(p[15])


def test_a_long_trace_mixes_as_its_probabilities_say():
    p = np.array([0.9, 0.5, 0.3, 0.2])
    trace = Trace.draw(fedawe.Stationary(), p, rounds=40_000, seed=0)
    assert theory.rho_of_trace(trace) == pytest.approx(theory.rho(p), abs=0.01)
    outage = np.repeat([[1, 1, 0, 0], [0, 0, 1, 1]], 50, axis=0)  # two halves that never meet do not mix at all
    assert theory.rho_of_trace(Trace(outage)) == pytest.approx(1)
    assert theory.rho_of_trace(Trace([[1], [0]])) == 0
    with pytest.raises(UserError, match="at most 2000"):
        theory.rho_of_trace(Trace(np.ones((1, 2001))))


@given(p=st.lists(st.floats(0.05, 1), min_size=1, max_size=12))
@settings(max_examples=60)
def test_staleness_is_the_sum_of_its_definition_and_within_lemma_2(p):
    first, second = theory.staleness(np.array(p)[:, None])
    t = len(p)
    beyond = [math.prod(1 - q for q in p[t - r :]) if r else 1.0 for r in range(t + 1)]  # P(t - tau > r)
    assert first[-1, 0] == pytest.approx(sum(beyond))
    assert second[-1, 0] == pytest.approx(sum((2 * r + 1) * b for r, b in enumerate(beyond)))
    mean, square = theory.staleness_bounds(min(p))
    assert (first <= mean + 1e-9).all()
    assert (second <= square + 1e-9).all()


def test_smallest_T_is_where_the_conditions_begin_to_hold():
    problem = Problem(m=20, delta=0.2, rho=0.8, s=5, L=2.0, beta=0.5)
    T = problem.smallest_T()
    for factor, holds in ((1.001, True), (0.999, False)):
        eta_l, eta_g = problem.corollary_1(T * factor)
        both, local = problem.largest_rates()["condition (11)"]
        assert (eta_l * eta_g <= both and eta_l <= local) is holds
    assert Problem(20, 0.2, 1.0).smallest_T() == math.inf


def test_condition_11_implies_the_others():
    """So that it alone has to be reported as binding."""
    rates = Problem(m=20, delta=0.2, rho=0.8).largest_rates()
    both, local = rates["condition (11)"]
    assert all(both <= b and local <= other for b, other in rates.values())


def test_bounds_have_the_papers_constants():
    problem = Problem(m=10, delta=0.5, rho=0.25, s=2, L=3.0, delta_max=0.8, sigma=2.0, zeta=4.0, gap=5.0)
    z, x = problem.bound(100, 0.01, 2.0, "z-bar"), problem.bound(100, 0.01, 2.0, "x-bar")
    step, spread = 0.02, (0.02 * 2 * 3 / (0.5 * 0.5)) ** 2
    assert z == pytest.approx(
        (6 * 5 / (step * 200), 24 * step * 3 * 0.8 * 4 / 2.5, 15 * spread * 4, 2800 * spread * 16)
    )
    assert np.array(x) / np.array(z) == pytest.approx((2, 2, 31 / 15, 2))
    assert problem.bound(100, 0.01, 2.0, "x_i") == pytest.approx(
        (3 * 5 / (step * 200), 12 * step * 3 * 0.8 * 4 / 2.5, 28 * spread * 4, 1600 * spread * 16)
    )
    with pytest.raises(UserError, match="'z-bar', 'x-bar', 'x_i', not 'y-bar'"):
        problem.bound(100, 0.01, 2.0, "y-bar")


@pytest.mark.parametrize(
    "wrong",
    [
        {"delta": 0.0},
        {"delta": 0.9, "delta_max": 0.5},
        {"rho": 1.5},
        {"L": 0.0},
        {"s": 0},
        {"L": math.nan},
        {"L": math.inf},
        {"sigma": math.nan},
        {"zeta": math.inf},
        {"gap": -1.0},
    ],
)
def test_problems_that_cannot_be_are_refused(wrong):
    with pytest.raises(UserError):
        Problem(**{"m": 10, "delta": 0.1, "rho": 0.5, **wrong})


def test_costs():
    cost = theory.costs(m=100, k=9.5, versions=17.2)
    assert cost["fedawe (server keeps versions)"].server == 18
    assert cost["fedawe (clients keep x_i)"].client == 1
    assert cost["mifa"].server == cost["fedvarp"].server == 102
    assert cost["fedavg"].server == 1
    assert {c.up for c in cost.values()} == {9.5}


# The command.


def told(capsys, *args):
    tyro.cli(Theory, args=list(args), config=(tyro.conf.FlagCreatePairsOff,)).run()
    return capsys.readouterr().out


def test_the_command_prints_numbers_formulas_and_lines(capsys):
    out = told(capsys, "--p", "0.2", "0.5", "0.9", "--rounds", "50")
    for part in ("0.8388", "1 - delta^2", "Lemma 4", "0.2100", "E[t - tau]", "Corollary 1", "Corollary 2", "mifa"):
        assert part in out
    assert "…" not in out  # every number in full, in 80 columns


def test_the_command_for_machines(capsys, tmp_path):
    found = json.loads(told(capsys, "--p", "0.1", "--dynamics", "sine", "--rounds", "40", "--json"))
    assert found["m"] == 100
    assert found["rho"]["exact"] == pytest.approx(found["rho"]["equal"], abs=1e-12)
    assert found["delta"] == pytest.approx(0.04)
    assert found["M"] is None
    trace = Trace.draw(fedawe.Markov(), [0.5, 0.4, 0.3], rounds=300, seed=0)
    trace.save(tmp_path / "t.npz")
    found = json.loads(told(capsys, "--trace", str(tmp_path / "t.npz"), "--json"))
    assert found["rho"]["trace"] == pytest.approx(theory.rho_of_trace(trace))
    assert found["delta"] == pytest.approx(trace.on.mean(0).min())


def test_the_matrix_is_that_of_the_round_whose_rho_is_told(capsys):
    found = json.loads(told(capsys, "--p", "0.2", "0.5", "0.9", "--dynamics", "sine", "--rounds", "40", "--json"))
    M = np.array(found["M"])
    assert found["rho"]["round"] == 15  # the trough of the sine
    assert np.linalg.eigvalsh(M)[-2] == pytest.approx(found["rho"]["exact"])
    assert "M in round 15" in told(capsys, "--p", "0.2", "0.5", "0.9", "--dynamics", "sine", "--rounds", "40")


def test_staleness_under_a_sine_is_what_simulation_shows(capsys):
    """Lemma 2's moments for probabilities that change: the worst client in the worst round of a period."""
    found = json.loads(told(capsys, "--p", "0.2", "0.6", "--dynamics", "sine", "--rounds", "200", "--json"))
    p = fedawe.Sine().probabilities(np.arange(200), np.array([0.2]))[:, 0]
    draw = np.random.default_rng(0)
    away = np.ones(40_000)
    first, second = [], []
    for now in p:
        away = np.where(draw.random(len(away)) < now, 1, away + 1)
        first.append(away.mean())
        second.append((away**2).mean())
    assert found["staleness"]["mean"] == pytest.approx(max(first), rel=0.02)
    assert found["staleness"]["square"] == pytest.approx(max(second), rel=0.04)
    assert found["staleness"]["mean"] < found["staleness"]["mean_bound"] == pytest.approx(1 / 0.08)
    assert found["staleness"]["square"] < found["staleness"]["square_bound"] == pytest.approx(2 / 0.08**2)


def test_rates_below_what_the_bounds_assume_are_said(capsys):
    assert "have eta_g below 1" in told(capsys, "--p", "0.01", "0.9", "--steps", "1", "--rounds", "50")
    assert "have eta_g below 1" not in told(capsys, "--p", "0.5", "--rounds", "50")


def test_without_a_positive_delta_there_are_no_bounds(capsys):
    assert "Assumption 1 fails" in told(capsys, "--p", "0.1", "--dynamics", "interleaved", "--rounds", "40")
    found = json.loads(told(capsys, "--p", "0.0", "0.5", "--rounds", "40", "--json"))
    assert found["smallest_T"] == {}
    assert found["rho"]["exact"] == 1


def test_a_trace_is_told_as_it_was(capsys, tmp_path):
    """Persistent clients are staler than independent ones with the same rates, and beyond Lemma 2's bound."""
    trace = Trace.draw(fedawe.Markov(q=0.02), np.full(20, 0.3), rounds=3000, seed=0)
    trace.save(tmp_path / "t.npz")
    found = json.loads(told(capsys, "--trace", str(tmp_path / "t.npz"), "--json"))
    ages = np.array([[t - last_active(trace, t)[i] for t in range(3000)] for i in range(20)], dtype=float)
    assert found["trace"]["mean"] == pytest.approx(ages.mean(1).max())
    assert found["trace"]["square"] == pytest.approx((ages**2).mean(1).max())
    assert found["trace"]["mean"] > 3 * found["staleness"]["mean"]
    assert found["trace"]["square"] > found["staleness"]["square_bound"]
    assert found["trace"]["dependent"]
    out = told(capsys, "--trace", str(tmp_path / "t.npz"))
    assert "Assumption 1 fails, and only the first column holds" in " ".join(out.split())
    assert "exact" not in out.split("Learning rates")[0]
    Trace.draw(fedawe.Stationary(), np.full(20, 0.3), rounds=3000, seed=0).save(tmp_path / "i.npz")
    found = json.loads(told(capsys, "--trace", str(tmp_path / "i.npz"), "--json"))
    assert not found["trace"]["dependent"]
    assert found["trace"]["mean"] == pytest.approx(found["staleness"]["mean"], rel=0.1)


def test_clients_that_are_never_available_are_left_out_and_counted(capsys, tmp_path):
    on = Trace.draw(fedawe.Stationary(), np.full(10, 0.5), rounds=400, seed=0).on.copy()
    on[:, 3] = False
    Trace(on).save(tmp_path / "t.npz")
    found = json.loads(told(capsys, "--trace", str(tmp_path / "t.npz"), "--json"))
    assert (found["m"], found["never"]) == (9, 1)
    assert found["delta"] > 0.4
    assert found["rho"]["exact"] < 0.9
    assert found["rates"]["T"] == 400
    assert "1 client never available, left out" in told(capsys, "--trace", str(tmp_path / "t.npz"))


def test_rounds_that_are_unknown_are_in_no_rate(capsys, tmp_path):
    on = (np.random.default_rng(0).random((100, 3)) < 0.5) * 1.0
    on[:80, 2] = np.nan
    Trace(on).save(tmp_path / "t.npz")
    found = json.loads(told(capsys, "--trace", str(tmp_path / "t.npz"), "--json"))
    rates = np.nanmean(on, 0)
    assert (found["delta"], found["delta_max"]) == pytest.approx((rates.min(), rates.max()))
    assert found["unknown"] == pytest.approx(80 / 300)
    assert found["costs"]["k"] == pytest.approx(np.nansum(on, 1).mean())  # who is unknown sends nothing
    out = " ".join(told(capsys, "--trace", str(tmp_path / "t.npz")).split())
    assert "Mixing of 3 clients (26.7% of their rounds unknown, left out of rates)" in out


@pytest.mark.parametrize(
    ("args", "said"),
    [
        (["--p", "0.1", "0.2", "--clients", "3"], "2 numbers for 3 clients"),
        (["--p", "1.5"], r"expected probabilities in \[0, 1\]"),
        (["--dynamics", "markov"], "depend on each other"),
        (["--dynamics", "outages"], "depend on each other"),
        (["--dynamics", "moon"], "unknown dynamics"),
        (["--rounds", "0"], "at least 1"),
        (["--trace", "nowhere.npz"], "no such file"),
        (["--trace", "t.npz", "--p", "0.5"], "omit --p"),
        (["--trace", "t.npz", "--clients", "7"], "omit --clients"),
        (["--trace", "t.npz", "--dynamics", "sine"], "omit --dynamics"),
        (["--smoothness", "nan"], "L = nan"),
    ],
)
def test_mistakes(args, said, capsys):
    with pytest.raises(UserError, match=said):
        told(capsys, *args)
