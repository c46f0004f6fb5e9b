"""The authors' split of a data set, against a slow version of their procedure with the same generator."""

from fractions import Fraction
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

import fedawe
from fedawe.tasks import label_frequencies


def authors_split(labels: list[int], clients: int, alpha: float, rng: np.random.Generator) -> list[list[int]]:
    """Client n gets the indices [prev_end, end) of class c, end = round_half_even(N_c sum_{j<=n} q_jc / sum_j q_jc)."""
    classes = max(labels) + 1
    q = rng.dirichlet(alpha * np.ones(classes), clients)
    parts: list[list[int]] = [[] for _ in range(clients)]
    for c in range(classes):
        members = [index for index, label in enumerate(labels) if label == c]  # in the order of the data set
        total, so_far, previous = sum(q[j][c] for j in range(clients)), 0.0, 0
        for n in range(clients):
            so_far += q[n][c]
            end = round(len(members) * so_far / total)  # Python rounds halves to even
            parts[n] += members[previous:end]
            previous = end
    return parts


data_sets = st.lists(st.integers(0, 5), min_size=6, max_size=150)


@given(labels=data_sets, clients=st.integers(1, 6), alpha=st.floats(0.05, 100.0), seed=st.integers(0, 2**32))
def test_the_split_is_the_authors_to_the_last_index(labels: list[int], clients: int, alpha: float, seed: int) -> None:
    parts = fedawe.dirichlet_partition(labels, clients, alpha, np.random.default_rng(seed))
    expected = authors_split(labels, clients, alpha, np.random.default_rng(seed))
    assert [part.tolist() for part in parts] == expected


@pytest.mark.parametrize(("samples", "clients"), [(98, 28), (45, 18), (110, 20), (35, 14)])
def test_halves_are_rounded_to_even_exactly(samples: int, clients: int) -> None:
    # With one class q is 1 for everyone: N n / m is exact, and often half a sample. N (n / m) would not be exact.
    parts = fedawe.dirichlet_partition([0] * samples, clients, 1.0, np.random.default_rng(0))
    assert np.cumsum([len(part) for part in parts]).tolist() == [
        round(Fraction(samples * (n + 1), clients)) for n in range(clients)
    ]


def test_the_split_of_a_large_data_set_is_the_authors() -> None:
    labels = np.random.default_rng(0).integers(10, size=20_000).tolist()
    parts = fedawe.dirichlet_partition(labels, 100, 0.1, fedawe.rng(3, "partition"))
    assert [part.tolist() for part in parts] == authors_split(labels, 100, 0.1, fedawe.rng(3, "partition"))


@given(
    labels=data_sets,
    clients=st.integers(1, 6),
    alpha=st.sampled_from([1e-300, 1e-12, 1e-6, 1e-3, 0.1, 1.0, 1e3, 1e6, 1e300]),
    seed=st.integers(0, 2**32),
)
def test_every_sample_goes_to_exactly_one_client(labels: list[int], clients: int, alpha: float, seed: int) -> None:
    parts = fedawe.dirichlet_partition(labels, clients, alpha, np.random.default_rng(seed))
    assert len(parts) == clients
    assert all(np.issubdtype(part.dtype, np.integer) for part in parts)
    assert sorted(np.concatenate(parts).tolist()) == list(range(len(labels)))


@pytest.mark.parametrize("alpha", [1e-300, 1e-6, 1e6, 1e300])
@pytest.mark.parametrize("seed", range(10))
def test_it_ends_for_any_alpha_on_a_data_set_of_ten_classes(alpha: float, seed: int) -> None:
    labels = np.arange(2_000) % 10
    parts = fedawe.dirichlet_partition(labels, 100, alpha, fedawe.rng(seed, "partition"))
    assert sorted(np.concatenate(parts).tolist()) == list(range(2_000))


def test_a_large_alpha_is_even_and_a_small_one_is_not() -> None:
    labels = np.arange(2_000) % 10
    even = fedawe.dirichlet_partition(labels, 20, 1e6, np.random.default_rng(0))
    assert {len(part) for part in even} <= set(range(90, 111))
    assert all(len(set(labels[part])) == 10 for part in even)
    uneven = fedawe.dirichlet_partition(labels, 20, 1e-6, np.random.default_rng(0))
    assert all(len(set(labels[part])) <= 2 for part in uneven)


@pytest.mark.parametrize("kind", [list, np.array, torch.tensor, lambda y: np.array(y, dtype=np.uint8)])
def test_labels_may_be_a_list_an_array_or_a_tensor(kind: Any) -> None:
    labels = [0, 2, 1, 0, 2, 2, 1]
    parts = fedawe.dirichlet_partition(kind(labels), 3, 0.5, np.random.default_rng(1))
    assert [part.tolist() for part in parts] == authors_split(labels, 3, 0.5, np.random.default_rng(1))


def test_it_is_a_list_of_arrays() -> None:
    parts = fedawe.dirichlet_partition([0, 1, 0, 1], 2, 1.0, np.random.default_rng(0))
    assert type(parts) is list
    assert all(type(part) is np.ndarray for part in parts)


def test_the_generator_is_used_once() -> None:
    used, plain = np.random.default_rng(5), np.random.default_rng(5)
    fedawe.dirichlet_partition([0, 1, 2, 0], 2, 0.3, used)
    plain.dirichlet(0.3 * np.ones(3), 2)
    assert used.random() == plain.random()


@pytest.mark.parametrize(
    ("labels", "clients", "alpha", "message"),
    [
        ([0, 1], 3, 0.1, "3 clients cannot share 2 samples"),
        ([0, 1], 0, 0.1, "0 clients"),
        ([0, 1], -1, 0.1, "-1 clients"),
        ([0, 1], 2, 0.0, "alpha is 0.0"),
        ([0, 1], 2, -1.0, "alpha is -1.0"),
        ([0, 1], 2, float("nan"), "alpha is nan"),
        ([0, 1], 2, float("inf"), "alpha is inf"),
        ([], 1, 0.1, r"\[0\]"),
        ([[0, 1]], 1, 0.1, r"\[1, 2\]"),
        ([0.0, 1.0], 1, 0.1, "float64"),
        ([0, -1], 1, 0.1, "from 0"),
        (["cat", "dog"], 1, 0.1, "U3"),
    ],
)
def test_what_cannot_be_shared_out_is_refused(labels: Any, clients: int, alpha: float, message: str) -> None:
    with pytest.raises(fedawe.UserError, match=message):
        fedawe.dirichlet_partition(labels, clients, alpha, np.random.default_rng(0))


def test_label_frequencies_are_those_the_clients_really_have() -> None:
    nu = label_frequencies([0, 0, 1, 2, 2, 2], [np.array([0, 2]), np.array([3, 4, 5, 1]), np.array([], dtype=int)])
    np.testing.assert_allclose(nu[:2], [[0.5, 0.5, 0.0], [0.25, 0.0, 0.75]])
    assert np.isfinite(nu[2]).all()  # the authors' code divides 0 by 0 here
    np.testing.assert_allclose(nu.sum(1), 1.0)
