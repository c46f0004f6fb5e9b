"""A small task whose network has batch normalisation, and the same training in plain PyTorch."""

import copy

import numpy as np
import torch
from torch import nn

import fedawe
from fedawe.tasks import Classification, Data, ModuleNetwork
from fedawe.tasks.base import Work

CLIENTS, EACH, CLASSES = 6, 24, 4


def module() -> nn.Module:
    return nn.Sequential(nn.Flatten(), nn.Linear(16, 12), nn.BatchNorm1d(12), nn.ReLU(), nn.Linear(12, CLASSES))


def data() -> Data:
    """Inputs far from mean 0 and variance 1, so that running statistics matter."""
    draw = np.random.default_rng(0)
    n = CLIENTS * EACH
    y = draw.integers(CLASSES, size=n + 60)
    x = draw.normal(size=(n + 60, 4, 4)).astype(np.float32) * 3 + 5
    x += 2 * draw.normal(size=(CLASSES, 4, 4)).astype(np.float32)[y]
    X, Y = torch.from_numpy(x), torch.from_numpy(y)
    return Data("blobs", X[:n], Y[:n], X[n:], Y[n:])


def task(network: ModuleNetwork | None = None, parts: list[np.ndarray] | None = None) -> Classification:
    if parts is None:
        parts = list(np.arange(CLIENTS * EACH).reshape(CLIENTS, EACH))
    return Classification(data(), network or ModuleNetwork(module), parts)


def trace(rounds: int = 8) -> fedawe.Trace:
    on = np.random.default_rng(1).random((rounds, CLIENTS)) < 0.6
    on[2] = False  # nobody
    return fedawe.Trace(on)


def outcome(of: Classification, local: fedawe.Local, engine=None) -> tuple[torch.Tensor, object]:
    *_, last = fedawe.simulate(of, fedawe.FedAWE(), trace(), local, seed=0, engine=engine)
    return last.x, of.evaluate(last.x) if engine is None else engine.evaluate(last.x)


def plain_fedavg(of: Classification, on: np.ndarray, local: fedawe.Local, seed: int) -> nn.Module:
    """FedAvg as anybody would write it in PyTorch: modules, SGD, and the mean of state dicts, buffers included."""
    with torch.random.fork_rng():
        torch.manual_seed(int(fedawe.rng(seed, "init").integers(2**63)))
        server = of.network.make()
    for t, row in enumerate(on):
        returned = []
        for i in np.flatnonzero(row).tolist():
            client = copy.deepcopy(server).train()
            for name, buffer in client.named_buffers():
                if name.endswith("num_batches_tracked"):
                    buffer.zero_()
            work = Work(torch.tensor([i]), t, seed, local.steps, local.batch, "iid", torch.tensor([0]))
            optimizer = torch.optim.SGD(client.parameters(), lr=local.rate(t))
            for rows in of.samples(i, 0, work):
                optimizer.zero_grad()
                loss = nn.functional.cross_entropy(client(of.data.x_train[rows]), of.data.y_train[rows])
                loss.backward()
                optimizer.step()
            returned.append(client.state_dict())
        if returned:
            mean = {name: torch.stack([one[name].double() for one in returned]).mean(0) for name in returned[0]}
            server.load_state_dict({name: tensor.to(returned[0][name].dtype) for name, tensor in mean.items()})
    return server.eval()
