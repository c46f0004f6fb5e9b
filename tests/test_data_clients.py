"""Which client has which samples: as the data says, by a rule, by a user's own; and what is held out to validate."""

import dataclasses
import json
import sys
from pathlib import Path

import numpy as np
import pytest
import torch
from flwr_datasets import partitioner as flower
from hypothesis import given
from hypothesis import strategies as st
from torch import nn

import fedawe
from fedawe.cli.main import main
from fedawe.core.errors import UserError
from fedawe.core.rng import rng
from fedawe.experiments.build import experiment_of
from fedawe.experiments.settings import Settings
from fedawe.tasks import (
    Classification,
    Data,
    classification,
    from_arrays,
    hold_out,
    iid_partition,
    natural_partition,
    partition_of,
)
from fedawe.tasks.models import dense
from fedawe.tasks.named import NamedTask
from fedawe.testing import check_task

N = 60
X = np.random.default_rng(0).normal(size=(N + 12, 5)).astype(np.float32)
Y = np.arange(N + 12) % 3
OWNERS = np.array(["eve", "ann", "bob", "ann"])[np.arange(N) % 4]
ARRAYS = {"x_train": X[:N], "y_train": Y[:N], "x_test": X[N:], "y_test": Y[N:]}


def data(**more) -> Data:
    return from_arrays("mine", {**ARRAYS, **more})


def lists(parts) -> list[list[int]]:
    return [part.tolist() for part in parts]


# Partitions


@given(st.lists(st.sampled_from(["ann", "bob", "eve", "zoe"]), min_size=1, max_size=30))
def test_everyone_has_what_the_data_says(owners):
    naive: dict[str, list[int]] = {}
    for n, owner in enumerate(owners):
        naive.setdefault(owner, []).append(n)
    assert lists(natural_partition(owners)) == [naive[owner] for owner in sorted(naive)]


def test_clients_that_are_numbers_are_in_numerical_order():
    assert lists(natural_partition(np.array([10, 9, 10, 100]))) == [[1], [0, 2], [3]]


def test_data_that_says_whose_it_is_is_not_dealt_out():
    task = classification(data(client=OWNERS), "softmax", seed=3)
    assert task.sizes.tolist() == [30, 15, 15]
    assert task.sampling.order[:30].tolist() == np.flatnonzero(OWNERS == "ann").tolist()
    check_task(task)
    for seed in (0, 3):  # the same for every seed
        assert lists(partition_of(data(client=OWNERS), seed=seed)) == lists(natural_partition(OWNERS))
    by_rule = classification(data(client=OWNERS), "softmax", 4, 5.0, partition="dirichlet")
    expected = fedawe.dirichlet_partition(Y[:N], 4, 5.0, rng(0, "partition"))
    assert lists(partition_of(data(client=OWNERS), "dirichlet", 4, 5.0)) == lists(expected)
    assert by_rule.clients == 4


@given(samples=st.integers(1, 50), clients=st.integers(1, 10), seed=st.integers(0, 5))
def test_iid_deals_out_everything_evenly(samples, clients, seed):
    if clients > samples:
        with pytest.raises(UserError, match=f"{clients} clients cannot share {samples} samples"):
            iid_partition(samples, clients, rng(seed, "partition"))
        return
    parts = iid_partition(samples, clients, rng(seed, "partition"))
    assert sorted(np.concatenate(parts).tolist()) == list(range(samples))
    assert max(map(len, parts)) - min(map(len, parts)) <= 1


def test_iid_depends_on_the_seed():
    first, again, other = (lists(partition_of(data(), "iid", 5, seed=seed)) for seed in (1, 1, 2))
    assert first == again != other
    assert first != [sorted(part) for part in np.arange(N).reshape(5, 12).tolist()]


def test_partitions_of_ones_own():
    halves = [np.arange(0, N, 2), list(range(1, N, 2))]
    assert lists(partition_of(data(), halves)) == [list(range(0, N, 2)), list(range(1, N, 2))]

    def by_class(labels, seed):
        return [np.flatnonzero(labels == (c + seed) % 3) for c in range(3)]

    assert lists(partition_of(data(), by_class, seed=1)) == [np.flatnonzero(Y[:N] == c).tolist() for c in (1, 2, 0)]
    table = np.arange(N).reshape(2, -1)
    assert lists(partition_of(data(), table)) == table.tolist()
    assert lists(partition_of(data(client=OWNERS), halves)) == lists(
        map(np.asarray, halves)
    )  # what is asked for counts


WRONG = [
    ([[0, 1], [2.5]], "client 1 has float64 of shape [1]; expected a vector of sample numbers"),
    ([[0, 1], [[2]]], "client 1 has int64 of shape [1, 1]"),
    ([[0, 1], np.arange(N) > 1], "client 1 has a mask of shape [60]; expected a vector of sample numbers, as np.flat"),
    ([[0, 60]], "client 0 has sample 60; the training samples are 0 to 59"),
    ([[0], [-1]], "client 1 has sample -1"),
    ([], "the partition has no clients"),
]


@pytest.mark.parametrize(
    ("given", "said"),
    [
        *WRONG,
        ([[0, 0]], "client 0 has a sample twice"),
        ("random", "partition is 'random'; expected natural, dirichlet, iid"),
        ("natural", "partition is natural, but the data does not say which client has which sample"),
    ],
)
def test_wrong_partitions(given, said):
    with pytest.raises(UserError) as refused:
        partition_of(data(), given)
    assert said in str(refused.value)


@pytest.mark.parametrize(("given", "said"), [*WRONG, (None, "the partition is None; expected a vector of sample")])
def test_wrong_parts_of_a_task(given, said):
    with pytest.raises(UserError) as refused:
        Classification(data(), dense((5, 3)), given)
    assert said in str(refused.value)
    if given is not None:
        with pytest.raises(UserError, match=r"^(client|the partition|held_out)"):
            Classification(data(), dense((5, 3)), [[0, 1], [2, 3]], held_out=given)


def test_parts_of_a_task_may_be_lists_and_overlap():
    task = Classification(data(), dense((5, 3)), [[0, 1, 1], torch.arange(3), np.arange(4, dtype=np.uint8)])
    assert task.sizes.tolist() == [3, 3, 4]
    with pytest.raises(UserError, match="held_out is of 1 clients, parts of 2"):
        Classification(data(), dense((5, 3)), [[0, 1], [2, 3]], held_out=[[4]])


Y1 = torch.from_numpy(Y[:N])


@pytest.mark.parametrize(
    ("wrong", "said"),
    [
        ({"y_train": Y1.float()}, "mine: y_train is torch.float32; expected class numbers from 0, torch.int64"),
        ({"y_train": Y1 > 1}, "mine: y_train is torch.bool"),
        ({"y_train": Y1[:, None]}, "mine: y_train has the shape [60, 1] and x_train [60, 5]; expected one label"),
        ({"y_train": Y1[:50]}, "mine: y_train has the shape [50] and x_train [60, 5]"),
        ({"y_test": Y1}, "mine: y_test has the shape [60] and x_test [12, 5]"),
        ({"y_train": Y1 - 1}, "mine: y_train has a class -1; expected class numbers from 0"),
        ({"y_train": Y[:N]}, "mine: y_train is of type ndarray; expected a torch.Tensor"),
        ({"x_train": X[:N]}, "mine: x_train is of type ndarray; expected a torch.Tensor"),
        ({"x_val": torch.zeros(3, 5)}, "mine: y_val is of type NoneType; expected a torch.Tensor"),
        ({"x_train": torch.zeros(0, 5), "y_train": Y1[:0]}, "mine: x_train has no samples"),
        ({"x_test": torch.zeros(12, 5).double()}, "mine: x_train is torch.float32, x_test is torch.float64"),
        ({"x_train": torch.zeros(N, 5).byte(), "x_test": torch.zeros(12, 5).byte()}, "expected images [N, height,"),
        (
            {"x_train": torch.zeros(N, 5).double(), "x_test": torch.zeros(12, 5).double()},
            "mine: inputs are torch.float64, the parameters of the network torch.float32; expected one type, as x.to(",
        ),
    ],
    ids=lambda each: each if isinstance(each, str) else "",
)
def test_wrong_data_of_a_task(wrong, said):
    with pytest.raises(UserError) as refused:
        Classification(dataclasses.replace(data(), **wrong), dense((5, 3)), [np.arange(9)])
    assert said in str(refused.value)
    assert "\n" not in str(refused.value)


@pytest.mark.parametrize("dtype", [torch.int32, torch.uint8])
def test_labels_may_be_whole_numbers_of_any_type(dtype):
    right, parts = data(), [np.arange(20), np.arange(20, N)]
    other = dataclasses.replace(right, y_train=right.y_train.to(dtype), y_test=right.y_test.to(dtype))
    local, trace = fedawe.Local(fedawe.Rate(0.1), steps=2, batch=8), fedawe.Trace(np.ones((2, 2)))
    tasks = [Classification(each, dense((5, 3)), parts) for each in (right, other)]
    assert tasks[0].data is right
    one, two = (list(fedawe.simulate(task, fedawe.FedAvg(), trace, local, seed=0))[-1].x for task in tasks)
    assert torch.equal(one, two)
    assert tasks[0].evaluate(one) == tasks[1].evaluate(two)
    assert lists(partition_of(other, "dirichlet", 3, 1.0)) == lists(partition_of(right, "dirichlet", 3, 1.0))


def test_what_has_no_meaning_for_a_partition_is_refused():
    with pytest.raises(UserError, match=r"alpha is 0\.5, but the data says which client has which sample; omit alpha"):
        partition_of(data(client=OWNERS), alpha=0.5)
    with pytest.raises(UserError, match=r"alpha is 0\.5, but the partition is not dirichlet"):
        partition_of(data(), "iid", alpha=0.5)
    with pytest.raises(UserError, match="clients is 7, but the partition has 3 clients; omit clients"):
        partition_of(data(client=OWNERS), clients=7)
    assert len(partition_of(data(client=OWNERS), clients=3)) == 3


@pytest.mark.filterwarnings("ignore:Specifying null_placement")  # of pyarrow, to Flower Datasets
@pytest.mark.parametrize(
    ("partitioner", "clients"),
    [
        (flower.IidPartitioner(4), 4),
        (flower.DirichletPartitioner(4, "label", 1.0, min_partition_size=1), 4),
        (flower.PathologicalPartitioner(3, "label", 2), 3),
        (flower.ShardPartitioner(4, "label", num_shards_per_partition=3), 4),
        (flower.LinearPartitioner(5), 5),
        (flower.NaturalIdPartitioner("client"), 3),
    ],
    ids=lambda each: type(each).__name__,
)
def test_partitioners_of_flower_datasets(partitioner, clients):
    parts = partition_of(data(client=OWNERS), partitioner)
    assert len(parts) == clients
    assert sorted(np.concatenate(parts).tolist()) == list(range(N))
    assert lists(partition_of(data(client=OWNERS), partitioner, seed=1)) == lists(parts)  # and can be used again
    if isinstance(partitioner, flower.NaturalIdPartitioner):
        assert sorted(lists(parts)) == sorted(lists(natural_partition(OWNERS)))
    if isinstance(partitioner, flower.PathologicalPartitioner):
        assert all(len(set(Y[part])) == 2 for part in parts)


def test_a_partitioner_that_does_not_fit():
    with pytest.raises(UserError, match=r"DirichletPartitioner cannot share out the samples \(Column \(fine\)") as said:
        partition_of(data(), flower.DirichletPartitioner(4, "fine", 1.0))
    assert "rows with the columns sample, label, to which no data set has been assigned" in str(said.value)


# Evaluation of what clients have


def plain(x: torch.Tensor, rows: np.ndarray) -> tuple[torch.Tensor, torch.Tensor]:
    """Hits and losses of softmax regression with parameters x, by hand."""
    W, b = x[:15].view(3, 5), x[15:]
    logits = torch.from_numpy(X[rows]) @ W.T + b
    targets = torch.from_numpy(Y[rows])
    loss = nn.functional.cross_entropy(logits, targets, reduction="none")
    return (logits.argmax(1) == targets).double(), loss.double()


def test_samples_that_nobody_or_everybody_has():
    """Train metrics are over the samples that clients have; F is the mean of the clients' means."""
    parts = [np.array([3, 5, 7]), np.array([5, 40]), np.array([59])]
    task = Classification(data(), dense((5, 3)), parts)
    x = task.initial(0)
    found = task.evaluate(x)
    hit, loss = plain(x, np.array([3, 5, 7, 40, 59]))
    assert found["train_accuracy"] == pytest.approx(float(hit.mean()))
    assert found["train_loss"] == pytest.approx(float(loss.mean()))
    means = [plain(x, part)[1].mean() for part in parts]
    assert found["client_loss"] == pytest.approx(float(sum(means) / 3))
    assert found["test_loss"] == pytest.approx(float(plain(x, np.arange(N, N + 12))[1].mean()))


# Validation


@given(sizes=st.lists(st.integers(0, 25), min_size=1, max_size=6), share=st.sampled_from([0.1, 0.25, 0.5, 0.9]))
def test_a_share_of_every_client_is_held_out(sizes, share):
    parts = np.split(np.arange(100, 100 + sum(sizes)), np.cumsum(sizes)[:-1])
    expected = [min(round(share * n), max(n - 1, 0)) for n in sizes]
    if not sum(expected):
        with pytest.raises(UserError, match="less than one sample of any client"):
            hold_out(parts, share, 7)
        return
    kept, held = hold_out(parts, share, 7)
    assert [len(part) for part in held] == expected
    for i, part in enumerate(parts):
        assert sorted([*kept[i].tolist(), *held[i].tolist()]) == part.tolist()
        drawn = rng(7, "validation", i).permutation(len(part))[: expected[i]]
        assert set(held[i].tolist()) == {int(part[n]) for n in drawn}


@pytest.mark.parametrize("share", [0.0, 1.0, -0.1, float("nan")])
def test_a_share_is_between_0_and_1(share):
    with pytest.raises(UserError, match="expected a share between 0 and 1"):
        classification(data(), "softmax", 4, 5.0, validation=share)


@pytest.fixture
def validated() -> Classification:
    return classification(data(client=OWNERS), "softmax", seed=2, validation=0.3)


def test_what_is_held_out_is_not_trained_on(validated):
    held = set(validated.rows["validation"].tolist())
    assert len(held) == 9 + 4 + 4
    seen: set[int] = set()
    for t in range(20):
        work = fedawe.Local(steps=5, batch=8).work(torch.arange(3), t, 0)
        for i in range(3):
            seen |= set(validated.samples(i, t, work).ravel().tolist())
    assert seen == set(range(N)) - held
    assert validated.sizes.tolist() == [21, 11, 11]


def test_validation_metrics_are_those_of_a_plain_loop(validated):
    x = validated.initial(0)
    found = validated.evaluate(x)
    hit, loss = plain(x, validated.rows["validation"])
    assert found["validation_accuracy"] == pytest.approx(float(hit.mean()))
    assert found["validation_loss"] == pytest.approx(float(loss.mean()))
    assert found["train_loss"] == pytest.approx(float(plain(x, validated.rows["train"])[1].mean()))
    metrics = {metric.name: metric for metric in validated.metrics}
    assert metrics["validation_accuracy"].better == "higher"
    assert metrics["validation_loss"].better == "lower"
    assert [name for name, metric in metrics.items() if metric.decides] == ["test_accuracy"]
    check_task(validated)


@pytest.mark.parametrize(
    ("parts", "decides"),
    [(("validation",), "validation_accuracy"), (("train", "test"), "test_accuracy"), (("train",), "train_accuracy")],
)
def test_only_the_parts_that_were_asked_for_are_evaluated(validated, parts, decides):
    task = classification(data(client=OWNERS), "softmax", seed=2, validation=0.3, evaluate_on=parts)
    x = task.initial(0)
    found, whole = task.evaluate(x), validated.evaluate(x)
    prefixes = tuple(f"{part}_" for part in (*parts, *(["client"] if "train" in parts else [])))
    assert found == {name: value for name, value in whole.items() if name.startswith(prefixes)}
    assert [metric.name for metric in task.metrics if metric.decides] == [decides]
    assert {metric.name for metric in task.metrics} == {name for name in found if "by_class" not in name}
    check_task(task)


def test_the_accuracy_on_a_class_that_is_not_tested_is_unknown():
    y = np.arange(12) % 3
    arrays = {"x_train": np.eye(3)[y], "y_train": y, "x_test": np.eye(3)[:2], "y_test": np.arange(2)}
    task = classification(from_arrays("three", arrays), "softmax", clients=2, alpha=10.0)
    *tested, last = task.evaluate(task.initial(0))["test_accuracy_by_class"]
    assert all(share in (0.0, 1.0) for share in tested)
    assert np.isnan(last)


def test_without_a_split_there_is_nothing_of_it():
    task = classification(data(client=OWNERS), "softmax")
    assert task.metrics == Classification.metrics
    assert not [name for name in task.evaluate(task.initial(0)) if "validation" in name]


def test_the_data_may_have_a_validation_set_of_its_own():
    given = data(client=OWNERS, x_val=X[N : N + 5], y_val=Y[N : N + 5])
    task = classification(given, "softmax")
    x = task.initial(0)
    assert task.evaluate(x)["validation_loss"] == pytest.approx(float(plain(x, np.arange(N, N + 5))[1].mean()))
    assert task.sizes.sum() == N
    with pytest.raises(UserError, match=r"mine has validation samples of its own \(x_val, y_val\); omit validation"):
        classification(given, "softmax", validation=0.1)


def test_clients_are_available_as_they_would_be_without_a_validation():
    settings = Settings(model="softmax", clients=10, alpha=0.5, rounds=20)
    plain, validated = (
        experiment_of(each, ["fedavg"], [0]).population(0)
        for each in (settings, dataclasses.replace(settings, validation=0.2))
    )
    np.testing.assert_array_equal(validated.p, plain.p)
    np.testing.assert_array_equal(validated.trace.on, plain.trace.on)
    assert validated.task.sizes.sum() < plain.task.sizes.sum()


def test_any_number_of_workers_finds_the_same(tmp_path):
    local = fedawe.Local(fedawe.Rate(0.5), batch=8)
    experiment = fedawe.Experiment(
        task=NamedTask("digits", "softmax", 8, 1.0, validation=0.2),
        algorithms={"FedAvg": fedawe.FedAvg()},
        local=local,
        rounds=3,
        seeds=[1],
        evaluate_every=1,
    )
    records = []
    for workers in (1, 2):
        experiment.run(tmp_path / str(workers), workers=workers, engine="one", warn=lambda _: None)
        lines = (tmp_path / str(workers) / "FedAvg" / "seed-1" / "record.jsonl").read_text().splitlines()
        found = [json.loads(line) for line in lines]
        records.append([{k: v for k, v in line.items() if k.startswith(("test", "valid", "train"))} for line in found])
    assert records[0] == records[1]
    assert records[0][-2]["validation_accuracy"] > 2 * records[0][1]["validation_accuracy"]


# On the command line


@pytest.fixture
def folder(tmp_path, monkeypatch) -> Path:
    monkeypatch.chdir(tmp_path)
    np.savez("plain.npz", **ARRAYS)
    np.savez("owned.npz", **ARRAYS, client=OWNERS)
    Path("parts.py").write_text(
        "import numpy as np\n"
        "def halves(labels, seed):\n    return [range(0, len(labels), 2), range(1, len(labels), 2)]\n"
        "def dealt(labels, seed, clients: int = 3):\n    return np.array_split(np.arange(len(labels)), clients)\n"
        "THREE = 3\n"
    )
    return tmp_path


def sizes(**flags) -> list[int]:
    settings = Settings(rounds=2, p=(0.5,), **flags)
    return experiment_of(settings, ["fedavg"], [0]).population(0).task.sizes.tolist()


def test_a_file_that_says_whose_it_is(folder):
    assert sizes(task="owned.npz") == [30, 15, 15]
    assert sizes(task="owned.npz", clients=3) == [30, 15, 15]
    assert sizes(task="owned.npz", partition="iid", clients=4) == [15] * 4
    assert sizes(task="plain.npz", partition="parts.py:halves") == [30, 30]
    assert sizes(task="plain.npz", partition="parts.py:dealt:clients=5") == [12] * 5
    assert sizes(task="plain.npz", partition="parts.py:dealt", clients=6) == [10] * 6
    assert len(sizes(task="plain.npz", alpha=10.0, clients=4)) == 4
    described = experiment_of(Settings(task="owned.npz"), ["fedavg"]).described()["task"]
    assert (described["partition"], described["alpha"], described["clients"]) == ("natural", None, None)
    described = experiment_of(Settings(task="plain.npz"), ["fedavg"]).described()["task"]
    assert (described["partition"], described["alpha"], described["clients"]) == ("dirichlet", 0.1, 100)
    described = experiment_of(Settings(task="plain.npz", partition="parts.py:halves"), ["fedavg"]).described()["task"]
    assert described["partition"]["function"] == "parts:halves"
    assert described["partition"]["definition"]


def test_a_recorded_trace_must_have_these_clients(folder):
    fedawe.Trace(np.ones((3, 3), dtype=bool)).save("three.npz")
    fedawe.Trace(np.ones((3, 4), dtype=bool)).save("four.npz")
    flags = {"task": "owned.npz", "rounds": 2}
    experiment = experiment_of(Settings(**flags, dynamics="three.npz"), ["fedavg"], [0])
    assert experiment.population(0).task.clients == 3
    with pytest.raises(UserError, match="the trace has 4 clients, the task 3"):
        experiment_of(Settings(**flags, dynamics="four.npz"), ["fedavg"], [0]).population(0)
    assert (
        experiment_of(Settings(task="plain.npz", alpha=9.0, dynamics="four.npz"), ["fedavg"]).population(0).task.clients
        == 4
    )


REFUSED = [
    ("owned.npz --alpha 0.3", "alpha is 0.3, but the data says which client has which sample; omit alpha (--alpha)"),
    ("owned.npz --clients 5", "clients is 5, but the partition has 3 clients"),
    ("plain.npz --partition natural", "partition is natural, but the data does not say which client has which sample"),
    ("plain.npz --partition evenly", "unknown partition 'evenly'; choose from natural, dirichlet, iid"),
    ("plain.npz --partition iid:clients=3", "expected natural, dirichlet, iid without options, or a function"),
    ("plain.npz --partition parts.py:THREE", "expected natural, dirichlet, iid without options, or a function"),
    ("plain.npz --partition parts.py:none", "parts.py has no 'none'"),
    ("plain.npz --partition parts.py:halves --clients 7", "clients is 7, but the partition has 2 clients"),
    ("plain.npz --partition parts.py:halves --alpha 1", "alpha is 1, but the partition is not dirichlet"),
    ("plain.npz --clients 4 --alpha 9 --validation 1.5", "validation is 1.5; expected a share between 0 and 1"),
    ("plain.npz --clients 4 --alpha 9 --evaluate-on validation", "evaluate_on is validation; expected one or more of"),
    ("quadratic --evaluate-on test", "--evaluate-on has no meaning for the task quadratic; omit it"),
    ("quadratic --validation 0.1", "--validation has no meaning for the task quadratic; omit it\n"),
    ("synthetic --alpha 0.5", "--alpha has no meaning for the task synthetic; omit it, or write synthetic:alpha=..."),
    ("synthetic:beta=1 --alpha 0.5", "omit it, or write synthetic:beta=1,alpha=..."),
    ("synthetic --partition iid", "--partition has no meaning for the task synthetic; omit it\n"),
    ("chars --alpha 0.5", "alpha is 0.5, but the data says which client has which sample"),
    ("chars --model mlp", "model is 'mlp', but the samples of chars are text"),
    ("digits --model lstm", "model is 'lstm', but the samples of digits are numbers of shape [1, 8, 8]"),
    ("none.csv", "none.csv: no such file"),
]


@pytest.mark.parametrize(("flags", "said"), REFUSED, ids=[flags for flags, _ in REFUSED])
def test_a_mistake_is_one_line_and_writes_nothing(folder, monkeypatch, capsys, flags, said):
    monkeypatch.setattr(sys, "argv", ["fedawe", "run", "--task", *flags.split(), "--out", "out"])
    before = sorted(path.name for path in folder.iterdir() if path.name != "__pycache__")
    with pytest.raises(SystemExit) as stopped:
        main()
    line = capsys.readouterr().err
    assert stopped.value.code == 2
    assert said in line
    assert line.count("\n") == 1
    assert sorted(path.name for path in folder.iterdir() if path.name != "__pycache__") == before


def test_tables_and_leaf_are_tasks(folder):
    import polars as pl

    frame = pl.DataFrame({f"f{n}": X[:N, n] for n in range(5)} | {"label": Y[:N], "client": OWNERS})
    frame.write_csv("t.csv")
    frame.write_parquet("t.parquet")
    assert sizes(task="t.csv") == sizes(task="t.parquet")
    assert sum(sizes(task="t.csv")) == 48
    assert len(sizes(task="t.csv")) == 3
    frame.drop("client").write_csv("u.csv")
    assert len(sizes(task="u.csv", clients=5, alpha=9.0)) == 5
    users = {u: {"x": X[:N][u == OWNERS].tolist(), "y": Y[:N][u == OWNERS].tolist()} for u in ("ann", "bob", "eve")}
    for part in ("train", "test"):
        Path("leaf", part).mkdir(parents=True)
        Path("leaf", part, "a.json").write_text(json.dumps({"users": list(users), "user_data": users}))
    assert sizes(task="leaf") == [30, 15, 15]
    first = NamedTask("leaf").described()["sha256"]
    Path("leaf", "test", "a.json").write_text(json.dumps({"user_data": {"ann": users["ann"]}}))
    assert NamedTask("leaf").described()["sha256"] != first


def test_a_set_that_is_kept_may_say_whose_it_is(folder):
    from fedawe.tasks.data import add

    images = np.random.default_rng(0).integers(256, size=(N, 4, 4), dtype=np.uint8)
    np.savez("images.npz", x_train=images, y_train=Y[:N], x_test=images, y_test=Y[:N], client=OWNERS)
    add("mine", "images.npz", folder / "kept")
    assert sizes(task="mine", data=folder / "kept") == [30, 15, 15]
