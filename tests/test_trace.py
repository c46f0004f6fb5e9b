"""Traces: drawing, asking, saving, loading, refusing."""

import gc
import io
import math
import re
import warnings
import zipfile
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from matplotlib import pyplot

import fedawe
from fedawe.availability.dynamics import DYNAMICS
from fedawe.cli.main import parse

in_one_folder = settings(suppress_health_check=[HealthCheck.function_scoped_fixture])  # every example writes anew


@st.composite
def masks(draw: Any) -> np.ndarray:
    """Any trace, with empty rounds at the end and clients never there among them."""
    rounds, clients = draw(st.integers(1, 8)), draw(st.integers(1, 6))
    rows = st.lists(st.booleans(), min_size=clients, max_size=clients)
    return np.array(draw(st.lists(rows, min_size=rounds, max_size=rounds)))


SOME = np.array([[1, 0, 1, 0], [0, 0, 0, 0], [0, 1, 1, 0], [0, 0, 0, 0]], dtype=bool)  # client 3 never, round 3 empty


# Drawing


@pytest.mark.parametrize("name", DYNAMICS)
@given(
    p=st.lists(st.floats(0, 1), min_size=1, max_size=8),
    seed=st.integers(0, 2**40),
    short=st.integers(1, 30),
    more=st.integers(0, 30),
)
def test_a_shorter_draw_is_a_prefix_of_a_longer_one(
    name: str, p: list[float], seed: int, short: int, more: int
) -> None:
    one = fedawe.Trace.draw(DYNAMICS[name](), p, short, seed)
    other = fedawe.Trace.draw(DYNAMICS[name](), p, short + more, seed)
    assert (one.rounds, one.clients) == (short, len(p))
    np.testing.assert_array_equal(one.on, other.on[:short])
    np.testing.assert_array_equal(one.p, other.p[:short])
    np.testing.assert_array_equal(one.on, other.first(short).on)


@pytest.mark.parametrize("name", DYNAMICS)
def test_the_seed_decides(name: str) -> None:
    p = np.linspace(0.1, 0.9, 30)
    one, same, other = (fedawe.Trace.draw(DYNAMICS[name](), p, 50, seed).on for seed in (0, 0, 1))
    np.testing.assert_array_equal(one, same)
    assert (one != other).any()


def test_p_may_be_a_list_an_array_or_a_tensor() -> None:
    p = [0.25, 0.5, 0.75]
    traces = [fedawe.Trace.draw(fedawe.Sine(), kind(p), 40, 0) for kind in (list, np.array, torch.tensor)]
    for other in traces[1:]:
        np.testing.assert_array_equal(traces[0].on, other.on)


class Sudden:
    """Somebody's own dynamics, with nothing but `probabilities`."""

    def probabilities(self, t: Any, p: Any) -> Any:
        return np.where(np.asarray(t)[..., None] < 100, np.asarray(p), 0.0)


def test_an_object_with_nothing_but_probabilities_can_be_drawn_from() -> None:
    dynamics: Any = Sudden()
    trace = fedawe.Trace.draw(dynamics, [0.5, 1.0], 150, seed=0)
    assert trace.on[:100, 1].all()
    assert not trace.on[100:].any()
    assert 20 < trace.on[:100, 0].sum() < 80  # six standard deviations
    np.testing.assert_array_equal(trace.p[120], [0.0, 0.0])
    np.testing.assert_array_equal(fedawe.Trace.draw(dynamics, [0.5, 1.0], 30, seed=0).on, trace.on[:30])


@pytest.mark.parametrize("rounds", [0, -1, 2.5, True, "10"])
def test_drawing_no_rounds_is_refused(rounds: Any) -> None:
    with pytest.raises(fedawe.UserError, match=re.escape(repr(rounds))):
        fedawe.Trace.draw(fedawe.Stationary(), [0.5], rounds, seed=0)


# Asking


@given(on=masks())
def test_active_is_a_sorted_vector_of_int64(on: np.ndarray) -> None:
    trace = fedawe.Trace(on)
    assert (trace.rounds, trace.clients) == on.shape
    for t in range(len(on)):
        A = trace.active(t)
        assert A.dtype == torch.int64
        assert A.ndim == 1
        assert A.tolist() == [i for i in range(on.shape[1]) if on[t, i]]


@pytest.mark.parametrize("t", [-1, 4, 100])
def test_rounds_that_the_trace_has_not_are_refused(t: int) -> None:
    with pytest.raises(fedawe.UserError, match=f"round {t} "):
        fedawe.Trace(SOME).active(t)


@pytest.mark.parametrize("rounds", [0, 5, -2])
def test_first_rounds_that_the_trace_has_not_are_refused(rounds: int) -> None:
    with pytest.raises(fedawe.UserError, match=f"4 rounds, but {rounds}"):
        fedawe.Trace(SOME).first(rounds)


@given(on=masks())
def test_echoes_are_the_rounds_since_a_client_was_last_there(on: np.ndarray) -> None:
    last, expected = [-1] * on.shape[1], []
    for t in range(len(on)):
        for i in range(on.shape[1]):
            if on[t, i]:
                expected.append(t - last[i])
                last[i] = t
    echoes = fedawe.Trace(on).echoes()
    assert echoes.tolist() == expected
    assert echoes.dtype == np.int64


@pytest.mark.parametrize(
    "kind", [np.array, lambda on: on.astype(int), lambda on: on.astype(float), torch.from_numpy, lambda on: on.tolist()]
)
def test_a_trace_is_made_of_anything_that_is_a_table_of_zeros_and_ones(kind: Any) -> None:
    assert fedawe.Trace(kind(SOME)).on.dtype == bool
    np.testing.assert_array_equal(fedawe.Trace(kind(SOME)).on, SOME)


def test_a_trace_cannot_be_changed_neither_by_itself_nor_through_what_made_it() -> None:
    on, p = SOME.copy(), np.full(SOME.shape, 0.5)
    trace = fedawe.Trace(on, p)
    on[:] = True
    p[:] = 0.1
    np.testing.assert_array_equal(trace.on, SOME)
    assert trace.p is not None
    assert (trace.p == 0.5).all()
    with pytest.raises(ValueError, match="read-only"):
        trace.on[0, 0] = False
    with pytest.raises(ValueError, match="read-only"):
        trace.p[0, 0] = 1.0
    trace.active(0).fill_(9)
    assert trace.active(0).tolist() == [0, 2]


@pytest.mark.parametrize(
    ("on", "message"),
    [
        ([True, False], r"\[2\]"),
        ([[]], r"\[1, 0\]"),
        (np.zeros((0, 3), dtype=bool), r"\[0, 3\]"),
        (np.zeros((2, 2, 2)), r"\[2, 2, 2\]"),
        ([[0, 2]], "0 and 1"),
        ([[0.5, 1.0]], "0 and 1"),
        ([[float("inf"), 1.0]], "0 and 1"),
        ([["yes", "no"]], "0 and 1"),
        ([[True], [True, False]], "different lengths"),
    ],
)
def test_what_is_no_table_of_zeros_and_ones_is_refused(on: Any, message: str) -> None:
    with pytest.raises(fedawe.UserError, match=message):
        fedawe.Trace(on)


@pytest.mark.parametrize(
    ("p", "message"),
    [
        (np.full((4, 3), 0.5), r"\[4, 3\]"),
        (np.full((4, 4), 1.5), r"\[0, 1\]"),
        (np.full((4, 4), -0.5), r"\[0, 1\]"),
        (np.full((4, 4), np.nan), r"\[0, 1\]"),
        (np.full((4, 4), "a"), r"p must be probabilities \[rounds, clients\]"),
        ([[0.5], [0.5, 0.5]], r"p must be probabilities \[rounds, clients\]"),
    ],
)
def test_probabilities_that_do_not_fit_are_refused(p: Any, message: str) -> None:
    with pytest.raises(fedawe.UserError, match=message):
        fedawe.Trace(SOME, p)


def test_repr_says_what_there_is() -> None:
    assert repr(fedawe.Trace(SOME)) == (
        "Trace of 4 clients over 4 rounds: 25.0% available, 2 empty rounds, 1 client never available"
    )


def test_plot_shows_a_stripe_per_client() -> None:
    ax = fedawe.Trace(SOME).plot()
    np.testing.assert_array_equal(np.asarray(ax.images[0].get_array()), SOME.T)
    assert [tick.get_text() for tick in ax.get_yticklabels()] == ["0", "1", "2", "3"]
    _, mine = pyplot.subplots()
    assert fedawe.Trace(SOME).plot(mine, clients=[2, 0]) is mine
    np.testing.assert_array_equal(np.asarray(mine.images[0].get_array()), SOME.T[[2, 0]])
    assert [tick.get_text() for tick in mine.get_yticklabels()] == ["2", "0"]
    # Dark where a client is there, light where it is not.
    picture = mine.images[0].to_rgba(np.array([[0, 1]]), norm=True)[0, :, :3].sum(1)
    assert picture[1] < picture[0]
    pyplot.close("all")


# Saving and loading


@in_one_folder
@given(on=masks(), seed=st.integers(0, 100))
def test_npz_keeps_everything(tmp_path: Path, on: np.ndarray, seed: int) -> None:
    p = np.random.default_rng(seed).random(on.shape)
    for trace in (fedawe.Trace(on), fedawe.Trace(on, p)):
        trace.save(tmp_path / "trace.npz")
        loaded = fedawe.Trace.load(tmp_path / "trace.npz")
        np.testing.assert_array_equal(loaded.on, on)
        assert (loaded.p is None) == (trace.p is None)
        if trace.p is not None:
            np.testing.assert_array_equal(loaded.p, p)


@in_one_folder
@given(on=masks())
def test_csv_keeps_who_was_there_and_how_many_there_are(tmp_path: Path, on: np.ndarray) -> None:
    fedawe.Trace(on).save(str(tmp_path / "trace.csv"))
    np.testing.assert_array_equal(fedawe.Trace.load(str(tmp_path / "trace.csv")).on, on)


def test_nothing_is_left_beside_a_saved_trace(tmp_path: Path) -> None:
    fedawe.Trace(SOME).save(tmp_path / "trace.npz")
    fedawe.Trace(SOME).save(tmp_path / "trace.csv")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["trace.csv", "trace.npz"]


def test_npz_of_zeros_and_ones_by_somebody_else(tmp_path: Path) -> None:
    np.savez(tmp_path / "theirs.npz", on=SOME.astype(np.uint8))
    np.testing.assert_array_equal(fedawe.Trace.load(tmp_path / "theirs.npz").on, SOME)


def load_csv(folder: Path, text: str, **options: Any) -> fedawe.Trace:
    (folder / "log.csv").write_text(text, encoding="utf-8")
    return fedawe.Trace.load(folder / "log.csv", **options)


def test_csv_may_begin_with_a_byte_order_mark(tmp_path: Path) -> None:
    np.testing.assert_array_equal(load_csv(tmp_path, "\ufeffround,client\n0,1\n1,0\n").on, [[0, 1], [1, 0]])


def test_csv_without_a_size_ends_with_its_last_line(tmp_path: Path) -> None:
    text = "round,client\n2,1\n0,0\n\n2,2\n"  # in any order, with empty lines
    np.testing.assert_array_equal(load_csv(tmp_path, text).on, [[1, 0, 0], [0, 0, 0], [0, 1, 1]])
    np.testing.assert_array_equal(load_csv(tmp_path, text.replace("\n", "\r\n")).on, load_csv(tmp_path, text).on)
    sized = load_csv(tmp_path, text, rounds=5, clients=4)
    assert (sized.rounds, sized.clients) == (5, 4)
    np.testing.assert_array_equal(sized.on[:3, :3], load_csv(tmp_path, text).on)
    assert not sized.on[3:].any()
    assert not sized.on[:, 3].any()
    nobody = load_csv(tmp_path, "round,client\n", rounds=2, clients=3)
    assert (nobody.rounds, nobody.clients, nobody.on.any()) == (2, 3, False)


@st.composite
def check_ins(draw: Any) -> dict[int, list[tuple[int, int]]]:
    """Intervals of whole seconds per client, none of which overlap."""
    out = {}
    for client in draw(st.lists(st.integers(0, 4), min_size=1, unique=True)):
        ends = sorted(draw(st.sets(st.integers(0, 60), min_size=2, max_size=8)))
        out[client] = list(zip(ends[::2], ends[1::2], strict=False))
    return out


@in_one_folder
@given(log=check_ins(), length=st.integers(1, 20))
def test_intervals_are_the_rounds_that_begin_in_them(
    tmp_path: Path, log: dict[int, list[tuple[int, int]]], length: int
) -> None:
    lines = [f"{client},{start},{end}" for client in log for start, end in log[client]]
    trace = load_csv(tmp_path, "\n".join(["client,start,end", *lines]) + "\n", round_seconds=length)
    last = max(end for intervals in log.values() for _, end in intervals)
    assert trace.rounds == math.ceil(last / length)
    names = sorted(log)  # clients are those of the file, by increasing number: a number that is not there is nobody
    assert trace.clients == len(names)
    for t in range(trace.rounds):
        there = {n for n, i in enumerate(names) if any(start <= t * length < end for start, end in log[i])}
        assert set(trace.active(t).tolist()) == there


@pytest.mark.parametrize("tenths", [3, 6, 7, 11, 12])
def test_intervals_that_begin_and_end_with_a_round_are_those_rounds(tmp_path: Path, tenths: int) -> None:
    # Seconds are written in decimals: 2.1 is the beginning of the eighth round of 0.3 seconds, however it is stored.
    length = Fraction(tenths, 10)
    for t in range(1, 60):
        text = f"client,start,end\n0,{float(t * length)},{float((t + 1) * length)}\n"
        trace = load_csv(tmp_path, text, round_seconds=tenths / 10)
        assert (trace.rounds, np.flatnonzero(trace.on[:, 0]).tolist()) == (t + 1, [t])


def test_intervals_that_touch_are_no_overlap(tmp_path: Path) -> None:
    trace = load_csv(tmp_path, "client,start,end\n0,10,20\n0,0,10\n1,5,15\n", round_seconds=5)
    np.testing.assert_array_equal(trace.on.T, [[1, 1, 1, 1], [0, 1, 1, 0]])


ROUNDS_HEAD, INTERVALS_HEAD = "round,client\n", "client,start,end\n"


@pytest.mark.parametrize(
    ("text", "line", "message"),
    [
        ("", 1, "nothing"),
        ("0,1\n", 1, "'0,1'"),
        ("client,round\n0,0\n", 1, "client,round"),
        ("# rounds=2 clients=two\nround,client\n", 1, "two"),
        ("# rounds=2\nround,client\n", 1, "clients"),
        (ROUNDS_HEAD + "0,0\n1\n", 3, "found 1"),
        (ROUNDS_HEAD + "0,0\n1,2,3\n", 3, "found 3"),
        (ROUNDS_HEAD + "0,0\n\n-1,0\n", 4, "round '-1'"),
        (ROUNDS_HEAD + "0,-1\n", 2, "client '-1'"),
        (ROUNDS_HEAD + "0.5,0\n", 2, "round '0.5'"),
        (ROUNDS_HEAD + "0,x\n", 2, "client 'x'"),
        (ROUNDS_HEAD + ",0\n", 2, "round ''"),
        (ROUNDS_HEAD + "0,²\n", 2, "client '²'"),
        (ROUNDS_HEAD + "0,1\n1,1\n0,1\n", 4, "it was already in line 2"),
        (ROUNDS_HEAD + "0,0\n10000000000000000,0\n1,0\n", 3, "round"),
        (ROUNDS_HEAD + "0,0\n" + "9" * 5000 + ",0\n", 3, "round"),
        ("# rounds=2 clients=2\n" + ROUNDS_HEAD + "2,0\n", 3, "round 2 is unknown"),
        ("# rounds=2 clients=2\n" + ROUNDS_HEAD + "1,2\n", 3, "client 2 is unknown"),
        (INTERVALS_HEAD + "0,1\n", 2, "found 2"),
        (INTERVALS_HEAD + "0,0,10\n0,x,30\n", 3, "start 'x'"),
        (INTERVALS_HEAD + "0,0,nan\n", 2, "end 'nan'"),
        (INTERVALS_HEAD + "0,0,inf\n", 2, "end 'inf'"),
        (INTERVALS_HEAD + "0,-5,10\n", 2, "start '-5'"),
        (INTERVALS_HEAD + "0.5,0,10\n", 2, "client '0.5'"),
        (INTERVALS_HEAD + "0,10,10\n", 2, "not after its start"),
        (INTERVALS_HEAD + "0,10,5\n", 2, "not after its start"),
        (INTERVALS_HEAD + "0,0,10\n1,0,10\n0,9,12\n", 4, "line 2"),
        (INTERVALS_HEAD + "0,0,10\n1,20,1e30\n", 3, "round|end"),
    ],
)
def test_a_bad_line_is_refused_with_its_file_and_its_number(tmp_path: Path, text: str, line: int, message: str) -> None:
    with pytest.raises(fedawe.UserError, match=message) as refusal:
        load_csv(tmp_path, text, round_seconds=5 if "start" in text else None)
    assert str(refusal.value).startswith(f"{tmp_path / 'log.csv'}:{line}: ")
    assert "\n" not in str(refusal.value)


@pytest.mark.parametrize(
    ("text", "options", "message"),
    [
        (ROUNDS_HEAD + "5,0\n", {"rounds": 5}, ":2: round 5 is unknown"),
        (ROUNDS_HEAD + "0,3\n", {"clients": 3}, ":2: client 3 is unknown"),
        (INTERVALS_HEAD + "3,0,1\n", {"clients": 3, "round_seconds": 1}, ":2: client 3 is unknown"),
        (INTERVALS_HEAD + "0,0,10\n", {}, "length of a round; received None"),
        (INTERVALS_HEAD + "0,0,10\n", {"round_seconds": 0}, "length of a round; received 0"),
        ("round,client\n0,0\n", {"round_seconds": 5}, "round_seconds is 5, but the trace has rounds"),
        (INTERVALS_HEAD + "0,0,10\n", {"round_seconds": -1.0}, "length of a round; received -1"),
        (INTERVALS_HEAD + "0,0,10\n", {"round_seconds": float("nan")}, "length of a round; received nan"),
        (ROUNDS_HEAD, {}, "empty"),
        (INTERVALS_HEAD, {"round_seconds": 5}, "empty"),
    ],
)
def test_a_file_that_does_not_fit_the_call_is_refused(
    tmp_path: Path, text: str, options: dict[str, Any], message: str
) -> None:
    with pytest.raises(fedawe.UserError, match=message) as refusal:
        load_csv(tmp_path, text, **options)
    assert str(refusal.value).startswith(str(tmp_path / "log.csv"))


def npy(array: np.ndarray) -> bytes:
    buffer = io.BytesIO()
    np.save(buffer, array)
    return buffer.getvalue()


def npz(**arrays: Any) -> bytes:
    buffer = io.BytesIO()
    np.savez_compressed(buffer, **arrays)
    return buffer.getvalue()


def npz_with(member: bytes) -> bytes:
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w") as archive:
        archive.writestr("on.npy", member)
    return buffer.getvalue()


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("trace.npz", b"", "cannot be read"),
        ("trace.npz", npz_with(b"no array"), "trace.npz: "),
        ("trace.npz", npz_with(npy(SOME)[:-3]), "cannot be read"),
        ("trace.npz", npz_with(npy(SOME).replace(b"(4, 4)", b"(4, 4(")), "cannot be read"),
        ("trace.npz", b"round,client\n0,0\n", "cannot be read"),
        ("trace.npz", npy(SOME), "npz"),
        ("trace.npz", npz(off=SOME), "no array 'on'.*off"),
        ("trace.npz", npz(on=np.array([[0, 3]])), "0 and 1"),
        ("trace.npz", npz(on=SOME[0]), r"\[4\]"),
        ("trace.npz", npz(on=SOME, p=np.ones((2, 2))), r"\[2, 2\]"),
        ("trace.npz", npz(on=np.array([[None]])), "cannot be read"),
        ("trace.csv", b"\xff\xfe\x00", "cannot be read"),
        ("trace.csv", b"round,client\n0,\x00\n", ":2: client"),
        ("trace.txt", b"round,client\n0,0\n", ".npz or .csv"),
        ("trace", b"round,client\n0,0\n", ".npz or .csv"),
    ],
)
def test_a_file_that_is_no_trace_is_refused_by_name(tmp_path: Path, name: str, content: bytes, message: str) -> None:
    (tmp_path / name).write_bytes(content)
    with pytest.raises(fedawe.UserError, match=message) as refusal:
        fedawe.Trace.load(tmp_path / name)
    assert str(refusal.value).startswith(str(tmp_path / name))
    assert "\n" not in str(refusal.value)


def test_an_unfinished_npz_is_refused_by_name_and_closed(tmp_path: Path) -> None:
    path = tmp_path / "trace.npz"
    path.write_bytes(npz(on=SOME)[:-30])
    with warnings.catch_warnings(record=True) as left_open:
        warnings.simplefilter("always")
        with pytest.raises(fedawe.UserError, match=re.escape(f"{path}: cannot be read")):
            fedawe.Trace.load(path)
        gc.collect()
    assert [str(warning.message) for warning in left_open] == []


def test_a_damaged_npz_is_refused_by_name_wherever_the_damage_is(tmp_path: Path) -> None:
    # Enough of it that it is really compressed; every eleventh byte is flipped in turn. Some bytes do not matter.
    draw = np.random.default_rng(0)
    trace = fedawe.Trace(draw.random((30, 20)) < 0.5, np.round(draw.random((30, 20)), 2))
    path = tmp_path / "trace.npz"
    trace.save(path)
    whole, refused = path.read_bytes(), 0
    for place in range(0, len(whole), 11):
        path.write_bytes(whole[:place] + bytes([whole[place] ^ 0xFF]) + whole[place + 1 :])
        try:
            loaded, problem = fedawe.Trace.load(path), ""
        except fedawe.UserError as error:
            loaded, problem = trace, str(error)
        np.testing.assert_array_equal(loaded.on, trace.on)
        assert problem == "" or problem.startswith(str(path))
        refused += problem != ""
    assert refused > len(whole) / 11 / 2


def test_a_trace_that_is_not_there_or_cannot_be_written_is_refused_by_name(tmp_path: Path) -> None:
    with pytest.raises(fedawe.UserError, match="no such file"):
        fedawe.Trace.load(tmp_path / "missing.csv")
    with pytest.raises(fedawe.UserError, match="folder"):
        fedawe.Trace.load(tmp_path)
    with pytest.raises(fedawe.UserError, match="no/folder"):
        fedawe.Trace(SOME).save(tmp_path / "no/folder/trace.npz")
    for name in ("trace.txt", "trace"):
        with pytest.raises(fedawe.UserError, match=r"\.npz or \.csv"):
            fedawe.Trace(SOME).save(tmp_path / name)
    assert list(tmp_path.iterdir()) == []


def test_what_is_unknown_stays_unknown_and_counts_as_unavailable(tmp_path: Path) -> None:
    trace = fedawe.Trace([[1.0, float("nan")], [0.0, 1.0], [1.0, 1.0]])
    assert trace.on.tolist() == [[True, False], [False, True], [True, True]]
    assert trace.known is not None
    assert trace.known.tolist() == [[True, False], [True, True], [True, True]]
    assert "80.0% available, 16.7% unknown" in repr(trace)
    trace.save(tmp_path / "t.npz")
    again = fedawe.Trace.load(tmp_path / "t.npz")
    assert again.known is not None
    assert (again.known == trace.known).all()
    first = again.first(1).known
    assert first is not None
    assert first.tolist() == [[True, False]]
    known = fedawe.Trace([[1.0, 0.0], [1.0, float("nan")]]).first(1)
    assert known.known is None
    known.save(tmp_path / "known.csv")
    np.savez(tmp_path / "nan.npz", on=np.array([[1.0, np.nan], [0.0, 1.0]]))
    assert fedawe.Trace.load(tmp_path / "nan.npz").known is not None
    with pytest.raises(fedawe.UserError, match=r"\.csv cannot store unknown availability"):
        trace.save(tmp_path / "t.csv")
    with pytest.raises(fedawe.UserError, match="known must be booleans"):
        trace.knowing(np.ones((1, 2), dtype=bool))


def test_the_command_shows_rates_of_known_rounds(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    on = np.tile([[1.0, 0.0, 1.0, np.nan]], (10, 1))
    on[:8, 2] = np.nan
    on[9, 2] = 0.0
    fedawe.Trace(on).save(tmp_path / "t.npz")
    parse(["trace", "show", str(tmp_path / "t.npz")]).run()
    assert "share of known rounds available 0.000 0.500 1.000" in " ".join(capsys.readouterr().out.split())
    fedawe.Trace(np.full((4, 2), np.nan)).save(tmp_path / "t.npz")
    parse(["trace", "show", str(tmp_path / "t.npz")]).run()
    assert "known rounds" not in capsys.readouterr().out
