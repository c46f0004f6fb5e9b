"""What becomes of clients that are away for very long: from some round on they hold the newest model."""

import dataclasses
from collections import Counter

from fedawe.algorithms.base import S
from fedawe.algorithms.versions import Versions


def renewed(state: S, max_absence: int) -> S:
    """The state in which FedAWE's clients with an echo above `max_absence` (0: none) hold the newest version.

    Such a client counts as if it had been there, without an innovation, in the round that made the newest version: it
    starts from that model and its echo begins there. Old versions are given up, so their number has a bound; in
    exchange what the client missed before is not made up for. Other algorithms start everyone at the newest model.

    >>> import torch
    >>> from fedawe import FedAWE
    >>> fedawe = FedAWE()
    >>> state = fedawe.init(torch.zeros(1), m=2)
    >>> for t in range(3):
    ...     state = renewed(fedawe.aggregate(state, t, torch.tensor([0]), torch.ones(1, 1)), max_absence=2)
    >>> state.tau, sorted(state.models)    # client 1 was never there; its echo in round 2 would have been 3
    (tensor([2, 1]), [1, 2])
    """
    if max_absence == 0 or not isinstance(state, Versions):
        return state
    newest = max(state.models)
    long_gone = (state.t + 1 - state.tau > max_absence) & (state.tau < newest)
    if not long_gone.any():
        return state
    tau = state.tau.clone()
    tau[long_gone] = newest
    holders = dict(Counter(tau.tolist()))
    models = {version: model for version, model in state.models.items() if version in holders}
    return dataclasses.replace(state, tau=tau, models=models, holders=holders)
