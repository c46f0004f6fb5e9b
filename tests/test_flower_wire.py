"""Arrays on the wire: there and back without loss, and nothing comes in that does not fit."""

import fedawe.deploy  # noqa: F401  # first, since it takes care of the warnings of what Flower imports

# isort: split
import io
from typing import Any

import numpy as np
import pytest
import torch
from flwr.app import Array, ArrayRecord, ConfigRecord, MetricRecord, RecordDict
from hypothesis import given
from hypothesis import strategies as st

from fedawe.core.errors import UserError
from fedawe.deploy.wire import Layout, Refused, check_round, innovation

MODEL = {
    "weight": np.arange(6, dtype=np.float32).reshape(2, 3),
    "bn.running_mean": np.array([5.0, 6.0], np.float32),
    "bn.num_batches_tracked": np.array(7, np.int64),
    "scale": np.array(0.5, np.float32),
}


def record(**changed: Any) -> ArrayRecord:
    arrays = {name.replace("bn_", "bn."): array for name, array in {**MODEL, **changed}.items()}
    return ArrayRecord({name: a if isinstance(a, Array) else Array(np.asarray(a)) for name, a in arrays.items()})


def refused(arrays: ArrayRecord) -> str:
    with pytest.raises(Refused) as caught:
        Layout.of(record()).read(arrays)
    return caught.value.reason


def test_there_and_back() -> None:
    layout = Layout.of(record())
    x, statistics = layout.read(record())
    assert x.tolist() == [0, 1, 2, 3, 4, 5, 0.5]
    assert statistics.tolist() == [5, 6]
    back = layout.record(x, statistics)
    assert list(back) == list(MODEL)
    for name, array in MODEL.items():
        assert back[name].numpy().dtype == array.dtype
        assert np.array_equal(back[name].numpy(), array)


def test_what_is_no_float_stays_the_servers() -> None:
    layout = Layout.of(record())
    x, statistics = layout.read(record(bn_num_batches_tracked=np.array(99, np.int64)))
    assert layout.record(x, statistics)["bn.num_batches_tracked"].numpy() == 7


def test_the_order_of_names_and_of_memory_does_not_matter() -> None:
    layout = Layout.of(record())
    other = ArrayRecord(dict(reversed(list(record(weight=np.asfortranarray(MODEL["weight"])).items()))))
    assert layout.read(other)[0].tolist() == layout.read(record())[0].tolist()


@given(st.lists(st.sampled_from(["float16", "float32", "float64"]), min_size=1, max_size=4), st.integers(0, 99))
def test_every_kind_of_float_keeps_its_own(kinds: list[str], seed: int) -> None:
    draw = np.random.default_rng(seed)
    arrays = ArrayRecord({f"a{n}": Array(draw.normal(size=(n, 2)).astype(kind)) for n, kind in enumerate(kinds, 1)})
    layout = Layout.of(arrays)
    x, statistics = layout.read(arrays)
    assert x.dtype == (torch.float64 if "float64" in kinds else torch.float32)
    assert all(np.array_equal(layout.record(x, statistics)[name].numpy(), arrays[name].numpy()) for name in arrays)


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
        Layout.of(ArrayRecord({"steps": Array(np.array(3))}))
    with pytest.raises(UserError, match="which numpy does not know"):
        Layout.of(ArrayRecord({"w": Array("bfloat16", (1,), "numpy.ndarray", b"")}))


def reply(*arrays: ArrayRecord, **others: Any) -> RecordDict:
    return RecordDict({**{f"arrays{n}": one for n, one in enumerate(arrays)}, **others})


def test_an_innovation_is_the_start_minus_what_came_back() -> None:
    layout = Layout.of(record())
    x, _ = layout.read(record())
    G, statistics = innovation(layout, reply(record(weight=W + 1)), x, 0.0)
    assert G.tolist() == [-1] * 6 + [0]
    assert statistics.tolist() == [5, 6]


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
    ],
)
def test_what_must_not_touch_the_model(content: RecordDict, reason: str) -> None:
    layout = Layout.of(record())
    with pytest.raises(Refused) as caught:
        innovation(layout, content, layout.read(record())[0], 5.0)
    assert caught.value.reason == reason


def test_a_reply_says_its_round_once_and_rightly() -> None:
    right, wrong = ConfigRecord({"server-round": 3}), ConfigRecord({"server-round": 2})
    check_round(reply(config=right), 3, required=True)
    check_round(reply(metrics=MetricRecord({"server-round": 3})), 3, required=True)
    check_round(reply(), 3, required=False)
    for content, required in ((reply(config=wrong), False), (reply(a=right, b=wrong), True), (reply(), True)):
        with pytest.raises(Refused, match="not 3"):
            check_round(content, 3, required)
