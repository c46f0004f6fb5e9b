"""The bundled digits as a federation, with the task of `fedawe run`, so that the simulator can replay it."""

from collections.abc import Mapping
from functools import lru_cache
from typing import Any

import torch
from flwr.clientapp import ClientApp
from flwr.serverapp import ServerApp
from torch import nn

from fedawe.algorithms.exchange import Broadcast
from fedawe.core.describe import described
from fedawe.core.errors import UserError
from fedawe.core.rng import rng
from fedawe.deploy import wire
from fedawe.deploy.about import About
from fedawe.deploy.apps import Arrays, Config, Job, client_app_of, server_app_of
from fedawe.deploy.rules import number
from fedawe.tasks import Classification, Layout, ModuleNetwork, classification, digits
from fedawe.tasks.partition import dirichlet_partition
from fedawe.training.local import Local, Rate
from fedawe.training.shares import trained

NAME = "fedawe.deploy.digits"
# The settings that determine the result, besides the algorithm and the trace; they are in the record.
DEFAULTS: Mapping[str, Any] = {
    "clients": 4, "seed": 0, "eta0": 0.1, "steps": 10, "batch": 32, "model": "mlp", "alpha": 1.0,
    "precision": "float32",
}  # fmt: skip
MODELS = ("softmax", "mlp", "norm", "cnn")


def settings(config: Config) -> dict[str, Any]:
    """The settings in a run configuration, with defaults for those that are missing."""
    return {
        name: str(config.get(name, default)) if isinstance(default, str) else number(config, name, default)
        for name, default in DEFAULTS.items()
    }


def about(config: Config) -> About:
    """The description of the federation for its record."""
    said = settings(config)
    problem = task(said)
    return About(
        task={"app": NAME, "name": "digits", **{name: said[name] for name in ("model", "clients", "alpha")}},
        local=described(local(said)),
        metrics=problem.metrics,
        inputs=problem.input_shape,
        classes=problem.data.classes,
        seed=said["seed"],
        config=said,
    )


def local(said: Config) -> Local:
    """The local training of the clients."""
    # A record of an earlier version has no precision.
    precision = said.get("precision", DEFAULTS["precision"])
    return Local(Rate(said["eta0"]), said["steps"], said["batch"], precision=precision)


def task(said: Config) -> Classification:
    """The digits, partitioned among the clients by seed and alpha."""
    return _task(said["model"], said["clients"], said["alpha"], said["seed"])


@lru_cache(maxsize=1)
def _task(model: Any, clients: int, alpha: float, seed: int) -> Classification:
    if model not in MODELS:
        raise UserError(f"model is {model!r}; expected {', '.join(MODELS)}")
    if model != "norm":
        return classification(digits(), model, clients, alpha, seed, keep_empty=True)
    data = digits()
    parts = dirichlet_partition(data.y_train.numpy(), clients, alpha, rng(seed, "partition"))
    return Classification(data, ModuleNetwork(normalised), parts, keep_empty=True)


def normalised() -> nn.Module:
    """A network with batch normalisation, whose running statistics are averaged like all buffers."""
    return nn.Sequential(nn.Flatten(), nn.Linear(64, 32), nn.BatchNorm1d(32), nn.ReLU(), nn.Linear(32, 10))


def module(of: Classification) -> nn.Module:
    """The network as a torch module, whose parameters and buffers are the vector x [d + b]."""
    return of.network.make()


def layout(of: Classification) -> Layout:
    """The layout of the network's parameters and buffers."""
    return of.network.layout


def train(job: Job) -> tuple[Arrays, Mapping[str, float]]:
    """Train one client as the simulator does, with the same batches, which are determined by (seed, t, client)."""
    torch.set_num_threads(1)
    said = settings(job.config)
    problem = task(said)
    named = layout(problem)
    x = named.vector(job.arrays)
    down = Broadcast(
        x[None],
        None if job.shift is None else job.shift[None],
        job.prox,
        torch.tensor([job.rounds]) if job.rounds > 1 else None,
        job.loss,
    )
    A, visits = torch.tensor([job.client]), torch.tensor([0])
    up = trained(problem, local(said), down, A, job.t, said["seed"], visits, stacked=False)
    facts = {wire.WEIGHT: float(up.weight), wire.RATE: up.rate}
    if up.loss is not None:
        facts[wire.LOSS] = float(up.loss)
    return named.state_dict(x - up.G[0]), {"num-examples": int(problem.sizes[job.client]), **facts}


def evaluate(arrays: Arrays, config: Config) -> Mapping[str, float]:
    """Accuracies and losses of the model."""
    problem = task(settings(config))
    found = problem.evaluate(layout(problem).vector(arrays))
    return {name: value for name, value in found.items() if isinstance(value, float)}


def initial(config: Config) -> Arrays:
    """The initial model x^0, as named arrays."""
    said = settings(config)
    problem = task(said)
    return layout(problem).state_dict(problem.initial(said["seed"]))


def client_app() -> ClientApp:
    """The client app of the digits."""
    return client_app_of(train, applies=("shift", "prox", "rounds", "loss"))


def server_app() -> ServerApp:
    """The server app of the digits."""
    return server_app_of(initial, evaluate, about)
