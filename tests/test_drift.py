"""Whether rates change: found within a week, and not where clients are merely persistent."""

import numpy as np
import pytest

import fedawe
from fedawe.audit.drift import drift_of
from fedawe.availability.clock import Clock
from fedawe.availability.fit import Daily
from fedawe.availability.trace import Trace

CLOCK = Clock(600.0, start=1_714_348_800.0)  # ten-minute rounds from Monday 2024-04-29, 00:00 UTC
DAY = 144


def fleet(q, p, days, seed, m=100):
    return Trace.draw(fedawe.Markov(q=q), np.full(m, p), int(DAY * days), seed).on


def found(on, clock=CLOCK, **more):
    return drift_of(on, clock, np.zeros(on.shape[1], dtype=bool), **more)


@pytest.mark.parametrize("days", [4, 5, 6, 7])
def test_a_fleet_that_falls_in_mid_week_is_noticed(days):
    on = np.concatenate([fleet(0.1, 0.6, days / 2, 0), fleet(0.1, 0.05, days / 2, 1)])
    drift = found(on)
    assert drift.fleet_changes
    assert drift.clients_change
    assert drift.changed > 50
    assert abs(drift.change - DAY * days / 2) <= 24  # within a block
    assert drift.days == days


def test_half_as_much_is_noticed_too():
    """The figures of docs/audit.md, from fewer fleets: at least 0.9 of falls from 60 % to 30 %."""
    falls = [np.concatenate([fleet(0.05, 0.6, 3.5, 2 * s), fleet(0.05, 0.3, 3.5, 2 * s + 1)]) for s in range(10)]
    assert sum(found(on).fleet_changes for on in falls) >= 9


@pytest.mark.parametrize("q", [0.01, 0.02, 0.1, 0.5])
def test_persistent_clients_raise_no_more_alarms_than_chance(q):
    """200 clients that never change: 10 expected at p < 0.05, and more than 19 once in 200 times."""
    drift = found(fleet(q, 0.4, 7, 3, m=200))
    assert drift.tested > 150
    assert drift.changed <= 19
    assert not drift.fleet_changes
    assert not drift.clients_change


def test_too_few_days_say_nothing():
    assert found(fleet(0.1, 0.5, 2, 0)) is None
    assert found(np.ones((40, 3), dtype=bool), clock=None) is None


def test_a_client_that_hardly_changes_is_not_tested():
    on = fleet(0.1, 0.5, 7, 0, m=4).copy()
    on[:, 0] = np.arange(len(on)) < 500
    assert np.isnan(found(on).p_values[0])
    assert found(on).tested == 3


def test_a_rhythm_of_the_day_is_no_change():
    profile = np.where((np.arange(24) >= 8) & (np.arange(24) < 20), 1.6, 0.4)
    on = Trace.draw(Daily(profile, 0.5, CLOCK), np.full(60, 0.5), rounds=DAY * 6, seed=0).on
    drift = found(on)
    assert not drift.fleet_changes
    assert not drift.clients_change


def test_what_is_unknown_is_no_change():
    """Half of the fleet enrols on the fourth day: none of them changes its rate."""
    on = fleet(0.2, 0.5, 8, 0)
    known = np.ones_like(on)
    known[: DAY * 4, :50] = False
    assert found(on & known).fleet_changes
    drift = found(on & known, known=known)
    assert not drift.fleet_changes
    assert drift.tested == 50


def test_long_logs_are_tested_by_blocks_of_days():
    clock = Clock(3600.0, start=CLOCK.start)
    on = np.random.default_rng(0).random((24 * 100, 30)) < 0.5
    drift = drift_of(on, clock, np.zeros(30, dtype=bool))
    assert drift.unit == "blocks of 3 days"
    assert not drift.fleet_changes
