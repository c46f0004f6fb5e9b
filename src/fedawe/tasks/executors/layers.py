"""The executor of modules made of the usual layers: by kernels, or in the memory layout that suits the processor."""

from collections.abc import Callable, Iterable, Sequence

import torch
from torch import Tensor
from torch.nn import functional

from fedawe.tasks.executors.base import Batch, Kept, Loss, masks, rounded_to
from fedawe.tasks.executors.chain import Chain
from fedawe.tasks.executors.differentiated import LIGHT, Differentiated, explained, step
from fedawe.tasks.executors.joining import CONVOLUTIONS, Joining
from fedawe.tasks.executors.program import Program, batch_norm, group_norm
from fedawe.tasks.executors.recurrent import by_kernels
from fedawe.tasks.executors.sequences import lstm
from fedawe.tasks.layout import Layout

LIGHT_KERNELS = 50_000  # used instead of LIGHT where kernels compute the convolutions of one client

Named = dict[str | None, Tensor | None]


class Layers(Differentiated):
    """One client on a CPU is computed without autograd, by this package's own kernels for all functions that have one.

    Networks whose convolutions have no kernels are computed in oneDNN's own blocked layout where that is faster, and in
    channels_last if they have group normalisation. Parameters are views of one vector, so that no gradient has to be
    flattened. Several clients run under vmap.
    """

    name, why = "layers", "made of the usual layers"

    def __init__(
        self, program: Program, layout: Layout, frozen: frozenset[str], loss: Loss, is_cross_entropy: bool = False
    ) -> None:
        super().__init__(layout, frozen, loss)
        self.is_cross_entropy = is_cross_entropy
        shapes = {entry.name: entry.shape for entry in layout.ordered}
        functions = {node.function for node in program.nodes}
        self.program, self.random, self.mixes = program, any(program.dropped), batch_norm in functions
        kernels = Joining(program, shapes).joined()
        self.joined = by_kernels(kernels or program) or kernels  # for one client on a CPU, in float32
        convolves = self.joined is not None and any(node.function in CONVOLUTIONS for node in self.joined.nodes)
        self.light = LIGHT_KERNELS if convolves else LIGHT
        self.blocks = not convolves and program.suits_blocks(lambda name: shapes[name][0])
        self.trained = frozenset(each.name for each in layout.ordered if each.kind == "parameter") - frozen
        self.chain = Chain(self.joined, self.trained) if self.joined is not None and not self.blocks else None
        self.channels_last = functional.conv2d in functions and group_norm in functions
        self.stackable = lstm not in functions  # torch would compute its clients one by one, and slower
        self.dropped: dict[torch.Size, list[torch.Size]] = {}  # shape of the inputs -> what dropout layers receive

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

    def gradients(self, x: Tensor, batch: Batch, kept: Kept) -> Tensor:
        inputs, targets, weights, seeds = batch
        if self.chain is None or (len(x) > 1 and self.stackable) or not _has_kernels(x):
            return super().gradients(x, batch, kept)
        drawn, g = self.draw(x, inputs, seeds), torch.zeros_like(x[:, : self.d])
        for n, row in enumerate(x):
            named = self._named(row[: self.d], row[self.d :])
            found = self._gradients(named, inputs[n], targets[n], weights[n], [mask[n] for mask in drawn])
            for name, place in self.layout.parts(g[n], "parameter").items():
                if name in found:  # the others have no part in the loss
                    place.copy_(found[name])
        return g

    def descend_alone(self, x: Tensor, batches: Iterable[Batch], rate: float) -> None:
        """The same for one client, with parameters that are views of x."""
        buffers = x[self.d :].clone()  # a copy, since autograd takes a change of x for a change of the weights
        named = self._named(x[: self.d].detach(), buffers)
        views = {name: one for name, one in named.items() if name in self.trained and one is not None}
        for inputs, targets, weights, seeds in batches:
            drawn = [mask[0] for mask in self.draw(x[None], inputs, seeds)]
            if self.chain is not None and _has_kernels(x):
                found = self._gradients(named, inputs[0], targets[0], weights[0], drawn)
                torch._foreach_sub_([views[name] for name in found], list(found.values()), alpha=rate)
                continue
            leaves: Named = {name: one.detach().requires_grad_() for name, one in views.items()}
            with torch.enable_grad():
                outputs = self._run(inputs[0], {**named, **leaves}, True, True, drawn)
                loss = self.weighted(outputs, targets[0], weights[0])
            step(loss, [one for one in leaves.values() if one is not None], rate)
        x[self.d :] = buffers

    def _gradients(
        self, named: Named, inputs: Tensor, targets: Tensor, weights: Tensor, drawn: Sequence[Tensor]
    ) -> dict[str, Tensor]:
        """The gradients of one client by kernels, without autograd; buffers change in place."""
        assert self.chain is not None
        with explained():
            outputs, backwards = self.chain.run(_channels_last(inputs), named, _dropping(drawn))
        if self.is_cross_entropy and outputs.ndim == 2:  # softmax(outputs) - 1 where the target is, weighted
            error = torch.softmax(outputs, 1)
            error.scatter_add_(1, targets[:, None], error.new_full((len(error), 1), -1.0))
            return self.chain.gradients(backwards, error.mul_(weights[:, None]))
        outputs = outputs.requires_grad_()
        with torch.enable_grad():
            loss = self.weighted(outputs, targets, weights)
        return self.chain.gradients(backwards, torch.autograd.grad(loss, outputs)[0])

    def _named(self, parameters: Tensor, buffers: Tensor) -> Named:
        """Views of both vectors by name; None for what a layer does not have."""
        named: Named = {None: None}
        named.update(self.layout.parts(parameters, "parameter"))
        named.update(self.layout.parts(buffers, "buffer"))
        return named

    def _run(self, inputs: Tensor, named: Named, training: bool, alone: bool, keep: Sequence[Tensor] = ()) -> Tensor:
        """The outputs. `alone`: of one client, so that the layout can be chosen; under vmap torch chooses it."""
        one = next(iter(each for each in named.values() if each is not None), inputs)
        single = alone and _has_kernels(one)
        program = self.joined if single and self.joined is not None else self.program
        blocked = single and self.blocks and torch.backends.mkldnn.is_available()
        if program is self.joined or (alone and self.channels_last):
            inputs = _channels_last(inputs)
        with explained():
            return program.run(inputs, named, training, _dropping(keep), blocked)


def _has_kernels(x: Tensor) -> bool:
    """Whether kernels, or oneDNN's layout, can be used with these parameters: neither supports autocast."""
    return x.device.type == "cpu" and x.dtype == torch.float32 and rounded_to(x) is None


def _channels_last(inputs: Tensor) -> Tensor:
    return inputs.contiguous(memory_format=torch.channels_last) if inputs.ndim == 4 else inputs


def _dropping(keep: Sequence[Tensor]) -> Callable[[Tensor], Tensor] | None:
    """A function that multiplies its argument by the next mask at every call; None if there are no masks."""
    if not keep:
        return None
    left = iter(keep)
    return lambda h: h * next(left)
