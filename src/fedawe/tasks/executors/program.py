"""A network as a list of functions of named parameters, computed in the layout that suits the processor."""

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional

Function = Callable[..., Any]
BLOCK = 16  # channels that oneDNN keeps together


@dataclass(frozen=True)
class Node:
    """One function of a program: what it takes, and the parameters, buffers and options it is given."""

    function: Function
    inputs: tuple[int, ...]  # value 0 is the input of the network, value n + 1 is what node n returns
    tensors: tuple[str | None, ...] = ()  # by their names in the layout; None where a layer has none
    options: Mapping[str, Any] = field(default_factory=dict)

    @property
    def trains(self) -> bool:
        """Whether the function differs between training and evaluation, and takes the argument `training`."""
        return "momentum" in self.options


def dropout(h: Tensor, p: float) -> Tensor:
    """Stands for dropout with probability p; the masks are drawn before a program runs."""
    del p
    return h


def group_norm(h: Tensor, weight: Tensor | None, bias: Tensor | None, groups: int, eps: float) -> Tensor:
    """Group normalisation with its parameters first, as every other layer has them."""
    if torch.is_grad_enabled() and not h.requires_grad:  # in channels_last, torch's backward pass would then crash
        h = h.contiguous()
    return functional.group_norm(h, groups, weight, bias, eps)


def batch_norm(
    h: Tensor,
    weight: Tensor | None,
    bias: Tensor | None,
    mean: Tensor | None,
    var: Tensor | None,
    momentum: float,
    eps: float,
    training: bool,
) -> Tensor:
    """Batch normalisation; without running statistics those of the batch are used in evaluation too."""
    if mean is not None and h.dtype != mean.dtype:  # under autocast; vmap wants one type
        wide = functional.batch_norm(h.to(mean.dtype), mean, var, weight, bias, training, momentum, eps)
        return wide.to(h.dtype)
    return functional.batch_norm(h, mean, var, weight, bias, training or mean is None, momentum, eps)


def add(a: Tensor, b: Tensor) -> Tensor:
    """a + b; in oneDNN's layout their shapes must be the same."""
    if a.is_mkldnn and a.shape != b.shape:
        a, b = a.to_dense(), b.to_dense()
    return a + b


def _can_follow(node: Node) -> bool:
    """Whether oneDNN can compute this in its own layout, if its inputs are in that layout."""
    if node.function is torch.max_pool2d:
        return node.options.get("dilation", 1) in (1, [1, 1])
    if node.function is batch_norm:
        return None not in node.tensors
    return node.function in (torch.relu, add)


def _converted(h: Tensor, to_blocks: bool) -> Tensor:
    if h.is_mkldnn == to_blocks:
        return h
    return h.to_mkldnn() if to_blocks else h.to_dense()


@dataclass(frozen=True)
class Program:
    """The nodes in an order in which they can be computed; the last one gives the output."""

    nodes: tuple[Node, ...]

    @cached_property
    def dropped(self) -> list[float]:
        """The probabilities of its dropout layers, in order."""
        return [node.options["p"] for node in self.nodes if node.function is dropout]

    @cached_property
    def last_uses(self) -> list[tuple[int, ...]]:
        """Which values no node needs after the n-th, so that their memory can be used again."""
        last = {value: n for n, node in enumerate(self.nodes) for value in node.inputs}
        return [tuple(value for value, use in last.items() if use == n) for n in range(len(self.nodes))]

    @cached_property
    def users(self) -> dict[int, list[int]]:
        """The nodes that take each value; values that no node takes are omitted."""
        users: dict[int, list[int]] = {}
        for n, node in enumerate(self.nodes):
            for value in node.inputs:
                users.setdefault(value, []).append(n)
        return users

    def replaced(self, ends: Mapping[int, Node], absorbed: Collection[int]) -> "Program":
        """The program with some nodes replaced, by number, and without the nodes `absorbed`."""
        out: list[Node] = []
        place = {0: 0}  # a value -> the same value in the new program
        for n, node in enumerate(self.nodes):
            if n in absorbed:
                continue
            node = ends.get(n, node)
            out.append(Node(node.function, tuple(place[value] for value in node.inputs), node.tensors, node.options))
            place[n + 1] = len(out)
        return Program(tuple(out))

    @cached_property
    def in_blocks(self) -> frozenset[int]:
        """The nodes that oneDNN computes in its own layout: convolutions, and what follows them and can be."""
        found: set[int] = set()
        for n, node in enumerate(self.nodes):
            if node.function is functional.conv2d or (
                _can_follow(node) and all(value - 1 in found for value in node.inputs)
            ):
                found.add(n)
        return frozenset(found)

    def suits_blocks(self, channels: Callable[[str], int]) -> bool:
        """Whether that layout is faster: whole blocks of 16 channels, and no conversions between the convolutions."""
        convolutions = [node for node in self.nodes if node.function is functional.conv2d]
        reached = {0, *(n + 1 for n in self.in_blocks)}
        return bool(convolutions) and all(
            node.inputs[0] in reached and node.tensors[0] is not None and channels(node.tensors[0]) % BLOCK == 0
            for node in convolutions
        )

    def run(
        self,
        inputs: Tensor,
        named: Mapping[str | None, Tensor | None],
        training: bool,
        drop: Callable[[Tensor], Tensor] | None = None,
        blocked: bool = False,
    ) -> Tensor:
        """The outputs for inputs [B, ...]. `drop` is called where there is dropout; without it nothing is dropped.

        `blocked` computes convolutions, and what follows them as far as possible, in oneDNN's own layout.
        """
        values: list[Any] = [inputs, *([None] * len(self.nodes))]
        for n, node in enumerate(self.nodes):
            given = [values[value] for value in node.inputs]
            function = node.function
            if blocked:
                given = [_converted(h, n in self.in_blocks) for h in given]
            if function is dropout:
                out = given[0] if drop is None else drop(given[0])
            else:
                mode = {"training": training} if node.trains else {}
                out = function(*given, *(named[name] for name in node.tensors), **node.options, **mode)
            values[n + 1] = out
            for value in self.last_uses[n]:
                values[value] = None
        out = values[-1]
        assert isinstance(out, Tensor)
        return out.to_dense() if out.is_mkldnn else out

    def dropout_shapes(self, inputs: Tensor, named: Mapping[str | None, Tensor | None]) -> list[torch.Size]:
        """The shapes [B, ...] of the inputs of its dropout layers."""
        found: list[torch.Size] = []

        def note(h: Tensor) -> Tensor:
            found.append(h.shape)
            return h

        with torch.no_grad():
            self.run(inputs, named, training=False, drop=note)
        return found
