"""Fully connected networks in closed form, all clients in one batched product per layer."""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional

from fedawe.tasks.executors.base import Batch, Kept, masks, rounded_to
from fedawe.tasks.executors.program import Node, Program, dropout
from fedawe.tasks.layout import Layout

Pairs = list[tuple[Tensor, Tensor | None]]  # weights [k, out, in] and biases [k, out, 1]
Transposed = list[tuple[Tensor, Tensor | None]]  # views of them, [k, in, out] and [k, 1, out]
ACTIVATIONS = (torch.relu, torch.tanh, torch.sigmoid, functional.leaky_relu)


@dataclass(frozen=True)
class Layer:
    """A linear layer W h + b, with dropout before it and an activation after it."""

    weight: tuple[int, int, int]  # where it begins in x, rows, columns
    bias: int | None
    activation: Node | None = None
    p: float | None = None  # of the dropout


def dense_layers(program: Program, layout: Layout, inputs: int) -> list[Layer] | None:
    """The layers of a program that is a chain of linear layers with activations between them; else None.

    `inputs` is the number of dimensions of one input.
    """
    starts, at = {}, 0
    for entry in layout.ordered:
        starts[entry.name] = (at, entry.shape)
        at += entry.size
    nodes, chain = list(program.nodes), all(node.inputs == (n,) for n, node in enumerate(program.nodes))
    if nodes and nodes[0].function is torch.flatten and nodes[0].options == {"start_dim": 1, "end_dim": -1}:
        nodes.pop(0)
    elif inputs != 1:
        return None
    layers: list[Layer] = []
    p: float | None = None
    for node in nodes if chain else []:
        if node.function is dropout and p is None:
            p = node.options["p"]
        elif node.function is functional.linear:
            weight, bias = node.tensors
            assert weight is not None
            first, (out, fan_in) = starts[weight]
            if layers and layers[-1].activation is None:
                return None
            layers.append(Layer((first, out, fan_in), None if bias is None else starts[bias][0], p=p))
            p = None
        elif _is_activation(node) and layers and layers[-1].activation is None and p is None:
            last = layers[-1]
            layers[-1] = Layer(last.weight, last.bias, node, last.p)
        else:
            return None
    used = [layer.weight[0] for layer in layers]
    complete = layers and layers[-1].activation is None and p is None and len(set(used)) == len(used)
    return layers if complete else None


def _is_activation(node: Node) -> bool:
    """Whether this is an activation whose derivative can be computed from its output."""
    return node.function in ACTIVATIONS and node.options.get("negative_slope", 0) >= 0


class Dense:
    """Fully connected layers and cross-entropy, the gradient in closed form and the step fused into it.

    All clients are one batched product per layer; autograd would spend its time on bookkeeping.
    """

    name, mixes = "dense", False
    why = "a chain of linear layers with cross-entropy"

    def __init__(self, layers: Sequence[Layer]) -> None:
        self.layers = list(layers)
        self.random = any(layer.p for layer in layers)

    def stacked(self, x: Tensor, inputs: Tensor, targets: Tensor) -> bool:
        """Always."""
        del x, inputs, targets
        return True

    def views(self, x: Tensor) -> Pairs:
        """Weights [k, out, in] and biases [k, out, 1] of x [k, d]."""
        out: Pairs = []
        for layer in self.layers:
            at, rows, columns = layer.weight
            W = x[:, at : at + rows * columns].unflatten(1, (rows, columns))
            out.append((W, None if layer.bias is None else x[:, layer.bias : layer.bias + rows, None]))
        return out

    def outputs(self, x: Tensor, inputs: Tensor) -> Tensor:
        h = inputs.flatten(1)
        for layer, (W, b) in zip(self.layers, self.views(x[None]), strict=True):
            h = h @ W[0].T if b is None else torch.addmm(b[0].T, h, W[0].T)
            h = _activated(layer.activation, h)
        return h

    def gradients(self, x: Tensor, batch: Batch, kept: Kept) -> Tensor:
        """The gradient, as what a step of rate -1 adds to zero."""
        del kept
        g = torch.zeros_like(x)
        pairs = self.views(x)
        self._adding(x)(self.views(g), pairs, _transposed(pairs), batch, 1.0)
        return g

    def descend(self, x: Tensor, batches: Iterable[Batch], rate: float) -> None:
        """Each layer's step is one product that adds to the weights themselves.

        For a round, weights and biases of a layer are copied to contiguous tensors: on other tensors, the product would
        be computed for one client after another.
        """
        views = self.views(x)
        own: Pairs = [(W.contiguous(), None if b is None else b.contiguous()) for W, b in views]
        transposed, add = _transposed(own), self._adding(x)
        for batch in batches:
            add(own, own, transposed, batch, -rate)
        for (W, b), (mine, my_b) in zip(views, own, strict=True):
            W.copy_(mine)
            if b is not None and my_b is not None:
                b.copy_(my_b)

    def _adding(self, x: Tensor) -> Callable[[Pairs, Pairs, Transposed, Batch, float], None]:
        """The function that adds a gradient at x: under autocast, one that rounds the weights."""
        to = rounded_to(x)
        return self._add if to is None else partial(self._add_rounded, to)

    def _add_rounded(
        self, to: torch.dtype, into: Pairs, pairs: Pairs, transposed: Transposed, batch: Batch, scale: float
    ) -> None:
        """Under autocast: weights are rounded once a step and not for every product; `into` is not rounded."""
        del transposed
        own: Pairs = [(W.to(to), None if b is None else b.to(to)) for W, b in pairs]
        self._add(into, own, _transposed(own), batch, scale, rounded=True)

    def _add(
        self, into: Pairs, pairs: Pairs, transposed: Transposed, batch: Batch, scale: float, rounded: bool = False
    ) -> None:
        """into <- into + scale gradient, by hand: dz = (softmax - one hot) w, dW = dz h', db = dz 1.

        `rounded`: autocast rounds the operands of products, and `pairs` are rounded already.
        """
        inputs, targets, weights, seeds = batch
        keep = self._masks(inputs, seeds) if self.random else {}
        given, made = [], [inputs.flatten(2)]  # inputs of the layers, and activations  [k, B, in] each
        for n, (W, b) in enumerate(transposed):
            mask = keep.get(n)
            given.append(made[n] if mask is None else made[n] * mask)
            if n < len(pairs) - 1:
                z = torch.bmm(given[n], W) if b is None else torch.baddbmm(b, given[n], W)
                made.append(_activated(self.layers[n].activation, z))
        W, b = pairs[-1]
        # Samples last: ten times as fast here                                                          [k, C, B]
        z = torch.bmm(W, given[-1].mT) if b is None else torch.baddbmm(b, W, given[-1].mT)
        dz = torch.softmax(z, 1, dtype=torch.float32) if rounded else torch.softmax(z, 1)
        dz.scatter_(1, targets[:, None], -1.0, reduce="add")
        dz.mul_(weights[:, None])
        if rounded:
            dz = dz.to(z.dtype)
        for n in reversed(range(len(pairs))):
            # the error of the layer before, while the weights are still those of the forward pass
            before = torch.bmm(dz.mT, pairs[n][0]) if n else None
            W, b = into[n]
            if rounded:  # one product that adds to the weights would have to round them
                W.add_(torch.bmm(dz, given[n]), alpha=scale)
            else:
                W.baddbmm_(dz, given[n], alpha=scale)
            if b is not None:
                b.add_(dz.sum(2, keepdim=True), alpha=scale)
            if before is not None:
                if n in keep:
                    before.mul_(keep[n])
                dz = _derivative(self.layers[n - 1].activation, before, made[n]).mT

    def _masks(self, inputs: Tensor, seeds: Sequence[int] | None) -> dict[int, Tensor]:
        """The masks of the layers that drop something, by their number."""
        at = [n for n, layer in enumerate(self.layers) if layer.p] if self.random else []
        shapes = [torch.Size([inputs.shape[1], self.layers[n].weight[2]]) for n in at]
        return dict(zip(at, masks(shapes, [self.layers[n].p or 0.0 for n in at], seeds, inputs), strict=True))


def _transposed(pairs: Pairs) -> Transposed:
    """Views, which are made once a round: making one takes as long as a small product."""
    return [(W.mT, None if b is None else b.mT) for W, b in pairs]


def _activated(node: Node | None, z: Tensor) -> Tensor:
    """The activation, in place where it can be."""
    if node is None:
        return z
    if node.function is torch.relu:
        return z.relu_()
    out: Tensor = node.function(z, **node.options)
    return out


def _derivative(node: Node | None, error: Tensor, made: Tensor) -> Tensor:
    """The error before an activation, from the error after it and from its output."""
    assert node is not None
    aten: Any = torch.ops.aten
    out: Tensor
    if node.function is torch.relu:
        out = aten.threshold_backward(error, made, 0.0)
    elif node.function is torch.tanh:
        out = aten.tanh_backward(error, made)
    elif node.function is torch.sigmoid:
        out = aten.sigmoid_backward(error, made)
    else:
        out = aten.leaky_relu_backward(error, made, node.options.get("negative_slope", 0.01), True)
    return out
