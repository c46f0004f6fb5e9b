"""Differential privacy: sensitivity by brute force, epsilon against closed forms, noise that is what it should be."""

import fedawe.deploy  # first, since it takes care of the warnings of what Flower imports

# isort: split
import itertools
import math
from pathlib import Path
from typing import Any

import dp_accounting
import numpy as np
import pytest
import torch
from dp_accounting import pld
from flower_grid import connected, record_in, strategy_on
from flwr.app import ArrayRecord
from scipy.stats import norm

import fedawe
from fedawe.algorithms import WithBuffers
from fedawe.algorithms.private import epsilon
from fedawe.core.describe import short
from fedawe.core.errors import UserError
from fedawe.deploy import digits
from fedawe.deploy.identity import Roster
from fedawe.deploy.replay import replay
from fedawe.deploy.session import Session
from fedawe.tasks import Classification, ModuleNetwork
from fedawe.testing import check_algorithm

C = 0.5
PRIVATE: list[Any] = [
    fedawe.Private(fedawe.FedAvg(eta_g=0.7), seed=1),
    fedawe.Private(fedawe.FedAvg(), clip=C, denominator=3.0, seed=2),
    fedawe.Private(fedawe.FedProx(), noise=0.1, seed=3),
    fedawe.Private(fedawe.FedAWE(max_absence=3), clip=C, delta=1e-3, seed=4),
    fedawe.FedAvgM(rule=fedawe.Private(seed=5)),
]


@pytest.mark.parametrize("algorithm", PRIVATE, ids=repr)
def test_they_are_algorithms(algorithm: Any) -> None:
    check_algorithm(algorithm)


# Sensitivity. Two runs with the same seed have the same noise, so that what remains of the difference is the data.

VALUES = (-9.0, -0.6, -0.2, 0.0, 0.3, 7.0)  # of a client's update; some are within the clip, some far out


def after(algorithm: Any, rounds: list[tuple[list[int], list[float]]], state: Any = None) -> Any:
    """The state of three clients after rounds with these updates, from the start or from a state."""
    state = algorithm.init(torch.zeros(1, dtype=torch.float64), 3) if state is None else state
    for t, (A, values) in enumerate(rounds, state.t + 1):
        G = torch.tensor(values, dtype=torch.float64).reshape(-1, 1)
        state = algorithm.aggregate(state, t, torch.tensor(A, dtype=torch.int64), G)
    return state


def largest(algorithm: Any, past: list[tuple[list[int], list[float]]], look: Any, scale: float) -> float:
    """The largest change of `look(state)`, over all updates of the last round, when one client's becomes zero."""
    found, start = 0.0, after(algorithm, past)
    outcome = {
        values: float(look(after(algorithm, [([0, 1, 2], [*values])], start)))
        for values in itertools.product(VALUES, repeat=3)
    }
    for values, i in itertools.product(outcome, range(3)):
        zeroed = tuple(0.0 if j == i else value for j, value in enumerate(values))
        found = max(found, scale * abs(outcome[values] - outcome[zeroed]))
    return found


@pytest.mark.parametrize("rule", [fedawe.FedAvg(), fedawe.FedProx(), fedawe.FedAWE()], ids=repr)
def test_one_clients_data_change_a_round_by_at_most_the_clip(rule: Any) -> None:
    past: list[tuple[list[int], list[float]]] = [([0, 1], [0.1, 0.2]), ([], []), ([1], [0.3]), ([0], [0.1])]
    private = fedawe.Private(rule, clip=C, noise=0.8, seed=3)
    assert largest(private, past, lambda state: state.latest, 3) == pytest.approx(C, rel=1e-12)
    # x-bar has the fixed denominator m = 3: with all clients active it is the last aggregate.
    assert largest(private, past, private.model, 3) == pytest.approx(C, rel=1e-12)
    # Without a clip, or with one on G_i before the echo, an update counts as often as its client was absent.
    unclipped = largest(rule, past, lambda state: state.latest, 3)
    assert unclipped == pytest.approx(5 * 9.0 if isinstance(rule, fedawe.FedAWE) else 9.0)


def test_a_clip_before_the_echo_multiplies_the_sensitivity_by_the_largest_echo() -> None:
    def clipped_before(max_echo: int | None) -> float:
        algorithm = fedawe.FedAWE(max_echo=max_echo)
        ends = [after(algorithm, [*[([], [])] * 6, ([0], [value])]).latest for value in (C, 0.0)]
        return abs(float(ends[0] - ends[1]))

    assert clipped_before(None) == pytest.approx(7 * C)
    assert clipped_before(3) == pytest.approx(3 * C)
    private = fedawe.Private(fedawe.FedAWE(), clip=C, seed=1)
    ends = [after(private, [*[([], [])] * 6, ([0], [value])]).latest for value in (100.0, 0.0)]
    assert abs(float(ends[0] - ends[1])) == pytest.approx(C)


def test_with_a_denominator_a_client_may_be_added_or_removed_altogether() -> None:
    private, found = fedawe.Private(fedawe.FedAvg(), clip=C, denominator=4.0, seed=3), 0.0
    for n in (1, 2, 3):
        for values in itertools.product(VALUES, repeat=n):
            whole = after(private, [(list(range(n)), list(values))]).latest
            for i in range(n):
                rest = [j for j in range(n) if j != i]
                without = after(private, [(rest, [values[j] for j in rest])]).latest  # an empty round included
                found = max(found, 4.0 * abs(float(whole - without)))
    assert found == pytest.approx(C, rel=1e-12)


def test_a_held_model_shows_who_was_active_so_fedawe_has_no_such_guarantee() -> None:
    # Client 0 holds a model far from that of client 1; whether it is active moves the next model far beyond C.
    private = fedawe.Private(fedawe.FedAWE(eta_g=1000.0), clip=C, noise=1e-6, seed=3)
    start: list[tuple[list[int], list[float]]] = [([0], [9.0]), ([1], [-9.0])]
    both, one = (after(private, [*start, *last]).latest for last in ([([0, 1], [0.0, 0.0])], [([1], [0.0])]))
    assert abs(float(both - one)) > 100 * C
    with pytest.raises(UserError, match="FedAWE averages the models that its active clients hold"):
        fedawe.Private(fedawe.FedAWE(), denominator=3.0).init(torch.zeros(1), 3)


# Epsilon


@pytest.mark.parametrize(("noise", "releases", "delta"), [(1.0, 1, 1e-5), (0.7, 4, 1e-3), (20.0, 300, 1e-6)])
def test_epsilon_is_that_of_the_gaussian_mechanism(noise: float, releases: int, delta: float) -> None:
    found, s = epsilon(noise, releases, delta), math.sqrt(releases) / noise
    # Balle and Wang 2018, Theorem 8: the delta of one Gaussian mechanism of sensitivity 1 and deviation 1/s.
    exact = norm.cdf(s / 2 - found / s) - math.exp(found) * norm.cdf(-s / 2 - found / s)
    assert exact == pytest.approx(delta, rel=1e-6)


def test_rounds_compose_as_the_accountant_composes_them() -> None:
    accountant = pld.PLDAccountant().compose(dp_accounting.GaussianDpEvent(3.0), 7)
    assert epsilon(3.0, 7, 1e-5) == pytest.approx(accountant.get_epsilon(1e-5), rel=1e-4)


def test_the_record_says_what_the_most_active_client_has_spent() -> None:
    rounds: list[tuple[list[int], list[float]]] = [([0, 1], [1.0, 1.0]), ([], []), ([1], [1.0])]
    by_clients = fedawe.Private(fedawe.FedAWE(), noise=2.0, seed=1)
    assert by_clients.diagnostics(after(by_clients, rounds))["epsilon"] == epsilon(2.0, 2, 1e-5)
    by_rounds = fedawe.Private(fedawe.FedAvg(), noise=2.0, denominator=2.0, seed=1)
    assert by_rounds.diagnostics(after(by_rounds, rounds))["epsilon"] == epsilon(2.0, 3, 1e-5)
    assert by_clients.diagnostics(after(by_clients, []))["epsilon"] == 0


# Noise


def noises(seed: int, rounds: int = 2, d: int = 40_000) -> list[np.ndarray[Any, Any]]:
    """What rounds add to the sum of two clients' updates, in units of z C."""
    private = fedawe.Private(fedawe.FedAvg(), clip=C, noise=3.0, seed=seed)
    state, out = private.init(torch.zeros(d, dtype=torch.float64), 2), []
    for t in range(rounds):
        moved = private.aggregate(state, t, torch.tensor([0, 1]), torch.zeros(2, d, dtype=torch.float64))
        out.append(2 * (state.latest - moved.latest).numpy() / (3.0 * C))
        state = moved
    return out


def test_noise_is_standard_normal_new_in_every_round_and_named_by_the_seed() -> None:
    one, two = noises(7)
    for each in (one, two):
        assert abs(each.mean()) < 5 / math.sqrt(len(each))
        assert abs(each.var() - 1) < 5 * math.sqrt(2 / len(each))
        assert abs(np.mean(np.abs(each) < 1.96) - 0.95) < 5 * math.sqrt(0.95 * 0.05 / len(each))
    for other in (two, noises(8)[0]):
        assert abs(np.corrcoef(one, other)[0, 1]) < 5 / math.sqrt(len(one))
    np.testing.assert_array_equal(one, noises(7)[0])


def test_a_federation_has_secret_noise_that_is_new_after_every_start(tmp_path: Path) -> None:
    config = {"model": "mlp", "algorithm": "private:rule=fedawe,clip=0.5,noise=0.5"}
    models = []
    for out in (tmp_path / "one", tmp_path / "two"):
        grid = connected(config=config)
        strategy = strategy_on(grid, out)
        strategy.start(grid, ArrayRecord(digits.initial(grid.config)), num_rounds=2, timeout=30.0)
        models.append(strategy.session.model())
        secret: Any = strategy.session.algorithm
        assert secret.seed > 2**200
        assert str(secret.seed) not in repr(secret)
        written = b"".join(path.read_bytes() for path in out.rglob("*") if path.is_file())
        assert str(secret.seed).encode() not in written
        assert record_in(out).evaluations[-1]["epsilon"] == pytest.approx(epsilon(0.5, 2, 1e-5))
        with pytest.raises(UserError, match="is secret and was not kept"):
            replay(out)
    assert not torch.allclose(models[0], models[1])


# Refusals


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: fedawe.Private(clip=0), "clip is 0"),
        (lambda: fedawe.Private(noise=0), "noise is 0"),
        (lambda: fedawe.Private(delta=0), "delta is 0"),
        (lambda: fedawe.Private(denominator=-1), "denominator is -1"),
        (lambda: fedawe.Private(seed=0.5), "seed must be a whole number"),
        (lambda: fedawe.Private(fedawe.SCAFFOLD()), "SCAFFOLD does not take the plain mean"),
        (lambda: fedawe.Weighted(fedawe.Private()), "Private FedAvg cannot be weighted"),
        (lambda: fedawe.Chosen(fedawe.Private(), fedawe.Oort(3)), "Oort chooses by losses, which clients would send"),
        (lambda: WithBuffers(fedawe.FedAvgM(rule=fedawe.Private()), 2), "the model has 2 running statistics"),
        (lambda: after(fedawe.Private(), [([0], [1.0])]), "Private has no seed"),
    ],
)
def test_what_would_not_be_private_is_refused(make: Any, message: str) -> None:
    with pytest.raises(UserError, match=message):
        make()


def test_noise_on_parameters_that_are_not_trained_is_refused_wherever_rounds_begin(tmp_path: Path) -> None:
    def make() -> torch.nn.Module:
        module = torch.nn.Sequential(torch.nn.Flatten(), torch.nn.Linear(64, 4), torch.nn.Linear(4, 10))
        module[1].requires_grad_(False)
        return module

    task = Classification(fedawe.digits(), ModuleNetwork(make), [np.arange(9), np.arange(9, 20)])
    algorithm: Any = fedawe.FedAvgM(rule=fedawe.Private(seed=5))
    trace = fedawe.Trace(np.ones((2, 2), dtype=bool))
    experiment = fedawe.Experiment(task=task, algorithms={"a": algorithm}, availability=trace, rounds=2, seeds=(0,))
    for begin in (
        lambda: fedawe.simulate(task, algorithm, trace, fedawe.Local(), seed=0),
        lambda: experiment.run(tmp_path / "out"),
        lambda: Session(algorithm, task.layout, task.initial(0), Roster(2, False, False)),
    ):
        with pytest.raises(UserError, match="is not trained"):
            begin()


def test_a_seed_of_the_users_own_is_in_no_label() -> None:
    assert short(fedawe.Private(fedawe.FedAvg(), seed=987654321), "private") == "private"
