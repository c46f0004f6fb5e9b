"""What the server sends and receives in a round, and the three optional methods of an algorithm with their defaults.

    choose(state, t, A, draw)       the available clients that are asked to train, some of A. Default: all
    broadcast(state, t, A)          what the clients A receive. Default: Broadcast(start(state, A))
    absorb(state, t, A, upload)     the state after the round. Default: aggregate(state, t, A, upload.G)

Code that runs rounds (the simulator, the audit, a Flower strategy) calls the functions of this module. They call the
method of the algorithm if it has one, and otherwise do what the default says.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, is_dataclass, replace
from typing import Any

import numpy as np
import torch
from torch import Tensor

from fedawe.algorithms.base import Algorithm, S, State, known_clients, pack, received, unpack, unsupported_field
from fedawe.algorithms.facts import rule_inside
from fedawe.core.errors import UserError
from fedawe.core.files import brief


@dataclass(frozen=True)
class Broadcast:
    """What the clients A receive, with one row per client.

    In every local step a client uses the gradient g + shift + prox (y - x), where y is its iterate.
    """

    x: Tensor  # the models at which they begin                                                [k, d]
    shift: Tensor | None = None  # added to every stochastic gradient: SCAFFOLD, FedDyn        [k, d]
    prox: float = 0.0  # mu: adds mu (y - x) to every stochastic gradient: FedProx, FedDyn
    rounds: Tensor | None = None  # rounds of local work to do, this one included: FedPBC      [k] int64
    loss: bool = False  # asks for the loss at x: PowerOfChoice, Oort
    gradient: bool = False  # asks for the gradient at x: SCAFFOLD's option 1


@dataclass(frozen=True)
class Upload:
    """What the clients A return, with one row per client."""

    G: Tensor  # start minus end of local training                                             [k, d]
    weight: Tensor  # sum of the step weights a_i: the number of steps, for plain SGD          [k]
    rate: float  # eta_l(t), which the clients used
    loss: Tensor | None = None  # mean loss at the start, if asked for                         [k]
    gradient: Tensor | None = None  # mean gradient at the start, if asked for                 [k, d]
    samples: Tensor | None = None  # number of samples of each client, if known                [k]
    scale: Tensor | None = None  # factors that `Weighted` has applied to the rows of G        [k]

    @classmethod
    def of(cls, G: Tensor) -> "Upload":
        """The upload of clients that made one step with learning rate 1; `aggregate` takes G as that."""
        return cls(G, torch.ones(len(G) if isinstance(G, Tensor) and G.ndim else 0, dtype=torch.float64), 1.0)


def choose(algorithm: Any, state: State, t: int, A: Tensor, draw: np.random.Generator) -> Tensor:
    """The available clients of A [k] that are asked to train in round t; `draw` is the generator of (seed, t)."""
    own = getattr(algorithm, "choose", None)
    return A if own is None else some_of(A, own(state, t, A, draw), t, f"{type(algorithm).__name__}.choose")


def some_of(A: Tensor, chosen: Any, t: int, verb: str) -> Tensor:
    """The clients that the method `verb` chose in round t, [k]; refused unless they are clients of A [n], each once."""
    expected = "expected some of the available clients A, each once: return A[positions]"
    try:
        found = torch.as_tensor(chosen, device=A.device)
    except (TypeError, ValueError, RuntimeError):
        raise UserError(f"{verb} returned a {type(chosen).__name__} in round {t}; {expected}") from None
    if found.ndim == 1 and len(found) == 0:  # torch makes an empty list a tensor of floats
        return A[:0]
    if found.ndim != 1 or found.dtype.is_floating_point or found.dtype.is_complex or found.dtype == torch.bool:
        raise UserError(f"{verb} returned {found.dtype} of shape {list(found.shape)} in round {t}; {expected}")
    found = found.to(torch.int64)
    if torch.equal(found, A):
        return A
    others = found
    if len(A):  # the binary search needs a sorted A; for one that is not sorted, what it misses is searched for again
        others = others[A[torch.searchsorted(A, found).clamp(max=len(A) - 1)] != found]
        others = others[~torch.isin(others, A)]
    if len(others):
        raise UserError(f"{verb} returned client {int(others[0])} in round {t}, which is not available; {expected}")
    ordered = found.sort().values
    twice = ordered[1:][ordered[1:] == ordered[:-1]]
    if len(twice):
        raise UserError(f"{verb} returned client {int(twice[0])} more than once in round {t}; {expected}")
    return found


def broadcast(algorithm: Algorithm[S], state: S, t: int, A: Tensor) -> Broadcast:
    """What the clients A [k] receive in round t."""
    own = getattr(algorithm, "broadcast", None)
    return Broadcast(algorithm.start(state, A)) if own is None else own(state, t, A)


def absorb(algorithm: Algorithm[S], state: S, t: int, A: Tensor, upload: Upload) -> S:
    """The state after round t, in which the clients A [k] returned `upload`."""
    own = getattr(algorithm, "absorb", None)
    after: S = algorithm.aggregate(state, t, A, upload.G) if own is None else own(state, t, A, upload)
    if not isinstance(after, type(state)) or after.t != t:
        verb = "aggregate" if own is None else "absorb"
        raise UserError(_no_state_after(f"{type(algorithm).__name__}.{verb}", after, state, t))
    return after


def _no_state_after(verb: str, after: Any, state: State, t: int) -> str:
    """The message for an algorithm that returned something else than its state after round t."""
    kind = type(state).__name__
    if after is None:
        return f"{verb} returned None in round {t}; expected the state after the round, a {kind}: is a return missing?"
    if not isinstance(after, type(state)):
        return f"{verb} returned a {type(after).__name__} in round {t}; expected the state after the round, a {kind}"
    return f"{verb} returned a {kind} with t = {after.t!r} in round {t}; expected t = {t}, as state.after(t) gives"


def first_state(algorithm: Algorithm[S], x0: Tensor, m: int) -> S:
    """The state before round 0, checked: x0 [d], m clients."""
    state = algorithm.init(x0, m)
    check_state(algorithm, state)
    return state


def check_state(algorithm: Any, state: Any) -> None:
    """Refuses a state returned by `init` if no round can begin with it, or if it cannot be stored in a checkpoint."""
    verb = f"{type(algorithm).__name__}.init"
    expected = "expected a dataclass with t, m and latest, such as fedawe.algorithms.base.ServerState(t=-1, m=m, x=x0)"
    if state is None:
        raise UserError(f"{verb} returned None; {expected}: is a return missing?")
    missing = [name for name in ("t", "m", "latest") if not hasattr(state, name)]
    if missing:
        raise UserError(f"{verb} returned a {type(state).__name__}, which has no {', '.join(missing)}; {expected}")
    latest = state.latest
    if not is_dataclass(state):
        raise UserError(f"{verb} returned a {type(state).__name__}, which is no dataclass; {expected}")
    if not isinstance(latest, Tensor) or latest.ndim != 1:
        raise UserError(f"{verb} returned a {type(state).__name__} whose latest is no vector [d]; {expected}")
    _check_stored(verb, state)


def _check_stored(verb: str, state: Any) -> None:
    """Refuses a state that a checkpoint cannot store and restore."""
    if (unsupported := unsupported_field(state)) is not None:
        name, value = unsupported
        raise UserError(
            f"{verb} returned a {type(state).__name__} whose {name} is {_kind(value)}, which a checkpoint cannot "
            "store; expected a tensor, a number, a State, or a mapping from whole numbers to vectors or whole numbers"
        )
    try:
        unpack(state, pack(state))
    except Exception as error:
        raise UserError(
            f"{verb} returned a {type(state).__name__}, which cannot be restored from its fields ({brief(error)}); "
            "expected a dataclass whose __init__ takes every field"
        ) from error


def _kind(value: Any) -> str:
    """The type of a value for a message; for a mapping, also the types of its keys and values."""
    if isinstance(value, Mapping):
        return f"a {type(value).__name__} from {_kinds(value)} to {_kinds(value.values())}"
    return "None" if value is None else f"a {type(value).__name__}"


def _kinds(values: Iterable[Any]) -> str:
    return " and ".join(sorted({type(each).__name__ for each in values}))


def chooses(algorithm: Any) -> bool:
    """Whether an algorithm may ask fewer than all available clients."""
    return bool(getattr(algorithm, "chooses", hasattr(algorithm, "choose")))


def most_asked(algorithm: Any) -> int | None:
    """The largest number of clients that an algorithm asks in a round; None if it asks all available clients."""
    limits = []
    while algorithm is not None:
        limits += [getattr(algorithm, "capacity", None), getattr(getattr(algorithm, "chooser", None), "k", None)]
        algorithm = rule_inside(algorithm)
    return min((limit for limit in limits if limit is not None), default=None)


def visits_of(algorithm: Any, state: State) -> Tensor | None:
    """The number of rounds in which each client was active, [m]; None if the algorithm does not count them."""
    own = getattr(algorithm, "visits", None)
    return None if own is None else own(state)


def reads_more_than_innovations(algorithm: Any) -> bool:
    """Whether an algorithm uses more of an upload than the innovations: weights, rates or losses."""
    while (rule := rule_inside(algorithm)) is not None:
        if getattr(getattr(algorithm, "chooser", None), "asks_loss", False):
            return True
        algorithm = rule
    return hasattr(algorithm, "absorb")


def in_order(state: State, t: int, A: Tensor, upload: Upload) -> tuple[Tensor, Upload]:
    """A and the upload of round t, checked and sorted by client, so that the order of arrival changes nothing."""
    ordered, G = received(state, t, A, upload.G)
    order = known_clients(A, state).argsort()
    if not 0 <= upload.rate < float("inf"):
        raise UserError(f"the rate of round {t} is {upload.rate!r}; expected a number from 0")
    weight = torch.as_tensor(upload.weight)
    if weight.shape != (len(ordered),) or not ((weight > 0) & torch.isfinite(weight)).all():
        raise UserError(f"weight must be {len(ordered)} positive numbers, one per client of A, not {weight.tolist()}")
    loss = _rows(upload.loss, "loss", (len(ordered),), order)
    gradient = _rows(upload.gradient, "gradient", tuple(G.shape), order)
    samples = _rows(upload.samples, "samples", (len(ordered),), order)
    scale = _rows(upload.scale, "scale", (len(ordered),), order)
    weight = weight.to(G)[order]
    return ordered, replace(upload, G=G, weight=weight, loss=loss, gradient=gradient, samples=samples, scale=scale)


def _rows(value: Tensor | None, name: str, shape: tuple[int, ...], order: Tensor) -> Tensor | None:
    if value is None:
        return None
    if value.shape != shape or not torch.isfinite(value).all():
        raise UserError(f"{name} must be finite and of shape {list(shape)}, not {list(value.shape)}")
    return value.detach().to(order.device)[order]


def positive_rate(rate: float, t: int, algorithm: Any) -> float:
    """The learning rate of round t, refused if it is not positive, because the algorithm divides innovations by it."""
    if not isinstance(rate, int | float) or not 0 < rate < float("inf"):
        raise UserError(
            f"the rate of round {t} is {rate!r}; {type(algorithm).__name__} divides innovations by it and needs a "
            "positive number"
        )
    return float(rate)


def asked_for(value: Tensor | None, name: str, algorithm: Any) -> Tensor:
    """A field of the upload that the clients were asked for; refused if it is missing."""
    if value is None:
        raise UserError(f"{type(algorithm).__name__} needs the {name} of every active client, which was not uploaded")
    return value
