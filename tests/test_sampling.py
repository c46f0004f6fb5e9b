"""Which samples clients look at, against one generator for each name."""

import pickle

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

import fedawe
from fedawe.core.rng import streams
from fedawe.tasks.base import Work
from fedawe.tasks.sampling import Sampling


def by_the_rule(part: np.ndarray, i: int, visits: int, steps: int, work: Work) -> np.ndarray:
    """The rows of one client, [steps, b]."""
    n, size = len(part), work.size
    if n <= size:
        return np.tile(part, (steps, 1))
    if work.rule == "iid":
        return part[fedawe.rng(work.seed, "batch", work.t, i).integers(n, size=(steps, size))]
    rows = []
    for q in range(visits * steps, (visits + 1) * steps):
        epoch, batch = divmod(q, n // size)
        rows.append(fedawe.rng(work.seed, "epoch", i, epoch).permutation(part)[batch * size : (batch + 1) * size])
    return np.stack(rows)


@settings(max_examples=60, deadline=None)
@given(data=st.data())
def test_they_are_the_named_draws(data: st.DataObject) -> None:
    sizes = data.draw(st.lists(st.integers(0, 40), min_size=1, max_size=6).filter(any))
    order = np.random.default_rng(0).permutation(1000)[: sum(sizes)]
    parts = np.split(order, np.cumsum(sizes)[:-1])
    sampling = Sampling(parts)
    steps, size, rule = (
        data.draw(st.integers(1, 5)),
        data.draw(st.integers(1, 16)),
        data.draw(st.sampled_from(["iid", "epochs"])),
    )
    A = data.draw(st.lists(st.integers(0, len(sizes) - 1), unique=True))
    for t in range(4):  # what is kept from round to round changes nothing
        visits = [data.draw(st.integers(t, t + 1)) for _ in A]
        counts = [data.draw(st.integers(1, steps)) for _ in A] if data.draw(st.booleans()) else None
        given_counts = None if counts is None else torch.tensor(counts, dtype=torch.int64)
        if counts:
            work = Work(torch.tensor(A), t, 5, max(counts), size, rule, torch.tensor(visits), given_counts)
        else:
            work = Work(torch.tensor(A, dtype=torch.int64), t, 5, steps, size, rule, torch.tensor(visits))
        rows, real = sampling.rows(work)
        assert rows.shape == (work.steps, len(A), min(size, max(sizes)))
        for n, i in enumerate(A):
            own = by_the_rule(parts[i], i, visits[n], work.steps_of(n), work)
            assert real[n] == own.shape[1]
            assert np.array_equal(rows[: len(own), n, : real[n]], own)
            assert not rows[len(own) :, n].any()
            assert not rows[:, n, real[n] :].any()


def test_what_is_kept_is_bounded_and_stays_at_home(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("fedawe.tasks.sampling.HELD", 100)
    sampling = Sampling([np.arange(40), np.arange(40, 80), np.arange(80, 120)])
    work = Work(torch.arange(2), 0, 0, 3, 16, "epochs", torch.zeros(2, dtype=torch.int64))
    sampling.rows(work)
    assert sampling.held == 80
    assert pickle.loads(pickle.dumps(sampling)).permutations == {}
    sampling.rows(Work(torch.arange(3), 0, 1, 3, 16, "epochs", torch.zeros(3, dtype=torch.int64)))
    assert sampling.held == 0


def test_streams_of_pairs_are_the_named_generators() -> None:
    pairs = [(3, 0), (3, 1), (12, 7)]
    for (i, j), generator in zip(pairs, streams(4, "epoch", last=pairs), strict=True):
        assert generator.integers(10**6) == fedawe.rng(4, "epoch", i, j).integers(10**6)
