"""Which of the audited algorithms to run: those that can be used, and the choice among them."""

import dataclasses
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch

from fedawe.algorithms import FedAvg, FedAvgAll, FedAWE, FedVARP
from fedawe.algorithms.facts import needs_probabilities
from fedawe.audit.fleet import Fleet
from fedawe.audit.influence import Influence

ENOUGH = 0.05  # a bias among clients that are ever active is small below this
CALM = 15  # a multiplier up to which training with FedAWE went well on the bundled digits (docs/audit.md)
CHEAP = 0.02  # FedVARP is preferred to a more stable rule only if its bias is lower by this


@dataclass(frozen=True)
class Candidate:
    """An algorithm that was audited."""

    name: str
    algorithm: Any
    bias: float  # among clients that are ever active
    multiplier: float | None  # mean factor by which its echoes multiply updates; None: it has no echoes

    @property
    def calm(self) -> bool:
        """Whether its multiplier is at most CALM."""
        return self.multiplier is None or self.multiplier <= CALM

    @property
    def keeps_models(self) -> bool:
        """Whether the server keeps a model or an update of every client, measured on states for 4 and 8 clients."""
        return _numbers_kept(self.algorithm, 8) - _numbers_kept(self.algorithm, 4) >= 4 * 64

    @property
    def said(self) -> str:
        """Its name and its bias, for a message."""
        return f"{self.name} (bias {self.bias:.1%})"


def _numbers_kept(algorithm: Any, m: int, d: int = 64) -> int:
    """The size of its state, in numbers, after a round in which all m clients were active."""
    A = torch.arange(m)
    state = algorithm.aggregate(algorithm.init(torch.zeros(d), m), 0, A, torch.ones(m, d))
    return _size(state)


def _size(value: Any) -> int:
    """The number of entries of all tensors in a state."""
    if isinstance(value, torch.Tensor):
        return value.numel()
    if dataclasses.is_dataclass(value):
        return sum(_size(getattr(value, field.name)) for field in dataclasses.fields(value))
    if isinstance(value, Mapping):
        return sum(map(_size, value.values()))
    return sum(map(_size, value)) if isinstance(value, list | tuple) else 0


def candidates(fleet: Fleet, algorithms: Mapping[str, Any], influences: Mapping[str, Influence]) -> list[Candidate]:
    """The audited algorithms without those that need known probabilities."""
    out = []
    for name, algorithm in algorithms.items():
        if needs_probabilities(algorithm):
            continue
        echoes = fleet.echo.multiplier(algorithm.max_echo) if isinstance(algorithm, FedAWE) else None
        out.append(Candidate(name, algorithm, influences[name].among(fleet.seen), echoes))
    return out


def choose(found: Sequence[Candidate]) -> Candidate:
    """The algorithm to run.

    Plain averaging if its bias is small. Else an algorithm with echoes, if its multiplier is at most CALM and its bias
    within ENOUGH of the smallest. Else the least biased of the others, where an algorithm that keeps a model of every
    client must have a bias that is lower by ENOUGH.
    """
    plain = [one for one in found if type(one.algorithm) is FedAvg and one.bias < ENOUGH]
    if plain:
        return min(plain, key=lambda one: one.bias)
    others = [one for one in found if not isinstance(one.algorithm, FedAvg | FedAvgAll)] or list(found)
    least = min(one.bias for one in others)
    echoing = [one for one in others if one.multiplier is not None and one.calm and one.bias <= least + ENOUGH]
    if echoing:
        return min(echoing, key=lambda one: one.bias)
    calm = [one for one in others if one.multiplier is None] or others
    return min(
        calm,
        # On a trace with long absences FedVARP was less accurate than MIFA (docs/results.md).
        key=lambda one: one.bias + ENOUGH * one.keeps_models + CHEAP * isinstance(one.algorithm, FedVARP),
    )
