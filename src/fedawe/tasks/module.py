"""Any torch.nn.Module as a network: a function of one flat vector of its parameters and buffers."""

from collections.abc import Callable, Sequence

import torch
from torch import Tensor, nn
from torch.func import functional_call, grad, vmap
from torch.nn.modules.batchnorm import _BatchNorm

from fedawe.core.errors import UserError
from fedawe.core.rng import rng
from fedawe.tasks.layout import Layout
from fedawe.tasks.networks import Loss, cross_entropy

Kept = dict[str, Tensor]


class ModuleNetwork:
    """Any torch.nn.Module as a network: `make()` builds it, `loss(outputs, targets)` gives one loss per sample.

    Trained with autograd, one client after another or several under `vmap`. Floating-point buffers, such as the running
    statistics of batch normalisation, are the last numbers of x [d + b]: training updates them and evaluation uses
    them. Other buffers (`num_batches_tracked`, and those that are not in the `state_dict`) live for one client's round:
    they begin every round as `make` left them. A parameter with `requires_grad=False` is not trained. Whatever the
    module draws while it trains (dropout) is drawn under a seed named by (seed, t, client).
    """

    stacked = False
    random = True

    def __init__(self, make: Callable[[], nn.Module], loss: Loss = cross_entropy) -> None:
        self.make, self.per_sample, self.module = make, loss, make()
        self.layout = Layout.of(self.module)
        self.d = self.layout.parameters
        named = dict(self.module.named_parameters())
        self.parameters = [entry.name for entry in self.layout.ordered if entry.kind == "parameter"]
        self.buffers = [entry.name for entry in self.layout.ordered if entry.kind == "buffer"]
        self.frozen = {name for name in self.parameters if not named[name].requires_grad}
        self.stackable = True  # until `vmap` says otherwise
        # Whether the samples of a batch have an influence on each other.
        self.mixes = bool(self.buffers) or any(isinstance(part, _BatchNorm) for part in self.module.modules())

    def initial(self, seed: int) -> Tensor:
        """The vector of a module built under a seed of its own, [d + b]; the global random state is left alone."""
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(int(rng(seed, "init").integers(2**63)))
            return self.layout.vector(self.make().state_dict())

    def loss(self, outputs: Tensor, targets: Tensor) -> Tensor:
        """The user's loss of each sample, [B]."""
        loss = self.per_sample(outputs, targets)
        if loss.shape != targets.shape[:1]:
            raise UserError(
                f"loss gives a tensor of shape {list(loss.shape)} for {len(targets)} samples; expected one loss per "
                "sample, as with reduction='none'"
            )
        return loss

    def outputs(self, x: Tensor, inputs: Tensor) -> Tensor:
        """What the module says in evaluation mode, with the buffers in x [d + b]; [N, ...]."""
        self.module.eval()
        own = {
            name: tensor.clone() if name in self.buffers else tensor for name, tensor in self.layout.tensors(x).items()
        }
        with torch.no_grad():
            outputs: Tensor = functional_call(self.module, {**self._fresh(x), **own}, (inputs,))
        return outputs

    def gradients(
        self,
        x: Tensor,
        inputs: Tensor,
        targets: Tensor,
        weights: Tensor,
        seeds: Sequence[int] | None = None,
        kept: Kept | None = None,
    ) -> Tensor:
        """The gradient by autograd in training mode, [k, d]; the buffers in x [k, d + b] are updated in place.

        `kept` holds the other buffers from step to step of a round; it is empty before the first.
        """
        self.module.train()
        kept = {} if kept is None else kept
        if not kept:
            kept.update({name: tensor.expand(len(x), *tensor.shape).clone() for name, tensor in self._fresh(x).items()})
        seeds = [0] * len(x) if seeds is None else seeds
        if len(x) > 1 and self.stackable:
            try:
                return self._stacked(x, inputs, targets, weights, seeds, kept)
            except RuntimeError as error:
                if "vmap" not in str(error):
                    raise
                self.stackable = False  # one after another from now on
        rows = [slice(n, n + 1) for n in range(len(x))]
        return torch.cat([self._alone(x[n], inputs[n], targets[n], weights[n], seeds[n], kept, n) for n in rows])

    def _stacked(
        self, x: Tensor, inputs: Tensor, targets: Tensor, weights: Tensor, seeds: Sequence[int], kept: Kept
    ) -> Tensor:
        batch = (x[:, self.d :], dict(kept), inputs, targets, weights)
        with torch.random.fork_rng(devices=[x.device] if x.is_cuda else []):
            torch.manual_seed(seeds[0])
            gradients = vmap(grad(self._loss, has_aux=True), randomness="different")
            g: Tensor
            g, (buffers, new) = gradients(x[:, : self.d], *batch)
        if self.buffers:
            x[:, self.d :] = buffers
        kept.update(new)
        return g

    def _alone(
        self,
        x: Tensor,
        inputs: Tensor,
        targets: Tensor,
        weights: Tensor,
        seeds: Sequence[int],
        kept: Kept,
        n: slice,
    ) -> Tensor:
        """The gradient of client n, whose rows these are, [1, d]."""
        row, own = x[0, : self.d].detach().requires_grad_(), {name: tensor[n][0] for name, tensor in kept.items()}
        with torch.random.fork_rng(devices=[x.device] if x.is_cuda else []):
            torch.manual_seed(seeds[0])
            loss, (buffers, new) = self._loss(row, x[0, self.d :], own, inputs[0], targets[0], weights[0])
            g = torch.autograd.grad(loss, row)[0][None]
        if self.buffers:
            x[0, self.d :] = buffers
        for name, tensor in new.items():
            kept[name][n] = tensor
        return g

    def _loss(
        self, parameters: Tensor, buffers: Tensor, kept: Kept, inputs: Tensor, targets: Tensor, weights: Tensor
    ) -> tuple[Tensor, tuple[Tensor, Kept]]:
        """The loss of one client's batch, and all its buffers afterwards; those given are left alone."""
        own = self.layout.tensors(torch.cat([parameters, buffers]) if self.buffers else parameters)
        own.update({name: own[name].detach() for name in self.frozen})
        own.update({name: own[name].detach().clone() for name in self.buffers})
        own.update({name: tensor.clone() for name, tensor in kept.items()})
        try:
            outputs = functional_call(self.module, own, (inputs,))
        except ValueError as error:
            if "more than 1 value per channel" not in str(error):
                raise
            raise UserError(
                "a client has a batch of one sample, of which batch normalisation can measure no variance; give every "
                "client at least two samples"
            ) from None
        loss = (weights * self.loss(outputs, targets)).sum()
        after = [own[name].detach().reshape(-1).to(buffers.dtype) for name in self.buffers]
        return loss, (torch.cat(after) if after else buffers, {name: own[name].detach() for name in kept})

    def _fresh(self, x: Tensor) -> Kept:
        """The buffers that are not in x, as `make` left them."""
        held = set(self.buffers)
        return {name: one.to(x.device) for name, one in self.module.named_buffers() if name not in held}
