"""A drawn trace whose rounds are drawn on demand, so that it need not be in memory as a whole."""

from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

import numpy as np
import torch

from fedawe.availability.dynamics import Array, Dynamics, Mask, chances
from fedawe.core.errors import UserError

SAMPLED = 64  # rounds from which rates and sizes of a long trace are estimated


@dataclass(frozen=True, eq=False)
class Drawn:
    """The availability of m clients with base probabilities `base` [m] over T = `rounds` rounds, under a seed."""

    dynamics: Dynamics
    base: Array
    rounds: int
    seed: int
    _newest: dict[int, Mask] = field(default_factory=dict, repr=False)  # the round that was drawn last

    def __getstate__(self) -> dict[str, Any]:
        """The state for pickle, without the round that was drawn last."""
        return {**self.__dict__, "_newest": {}}

    @property
    def shape(self) -> tuple[int, int]:
        """[T, m]."""
        return self.rounds, len(self.base)

    def first(self, rounds: int) -> "Drawn":
        """The first rounds of this trace."""
        return replace(self, rounds=rounds, _newest={})

    @cached_property
    def _looks_back(self) -> bool:
        """Whether a round depends on the one before.

        Dynamics with their own `available` say this in `looks_back`; if they do not say it, a dependence is assumed.
        """
        own = getattr(type(self.dynamics), "available", Dynamics.available)
        return own is not Dynamics.available and bool(getattr(self.dynamics, "looks_back", True))

    def row(self, t: int) -> Mask:
        """Whether each client is available in round t, [m]; the rounds on which t depends are drawn first."""
        if t not in self._newest:
            last = next(iter(self._newest), -1)
            first = t if not self._looks_back else last + 1 if last < t else 0
            before = self._newest.get(first - 1)
            for q in range(first, t + 1):
                before = self._draw(q, before)
            assert before is not None
            self._newest.clear()
            self._newest[t] = before
        return self._newest[t]

    def _draw(self, t: int, before: Mask | None) -> Mask:
        # If an object has only `probabilities`, all rounds and clients are drawn independently.
        available = getattr(type(self.dynamics), "available", Dynamics.available)
        row = np.empty(len(self.base), dtype=bool)
        found = available(self.dynamics, self.seed, t, self.base, before)
        if np.shape(found) != row.shape:
            raise UserError(
                f"{type(self.dynamics).__name__}.available returned {_kind(found)} in round {t}; expected whether each "
                f"client is available, {list(row.shape)}"
            )
        row[:] = found
        row.flags.writeable = False
        return row

    def whole(self) -> Mask:
        """All rounds, [T, m]."""
        on, before = np.empty(self.shape, dtype=bool), None
        for t in range(self.rounds):
            before = on[t] = self._draw(t, before)
        return on

    def __len__(self) -> int:
        return self.rounds

    def __getitem__(self, t: int) -> torch.Tensor:
        """The probabilities of round t, [m] float64."""
        return torch.from_numpy(np.array(chances(self.dynamics, t, self.base)))

    def probabilities(self) -> Array:
        """The probabilities of all rounds, [T, m]."""
        return chances(self.dynamics, np.arange(self.rounds), self.base)

    def _sampled(self) -> list[int]:
        spread = np.linspace(0, self.rounds - 1, SAMPLED).astype(int).tolist()
        return sorted({*range(min(SAMPLED, self.rounds)), *spread})

    @cached_property
    def rates(self) -> Array:
        """The share of rounds in which each client is available, estimated from some rounds, [m]."""
        rounds = self._sampled()
        total = np.zeros(len(self.base))
        for t in rounds:
            total += self[t].numpy()
        return total / len(rounds)

    @cached_property
    def most(self) -> int:
        """An estimate of the largest number of available clients in a round.

        It is the largest expected number in the sampled rounds plus six standard deviations.
        """
        mean = max(float(self[t].sum()) for t in self._sampled())
        return min(len(self.base), int(np.ceil(mean + 6 * np.sqrt(mean))))


def _kind(found: Any) -> str:
    return f"an array of shape {list(found.shape)}" if isinstance(found, np.ndarray) else type(found).__name__
