"""The gradient of a program without autograd: the backward pass of each function, by a rule of its own if it has one.

With the small networks and batches of federated learning, autograd itself takes as long as the products.
"""

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any

import torch
from torch import Tensor

from fedawe.tasks.executors.convolved import Convolved, convolved
from fedawe.tasks.executors.linear import Linear, linear
from fedawe.tasks.executors.normalised import Normalised, batch_normalised, fits, group_normalised
from fedawe.tasks.executors.pooled import ConvolvedPooled, convolved_pooled
from fedawe.tasks.executors.program import Node, Program, add, dropout

Named = Mapping[str | None, Tensor | None]
Drop = Callable[[Tensor], Tensor] | None
Gradients = Sequence[Tensor | None]  # of the values that a node takes, then of its tensors
Backward = Callable[[Tensor], Gradients]  # from the gradient of what a node returns


class Step:
    """What a function of a program saves for its backward pass, in the place of the context of an autograd function."""

    def __init__(self, needs: tuple[bool, ...]) -> None:
        self.needs_input_grad, self.saved_tensors = needs, tuple[Tensor, ...]()

    def save_for_backward(self, *tensors: Tensor) -> None:
        self.saved_tensors = tensors

    def mark_non_differentiable(self, *tensors: Tensor) -> None:
        """Does nothing, since the gradients of these tensors are never computed."""


def _by(function: Any) -> Callable[..., tuple[Tensor, Backward]]:
    """The rule of an autograd function whose first arguments are values and tensors, and whose others are options."""

    def rule(step: Step, node: Node, given: Sequence[Any]) -> tuple[Tensor, Backward]:
        out: Tensor = function.forward(step, *given, *node.options.values())
        return out, lambda g: function.backward(step, g)[: len(given)]

    return rule


def _normalised(step: Step, node: Node, given: Sequence[Any]) -> tuple[Tensor, Backward]:
    mode, values = {"training": True} if node.trains else {}, len(node.inputs)
    if not fits(given[0], given[values], given[1:values]):
        return _any(step, node, given)
    out = node.function(*given, **node.options, **mode, apply=partial(Normalised.forward, step))

    def backward(g: Tensor) -> Gradients:
        gx, gadded, gweight, gbias, *_ = Normalised.backward(step, g)
        return [*[gx, gadded][:values], gweight, gbias]

    return out, backward


def _linear(step: Step, _: Node, given: Sequence[Any]) -> tuple[Tensor, Backward]:
    h, weight, bias = given
    out = Linear.forward(step, h.reshape(-1, h.shape[-1]), weight, bias)

    def backward(g: Tensor) -> Gradients:
        gx, gweight, gbias = Linear.backward(step, g.reshape(-1, g.shape[-1]))
        return [None if gx is None else gx.view(h.shape), gweight, gbias]

    return out.view(*h.shape[:-1], -1), backward


def _relu(_: Step, __: Node, given: Sequence[Any]) -> tuple[Tensor, Backward]:
    out = torch.relu(given[0])
    return out, lambda g: [torch.ops.aten.threshold_backward(g, out, 0)]


def _flatten(_: Step, node: Node, given: Sequence[Any]) -> tuple[Tensor, Backward]:
    shape = given[0].shape
    return torch.flatten(given[0], **node.options), lambda g: [g.view(shape)]


def _add(step: Step, node: Node, given: Sequence[Any]) -> tuple[Tensor, Backward]:
    if given[0].shape != given[1].shape:
        return _any(step, node, given)
    return given[0] + given[1], lambda g: [g, g]


def _any(step: Step, node: Node, given: Sequence[Any]) -> tuple[Tensor, Backward]:
    """The rule of all other functions: autograd of this function alone."""
    needs, mode = step.needs_input_grad, {"training": True} if node.trains else {}
    own = [
        each.detach().requires_grad_() if wanted and each is not None else each
        for each, wanted in zip(given, needs, strict=True)
    ]
    asked = [n for n, wanted in enumerate(needs) if wanted and own[n] is not None]
    with torch.enable_grad():
        out: Tensor = node.function(*own, **node.options, **mode)

    def backward(g: Tensor) -> Gradients:
        found = torch.autograd.grad(out, [own[n] for n in asked], g, allow_unused=True)
        return [found[asked.index(n)] if n in asked else None for n in range(len(own))]

    return out.detach(), backward


RULES: Mapping[Any, Callable[[Step, Node, Sequence[Any]], tuple[Tensor, Backward]]] = {
    convolved: _by(Convolved),
    convolved_pooled: _by(ConvolvedPooled),
    linear: _linear,
    group_normalised: _normalised,
    batch_normalised: _normalised,
    torch.relu: _relu,
    torch.flatten: _flatten,
    add: _add,
}


class Chain:
    """A program whose parameters `trained` get gradients."""

    def __init__(self, program: Program, trained: frozenset[str]) -> None:
        self.program = program
        self.needs: list[tuple[bool, ...]] = []  # of each node: whether values and tensors get gradients
        wanted = [False]
        for node in program.nodes:
            needs = [wanted[value] for value in node.inputs] + [name in trained for name in node.tensors]
            self.needs.append(tuple(needs))
            wanted.append(any(needs))

    def run(self, inputs: Tensor, named: Named, drop: Drop) -> tuple[Tensor, list[Backward | None]]:
        """The outputs in training, and the backward pass of each node; None if the node needs none."""
        values: list[Any] = [inputs, *([None] * len(self.needs))]
        backwards = list[Backward | None]()
        with torch.no_grad():
            for n, (node, needs) in enumerate(zip(self.program.nodes, self.needs, strict=True)):
                given = [values[value] for value in node.inputs]
                backward: Backward
                if node.function is dropout:
                    mask = drop(torch.ones_like(given[0])) if drop is not None else torch.ones(())
                    out, backward = given[0] * mask, partial(_masked, mask)
                else:
                    rule = RULES.get(node.function, _any)
                    out, backward = rule(Step(needs), node, [*given, *(named[name] for name in node.tensors)])
                values[n + 1] = out
                backwards.append(backward if any(needs) else None)
                for value in self.program.last_uses[n]:
                    values[value] = None
        out = values[-1]
        assert isinstance(out, Tensor)
        return out, backwards

    def gradients(self, backwards: list[Backward | None], g: Tensor) -> dict[str, Tensor]:
        """The gradients of the trained parameters from that of the outputs; empties `backwards`."""
        errors: dict[int, Tensor] = {len(backwards): g}
        found: dict[str, Tensor] = {}
        with torch.no_grad():
            for n in reversed(range(len(backwards))):
                backward, error, node = backwards.pop(), errors.pop(n + 1, None), self.program.nodes[n]
                if backward is None or error is None:
                    continue
                names = [*node.inputs, *node.tensors]
                for name, wanted, each in zip(names, self.needs[n], backward(error), strict=False):
                    if wanted and each is not None:
                        place: dict[Any, Tensor] = found if isinstance(name, str) else errors
                        place[name] = place[name] + each if name in place else each
        return found


def _masked(mask: Tensor, g: Tensor) -> Gradients:
    return [g * mask]
