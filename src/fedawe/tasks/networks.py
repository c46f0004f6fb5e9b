"""Networks as functions of a flat parameter vector, for one client or for many at once."""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Protocol

import torch
from torch import Tensor, nn
from torch.func import grad, vmap

from fedawe.core.rng import rng
from fedawe.tasks.layout import Layout

Layers = list[tuple[Tensor, Tensor]]  # weights [k, out, in] and biases [k, out, 1]
Loss = Callable[[Tensor, Tensor], Tensor]  # (outputs [B, ...], targets [B, ...]) -> one loss per sample [B]


def cross_entropy(outputs: Tensor, targets: Tensor) -> Tensor:
    """One loss per sample, [B]."""
    return nn.functional.cross_entropy(outputs, targets, reduction="none")


class Network(Protocol):
    """Something with parameters x [d] that can be trained and asked."""

    @property
    def stacked(self) -> bool:
        """Whether several clients at once are the better way to train it."""

    @property
    def random(self) -> bool:
        """Whether training draws random numbers (dropout), and so wants a seed for every client and step."""

    @property
    def layout(self) -> Layout | None:
        """The names of its parameters and buffers; None where they have none."""

    def initial(self, seed: int) -> Tensor:
        """Its parameters before training, [d]."""

    def outputs(self, x: Tensor, inputs: Tensor) -> Tensor:
        """What the network with parameters x [d] says of inputs [N, ...], [N, ...]."""

    def loss(self, outputs: Tensor, targets: Tensor) -> Tensor:
        """The loss of each sample, [N]: what is trained and what is evaluated."""

    def gradients(
        self, x: Tensor, inputs: Tensor, targets: Tensor, weights: Tensor, seeds: Sequence[int] | None = None
    ) -> Tensor:
        """The gradient of sum_b weights_b loss_b at each client's own x [k, d]; inputs [k, B, ...]; [k, d]."""


@dataclass(frozen=True)
class Dense:
    """Fully connected layers with ReLU between them and cross-entropy on top, the gradient in closed form.

    `sizes` from features to classes: (64, 10) is softmax regression, (64, 64, 10) has one hidden layer. All clients are
    one batched product per layer; autograd would spend its time on bookkeeping. Layout as in nn.Linear: W [out, in], b.
    """

    sizes: tuple[int, ...]
    stacked = True
    random = False
    layout = None
    loss = staticmethod(cross_entropy)

    def initial(self, seed: int) -> Tensor:
        """Kaiming-normal hidden layers with zero bias; the last layer U(-1/sqrt(fan_in), +), as the authors have it."""
        draw, pieces = rng(seed, "init"), []
        for n, (fan_in, fan_out) in enumerate(pairwise(self.sizes)):
            if n < len(self.sizes) - 2:
                pieces += [draw.normal(0, (2 / fan_in) ** 0.5, fan_out * fan_in), torch.zeros(fan_out).numpy()]
            else:
                pieces.append(draw.uniform(-(fan_in**-0.5), fan_in**-0.5, fan_out * (fan_in + 1)))
        return torch.cat([torch.from_numpy(piece).to(torch.float32) for piece in pieces])

    def layers(self, x: Tensor) -> Layers:
        """Views of x [k, d] as weights [k, out, in] and biases [k, out, 1]."""
        out, at = [], 0
        for fan_in, fan_out in pairwise(self.sizes):
            W = x[:, at : at + fan_out * fan_in].unflatten(1, (fan_out, fan_in))
            at += fan_out * fan_in
            out.append((W, x[:, at : at + fan_out, None]))
            at += fan_out
        return out

    def outputs(self, x: Tensor, inputs: Tensor) -> Tensor:
        """The logits, [N, C]."""
        h = inputs.flatten(1)
        for n, (W, b) in enumerate(layers := self.layers(x[None])):
            h = torch.addmm(b[0].T, h, W[0].T)
            if n < len(layers) - 1:
                h.relu_()
        return h

    def gradients(
        self, x: Tensor, inputs: Tensor, targets: Tensor, weights: Tensor, seeds: Sequence[int] | None = None
    ) -> Tensor:
        """The gradient is what a step of rate -1 adds to zero."""
        del seeds
        g = torch.zeros_like(x)
        self._add(self.layers(g), self.layers(x), inputs, targets, weights, 1.0)
        return g

    def descend(self, x: Tensor, batches: Iterable[tuple[Tensor, Tensor, Tensor]], eta: float) -> None:
        """x <- x - eta gradient, in place: each layer's step is one product that adds to the weights themselves."""
        layers = self.layers(x)
        for inputs, targets, weights in batches:
            self._add(layers, layers, inputs, targets, weights, -eta)

    def _add(
        self, into: Layers, layers: Layers, inputs: Tensor, targets: Tensor, weights: Tensor, scale: float
    ) -> None:
        """into <- into + scale gradient, by hand: dz = (softmax - one hot) w, dW = dz h', db = dz 1."""
        h = [inputs.flatten(2)]  # what every layer receives                                          [k, B, in] each
        for W, b in layers[:-1]:
            h.append(torch.baddbmm(b.mT, h[-1], W.mT).relu_())
        W, b = layers[-1]
        dz = torch.softmax(torch.baddbmm(b, W, h[-1].mT), 1)  # samples last: 10 times as fast here   [k, C, B]
        dz.scatter_add_(1, targets[:, None], dz.new_full((), -1.0).expand(len(dz), 1, targets.shape[1]))
        dz.mul_(weights[:, None])
        for n in reversed(range(len(layers))):
            # the error of the layer before, while the weights are still those of the forward pass
            before = torch.bmm(dz.mT, layers[n][0]) if n else None
            W, b = into[n]
            W.baddbmm_(dz, h[n], alpha=scale)
            b.add_(dz.sum(2, keepdim=True), alpha=scale)
            if before is not None:
                dz = torch.ops.aten.threshold_backward(before, h[n], 0.0).mT


def gradients_of(loss: Callable[..., Tensor], x: Tensor, *batch: Tensor) -> Tensor:
    """The gradient of loss(x, *batch) at each row of x [k, d]: plain autograd for one client, vmap for several."""
    if len(x) > 1:
        out: Tensor = vmap(grad(loss), randomness="different")(x, *batch)
        return out
    row = x[0].detach().requires_grad_()
    return torch.autograd.grad(loss(row, *(piece[0] for piece in batch)), row)[0][None]


def unflattened(x: Tensor, shapes: Sequence[torch.Size]) -> list[Tensor]:
    """A flat vector [d] as tensors of these shapes, one after another."""
    pieces = x.split([shape.numel() for shape in shapes])
    return [piece.view(shape) for piece, shape in zip(pieces, shapes, strict=True)]
