"""Networks by name, with the sizes that the data needs, and networks of the user's own."""

from collections.abc import Callable, Sequence
from functools import partial
from itertools import pairwise
from typing import Literal

import numpy as np
import torch
from torch import Tensor, nn

from fedawe.core.errors import UserError
from fedawe.core.rng import rng
from fedawe.tasks.data.labelled import Data
from fedawe.tasks.layout import Layout
from fedawe.tasks.lstm import lstm
from fedawe.tasks.module import ModuleNetwork

ModelName = Literal["softmax", "mlp", "cnn", "paper", "lstm"]
Model = ModelName | Callable[[], nn.Module] | ModuleNetwork
PAPER = {"svhn": ((128,), 0.0), "cifar10": ((256, 64), 0.0), "cinic10": ((512, 256), 0.2)}  # hidden layers, dropout
WIDTH = 32  # channels of both convolutions of the paper


def network_for(data: Data, model: Model) -> ModuleNetwork:
    """The network that `model` is, or that its name stands for.

    A name gives a network with the sizes that the data needs: softmax regression, MLP (64 hidden units), CNN, the
    paper's, or LSTM. Your own network is a function that builds a torch.nn.Module, or a `ModuleNetwork`.
    """
    if isinstance(model, ModuleNetwork):
        return model
    if callable(model):
        return ModuleNetwork(model)
    shape = data.shape
    features = shape.numel()
    if data.text != (model == "lstm"):
        are = "text" if data.text else f"numbers of shape {list(shape)}"
        raise UserError(f"model is {model!r}, but the samples of {data.name} are {are}; use lstm for text alone")
    if model == "lstm":
        return lstm(data.classes, every=data.y_train.ndim > 1)
    if model == "softmax":
        return dense((features, data.classes))
    if model == "mlp":
        return dense((features, 64, data.classes))
    if model not in ("cnn", "paper"):
        raise UserError(
            f"model is {model!r}; expected softmax, mlp, cnn, paper, lstm, or a function that builds a torch.nn.Module"
        )
    if len(shape) != 3 or min(shape[1:]) < 4:
        raise UserError(
            f"a cnn needs images of at least 4 x 4; the samples of {data.name} have the shape {list(shape)}"
        )
    image = (shape[0], shape[1], shape[2])
    if model == "paper":
        hidden, dropout = PAPER.get(data.name, PAPER["svhn"])
        return paper(image, hidden, data.classes, dropout)
    return ModuleNetwork(partial(_small_cnn, image, data.classes))


def dense(sizes: Sequence[int]) -> ModuleNetwork:
    """Fully connected layers with ReLU between them, from features to classes; (64, 10) is softmax regression."""
    make = partial(_dense, tuple(sizes))
    return ModuleNetwork(make, start=partial(authors_start, make))


def paper(
    image: tuple[int, int, int] = (3, 32, 32), hidden: Sequence[int] = (128,), classes: int = 10, dropout: float = 0.0
) -> ModuleNetwork:
    """C(c, 32) - M - R - C(32, 32) - M - R - [Drop - L - R]* - Drop - L, 3 x 3 convolutions, 2 x 2 max-pooling.

    image    [channels, height, width]
    hidden   sizes of the hidden linear layers: (128,) SVHN, (256, 64) CIFAR-10, (512, 256) CINIC-10
    dropout  before every linear layer; 0.2 for CINIC-10
    """
    make = partial(_paper, image, tuple(hidden), classes, dropout)
    return ModuleNetwork(make, start=partial(authors_start, make))


def authors_start(make: partial[nn.Module], seed: int) -> Tensor:
    """Kaiming-normal weights and zero biases; the last layer is U(-1/sqrt(fan_in), +), as in the authors' code, [d]."""
    with torch.device("meta"):  # shapes only
        shapes = [entry.shape for entry in Layout.of(make()).ordered]
    draw, pieces = rng(seed, "init"), []
    for n, shape in enumerate(shapes):
        size = torch.Size(shape).numel()
        fan_in = torch.Size(shapes[n - n % 2][1:]).numel()  # of this weight, or of the weight beside this bias
        if n >= len(shapes) - 2:
            pieces.append(draw.uniform(-(fan_in**-0.5), fan_in**-0.5, size))
        else:
            pieces.append(np.zeros(size) if n % 2 else draw.normal(0, (2 / fan_in) ** 0.5, size))
    return torch.from_numpy(np.concatenate(pieces)).to(torch.float32)


def _dense(sizes: tuple[int, ...]) -> nn.Module:
    return nn.Sequential(nn.Flatten(), *_linear(sizes))


def _paper(image: tuple[int, int, int], hidden: tuple[int, ...], classes: int, dropout: float) -> nn.Module:
    channels, height, width = image
    layers: list[nn.Module] = []
    for fan_in in (channels, WIDTH):
        layers += [nn.Conv2d(fan_in, WIDTH, 3, padding=1), nn.MaxPool2d(2), nn.ReLU()]
    sizes = (WIDTH * (height // 4) * (width // 4), *hidden, classes)
    return nn.Sequential(*layers, nn.Flatten(), *_linear(sizes, dropout))


def _linear(sizes: Sequence[int], dropout: float = 0.0) -> list[nn.Module]:
    """Fully connected layers with ReLU between them, and dropout before each."""
    layers: list[nn.Module] = []
    for fan_in, fan_out in pairwise(sizes):
        layers += [nn.Dropout(dropout)] if dropout else []
        layers += [nn.Linear(fan_in, fan_out), nn.ReLU()]
    return layers[:-1]


def _small_cnn(image: tuple[int, int, int], classes: int) -> nn.Module:
    channels, height, width = image
    return nn.Sequential(
        nn.Conv2d(channels, 8, 3, padding=1),
        nn.MaxPool2d(2),
        nn.ReLU(),
        nn.Conv2d(8, 16, 3, padding=1),
        nn.MaxPool2d(2),
        nn.ReLU(),
        nn.Flatten(),
        nn.Linear(16 * (height // 4) * (width // 4), classes),
    )
