"""The dynamics p_i^t = p_i f_i(t) against the paper's formulas, and the statistics of what is drawn from them."""

import math
import time
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

import fedawe
from fedawe.availability.dynamics import DYNAMICS, class_weights, probabilities_from_labels

STANDARD_ERRORS = 4.5  # one in 150,000 for a normal law; nothing here depends on chance twice, seeds are fixed
P = [0.0, 0.03, 0.1, 0.25, 0.5, 0.9, 1.0]


def sine(t: int, p: float, gamma: float, period: int) -> float:
    return p * (gamma * math.sin(2 * math.pi * t / period) + (1 - gamma))


def clip(value: float) -> float:
    return min(1.0, max(0.0, value))


# The four dynamics of the paper


def test_stationary_is_p() -> None:
    for t in (0, 1, 19, 12345):
        assert fedawe.Stationary().probabilities(t, P).tolist() == P


def test_staircase_is_that_of_the_authors_code() -> None:
    for t in range(200):  # (t // 10) mod 2 == 1 -> 0.4, with a period of 20
        expected = [0.4 * p if (t // 10) % 2 == 1 else p for p in P]
        assert fedawe.Staircase().probabilities(t, P).tolist() == expected


@pytest.mark.parametrize(("period", "low"), [(2, 0.0), (6, 0.25), (7, 0.5), (1, 0.4), (40, 1.0)])
def test_staircase_is_low_in_the_second_half_of_every_period(period: int, low: float) -> None:
    dynamics = fedawe.Staircase(period, low)
    for t in range(3 * period):
        expected = 1.0 if t % period < period / 2 else low  # 1 on [t0, t0 + P/2)
        assert dynamics.probabilities(t, [1.0]).tolist() == [expected]


@pytest.mark.parametrize(("gamma", "period"), [(0.3, 20), (0.2, 20), (0.1, 20), (0.5, 20), (0.0, 5), (0.3, 7)])
def test_sine_is_the_formula(gamma: float, period: int) -> None:
    got = fedawe.Sine(gamma, period).probabilities(np.arange(100), P)
    expected = [[clip(sine(t, p, gamma, period)) for p in P] for t in range(100)]
    np.testing.assert_allclose(got, expected, rtol=0, atol=1e-12)


def test_sine_of_example_2_vanishes_in_the_trough() -> None:
    assert fedawe.Sine(gamma=0.5).probabilities(15, [1.0])[0] == pytest.approx(0.0, abs=1e-15)


@pytest.mark.parametrize(("gamma", "period", "cutoff"), [(0.3, 20, 0.1), (0.4, 20, 0.2), (0.3, 13, 0.0)])
def test_interleaved_sine_is_the_formula(gamma: float, period: int, cutoff: float) -> None:
    p = [0.05, 0.13, 0.3, 0.55, 0.9]  # none of which meets the cutoff exactly
    got = fedawe.InterleavedSine(gamma, period, cutoff).probabilities(np.arange(100), p)
    for t in range(100):
        for i, base in enumerate(p):
            v = sine(t, base, gamma, period)
            assert got[t, i] == pytest.approx(v if v >= cutoff else 0.0, abs=1e-12)


def test_interleaved_sine_keeps_what_is_exactly_at_the_cutoff_for_ever() -> None:
    """p = .1 with gamma = .3 is 0.1 at t = 5 mod 20, in floating point too, and stays."""
    t = np.concatenate([np.arange(2_000), 20 * 10**6 + np.arange(100), 20 * 10**12 + np.arange(100)])
    got = fedawe.InterleavedSine().probabilities(t, [0.1])[:, 0]
    np.testing.assert_array_equal(got > 0, t % 20 == 5)
    assert set(got[got > 0]) == {0.1}


@pytest.mark.parametrize("dynamics", [fedawe.Sine(), fedawe.InterleavedSine(), fedawe.Staircase()], ids=repr)
def test_every_period_is_bit_for_bit_the_same(dynamics: Any) -> None:
    first = dynamics.probabilities(np.arange(20), P)
    for start in (20, 2_000, 20 * 10**9):
        np.testing.assert_array_equal(dynamics.probabilities(start + np.arange(20), P), first)


def test_probabilities_are_clipped_to_the_unit_interval() -> None:
    assert fedawe.Stationary().probabilities(0, [-0.5, 0.5, 1.5]).tolist() == [0.0, 0.5, 1.0]
    swing = fedawe.Sine(gamma=0.9).probabilities(np.arange(20), [1.0, 1.4])
    assert swing.min() == 0.0  # 0.1 - 0.9 < 0 in the trough
    assert swing.max() == 1.0
    assert fedawe.Staircase(low=3.0).probabilities(10, [0.5]).tolist() == [1.0]


# Contract of `probabilities`


@pytest.mark.parametrize("name", DYNAMICS)
def test_one_round_or_many_give_the_same_numbers(name: str) -> None:
    dynamics = DYNAMICS[name]()
    many = dynamics.probabilities(np.arange(50), P)
    assert many.shape == (50, len(P))
    assert many.dtype == np.float64
    for t in (0, 7, 49):
        assert dynamics.probabilities(t, P).shape == (len(P),)
        np.testing.assert_array_equal(dynamics.probabilities(t, P), many[t])
        np.testing.assert_array_equal(dynamics.probabilities(np.int64(t), np.array(P)), many[t])
    np.testing.assert_array_equal(dynamics.probabilities([3, 1, 3], P), many[[3, 1, 3]])
    assert ((many >= 0) & (many <= 1)).all()


@pytest.mark.parametrize("name", DYNAMICS)
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64], ids=str)
def test_torch_in_torch_out(name: str, dtype: torch.dtype) -> None:
    p = torch.tensor(P, dtype=dtype)
    got = DYNAMICS[name]().probabilities(7, p)
    assert got.dtype == dtype
    np.testing.assert_allclose(got.numpy(), DYNAMICS[name]().probabilities(7, p.double().numpy()), rtol=1e-6)


@pytest.mark.parametrize("name", DYNAMICS)
def test_what_comes_out_can_be_written_to_without_harm(name: str) -> None:
    p = np.array(P)
    for t in (0, np.arange(3)):
        out = DYNAMICS[name]().probabilities(t, p)
        out[:] = 7.0
        assert p.tolist() == P


@pytest.mark.parametrize("name", DYNAMICS)
@pytest.mark.parametrize(
    ("p", "message"),
    [
        ([0.5, float("nan")], "client 1 is nan"),
        (torch.tensor([float("nan"), 0.5]), "client 0 is nan"),
        ([float("inf")], "client 0 is inf"),
        (0.5, r"\[\]"),
        ([], r"\[0\]"),
        ([[0.5, 0.5]], r"\[1, 2\]"),
        (["often"], "often"),
    ],
)
def test_probabilities_that_are_none_are_refused(name: str, p: Any, message: str) -> None:
    with pytest.raises(fedawe.UserError, match=message):
        DYNAMICS[name]().probabilities(0, p)
    with pytest.raises(fedawe.UserError, match=message):
        fedawe.Trace.draw(DYNAMICS[name](), p, 3, seed=0)


@pytest.mark.parametrize("t", [-1, 0.5, np.array([0, -2]), np.zeros((2, 2), dtype=int), np.array([0.0]), True])
def test_rounds_that_are_none_are_refused(t: Any) -> None:
    with pytest.raises(fedawe.UserError, match="round"):
        fedawe.Sine().probabilities(t, [0.5])


@pytest.mark.parametrize(
    ("kind", "options", "message"),
    [
        (fedawe.Staircase, {"period": 0}, "period is 0"),
        (fedawe.Staircase, {"low": -0.1}, "low is -0.1"),
        (fedawe.Staircase, {"low": float("nan")}, "low is nan"),
        (fedawe.Sine, {"gamma": -0.1}, "gamma is -0.1"),
        (fedawe.Sine, {"gamma": "0.3"}, "gamma is '0.3'; expected a number at least 0"),
        (fedawe.Sine, {"gamma": float("nan")}, "gamma is nan"),
        (fedawe.Sine, {"period": 0}, "period is 0"),
        (fedawe.InterleavedSine, {"gamma": float("inf")}, "gamma is inf"),
        (fedawe.InterleavedSine, {"period": -20}, "period is -20"),
        (fedawe.InterleavedSine, {"cutoff": -1.0}, "cutoff is -1.0"),
        (fedawe.Markov, {"q": 0.0}, "q is 0.0"),
        (fedawe.Markov, {"q": 1.1}, "q is 1.1"),
        (fedawe.Markov, {"q": float("nan")}, "q is nan"),
        (fedawe.Cyclic, {"period": 1}, "period is 1"),
    ],
)
def test_options_that_cannot_be_meant_are_refused(kind: type[Any], options: dict[str, Any], message: str) -> None:
    with pytest.raises(fedawe.UserError, match=message):
        kind(**options)


def test_the_contract_of_names_and_defaults() -> None:
    assert fedawe.Staircase() == fedawe.Staircase(period=20, low=0.4)
    assert fedawe.Sine() == fedawe.Sine(gamma=0.3, period=20)
    assert fedawe.InterleavedSine() == fedawe.InterleavedSine(gamma=0.3, period=20, cutoff=0.1)
    assert {"stationary", "staircase", "sine", "interleaved"} <= set(DYNAMICS)


# What is drawn


@pytest.mark.parametrize("name", ["stationary", "staircase", "sine", "interleaved"])
def test_draws_have_the_probabilities_they_are_drawn_with(name: str) -> None:
    """Rounds are independent: the number of rounds of a client has mean sum p^t and variance sum p^t (1 - p^t)."""
    rounds, p = 4_000, np.linspace(0.02, 1.0, 50)
    trace = fedawe.Trace.draw(DYNAMICS[name](), p, rounds, seed=1)
    chance = trace.p
    assert chance is not None
    np.testing.assert_array_equal(chance, DYNAMICS[name]().probabilities(np.arange(rounds), p))
    deviation = np.sqrt((chance * (1 - chance)).sum(0))
    np.testing.assert_array_less(np.abs(trace.on.sum(0) - chance.sum(0)), STANDARD_ERRORS * deviation + 1e-9)
    # The same by the place in the period, over all clients: the dynamics are in the draws, not in their mean alone.
    for place in range(20):
        on, of = trace.on[place::20], chance[place::20]
        assert abs(on.sum() - of.sum()) < STANDARD_ERRORS * math.sqrt((of * (1 - of)).sum())


def test_draws_of_different_rounds_and_clients_are_independent() -> None:
    """With p = 1/2 the product of two independent signs has mean 0 and variance 1."""
    signs = 2.0 * fedawe.Trace.draw(fedawe.Stationary(), [0.5] * 40, 2_000, seed=2).on - 1
    next_round = (signs[1:] * signs[:-1]).mean(0) * math.sqrt(1_999)
    next_client = (signs[:, 1:] * signs[:, :-1]).mean(0) * math.sqrt(2_000)
    assert np.abs(next_round).max() < STANDARD_ERRORS
    assert np.abs(next_client).max() < STANDARD_ERRORS


@pytest.mark.parametrize("name", ["stationary", "staircase", "sine", "interleaved", "markov"])
def test_certain_is_always_and_impossible_is_never(name: str) -> None:
    trace = fedawe.Trace.draw(DYNAMICS[name](), [0.0, 1.0], 200, seed=0)
    assert not trace.on[:, 0].any()
    assert trace.p is not None
    assert trace.on[:, 1][trace.p[:, 1] == 1.0].all()
    if name in ("stationary", "markov"):
        assert trace.on[:, 1].all()


# Markov: P(off -> on) = q, P(on -> off) = q (1/p - 1), both divided by the latter where it exceeds 1


def runs_of(on: np.ndarray) -> tuple[list[int], list[int]]:
    """The lengths of the stretches off and on of one client, without the first and the last, which are cut."""
    edges = np.flatnonzero(np.diff(on.astype(int)))
    lengths = np.diff(edges)
    kinds = on[edges[:-1] + 1] if len(edges) else np.empty(0, dtype=bool)
    return lengths[~kinds].tolist(), lengths[kinds].tolist()


@pytest.mark.parametrize(("q", "p"), [(0.1, 0.3), (0.1, 0.8), (0.5, 0.5), (0.1, 0.05), (1.0, 0.2)])
def test_markov_chains_have_their_transitions_and_sojourns(q: float, p: float) -> None:
    leave = q * (1 / p - 1)
    come, leave = q / max(leave, 1.0), min(leave, 1.0)
    trace = fedawe.Trace.draw(fedawe.Markov(q), [p] * 200, 2_000, seed=3)
    before, after = trace.on[:-1], trace.on[1:]
    for state, chance, moved in ((False, come, after), (True, leave, ~after)):
        n = int((before == state).sum())  # every transition is a coin of its own
        error = math.sqrt(chance * (1 - chance) / n)
        assert abs(moved[before == state].mean() - chance) <= STANDARD_ERRORS * error
    off, on = (np.concatenate(lengths) for lengths in zip(*(runs_of(column) for column in trace.on.T), strict=True))
    # Stretches are geometric: mean 1/chance, deviation sqrt(1 - chance)/chance. Those cut at the end are the longer
    # ones, which shortens the mean by a share of about its length over the 2,000 rounds.
    for lengths, chance in ((off, come), (on, leave)):
        error = math.sqrt((1 - chance) / len(lengths)) / chance
        assert abs(lengths.mean() - 1 / chance) <= STANDARD_ERRORS * error + (1 / chance) * (2 / chance) / 2_000
    if q * (1 / p - 1) <= 1:
        assert 1 / come == pytest.approx(1 / q)
        assert 1 / leave == pytest.approx(p / (q * (1 - p)))


@pytest.mark.parametrize("p", [0.05, 0.3, 0.8])
def test_markov_chains_are_stationary_from_the_first_round(p: float) -> None:
    m = 20_000  # independent clients
    trace = fedawe.Trace.draw(fedawe.Markov(0.1), [p] * m, 30, seed=4)
    error = math.sqrt(p * (1 - p) / m)
    assert np.abs(trace.on.mean(1) - p).max() < STANDARD_ERRORS * error
    assert trace.p is not None
    assert (trace.p == p).all()


# Cyclic: on for max(1, round(L p)) rounds, off for max(1, L - on), at a random phase


@pytest.mark.parametrize(("period", "p", "on", "off"), [(20, 0.3, 6, 14), (20, 0.01, 1, 19), (20, 1.0, 20, 1)])
def test_cyclic_clients_are_on_and_off_in_turn(period: int, p: float, on: int, off: int) -> None:
    cycle = on + off
    trace = fedawe.Trace.draw(fedawe.Cyclic(period), [p] * 500, 5 * cycle, seed=5)
    first = trace.on[:cycle]
    assert (first.sum(0) == on).all()
    np.testing.assert_array_equal(trace.on, np.tile(first, (5, 1)))
    assert (np.abs(np.diff(np.vstack([first, first[:1]]).astype(int), axis=0)).sum(0) == 2).all()  # one stretch of each
    assert trace.p is not None
    np.testing.assert_allclose(trace.p, on / cycle)
    # Phases are spread evenly: in the first round a share on/cycle of the clients is there.
    share = on / cycle
    assert abs(first[0].mean() - share) < STANDARD_ERRORS * math.sqrt(share * (1 - share) / 500)
    assert len({tuple(column) for column in first.T}) == cycle


# Outages: a group's begin with a chance in every round, last so long, and nobody of it is there meanwhile


def test_outages_are_as_likely_as_they_say() -> None:
    """One round of many draws: groups are independent, so every group of one client each is a coin of its own."""
    m, p = 400, 0.7
    dynamics = fedawe.Outages(groups=m, rate=0.05, length=6)
    draws = [fedawe.Trace.draw(dynamics, [p] * m, 12, seed) for seed in range(100)]
    on = np.stack([trace.on for trace in draws])  # [draws, T, m]
    for t in range(12):
        expected = p * (1 - 0.05) ** min(t + 1, 6)  # none began in this round or the five before
        assert draws[0].p is not None
        np.testing.assert_allclose(draws[0].p[t], expected)
        np.testing.assert_allclose(dynamics.probabilities(t, [p]), [expected])
        error = math.sqrt(expected * (1 - expected) / on[:, t].size)
        assert abs(on[:, t].mean() - expected) < STANDARD_ERRORS * error


def test_a_group_is_out_together_and_for_whole_lengths() -> None:
    """Clients that are otherwise always there show the outages themselves."""
    trace = fedawe.Trace.draw(fedawe.Outages(groups=3, rate=0.03, length=7), [1.0] * 8, 3_000, seed=1)
    for i in range(8):
        np.testing.assert_array_equal(trace.on[:, i], trace.on[:, i % 3])
    groups = trace.on[:, :3]
    assert len({column.tobytes() for column in groups.T}) == 3  # one group's outages are not another's
    for group in groups.T:
        off, _ = runs_of(group)
        assert min(off) == 7
        assert max(off) > 7  # where outages overlap


def test_outages_can_be_asked_in_any_order_and_long_ones_cost_no_more() -> None:
    dynamics, p = fedawe.Outages(groups=3, rate=0.02, length=7), np.ones(3)
    whole = [fedawe.Trace.draw(dynamics, p, 100, seed).on for seed in (0, 1)]
    for n in np.random.default_rng(0).integers(200, size=300).tolist():
        found = dynamics.available(n % 2, n // 2, p, None)
        np.testing.assert_array_equal(found, whole[n % 2][n // 2])
    began = time.perf_counter()
    fedawe.Trace.draw(fedawe.Outages(length=1_000), p, 3_000, seed=0)
    assert time.perf_counter() - began < 5


def test_who_is_there_between_outages_does_not_depend_on_them() -> None:
    p = np.linspace(0.1, 0.9, 12)
    without = fedawe.Trace.draw(fedawe.Stationary(), p, 300, seed=2)
    with_them = fedawe.Trace.draw(fedawe.Outages(groups=4, rate=0.02, length=5), p, 300, seed=2)
    everybody = fedawe.Trace.draw(fedawe.Outages(groups=4, rate=0.02, length=5), np.ones(12), 300, seed=2)
    np.testing.assert_array_equal(with_them.on, without.on & everybody.on)
    np.testing.assert_array_equal(fedawe.Trace.draw(fedawe.Outages(rate=0), p, 300, seed=2).on, without.on)
    assert not fedawe.Trace.draw(fedawe.Outages(rate=1), p, 50, seed=2).on.any()


def test_a_shorter_draw_of_outages_is_the_beginning_of_a_longer_one() -> None:
    dynamics, p = fedawe.Outages(groups=3, rate=0.1, length=4), [0.2, 0.5, 0.8, 1.0]
    whole = fedawe.Trace.draw(dynamics, p, 60, seed=3)
    for rounds in (1, 3, 4, 5, 59):
        part = fedawe.Trace.draw(dynamics, p, rounds, seed=3)
        np.testing.assert_array_equal(part.on, whole.on[:rounds])
        assert part.p is not None
        assert whole.p is not None
        np.testing.assert_array_equal(part.p, whole.p[:rounds])


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"groups": 0}, "groups is 0; expected a number at least 1"),
        ({"rate": -0.1}, "rate is -0.1; expected a number at least 0 and at most 1"),
        ({"rate": 1.1}, "rate is 1.1; expected a number at least 0 and at most 1"),
        ({"rate": math.nan}, "rate is nan"),
        ({"length": 0}, "length is 0; expected a number at least 1"),
        ({"length": 2.5}, r"length is 2\.5; expected a whole number"),
        ({"groups": 2.5}, r"groups is 2\.5; expected a whole number"),
    ],
)
def test_outages_that_cannot_be_are_refused(options: dict[str, Any], said: str) -> None:
    with pytest.raises(ValueError, match=said):
        fedawe.Outages(**options)


# The paper's rule for p_i


def test_class_weights_are_the_authors_draws_in_their_order() -> None:
    phi = class_weights(10, np.random.default_rng(3))
    g = np.random.default_rng(3)
    np.testing.assert_array_equal(phi, np.concatenate([g.uniform(0, 1, 5), g.uniform(0, 0.5, 5)]))


@given(classes=st.integers(1, 12), seed=st.integers(0, 1000))
def test_class_weights_are_below_one_and_below_a_half(classes: int, seed: int) -> None:
    phi = class_weights(classes, np.random.default_rng(seed))
    assert phi.shape == (classes,)
    assert ((phi >= 0) & (phi < 1)).all()
    assert (phi[(classes + 1) // 2 :] < 0.5).all()


def test_class_weights_are_three_eighths_on_average() -> None:
    draw = np.random.default_rng(4)
    means = [class_weights(10, draw).mean() for _ in range(4_000)]
    assert abs(np.mean(means) - 0.375) < STANDARD_ERRORS * np.std(means) / math.sqrt(len(means))


def test_probabilities_from_labels_are_the_inner_products() -> None:
    draw = np.random.default_rng(5)
    nu, phi = draw.dirichlet(np.ones(4), 6), draw.random(4)
    expected = [sum(nu[i, c] * phi[c] for c in range(4)) for i in range(6)]
    np.testing.assert_allclose(probabilities_from_labels(nu, phi), expected, rtol=1e-12)
