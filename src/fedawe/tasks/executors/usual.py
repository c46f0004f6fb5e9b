"""The usual layers and functions of networks, and the functions of a program that compute them."""

import operator
from collections.abc import Callable
from typing import Any

import torch
from torch import nn
from torch.nn import functional

from fedawe.tasks.executors.program import Function, batch_norm, dropout, group_norm
from fedawe.tasks.executors.sequences import embedding, layer_norm


class NotTraced(Exception):
    """Why a module is not made of the usual layers."""


def _convolution(layer: nn.Conv2d) -> dict[str, Any]:
    if layer.padding_mode != "zeros":
        raise NotTraced(f"a convolution pads with {layer.padding_mode}")
    padding: Any = layer.padding
    if isinstance(padding, str):
        reach = [rate * (size - 1) for rate, size in zip(layer.dilation, layer.kernel_size, strict=True)]
        if padding == "same" and any(each % 2 for each in reach):
            raise NotTraced("a convolution pads its two sides differently")
        padding = tuple(each // 2 for each in reach) if padding == "same" else (0, 0)
    return {"stride": layer.stride, "padding": padding, "dilation": layer.dilation, "groups": layer.groups}


def _pooling(layer: nn.MaxPool2d) -> dict[str, Any]:
    if layer.return_indices:
        raise NotTraced("a pooling layer returns indices")
    names = ("kernel_size", "stride", "padding", "dilation", "ceil_mode")
    return {name: plain(getattr(layer, name)) for name in names}


def _normalisation(layer: nn.BatchNorm1d | nn.BatchNorm2d) -> dict[str, Any]:
    if layer.momentum is None:
        raise NotTraced("batch normalisation with momentum=None")
    return {"momentum": layer.momentum, "eps": layer.eps}


def _embedding(layer: nn.Embedding) -> dict[str, Any]:
    if layer.max_norm is not None or layer.scale_grad_by_freq or layer.sparse:
        raise NotTraced("an embedding changes its weights or gradients")
    return {"padding": layer.padding_idx}


def plain(value: Any) -> Any:
    """A tuple as a list, since programs are compared; anything else unchanged."""
    return list(value) if isinstance(value, tuple) else value


def _of(*names: str) -> Callable[[Any], dict[str, Any]]:
    return lambda layer: {name: plain(getattr(layer, name)) for name in names}


STATISTICS = ("weight", "bias", "running_mean", "running_var")
# A layer's class -> function, names of its tensors, options. Only these very classes: a derived one may compute
# something else.
LAYERS: dict[type[nn.Module], tuple[Function, tuple[str, ...], Callable[[Any], dict[str, Any]]]] = {
    nn.Linear: (functional.linear, ("weight", "bias"), _of()),
    nn.Conv2d: (functional.conv2d, ("weight", "bias"), _convolution),
    nn.GroupNorm: (group_norm, ("weight", "bias"), lambda layer: {"groups": layer.num_groups, "eps": layer.eps}),
    nn.LayerNorm: (
        layer_norm,
        ("weight", "bias"),
        lambda layer: {"shape": list(layer.normalized_shape), "eps": layer.eps},
    ),
    nn.Embedding: (embedding, ("weight",), _embedding),
    nn.BatchNorm1d: (batch_norm, STATISTICS, _normalisation),
    nn.BatchNorm2d: (batch_norm, STATISTICS, _normalisation),
    nn.MaxPool2d: (torch.max_pool2d, (), _pooling),
    nn.AvgPool2d: (
        functional.avg_pool2d,
        (),
        _of("kernel_size", "stride", "padding", "ceil_mode", "count_include_pad", "divisor_override"),
    ),
    nn.AdaptiveAvgPool2d: (functional.adaptive_avg_pool2d, (), _of("output_size")),
    nn.Flatten: (torch.flatten, (), _of("start_dim", "end_dim")),
    nn.Dropout: (dropout, (), _of("p")),
    nn.ReLU: (torch.relu, (), _of()),
    nn.LeakyReLU: (functional.leaky_relu, (), _of("negative_slope")),
    nn.ELU: (functional.elu, (), _of("alpha")),
    nn.GELU: (functional.gelu, (), _of("approximate")),
    nn.SiLU: (functional.silu, (), _of()),
    nn.Tanh: (torch.tanh, (), _of()),
    nn.Sigmoid: (torch.sigmoid, (), _of()),
}
# A function or method that users call -> the function of a program, and the names of its further arguments in order.
CALLS: dict[Any, tuple[Function, tuple[str, ...]]] = {
    torch.relu: (torch.relu, ()),
    functional.relu: (torch.relu, ("inplace",)),
    "relu": (torch.relu, ()),
    torch.tanh: (torch.tanh, ()),
    functional.tanh: (torch.tanh, ()),
    "tanh": (torch.tanh, ()),
    torch.sigmoid: (torch.sigmoid, ()),
    functional.sigmoid: (torch.sigmoid, ()),
    "sigmoid": (torch.sigmoid, ()),
    functional.leaky_relu: (functional.leaky_relu, ("negative_slope", "inplace")),
    functional.elu: (functional.elu, ("alpha", "inplace")),
    functional.gelu: (functional.gelu, ("approximate",)),
    functional.silu: (functional.silu, ("inplace",)),
    functional.max_pool2d: (
        torch.max_pool2d,
        ("kernel_size", "stride", "padding", "dilation", "ceil_mode", "return_indices"),
    ),
    functional.avg_pool2d: (
        functional.avg_pool2d,
        ("kernel_size", "stride", "padding", "ceil_mode", "count_include_pad", "divisor_override"),
    ),
    functional.adaptive_avg_pool2d: (functional.adaptive_avg_pool2d, ("output_size",)),
    torch.flatten: (torch.flatten, ("start_dim", "end_dim")),
    "flatten": (torch.flatten, ("start_dim", "end_dim")),
    functional.dropout: (dropout, ("p", "training", "inplace")),
}
ADDITIONS = (operator.add, operator.iadd, torch.add, "add", "add_")
COMMUTING = (torch.relu, functional.leaky_relu)  # with max-pooling, where a slope is not negative
