"""What an algorithm says of itself. Every fact is optional: a class with the four verbs is an algorithm.

name         display name, such as "FedAU"; on the command line it is written in lower case. Default: the class name
linear       whether `model` is linear in the innovations, so that the influence of a client can be computed from a
             trace alone (the audit). Default: False
needs_p      whether it needs the probabilities of every round; an experiment gives it those of the trace as `p`.
             Default: False
received_mean   whether `model` is the mean over all clients of the model that each received last. Default: False
keeps        one phrase: what the server keeps beyond one model. Default: unknown
metrics      the diagnostics that `diagnostics` returns, with their titles
also(state)  further models that are worth an evaluation, by name, such as FedAWE's last aggregate
diagnostics(state)   numbers about a state that go into the record
deployed()   the algorithm in the form in which it is deployed. Default: itself
initial_share(state)   the share of `model` that is the initial model, held by clients that were never active.
             Default: 0
"""

import dataclasses
from collections.abc import Mapping
from typing import Any

from torch import Tensor

from fedawe.core.metric import Metric


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


def with_probabilities(algorithm: Any, p: Any) -> Any:
    """The algorithm with the probabilities p [T, m], if it needs them and was not given any."""
    if getattr(algorithm, "needs_p", False) and algorithm.p is None:
        return dataclasses.replace(algorithm, p=p)
    return algorithm


def lacks_probabilities(algorithm: Any) -> bool:
    """Whether it needs the probabilities of every round and was not given any."""
    return bool(getattr(algorithm, "needs_p", False)) and algorithm.p is None


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
    return tuple(getattr(algorithm, "metrics", ()))


def deployed_form(algorithm: Any) -> Any:
    """The algorithm as it is deployed."""
    say = getattr(algorithm, "deployed", None)
    return algorithm if say is None else say()


def initial_share(algorithm: Any, state: Any) -> float:
    """The share of its model that is the initial model, held by clients that were never active."""
    say = getattr(algorithm, "initial_share", None)
    return 0.0 if say is None else float(say(state))
