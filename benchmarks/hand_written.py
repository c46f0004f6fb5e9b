"""FedAvg as in a tutorial: what the package is measured against.

An nn.Module in PyTorch's default layout, a DataLoader per client, optim.SGD, averaged state_dicts, all cores.
"""

import copy
from collections.abc import Callable

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
        mean = {k: torch.stack([state[k].float() for state in states]).mean(0) for k in states[0]}
        self.model.load_state_dict({k: one.to(states[0][k].dtype) for k, one in mean.items()})


def mlp() -> nn.Module:
    return nn.Sequential(nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 10))


def cnn(size: int = 32) -> nn.Module:
    return nn.Sequential(
        nn.Conv2d(3, 32, 3, padding=1),
        nn.ReLU(),
        nn.MaxPool2d(2),
        nn.Conv2d(32, 32, 3, padding=1),
        nn.ReLU(),
        nn.MaxPool2d(2),
        nn.Flatten(),
        nn.Linear(32 * (size // 4) ** 2, 128),
        nn.ReLU(),
        nn.Linear(128, 10),
    )


class Block(nn.Module):
    def __init__(self, fan_in: int, width: int, stride: int, norm: Callable[[int], nn.Module]) -> None:
        super().__init__()
        self.conv1, self.norm1 = nn.Conv2d(fan_in, width, 3, stride, 1, bias=False), norm(width)
        self.conv2, self.norm2 = nn.Conv2d(width, width, 3, 1, 1, bias=False), norm(width)
        self.short: nn.Module = nn.Identity()
        if stride > 1:
            self.short = nn.Sequential(nn.Conv2d(fan_in, width, 1, stride, bias=False), norm(width))

    def forward(self, x: Tensor) -> Tensor:
        h = nn.functional.relu(self.norm1(self.conv1(x)))
        return nn.functional.relu(self.norm2(self.conv2(h)) + self.short(x))


def resnet8(norm: Callable[[int], nn.Module]) -> nn.Module:
    """Three blocks of two convolutions with 16, 32 and 64 channels."""
    blocks = [Block(16, 16, 1, norm), Block(16, 32, 2, norm), Block(32, 64, 2, norm)]
    last = [nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(64, 10)]
    return nn.Sequential(nn.Conv2d(3, 16, 3, 1, 1, bias=False), norm(16), nn.ReLU(), *blocks, *last)


def resnet8_group() -> nn.Module:
    return resnet8(lambda width: nn.GroupNorm(8, width))


def resnet8_batch() -> nn.Module:
    return resnet8(nn.BatchNorm2d)


CHARACTERS, LENGTH = 80, 64


class CharacterLSTM(nn.Module):
    """One layer of 128; the next character after a sequence."""

    def __init__(self) -> None:
        super().__init__()
        self.embedding, self.lstm = nn.Embedding(CHARACTERS, 8), nn.LSTM(8, 128, batch_first=True)
        self.output = nn.Linear(128, CHARACTERS)

    def forward(self, x: Tensor) -> Tensor:
        out: Tensor = self.output(self.lstm(self.embedding(x))[0][:, -1])
        return out


class Transformer(nn.Module):
    """Two layers of width 64; the next character after a sequence."""

    def __init__(self) -> None:
        super().__init__()
        self.embedding, self.position = nn.Embedding(CHARACTERS, 64), nn.Parameter(torch.zeros(LENGTH, 64))
        layer = nn.TransformerEncoderLayer(64, 4, 128, dropout=0.0, batch_first=True)
        self.encoder = nn.TransformerEncoder(layer, 2, enable_nested_tensor=False)
        self.output = nn.Linear(64, CHARACTERS)

    def forward(self, x: Tensor) -> Tensor:
        out: Tensor = self.output(self.encoder(self.embedding(x) + self.position)[:, -1])
        return out
