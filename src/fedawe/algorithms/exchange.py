"""What goes down and up in a round, and the three optional verbs of an algorithm with their defaults.

    choose(state, t, A, draw)       which of the available clients A are asked, before anyone trains. Default: all
    broadcast(state, t, A)          what they receive. Default: Broadcast(start(state, A))
    absorb(state, t, A, upload)     the state after the round. Default: aggregate(state, t, A, upload.G)

An algorithm that has one of these methods is asked; every other algorithm behaves as the default says. Whoever runs
rounds (the simulator, the audit, a Flower strategy) calls the functions of this module.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, is_dataclass, replace
from typing import Any

import numpy as np
import torch
from torch import Tensor

from fedawe.algorithms.base import Algorithm, S, State, known_clients, pack, received, unfit_field, unpack
from fedawe.algorithms.facts import rule_inside
from fedawe.core.errors import UserError
from fedawe.core.files import brief


@dataclass(frozen=True)
class Broadcast:
    """What the clients A receive, one row for each client.

    In every local step a client uses the gradient g + shift + prox (y - x), where y is its iterate.
    """

    x: Tensor  # where they begin                                                              [k, d]
    shift: Tensor | None = None  # added to every stochastic gradient: SCAFFOLD, FedDyn        [k, d]
    prox: float = 0.0  # mu: adds mu (y - x) to every stochastic gradient: FedProx, FedDyn
    rounds: Tensor | None = None  # rounds of local work owed, this one included: FedPBC       [k] int64
    loss: bool = False  # asks for the loss at x: PowerOfChoice, Oort
    gradient: bool = False  # asks for the gradient at x: SCAFFOLD's option 1


@dataclass(frozen=True)
class Upload:
    """What the clients A return, one row for each client."""

    G: Tensor  # start minus end of local training                                             [k, d]
    weight: Tensor  # sum of the step weights a_i: the number of steps, for plain SGD          [k]
    rate: float  # eta_l(t), which the clients used
    loss: Tensor | None = None  # mean loss at the start, if asked for                         [k]
    gradient: Tensor | None = None  # mean gradient at the start, if asked for                 [k, d]
    samples: Tensor | None = None  # how many samples each has, where that is known            [k]
    scale: Tensor | None = None  # what `Weighted` has multiplied the rows of G by, mean 1     [k]

    @classmethod
    def of(cls, G: Tensor) -> "Upload":
        """G as the result of one step at rate 1, which is how `aggregate` reads it."""
        return cls(G, torch.ones(len(G) if isinstance(G, Tensor) and G.ndim else 0, dtype=torch.float64), 1.0)


def choose(algorithm: Any, state: State, t: int, A: Tensor, draw: np.random.Generator) -> Tensor:
    """The clients that are asked in round t, of the available clients A [k]; `draw` is named by (seed, t)."""
    own = getattr(algorithm, "choose", None)
    return A if own is None else some_of(A, own(state, t, A, draw), t, f"{type(algorithm).__name__}.choose")


def some_of(A: Tensor, chosen: Any, t: int, verb: str) -> Tensor:
    """What `verb` returned in round t as clients, [k]; refused unless they are some of A [n], each once."""
    expected = "expected some of the available clients A, each once: return A[positions]"
    try:
        found = torch.as_tensor(chosen, device=A.device)
    except (TypeError, ValueError, RuntimeError):
        raise UserError(f"{verb} returned a {type(chosen).__name__} in round {t}; {expected}") from None
    if found.ndim == 1 and len(found) == 0:  # an empty list has no dtype to speak of
        return A[:0]
    if found.ndim != 1 or found.dtype.is_floating_point or found.dtype.is_complex or found.dtype == torch.bool:
        raise UserError(f"{verb} returned {found.dtype} of shape {list(found.shape)} in round {t}; {expected}")
    found = found.to(torch.int64)
    if torch.equal(found, A):
        return A
    others = found
    if len(A):  # A is in order, unless somebody else has chosen before: then what is not found is searched for again
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
    """What is wrong with what an algorithm returned in the place of its state after round t."""
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
    """Refuses a state, as `init` returned it, with which no round can begin or of which no checkpoint can be made."""
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
    """Refuses a state that a checkpoint would not give back."""
    if (unfit := unfit_field(state)) is not None:
        name, value = unfit
        raise UserError(
            f"{verb} returned a {type(state).__name__} whose {name} is {_kind(value)}, of which no checkpoint can be "
            "made; expected a tensor, a number, a State, or a mapping from whole numbers to vectors or whole numbers"
        )
    try:
        unpack(state, pack(state))
    except Exception as error:
        raise UserError(
            f"{verb} returned a {type(state).__name__}, which cannot be made again from its fields ({brief(error)}); "
            "expected a dataclass whose __init__ takes every field"
        ) from error


def _kind(value: Any) -> str:
    """What something is, for a message: None, a list, or what a mapping has in it."""
    if isinstance(value, Mapping):
        return f"a {type(value).__name__} from {_kinds(value)} to {_kinds(value.values())}"
    return "None" if value is None else f"a {type(value).__name__}"


def _kinds(values: Iterable[Any]) -> str:
    return " and ".join(sorted({type(each).__name__ for each in values}))


def chooses(algorithm: Any) -> bool:
    """Whether an algorithm may ask fewer than all available clients."""
    return bool(getattr(algorithm, "chooses", hasattr(algorithm, "choose")))


def most_asked(algorithm: Any) -> int | None:
    """How many clients it asks in a round at most; None where it asks all that are available."""
    limits = []
    while algorithm is not None:
        limits += [getattr(algorithm, "capacity", None), getattr(getattr(algorithm, "chooser", None), "k", None)]
        algorithm = rule_inside(algorithm)
    return min((limit for limit in limits if limit is not None), default=None)


def visits_of(algorithm: Any, state: State) -> Tensor | None:
    """In how many rounds each client was active, if the algorithm counts that, [m]; None if all available ones are."""
    own = getattr(algorithm, "visits", None)
    return None if own is None else own(state)


def reads_more_than_innovations(algorithm: Any) -> bool:
    """Whether weights, rates or losses have an influence on what it does, besides the innovations."""
    while (rule := rule_inside(algorithm)) is not None:
        if getattr(getattr(algorithm, "chooser", None), "asks_loss", False):
            return True
        algorithm = rule
    return hasattr(algorithm, "absorb")


def in_order(state: State, t: int, A: Tensor, upload: Upload) -> tuple[Tensor, Upload]:
    """What round t brought, checked and in the order of the clients, so that the order of arrival changes nothing."""
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
    """The learning rate of round t, by which the algorithm divides innovations; refused if it is no positive number."""
    if not isinstance(rate, int | float) or not 0 < rate < float("inf"):
        raise UserError(
            f"the rate of round {t} is {rate!r}; {type(algorithm).__name__} divides innovations by it and needs a "
            "positive number"
        )
    return float(rate)


def asked_for(value: Tensor | None, name: str, algorithm: Any) -> Tensor:
    """What the clients were asked for; refused if it did not arrive."""
    if value is None:
        raise UserError(f"{type(algorithm).__name__} needs the {name} of every active client, which was not uploaded")
    return value
