"""What a share of hostile clients can do under each aggregation, in closed form; and where it is refused."""

import dataclasses
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

import fedawe
from fedawe.algorithms import WithBuffers
from fedawe.audit.influence import influence
from fedawe.core.errors import UserError
from fedawe.experiments.build import experiment_of
from fedawe.experiments.settings import Settings
from fedawe.results import record as records
from fedawe.testing import check_algorithm

BY = [fedawe.Trimmed(0.3), fedawe.Median(), fedawe.NormBound(0.5)]
RULES = [fedawe.FedAvg(eta_g=0.7), fedawe.FedProx(), fedawe.FedAWE(max_absence=3), fedawe.FedAWE(max_echo=2, clip=0.4)]


@pytest.mark.parametrize("by", BY, ids=repr)
@pytest.mark.parametrize("rule", RULES, ids=repr)
def test_they_are_algorithms(rule: Any, by: Any) -> None:
    check_algorithm(fedawe.Robust(rule, by))


def round_of(rule: Any, rows: torch.Tensor, absent: int) -> torch.Tensor:
    """By how much round `absent` moves the model of all k clients, none of which was active before, [d]."""
    state = rule.init(torch.zeros(rows.shape[1], dtype=rows.dtype), len(rows))
    return -rule.aggregate(state, absent, torch.arange(len(rows)), rows).latest


@settings(max_examples=60, deadline=None)
@given(
    k=st.integers(1, 30),
    share=st.sampled_from([0.1, 0.29, 0.3, 0.45]),
    absent=st.integers(0, 4),
    seed=st.integers(0, 2**32 - 1),
    single=st.booleans(),
    data=st.data(),
)
def test_few_hostile_clients_leave_every_coordinate_between_honest_values(
    k: int, share: float, absent: int, seed: int, single: bool, data: st.DataObject
) -> None:
    draw, dtype = np.random.default_rng(seed), torch.float32 if single else torch.float64
    rule, most = data.draw(
        st.sampled_from([(fedawe.Trimmed(share), int(round(share * k, 9))), (fedawe.Median(), (k - 1) // 2)])
    )
    inner = data.draw(st.sampled_from([fedawe.FedAvg(), fedawe.FedAWE()]))
    hostile = data.draw(st.integers(0, most))
    rows = torch.from_numpy(draw.normal(size=(k, 4)) * 10.0 ** draw.integers(-6, 6, size=(1, 4))).to(dtype)
    rows[:hostile] = torch.from_numpy(draw.choice([-1e30, 1e30, 0.0], size=(hostile, 4))).to(dtype)
    echo = absent + 1 if isinstance(inner, fedawe.FedAWE) else 1
    honest = echo * rows[hostile:]
    moved = round_of(fedawe.Robust(inner, rule), rows, absent)
    assert (honest.min(0).values <= moved).all()
    assert (moved <= honest.max(0).values).all()


@pytest.mark.parametrize("inner", [fedawe.FedAvg(), fedawe.FedAWE()], ids=repr)
def test_one_hostile_client_moves_the_mean_anywhere_and_one_too_many_moves_the_trimmed_mean(inner: Any) -> None:
    honest = torch.linspace(-1, 1, 9, dtype=torch.float64)[:, None]
    one, two = (torch.cat([torch.full((n, 1), 1e6, dtype=torch.float64), honest[: 10 - n]]) for n in (1, 2))
    assert round_of(inner, one, 0) == pytest.approx(1e5)
    assert round_of(fedawe.Robust(inner, fedawe.Trimmed(0.1)), one, 0).abs() <= 1
    assert round_of(fedawe.Robust(inner, fedawe.Trimmed(0.1)), two, 0) > 1e5  # of 10, 0.1 is one client, not two
    assert round_of(fedawe.Robust(inner, fedawe.Trimmed(0.2)), two, 0).abs() <= 1


def test_trimmed_mean_and_median_by_numpy() -> None:
    draw = np.random.default_rng(0)
    for k in (1, 2, 3, 4, 7, 10, 100):
        rows = draw.normal(size=(k, 5))
        np.testing.assert_allclose(fedawe.Median().combine(torch.from_numpy(rows)), np.median(rows, 0), atol=1e-15)
        for share, b in ((0.1, k // 10), (0.29, (29 * k) // 100)):
            kept = np.sort(rows, 0)[b : k - b]
            got = fedawe.Trimmed(share).combine(torch.from_numpy(rows))
            np.testing.assert_allclose(got, kept.mean(0), atol=1e-15)


def test_rounding_and_overflow_are_no_way_out() -> None:
    for k in range(1, 40):  # the mean of k equal numbers is often not that number
        rows = torch.full((k, 1), 0.1, dtype=torch.float64)
        assert fedawe.Trimmed(0.1).combine(rows) == fedawe.Median().combine(rows) == 0.1
    lie = torch.tensor([[3e38], [0.25]], dtype=torch.float32)  # echoed five times it is no float32 any more
    moved = round_of(fedawe.Robust(fedawe.FedAWE(), fedawe.NormBound(1.0)), lie, 4)
    assert float(moved) == 1.0


def test_a_norm_bound_limits_what_hostile_clients_do_and_they_reach_the_limit() -> None:
    k, h, c = 10, 3, 2.0
    draw = np.random.default_rng(1)
    robust, worst = fedawe.Robust(fedawe.FedAvg(), fedawe.NormBound(c)), 0.0
    rows = torch.from_numpy(draw.normal(size=(k, 3))) * 5
    before = round_of(robust, rows, 0)
    for _ in range(300):
        lies = rows.clone()
        lies[:h] = torch.from_numpy(draw.normal(size=(h, 3)) * 10 ** draw.uniform(-1, 9))
        worst = max(worst, float(torch.linalg.vector_norm(round_of(robust, lies, 0) - before)))
    assert 0 < worst <= 2 * c * h / k
    rows[:h] = torch.tensor([7.0, 0.0, 0.0])
    opposite = rows.clone()
    opposite[:h] *= -1
    attained = torch.linalg.vector_norm(round_of(robust, rows, 0) - round_of(robust, opposite, 0))
    assert float(attained) == pytest.approx(2 * c * h / k)


def test_running_statistics_are_robust_too() -> None:
    G = torch.tensor([[0.0, -1e30], [0.0, 0.5], [0.0, 0.25]])  # the clients end at statistics 1e30, 0.5 and 0.75
    for by, expected in ((fedawe.Median(), 0.75), (fedawe.Trimmed(0.4), 0.75)):
        algorithm = WithBuffers(fedawe.Chosen(fedawe.Robust(fedawe.FedAWE(), by), fedawe.Uniform(9)), 1)
        state = algorithm.init(torch.tensor([0.0, 1.0]), m=3)
        assert float(algorithm.aggregate(state, 0, torch.arange(3), G).buffers) == expected


def test_the_audit_refuses_what_is_not_linear_with_the_reason() -> None:
    trace = fedawe.Trace([[1, 0], [1, 1]])
    with pytest.raises(UserError, match="Robust is not linear in the innovations, so that how much a client counts"):
        influence(fedawe.Robust(fedawe.FedAWE(), fedawe.Median()), trace)
    with pytest.raises(UserError, match="a clip is not linear"):
        influence(fedawe.Private(fedawe.FedAWE(), seed=1), trace)


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: fedawe.Trimmed(0.5), "share is 0.5"),
        (lambda: fedawe.Trimmed(0), "share is 0"),
        (lambda: fedawe.NormBound(0), "c is 0"),
        (lambda: fedawe.Robust(fedawe.MIFA()), "MIFA does not take the plain mean of the active clients' updates"),
        (lambda: fedawe.Robust(fedawe.FedAvg(), fedawe.Median), "by is <class"),
        (lambda: fedawe.Weighted(fedawe.Robust()), "Robust FedAvg cannot be weighted"),
    ],
)
def test_what_cannot_be_robust_is_refused(make: Any, message: str) -> None:
    with pytest.raises(UserError, match=message):
        make()


def test_robust_and_private_runs_from_the_command_line_are_the_same_with_workers(tmp_path: Path) -> None:
    shape = {"model": "softmax", "clients": 8, "alpha": 1.0, "rounds": 3, "evaluate_every": 3, "steps": 2}
    robust = experiment_of(Settings(**shape, aggregate="trimmed:share=0.3"), ["fedavg", "fedawe"], [0])
    private = "private:rule=fedawe(max_echo=3),clip=0.5,noise=0.3"
    with pytest.raises(UserError, match="Private FedAWE does not take the plain mean"):
        experiment_of(Settings(**shape, aggregate="median"), [private], [0])
    experiment = experiment_of(Settings(**shape), [private], [0, 1])
    experiment = dataclasses.replace(experiment, algorithms={**experiment.algorithms, **robust.algorithms})
    outcomes = []
    for workers in (1, 2):
        experiment.run(tmp_path / str(workers), workers=workers)
        found = [records.read(path) for path in sorted((tmp_path / str(workers)).glob("*/seed-*/record.jsonl"))]
        outcomes.append([record.end["model_sha256"] for record in found])  # type: ignore[index]
        assert sum("epsilon" in record.evaluations[-1] for record in found) == 2
    assert outcomes[0] == outcomes[1]
    assert len(set(outcomes[0])) == 6
