"""Whole experiments beside the same five methods written anew in plain PyTorch, with one model per client, in float64.

Both sides share the data, the first weights, the availability and the numbers behind batches and crops (`fedawe.rng`).
Everything else is written twice: shuffled epochs, crops of a whole batch, local SGD, the rules, the clip, evaluation.
"""

import copy
import dataclasses
import json
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import pytest
import safetensors.torch
import torch
from torch import Tensor, nn
from torch.nn import functional

import fedawe
from fedawe.tasks import Augment, Classification, ModuleNetwork

SEED, CLIENTS, ROUNDS, STEPS, BATCH, ETA0 = 3, 10, 100, 4, 16, 0.3
SIZES = (16, 17, 31, 32, 33, 40, 47, 48, 50, 64)  # of the clients: epochs end in the middle of rounds, or never do
CLIP = 0.3  # binds in most rounds


class Net(nn.Module):
    """Small, convolutional, in float64."""

    def __init__(self) -> None:
        super().__init__()
        self.conv, self.linear = nn.Conv2d(1, 4, 3, padding=1), nn.Linear(4 * 8 * 8, 10)
        self.double()

    def forward(self, x: Tensor) -> Tensor:
        return self.linear(functional.max_pool2d(self.conv(x.double()), 2).relu().flatten(1))


DIGITS = fedawe.digits()
# Twice as large, because crops shift by up to 4 pixels.
DATA = dataclasses.replace(
    DIGITS,
    x_train=DIGITS.x_train.repeat_interleave(2, 2).repeat_interleave(2, 3),
    x_test=DIGITS.x_test.repeat_interleave(2, 2).repeat_interleave(2, 3),
)
PARTS = np.split(np.arange(sum(SIZES)), np.cumsum(SIZES)[:-1])


def task(seed: int) -> Classification:
    """The same for every seed: the partition is fixed."""
    del seed
    return Classification(DATA, ModuleNetwork(Net), PARTS, augment=Augment(flip=True, per="batch"))


EXPERIMENT = fedawe.Experiment(
    task=task,
    algorithms={
        "fedawe": fedawe.FedAWE(clip=CLIP),
        "fedawe, free": fedawe.FedAWE(eta_g=0.2),
        "fedavg": fedawe.FedAvg(),
        "fedau": fedawe.FedAU(K=7, eta_g=1.5),
        "mifa": fedawe.MIFA(),
        "fedvarp": fedawe.FedVARP(),
    },
    availability=fedawe.Sine(),
    p=np.linspace(0.03, 0.3, CLIENTS),
    local=fedawe.Local(fedawe.Rate(ETA0), steps=STEPS, batch=BATCH, batches="epochs"),
    rounds=ROUNDS,
    seeds=(SEED,),
    evaluate_every=4,
)


@pytest.fixture(scope="module")
def ours(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The experiment, run as anyone would."""
    out = tmp_path_factory.mktemp("ours") / "x"
    EXPERIMENT.run(out, engine="one")
    return out


# The other side


class Loader:
    """One client's batches: an epoch is shuffled when it begins, and a last batch that is too short is dropped."""

    def __init__(self, client: int) -> None:
        self.client, self.epoch, self.waiting = client, 0, list[np.ndarray]()

    def __next__(self) -> np.ndarray:
        if not self.waiting:
            order = PARTS[self.client]
            if len(order) > BATCH:
                order = fedawe.rng(SEED, "epoch", self.client, self.epoch).permutation(order)
            self.waiting = [order[n : n + BATCH] for n in range(0, len(order) - BATCH + 1, BATCH)]
            self.epoch += 1
        return self.waiting.pop(0)


def cropped(images: Tensor, row: int, column: int, mirror: bool) -> Tensor:
    """All images of a batch shifted alike within a margin of 4, and mirrored alike."""
    n, channels, height, width = images.shape
    canvas = torch.zeros(n, channels, height + 8, width + 8, dtype=images.dtype)
    canvas[:, :, 4 : 4 + height, 4 : 4 + width] = images
    canvas = canvas[:, :, row : row + height, column : column + width]
    return canvas.flip(3) if mirror else canvas


def trained(net: Net, loader: Loader, t: int) -> Net:
    """Local SGD of one client from this model, in round t."""
    net = copy.deepcopy(net)
    optimiser = torch.optim.SGD(net.parameters(), lr=ETA0 / (t / 10 + 1) ** 0.5)
    draw = fedawe.rng(SEED, "augment", t, loader.client)
    shifts, mirrors = draw.integers(9, size=(STEPS, 2)), draw.integers(2, size=STEPS)
    for (row, column), mirror in zip(shifts.tolist(), mirrors.tolist(), strict=True):
        samples = torch.from_numpy(next(loader))
        optimiser.zero_grad()
        loss = functional.cross_entropy(net(cropped(DATA.x_train[samples], row, column, mirror)), DATA.y_train[samples])
        loss.backward()
        optimiser.step()
    return net


def flat(net: Net) -> Tensor:
    return nn.utils.parameters_to_vector(net.parameters()).detach().clone()


def with_weights(x: Tensor) -> Net:
    net = Net()
    nn.utils.vector_to_parameters(x.clone(), net.parameters())
    return net


CLIPPED: list[int] = []  # rounds in which the clip was felt
Train = Callable[[Tensor, int, int], Tensor]  # model, client, round -> model after local training
On = list[list[int]]  # the active clients of every round


def fedawe_(x0: Tensor, on: On, train: Train, eta_g: float, clip: float | None) -> Iterator[Tensor]:
    """Algorithm 1 with a model of its own for every client; the mean of them all is evaluated."""
    models, last = [x0.clone() for _ in range(CLIENTS)], [-1] * CLIENTS
    for t, active in enumerate(on):
        if active:
            update = torch.zeros_like(x0)
            for i in active:
                update += (t - last[i]) * (models[i] - train(models[i], i, t)) / len(active)
            if clip is not None and update.norm() > clip:
                update *= clip / update.norm()
                CLIPPED.append(t)
            new = torch.stack([models[i] for i in active]).mean(0) - eta_g * update
            for i in active:
                models[i], last[i] = new.clone(), t
        yield torch.stack(models).mean(0)


def fedavg(x: Tensor, on: On, train: Train) -> Iterator[Tensor]:
    for t, active in enumerate(on):
        if active:
            x = sum((train(x, i, t) for i in active), torch.zeros_like(x)) / len(active)
        yield x


def fedau(x: Tensor, on: On, train: Train, cutoff: int, eta_g: float) -> Iterator[Tensor]:
    """Weights are mean lengths of the intervals that have ended before; an interval is cut after `cutoff` rounds."""
    intervals: list[list[int]] = [[] for _ in range(CLIENTS)]
    missed = [0] * CLIENTS
    for t, active in enumerate(on):
        weights = [float(np.mean(each)) if each else 1.0 for each in intervals]
        step = sum((weights[i] * (train(x, i, t) - x) for i in active), torch.zeros_like(x))
        x = x + eta_g * step / CLIENTS
        for i in range(CLIENTS):
            missed[i] += 1
            if i in active or missed[i] == cutoff:
                intervals[i].append(missed[i])
                missed[i] = 0
        yield x


def mifa(x: Tensor, on: On, train: Train) -> Iterator[Tensor]:
    """Every client's last update counts in every round, also in empty ones."""
    memory = [torch.zeros_like(x) for _ in range(CLIENTS)]
    for t, active in enumerate(on):
        for i, update in [(i, train(x, i, t) - x) for i in active]:
            memory[i] = update
        x = x + sum(memory, torch.zeros_like(x)) / CLIENTS
        yield x


def fedvarp(x: Tensor, on: On, train: Train) -> Iterator[Tensor]:
    memory = [torch.zeros_like(x) for _ in range(CLIENTS)]
    for t, active in enumerate(on):
        if active:
            updates = {i: train(x, i, t) - x for i in active}
            new = sum((updates[i] - memory[i] for i in active), torch.zeros_like(x)) / len(active)
            x = x + new + sum(memory, torch.zeros_like(x)) / CLIENTS
            for i, update in updates.items():
                memory[i] = update
        yield x


RULES: dict[str, Callable[[Tensor, On, Train], Iterator[Tensor]]] = {
    "fedawe": lambda x, on, train: fedawe_(x, on, train, 1.0, CLIP),
    "fedawe, free": lambda x, on, train: fedawe_(x, on, train, 0.2, None),
    "fedavg": fedavg,
    "fedau": lambda x, on, train: fedau(x, on, train, 7, 1.5),
    "mifa": mifa,
    "fedvarp": fedvarp,
}


def evaluated(x: Tensor) -> tuple[float, float]:
    """Test accuracy and loss."""
    with torch.no_grad():
        outputs = with_weights(x)(DATA.x_test)
        loss = float(functional.cross_entropy(outputs, DATA.y_test))
    return float((outputs.argmax(1) == DATA.y_test).double().mean()), loss


@pytest.mark.parametrize("label", RULES)
def test_a_whole_experiment_is_what_plain_pytorch_makes_of_it(ours: Path, label: str) -> None:
    population = EXPERIMENT.population(SEED)
    on = [np.flatnonzero(row).tolist() for row in population.trace.on]
    assert sum(not active for active in on) >= 5, "there are empty rounds"
    assert len(on) == ROUNDS
    loaders = [Loader(i) for i in range(CLIENTS)]

    def train(x: Tensor, i: int, t: int) -> Tensor:
        return flat(trained(with_weights(x), loaders[i], t))

    x0 = population.task.initial(SEED)
    theirs = list(RULES[label](x0, on, train))
    folder = ours / label / f"seed-{SEED}"
    lines = [json.loads(line) for line in (folder / "record.jsonl").read_text().splitlines()]
    found = {line["round"]: line for line in lines if line["kind"] == "evaluation"}
    assert len(found) == 1 + ROUNDS // EXPERIMENT.evaluate_every
    for n in found:
        accuracy, loss = evaluated([x0, *theirs][n])
        assert found[n]["test_loss"] == pytest.approx(loss, rel=1e-12), f"after {n} rounds"
        assert found[n]["test_accuracy"] == pytest.approx(accuracy, rel=1e-12)
    tensors = safetensors.torch.load((folder / "model.safetensors").read_bytes())
    model = torch.cat([tensors[name].flatten() for name, _ in Net().named_parameters()])
    assert model.dtype == torch.float64
    assert label != "fedawe" or ROUNDS // 4 < len(CLIPPED) < sum(map(bool, on)), "the clip binds in some rounds"
    assert float((model - theirs[-1]).abs().max()) <= 1e-12 * float(theirs[-1].abs().max())
    assert found[ROUNDS]["test_accuracy"] > 2 * found[0]["test_accuracy"], "something was learned"
