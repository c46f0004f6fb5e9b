"""The executor of modules that are not made of the usual layers: their own forward methods, by autograd."""

import copy
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor, nn
from torch.func import functional_call

from fedawe.tasks.executors.base import Batch, Kept, Loss
from fedawe.tasks.executors.differentiated import Differentiated, explained, step
from fedawe.tasks.layout import Layout


class Autograd(Differentiated):
    """The module's own forward method, with parameters that are views of one vector.

    Buffers that are not in the vector (`num_batches_tracked`, and those that are not in the `state_dict`) are kept for
    one client's round only: every round begins with the values in the module. Random numbers of the module are drawn
    under a seed. A forward method may let the samples of a batch influence each other.
    """

    name, random, mixes = "autograd", True, True

    def __init__(self, module: nn.Module, layout: Layout, frozen: frozenset[str], loss: Loss, why: str) -> None:
        super().__init__(layout, frozen, loss)
        self.module, self.why = module, why
        self.own: nn.Module | None = None  # a copy that is trained

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "own": None}

    def outputs(self, x: Tensor, inputs: Tensor) -> Tensor:
        self.module.eval()
        named = {**self.fresh(x), **self.layout.tensors(x)}
        parameters = self.layout.parts(x[: self.d], "parameter")
        own = {name: tensor if name in parameters else tensor.clone() for name, tensor in named.items()}
        with self.seeded(0, x.device), torch.no_grad():  # a module may draw random numbers in evaluation too
            outputs: Tensor = functional_call(self.module, own, (inputs,))
        return outputs

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
        del drawn, alone
        self.module.train()
        own = self.layout.tensors(torch.cat([parameters, buffers]) if self.b else parameters)
        own.update({name: own[name].detach() for name in self.frozen})
        own.update({name: own[name].detach().clone() for name in self.buffers})
        own.update({name: tensor.clone() for name, tensor in kept.items()})
        with explained():
            outputs = functional_call(self.module, own, (inputs,))
        after = [own[name].detach().reshape(-1).to(buffers.dtype) for name in self.buffers]
        changed = (torch.cat(after) if after else buffers, {name: own[name].detach() for name in kept})
        return self.weighted(outputs, targets, weights), changed

    def fresh(self, x: Tensor) -> Kept:
        """The buffers that are not in x."""
        held = set(self.buffers)
        return {name: one.to(x.device) for name, one in self.module.named_buffers() if name not in held}

    def draw(self, x: Tensor, inputs: Tensor, seeds: Sequence[int] | None) -> list[Tensor]:
        del x, inputs, seeds
        return []

    @contextmanager
    def seeded(self, seed: int, device: torch.device) -> Iterator[None]:
        with torch.random.fork_rng(devices=[device] if device.type == "cuda" else []):
            # On the CPU only its own generator: torch.manual_seed would also initialise those of all other devices.
            (torch.default_generator if device.type == "cpu" else torch).manual_seed(seed)
            yield

    def descend_alone(self, x: Tensor, batches: Iterable[Batch], rate: float) -> None:
        """The same for one client: for a round, the parameters of a copy of the module are views of x."""
        module = self.own = copy.deepcopy(self.module) if self.own is None else self.own
        module.train()
        fresh, parameters = self.fresh(x), dict(module.named_parameters())
        places = {name: module.get_submodule(name.rpartition(".")[0]) for name in [*self.buffers, *fresh]}
        for name, view in self.layout.parts(x[: self.d], "parameter").items():
            parameters[name].data = view.detach()
        for name, view in {**self.layout.parts(x[self.d :], "buffer"), **fresh}.items():
            places[name]._buffers[name.rpartition(".")[2]] = view.clone()
        trained = [parameter for name, parameter in parameters.items() if name not in self.frozen]
        with torch.random.fork_rng(devices=[x.device] if x.is_cuda else []):
            for inputs, targets, weights, seeds in batches:
                torch.manual_seed(0 if seeds is None else seeds[0])
                with explained(), torch.enable_grad():
                    loss = self.weighted(module(inputs[0]), targets[0], weights[0])
                step(loss, trained, rate)
                for name in self.buffers:  # a buffer that was replaced by another tensor has an autograd history
                    places[name]._buffers[name.rpartition(".")[2]] = module.get_buffer(name).detach()
        for name, view in self.layout.parts(x[self.d :], "buffer").items():
            view.copy_(module.get_buffer(name))
