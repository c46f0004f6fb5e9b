"""Executors, which compute networks: linear layers in closed form, the usual layers fast, other modules by autograd."""

from typing import Literal

from torch import nn

from fedawe.core.errors import UserError
from fedawe.tasks.executors.autograd import Autograd
from fedawe.tasks.executors.base import Batch, Executor, Kept, Loss
from fedawe.tasks.executors.dense import Dense, dense_layers
from fedawe.tasks.executors.layers import Layers
from fedawe.tasks.executors.trace import traced
from fedawe.tasks.executors.usual import NotTraced
from fedawe.tasks.layout import Layout

__all__ = ["Batch", "Executor", "ExecutorName", "Kept", "Loss", "executor_of"]

ExecutorName = Literal["auto", "dense", "layers", "autograd"]


def executor_of(
    module: nn.Module, layout: Layout, loss: Loss, is_cross_entropy: bool, inputs: int, asked: ExecutorName = "auto"
) -> Executor:
    """The executor of a module for inputs of `inputs` dimensions: the one asked for, or the fastest that is possible.

    Refuses an executor that cannot compute the module, with the reason.
    """
    frozen = frozenset(layout.frozen)
    if frozen and all(entry.name in frozen for entry in layout.ordered if entry.kind == "parameter"):
        raise UserError("no parameter of the module has requires_grad=True; expected it for those to be trained")
    if asked == "autograd":
        return Autograd(module, layout, frozen, loss, "asked for")
    try:
        program = traced(module, layout, inputs)
    except NotTraced as reason:
        if asked != "auto":
            raise UserError(f"executor is {asked}, which cannot compute this module: {reason}") from None
        return Autograd(module, layout, frozen, loss, str(reason))
    plain = is_cross_entropy and not frozen and not layout.buffers
    layers = dense_layers(program, layout, inputs) if plain and asked != "layers" else None
    if layers is not None:
        return Dense(layers)
    if asked == "dense":
        raise UserError("executor is dense, but the module is not a chain of linear layers with cross-entropy")
    return Layers(program, layout, frozen, loss, is_cross_entropy)
