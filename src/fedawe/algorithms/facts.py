"""What an algorithm says of itself. Every fact is optional: a class with the four verbs is an algorithm.

name         display name, such as "FedAU"; on the command line it is written in lower case. Default: the class name
linear       whether `model` is linear in the innovations, so that the influence of a client can be computed from a
             trace alone (the audit). Default: False
needs_p      whether it needs the probabilities of every round; an experiment gives it those of the trace as `p`.
             Default: False
plain_local  whether clients must train with plain SGD, since it reads their mean gradients from G. Default: False
sums_to_one  whether it averages the active clients, with weights that sum to 1, as FedAvg does. Default: False
updates(state, t, A, G), apply(state, t, A, v)   of a rule that takes the mean over the active clients A of something
             that each adds: its rows [k, d], and the state after a round in which their mean was v [d]. `Robust` and
             `Private` take the place of that mean
private      whether noise hides what one client contributes. Default: False
needs_seed   whether it draws random numbers; a simulation gives it its seed as `seed`, a deployment a secret one
statistics(ends)   running statistics for those [k, b] that the active clients end with, [b]. Default: the mean
weightable   whether `Weighted` may scale its innovations. Default: True
needs_sizes  whether it needs the clients' numbers of samples; an experiment gives it those of the task as `weights`
chooses      whether it may ask fewer than all available clients. Default: whether it has a method `choose`
capacity     the largest number of clients that it asks in a round. Default: None, no limit
received_mean   whether `model` is the mean over all clients of the model that each received last. Default: False
keeps        one phrase: what the server keeps beyond one model. Default: unknown
metrics      the diagnostics that `diagnostics` returns, with their titles
also(state)  further models that are worth an evaluation, by name, always the same names: FedAWE's last aggregate
diagnostics(state)   numbers about a state that go into the record
deployed()   the algorithm in the form in which it is deployed. Default: itself
initial_share(state)   the share of `model` that is the initial model, held by clients that were never active.
             Default: 0
"""

import dataclasses
from collections.abc import Mapping
from typing import Any

from torch import Tensor

from fedawe.core.errors import UserError
from fedawe.core.metric import Metric, as_metrics


def name_of(algorithm: Any) -> str:
    """The display name of an algorithm or of its class.

    >>> from fedawe import FedAU
    >>> name_of(FedAU), name_of(FedAU(K=20))
    ('FedAU', 'FedAU')
    """
    kind = algorithm if isinstance(algorithm, type) else type(algorithm)
    name = getattr(algorithm, "name", None)
    return name if isinstance(name, str) and name else kind.__name__


def is_linear(algorithm: Any) -> bool:
    """Whether it can be audited."""
    return bool(getattr(algorithm, "linear", False))


def is_received_mean(algorithm: Any) -> bool:
    """Whether its model is the mean over all clients of the model that each received last."""
    return bool(getattr(algorithm, "received_mean", False))


def needs_probabilities(algorithm: Any) -> bool:
    """Whether it, or a rule inside it, needs the probabilities of every round, which are known in simulations only."""
    if algorithm is None:
        return False
    return bool(getattr(algorithm, "needs_p", False)) or needs_probabilities(rule_inside(algorithm))


def needs_plain_local(algorithm: Any) -> bool:
    """Whether its clients must train with plain SGD, without momentum or Adam."""
    return bool(getattr(algorithm, "plain_local", False))


def with_probabilities(algorithm: Any, p: Any) -> Any:
    """The algorithm with the probabilities p [T, m], if it or a rule inside it needs them and was not given any."""
    return _completed(algorithm, "needs_p", "p", p)


def lacks_probabilities(algorithm: Any) -> bool:
    """Whether it, or a rule inside it, needs the probabilities of every round and was not given any."""
    return _lacks(algorithm, "needs_p", "p")


def with_sizes(algorithm: Any, sizes: Any) -> Any:
    """The algorithm with the numbers of samples [m], if it or a rule inside it is to weight clients by them."""
    if sizes is None and _lacks(algorithm, "needs_sizes", "weights"):
        raise UserError("weights are the clients' numbers of samples, which this task does not tell; give the weights")
    return _completed(algorithm, "needs_sizes", "weights", sizes)


def with_seed(algorithm: Any, seed: int) -> Any:
    """The algorithm with a seed, if it or a rule inside it draws random numbers and was not given any."""
    return _completed(algorithm, "needs_seed", "seed", seed)


def lacks_seed(algorithm: Any) -> bool:
    """Whether it, or a rule inside it, draws random numbers and was not given a seed."""
    return _lacks(algorithm, "needs_seed", "seed")


def is_private(algorithm: Any) -> bool:
    """Whether noise hides what one client contributes."""
    return bool(getattr(algorithm, "private", False))


def statistics_of(algorithm: Any, ends: Tensor) -> Tensor:
    """What becomes of the running statistics [k, b] that the active clients end with, [b]."""
    own = getattr(algorithm, "statistics", None)
    return ends.mean(0) if own is None else own(ends)


def rule_inside(algorithm: Any) -> Any:
    """The rule that a wrapper is around; None for every other algorithm."""
    return getattr(algorithm, "rule", None)


def _lacks(algorithm: Any, fact: str, name: str) -> bool:
    if algorithm is None:
        return False
    own = bool(getattr(algorithm, fact, False)) and getattr(algorithm, name) is None
    return own or _lacks(rule_inside(algorithm), fact, name)


def _completed(algorithm: Any, fact: str, name: str, value: Any) -> Any:
    rule = rule_inside(algorithm)
    if (inside := None if rule is None else _completed(rule, fact, name, value)) is not rule:
        algorithm = _with(algorithm, rule=inside)
    if getattr(algorithm, fact, False) and getattr(algorithm, name) is None:
        return _with(algorithm, **{name: value})
    return algorithm


def _with(algorithm: Any, **fields: Any) -> Any:
    if not dataclasses.is_dataclass(algorithm):
        kind, name = type(algorithm).__name__, next(iter(fields))
        raise UserError(
            f"{kind} is no dataclass and cannot be given its {name}; make it a dataclass with a field {name}"
        )
    return dataclasses.replace(algorithm, **fields)  # type: ignore[type-var]


def further_models(algorithm: Any, state: Any) -> Mapping[str, Tensor]:
    """Models besides `model` that are worth an evaluation, by name."""
    also = getattr(algorithm, "also", None)
    return {} if also is None else also(state)


def diagnostics_of(algorithm: Any, state: Any) -> Mapping[str, float]:
    """What the algorithm says about its state."""
    say = getattr(algorithm, "diagnostics", None)
    return {} if say is None else say(state)


def metrics_of(algorithm: Any) -> tuple[Metric, ...]:
    """The diagnostics that it declares."""
    return as_metrics(getattr(algorithm, "metrics", ()), f"{type(algorithm).__name__}.metrics")


def deployed_form(algorithm: Any) -> Any:
    """The algorithm as it is deployed."""
    say = getattr(algorithm, "deployed", None)
    return algorithm if say is None else say()


def initial_share(algorithm: Any, state: Any) -> float:
    """The share of its model that is the initial model, held by clients that were never active."""
    say = getattr(algorithm, "initial_share", None)
    return 0.0 if say is None else float(say(state))
