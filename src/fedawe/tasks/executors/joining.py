"""Chooses the functions of a program that kernels of this package compute: alone, or several of them joined."""

from collections.abc import Mapping, Sequence

import torch
from torch.nn import functional

from fedawe.tasks.executors.convolved import convolved
from fedawe.tasks.executors.kernels.vectors import LANES, has_kernel, suits
from fedawe.tasks.executors.linear import linear
from fedawe.tasks.executors.normalised import NORMALISATIONS
from fedawe.tasks.executors.pooled import convolved_pooled
from fedawe.tasks.executors.program import Node, Program, add

Shapes = Mapping[str, Sequence[int]]
CONVOLUTIONS = (convolved, convolved_pooled)


class Joining:
    """Replaces chains of nodes, each by one node in the place of its last one."""

    def __init__(self, program: Program, shapes: Shapes) -> None:
        self.program, self.nodes, self.shapes = program, program.nodes, shapes
        self.ends: dict[int, Node] = {}  # the number of the last node of a chain -> what takes the place of the chain
        self.absorbed: set[int] = set()

    def joined(self) -> Program | None:
        """The program with kernels for all functions that have one; None if none has."""
        for n, node in enumerate(self.nodes):
            if node.function is functional.conv2d:
                self._convolution(n)
            elif node.function in NORMALISATIONS:
                self._normalisation(n)
            elif node.function is functional.linear and _has_columns(node, self.shapes):
                self.ends[n] = Node(linear, node.inputs, node.tensors)
        return self.program.replaced(self.ends, self.absorbed) if self.ends else None

    def _next(self, n: int) -> int | None:
        """The only node that takes the output of node n; None if there is none, or more than one."""
        users = self.program.users.get(n + 1, [])
        return users[0] if len(users) == 1 else None

    def _replace(self, chain: Sequence[int], node: Node) -> None:
        self.absorbed.update(chain[:-1])
        self.ends[chain[-1]] = node

    def _ending(self, n: int) -> tuple[bool, list[int]]:
        """Whether only a ReLU takes the output of node n; and a list of the number of that ReLU, or of nothing."""
        after = self._next(n)
        relu = after is not None and self.nodes[after].function is torch.relu
        return relu, [after] if relu and after is not None else []

    def _convolution(self, n: int) -> None:
        node, after = self.nodes[n], self._next(n)
        stride, padding = node.options["stride"], tuple(node.options["padding"])
        if node.tensors[0] is None or node.options["groups"] != 1 or {*node.options["dilation"]} != {1}:
            return
        outputs, inputs, rows, columns = self.shapes[node.tensors[0]]
        first, pool = node.inputs[0] == 0, self.nodes[after] if after is not None else None
        k = _side(pool) if pool is not None and pool.function is torch.max_pool2d else None
        if k is not None and after is not None and {*stride} == {1} and suits(inputs, outputs, rows, columns, first):
            relu, end = self._ending(after)
            options = {"padding": padding, "k": k, "relu": relu}
            self._replace([n, after, *end], Node(convolved_pooled, node.inputs, node.tensors, options))
        elif stride[0] == stride[1] and has_kernel(inputs, outputs, rows, columns, first):
            options = {"stride": stride[0], "padding": padding}
            self._replace([n], Node(convolved, node.inputs, node.tensors, options))

    def _normalisation(self, n: int) -> None:
        """Joins the normalisation of a convolution's output with a ReLU after it, or with an addition and a ReLU."""
        node = self.nodes[n]
        source = self.nodes[node.inputs[0] - 1] if node.inputs[0] else None
        if source is None or source.function is not functional.conv2d or None in node.tensors:
            return
        if self.shapes[str(node.tensors[0])][0] % LANES:
            return
        inputs, chain, after = node.inputs, [n], self._next(n)
        if after is not None and self.nodes[after].function is add and after not in self.ends:
            others = [value for value in self.nodes[after].inputs if value != n + 1]
            if len(others) == 1:
                inputs, chain = (*inputs, others[0]), [n, after]
        relu, end = self._ending(chain[-1])
        if len(chain) > 1 and (chain[-1] in self.absorbed or any(each in self.ends for each in end)):
            inputs, chain, relu, end = node.inputs, [n], False, []  # another normalisation has taken the addition
        options = {**node.options, "relu": relu}
        self._replace([*chain, *end], Node(NORMALISATIONS[node.function], inputs, node.tensors, options))


def _has_columns(node: Node, shapes: Shapes) -> bool:
    """Whether this is a linear layer with weights of its own, whose rows are whole vectors."""
    return len(node.inputs) == 1 and node.tensors[0] is not None and shapes[node.tensors[0]][1] % LANES == 0


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
