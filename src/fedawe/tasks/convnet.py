"""The paper's convolutional networks, in the layout in which this processor computes them best."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor
from torch.nn.functional import conv2d, linear, max_pool2d

from fedawe.core.rng import rng
from fedawe.tasks.networks import cross_entropy, gradients_of, unflattened

WIDTH = 32  # channels of both convolutions


@dataclass(frozen=True)
class ConvNet:
    """C(c, 32) - M - R - C(32, 32) - M - R - [Drop - L - R]* - Drop - L, 3 x 3 convolutions, 2 x 2 max-pooling.

    Pooling goes before ReLU: they commute, and a quarter of the numbers is left for ReLU. On a CPU the convolutional
    part runs in oneDNN's own blocked layout, where convolution and pooling are faster and their results the same.

    image    [channels, height, width]
    hidden   sizes of the hidden linear layers: (128,) SVHN, (256, 64) CIFAR-10, (512, 256) CINIC-10
    dropout  before every linear layer; 0.2 for CINIC-10
    """

    image: tuple[int, int, int] = (3, 32, 32)
    hidden: tuple[int, ...] = (128,)
    classes: int = 10
    dropout: float = 0.0
    stacked = False
    layout = None
    loss = staticmethod(cross_entropy)

    @property
    def random(self) -> bool:
        """Dropout is."""
        return self.dropout > 0

    @property
    def shapes(self) -> list[torch.Size]:
        """Weight and bias of every layer, in the order of nn.Module."""
        channels, height, width = self.image
        sizes = (WIDTH * (height // 4) * (width // 4), *self.hidden, self.classes)
        weights: list[tuple[int, ...]] = [(WIDTH, channels, 3, 3), (WIDTH, WIDTH, 3, 3)]
        weights += [(sizes[n + 1], sizes[n]) for n in range(len(sizes) - 1)]
        return [torch.Size(shape) for weight in weights for shape in (weight, weight[:1])]

    def initial(self, seed: int) -> Tensor:
        """Kaiming-normal with zero bias; the last layer U(-1/sqrt(fan_in), +), as the authors have it."""
        draw, pieces, shapes = rng(seed, "init"), [], self.shapes
        for n, shape in enumerate(shapes):
            fan_in = shapes[n - n % 2][1:].numel()  # of the weight this is, or the bias belongs to
            if n >= len(shapes) - 2:
                pieces.append(draw.uniform(-(fan_in**-0.5), fan_in**-0.5, shape.numel()))
            elif n % 2 == 0:
                pieces.append(draw.normal(0, (2 / fan_in) ** 0.5, shape.numel()))
            else:
                pieces.append(np.zeros(shape.numel()))
        return torch.from_numpy(np.concatenate(pieces)).to(torch.float32)

    def _logits(self, parameters: Sequence[Tensor], inputs: Tensor, keep: Sequence[Tensor], blocked: bool) -> Tensor:
        """What the network says, [B, C]; `keep` are the dropout masks of its linear layers, if any."""
        (W1, b1, W2, b2, *rest), h = parameters, inputs
        if blocked:
            h = h.to_mkldnn()
        for W, b in ((W1, b1), (W2, b2)):
            h = max_pool2d(conv2d(h, W, b, padding=1), 2, 2).relu()
        h = (h.to_dense() if blocked else h).flatten(1)
        for n, (W, b) in enumerate(layers := list(zip(rest[::2], rest[1::2], strict=True))):
            h = linear(h * keep[n] if keep else h, W, b)
            if n < len(layers) - 1:
                h = h.relu()
        return h

    def outputs(self, x: Tensor, inputs: Tensor) -> Tensor:
        """The logits without dropout, [N, C]."""
        with torch.no_grad():
            return self._logits(unflattened(x, self.shapes), inputs, (), _blocked(inputs))

    def gradients(
        self, x: Tensor, inputs: Tensor, targets: Tensor, weights: Tensor, seeds: Sequence[int] | None = None
    ) -> Tensor:
        """Autograd, one client in the blocked layout or several under vmap."""
        blocked, shapes = len(x) == 1 and _blocked(inputs), self.shapes

        def loss(x: Tensor, inputs: Tensor, targets: Tensor, weights: Tensor, *keep: Tensor) -> Tensor:
            logits = self._logits(unflattened(x, shapes), inputs, keep, blocked)
            return (weights * cross_entropy(logits, targets)).sum()

        return gradients_of(loss, x, inputs, targets, weights, *self._masks(inputs, seeds))

    def descend(
        self, x: Tensor, batches: Iterable[tuple[Tensor, Tensor, Tensor, Sequence[int] | None]], eta: float
    ) -> None:
        """x <- x - eta gradient for one client, x [1, d], in place, layer by layer: no flat gradient is made."""
        parameters = [piece.detach().requires_grad_() for piece in unflattened(x[0], self.shapes)]  # views of x
        for inputs, targets, weights, seeds in batches:
            keep = [mask[0] for mask in self._masks(inputs, seeds)]
            logits = self._logits(parameters, inputs[0], keep, _blocked(inputs))
            loss = (weights[0] * cross_entropy(logits, targets[0])).sum()
            steps = torch.autograd.grad(loss, parameters)
            with torch.no_grad():
                for parameter, step in zip(parameters, steps, strict=True):
                    parameter.sub_(step, alpha=eta)

    def _masks(self, inputs: Tensor, seeds: Sequence[int] | None) -> list[Tensor]:
        """What dropout keeps of every linear layer's input, scaled, [k, B, in] each; drawn under each client's seed."""
        if self.dropout == 0:
            return []
        assert seeds is not None, "dropout wants a seed for every client"
        sizes = [shape[1] for shape in self.shapes[4::2]]
        rows = []
        for seed in seeds:
            draw = torch.Generator().manual_seed(seed)
            drawn = torch.rand(inputs.shape[1], sum(sizes), generator=draw) >= self.dropout
            rows.append(drawn.to(inputs) / (1 - self.dropout))
        return list(torch.stack(rows).split(sizes, dim=2))


def _blocked(inputs: Tensor) -> bool:
    """Whether oneDNN's own layout can be had."""
    return inputs.device.type == "cpu" and inputs.dtype == torch.float32 and torch.backends.mkldnn.is_available()
