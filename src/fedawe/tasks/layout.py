"""How a flat vector and the named tensors of a module correspond: parameters first, then buffers."""

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from itertools import accumulate
from typing import Literal

import torch
from torch import Tensor, nn
from torch.nn.parameter import is_lazy

from fedawe.core.errors import UserError

Kind = Literal["parameter", "buffer", "constant"]

# The names of the running statistics of normalisation layers in torch, for tensors whose module is not known.
STATISTICS = ("running_mean", "running_var")


@dataclass(frozen=True)
class Entry:
    """One named tensor."""

    name: str
    shape: tuple[int, ...]
    dtype: torch.dtype
    kind: Kind
    trained: bool = True  # False: a parameter with requires_grad=False

    @property
    def size(self) -> int:
        """The number of its elements."""
        return math.prod(self.shape)


@dataclass(frozen=True)
class Layout:
    """The tensors of a module's `state_dict` in its order, and where each of them is in a vector [d + b].

    parameter  trained, unless its requires_grad is False: the first d numbers, the part that an algorithm sees
    buffer     floating point and not trained, such as the running statistics of batch normalisation: the last b numbers
    constant   not floating point, such as `num_batches_tracked`: not in the vector; every client begins with this value

    Buffers that are not in the `state_dict` are not in the layout: every client begins with the values in the module.

    >>> layout = Layout.of(nn.BatchNorm1d(2))
    >>> layout.parameters, layout.buffers
    (4, 4)
    >>> layout.tensors(torch.arange(8.0))["running_var"]
    tensor([6., 7.])
    """

    entries: tuple[Entry, ...]
    constants: Mapping[str, Tensor] = field(default_factory=dict)  # by name
    aliases: Mapping[str, str] = field(default_factory=dict)  # further names of a tensor -> the name of its entry

    @classmethod
    def of(cls, module: nn.Module) -> "Layout":
        """The layout of a module; a parameter that is used under two names is one entry."""
        parameters = dict(module.named_parameters(remove_duplicate=False))
        if lazy := [name for name, one in parameters.items() if is_lazy(one)]:
            raise UserError(f"{lazy[0]} has no shape yet; call the module once on an input before it is returned")
        if wrong := [name for name, one in parameters.items() if not one.is_floating_point()]:
            raise UserError(
                f"the parameter {wrong[0]} is {parameters[wrong[0]].dtype}; expected floating-point parameters (keep a "
                "complex one as torch.view_as_real gives it, and make whole numbers a buffer)"
            )
        entries: list[Entry] = []
        constants: dict[str, Tensor] = {}
        first: dict[int, str] = {}
        aliases: dict[str, str] = {}
        for name, tensor in module.state_dict(keep_vars=True).items():
            if not isinstance(tensor, Tensor):  # what a module adds by get_extra_state
                continue
            if id(tensor) in first:
                aliases[name] = first[id(tensor)]
                continue
            first[id(tensor)] = name
            kind: Kind = "parameter" if name in parameters else "buffer" if tensor.is_floating_point() else "constant"
            trained = name not in parameters or tensor.requires_grad
            entries.append(Entry(name, tuple(tensor.shape), tensor.dtype, kind, trained))
            if kind == "constant":
                constants[name] = tensor.detach().clone()
        return cls(tuple(entries), constants, aliases)

    @classmethod
    def of_tensors(cls, tensors: Mapping[str, Tensor]) -> "Layout":
        """The layout of named tensors without their module: those with the name of a running statistic are buffers."""
        entries = []
        for name, tensor in tensors.items():
            statistic = name.rpartition(".")[2] in STATISTICS
            kind: Kind = "constant" if not tensor.is_floating_point() else "buffer" if statistic else "parameter"
            entries.append(Entry(name, tuple(tensor.shape), tensor.dtype, kind))
        constants = {entry.name: tensors[entry.name].detach().clone() for entry in entries if entry.kind == "constant"}
        return cls(tuple(entries), constants)

    @property
    def parameters(self) -> int:
        """d."""
        return sum(entry.size for entry in self.entries if entry.kind == "parameter")

    @property
    def buffers(self) -> int:
        """b."""
        return sum(entry.size for entry in self.entries if entry.kind == "buffer")

    @property
    def dtype(self) -> torch.dtype:
        """The type of the vector: float64 if any tensor is float64, else float32."""
        return torch.float64 if any(entry.dtype == torch.float64 for entry in self.entries) else torch.float32

    @cached_property
    def ordered(self) -> list[Entry]:
        """The entries that are in the vector, in its order."""
        return [entry for kind in ("parameter", "buffer") for entry in self.entries if entry.kind == kind]

    @cached_property
    def frozen(self) -> dict[str, slice]:
        """The slices of the vector that hold parameters which are not trained, by name."""
        ends = zip(self.ordered, accumulate(entry.size for entry in self.ordered), strict=True)
        return {entry.name: slice(end - entry.size, end) for entry, end in ends if not entry.trained}

    @property
    def variances(self) -> Tensor:
        """Which of the b buffers are running variances, which are never negative, [b] bool."""
        of = [entry for entry in self.entries if entry.kind == "buffer"]
        pieces = [torch.full((entry.size,), entry.name.endswith(STATISTICS[1])) for entry in of]
        return torch.cat(pieces) if pieces else torch.empty(0, dtype=torch.bool)

    def vector(self, tensors: Mapping[str, Tensor]) -> Tensor:
        """The named tensors as a new vector [d + b]; names and shapes must be those of this layout."""
        pieces = []
        for entry in self.ordered:
            tensor = tensors.get(entry.name)
            if tensor is None or tuple(tensor.shape) != entry.shape:
                got = "missing" if tensor is None else f"of shape {list(tensor.shape)}"
                raise UserError(f"{entry.name} is {got}; expected a tensor of shape {list(entry.shape)}")
            pieces.append(tensor.detach().reshape(-1).to(self.dtype))
        return torch.cat(pieces) if pieces else torch.empty(0, dtype=self.dtype)

    def parts(self, x: Tensor, kind: Literal["parameter", "buffer"]) -> dict[str, Tensor]:
        """The parameters of a vector [d], or the buffers of a vector [b], by name: views of it."""
        of = [entry for entry in self.ordered if entry.kind == kind]
        pieces = x.split([entry.size for entry in of]) if of else ()
        return {entry.name: piece.view(entry.shape) for entry, piece in zip(of, pieces, strict=True)}

    def tensors(self, x: Tensor) -> dict[str, Tensor]:
        """Parameters and buffers of a vector x [d + b] by name: views of it, of its dtype."""
        sizes = [entry.size for entry in self.ordered]
        if len(x) != sum(sizes):
            raise UserError(f"the vector has {len(x)} numbers; expected {sum(sizes)}")
        pieces = zip(self.ordered, x.split(sizes), strict=True)
        return {entry.name: piece.view(entry.shape) for entry, piece in pieces}

    def state_dict(self, x: Tensor) -> dict[str, Tensor]:
        """All tensors of the module whose vector is x [d + b], of their own dtypes, as `load_state_dict` takes them."""
        found = {**self.tensors(x), **self.constants}
        named = {entry.name: found[entry.name].to(entry.dtype) for entry in self.entries}
        return {**named, **{alias: named[name] for alias, name in self.aliases.items()}}
