"""Convolution, max-pooling and ReLU as one operation; its gradient is computed only where pooling took a number.

All other errors that a pooling layer passes back are zero, with a window of 2 x 2 three in four. `kernels.pooling` does
not compute their products.
"""

import math
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor
from torch.nn import functional

from fedawe.tasks.executors.kernels.vectors import LANES
from fedawe.tasks.executors.products import addresses, check_images

if TYPE_CHECKING:
    from fedawe.tasks.executors.kernels.pooling import Layer

NEAR = 28 * 1024  # bytes that stay in the L1 cache of a CPU


class ConvolvedPooled(torch.autograd.Function):
    """relu(max_pool2d(conv2d(x, weight, bias))) on a CPU, in float32."""

    @staticmethod
    def forward(
        ctx: Any, x: Tensor, weight: Tensor, bias: Tensor | None, padding: tuple[int, int], k: int, relu: bool
    ) -> Tensor:
        layer, biased = _layer(weight, k, relu), bias is not None
        check_images(
            x, weight, padding, k, lambda: functional.max_pool2d(functional.conv2d(x, weight, bias, 1, padding), k)
        )
        x, w = _padded(x, padding), weight.permute(2, 3, 1, 0).contiguous()
        (B, Hp, Wp), (rows, columns, _, C) = x.shape[:3], w.shape
        H, W = Hp - rows + 1, Wp - columns + 1
        z, h = x.new_empty(k, W, C), x.new_empty(B, H // k, W // k, C)
        which = torch.empty(h.shape, dtype=torch.uint8)
        bias = x.new_zeros(C) if bias is None else bias
        layer.forward(Hp, Wp)(*addresses(x, w, bias, z, h, which), B)
        ctx.save_for_backward(x, weight.permute(0, 2, 3, 1).contiguous(), h, which)
        ctx.layer, ctx.padding, ctx.biased = layer, padding, biased
        return h.permute(0, 3, 1, 2)

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> Any:
        x, w, h, which = ctx.saved_tensors
        g, wanted, layer, (down, right) = grads[0].permute(0, 2, 3, 1), ctx.needs_input_grad[0], ctx.layer, ctx.padding
        (B, P, Q, C), (Hp, Wp), patch = h.shape, x.shape[1:3], w[0].numel()
        gb, gx = w.new_zeros(C), torch.zeros_like(x) if wanted else x.new_empty(0)
        if layer.is_first:
            gw, patches = w.new_zeros(C, layer.patch), w.new_empty(layer.k * layer.k * Q * layer.patch + LANES)
            layer.backward_first()(*addresses(g, h, x, gw, gb, patches, which), B, P, Q, Hp, Wp, *g.stride())
        else:
            row = 4 * x.shape[2] * x.shape[3]
            tile = max(1, min(P, (NEAR // (2 * row) - layer.rows + 1) // layer.k))
            gw = torch.zeros_like(w).view(C, -1)
            # One more, since an error that is not kept is also written, and overwritten by the next.
            factors = w.new_empty(C, tile * Q + 1)
            places, counts = factors.to(torch.int32), torch.empty(C, dtype=torch.int64)
            arrays = addresses(g, h, x, w, gw, gb, gx, factors, which, places, counts)
            layer.backward()(*arrays, B, P, Q, Hp, Wp, tile, wanted, *g.stride())
        weight = gw[:, :patch].reshape(w.shape).permute(0, 3, 1, 2)
        inner = gx[:, down : Hp - down, right : Wp - right].permute(0, 3, 1, 2) if wanted else None
        return inner, weight, gb if ctx.biased else None, None, None, None


def _layer(weight: Tensor, k: int, relu: bool) -> "Layer":
    """The sizes of the layer; imported here, so that LLVM is loaded with the first layer that needs it."""
    from fedawe.tasks.executors.kernels.pooling import Layer

    outputs, inputs, rows, columns = weight.shape
    return Layer(inputs, outputs, rows, columns, k, relu)


def _padded(x: Tensor, padding: tuple[int, int]) -> Tensor:
    """Images [B, channels, height, width] as [B, height, width, channels], with zeros around and after them."""
    (down, right), (B, inputs, H, W) = padding, x.shape
    shape = (B, H + 2 * down, W + 2 * right, inputs)
    out = x.new_zeros(math.prod(shape) + LANES)[:-LANES].view(shape)
    out[:, down : down + H, right : right + W] = x.permute(0, 2, 3, 1)
    return out


def convolved_pooled(
    x: Tensor, weight: Tensor, bias: Tensor | None, padding: tuple[int, int], k: int, relu: bool
) -> Tensor:
    """The layer as a function of a program."""
    out: Tensor = ConvolvedPooled.apply(x, weight, bias, padding, k, relu)  # type: ignore[no-untyped-call]
    return out
