"""What all algorithms share: the protocol, checks of arguments, and the state of algorithms with one global model.

Notation of this package: m clients, k active, d parameters, t the round from 0, A the active clients [k], x models,
G innovations (start minus end of local training, so the learning rate is already in them) [k, d], tau the last active
round, eta_g the server's rate.
"""

from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, fields, replace
from typing import Any, Generic, Protocol, Self, TypeGuard, TypeVar

import numpy as np
import torch
from torch import Tensor

from fedawe.algorithms.notebook import Shown
from fedawe.core.errors import UserError
from fedawe.core.memory import LARGEST


@dataclass(frozen=True)
class State(ABC):
    """Everything that changes in training: the last round t (-1 before round 0) and the tensors of the algorithm."""

    t: int
    m: int

    def __post_init__(self) -> None:
        object.__setattr__(self, "t", int(self.t))  # a numpy integer would end up in file names and messages
        object.__setattr__(self, "m", int(self.m))

    @property
    @abstractmethod
    def latest(self) -> Tensor:
        """The last aggregate, [d]."""

    def with_model(self, x: Tensor) -> Self:
        """This state with another global model x [d]; refused if the algorithm has no single global model."""
        del x
        raise UserError(
            f"{type(self).__name__} has no single global model that another rule could change; use a rule in which all "
            "clients begin at the same model, such as FedAvg, FedAU or MIFA"
        )

    def after(self, t: int, **changed: Any) -> Self:
        """This state after round t, with the fields that have changed."""
        return replace(self, t=t, **changed)


S = TypeVar("S", bound=State)


class Algorithm(Protocol[S]):
    """An algorithm: a frozen dataclass of hyper-parameters with these four methods.

    Everything that changes is in the state. `aggregate` returns a new state and does not change the one it was given.
    """

    def init(self, x0: Tensor, m: int) -> S:
        """The state before round 0: x0 [d], m clients."""

    def start(self, state: S, A: Tensor) -> Tensor:
        """The models at which clients A [k] begin the next round: x_i^t, [k, d]."""

    def aggregate(self, state: S, t: int, A: Tensor, G: Tensor) -> S:
        """The state after round t, in which clients A [k] returned innovations G [k, d]; called in empty rounds too."""

    def model(self, state: S) -> Tensor:
        """The model to evaluate or deploy, [d]."""


@dataclass(frozen=True)
class ServerState(State):
    """The state of an algorithm with one global model x [d]."""

    x: Tensor

    @property
    def latest(self) -> Tensor:
        """The global model, [d]."""
        return self.x

    def with_model(self, x: Tensor) -> Self:
        """This state with the global model x [d]."""
        return replace(self, x=x)


T = TypeVar("T", bound=ServerState)


class OneGlobalModel(Shown, Generic[T]):
    """`start` and `model` of an algorithm in which every client begins at the global model."""

    clip: float | None

    @property
    def linear(self) -> bool:
        """Whether the model is linear in the innovations; a clip is not."""
        return self.clip is None

    def start(self, state: T, A: Tensor) -> Tensor:
        """x^t for every client of A, [k, d]."""
        return state.x.repeat(len(known_clients(A, state)), 1)

    def model(self, state: T) -> Tensor:
        """x^t, [d]."""
        return state.x.clone()


def is_whole(value: object) -> TypeGuard[int]:
    """Whether a value is an integer of Python or of numpy; a bool is not."""
    return isinstance(value, int | np.integer) and not isinstance(value, bool)


def first_model(x0: Tensor, m: int) -> Tensor:
    """A checked copy of x0 [d]."""
    if not isinstance(x0, Tensor) or x0.ndim != 1 or len(x0) == 0 or not x0.is_floating_point():
        got = f"{x0.dtype} of shape {list(x0.shape)}" if isinstance(x0, Tensor) else type(x0).__name__
        raise UserError(f"x0 must be a floating-point vector [d], not {got}")
    if not torch.isfinite(x0).all():
        raise UserError(f"x0 is not finite at coordinate {int((~torch.isfinite(x0)).nonzero()[0])}")
    if not is_whole(m) or m < 1:
        raise UserError(f"the number of clients must be a whole number from 1, not {m!r}")
    return x0.detach().clone()


def known_clients(A: Tensor, state: State) -> Tensor:
    """A [k] as int64 on the models' device; unknown, negative or repeated clients are refused."""
    try:
        A = torch.as_tensor(A, device=state.latest.device)
    except (TypeError, ValueError, RuntimeError) as error:
        raise UserError(f"A must be a vector of client numbers, not {type(A).__name__} ({error})") from None
    if A.numel() == 0 and A.ndim == 1:  # torch makes an empty list a tensor of floats
        return A.to(torch.int64)
    if A.ndim != 1 or A.dtype.is_floating_point or A.dtype.is_complex or A.dtype == torch.bool:
        raise UserError(f"A must be a vector of client numbers, not {A.dtype} of shape {list(A.shape)}")
    clients = A.tolist()  # for the few clients of a round, faster than four operations on tensors
    low, high = min(clients), max(clients)
    if low < 0 or high >= state.m:
        raise UserError(f"client {low if low < 0 else high} is unknown: clients are 0 to {state.m - 1}")
    if len(set(clients)) < len(clients):
        twice = min(client for client, times in Counter(clients).items() if times > 1)
        raise UserError(f"client {twice} appears more than once in A")
    return A.to(torch.int64)


def received(state: State, t: int, A: Tensor, G: Tensor) -> tuple[Tensor, Tensor]:
    """A and G of round t, checked and sorted by client, so that the order of arrival does not change the result."""
    if not is_whole(t) or t <= state.t:
        raise UserError(f"round {t!r} cannot follow round {state.t}: rounds are whole numbers and only go up")
    A, like = known_clients(A, state), state.latest
    if not isinstance(G, Tensor) or G.shape != (len(A), len(like)):
        got = list(G.shape) if isinstance(G, Tensor) else type(G).__name__
        raise UserError(f"G must be of shape [{len(A)}, {len(like)}], one row per client of A, not {got}")
    if G.dtype != like.dtype or G.device != like.device:
        raise UserError(f"G is {G.dtype} on {G.device}; the model is {like.dtype} on {like.device}")
    A, order = A.sort()
    G = G.detach()
    if not torch.equal(order, torch.arange(len(A), device=order.device)):
        G = G[order]
    # The sum of a row with a NaN or an infinity is not finite. A finite row can have such a sum by overflow.
    suspects = (~torch.isfinite(G.sum(1))).nonzero().flatten().tolist()
    for row in suspects:
        if not torch.isfinite(G[row]).all():
            raise UserError(f"the innovation of client {int(A[row])} in round {t} is not finite")
    return A, G


def clipped(v: Tensor, c: float | None) -> Tensor:
    """clip_c(v) = v min(1, c / ||v||), with the norm of the whole vector [d]; c = None returns v unchanged.

    >>> clipped(torch.tensor([3.0, 4.0]), 1.0)
    tensor([0.6000, 0.8000])
    """
    if c is None:
        return v
    norm = float(torch.linalg.vector_norm(v, dtype=torch.float64))  # the square of a float32 may be infinite
    return v * (c / norm) if norm > c else v


def skipped_rounds_are_empty(algorithm: Algorithm[S], state: S, t: int) -> S:
    """The state just before round t; rounds between the last one and t that were not reported count as empty."""
    nobody, nothing = torch.empty(0, dtype=torch.int64), state.latest.new_empty((0, len(state.latest)))
    for q in range(state.t + 1, t):
        state = algorithm.aggregate(state, q, nobody, nothing)
    return state


def check_whole(name: str, value: int | None, otherwise: str = "") -> None:
    """Refuses a value that is not a whole number from 1.

    None is allowed if `otherwise` is given, the end of the message that says what None means.
    """
    if value is None and otherwise:
        return
    if not is_whole(value) or not 1 <= value < 2**62:
        raise UserError(f"{name} is {value!r}; expected a whole number from 1 to 2**62{otherwise}")


def check_positive(name: str, value: float) -> None:
    """Refuses a value that is not a positive number."""
    if not isinstance(value, int | float) or not 0 < value <= LARGEST:
        raise UserError(f"{name} is {value!r}; expected a positive number{_at_most(value)}")


def _at_most(value: float) -> str:
    return f", at most {LARGEST:g}" if isinstance(value, int | float) and value > LARGEST else ""


def check_not_negative(name: str, value: float) -> None:
    """Refuses a value that is not a number from 0."""
    if not isinstance(value, int | float) or not 0 <= value <= LARGEST:
        raise UserError(f"{name} is {value!r}; expected a number from 0{_at_most(value)}")


def check_fraction(name: str, value: float, *, zero: bool = True, one: bool = False) -> None:
    """Refuses a value that is not a number between 0 and 1; `zero` and `one` say whether 0 and 1 are allowed."""
    if not isinstance(value, int | float) or not (0 < value < 1 or (zero and value == 0) or (one and value == 1)):
        low, high = "at least" if zero else "above", "at most" if one else "below"
        raise UserError(f"{name} is {value!r}; expected a number {low} 0 and {high} 1")


def check_rates(eta_g: float, clip: float | None) -> None:
    """Refuses a server rate or a clip that is not a positive number."""
    check_positive("eta_g", eta_g)
    check_clip(clip)


def check_clip(clip: float | None) -> None:
    """Refuses a clip that is not a positive number."""
    if clip is not None and (not isinstance(clip, int | float) or not 0 < clip <= LARGEST):
        raise UserError(f"clip is {clip!r}; expected a positive number{_at_most(clip)}, or None for no clip")


def pack(state: State) -> dict[str, Tensor]:
    """The state as named tensors, for a checkpoint."""
    out: dict[str, Tensor] = {}
    for field in fields(state):
        value = getattr(state, field.name)
        if isinstance(value, State):
            out.update({f"{field.name}.{key}": tensor for key, tensor in pack(value).items()})
        elif isinstance(value, Mapping):
            out.update({f"{field.name}.{key}": torch.as_tensor(row) for key, row in value.items()})
        else:
            out[field.name] = torch.as_tensor(value, dtype=torch.float64 if isinstance(value, float) else None)
    return out


def unpack(like: S, tensors: Mapping[str, Tensor]) -> S:
    """The state from the tensors of `pack`; `like`, a state of the same algorithm, gives the types and the device."""
    values: dict[str, Any] = {}
    for field in fields(like):
        old, start = getattr(like, field.name), field.name + "."
        if isinstance(old, State):
            values[field.name] = unpack(
                old, {name.removeprefix(start): row for name, row in tensors.items() if name.startswith(start)}
            )
        elif isinstance(old, Mapping):
            rows = {int(name.removeprefix(start)): row for name, row in tensors.items() if name.startswith(start)}
            values[field.name] = {key: _unwrapped(rows[key], like.latest.device) for key in sorted(rows)}
        elif isinstance(old, Tensor):
            values[field.name] = tensors[field.name].to(old.device)
        else:
            values[field.name] = type(old)(tensors[field.name].item())
    return type(like)(**values)


def unsupported_field(state: Any) -> tuple[str, Any] | None:
    """Name and value of the first field that `pack` cannot store and `unpack` restore; None if there is none."""
    for field in fields(state):
        value = getattr(state, field.name)
        if isinstance(value, State):
            if (inner := unsupported_field(value)) is not None:
                return f"{field.name}.{inner[0]}", inner[1]
        elif isinstance(value, Mapping):
            rows = (is_whole(row) or (isinstance(row, Tensor) and row.ndim > 0) for row in value.values())
            if not all(is_whole(key) for key in value) or not all(rows):
                return field.name, value
        elif not isinstance(value, Tensor | int | float | np.number | np.bool_):
            return field.name, value
    return None


def _unwrapped(value: Tensor, device: torch.device) -> Tensor | int:
    return int(value) if value.ndim == 0 else value.to(device)
