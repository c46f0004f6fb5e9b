"""The bundled digits as a federation: the task of `fedawe run`, so that the simulator can replay what happened."""

from collections.abc import Mapping
from functools import lru_cache
from typing import Any

import torch
from flwr.clientapp import ClientApp
from flwr.serverapp import ServerApp
from torch import Tensor, nn

from fedawe.core.errors import UserError
from fedawe.deploy.apps import Arrays, Config, Job, client_app_of, server_app_of
from fedawe.tasks import Classification, classification, digits
from fedawe.training.local import Local, Rate, innovations

# What decides the numbers, besides the algorithm and who was there; the record keeps it.
DEFAULTS: Mapping[str, Any] = {
    "clients": 4, "seed": 0, "eta0": 0.1, "steps": 10, "batch": 32, "model": "mlp", "alpha": 1.0
}  # fmt: skip


def settings(config: Config) -> dict[str, Any]:
    """The part of a configuration that decides the numbers, defaults filled in."""
    kept = {name: type(default)(config.get(name, default)) for name, default in DEFAULTS.items()}
    return {"task": "digits", **kept, "spec": str(config.get("algorithm", "fedawe"))}


def local(said: Config) -> Local:
    """How clients train."""
    return Local(Rate(said["eta0"]), said["steps"], said["batch"])


def task(said: Config) -> Classification:
    """The digits, shared out among the clients by seed and alpha."""
    return _task(said["model"], said["clients"], said["alpha"], said["seed"])


@lru_cache(maxsize=1)
def _task(model: Any, clients: int, alpha: float, seed: int) -> Classification:
    if model not in ("softmax", "mlp", "cnn"):
        raise UserError(f"model is {model!r}; expected softmax, mlp or cnn")
    return classification(digits(), model, clients, alpha, seed, keep_empty=True)


def module(of: Classification) -> nn.Module:
    """The network as a torch module; its parameters one after another are x [d]."""
    return of.network.make()


def named(of: Classification, x: Tensor) -> Arrays:
    """x [d] under the names of the module's parameters."""
    return of.network.layout.tensors(x)


def flat(of: Classification, arrays: Arrays) -> Tensor:
    """x [d] of arrays by name, in whatever order they are."""
    return of.network.layout.vector(arrays)


def train(job: Job) -> tuple[Arrays, Mapping[str, float]]:
    """What the simulator does for one client: the same batches, named by (seed, t, client)."""
    torch.set_num_threads(1)
    said = settings(job.config)
    problem = task(said)
    x = flat(problem, job.arrays)
    G = innovations(problem, local(said), x[None], torch.tensor([job.client]), job.t, said["seed"])[0]
    return named(problem, x - G), {"num-examples": int(problem.sizes[job.client])}


def evaluate(arrays: Arrays, config: Config) -> Mapping[str, float]:
    """Accuracies and losses of the model."""
    problem = task(settings(config))
    found = problem.evaluate(flat(problem, arrays))
    return {name: value for name, value in found.items() if isinstance(value, float)}


def initial(config: Config) -> Arrays:
    """x^0, by name."""
    said = settings(config)
    return named(task(said), task(said).initial(said["seed"]))


def client_app() -> ClientApp:
    """The client app of the digits."""
    return client_app_of(train)


def server_app() -> ServerApp:
    """The server app of the digits."""
    return server_app_of(initial, evaluate, settings)
