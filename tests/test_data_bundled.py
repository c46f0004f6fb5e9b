"""Tasks that come with the package: Synthetic(alpha, beta), and the next character of Python's documentation."""

import dataclasses
import math
import sys

import numpy as np
import pytest
import torch
from torch import nn

import fedawe
from fedawe.core.errors import UserError
from fedawe.core.rng import rng
from fedawe.tasks import Synthetic, characters, classification
from fedawe.tasks.data import text
from fedawe.tasks.lstm import CharacterLSTM
from fedawe.tasks.named import NamedTask
from fedawe.testing import check_task
from fedawe.training.engines.base import innovations


def naive(seed: int, i: int, alpha: float, beta: float) -> tuple[np.ndarray, np.ndarray]:
    """The samples of a client, one number after another, in the words of FedProx's paper."""
    draw = rng(seed, "synthetic", i)
    n = int(math.exp(4 + 2 * draw.standard_normal())) + 50
    u = alpha * draw.standard_normal()
    B = beta * draw.standard_normal()
    W = np.array([[u + draw.standard_normal() for _ in range(10)] for _ in range(60)])
    b = np.array([u + draw.standard_normal() for _ in range(10)])
    v = np.array([B + draw.standard_normal() for _ in range(60)])
    x = np.array([[v[j] + math.sqrt((j + 1) ** -1.2) * draw.standard_normal() for j in range(60)] for _ in range(n)])
    logits = x @ W + b
    softmax = np.exp(logits - logits.max(1, keepdims=True))
    return x, softmax.argmax(1)


@pytest.mark.parametrize(("alpha", "beta"), [(1.0, 1.0), (0.0, 0.5)])
def test_synthetic_is_that_of_the_paper(alpha, beta):
    data = Synthetic(clients=4, alpha=alpha, beta=beta).data(seed=5)
    for i in range(4):
        x, y = naive(5, i, alpha, beta)
        mine = data.client == i
        cut = int(0.9 * len(y))
        np.testing.assert_allclose(data.x_train[mine], x[:cut], rtol=1e-5, atol=1e-6)
        assert data.y_train[mine].tolist() == y[:cut].tolist()
    assert len(data.y_train) + len(data.y_test) == sum(len(naive(5, i, alpha, beta)[1]) for i in range(4))


def test_synthetic_clients_have_names_of_their_own():
    few, many = Synthetic(clients=2).data(0), Synthetic(clients=5).data(0)
    assert torch.equal(few.x_train, many.x_train[many.client < 2])
    other = Synthetic(clients=2).data(1)
    assert few.x_train.shape != other.x_train.shape or not torch.equal(few.x_train, other.x_train)


def test_synthetic_is_a_task():
    task = Synthetic(clients=5, validation=0.2)(3)
    check_task(task)
    assert task.clients == 5
    assert "validation_loss" in task.evaluate(task.initial(0))
    assert len(task.initial(0)) == 61 * 10
    for options, said in (
        ({"clients": 0}, "clients is 0"),
        ({"alpha": -1.0}, "alpha is -1.0"),
        ({"beta": np.inf}, "beta"),
    ):
        with pytest.raises(UserError, match=said):
            Synthetic(**options)


@pytest.fixture
def small(monkeypatch):
    """Three topics, one of them too short to be a client."""
    texts = {"b": "abcdefghij" * 40 + "x", "a": "The quick brown fox.\n" * 20, "c": "short"}
    monkeypatch.setattr(text, "topics", lambda: dict(sorted(texts.items())))
    return texts


def test_samples_are_the_text_and_labels_what_follows(small):
    data = characters()
    assert sorted(set(data.client.tolist())) == ["a", "b"]
    letters = np.array(["?", *text.ALPHABET])
    for title, n, test in (("a", (420 - 1) // 40, 1), ("b", 10, 1)):
        mine = data.client == title
        inputs = "".join(letters[data.x_train[mine].numpy()].ravel())
        labels = "".join(letters[data.y_train[mine].numpy()].ravel())
        assert inputs == small[title][: 40 * (n - test)]
        assert labels == small[title][1 : 40 * (n - test) + 1]
    assert data.x_test.shape == (2, 40)
    assert "".join(letters[data.x_test[1].numpy()]) == small["b"][360:400]
    assert "".join(letters[data.y_test[1].numpy()]) == small["b"][361:401]


def test_the_documentation_of_this_python():
    data = characters()
    assert len(np.unique(data.client)) > 70
    assert len(data.y_train) > 5_000
    assert 0 <= int(data.x_train.min()) <= int(data.x_train.max()) < data.classes == 97
    assert NamedTask("chars").described()["sha256"] == text.topics_sha256()


def test_perplexity_is_that_of_the_module_itself(small):
    task = classification(characters(), "lstm")
    x = task.initial(1)
    module = CharacterLSTM(97, every=True)
    module.load_state_dict(task.layout.state_dict(x))
    with torch.no_grad():
        logits = module(task.data.x_test)
    loss = nn.functional.cross_entropy(logits.flatten(0, 1), task.data.y_test.flatten())
    found = task.evaluate(x)
    assert found["test_loss"] == pytest.approx(float(loss), rel=1e-5)
    assert found["test_perplexity"] == pytest.approx(math.exp(float(loss)), rel=1e-5)
    assert found["test_accuracy"] == pytest.approx(float((logits.argmax(-1) == task.data.y_test).double().mean()))
    assert [metric.name for metric in task.metrics if metric.decides] == ["test_perplexity"]
    assert "test_accuracy_by_class" not in found


def test_a_step_is_that_of_torch(small):
    task = classification(characters(), "lstm")
    x, local = task.initial(0), fedawe.Local(fedawe.Rate(0.5, "constant"), steps=2, batch=4)
    G = innovations(task, local, x[None], torch.tensor([1]), 3, 0)[0]
    module = CharacterLSTM(97, every=True)
    module.load_state_dict(task.layout.state_dict(x))
    optimizer = torch.optim.SGD(module.parameters(), lr=0.5)
    for rows in task.samples(1, 0, local.work(torch.tensor([1]), 3, 0)):
        picked = torch.from_numpy(rows.copy())
        optimizer.zero_grad()
        logits = module(task.data.x_train[picked])
        nn.functional.cross_entropy(logits.flatten(0, 1), task.data.y_train[picked].flatten()).backward()
        optimizer.step()
    torch.testing.assert_close(G, x - task.layout.vector(module.state_dict()), rtol=1e-4, atol=1e-6)


def test_the_next_character_is_learned(small):
    task = classification(characters(), "lstm")
    trace = fedawe.Trace(np.ones((15, 2), dtype=bool))
    local = fedawe.Local(fedawe.Rate(2.0, "constant"), steps=10, batch=8)
    steps = list(fedawe.simulate(task, fedawe.FedAvg(), trace, local, seed=0))
    before, after = task.evaluate(task.initial(0)), task.evaluate(steps[-1].x)
    assert before["test_perplexity"] > 80
    assert after["test_perplexity"] < 30


def test_text_with_one_label_is_learned_by_the_same_network(small):
    every = characters()
    last = dataclasses.replace(every, y_train=every.y_train[:, -1], y_test=every.y_test[:, -1])
    task = classification(last, "lstm")
    check_task(task)
    x = task.initial(0)
    module = CharacterLSTM(97, every=True)
    module.load_state_dict(task.layout.state_dict(x))
    with torch.no_grad():
        logits = module(last.x_test)[:, -1]
    assert task.evaluate(x)["test_loss"] == pytest.approx(
        float(nn.functional.cross_entropy(logits, last.y_test)), rel=1e-5
    )


def test_a_python_without_its_documentation(monkeypatch):
    monkeypatch.setitem(sys.modules, "pydoc_data.topics", None)
    with pytest.raises(UserError, match="this Python lacks its documentation"):
        NamedTask("chars").described()
