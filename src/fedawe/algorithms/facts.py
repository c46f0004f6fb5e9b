"""Facts that an algorithm declares about itself. All are optional: a class with the four methods is an algorithm.

name         display name, such as "FedAU"; on the command line it is written in lower case. Default: the class name
linear       whether `model` is linear in the innovations, so that the influence of a client can be computed from a
             trace alone (the audit). Default: False
needs_p      whether it needs the probabilities of every round; an experiment sets its field `p` to those of the trace.
             Default: False
plain_local  whether clients must train with plain SGD, because it computes mean gradients from G. Default: False
sums_to_one  whether it averages the active clients with weights that sum to 1, as FedAvg does. Default: False
updates(state, t, A, G), apply(state, t, A, v)   for algorithms that take a mean over the active clients A: the rows
             [k, d] whose mean is taken, and the state after round t if the mean was v [d]. `Robust` and `Private`
             replace that mean
private      whether it adds noise that hides the contribution of any one client. Default: False
needs_seed   whether it draws random numbers; a simulation sets its field `seed` to the seed of the run, a deployment
             to a secret number. Default: False
statistics(ends)   the new running statistics [b], from those [k, b] of the active clients after training. Default:
             their mean
weightable   whether `Weighted` may scale its innovations. Default: True
needs_sizes  whether it needs the clients' numbers of samples; an experiment sets its field `weights` to those of the
             task. Default: False
chooses      whether it may ask fewer than all available clients. Default: whether it has a method `choose`
capacity     the largest number of clients that it asks in a round. Default: None, no limit
received_mean   whether `model` is the mean over all clients of the model that each received last. Default: False
keeps        what the server keeps besides one model, as a short phrase. Default: unknown
metrics      the diagnostics that `diagnostics` returns, with their titles
also(state)  further models to evaluate, by name (the same names in every round), such as FedAWE's last aggregate
diagnostics(state)   numbers about a state for the record
deployed()   the form of the algorithm that is deployed. Default: itself
initial_share(state)   the weight of the initial model in `model`, due to clients that were never active. Default: 0
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
    """Whether the model is linear in the innovations, so that the algorithm can be audited."""
    return bool(getattr(algorithm, "linear", False))


def is_received_mean(algorithm: Any) -> bool:
    """Whether the algorithm's model is the mean over all clients of the model that each received last."""
    return bool(getattr(algorithm, "received_mean", False))


def needs_probabilities(algorithm: Any) -> bool:
    """Whether an algorithm, or a rule inside it, needs probabilities, which are known in simulations only."""
    if algorithm is None:
        return False
    return bool(getattr(algorithm, "needs_p", False)) or needs_probabilities(rule_inside(algorithm))


def needs_plain_local(algorithm: Any) -> bool:
    """Whether the clients must train with plain SGD, without momentum or Adam."""
    return bool(getattr(algorithm, "plain_local", False))


def with_probabilities(algorithm: Any, p: Any) -> Any:
    """The algorithm with the probabilities p [T, m], if it or a rule inside it needs them and was not given any."""
    return _completed(algorithm, "needs_p", "p", p)


def lacks_probabilities(algorithm: Any) -> bool:
    """Whether an algorithm, or a rule inside it, needs the probabilities of every round and was not given any."""
    return _lacks(algorithm, "needs_p", "p")


def with_sizes(algorithm: Any, sizes: Any) -> Any:
    """The algorithm with the numbers of samples [m], if it or a rule inside it needs them and was given no weights."""
    if sizes is None and _lacks(algorithm, "needs_sizes", "weights"):
        raise UserError("weights are the clients' numbers of samples, which this task does not know; give the weights")
    return _completed(algorithm, "needs_sizes", "weights", sizes)


def with_seed(algorithm: Any, seed: int) -> Any:
    """The algorithm with a seed, if it or a rule inside it draws random numbers and was not given any."""
    return _completed(algorithm, "needs_seed", "seed", seed)


def lacks_seed(algorithm: Any) -> bool:
    """Whether an algorithm, or a rule inside it, draws random numbers and was not given a seed."""
    return _lacks(algorithm, "needs_seed", "seed")


def is_private(algorithm: Any) -> bool:
    """Whether an algorithm adds noise that hides the contribution of any one client."""
    return bool(getattr(algorithm, "private", False))


def statistics_of(algorithm: Any, ends: Tensor) -> Tensor:
    """The new running statistics [b], from those [k, b] of the active clients after training."""
    own = getattr(algorithm, "statistics", None)
    return ends.mean(0) if own is None else own(ends)


def rule_inside(algorithm: Any) -> Any:
    """The rule inside a wrapper; None for every other algorithm."""
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
    """Further models to evaluate besides `model`, by name."""
    own = getattr(algorithm, "also", None)
    return {} if own is None else own(state)


def diagnostics_of(algorithm: Any, state: Any) -> Mapping[str, float]:
    """The diagnostics of a state, by name."""
    own = getattr(algorithm, "diagnostics", None)
    return {} if own is None else own(state)


def metrics_of(algorithm: Any) -> tuple[Metric, ...]:
    """The diagnostics that an algorithm declares."""
    return as_metrics(getattr(algorithm, "metrics", ()), f"{type(algorithm).__name__}.metrics")


def deployed_form(algorithm: Any) -> Any:
    """The form of the algorithm that is deployed."""
    own = getattr(algorithm, "deployed", None)
    return algorithm if own is None else own()


def initial_share(algorithm: Any, state: Any) -> float:
    """The weight of the initial model in the algorithm's model, due to clients that were never active."""
    own = getattr(algorithm, "initial_share", None)
    return 0.0 if own is None else float(own(state))
