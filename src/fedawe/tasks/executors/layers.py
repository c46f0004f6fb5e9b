"""A program of the usual layers: pooling before ReLU, the layout that suits the processor, parameters as views."""

from collections.abc import Callable, Iterable, Sequence

import torch
from torch import Tensor
from torch.nn import functional

from fedawe.tasks.executors.base import Batch, Kept, Loss, masks, rounded_to
from fedawe.tasks.executors.differentiated import Differentiated, explained, step
from fedawe.tasks.executors.pooled import joined
from fedawe.tasks.executors.program import Program, group_norm
from fedawe.tasks.executors.recurrent import by_kernels
from fedawe.tasks.executors.sequences import lstm
from fedawe.tasks.layout import Layout

Named = dict[str | None, Tensor | None]


class Layers(Differentiated):
    """Convolutions joined with the pooling and ReLU that follow them; else in oneDNN's own blocked layout where that
    pays, and in channels_last beside group normalisation.

    Parameters are views of one vector, so that a step makes no flat gradient. Several clients run under vmap.
    """

    name, why = "layers", "made of the usual layers"

    def __init__(self, program: Program, layout: Layout, frozen: frozenset[str], loss: Loss) -> None:
        super().__init__(layout, frozen, loss)
        shapes = {entry.name: entry.shape for entry in layout.ordered}
        functions = {node.function for node in program.nodes}
        self.program, self.random = program, any(program.dropped)
        pooled = joined(program, shapes)
        self.joined = by_kernels(pooled or program) or pooled  # for one client on a processor, in float32
        self.blocks = pooled is None and program.suits_blocks(lambda name: shapes[name][0])
        self.channels_last = functional.conv2d in functions and group_norm in functions
        self.stackable = lstm not in functions  # torch would compute its clients one by one, and slower
        self.dropped: dict[torch.Size, list[torch.Size]] = {}  # shape of the inputs -> what its dropout layers receive

    def outputs(self, x: Tensor, inputs: Tensor) -> Tensor:
        named = self._named(x[: self.d], x[self.d :])
        with torch.no_grad():
            return self._run(inputs, named, training=False, alone=True)

    def loss(
        self,
        parameters: Tensor,
        buffers: Tensor,
        kept: Kept,
        inputs: Tensor,
        targets: Tensor,
        weights: Tensor,
        *drawn: Tensor,
        alone: bool,
    ) -> tuple[Tensor, tuple[Tensor, Kept]]:
        del kept
        named = self._named(parameters, buffers)
        own = {name: one.clone() for name, one in self.layout.parts(buffers, "buffer").items()}
        named.update(own)
        named.update({name: named[name].detach() for name in self.frozen})  # type: ignore[union-attr]
        loss = self.weighted(self._run(inputs, named, True, alone, drawn), targets, weights)
        return loss, (torch.cat([one.reshape(-1) for one in own.values()]) if own else buffers, {})

    def fresh(self, x: Tensor) -> Kept:
        del x
        return {}

    def draw(self, x: Tensor, inputs: Tensor, seeds: Sequence[int] | None) -> list[Tensor]:
        """The masks of the dropout layers."""
        if not self.random:
            return []
        shape = inputs.shape[1:]
        if shape not in self.dropped:
            row = x[0].detach()
            self.dropped[shape] = self.program.dropout_shapes(inputs[0], self._named(row[: self.d], row[self.d :]))
        return masks(self.dropped[shape], self.program.dropped, seeds, inputs)

    def descend_alone(self, x: Tensor, batches: Iterable[Batch], rate: float) -> None:
        """Layer by layer, on views of x."""
        buffers = x[self.d :].clone()  # apart, since a change of x would be a change of the weights to autograd
        named = self._named(x[: self.d].detach(), buffers)
        trained = []
        for entry in self.layout.ordered:
            view = named[entry.name]
            if entry.kind == "parameter" and entry.name not in self.frozen and view is not None:
                trained.append(view.detach().requires_grad_())
                named[entry.name] = trained[-1]
        for inputs, targets, weights, seeds in batches:
            drawn = [mask[0] for mask in self.draw(x[None], inputs, seeds)]
            with torch.enable_grad():
                outputs = self._run(inputs[0], named, True, True, drawn)
                loss = self.weighted(outputs, targets[0], weights[0])
            step(loss, trained, rate)
        x[self.d :] = buffers

    def _named(self, parameters: Tensor, buffers: Tensor) -> Named:
        """Views of both vectors by name; None for what a layer does not have."""
        named: Named = {None: None}
        named.update(self.layout.parts(parameters, "parameter"))
        named.update(self.layout.parts(buffers, "buffer"))
        return named

    def _run(self, inputs: Tensor, named: Named, training: bool, alone: bool, keep: Sequence[Tensor] = ()) -> Tensor:
        """`alone`: one client, so that the layout can be chosen; under vmap torch chooses it."""
        # Neither our kernels nor oneDNN's layout know the rounded numbers of autocast.
        single = alone and inputs.device.type == "cpu" and rounded_to(inputs) is None and _in_float32(inputs, named)
        program = self.joined if single and self.joined is not None else self.program
        blocked = single and self.blocks and inputs.is_floating_point() and torch.backends.mkldnn.is_available()
        if inputs.ndim == 4 and (program is self.joined or (alone and self.channels_last)):
            inputs = inputs.contiguous(memory_format=torch.channels_last)
        with explained():
            return program.run(inputs, named, training, _dropping(keep), blocked)


def _in_float32(inputs: Tensor, named: Named) -> bool:
    """Whether parameters and inputs are float32; inputs may be whole numbers, which an embedding reads."""
    floats = (each for each in (inputs, *named.values()) if each is not None and each.is_floating_point())
    return all(each.dtype == torch.float32 for each in floats)


def _dropping(keep: Sequence[Tensor]) -> Callable[[Tensor], Tensor] | None:
    """Multiplies by one mask after the other."""
    if not keep:
        return None
    left = iter(keep)
    return lambda h: h * next(left)
