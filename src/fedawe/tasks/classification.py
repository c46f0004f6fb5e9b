"""Classification: labelled data shared out among clients, and a network."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor, nn

from fedawe.errors import UserError
from fedawe.rng import rng
from fedawe.tasks.base import Metrics
from fedawe.tasks.data import Data
from fedawe.tasks.networks import Dense, ModuleNetwork, Network
from fedawe.tasks.partition import Indices, dirichlet_partition, label_frequencies

ModelName = Literal["softmax", "mlp", "cnn"]


@dataclass(frozen=True)
class Batches:
    """Which samples the k active clients look at, step by step; weights sum to 1 over a client's batch (0: padding)."""

    samples: Tensor  # [k, s, B] int64, rows of x_train
    weights: Tensor  # [k, B]
    sizes: list[int]  # how many of the B are real, [k]


class Classification:
    """`network` learns `data`, of which client i has the samples `parts[i]`; F is the mean of the clients' mean losses.

    Training draws i.i.d. from a client's samples; a client with no more samples than a batch uses them all. A client
    without samples is refused, unless `keep_empty`: it then takes part with an innovation of zero.
    """

    def __init__(self, data: Data, network: Network, parts: Sequence[Indices], keep_empty: bool = False) -> None:
        self.data, self.network = data, network
        self.sizes = np.array([len(part) for part in parts], dtype=np.int64)
        if not keep_empty and (self.sizes == 0).any():
            empty = np.flatnonzero(self.sizes == 0)
            raise UserError(
                f"{len(empty)} of {len(parts)} clients have no data (the first is {empty[0]}): use fewer clients, "
                "a larger alpha, or keep them with keep_empty (--keep-empty)"
            )
        self.order = np.concatenate(list(parts))  # the samples client by client
        self.offsets = np.concatenate([[0], np.cumsum(self.sizes)[:-1]])
        self.frequencies: npt.NDArray[np.float64] | None = label_frequencies(data.y_train.numpy(), parts)
        # F counts clients, not samples: a sample of client i weighs 1/(m n_i).
        owner_weight = np.repeat(1 / np.maximum(self.sizes, 1) / (self.sizes > 0).sum(), self.sizes)
        self.client_weights = torch.empty(len(self.order)).index_copy_(
            0, torch.from_numpy(self.order), torch.from_numpy(owner_weight).to(torch.float32)
        )

    @property
    def clients(self) -> int:
        """m."""
        return len(self.sizes)

    @property
    def stacked(self) -> bool:
        """As the network can."""
        return self.network.stacked

    def initial(self, seed: int) -> Tensor:
        """The network's, [d]."""
        return self.network.initial(seed)

    def batches(self, A: Tensor, t: int, steps: int, size: int, seed: int) -> Batches:
        """Named draws, `rng(seed, "batch", t, i)`; all clients padded to one width that depends on the task alone."""
        width = min(size, int(self.sizes.max()))
        samples = np.zeros((len(A), steps, width), dtype=np.int64)
        weights = np.zeros((len(A), width), dtype=np.float32)
        sizes = []
        for row, i in enumerate(A.tolist()):
            n = int(self.sizes[i])
            if n > size:
                samples[row] = self.offsets[i] + rng(seed, "batch", t, i).integers(n, size=(steps, size))
            else:
                samples[row, :, :n] = self.offsets[i] + np.arange(n)
            sizes.append(min(n, size))
            weights[row, : sizes[-1]] = 1 / max(sizes[-1], 1)
        return Batches(torch.from_numpy(self.order[samples]), torch.from_numpy(weights), sizes)

    def gradients(self, x: Tensor, batches: Batches, step: int) -> Tensor:
        """The network's, on the samples of this step."""
        batch = self._batch(batches, step)
        return torch.zeros_like(x) if batch is None else self.network.gradients(x, *batch)

    def descend(self, x: Tensor, batches: Batches, step: int, eta: float) -> None:
        """x <- x - eta gradient, in place, where the network can do it in one."""
        batch = self._batch(batches, step)
        if isinstance(self.network, Dense) and batch is not None:
            self.network.descend(x, *batch, eta)
        else:
            x.sub_(self.gradients(x, batches, step), alpha=eta)

    def _batch(self, batches: Batches, step: int) -> tuple[Tensor, Tensor, Tensor] | None:
        """Inputs [k, B, ...], targets [k, B] and weights [k, B] of a step; None if there is nothing in it."""
        samples, weights = batches.samples[:, step], batches.weights
        if not self.stacked:  # one client: its padding need not be computed
            samples, weights = samples[:, : batches.sizes[0]], weights[:, : batches.sizes[0]]
        if samples.numel() == 0:
            return None
        flat = samples.reshape(-1)  # index_select is several times as fast as indexing with a table
        inputs = self.data.x_train.index_select(0, flat).view(*samples.shape, *self.data.x_train.shape[1:])
        return inputs, self.data.y_train[flat].view(samples.shape), weights

    def evaluate(self, x: Tensor) -> Metrics:
        """Accuracy and true mean loss: test, per class too; train pooled over samples and uniform over clients."""
        train_hit, train_loss = self._ask(x, self.data.x_train, self.data.y_train)
        test_hit, test_loss = self._ask(x, self.data.x_test, self.data.y_test)
        y = self.data.y_test
        of_class = torch.bincount(y, minlength=self.data.classes)
        hits = torch.bincount(y, weights=test_hit, minlength=self.data.classes) / of_class.clamp(min=1)
        return {
            "test_accuracy": float(test_hit.mean()),
            "test_loss": float(test_loss.mean()),
            "train_accuracy": float(train_hit.mean()),
            "train_loss": float(train_loss.mean()),
            "client_accuracy": float((train_hit * self.client_weights).sum()),
            "client_loss": float((train_loss * self.client_weights).sum()),
            "test_accuracy_by_class": [round(hit, 6) for hit in hits.tolist()],
        }

    def _ask(self, x: Tensor, inputs: Tensor, labels: Tensor) -> tuple[Tensor, Tensor]:
        """Whether each sample is classified rightly, and its loss, [N] float64 each; so that means are exact."""
        hits, losses = [], []
        for xs, ys in zip(inputs.split(1024), labels.split(1024), strict=True):
            outputs = self.network.outputs(x, xs)
            hits.append(outputs.argmax(-1) == ys)
            losses.append(nn.functional.cross_entropy(outputs, ys, reduction="none"))
        return torch.cat(hits).to(torch.float64), torch.cat(losses).to(torch.float64)


def network_for(data: Data, model: ModelName) -> Network:
    """Softmax regression, an MLP with 64 hidden units, or a small CNN, in the shape of the data."""
    shape, features = data.x_train.shape[1:], data.x_train[0].numel()
    if model == "softmax":
        return Dense((features, data.classes))
    if model == "mlp":
        return Dense((features, 64, data.classes))
    if model != "cnn":
        raise UserError(f"model is {model!r}; expected softmax, mlp or cnn")
    if len(shape) != 3 or min(shape[1:]) < 4:
        raise UserError(
            f"a cnn needs images of at least 4 x 4; the samples of {data.name} have the shape {list(shape)}"
        )
    channels, height, width = shape

    def make() -> nn.Module:
        return nn.Sequential(
            nn.Conv2d(channels, 8, 3, padding=1),
            nn.MaxPool2d(2),
            nn.ReLU(),
            nn.Conv2d(8, 16, 3, padding=1),
            nn.MaxPool2d(2),
            nn.ReLU(),
            nn.Flatten(),
            nn.Linear(16 * (height // 4) * (width // 4), data.classes),
        )

    return ModuleNetwork(make)


def classification(
    data: Data,
    model: ModelName = "mlp",
    clients: int = 100,
    alpha: float = 0.1,
    seed: int = 0,
    keep_empty: bool = False,
) -> Classification:
    """The data shared out by the authors' Dirichlet rule under `seed`, with one of the small networks."""
    parts = dirichlet_partition(data.y_train.numpy(), clients, alpha, rng(seed, "partition"))
    return Classification(data, network_for(data, model), parts, keep_empty)
