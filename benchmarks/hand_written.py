"""FedAvg as in a tutorial: what the package is measured against.

An nn.Module in PyTorch's default layout, a DataLoader per client, optim.SGD, averaged state_dicts, all cores.
"""

import copy

import torch
from torch import Tensor, nn
from torch.utils.data import DataLoader, TensorDataset


class HandWritten:
    def __init__(self, model: nn.Module, x: Tensor, y: Tensor, clients: int, batch: int) -> None:
        self.model = model
        shards = zip(x.chunk(clients), y.chunk(clients), strict=True)
        self.loaders = [DataLoader(TensorDataset(*shard), batch, shuffle=True, drop_last=True) for shard in shards]
        self.iterators = [iter(loader) for loader in self.loaders]

    def round(self, active: list[int], steps: int) -> None:
        states = []
        for i in active:
            model = copy.deepcopy(self.model)
            optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
            for _ in range(steps):
                try:
                    x, y = next(self.iterators[i])
                except StopIteration:
                    self.iterators[i] = iter(self.loaders[i])
                    x, y = next(self.iterators[i])
                optimizer.zero_grad()
                nn.functional.cross_entropy(model(x), y).backward()
                optimizer.step()
            states.append(model.state_dict())
        self.model.load_state_dict({k: torch.stack([state[k] for state in states]).mean(0) for k in states[0]})


def mlp() -> nn.Module:
    return nn.Sequential(nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 10))


def cnn() -> nn.Module:
    return nn.Sequential(
        nn.Conv2d(3, 32, 3, padding=1),
        nn.ReLU(),
        nn.MaxPool2d(2),
        nn.Conv2d(32, 32, 3, padding=1),
        nn.ReLU(),
        nn.MaxPool2d(2),
        nn.Flatten(),
        nn.Linear(2048, 128),
        nn.ReLU(),
        nn.Linear(128, 10),
    )
