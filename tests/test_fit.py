"""A model of a fleet: what it was made of is found again, and what it draws is such a fleet."""

import json

import numpy as np
import pytest
import tyro
from hypothesis import given, settings
from hypothesis import strategies as st

from fedawe.audit import Log, logs
from fedawe.audit.logs import Clock
from fedawe.availability.fit import Daily, fit, quality, stay_or_come
from fedawe.availability.fit import Fit as Fitted
from fedawe.availability.trace import Trace
from fedawe.availability.variation import swings
from fedawe.cli.fit import Fit
from fedawe.core.errors import UserError

PROFILE = 1 + 0.6 * np.sin(2 * np.pi * np.arange(24) / 24)
CLOCK = Clock(1800.0)
P = np.random.default_rng(0).uniform(0.05, 0.5, 60)


@pytest.fixture(scope="module")
def fleet():
    return Trace.draw(Daily(PROFILE, 0.8, CLOCK), P, rounds=4800, seed=1)


def test_what_it_was_made_of_is_found_again(fleet):
    found = fit(fleet, CLOCK)
    assert found.dynamics.persistence == pytest.approx(0.8, abs=0.02)
    np.testing.assert_allclose(found.dynamics.profile, PROFILE, atol=0.12)
    assert np.abs(found.p - P).mean() < 0.02


def test_rates_are_kept_where_the_profile_would_exceed_certainty():
    trace = Trace.draw(Daily(PROFILE, 0.0, CLOCK), np.linspace(0.1, 0.9, 20), rounds=4800, seed=1)  # 0.9 x 1.6 > 1
    found = fit(trace, CLOCK)
    drawn = found.dynamics.probabilities(np.arange(4800), found.p)
    np.testing.assert_allclose(drawn.mean(0), trace.on.mean(0), atol=0.02)


def test_independent_rounds_have_no_persistence_and_no_clock_no_profile():
    trace = Trace.draw(Daily(np.ones(24), 0.0, CLOCK), P, rounds=2000, seed=1)
    assert fit(trace, CLOCK).dynamics.persistence < 0.02
    found = fit(trace)
    assert (found.dynamics.profile == 1).all()


@given(last=st.floats(0, 1), now=st.floats(0, 1), phi=st.floats(0, 0.999))
@settings(max_examples=200)
def test_persistence_leaves_every_probability_alone(last, now, phi):
    """Whoever was there with probability `last` is there with probability `now`, whatever phi."""
    stay, come = (float(stay_or_come(np.array(last), np.array(now), phi, np.array(b))) for b in (True, False))
    assert -1e-12 <= come <= 1 + 1e-12
    assert -1e-12 <= stay <= 1 + 1e-12
    assert last * stay + (1 - last) * come == pytest.approx(now, abs=1e-9)


def test_draws_are_prefixes_and_larger_fleets_are_like_it(fleet):
    found = fit(fleet, CLOCK)
    long, short = found.draw(200, seed=5), found.draw(80, seed=5)
    assert (long.on[:80] == short.on).all()
    assert not (long.on == found.draw(200, seed=6).on).all()
    many = found.draw(960, clients=300)
    assert many.clients == 300
    assert many.on.mean() == pytest.approx(fleet.on.mean(), abs=0.03)
    assert found.draw(10, clients=7).clients == 7
    fitted = found.dynamics.probabilities(0, found.p)
    assert set(many.p[0]) <= set(fitted)  # further clients have rates of the fitted ones
    assert len(set(many.p[0, 60:])) > 30
    with pytest.raises(UserError, match="clients is 0"):
        found.draw(10, clients=0)


def test_fewer_clients_are_drawn_from_all_of_the_log(tmp_path):
    """Clients are ordered by their rates, so that the first of them are not like the fleet."""
    p = np.linspace(0.05, 0.95, 40)
    log = Log(Trace(np.random.default_rng(0).random((500, 40)) < p), tuple(f"c{n}" for n in range(40)), None, ())
    log.save(tmp_path / "log.npz")
    found = fit(log.trace)
    taken = np.array([found.taken(10, seed) for seed in range(200)])
    assert all(len(set(row)) == 10 and (np.diff(row) > 0).all() for row in taken)
    np.testing.assert_allclose(np.bincount(taken.ravel(), minlength=40) / 200, 0.25, atol=0.12)
    assert found.draw(500, 10).on.mean(0) == pytest.approx(found.p[taken[0]], abs=0.1)
    args = [str(tmp_path / "log.npz"), "--clients", "10", "--out", str(tmp_path / "few.npz")]
    tyro.cli(Fit, args=args, config=(tyro.conf.FlagCreatePairsOff,)).run()
    assert logs.read(tmp_path / "few.npz").clients == tuple(f"c{n}" for n in taken[0])


def test_a_client_never_seen_is_rare_not_impossible(fleet):
    on = fleet.on[:480].copy()
    on[:, 0] = False
    found = fit(Trace(on), CLOCK)
    assert 0 < found.p[0] < np.median(found.p)


def test_each_part_of_the_model_helps_on_days_held_out(fleet):
    score = quality(fleet, CLOCK, draws=3)
    assert score.at_midnight
    assert score.fitted_rounds % 48 == 0
    bits = list(score.bits.values())
    assert bits == sorted(bits, reverse=True)
    assert bits[-1] < 0.7 * bits[-2]
    for name, (low, high) in score.simulated.items():
        slack = 0.1 * abs(score.real[name]) + 1e-9
        assert low - slack <= score.real[name] <= high + slack, name


def test_the_hour_is_judged_by_itself(fleet):
    """With a flat profile a rate for each client says as much as rate x hour: both are shrunk the same way."""
    trace = Trace.draw(Daily(np.ones(24), 0.0, CLOCK), P, rounds=480, seed=1)
    bits = quality(trace, draws=1).bits
    assert bits["a rate for each client"] == pytest.approx(bits["rate x hour"], abs=1e-12)


def test_clients_that_repeat_themselves_are_not_scored(fleet):
    """Half of the clients repeat their first five days: for them the days held out are no news."""
    days, half = 48 * 5, np.arange(60) < 30
    on = fleet.on[: 2 * days].copy()
    on[days:, half] = on[:days, half]
    score = quality(Trace(on), CLOCK, half, draws=2)
    assert score.clients == 30
    alone = quality(Trace(on), CLOCK, draws=2)
    assert alone.clients == 60
    assert score.real["share of clients available"] == pytest.approx(on[score.fitted_rounds :, ~half].mean())
    assert quality(Trace(on), CLOCK, np.ones(60, bool)) is None


def test_what_is_unknown_is_not_scored():
    """Coins cost one bit each under every model, also where half of the clients are unknown after half of the time."""
    on = np.random.default_rng(0).random((960, 60)) < 0.5
    known = np.ones_like(on)
    known[480:, :30] = False
    found = quality(Trace(on).knowing(known), CLOCK, draws=1)
    assert found is not None
    assert all(bits == pytest.approx(1, abs=0.01) for bits in found.bits.values())


def test_what_the_model_does_not_draw_is_said(fleet):
    score = quality(fleet, CLOCK, draws=3)
    key = "rounds for which a client is available"
    low, high = score.simulated[key]
    assert (key in score.outside) == (not low <= score.real[key] <= high)
    short = fleet.on.copy()
    short[3600:] = np.random.default_rng(0).random((1200, 60)) < short.mean()  # nobody stays any more
    assert key in quality(Trace(short), CLOCK, draws=3).outside


def test_quality_needs_something_to_hold_out():
    assert quality(Trace(np.ones((10, 2)))) is None
    assert quality(Trace(np.concatenate([np.ones((40, 2)), np.zeros((20, 2))]))) is None
    assert not quality(Trace(np.ones((100, 2)))).at_midnight


@pytest.mark.parametrize(
    ("make", "said"),
    [
        (lambda: fit(Trace(np.zeros((10, 2)))), "no client is ever available"),
        (lambda: Daily(np.ones(23)), "24 numbers"),
        (lambda: Daily(-np.ones(24)), "24 numbers"),
        (lambda: Daily(np.ones(24), 1.0), "below 1"),
    ],
)
def test_mistakes(make, said):
    with pytest.raises(UserError, match=said):
        make()


def test_the_command(fleet, tmp_path, capsys):
    Trace(fleet.on[:1440]).save(tmp_path / "fleet.npz")
    args = [str(tmp_path / "fleet.npz"), "--round", "30min", "--out", str(tmp_path / "new" / "long.npz")]
    config = (tyro.conf.FlagCreatePairsOff,)
    tyro.cli(Fit, args=[*args, "--rounds", "500", "--clients", "70"], config=config).run()
    out = capsys.readouterr().out
    assert "persistence 0.8" in out
    assert "rate x hour with persistence" in out
    drawn = Trace.load(tmp_path / "new" / "long.npz")
    assert (drawn.rounds, drawn.clients) == (500, 70)
    tyro.cli(Fit, args=[*args[:3], "--json"], config=config).run()
    found = json.loads(capsys.readouterr().out)
    assert len(found["p"]) == 60
    assert found["quality"]["bits"]["rate x hour"] > found["quality"]["bits"]["rate x hour with persistence"]
    again = logs.read(tmp_path / "new" / "long.npz")
    assert again.clock == Clock(1800.0)
    assert again.clients[59:62] == ("59", "further 1", "further 2")
    with pytest.raises(UserError, match="written as"):
        tyro.cli(Fit, args=[args[0], "--out", "x.txt"], config=config).run()


def test_the_command_says_what_the_log_has_and_whose_days_are_new(tmp_path, capsys):
    def phone(days):
        hours = (
            f"2024-05-{d + 1:02d} {h:02d}:30:00 \t{'wifi' if h < 7 + d % 2 else '4G'}"
            for d in range(days)
            for h in range(24)
        )
        return {"messages": "\n".join([*hours, f"2024-05-{days + 1:02d} 00:30:00 \twifi"])}

    path = tmp_path / "events.json"
    path.write_text(json.dumps({"long": phone(6), "short": phone(2)}))
    config = (tyro.conf.FlagCreatePairsOff,)
    tyro.cli(Fit, args=[str(path), "--rule", "wifi", "--days", "5"], config=config).run()
    out = capsys.readouterr().out
    assert "devices were observed for 2 to 6 whole days" in out
    assert "clients scored: 1; the others repeat their days" in out
    tyro.cli(Fit, args=[str(path), "--rule", "wifi", "--days", "14"], config=config).run()
    assert "not scored: all clients repeat their days" in capsys.readouterr().out


# What varies beyond rate, hour and persistence.


def restless(days=28, m=150, seed=0):
    """A fleet with churn, a slow state of every client, and swings common to all."""
    clock = Clock(1800.0, start=1_714_348_800.0)
    truth = Daily(
        np.ones(24),
        0.6,
        clock,
        slow=0.7,
        memory=0.8,
        common=0.35,
        common_memory=0.9,
        waiting=0.2,
        enrols=0.1,
        leaves=0.03,
    )
    p = np.linspace(0.1, 0.45, m)
    return clock, truth, Trace.draw(truth, p, 48 * days, seed)


def windows(trace, truth, seed=0):
    days = truth.clock.days(trace.rounds)
    return np.stack([truth._enrolled(seed, int(day), trace.clients) for day in days])


def test_churn_slow_states_and_common_swings_are_found():
    clock, truth, trace = restless()
    fitted = fit(trace.knowing(windows(trace, truth)), clock).dynamics
    assert fitted.slow == pytest.approx(truth.slow, abs=0.2)
    assert fitted.memory == pytest.approx(truth.memory, abs=0.2)
    assert fitted.common == pytest.approx(truth.common, abs=0.12)
    assert fitted.common_memory == pytest.approx(truth.common_memory, abs=0.1)
    assert fitted.waiting == pytest.approx(truth.waiting, abs=0.1)
    assert fitted.leaves == pytest.approx(truth.leaves, abs=0.015)
    assert fitted.enrols == pytest.approx(truth.enrols, abs=0.05)


def test_a_plain_fleet_has_none_of_it():
    clock = Clock(1800.0, start=1_714_348_800.0)
    trace = Trace.draw(Daily(np.ones(24), 0.5, clock), np.linspace(0.1, 0.6, 100), 48 * 14, 0)
    fitted = fit(trace, clock).dynamics
    assert fitted.slow < 0.2
    assert fitted.common < 0.05
    assert (fitted.waiting, fitted.leaves) == (0.0, 0.0)


def test_the_fitted_fleet_vanishes_and_swings_as_the_real_one():
    """Clients that vanish, and swings of the number available: as in the fleet, not as in one without them."""
    clock, truth, trace = restless(days=30, m=200)
    known = trace.knowing(windows(trace, truth))
    fitted = fit(known, clock)
    plain = Fitted(Daily(fitted.dynamics.profile, fitted.dynamics.persistence, clock), fitted.p)
    hours, half = clock.hours(trace.rounds), trace.rounds // 2

    def vanished(on):
        return int((on[:half].any(0) & ~on[half:].any(0)).sum())

    drawn = [fitted.draw(trace.rounds, seed=seed).on for seed in range(4)]
    kinder = [plain.draw(trace.rounds, seed=seed).on for seed in range(4)]
    real = swings(trace.on, hours)
    assert 0.6 < np.mean([swings(on, hours) for on in drawn]) / real < 1.6
    assert np.mean([swings(on, hours) for on in kinder]) < 0.5 * real
    assert 0.6 < np.mean([vanished(on) for on in drawn]) / vanished(trace.on) < 1.6
    assert np.mean([vanished(on) for on in kinder]) < 0.3 * vanished(trace.on)


def test_days_held_out_are_compared_in_what_varies():
    clock, truth, trace = restless(days=12, m=60)
    found = quality(trace.knowing(windows(trace, truth)), clock, draws=3)
    for key in (
        "clients that vanish",
        "variance of the number available, over binomial",
        "correlation of a client's days",
    ):
        assert key in found.real
        assert found.simulated[key][0] <= found.simulated[key][1]
    gone = trace.on[: found.fitted_rounds].any(0) & ~trace.on[found.fitted_rounds :].any(0)
    assert found.real["clients that vanish"] == gone.sum()


def test_a_shorter_draw_is_a_prefix_of_a_longer_one_with_hidden_states_too():
    _, truth, trace = restless(days=6, m=20)
    again = Trace.draw(truth, np.linspace(0.1, 0.45, 20), 100, 0)
    fresh = Daily(**{name: getattr(truth, name) for name in truth.__dataclass_fields__ if not name.startswith("_")})
    assert (again.on == trace.on[:100]).all()
    assert (Trace.draw(fresh, np.linspace(0.1, 0.45, 20), 100, 0).on == again.on).all()
