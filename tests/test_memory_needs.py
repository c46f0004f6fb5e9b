"""An algorithm that keeps a vector for every client is refused where it would have no room."""

import numpy as np
import pytest
import torch

import fedawe
from fedawe.training import memory

CLIENTS, D = 50, 40
TRACE = fedawe.Trace(np.arange(CLIENTS) < 30 * np.ones((3, 1)))  # 30 of the 50 are ever active


def begin(algorithm: object) -> None:
    task = fedawe.Quadratic(torch.ones(CLIENTS, D))
    next(fedawe.simulate(task, algorithm, TRACE, fedawe.Local(), seed=0))  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("algorithm", "kinds"),
    [(fedawe.MIFA(), 1), (fedawe.FedVARP(), 1), (fedawe.FedAvg(), 0), (fedawe.FedAWE(), 0)],
    ids=repr,
)
def test_it_is_refused_with_a_number(algorithm: object, kinds: int, monkeypatch: pytest.MonkeyPatch) -> None:
    needed = kinds * 30 * D * 4
    monkeypatch.setattr(memory, "free_memory", lambda: needed)
    begin(algorithm)
    monkeypatch.setattr(memory, "free_memory", lambda: needed - 1)
    if kinds:
        with pytest.raises(fedawe.UserError, match=r"keeps 30 vectors of 40 numbers, 0\.0 GB"):
            begin(algorithm)
    monkeypatch.setattr(memory, "free_memory", lambda: None)
    begin(algorithm)


def test_ten_thousand_clients_of_a_million_parameters(monkeypatch: pytest.MonkeyPatch) -> None:
    state = fedawe.MIFA().init(torch.zeros(10**6), 10**4)
    trace = fedawe.Trace(np.ones((1, 10**4), dtype=bool))
    monkeypatch.setattr(memory, "free_memory", lambda: 24 * 10**9)
    with pytest.raises(
        fedawe.UserError, match=r"MIFA keeps 10,000 vectors of 1,000,000 numbers, 40\.0 GB, of which 24\.0 GB"
    ):
        memory.check_needs(fedawe.MIFA(), state, trace)


def test_the_memory_of_this_machine_is_known() -> None:
    free = memory.free_memory()
    assert free is None or free > 10**6
