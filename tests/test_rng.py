"""Random numbers addressed by name."""

import itertools

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import fedawe
from fedawe.core.rng import _encode

words = st.one_of(st.integers(-(10**30), 10**30), st.text(max_size=12), st.sampled_from(["i1", "s1:a", "/", ":", "1"]))
names = st.tuples(st.integers(-(10**20), 10**20), st.lists(words, max_size=5).map(tuple))


def first(seed: int, path: tuple[int | str, ...]) -> int:
    return int(fedawe.rng(seed, *path).integers(2**63))


@given(one=names, other=names)
def test_different_names_are_different_generators(one: tuple[int, tuple], other: tuple[int, tuple]) -> None:
    # bool is an int to Python and not among the words; 63 bits do not meet by chance.
    assert (first(*one) == first(*other)) is (one == other)
    assert (_encode(*one) == _encode(*other)) is (one == other)


@given(path=st.lists(st.text("ab1:/is", max_size=3), min_size=1, max_size=4))
def test_no_way_to_write_a_name_as_one_word_is_that_name(path: list[str]) -> None:
    for separator in ("/", "", ":", "/s", "/s1:", "/i"):
        joined = separator.join(path)
        assert (first(0, (joined,)) == first(0, tuple(path))) is ((joined,) == tuple(path))


def test_names_that_look_alike() -> None:
    paths: list[tuple[int | str, ...]] = [
        (),
        ("",),
        ("", ""),
        ("/",),
        ("a", "b"),
        ("a/b",),
        ("a/sb",),
        ("ab",),
        ("a", "b", ""),
        (1,),
        ("1",),
        ("i1",),
        (-1,),
        ("-1",),
        (1, 2),
        (12,),
        (1, "2"),
        ("batch", 1, 23),
        ("batch", 12, 3),
        ("batch", 3, 12),
        ("s1:a",),
        ("é",),
        ("e\u0301",),
    ]
    seeds = [0, 1, -1, 12, 2**64, 2**64 + 1]
    draws = [first(seed, path) for seed, path in itertools.product(seeds, paths)]
    assert len(set(draws)) == len(draws)


@given(name=names, others=st.lists(names, max_size=4))
def test_nothing_drawn_before_or_elsewhere_changes_a_generator(
    name: tuple[int, tuple], others: list[tuple[int, tuple]]
) -> None:
    alone = fedawe.rng(name[0], *name[1]).random(5)
    for seed, path in others:
        fedawe.rng(seed, *path).random(17)
    again = fedawe.rng(name[0], *name[1])
    for seed, path in others:
        fedawe.rng(seed, *path).normal()
    np.testing.assert_array_equal(again.random(5), alone)


def test_the_global_generators_are_left_alone() -> None:
    state = np.random.get_state()[1].copy()
    fedawe.rng(0, "batch", 1).random(100)
    np.testing.assert_array_equal(np.random.get_state()[1], state)


def test_known_values_are_stable() -> None:
    # Runs and traces of former versions depend on these.
    assert fedawe.rng(0, "batch", 7, 3).integers(100, size=4).tolist() == [91, 82, 32, 14]
    assert fedawe.rng(0).integers(2**32, size=3).tolist() == [2172445336, 3232347152, 1934046817]
    expected = [3334392843, 3919289398, 1075186901]
    assert fedawe.rng(3, "availability", 0).integers(2**32, size=3).tolist() == expected
    assert fedawe.rng(-1, "partition").integers(2**32, size=3).tolist() == [2791446758, 3988844691, 3166640470]


def test_numpy_integers_are_integers() -> None:
    assert first(np.int64(5), (np.int32(3), "a")) == first(5, (3, "a"))


@pytest.mark.parametrize("word", [1.0, None, b"a", (1,)])
def test_a_word_is_a_whole_number_or_a_text(word: object) -> None:
    with pytest.raises(TypeError):
        fedawe.rng(0, word)  # type: ignore[arg-type]


def test_streams_are_independent_and_uniform() -> None:
    """4000 streams of neighbouring names, one number each: as good as one stream of 4000."""
    x = np.array([fedawe.rng(0, "batch", t, i).random() for t in range(100) for i in range(40)])
    n = len(x)
    assert abs(x.mean() - 0.5) < 4.5 * (1 / 12 / n) ** 0.5
    assert abs(np.corrcoef(x[1:], x[:-1])[0, 1]) < 4.5 / n**0.5
    counts = np.histogram(x, 20, (0, 1))[0]
    chi2 = ((counts - n / 20) ** 2 / (n / 20)).sum()
    assert chi2 < 19 + 4.5 * (2 * 19) ** 0.5
