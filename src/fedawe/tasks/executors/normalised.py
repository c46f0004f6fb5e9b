"""Group and batch normalisation by kernels of this package, with an addition and a ReLU after them."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor

from fedawe.tasks.executors.products import addresses
from fedawe.tasks.executors.program import Function, batch_norm, group_norm

Apply = Callable[..., Any]


class Normalised(torch.autograd.Function):
    """relu(norm(x) weight + bias + added) of images in channels_last, where relu and added may be left out.

    Statistics are computed for each image and each group of channels, or with `together` for each channel over all
    images. The mean and the variance are returned too.
    """

    @staticmethod
    def forward(
        ctx: Any,
        x: Tensor,
        added: Tensor | None,
        weight: Tensor,
        bias: Tensor,
        groups: int,
        eps: float,
        together: bool,
        relu: bool,
    ) -> tuple[Tensor, Tensor, Tensor]:
        from fedawe.tasks.executors.kernels.normalisation import Norm, forward

        x = x.permute(0, 2, 3, 1).contiguous()
        (B, H, W, C), y = x.shape, torch.empty_like(x)
        sets, images = (1, B) if together else (B, 1)
        counts = (sets, images, images * H * W * (C // groups))
        norm = Norm(C, groups, H * W, relu, added is not None)
        other = x if added is None else added.permute(0, 2, 3, 1).contiguous()
        small, (mean, var, rstd) = x.new_tensor([eps]), x.new_empty(3, sets, C)
        forward(norm)(*addresses(x, other, weight, bias, small, y, mean, var, rstd), *counts)
        ctx.save_for_backward(x, y, weight, mean, rstd)
        ctx.norm, ctx.counts = norm, counts
        ctx.mark_non_differentiable(mean, var)
        return y.permute(0, 3, 1, 2), mean, var

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> Any:
        from fedawe.tasks.executors.kernels.normalisation import backward

        x, y, weight, mean, rstd = ctx.saved_tensors
        g, gx = grads[0].permute(0, 2, 3, 1).contiguous(), torch.empty_like(x)
        gadded = torch.empty_like(x) if ctx.norm.added else gx
        gweight, gbias, a, d = x.new_zeros(4, ctx.norm.channels)
        arrays = addresses(g, y, x, weight, mean, rstd, gx, gadded, gweight, gbias, a, d)
        backward(ctx.norm)(*arrays, *ctx.counts)
        more = gadded.permute(0, 3, 1, 2) if ctx.norm.added else None
        return gx.permute(0, 3, 1, 2), more, gweight, gbias, None, None, None, None


def fits(h: Tensor, weight: Tensor, added: Sequence[Tensor]) -> bool:
    """Whether kernels can compute it: a weight for every channel, and an addition of images of the same sizes."""
    return h.shape[1:2] == weight.shape and all((each.shape, each.dtype) == (h.shape, h.dtype) for each in added)


def _followed(h: Tensor, added: Sequence[Tensor], relu: bool) -> Tensor:
    h = h + added[0] if added else h
    return h.relu() if relu else h


def group_normalised(
    h: Tensor, *rest: Tensor, groups: int, eps: float, relu: bool, apply: Apply = Normalised.apply
) -> Tensor:
    """Group normalisation as a function of a program; rest: what is added, if anything, then weight and bias."""
    *added, weight, bias = rest
    if not fits(h, weight, added) or h.numel() == groups:  # torch refuses one number for each group
        return _followed(group_norm(h, weight, bias, groups, eps), added, relu)
    out: Tensor = apply(h, added[0] if added else None, weight, bias, groups, eps, False, relu)[0]
    return out


def batch_normalised(
    h: Tensor, *rest: Tensor, momentum: float, eps: float, relu: bool, training: bool, apply: Apply = Normalised.apply
) -> Tensor:
    """Batch normalisation in the same way; the running statistics come last, and are updated in training."""
    *added, weight, bias, mean, var = rest
    count = h.numel() // h.shape[1]
    if not training or not fits(h, weight, added) or count == 1:  # torch refuses one number for each channel
        return _followed(batch_norm(h, weight, bias, mean, var, momentum, eps, training), added, relu)
    y, found_mean, found_var = apply(h, added[0] if added else None, weight, bias, h.shape[1], eps, True, relu)
    with torch.no_grad():
        # Through `data`: autograd would take all views of the same vector for changed, the weights too.
        mean.data.lerp_(found_mean[0], momentum)
        var.data.lerp_(found_var[0] * (count / (count - 1)), momentum)
    assert isinstance(y, Tensor)
    return y


NORMALISATIONS: Mapping[Function, Function] = {group_norm: group_normalised, batch_norm: batch_normalised}
