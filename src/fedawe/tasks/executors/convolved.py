"""A convolution by kernels of this package, on a CPU in float32."""

from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor
from torch.nn import functional

from fedawe.tasks.executors.products import addresses, check_images

if TYPE_CHECKING:
    from fedawe.tasks.executors.kernels.convolution import Shape


class Convolved(torch.autograd.Function):
    """conv2d(x, weight, bias, stride, padding) of images in channels_last."""

    @staticmethod
    def forward(
        ctx: Any, x: Tensor, weight: Tensor, bias: Tensor | None, stride: int, padding: tuple[int, int]
    ) -> Tensor:
        from fedawe.tasks.executors.kernels.convolution import forward

        check_images(x, weight, padding, 1, lambda: functional.conv2d(x, weight, bias, stride, padding))
        shape = _shape(x, weight, stride, padding)
        x = x.permute(0, 2, 3, 1).contiguous()
        w = weight.permute(2, 3, 1, 0).contiguous()
        y = x.new_empty(len(x), *shape.size, shape.outputs)
        start = x.new_zeros(shape.outputs) if bias is None else bias
        forward(shape)(*addresses(x, w, start, y), len(x))
        ctx.save_for_backward(x, weight)
        ctx.shape, ctx.biased = shape, bias is not None
        return y.permute(0, 3, 1, 2)

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> Any:
        from fedawe.tasks.executors.kernels.convolution import backward_input, backward_weights

        x, weight = ctx.saved_tensors
        g, shape, gx = grads[0].permute(0, 2, 3, 1).contiguous(), ctx.shape, None
        if ctx.needs_input_grad[0]:
            w, gx = weight.permute(2, 3, 0, 1).contiguous(), torch.empty_like(x)
            backward_input(shape)(*addresses(g, w, gx), len(x))
            gx = gx.permute(0, 3, 1, 2)
        gw = x.new_zeros(shape.rows, shape.columns, shape.inputs, shape.outputs)
        backward_weights(shape)(*addresses(x, g, gw), len(x))
        return gx, gw.permute(3, 2, 0, 1), g.sum((0, 1, 2)) if ctx.biased else None, None, None


def _shape(x: Tensor, weight: Tensor, stride: int, padding: tuple[int, int]) -> "Shape":
    """The sizes of the layer; imported here, so that LLVM is loaded with the first layer that needs it."""
    from fedawe.tasks.executors.kernels.convolution import Shape

    outputs, inputs, rows, columns = weight.shape
    return Shape(inputs, outputs, rows, columns, stride, *padding, *x.shape[2:])


def convolved(x: Tensor, weight: Tensor, bias: Tensor | None, stride: int, padding: tuple[int, int]) -> Tensor:
    """The layer as a function of a program."""
    out: Tensor = Convolved.apply(x, weight, bias, stride, padding)  # type: ignore[no-untyped-call]
    return out
