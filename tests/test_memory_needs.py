"""What a run would need is estimated before anything is allocated; what has no room is refused with the number."""

import re
import subprocess
import sys

import numpy as np
import pytest
import torch

import fedawe
from fedawe.algorithms.exchange import most_asked
from fedawe.core import memory as core_memory
from fedawe.training import memory

CLIENTS, D = 50, 40
EVER = 30  # of the 50 clients are ever active, at most 3 in a round
ON = np.zeros((10, CLIENTS), dtype=bool)
ON[np.arange(EVER) // 3, np.arange(EVER)] = True
TRACE = fedawe.Trace(ON)
VECTOR = D * 4


def begin(algorithm: object) -> None:
    task = fedawe.Quadratic(torch.ones(CLIENTS, D))
    next(fedawe.simulate(task, algorithm, TRACE, fedawe.Local(), seed=0))  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("algorithm", "vectors", "said"),
    [
        (fedawe.MIFA(), EVER, "MIFA keeps 30 vectors of 40 numbers, 0.0 GB"),
        (fedawe.FedVARP(), EVER, "FedVARP keeps 30 vectors of 40 numbers"),
        (fedawe.FedAvg(), 9, "a round with 3 active clients needs 3 vectors of 40 numbers for each of them, 0.0 GB"),
        (fedawe.Chosen(fedawe.FedAvg(), fedawe.Uniform(2)), 6, "a round with 2 active clients"),
        (fedawe.F3AST(capacity=1), 3, "a round with 1 active clients"),
    ],
    ids=repr,
)
def test_it_is_refused_with_a_number(
    algorithm: object, vectors: int, said: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(memory, "free_memory", lambda: vectors * VECTOR)
    begin(algorithm)
    monkeypatch.setattr(memory, "free_memory", lambda: vectors * VECTOR - 1)
    with pytest.raises(fedawe.UserError, match=re.escape(said)):
        begin(algorithm)
    monkeypatch.setattr(memory, "free_memory", lambda: None)
    begin(algorithm)


@pytest.mark.parametrize(
    ("algorithm", "most"),
    [
        (fedawe.FedAvg(), None),
        (fedawe.F3AST(capacity=4), 4),
        (fedawe.FedLaAvg(), None),
        (fedawe.FedLaAvg(k=3), 3),
        (fedawe.Chosen(fedawe.FedLaAvg(k=3), fedawe.Uniform(2)), 2),
    ],
    ids=repr,
)
def test_how_many_clients_are_asked_at_most(algorithm: object, most: int | None) -> None:
    assert most_asked(algorithm) == most


@pytest.mark.parametrize(
    ("algorithm", "trace", "d", "said"),
    [
        (fedawe.MIFA(), fedawe.Trace(np.ones((1, 10**4), dtype=bool)), 10**6, "a round with 10,000 active clients"),
        (fedawe.FedAvg(), fedawe.Trace(np.ones((1, 10**4), dtype=bool)), 10**6, "120.0 GB, of which 24.0 GB are free"),
        (
            fedawe.MIFA(),
            fedawe.Trace(np.eye(100, 10**4, dtype=bool).repeat(100, 1)[:, : 10**4]),
            10**6,
            "MIFA keeps 10,000 vectors of 1,000,000 numbers, 40.0 GB, of which 24.0 GB are free",
        ),
        (
            fedawe.FedAWE(),
            fedawe.Trace.draw(fedawe.Stationary(), [0.001] * 10**5, 10**4, 0),
            2 * 10**6,
            "FedAWE keeps about",
        ),
    ],
    ids=["mifa-active", "fedavg-active", "mifa-rows", "fedawe-versions"],
)
def test_a_million_parameters(
    algorithm: fedawe.FedAvg, trace: fedawe.Trace, d: int, said: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(memory, "free_memory", lambda: 24 * 10**9)
    task = fedawe.Quadratic(torch.ones(1, 1))
    with pytest.raises(fedawe.UserError, match=re.escape(said)):
        memory.check_needs(algorithm, algorithm.init(torch.zeros(d), trace.clients), trace, task, fedawe.Local())


def test_the_estimate_of_versions_is_about_what_a_run_keeps() -> None:
    for p in (0.02, 0.3):
        trace = fedawe.Trace.draw(fedawe.Stationary(), np.full(200, p), 400, 0)
        task = fedawe.Quadratic(torch.ones(200, 1))
        *_, last = fedawe.simulate(task, fedawe.FedAWE(), trace, fedawe.Local(steps=1), seed=0)
        assert memory.versions_held(trace) == pytest.approx(len(last.state.models), rel=0.25, abs=3)


def test_steps_whose_samples_have_no_room(monkeypatch: pytest.MonkeyPatch) -> None:
    task = fedawe.classification(fedawe.tasks.digits(), "softmax", 5, 1.0)
    trace = fedawe.Trace(np.ones((1, 5), dtype=bool))
    with pytest.raises(fedawe.UserError, match="1,000,000,000 local steps on batches of 32 samples need"):
        next(fedawe.simulate(task, fedawe.FedAvg(), trace, fedawe.Local(steps=10**9, batch=32), seed=0))


def test_the_memory_of_this_machine_is_known() -> None:
    free = memory.free_memory()
    assert free is None or free > 10**6


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="the limit is read from /proc")
def test_a_limit_of_the_process_counts_as_memory_that_is_not_free() -> None:
    code = """
import resource
from fedawe.core.memory import check_room, free_memory
before = free_memory()
resource.setrlimit(resource.RLIMIT_AS, (2 * 10**9, 2 * 10**9))
assert before > free_memory() > 0 and free_memory() < 2 * 10**9
check_room("something", 2 * 10**9, "take less")
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert "something would take 2.0 GB of memory; 2.0 GB are free" in done.stderr


def test_echoes_that_do_not_fit_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    trace = fedawe.Trace(np.ones((10, 10), dtype=bool))
    assert len(trace.echoes()) == 100
    monkeypatch.setattr(core_memory, "free_memory", lambda: 4799)
    with pytest.raises(fedawe.UserError, match="the echoes of 100 entries of a trace would take"):
        trace.echoes()
