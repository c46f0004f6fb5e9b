"""Networks by name, in the shape of the data."""

from functools import partial
from typing import Literal

from torch import nn

from fedawe.core.errors import UserError
from fedawe.tasks.convnet import ConvNet
from fedawe.tasks.data.labelled import Data
from fedawe.tasks.lstm import lstm
from fedawe.tasks.module import ModuleNetwork
from fedawe.tasks.networks import Dense, Network

ModelName = Literal["softmax", "mlp", "cnn", "paper", "lstm"]
PAPER = {"svhn": ((128,), 0.0), "cifar10": ((256, 64), 0.0), "cinic10": ((512, 256), 0.2)}  # hidden layers, dropout


def network_for(data: Data, model: ModelName) -> Network:
    """Softmax regression, an MLP with 64 hidden units, a small CNN, the paper's, or an LSTM, shaped by the data."""
    shape = data.shape
    features = shape.numel()
    if data.text != (model == "lstm"):
        are = "text" if data.text else f"numbers of shape {list(shape)}"
        raise UserError(f"model is {model!r}, but the samples of {data.name} are {are}; lstm is the one for text")
    if model == "lstm":
        return lstm(data.classes, every=data.y_train.ndim > 1)
    if model == "softmax":
        return Dense((features, data.classes))
    if model == "mlp":
        return Dense((features, 64, data.classes))
    if model not in ("cnn", "paper"):
        raise UserError(f"model is {model!r}; expected softmax, mlp, cnn, paper or lstm")
    if len(shape) != 3 or min(shape[1:]) < 4:
        raise UserError(
            f"a cnn needs images of at least 4 x 4; the samples of {data.name} have the shape {list(shape)}"
        )
    if model == "paper":
        hidden, dropout = PAPER.get(data.name, PAPER["svhn"])
        return ConvNet((shape[0], shape[1], shape[2]), hidden, data.classes, dropout)
    return ModuleNetwork(partial(_small_cnn, *shape, data.classes))


def _small_cnn(channels: int, height: int, width: int, classes: int) -> nn.Module:
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
