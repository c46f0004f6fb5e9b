"""Arrays on the wire: there and back without loss, and nothing comes in that does not fit."""

import fedawe.deploy  # noqa: F401  # first, since it takes care of the warnings of what Flower imports

# isort: split
import contextlib
import io
from typing import Any

import numpy as np
import pytest
import torch
from flwr.app import Array, ArrayRecord, ConfigRecord, MetricRecord, RecordDict
from hypothesis import given
from hypothesis import strategies as st
from torch import nn

from fedawe.core.errors import UserError
from fedawe.deploy.wire import (
    Refused,
    check_round,
    check_statistics,
    checked_layout,
    facts,
    innovation,
    printable,
    read,
    returned,
    samples_in,
    why_invalid,
)
from fedawe.deploy.wire import record as to_record
from fedawe.tasks import Layout

MODEL = {
    "weight": np.arange(6, dtype=np.float32).reshape(2, 3),
    "bn.running_mean": np.array([5.0, 6.0], np.float32),
    "bn.num_batches_tracked": np.array(7, np.int64),
    "scale": np.array(0.5, np.float32),
}


def record(**changed: Any) -> ArrayRecord:
    arrays = {name.replace("bn_", "bn."): array for name, array in {**MODEL, **changed}.items()}
    return ArrayRecord({name: a if isinstance(a, Array) else Array(np.asarray(a)) for name, a in arrays.items()})


def LAYOUT() -> Layout:
    return checked_layout(None, record())


def refused(arrays: ArrayRecord) -> str:
    with pytest.raises(Refused) as caught:
        read(LAYOUT(), arrays)
    return caught.value.reason


def test_there_and_back() -> None:
    layout = LAYOUT()
    x = read(layout, record())
    assert x.tolist() == [0, 1, 2, 3, 4, 5, 0.5, 5, 6]
    assert (layout.parameters, layout.buffers) == (7, 2)
    back = to_record(layout, x)
    assert list(back) == list(MODEL)
    for name, array in MODEL.items():
        assert back[name].numpy().dtype == array.dtype
        assert np.array_equal(back[name].numpy(), array)


def test_what_is_no_float_stays_the_servers() -> None:
    layout = LAYOUT()
    x = read(layout, record(bn_num_batches_tracked=np.array(99, np.int64)))
    assert to_record(layout, x)["bn.num_batches_tracked"].numpy() == 7


def test_the_order_of_names_and_of_memory_does_not_matter() -> None:
    layout = LAYOUT()
    other = ArrayRecord(dict(reversed(list(record(weight=np.asfortranarray(MODEL["weight"])).items()))))
    assert read(layout, other).tolist() == read(layout, record()).tolist()


@given(st.lists(st.sampled_from(["float16", "float32", "float64"]), min_size=1, max_size=4), st.integers(0, 99))
def test_every_kind_of_float_keeps_its_own(kinds: list[str], seed: int) -> None:
    draw = np.random.default_rng(seed)
    arrays = ArrayRecord({f"a{n}": Array(draw.normal(size=(n, 2)).astype(kind)) for n, kind in enumerate(kinds, 1)})
    layout = checked_layout(None, arrays)
    x = read(layout, arrays)
    assert x.dtype == (torch.float64 if "float64" in kinds else torch.float32)
    assert all(np.array_equal(to_record(layout, x)[name].numpy(), arrays[name].numpy()) for name in arrays)


class Moving(nn.Module):
    """A buffer that no name tells from a parameter, and one tensor under two names."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = nn.Linear(2, 2, bias=False), nn.Linear(2, 2, bias=False)
        self.second.weight = self.first.weight
        self.register_buffer("average", torch.zeros(3))


def test_a_layout_of_the_module_knows_more_than_the_names() -> None:
    arrays = ArrayRecord(Moving().state_dict())
    assert checked_layout(None, arrays).buffers == 0
    layout = checked_layout(Layout.of(Moving()), arrays)
    assert (layout.parameters, layout.buffers) == (4, 3)
    x = read(layout, arrays)
    assert len(x) == 7
    assert sorted(to_record(layout, x)) == ["average", "first.weight", "second.weight"]
    assert read(layout, to_record(layout, x)).tolist() == x.tolist()
    with pytest.raises(UserError, match="are not those of the layout"):
        checked_layout(Layout.of(nn.Linear(2, 2)), arrays)


def npy(array: np.ndarray, version: tuple[int, int] = (1, 0), **header: Any) -> bytes:
    stream = io.BytesIO()
    np.lib.format.write_array(stream, array, version)
    return stream.getvalue()


W = MODEL["weight"]
LYING = Array("float32", (2, 3), "numpy.ndarray", npy(np.zeros((3, 2), np.float32)))
DOUBLE = Array("float32", (2, 3), "numpy.ndarray", npy(np.zeros((1, 3), np.float64)))


@pytest.mark.parametrize(
    ("array", "reason"),
    [
        (W.astype(np.float64), "dtype"),
        (W.astype(np.int32), "dtype"),
        (W.astype(">f4"), "dtype"),
        (W.reshape(3, 2), "shape"),
        (W[:1], "shape"),
        (np.zeros((2, 3, 1), np.float32), "shape"),
        (Array("float32", (2, 3), "numpy.ndarray", b""), "shape"),
        (Array("float32", (2, 3), "numpy.ndarray", npy(W) + b"x" * 5000), "shape"),
        (Array("float32", (2, 3), "numpy.ndarray", npy(W) + b"x"), "shape"),
        (Array("float32", (2, 3), "numpy.ndarray", npy(W)[:-1]), "shape"),
        (Array("float32", (2, 3), "pickle", npy(W)), "malformed"),
        (Array("float32", (2, 3), "numpy.ndarray", npy(W, (2, 0))), "malformed"),
        (Array("float32", (2, 3), "numpy.ndarray", b"\x93NUMPY\x01\x00\xff\xff" + b" " * 100), "malformed"),
        (Array("float32", (2, 3), "numpy.ndarray", b"x" * 200), "malformed"),
        (LYING, "shape"),
        (DOUBLE, "dtype"),
    ],
)
def test_what_does_not_fit_is_refused(array: Any, reason: str) -> None:
    assert refused(record(weight=array)) == reason


def test_a_header_that_claims_a_terabyte_costs_nothing() -> None:
    header = "{'descr': '<f4', 'fortran_order': False, 'shape': (250000000000,), }"
    data = b"\x93NUMPY\x01\x00" + len(header).to_bytes(2, "little") + header.encode() + b"\0" * 24
    assert refused(record(weight=Array("float32", (2, 3), "numpy.ndarray", data))) == "shape"


def test_names_are_exactly_these() -> None:
    fewer = ArrayRecord({name: array for name, array in record().items() if name != "scale"})
    assert refused(fewer) == "names"
    assert refused(record(more=np.zeros(1, np.float32))) == "names"
    assert refused(ArrayRecord()) == "names"


def test_a_model_needs_parameters() -> None:
    with pytest.raises(UserError, match="no floating-point parameters"):
        checked_layout(None, ArrayRecord({"steps": Array(np.array(3))}))
    with pytest.raises(UserError, match="which numpy does not know"):
        checked_layout(None, ArrayRecord({"w": Array("bfloat16", (1,), "numpy.ndarray", b"")}))


def reply(*arrays: ArrayRecord, **others: Any) -> RecordDict:
    return RecordDict({**{f"arrays{n}": one for n, one in enumerate(arrays)}, **others})


def test_an_innovation_is_the_start_minus_what_came_back() -> None:
    layout = LAYOUT()
    x = read(layout, record())
    end = returned(layout, reply(record(weight=W + 1)))
    assert innovation(layout, x, end, 0.0).tolist() == [-1] * 6 + [0]


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        (reply(), "malformed"),
        (reply(record(), record()), "malformed"),
        (reply(record(weight=W * np.nan)), "non-finite"),
        (reply(record(weight=np.full_like(W, -np.inf))), "non-finite"),
        (reply(record(bn_running_mean=np.array([np.nan, 1], np.float32))), "non-finite"),
        (reply(record(weight=W + 10)), "norm"),
        (reply(record(weight=np.full_like(W, 3e38))), "norm"),
        (reply(record(bn_running_mean=np.array([3.4e38, 1], np.float32))), "statistics"),
        (reply(record(bn_running_mean=np.array([-601, 1], np.float32))), "statistics"),
    ],
)
def test_what_must_not_touch_the_model(content: RecordDict, reason: str) -> None:
    layout = LAYOUT()

    def let_in() -> None:
        end = returned(layout, content)
        innovation(layout, read(layout, record()), end, 5.0)
        check_statistics(layout, end, torch.tensor([5.0, 6.0]), True, 100.0)

    with pytest.raises(Refused) as caught:
        let_in()
    assert caught.value.reason == reason


NORM = {f"n.{name}": np.array([1.0, 2.0], np.float32) for name in ("running_mean", "running_var", "weight")}


@pytest.mark.parametrize(
    ("changed", "last", "measured", "most", "fits"),
    [
        ({"n.running_var": [0.0, 100.0]}, [1, 1, 1, 1], True, 100.0, True),
        ({"n.running_var": [0.0, 101.0]}, [1, 1, 1, 1], True, 100.0, False),
        ({"n.running_var": [-1e-30, 1.0]}, [1, 1, 1, 1], True, 100.0, False),
        ({"n.running_mean": [-100.0, 0.0]}, [0, 0, 1, 1], True, 100.0, True),  # never less than 1
        ({"n.running_mean": [-101.0, 0.0]}, [0, 0, 1, 1], True, 100.0, False),
        ({"n.running_mean": [5000.0, 0.0]}, [0, 50, 1, 1], True, 100.0, True),  # the largest of the tensor
        ({"n.running_var": [1e8, 0.0]}, [0, 0, 1, 1], False, 100.0, True),  # nobody has measured anything yet
        ({"n.running_var": [2e8, 0.0]}, [0, 0, 1, 1], False, 100.0, False),
        ({"n.running_var": [1e14, 0.0]}, [0, 0, 1, 1], True, 0.0, True),  # no limit but that of the numbers
        ({"n.running_var": [1e16, 0.0]}, [0, 0, 1, 1], True, 0.0, False),
        ({"n.running_var": [-5.0, 0.0]}, [0, 0, 1, 1], True, 0.0, False),
    ],
)
def test_statistics_are_bounded_by_the_last_accepted(
    changed: dict[str, list[float]], last: list[float], measured: bool, most: float, fits: bool
) -> None:
    layout = checked_layout(None, ArrayRecord({name: Array(array) for name, array in NORM.items()}))
    tensors = {name: torch.tensor(changed.get(name, array)) for name, array in NORM.items()}
    x = layout.vector({name: tensor.float() for name, tensor in tensors.items()})
    with contextlib.nullcontext() if fits else pytest.raises(Refused, match="running_"):
        check_statistics(layout, x, torch.tensor(last, dtype=torch.float32), measured, most)


def test_what_becomes_the_servers_is_looked_at_in_its_own_dtype() -> None:
    halves = ArrayRecord({"w": Array(np.ones(2, np.float16)), "n.running_var": Array(np.ones(1, np.float32))})
    layout = checked_layout(None, halves)
    assert why_invalid(layout, torch.tensor([1.0, 65504.0, 1e30])) is None
    assert why_invalid(layout, torch.tensor([1.0, 66000.0, 1.0])) == "w would not be finite in float16"
    assert why_invalid(layout, torch.tensor([1.0, 1.0, -1e-9])) == "a running variance would be negative"


@pytest.mark.parametrize(
    "said", ["x" * 20_000_000, "7\n[31mforged", 2.5, [1, 2]], ids=["long", "forged", "float", "list"]
)
def test_whatever_a_client_writes_is_logged_in_one_short_line(said: Any) -> None:
    with pytest.raises(Refused) as caught:
        check_round(reply(config=ConfigRecord({"server-round": said})), 3, required=True)
    assert caught.value.reason == "version"
    assert len(str(caught.value)) < 400
    assert str(caught.value).isprintable()
    assert printable("a\x1bb", 10) == "a?b"


def test_a_reply_says_its_round_once_and_rightly() -> None:
    right, wrong = ConfigRecord({"server-round": 3}), ConfigRecord({"server-round": 2})
    check_round(reply(config=right), 3, required=True)
    check_round(reply(metrics=MetricRecord({"server-round": 3})), 3, required=True)
    check_round(reply(), 3, required=False)
    for content, required in ((reply(config=wrong), False), (reply(a=right, b=wrong), True), (reply(), True)):
        with pytest.raises(Refused, match="not 3"):
            check_round(content, 3, required)


def reply_with(**said: Any) -> RecordDict:
    return RecordDict({"config": ConfigRecord({f"fedawe-{name}": value for name, value in said.items()})})


def test_weights_may_be_whole_numbers_and_losses_negative() -> None:
    asked = RecordDict({"config": ConfigRecord({"fedawe-loss": True})})
    found = facts(asked, reply_with(weight=10, rate=0.1, loss=-2, applied="loss"), needed=True)
    assert found == {"weight": 10.0, "rate": 0.1, "loss": -2.0}
    assert all(type(value) is float for value in found.values())


@pytest.mark.parametrize(
    ("said", "found"), [(7, 7.0), (2.5, 2.5), (0, 0.0), (-1, None), (float("nan"), None), (float("inf"), None)]
)
def test_a_client_may_have_no_samples(said: float, found: float | None) -> None:
    reply = RecordDict({"metrics": MetricRecord({"num-examples": said})})
    assert samples_in(reply, "num-examples") == found


@pytest.mark.parametrize(
    "said", [{"weight": 0}, {"weight": True}, {"rate": -0.1}, {"rate": float("nan")}, {"loss": 1e300}, {"loss": "1"}]
)
def test_numbers_that_make_no_sense_are_refused(said: dict[str, Any]) -> None:
    asked = RecordDict({"config": ConfigRecord({"fedawe-loss": True})})
    with pytest.raises(Refused, match=f"the reply has {next(iter(said))}"):
        facts(asked, reply_with(**{"weight": 10, "rate": 0.1, "loss": 1.0, "applied": "loss", **said}), needed=True)
