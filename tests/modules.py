"""Modules of many kinds, drawn at random, and plain training of them: what executors are compared with."""

import torch
from torch import Tensor, nn
from torch.nn import functional

CLASSES = 5


class Residual(nn.Module):
    """What two ways through it give, added."""

    def __init__(self, way: nn.Module, other: nn.Module, in_place: bool) -> None:
        super().__init__()
        self.way, self.other, self.in_place = way, other, in_place

    def forward(self, x: Tensor) -> Tensor:
        out = self.way(x)
        if self.in_place:
            out += self.other(x)
        else:
            out = out + self.other(x)
        return functional.relu(out)


class Written(nn.Module):
    """A forward method as people write it: functions, views, dropout that follows `training`."""

    def __init__(self, channels: int, size: int, p: float) -> None:
        super().__init__()
        self.conv = nn.Conv2d(channels, 6, 3, padding=1)
        self.fc = nn.Linear(6 * (size // 2) ** 2, 12)
        self.out = nn.Linear(12, CLASSES)
        self.p = p

    def forward(self, x: Tensor) -> Tensor:
        h = functional.max_pool2d(functional.relu(self.conv(x)), 2)
        h = h.view(x.size(0), -1)
        h = functional.dropout(torch.tanh(self.fc(h)), self.p, training=self.training)
        return self.out(h)


def _activation(draw: torch.Generator) -> nn.Module:
    kinds = [
        nn.ReLU(),
        nn.ReLU(inplace=True),
        nn.LeakyReLU(0.1),
        nn.Tanh(),
        nn.Sigmoid(),
        nn.GELU(),
        nn.ELU(),
        nn.SiLU(),
    ]
    return kinds[_pick(draw, len(kinds))]


def _pick(draw: torch.Generator, n: int) -> int:
    return int(torch.randint(n, (), generator=draw))


def _norm(draw: torch.Generator, channels: int, kind: str) -> list[nn.Module]:
    if kind == "group":
        return [nn.GroupNorm([1, 2, channels][_pick(draw, 3)], channels, affine=bool(_pick(draw, 4)))]
    return [nn.BatchNorm2d(channels, momentum=0.3)] if kind == "batch" else []


def convolutional(seed: int, channels: int = 3, size: int = 12) -> nn.Module:
    """A random network: convolutions of all kinds, pooling, normalisation, residual additions, linear layers."""
    draw = torch.Generator().manual_seed(seed)
    norm = ["none", "group", "batch"][_pick(draw, 3)]
    width = [4, 8, 16, 32][_pick(draw, 4)]
    layers: list[nn.Module] = [nn.Conv2d(channels, width, 3, padding=1, bias=bool(_pick(draw, 2)))]
    layers += [*_norm(draw, width, norm), _activation(draw)]
    for _ in range(1 + _pick(draw, 3)):
        kind = _pick(draw, 4)
        if kind == 0:
            layers += [nn.MaxPool2d(2, ceil_mode=bool(_pick(draw, 2)))]
        elif kind == 1:
            way = [nn.Conv2d(width, width, 3, padding=1), *_norm(draw, width, norm), _activation(draw)]
            way += [nn.Conv2d(width, width, 3, padding="same", bias=False), *_norm(draw, width, norm)]
            other = nn.Identity() if _pick(draw, 2) else nn.Conv2d(width, width, 1)
            layers += [Residual(nn.Sequential(*way), other, in_place=bool(_pick(draw, 2)))]
        elif kind == 2:
            groups, stride = [1, 2, width][_pick(draw, 3)], 1 + _pick(draw, 2)
            layers += [nn.Conv2d(width, 2 * width, [1, 3, 5][_pick(draw, 3)], stride, 2, groups=groups)]
            width *= 2
            layers += [*_norm(draw, width, norm), _activation(draw)]
        else:
            layers += [nn.ReLU(), nn.MaxPool2d(3, 2, 1)] if _pick(draw, 2) else [nn.AvgPool2d(2)]
    layers += [nn.AdaptiveAvgPool2d([1, 2][_pick(draw, 2)]), nn.Flatten()]
    layers += [nn.Dropout(0.3)] if _pick(draw, 3) == 0 else []
    with torch.no_grad():
        features = nn.Sequential(*layers).eval()(torch.zeros(1, channels, size, size)).shape[1]
    return nn.Sequential(*layers, nn.Linear(features, 7), _activation(draw), nn.Linear(7, CLASSES))


def dense(seed: int, features: int = 9) -> nn.Module:
    """A random chain of linear layers."""
    draw = torch.Generator().manual_seed(seed)
    layers: list[nn.Module] = [nn.Flatten()] if _pick(draw, 2) else []
    for _ in range(_pick(draw, 4)):
        out = 3 + _pick(draw, 20)
        layers += [nn.Dropout(0.4)] if _pick(draw, 3) == 0 else []
        layers += [nn.Linear(features, out, bias=bool(_pick(draw, 3)))]
        layers += [[nn.ReLU(), nn.Tanh(), nn.Sigmoid(), nn.LeakyReLU(0.2)][_pick(draw, 4)]]
        features = out
    return nn.Sequential(*layers, nn.Linear(features, CLASSES))


class Characters(nn.Module):
    """The next character, by an LSTM."""

    def __init__(self, hidden: int = 6, layers: int = 1, both: bool = False, state: bool = False) -> None:
        super().__init__()
        self.state = state
        self.embedding = nn.Embedding(CLASSES, 4)
        self.lstm = nn.LSTM(4, hidden, layers, batch_first=True, bidirectional=both)
        self.out = nn.Linear(hidden * (1 + both), CLASSES)

    def forward(self, x: Tensor) -> Tensor:
        h, (last, _) = self.lstm(self.embedding(x))
        return self.out(last[-1] if self.state else h[:, -1])


class Attention(nn.Module):
    """The next character, by a small transformer."""

    def __init__(self, width: int = 8, p: float = 0.1) -> None:
        super().__init__()
        self.embedding = nn.Embedding(CLASSES, width)
        layer = nn.TransformerEncoderLayer(width, 2, 16, dropout=p, batch_first=True)
        self.encoder, self.out = nn.TransformerEncoder(layer, 2, enable_nested_tensor=False), nn.Linear(width, CLASSES)

    def forward(self, x: Tensor) -> Tensor:
        return self.out(self.encoder(self.embedding(x))[:, -1])


class Reader(nn.Module):
    """A transformer without dropout, of which one position is used, and with `twice` another one too."""

    def __init__(
        self, at: int, norm_first: bool = False, activation: str = "relu", norm: bool = False, twice: bool = False
    ) -> None:
        super().__init__()
        self.at, self.twice = at, twice
        self.embedding, self.places = nn.Embedding(CLASSES, 8, padding_idx=1), nn.Parameter(torch.randn(7, 8) / 4)
        layer = nn.TransformerEncoderLayer(8, 2, 16, 0.0, activation, batch_first=True, norm_first=norm_first)
        last = nn.LayerNorm(8) if norm else None
        self.encoder = nn.TransformerEncoder(layer, 2, last, enable_nested_tensor=False)
        self.out = nn.Linear(8, CLASSES)

    def forward(self, x: Tensor) -> Tensor:
        h = self.encoder(self.embedding(x) + self.places)
        return self.out(h[:, self.at] + h[:, 0] if self.twice else h[:, self.at])
