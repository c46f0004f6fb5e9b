"""Networks as functions of a flat parameter vector, for one client or for many at once."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Protocol

import torch
from torch import Tensor, nn
from torch.func import functional_call

from fedawe.rng import rng

Loss = Callable[[Tensor, Tensor], Tensor]  # (outputs [B, ...], targets [B, ...]) -> one loss per sample [B]


class Network(Protocol):
    """Something with parameters x [d] that can be trained and asked."""

    stacked: bool

    def initial(self, seed: int) -> Tensor:
        """Its parameters before training, [d]."""

    def outputs(self, x: Tensor, inputs: Tensor) -> Tensor:
        """What the network with parameters x [d] says of inputs [N, ...], [N, ...]."""

    def gradients(self, x: Tensor, inputs: Tensor, targets: Tensor, weights: Tensor) -> Tensor:
        """The gradient of sum_b weights_b loss_b at each client's own x [k, d]; inputs [k, B, ...]; [k, d]."""


@dataclass(frozen=True)
class Dense:
    """Fully connected layers with ReLU between them and cross-entropy on top, the gradient in closed form.

    `sizes` from features to classes: (64, 10) is softmax regression, (64, 64, 10) has one hidden layer. All clients are
    one batched product per layer; autograd would spend its time on bookkeeping. Layout as in nn.Linear: W [out, in], b.
    """

    sizes: tuple[int, ...]
    stacked = True

    def initial(self, seed: int) -> Tensor:
        """Kaiming-normal hidden layers with zero bias; the last layer U(-1/sqrt(fan_in), +), as the authors have it."""
        draw, pieces = rng(seed, "init"), []
        for n, (fan_in, fan_out) in enumerate(pairwise(self.sizes)):
            if n < len(self.sizes) - 2:
                pieces += [draw.normal(0, (2 / fan_in) ** 0.5, fan_out * fan_in), torch.zeros(fan_out).numpy()]
            else:
                pieces.append(draw.uniform(-(fan_in**-0.5), fan_in**-0.5, fan_out * (fan_in + 1)))
        return torch.cat([torch.from_numpy(piece).to(torch.float32) for piece in pieces])

    def layers(self, x: Tensor) -> list[tuple[Tensor, Tensor]]:
        """Views of x [k, d] as weights [k, out, in] and biases [k, 1, out]."""
        out, at = [], 0
        for fan_in, fan_out in pairwise(self.sizes):
            W = x[:, at : at + fan_out * fan_in].unflatten(1, (fan_out, fan_in))
            at += fan_out * fan_in
            out.append((W, x[:, None, at : at + fan_out]))
            at += fan_out
        return out

    def _forward(self, x: Tensor, inputs: Tensor) -> list[Tensor]:
        """The input of every layer and the logits, [k, B, .] each."""
        layers, seen = self.layers(x), [inputs.flatten(2)]
        for n, (W, b) in enumerate(layers):
            z = torch.baddbmm(b, seen[-1], W.mT)
            seen.append(z.relu_() if n < len(layers) - 1 else z)
        return seen

    def outputs(self, x: Tensor, inputs: Tensor) -> Tensor:
        """The logits, [N, C]."""
        return self._forward(x[None], inputs[None])[-1][0]

    def gradients(self, x: Tensor, inputs: Tensor, targets: Tensor, weights: Tensor) -> Tensor:
        """Back-propagation by hand: dz = (softmax - one hot) w, then layer by layer dW = dz' h, db = sum dz."""
        *h, logits = self._forward(x, inputs)
        dz = torch.softmax(logits, -1)
        dz.scatter_add_(-1, targets[..., None], torch.full_like(dz[..., :1], -1.0))
        dz.mul_(weights[..., None])
        g = torch.empty_like(x)
        layers, into = self.layers(x), self.layers(g)
        for n in reversed(range(len(layers))):
            dW, db = into[n]
            dW.copy_(torch.bmm(dz.mT, h[n]))
            db.copy_(dz.sum(1, keepdim=True))
            if n:
                dz = torch.bmm(dz, layers[n][0]) * (h[n] > 0)
        return g


class ModuleNetwork:
    """Any torch.nn.Module as a network: `make()` builds it, `loss(outputs, targets)` gives one loss per sample.

    Clients are trained one by one with autograd. Buffers stay as `make` left them.
    """

    stacked = False

    def __init__(self, make: Callable[[], nn.Module], loss: Loss | None = None) -> None:
        self.make = make
        self.module = make()
        self.names = [name for name, _ in self.module.named_parameters()]
        self.shapes = [parameter.shape for parameter in self.module.parameters()]
        self.loss: Loss = loss or (lambda outputs, y: nn.functional.cross_entropy(outputs, y, reduction="none"))

    def initial(self, seed: int) -> Tensor:
        """The parameters of a module built under a seed of its own; the global random state is left alone."""
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(int(rng(seed, "init").integers(2**63)))
            return torch.cat([parameter.detach().flatten() for parameter in self.make().parameters()])

    def _unflatten(self, x: Tensor) -> Sequence[Tensor]:
        pieces = x.split([shape.numel() for shape in self.shapes])
        return [piece.view(shape) for piece, shape in zip(pieces, self.shapes, strict=True)]

    def _call(self, parameters: Sequence[Tensor], inputs: Tensor) -> Tensor:
        outputs: Tensor = functional_call(self.module, dict(zip(self.names, parameters, strict=True)), (inputs,))
        return outputs

    def outputs(self, x: Tensor, inputs: Tensor) -> Tensor:
        """What the module says in evaluation mode, [N, ...]."""
        self.module.eval()
        with torch.no_grad():
            return self._call(self._unflatten(x), inputs)

    def gradients(self, x: Tensor, inputs: Tensor, targets: Tensor, weights: Tensor) -> Tensor:
        """Autograd in training mode, client by client."""
        self.module.train()
        rows = []
        for row, xs, ys, ws in zip(x, inputs, targets, weights, strict=True):
            parameters = [piece.detach().requires_grad_() for piece in self._unflatten(row)]
            loss = (ws * self.loss(self._call(parameters, xs), ys)).sum()
            rows.append(torch.cat([g.flatten() for g in torch.autograd.grad(loss, parameters)]))
        return torch.stack(rows)
