"""The paper's image tasks against plain PyTorch, written as one would by hand."""

import dataclasses

import numpy as np
import pytest
import torch
from torch import nn

import fedawe
from fedawe.tasks import Augment, Classification, Data, ModuleNetwork, Update
from fedawe.tasks.augment import gathered
from fedawe.tasks.models import network_for, paper
from fedawe.training.engines.base import innovations

NETWORKS = {  # hidden layers, dropout, number of parameters
    "svhn": ((128,), 0.0, 273_706),
    "cifar10": ((256, 64), 0.0, 551_786),
    "cinic10": ((512, 256), 0.2, 1_193_130),
}


def plain(hidden: tuple[int, ...], dropout: float = 0.0, size: int = 32, classes: int = 10) -> nn.Sequential:
    """The network as the paper prints it: ReLU before pooling."""
    layers: list[nn.Module] = [nn.Conv2d(3, 32, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2)]
    layers += [nn.Conv2d(32, 32, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2), nn.Flatten()]
    sizes = (32 * (size // 4) ** 2, *hidden, classes)
    for n in range(len(sizes) - 1):
        layers += [nn.Dropout(dropout)] * (dropout > 0) + [nn.Linear(sizes[n], sizes[n + 1])]
        layers += [nn.ReLU()] * (n < len(sizes) - 2)
    return nn.Sequential(*layers)


def with_parameters(module: nn.Module, x: torch.Tensor) -> nn.Module:
    nn.utils.vector_to_parameters(x.clone(), module.parameters())
    return module


def image_task(network: ModuleNetwork, each=40, clients=4, size=32, **kwargs) -> Classification:
    draw = np.random.default_rng(0)
    n = each * clients
    x = draw.integers(256, size=(n, size, size, 3), dtype=np.uint8)
    x[: n // 4] = 255  # burnt-out images: every window of the pooling is a tie
    y = draw.integers(10, size=n)
    data = Data("svhn", torch.from_numpy(x), torch.from_numpy(y), torch.from_numpy(x[:30]), torch.from_numpy(y[:30]))
    data = dataclasses.replace(data, mean=(0.43, 0.44, 0.47), std=(0.198, 0.201, 0.197))
    return Classification(data, network, list(np.arange(n).reshape(clients, each)), **kwargs)


@pytest.mark.parametrize("name", NETWORKS)
def test_the_number_of_parameters_is_the_papers(name):
    hidden, dropout, count = NETWORKS[name]
    network = paper(hidden=hidden, dropout=dropout)
    assert len(network.initial(0)) == count
    assert sum(p.numel() for p in plain(hidden, dropout).parameters()) == count
    data = Data(name, torch.zeros(10, 32, 32, 3, dtype=torch.uint8), torch.arange(10), torch.zeros(1), torch.zeros(1))
    assert repr(network_for(data, "paper").module) == repr(network.module)


@pytest.mark.parametrize("name", NETWORKS)
def test_the_network_is_the_plain_one(name):
    hidden, dropout, _ = NETWORKS[name]
    network = paper(hidden=hidden, dropout=dropout)
    x, inputs = network.initial(1), torch.randn(16, 3, 32, 32, generator=torch.Generator().manual_seed(0))
    module = with_parameters(plain(hidden, dropout), x).eval()
    with torch.no_grad():
        torch.testing.assert_close(network.outputs(x, inputs), module(inputs), rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("name", ["svhn", "cifar10"])
@pytest.mark.parametrize("rule", ["iid", "epochs"])
def test_training_is_that_of_a_plain_loop(name, rule):
    network = paper(hidden=NETWORKS[name][0])
    task = image_task(network)
    local = fedawe.Local(fedawe.Rate(0.05), steps=4, batch=16, batches=rule)
    A, visits = torch.tensor([0, 2]), torch.tensor([3, 0])
    X = torch.stack([network.initial(5), network.initial(6)])
    G = innovations(task, local, X, A, 7, 11, visits)
    mean, std = torch.tensor(task.data.mean)[:, None, None], torch.tensor(task.data.std)[:, None, None]
    for row in range(2):
        module = with_parameters(plain(NETWORKS[name][0]), X[row])
        samples = task.samples(int(A[row]), int(visits[row]), local.work(A, 7, 11, visits))
        optimizer = torch.optim.SGD(module.parameters(), lr=local.rate(7))
        for step in range(4):
            picked = torch.from_numpy(samples[step].copy())
            inputs = (task.data.x_train[picked].permute(0, 3, 1, 2).float() / 255 - mean) / std
            optimizer.zero_grad()
            nn.functional.cross_entropy(module(inputs), task.data.y_train[picked]).backward()
            optimizer.step()
        expected = X[row] - nn.utils.parameters_to_vector(module.parameters()).detach()
        torch.testing.assert_close(G[row], expected, rtol=2e-4, atol=2e-6)


def test_dropout_keeps_what_its_seed_says_and_no_more():
    network = paper((3, 8, 8), (32, 16), 10, dropout=0.5)
    x, inputs = network.initial(0), torch.randn(1, 64, 3, 8, 8, generator=torch.Generator().manual_seed(0))
    masks = network.executor(3).draw(x[None], inputs, [3])
    assert [tuple(mask.shape) for mask in masks] == [(1, 64, 128), (1, 64, 32), (1, 64, 16)]
    assert set(torch.cat([mask.flatten() for mask in masks]).tolist()) == {0.0, 2.0}
    assert abs(float(masks[0].mean()) - 1) < 4 / masks[0].numel() ** 0.5
    # The same masks in a plain network give the same gradient.
    module = with_parameters(plain((32, 16), size=8), x)
    h, kept = inputs[0], iter(masks)
    for layer in module:
        h = layer(h * next(kept)[0] if isinstance(layer, nn.Linear) else h)
    targets = torch.arange(64) % 10
    nn.functional.cross_entropy(h, targets).backward()
    expected = torch.cat([p.grad.flatten() for p in module.parameters()])
    weights = torch.full((1, 64), 1 / 64)
    found = network.gradients(x[None], (inputs, targets[None], weights, [3]))[0]
    torch.testing.assert_close(found, expected, rtol=1e-4, atol=1e-6)
    assert not torch.equal(found, network.gradients(x[None], (inputs, targets[None], weights, [4]))[0])


def test_dropout_of_everything_gives_zeros_as_in_torch():
    network = paper((3, 8, 8), (16,), 10, dropout=1.0)
    x, inputs = network.initial(0)[None], torch.ones(1, 4, 3, 8, 8)
    g = network.gradients(x, (inputs, torch.zeros(1, 4, dtype=torch.int64), torch.full((1, 4), 0.25), [3]))[0]
    expected = torch.softmax(x[0, -10:], 0) - nn.functional.one_hot(torch.tensor(0), 10)
    torch.testing.assert_close(g[-10:], expected)
    assert not g[:-10].any()


def test_dropout_of_a_client_depends_on_nothing_but_its_name():
    task = image_task(paper((3, 8, 8), (16,), 10, dropout=0.2), size=8)
    local = fedawe.Local(fedawe.Rate(0.1), steps=2, batch=8)
    X = task.initial(0).repeat(3, 1)
    together = innovations(task, local, X, torch.tensor([0, 1, 3]), 4, 0)
    alone = innovations(task, local, X[:1], torch.tensor([3]), 4, 0)
    assert torch.equal(together[2], alone[0])
    assert not torch.equal(alone, innovations(task, local, X[:1], torch.tensor([3]), 5, 0))


def test_initial_weights_are_the_authors():
    network = paper()
    pieces = list(network.layout.tensors(network.initial(0)).values())
    for weight, bias in ((pieces[0], pieces[1]), (pieces[2], pieces[3]), (pieces[4], pieces[5])):
        std = (2 / weight[0].numel()) ** 0.5
        assert abs(float(weight.std()) / std - 1) < 5 / weight.numel() ** 0.5
        assert not bias.any()
    bound = 128**-0.5
    assert bound * 0.98 < float(pieces[6].abs().max()) <= bound
    assert 0 < float(pieces[7].abs().max()) <= bound


def test_crops_and_flips_are_those_of_a_naive_loop():
    draw = np.random.default_rng(0)
    images = torch.from_numpy(draw.random((6, 3, 8, 10), dtype=np.float32))
    draws = Augment(flip=True).draw(2, 6, draw)
    assert draws.shape == (2, 6, 3)
    rows, padded_all = torch.tensor([3, 0, 1, 5, 5, 2]), nn.functional.pad(images, (4, 4, 4, 4))
    found = Augment.apply(padded_all, rows, draws[0])
    assert torch.equal(found, gathered(padded_all, rows, draws[0]))  # what other devices do
    for n, (row, column, mirror) in enumerate(draws[0].tolist()):
        padded = torch.zeros(3, 16, 18)
        padded[:, 4:12, 4:14] = images[rows[n]]
        window = padded[:, row : row + 8, column : column + 10]
        torch.testing.assert_close(found[n], window.flip(2) if mirror else window, rtol=0, atol=0)
    doubles = Augment.apply(padded_all.double(), rows, draws[0])
    assert doubles.dtype == torch.float64
    assert torch.equal(doubles, found.double())


def test_augmentation_by_batch_treats_all_images_alike():
    draws = Augment(flip=True, per="batch").draw(50, 6, np.random.default_rng(0))
    assert (draws == draws[:, :1]).all()
    assert len(torch.unique(draws[:, 0], dim=0)) > 20
    by_image = Augment(flip=True).draw(50, 6, np.random.default_rng(0))
    assert not (by_image == by_image[:, :1]).all()
    assert set(by_image[..., :2].flatten().tolist()) == set(range(9))
    assert not Augment(flip=False).draw(50, 6, np.random.default_rng(0))[..., 2].any()


def test_epochs_go_on_from_round_to_round_and_drop_the_short_last_batch():
    task = image_task(paper((3, 8, 8), (16,), 10), each=40, size=8)
    local = fedawe.Local(steps=3, batch=16, batches="epochs")  # 40 samples: two batches of 16 an epoch, 8 are left out
    seen = []
    for visits, t in enumerate((0, 4, 5, 9)):
        work = local.work(torch.tensor([1]), t, 0, torch.tensor([visits]))
        seen += task.samples(1, visits, work).tolist()
    assert all(set(batch) <= set(range(40, 80)) for batch in seen)
    for epoch in range(6):
        both = seen[2 * epoch] + seen[2 * epoch + 1]
        assert len(set(both)) == 32
    assert seen[0] != seen[2]


def test_a_client_with_few_images_uses_them_all():
    task = image_task(paper((3, 8, 8), (16,), 10), each=5, size=8)
    for rule in ("iid", "epochs"):
        work = fedawe.Local(steps=2, batch=16, batches=rule).work(torch.tensor([2]), 0, 0)
        assert task.samples(2, 0, work).tolist() == [[10, 11, 12, 13, 14]] * 2


def test_evaluation_is_that_of_a_plain_loop():
    task = image_task(paper((3, 8, 8), (16,), 10), size=8)
    x = task.initial(0)
    module = with_parameters(plain((16,), size=8), x)
    mean, std = torch.tensor(task.data.mean)[:, None, None], torch.tensor(task.data.std)[:, None, None]
    with torch.no_grad():
        logits = module((task.data.x_train.permute(0, 3, 1, 2).float() / 255 - mean) / std)
    loss = nn.functional.cross_entropy(logits, task.data.y_train)
    metrics = task.evaluate(x)
    assert metrics["train_loss"] == pytest.approx(float(loss), rel=1e-5)
    assert metrics["client_loss"] == pytest.approx(float(loss), rel=1e-5)  # all clients have as many
    assert metrics["train_accuracy"] == pytest.approx(float((logits.argmax(1) == task.data.y_train).double().mean()))


def test_client_uniform_and_pooled_differ_when_sizes_do():
    task = image_task(paper((3, 8, 8), (16,), 10), size=8)
    uneven = Classification(task.data, task.network, [np.arange(10), np.arange(10, 160)])
    x = task.initial(0)
    answers = torch.cat([uneven.ask(x, piece) for piece in uneven.pieces()])[:160]
    expected = (answers[:10, 1].mean() + answers[10:, 1].mean()) / 2
    assert uneven.evaluate(x)["client_loss"] == pytest.approx(float(expected))
    assert uneven.evaluate(x)["train_loss"] == pytest.approx(float(answers[:, 1].mean()))


def test_a_fused_step_is_a_gradient_step():
    task = image_task(paper((3, 8, 8), (16,), 10, dropout=0.2), size=8, augment=Augment(flip=True))
    local = fedawe.Local(fedawe.Rate(0.1), steps=3, batch=8)
    batches = task.batches(local.work(torch.tensor([1]), 2, 0))
    x = task.initial(0)[None]
    by_gradients = x.clone()
    for step in range(3):
        by_gradients -= 0.1 * task.gradients(by_gradients, batches, step)
    fused = x.clone()
    task.descend(fused, batches, 3, Update(0.1))
    torch.testing.assert_close(fused, by_gradients, rtol=1e-5, atol=1e-7)
    assert not torch.equal(fused, x)
