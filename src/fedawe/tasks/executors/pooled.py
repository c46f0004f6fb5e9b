"""Convolution, max-pooling and ReLU as one operation, whose gradient is computed only where pooling let it through.

A convolution that is given the errors of a pooling layer as a whole multiplies mostly by zero: of a window of 2 x 2 one
error in four is not zero. `pool_kernels` computes the others' products not at all.
"""

import math
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor
from torch.nn import functional

from fedawe.tasks.executors.program import Node, Program
from fedawe.tasks.executors.vectors import LANES, suits

if TYPE_CHECKING:
    from fedawe.tasks.executors.pool_kernels import Layer

NEAR = 28 * 1024  # bytes that stay in the nearest cache of a processor


class ConvolvedPooled(torch.autograd.Function):
    """relu(max_pool2d(conv2d(x, weight, bias))) on a processor, in float32."""

    @staticmethod
    def forward(
        ctx: Any, x: Tensor, weight: Tensor, bias: Tensor | None, padding: tuple[int, int], k: int, relu: bool
    ) -> Tensor:
        layer = _layer(weight, k, relu)
        x, w = _padded(x, padding), weight.permute(0, 2, 3, 1).contiguous()
        z = functional.conv2d(x.permute(0, 3, 1, 2), w.permute(0, 3, 1, 2), bias).permute(0, 2, 3, 1).contiguous()
        B, H, W, C = z.shape
        h = z.new_empty(B, H // k, W // k, C)
        which = torch.empty(h.shape, dtype=torch.uint8)
        layer.pool()(*_addresses(z, h, which), B, H, W)
        ctx.save_for_backward(x, w, h, which)
        ctx.layer, ctx.padding, ctx.biased = layer, padding, bias is not None
        return h.permute(0, 3, 1, 2)

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> Any:
        x, w, h, which = ctx.saved_tensors
        g, wanted, layer, (down, right) = grads[0].permute(0, 2, 3, 1), ctx.needs_input_grad[0], ctx.layer, ctx.padding
        (B, P, Q, C), (Hp, Wp), patch = h.shape, x.shape[1:3], w[0].numel()
        gb, gx = w.new_zeros(C), torch.zeros_like(x) if wanted else x.new_empty(0)
        if layer.is_first:
            gw, patches = w.new_zeros(C, layer.patch), w.new_empty(layer.k * layer.k * Q * layer.patch + LANES)
            layer.backward_first()(*_addresses(g, h, x, gw, gb, patches, which), B, P, Q, Hp, Wp, *g.stride())
        else:
            row = 4 * x.shape[2] * x.shape[3]
            tile = max(1, min(P, (NEAR // (2 * row) - layer.rows + 1) // layer.k))
            gw = torch.zeros_like(w).view(C, -1)
            # One more, since what is not kept is written too.
            factors = w.new_empty(C, tile * Q + 1)
            places, counts = factors.to(torch.int32), torch.empty(C, dtype=torch.int64)
            arrays = _addresses(g, h, x, w, gw, gb, gx, factors, which, places, counts)
            layer.backward()(*arrays, B, P, Q, Hp, Wp, tile, wanted, *g.stride())
        weight = gw[:, :patch].reshape(w.shape).permute(0, 3, 1, 2)
        inner = gx[:, down : Hp - down, right : Wp - right].permute(0, 3, 1, 2) if wanted else None
        return inner, weight, gb if ctx.biased else None, None, None, None


def _layer(weight: Tensor, k: int, relu: bool) -> "Layer":
    """LLVM is loaded with the first layer that needs it."""
    from fedawe.tasks.executors.pool_kernels import Layer

    outputs, inputs, rows, columns = weight.shape
    return Layer(inputs, outputs, rows, columns, k, relu)


def _addresses(*tensors: Tensor) -> list[int]:
    return [each.data_ptr() for each in tensors]


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


def joined(program: Program, shapes: Mapping[str, Sequence[int]]) -> Program | None:
    """The program with convolution, pooling and ReLU joined wherever there are kernels for them; None if nowhere."""
    nodes, users = program.nodes, program.users
    ends: dict[int, Node] = {}  # the number of the last node of three -> what takes their place
    absorbed: set[int] = set()
    for n, pool in enumerate(nodes):
        source = pool.inputs[0] - 1 if pool.function is torch.max_pool2d else -1
        k = _side(pool) if source >= 0 else None
        if k is None or users[source + 1] != [n] or not _can_join(nodes[source], shapes):
            continue
        after = users.get(n + 1, [])
        relu = len(after) == 1 and nodes[after[0]].function is torch.relu
        convolution = nodes[source]
        options = {"padding": tuple(convolution.options["padding"]), "k": k, "relu": relu}
        absorbed |= {source, n} if relu else {source}
        ends[after[0] if relu else n] = Node(convolved_pooled, convolution.inputs, convolution.tensors, options)
    return program.replaced(ends, absorbed) if ends else None


def _side(pool: Node) -> int | None:
    """The side of a window of a pooling layer whose windows are squares side by side; None for another one."""
    said = {
        name: [each, each] if isinstance(each, int) else list(each)
        for name, each in pool.options.items()
        if name != "ceil_mode"
    }
    size = said["kernel_size"]
    plain = (
        said.get("stride", size) == size
        and said.get("padding", [0, 0]) == [0, 0]
        and said.get("dilation", [1, 1]) == [1, 1]
    )
    if not plain or size[0] != size[1] or pool.options.get("ceil_mode", False) or not 2 <= size[0] <= 8:
        return None
    return int(size[0])


def _can_join(node: Node, shapes: Mapping[str, Sequence[int]]) -> bool:
    """Whether this is a convolution for which there are kernels."""
    if node.function is not functional.conv2d or node.tensors[0] is None:
        return False
    outputs, inputs, rows, columns = shapes[node.tensors[0]]
    plain = node.options["groups"] == 1 and {*node.options["stride"], *node.options["dilation"]} == {1}
    return plain and suits(inputs, outputs, rows, columns, first=node.inputs[0] == 0)
