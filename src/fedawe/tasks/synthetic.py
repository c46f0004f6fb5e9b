"""Synthetic(alpha, beta) of FedProx: clients with models and inputs of their own."""

from dataclasses import dataclass

import numpy as np
import torch

from fedawe.core.errors import UserError
from fedawe.core.rng import rng
from fedawe.tasks.classification import Classification, classification
from fedawe.tasks.data.labelled import Data
from fedawe.tasks.models import Model

FEATURES, CLASSES = 60, 10


@dataclass(frozen=True)
class Synthetic:
    """A function of the seed: the data set Synthetic(alpha, beta) of Li et al. (FedProx, arXiv:1812.06127).

    Client i has n_i = floor(lognormal(4, 2)) + 50 samples with 60 features and one of 10 classes,

        y = argmax(x W_i + b_i),    W_i, b_i ~ N(u_i, 1),    u_i ~ N(0, alpha^2)
        x ~ N(v_i, Sigma),          v_i ~ N(B_i, 1),         B_i ~ N(0, beta^2),    Sigma = diag(j^-1.2),

    where alpha and beta are standard deviations, as in the released code. Nine in ten samples of a client are for
    training, the others for testing. Every seed has its own data.

    clients     m
    alpha       how much the clients' models differ
    beta        how much the clients' inputs differ
    model       softmax, mlp, or a function that builds a torch.nn.Module
    validation  the share of every client's training samples that is held out to validate; None for none
    """

    clients: int = 30
    alpha: float = 1.0
    beta: float = 1.0
    model: Model = "softmax"
    validation: float | None = None

    def __post_init__(self) -> None:
        if self.clients < 1:
            raise UserError(f"clients is {self.clients}; expected a whole number from 1")
        for name in ("alpha", "beta"):
            if not 0 <= getattr(self, name) < np.inf:
                raise UserError(f"{name} is {getattr(self, name)!r}; expected a number from 0")

    def data(self, seed: int) -> Data:
        """The data of one seed."""
        scale = np.arange(1, FEATURES + 1) ** -0.6  # the root of Sigma
        train, test, owners = [], [], []
        for i in range(self.clients):
            draw = rng(seed, "synthetic", i)
            n = int(draw.lognormal(4, 2)) + 50
            u, B = draw.normal(0, self.alpha), draw.normal(0, self.beta)
            W, b = draw.normal(u, 1, (FEATURES, CLASSES)), draw.normal(u, 1, CLASSES)
            x = draw.normal(B, 1, FEATURES) + scale * draw.normal(size=(n, FEATURES))
            y = np.argmax(x @ W + b, 1)
            cut = int(0.9 * n)
            train.append((x[:cut], y[:cut]))
            test.append((x[cut:], y[cut:]))
            owners += [i] * cut
        parts = [[np.concatenate(arrays) for arrays in zip(*part, strict=True)] for part in (train, test)]
        tensors = [torch.from_numpy(array) for part in parts for array in part]
        x_train, y_train, x_test, y_test = (t.float() if t.is_floating_point() else t for t in tensors)
        client = np.array(owners)
        return Data("synthetic", x_train, y_train, x_test, y_test, client=client, known_classes=CLASSES)

    def __call__(self, seed: int) -> Classification:
        """The task of one seed; every client has its own samples."""
        return classification(self.data(seed), self.model, seed=seed, validation=self.validation)
