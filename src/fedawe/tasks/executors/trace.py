"""Translates an nn.Module into a program, by torch.fx."""

import copy
import operator
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import torch
from torch import fx, nn

from fedawe.tasks.executors.program import Function, Node, Program, add, dropout
from fedawe.tasks.executors.sequences import (
    add_parameter,
    attention,
    encoder,
    lstm,
    one_position_only,
    position,
    recurrent,
)
from fedawe.tasks.executors.usual import ADDITIONS, CALLS, COMMUTING, LAYERS, NotTraced, plain
from fedawe.tasks.layout import Layout


def traced(module: nn.Module, layout: Layout, inputs: int) -> Program:
    """The program of a module for inputs of `inputs` dimensions; raises `NotTraced` with a reason if there is none."""
    # A copy, since a forward method may assign to attributes of its module.
    programs = [_traced(copy.deepcopy(module).train(mode), layout, mode) for mode in (True, False)]
    if programs[0] != programs[1]:
        raise NotTraced("its forward method depends on `training`")
    return Program(tuple(one_position_only(pooled_first(programs[0].nodes), inputs)))


def _traced(module: nn.Module, layout: Layout, training: bool) -> Program:
    for part in module.modules():
        if part._forward_hooks or part._forward_pre_hooks or part._backward_hooks:
            raise NotTraced(f"{type(part).__name__} has hooks")
    try:
        graph = _Tracer().trace(module)
    except Exception as error:  # a forward method can raise any error on a tensor without values
        raise NotTraced(f"torch.fx cannot trace it ({str(error).splitlines()[0] if str(error) else error!r})") from None
    translation = _Translation(module, layout, training)
    for node in graph.nodes:
        translation.add(node)
    if translation.output != len(translation.nodes) or not translation.nodes:
        raise NotTraced("its output is not that of its last layer")
    return Program(tuple(translation.nodes))


class _Proxy(fx.Proxy):
    """Distinguishes `h += x`, which overwrites a tensor, from `h = h + x`."""

    def __iadd__(self, other: Any) -> fx.Proxy:
        return self.tracer.create_proxy("call_function", operator.iadd, (self, other), {})


class _Tracer(fx.Tracer):
    def proxy(self, node: fx.Node) -> fx.Proxy:
        return _Proxy(node, self)


class _Translation:
    """Translates the nodes of torch.fx into those of a program."""

    def __init__(self, module: nn.Module, layout: Layout, training: bool) -> None:
        self.module, self.training = module, training
        self.nodes: list[Node] = []
        self.values: dict[fx.Node, int] = {}
        self.shapes: set[fx.Node] = set()  # nodes that are the shape of a value
        self.batch: set[fx.Node] = set()  # nodes that are the number of samples
        self.parameters: dict[fx.Node, str] = {}  # nodes that are a parameter or buffer
        self.recurrent: dict[fx.Node, tuple[fx.Node, str]] = {}  # parts of the output of an LSTM -> LSTM, which part
        self.output = -1
        self.names = {entry.name: entry.name for entry in layout.ordered} | dict(layout.aliases)

    def add(self, node: fx.Node) -> None:
        if node.op == "placeholder":
            if self.values:
                raise NotTraced("it takes more than one input")
            self.values[node] = 0
        elif node.op == "output":
            if node.args[0] not in self.values:
                raise NotTraced("it does not return one tensor")
            self.output = self.values[node.args[0]]  # type: ignore[index]
        elif node.op == "call_module":
            self._layer(node)
        elif node.op in ("call_function", "call_method"):
            self._call(node)
        elif node.op == "get_attr" and node.target in self.names:
            self.parameters[node] = self.names[str(node.target)]
        else:
            raise NotTraced(f"it uses {node.target} outside of a layer")

    def _append(self, node: fx.Node, function: Function, inputs: Sequence[Any], *more: Any) -> None:
        self.nodes.append(Node(function, tuple(self._value(node, each) for each in inputs), *more))
        self.values[node] = len(self.nodes)

    def _value(self, node: fx.Node, given: Any) -> int:
        """The number of a value that is an argument of a node."""
        if not isinstance(given, fx.Node) or given not in self.values:
            raise NotTraced(f"{_name(node.target)} takes something else than a tensor that was computed")
        return self.values[given]

    def _layer(self, node: fx.Node) -> None:
        path, layer = str(node.target), self.module.get_submodule(str(node.target))
        if len(node.args) != 1 or node.kwargs:
            raise NotTraced(f"{path} takes more than one input")
        if any(part.training != self.training for part in layer.modules()):
            raise NotTraced(f"{path} does not follow `training`")
        if type(layer) is nn.Identity:
            self.values[node] = self._value(node, node.args[0])
        elif type(layer) is nn.LSTM:
            found = recurrent(layer)
            if isinstance(found, str):
                raise NotTraced(found)
            self._append(node, lstm, node.args, self._named(path, layer, found[0]), found[1])
            self.recurrent[node] = (node, "both")
        elif type(layer) is nn.TransformerEncoder:
            self._encoder(node, path, layer)
        else:
            if getattr(layer, "inplace", False):
                self._check_in_place(node)
            self._append(node, *self._known(path, layer, node.args))

    def _known(self, path: str, layer: nn.Module, inputs: Sequence[Any]) -> tuple[Any, ...]:
        """The function of a layer, its inputs, its tensors and options."""
        if type(layer) not in LAYERS:
            raise NotTraced(f"{path} is a {type(layer).__name__}")
        function, names, options = LAYERS[type(layer)]
        return function, inputs, self._named(path, layer, names), options(layer)

    def _named(self, path: str, layer: nn.Module, names: Sequence[str]) -> tuple[str | None, ...]:
        return tuple(None if getattr(layer, name) is None else self.names[f"{path}.{name}"] for name in names)

    def _encoder(self, node: fx.Node, path: str, layer: nn.TransformerEncoder) -> None:
        """Adds every part of the encoder as a node of its own."""
        parts = encoder(layer)
        if isinstance(parts, str):
            raise NotTraced(parts)
        values = [self._value(node, node.args[0])]
        for what, of, at in parts:
            inputs = tuple(values[each] for each in of)
            if isinstance(what, nn.MultiheadAttention):
                names = self._named(f"{path}.{at}", what, ("in_proj_weight", "in_proj_bias"))
                names += self._named(f"{path}.{at}.out_proj", what.out_proj, ("weight", "bias"))
                made = Node(attention, inputs, names, {"heads": what.num_heads})
            elif isinstance(what, nn.Module):
                made = Node(*self._known(f"{path}.{at}", what, inputs))
            elif what is add:
                made = Node(add, inputs)
            else:
                if what not in CALLS:
                    raise NotTraced(f"{path} calls {_name(what)}")
                made = Node(CALLS[what][0], inputs)
            self.nodes.append(made)
            values.append(len(self.nodes))
        self.values[node] = values[-1]

    def _call(self, node: fx.Node) -> None:
        target: Any = node.target
        if target == "contiguous":
            self.values[node] = self._value(node, node.args[0])
        elif target is operator.getitem and node.args[0] in self.recurrent:
            self._recurrent(node)
        elif target is operator.getitem and _is_position(node.args[1]):
            self._append(node, position, node.args[:1], (), {"index": node.args[1][1]})  # type: ignore[index]
        elif target in ("size", getattr, operator.getitem) or target in ("view", "reshape", torch.reshape):
            self._shape(node)
        elif target in ADDITIONS:
            if len(node.args) != 2 or node.kwargs:
                raise NotTraced("an addition has a factor")
            if target in (operator.iadd, "add_"):
                self._check_in_place(node)
            own = tuple(self.parameters[each] for each in node.args if each in self.parameters)  # type: ignore[index]
            others = [each for each in node.args if each not in self.parameters]
            if not others:
                raise NotTraced("it adds two of its parameters")
            self._append(node, add_parameter if own else add, others, own)
        else:
            in_place = isinstance(target, str) and target.endswith("_")
            known = CALLS.get(target[:-1] if in_place else target)
            if known is None:
                raise NotTraced(f"it calls {_name(target)}")
            function, names = known
            options = dict(zip(names, node.args[1:], strict=False)) | dict(node.kwargs)
            if options.pop("inplace", False) or in_place:
                self._check_in_place(node)
            if options.pop("return_indices", False):
                raise NotTraced("a pooling layer returns indices")
            if function is dropout:
                if options.pop("training", True) != self.training:
                    raise NotTraced("dropout does not follow `training`")
                options.setdefault("p", 0.5)
            if function is torch.max_pool2d and options.get("stride") is None:  # oneDNN's backward pass wants it said
                options["stride"] = options["kernel_size"]
            self._append(node, function, node.args[:1], (), {name: plain(each) for name, each in options.items()})

    def _recurrent(self, node: fx.Node) -> None:
        """Translates a part of what an LSTM returns, (outputs, (h, c)): outputs, or h[-1], their last position."""
        assert isinstance(node.args[0], fx.Node)
        source, part = self.recurrent[node.args[0]]
        one_way = not self.nodes[self.values[source] - 1].options["both"]
        if (part, node.args[1]) == ("both", 0):
            self.values[node] = self.values[source]
        elif (part, node.args[1]) in (("both", 1), ("state", 0)):
            self.recurrent[node] = (source, "state" if part == "both" else "h")
        elif (part, node.args[1]) == ("h", -1) and one_way:
            self._append(node, position, [source], (), {"index": -1})
        elif node.users:
            raise NotTraced("it uses the state of an LSTM in another way than h[-1]")

    def _shape(self, node: fx.Node) -> None:
        """Translates x.size(0), x.shape[0], and views that do not mix samples."""
        target, arguments = node.target, list(node.args)
        sized = target == "size" and arguments[1:] == [0]
        shaped = target is getattr and arguments[1] == "shape"
        picked = target is operator.getitem and arguments[0] in self.shapes and arguments[1] == 0
        if shaped:
            self.shapes.add(node)
        elif sized or picked:
            self.batch.add(node)
        elif target in ("view", "reshape", torch.reshape):
            shape = arguments[1] if len(arguments) == 2 and isinstance(arguments[1], tuple | list) else arguments[1:]
            kept = [-1 if each in self.batch else each for each in shape]
            if len(kept) == 2 and kept == [-1, -1]:
                self._append(node, torch.flatten, arguments[:1], (), {"start_dim": 1, "end_dim": -1})
            elif kept[:1] == [-1] and all(isinstance(each, int) and each > 0 for each in kept[1:]):
                self._append(node, torch.reshape, arguments[:1], (), {"shape": kept})
            else:
                raise NotTraced("it reshapes samples together")
        else:
            raise NotTraced(f"it calls {_name(target)}")

    def _check_in_place(self, node: fx.Node) -> None:
        """Refuses an operation in place whose old value is used elsewhere: a program makes a new tensor instead."""
        at = self._value(node, node.args[0])
        same = {each for each, value in self.values.items() if value == at}  # such as h and h.contiguous()
        users = {user for each in same for user in each.users} - same - {node}
        used = any(user.users or user.op == "output" for user in users)
        views = (torch.flatten, torch.reshape, dropout)
        if used or at == 0 or self.nodes[at - 1].function in views:
            raise NotTraced(f"{_name(node.target)} overwrites a tensor that is used elsewhere")


def _name(target: Any) -> str:
    """The name of a function, method or layer, for messages."""
    return str(getattr(target, "__name__", target))


def _is_position(index: Any) -> bool:
    """Whether x[index] is x[:, n]."""
    return isinstance(index, tuple) and len(index) == 2 and index[0] == slice(None) and isinstance(index[1], int)


def pooled_first(nodes: Sequence[Node]) -> list[Node]:
    """Moves max-pooling before ReLU: they commute, and ReLU then has fewer numbers to compute."""
    out = list(nodes)
    uses = [value for node in nodes for value in node.inputs]
    for n, node in enumerate(nodes):
        first = out[node.inputs[0] - 1] if node.inputs[0] else None
        if node.function is not torch.max_pool2d or first is None or first.function not in COMMUTING:
            continue
        if uses.count(node.inputs[0]) == 1 and first.options.get("negative_slope", 0.01) >= 0:
            out[node.inputs[0] - 1] = replace(node, inputs=first.inputs)
            out[n] = replace(first, inputs=node.inputs)
    return out
