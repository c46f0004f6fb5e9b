"""A linear layer by kernels of this package, on a CPU in float32."""

from typing import Any

import torch
from torch import Tensor
from torch.nn import functional

from fedawe.tasks.executors.products import addresses, check, product


class Linear(torch.autograd.Function):
    """x weight^T + bias for rows x [M, inputs]."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
        from fedawe.tasks.executors.kernels.matrices import with_rows

        fits = x.dtype == weight.dtype and x.shape[1] == weight.shape[1]
        check(fits, lambda: functional.linear(x, weight, bias))
        (M, K), N = x.shape, len(weight)
        x, weight, y = x.contiguous(), weight.contiguous(), x.new_empty(M, N)
        start = x.new_zeros(N) if bias is None else bias
        with_rows(K)(*addresses(x, weight, start, y), M, N)
        ctx.save_for_backward(x, weight)
        ctx.biased = bias is not None
        return y

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> Any:
        x, weight = ctx.saved_tensors
        g, gx = grads[0].contiguous(), None
        if ctx.needs_input_grad[0]:
            gx = product(g, weight, g.stride(), len(g))
        gw = product(g, x, (1, g.shape[1]), g.shape[1])
        return gx, gw, g.sum(0) if ctx.biased else None


def linear(h: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
    """The layer as a function of a program, for h [..., inputs]."""
    out: Tensor = Linear.apply(h.reshape(-1, h.shape[-1]), weight, bias)  # type: ignore[no-untyped-call]
    return out.view(*h.shape[:-1], -1)
