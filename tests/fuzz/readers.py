"""Everything that reads something from outside: good inputs for it, and how it is read.

A reader may return, or refuse in one line (`UserError`, and `Refused` for a reply of a client); nothing else. Modules
are imported where they are used, so that the process that watches the campaign stays small and has no threads.
"""

import gzip
import io
import json
import tarfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

Seeds = Callable[[], list[bytes]]


@dataclass(frozen=True)
class Target:
    """seeds gives good inputs; read(content, folder) reads one, in a folder of its own."""

    name: str
    seeds: Seeds
    read: Callable[[bytes, Path], Any]


def _npz(**arrays: Any) -> bytes:
    import numpy as np

    buffer = io.BytesIO()
    np.savez_compressed(buffer, **arrays)
    return buffer.getvalue()


def _file(name: str, read: Callable[[Path], Any]) -> Callable[[bytes, Path], Any]:
    def reader(content: bytes, folder: Path) -> Any:
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content)
        return read(path)

    return reader


# --- traces and data -------------------------------------------------------------------------------------------------
def _traces() -> list[bytes]:
    import numpy as np

    on = np.random.default_rng(0).random((6, 4)) < 0.5
    return [
        _npz(on=on),
        _npz(on=on, p=np.full((6, 4), 0.5), known=np.ones((6, 4), dtype=bool)),
        _npz(on=on, clients=np.array(list("abcd")), round_seconds=600.0, start=1.7e9, timezone="Europe/Berlin"),
    ]


TRACES = [
    b"round,client\n0,0\n0,2\n1,1\n3,0\n",
    b"# rounds=5 clients=4\nround,client\n0,0\n4,3\n",
    b"client,start,end\n0,0,600\n1,30.5,90\n0,700,1200\n",
]


def _trace(path: Path) -> Any:
    from fedawe.availability.trace import Trace

    trace = Trace.load(path, round_seconds=60)
    return repr(trace), trace.echoes()


def _data() -> list[bytes]:
    import numpy as np

    draw = np.random.default_rng(0)
    x, y = draw.normal(size=(12, 3)), np.arange(12) % 2
    images = draw.integers(0, 255, (12, 4, 4), dtype=np.uint8)
    return [
        _npz(x_train=x, y_train=y, x_test=x[:4], y_test=y[:4], client=y),
        _npz(x_train=images, y_train=y, x_test=images[:4], y_test=y[:4]),
    ]


TABLES = [
    b"f0,f1,label,client,split\n1,2.5,a,x,train\n2,3,b,x,train\n1,1,a,y,test\n4,5,b,y,train\n",
    b"f0,label\n" + b"".join(b"%d,%d\n" % (n, n % 2) for n in range(12)),
]


def _parquets() -> list[bytes]:
    import polars as pl

    out = []
    for frame in (
        pl.DataFrame({"f0": [1.0, 2.0, 3.0, 4.0], "label": ["a", "b", "a", "b"], "client": [1, 1, 2, 2]}),
        pl.DataFrame({"client": ["a", "b", "a"], "timestamp": [1_700_000_000, 1_700_000_600, 1_700_001_200]}),
    ):
        buffer = io.BytesIO()
        frame.write_parquet(buffer)
        out.append(buffer.getvalue())
    return out


def _table(path: Path) -> Any:
    from fedawe.tasks.data.tables import from_table

    return from_table(path)


def _from_npz(path: Path) -> Any:
    from fedawe.tasks.data.arrays import from_npz

    return from_npz(path)


LEAF = [
    json.dumps({"users": ["a"], "user_data": {"a": {"x": [[1, 2], [3, 4]], "y": [0, 1]}}}).encode(),
    json.dumps({"users": ["a"], "user_data": {"a": {"x": ["abc", "bcd"], "y": ["d", "e"]}}}).encode(),
]


def _leaf(path: Path) -> Any:
    from fedawe.tasks.data.leaf import from_leaf

    test = path.parent.parent / "test" / "one.json"
    test.parent.mkdir(exist_ok=True)
    test.write_bytes(path.read_bytes())
    return from_leaf(path.parent.parent)


# --- archives of data sets -------------------------------------------------------------------------------------------
def _tar(files: dict[str, bytes]) -> bytes:
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w:gz") as tar:
        for name, content in files.items():
            member = tarfile.TarInfo(name)
            member.size = len(content)
            tar.addfile(member, io.BytesIO(content))
    return buffer.getvalue()


def _cifar_batches() -> list[bytes]:
    import pickle

    import numpy as np

    rows = np.zeros((2, 3072), dtype=np.uint8)
    return [pickle.dumps({b"data": rows, b"labels": [1, 2]}, protocol=protocol) for protocol in (2, 4)]


def _cifar() -> list[bytes]:
    one = _cifar_batches()[0]
    names = [*(f"data_batch_{n}" for n in range(1, 6)), "test_batch"]
    return [_tar({f"cifar-10-batches-py/{name}": one for name in names})]


def _pngs() -> list[bytes]:
    from PIL import Image

    buffer = io.BytesIO()
    Image.new("RGB", (32, 32)).save(buffer, "PNG")
    return [buffer.getvalue()]


def _cinic() -> list[bytes]:
    one = _pngs()[0]
    return [_tar({f"{part}/airplane/{n}.png": one for part in ("train", "valid", "test") for n in range(2)})]


def _mats() -> list[bytes]:
    import numpy as np
    import scipy.io

    buffer = io.BytesIO()
    scipy.io.savemat(buffer, {"X": np.zeros((32, 32, 3, 2), dtype=np.uint8), "y": np.array([[1], [10]])})
    return [buffer.getvalue()]


def _added(name: str) -> Callable[[Path], Any]:
    def add(path: Path) -> Any:
        from fedawe.tasks.data.images import add as add_set

        return add_set(name, path, path.parent / "kept")

    return add


def _svhn(path: Path) -> Any:
    from fedawe.tasks.data.images import add

    (path.parent / "test_32x32.mat").write_bytes(path.read_bytes())
    return add("svhn", path.parent, path.parent / "kept")


def _batch(content: bytes, folder: Path) -> Any:
    from fedawe.tasks.data.cifar10 import parse

    return parse(content, str(folder / "data_batch_1"))


def _png(content: bytes, folder: Path) -> Any:
    from fedawe.tasks.data.cinic10 import decode

    return decode(content, str(folder / "one.png"))


# --- logs ------------------------------------------------------------------------------------------------------------
LOGS = [
    b"client,timestamp\na,2024-01-01T00:00:00Z\nb,2024-01-01T00:10:00Z\na,2024-01-01T01:00:00Z\n",
    b"client,start,end\na,2024-01-01 00:00,2024-01-01 02:00\nb,2024-01-01 01:00,\n",
    b"client;timestamp;event\na;1700000000;connected\na;1700003600;disconnected\nb;1700000000;online\n",
]
LINES = [
    b'{"client": "a", "timestamp": 1700000000}\n{"client": "b", "timestamp": "2023-11-15T00:00:00Z"}\n',
    b'{"client": {"id": "a"}, "timestamp": 1, "x": {"y": [1, 2, {"z": null}]}}\n{"client": "b", "timestamp": 2}\n',
]
EVENTS = [
    json.dumps(
        {
            "7": {
                "messages": "2020-01-27 10:00:00\tbattery_charged_on\n2020-01-27 10:05:00\twifi\n"
                "2020-01-27 10:06:00\tscreen_lock\n2020-01-27 11:00:00\tscreen_on\n"
            }
        }
    ).encode()
]


def _log(path: Path) -> Any:
    from fedawe.audit.logs import read

    return repr(read(path, round_length=None if path.suffix == ".npz" else "1h").trace)


# --- what a run writes -----------------------------------------------------------------------------------------------
def _run(folder: Path) -> Path:
    """A small experiment, made once in a process."""
    import torch

    import fedawe

    if "run" not in _made:
        out = folder.parent / "made"
        fedawe.Experiment(
            task=fedawe.Quadratic(torch.tensor([[0.0], [100.0]])),
            algorithms={"fedawe": fedawe.FedAWE()},
            availability=fedawe.Stationary(),
            p=[0.9, 0.5],
            rounds=4,
            seeds=(0,),
            evaluate_every=2,
        ).run(out, checkpoint_every=2, engine="stacked", workers=1, warn=lambda _: None)
        _made["run"] = out
    return _made["run"]


_made: dict[str, Path] = {}


def _written(pattern: str) -> Seeds:
    def seeds() -> list[bytes]:
        import tempfile

        return [path.read_bytes() for path in sorted(_run(Path(tempfile.mkdtemp()) / "x").rglob(pattern))]

    return seeds


def _in_run(name: str) -> Callable[[bytes, Path], Any]:
    """The file in a copy of the experiment, which is then checked and read back as a whole."""

    def reader(content: bytes, folder: Path) -> Any:
        import shutil

        from fedawe.experiments.check import problems
        from fedawe.experiments.results import load
        from fedawe.results.model import load_model

        out = folder / "run"
        shutil.copytree(_run(folder), out)
        (out / name).write_bytes(content)
        found = list(problems(out))
        for use in (lambda: load(out).table(), lambda: load_model(out / "fedawe" / "seed-0")):
            try:
                use()
            except refusals() as error:
                found.append(str(error))
        return found

    return reader


def _checkpoint(sealed: bool) -> Callable[[bytes, Path], Any]:
    """A checkpoint; sealed: under a name that has its checksum, as only somebody on purpose would write it."""

    def reader(content: bytes, folder: Path) -> Any:
        import torch

        import fedawe
        from fedawe.experiments import checkpoint

        digest = checkpoint.digest_of(content) if sealed else "0123456789abcdef"
        (folder / f"checkpoint-00000004-{digest}.safetensors").write_bytes(content)
        like = fedawe.FedAWE().init(torch.zeros(1), 2)
        return checkpoint.load(folder, like, lambda _: True, lambda _: None)

    return reader


# --- replies of clients ----------------------------------------------------------------------------------------------
def _arrays() -> list[bytes]:
    import numpy as np

    out = []
    for dtype in ("float32", "float64", "int64"):
        buffer = io.BytesIO()
        np.save(buffer, np.ones(3, dtype=dtype))
        out.append(buffer.getvalue())
    return out


def _reply(content: bytes, folder: Path) -> Any:
    del folder
    import torch
    from flwr.app import Array, ArrayRecord, ConfigRecord, RecordDict

    from fedawe.deploy import wire
    from fedawe.tasks.layout import Layout

    layout = Layout.of(torch.nn.Linear(2, 1))
    shape = (content[-1] % 4, 2) if content and content[-1] % 3 else (1, 2)
    dtype = ["float32", "float64", "O", "float32", "nonsense"][content[0] % 5] if content else "float32"
    arrays = {"weight": Array(dtype, shape, "numpy.ndarray", content), "bias": Array("float32", (1,), "x", content)}
    reply = RecordDict({"arrays": ArrayRecord(arrays), "config": ConfigRecord({wire.ROUND: len(content)})})
    found = []
    for use in (
        lambda: wire.returned(layout, reply),
        lambda: wire.check_round(reply, 3, required=True),
        lambda: wire.facts(RecordDict(), reply, needed=True),
    ):
        try:
            found.append(use())
        except refusals() as error:
            found.append(str(error))
    return found


# --- words of the command line ---------------------------------------------------------------------------------------
SPECS = [
    b"algorithms fedawe:clip=0.5,max_echo=10,eta0=0.2",
    b"algorithms fedau:K=20,eta_g=1.5",
    b"algorithms fedadam:rule=fedau(K=20),eta_s=0.1",
    b"algorithms mifa:memory_rate=local",
    b"dynamics sine:gamma=0.2,period=40",
    b"dynamics markov:q=0.2",
    b"dynamics outages:groups=3,rate=0.1,length=5",
    b"choose power-of-choice:d=40,k=20",
    b"optimiser adamw:lr=0.001,weight_decay=0.1",
    b"task synthetic:alpha=0.5,beta=0.5",
]


def _spec(content: bytes, folder: Path) -> Any:
    """An option as written; names outside of the package are not tried, since they would be imported."""
    import re

    from fedawe.experiments.build import experiment_of
    from fedawe.experiments.settings import Settings

    del folder
    kind, _, text = content.decode(errors="replace").partition(" ")
    name, _, options = text.partition(":")
    if not re.fullmatch(r"[a-z0-9-]*", name) or re.search(r"\.py|[a-z_]\.[a-z_]|:", options):
        return None
    given: dict[str, Any] = {"task": "quadratic"}
    if kind in ("dynamics", "choose", "optimiser", "task"):
        given[kind] = text
    return experiment_of(Settings(**given), (text,) if kind == "algorithms" else ("fedavg",), (0,))


def refusals() -> tuple[type[Exception], ...]:
    """How a reader may refuse."""
    from fedawe.core.errors import UserError
    from fedawe.deploy.wire import Refused

    return UserError, Refused


def _given(seeds: list[bytes]) -> Seeds:
    return lambda: seeds


TARGETS = {
    target.name: target
    for target in (
        Target("trace-npz", _traces, _file("t.npz", _trace)),
        Target("trace-csv", _given(TRACES), _file("t.csv", _trace)),
        Target("data-npz", _data, _file("d.npz", _from_npz)),
        Target("data-csv", _given(TABLES), _file("d.csv", _table)),
        Target("data-parquet", _parquets, _file("d.parquet", _table)),
        Target("data-leaf", _given(LEAF), _file("train/one.json", _leaf)),
        Target("cifar10-batch", _cifar_batches, _batch),
        Target("cifar10-archive", _cifar, _file("cifar.tar.gz", _added("cifar10"))),
        Target("cinic10-png", _pngs, _png),
        Target("cinic10-archive", _cinic, _file("CINIC-10.tar.gz", _added("cinic10"))),
        Target("svhn-mat", _mats, _file("train_32x32.mat", _svhn)),
        Target("log-csv", _given(LOGS), _file("log.csv", _log)),
        Target("log-csv-gz", lambda: [gzip.compress(log, mtime=0) for log in LOGS], _file("log.csv.gz", _log)),
        Target("log-jsonl", _given(LINES), _file("log.jsonl", _log)),
        Target("log-parquet", _parquets, _file("log.parquet", _log)),
        Target("log-events", _given(EVENTS), _file("events.json", _log)),
        Target("log-trace-npz", _traces, _file("log.npz", _log)),
        Target("run-record", _written("record.jsonl"), _in_run("fedawe/seed-0/record.jsonl")),
        Target("run-head", _written("experiment.json"), _in_run("experiment.json")),
        Target("run-clients", _written("clients/seed-0.npz"), _in_run("clients/seed-0.npz")),
        Target("run-trace", _written("traces/seed-0.npz"), _in_run("traces/seed-0.npz")),
        Target("run-model", _written("model.safetensors"), _in_run("fedawe/seed-0/model.safetensors")),
        Target("checkpoint", _written("checkpoint-*.safetensors"), _checkpoint(sealed=False)),
        Target("checkpoint-sealed", _written("checkpoint-*.safetensors"), _checkpoint(sealed=True)),
        Target("reply", _arrays, _reply),
        Target("option", _given(SPECS), _spec),
    )
}
