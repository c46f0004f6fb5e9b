"""Dynamics: the probability p_i^t = p_i f_i(t) that client i is available in round t.

The paper's four dynamics (Stationary, Staircase, Sine, InterleavedSine), two of related work (Markov, Cyclic), outages
that groups of clients share (Outages), and the paper's rule for p_i. m clients, t the round from 0. Probabilities are
numpy arrays, or torch tensors if p is one.
"""

from abc import ABC, abstractmethod
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt
import torch

from fedawe.core.errors import UserError
from fedawe.core.rng import rng

LARGEST = 1e15  # of any option of dynamics; no run has so many rounds
Array = npt.NDArray[np.float64]
Mask = npt.NDArray[np.bool_]


class Dynamics(ABC):
    """A model of availability; for your own, derive a class with the method `trajectory`.

    name                 its name on the command line; by default the name of the class in lower case
    independent_rounds   whether the availability of a client in different rounds is independent
    independent_clients  whether the availability of different clients is independent
    looks_back           whether its own method `available` reads `before`; if not, any round can be drawn by itself
    """

    name = ""
    independent_rounds = True
    independent_clients = True
    looks_back = True

    @abstractmethod
    def trajectory(self, t: npt.NDArray[np.int64], p: Array) -> Array:
        """p_i f_i(t) before it is clipped to [0, 1]; t broadcasts against p [m]."""

    def probabilities(self, t: Any, p: Any) -> Any:
        """p_i^t: [m] for one round t, [T, m] for an array of T rounds; clipped to [0, 1] as the authors do.

        >>> Sine(gamma=0.3, period=20).probabilities(15, [0.5, 1.0]).round(3).tolist()    # the trough
        [0.2, 0.4]
        """
        rounds = np.asarray(t)
        if rounds.dtype.kind not in "iu" or rounds.ndim > 1 or (rounds < 0).any():
            raise UserError(f"a round must be a whole number from 0 (or an array of them), not {t!r}")
        base = as_probabilities(p)
        out = np.clip(_numbers(self, self.trajectory(rounds[..., None], base), (*rounds.shape, len(base))), 0.0, 1.0)
        return torch.as_tensor(out, dtype=p.dtype, device=p.device) if isinstance(p, torch.Tensor) else out

    def available(self, seed: int, t: int, p: Array, before: Mask | None) -> Mask:
        """Whether each client is available in round t, [m].

        `before` is the same for round t-1, or None if that round was not drawn. It is always given, except in round 0,
        if `looks_back` is true.
        """
        del before
        return rng(seed, "availability", t).random(len(p)) < chances(self, t, p)


def chances(dynamics: Any, t: Any, p: Array) -> Array:
    """The checked probabilities of any dynamics in round t, [m], or in rounds t, [T, m]."""
    found, shape = dynamics.probabilities(t, p), (*np.shape(t), len(p))
    try:
        out: Array = np.asarray(found, dtype=np.float64)
    except (TypeError, ValueError):
        out = np.empty(0)
    name = type(dynamics).__name__
    if out.shape != shape:
        got = f"an array of shape {list(np.shape(found))}" if isinstance(found, np.ndarray) else type(found).__name__
        raise UserError(f"{name}.probabilities returned {got}; expected one number per client, {list(shape)}")
    if not ((out >= 0) & (out <= 1)).all():  # also refuses NaN
        *row, client = np.argwhere(~((out >= 0) & (out <= 1)))[0].tolist()
        when = np.asarray(t)[tuple(row)]
        raise UserError(
            f"{name} gives client {client} the probability {out[(*row, client)]:g} in round {when}; expected a number "
            "in [0, 1]"
        )
    return out


def _numbers(dynamics: Any, found: Any, shape: tuple[int, ...]) -> Array:
    """The result of a method `trajectory`, broadcast to one number per client; refused if that is impossible."""
    try:
        return np.broadcast_to(np.asarray(found, dtype=np.float64), shape)
    except (TypeError, ValueError):
        got = f"an array of shape {list(np.shape(found))}" if isinstance(found, np.ndarray) else type(found).__name__
        raise UserError(
            f"{type(dynamics).__name__}.trajectory returned {got} for {shape[-1]} clients; expected one number per "
            f"client, {list(shape)} or what broadcasts to it"
        ) from None


def as_probabilities(p: Any) -> Array:
    """p [m] as float64; refuses NaN and anything that is not a vector of numbers, but not values outside [0, 1]."""
    try:
        base = np.asarray(p.detach().cpu() if isinstance(p, torch.Tensor) else p, dtype=np.float64)
    except (TypeError, ValueError) as error:
        raise UserError(f"probabilities must be numbers: {error}") from None
    if base.ndim != 1 or len(base) == 0:
        raise UserError(f"probabilities must be one number per client, not an array of shape {list(base.shape)}")
    if not np.isfinite(base).all():
        client = int(np.flatnonzero(~np.isfinite(base))[0])
        raise UserError(f"the probability of client {client} is {base[client]}; expected a number in [0, 1]")
    return base


def as_base_probabilities(p: Any) -> Array:
    """p [m] from a user, as float64; values outside [0, 1] are refused."""
    base = as_probabilities(p)
    wrong = np.flatnonzero((base < 0) | (base > 1))
    if len(wrong):
        raise UserError(f"p of client {wrong[0]} is {base[wrong[0]]:g}; expected a probability from 0 to 1")
    return base


@dataclass(frozen=True)
class Stationary(Dynamics):
    """f_i(t) = 1: the probabilities do not change over time.

    >>> Stationary().probabilities(7, [0.5, 0.1])
    array([0.5, 0.1])
    """

    def trajectory(self, t: npt.NDArray[np.int64], p: Array) -> Array:
        return p * np.ones_like(t)


@dataclass(frozen=True)
class Staircase(Dynamics):
    """f_i(t) = 1 in the first half of every period and `low` in the second.

    >>> Staircase(period=4).probabilities(range(4), [0.5])[:, 0]
    array([0.5, 0.5, 0.2, 0.2])
    """

    period: int = 20
    low: float = 0.4

    def __post_init__(self) -> None:
        _check("period", self.period, at_least=1)
        _check("low", self.low, at_least=0)

    def trajectory(self, t: npt.NDArray[np.int64], p: Array) -> Array:
        return np.where(2 * (t % self.period) < self.period, 1.0, self.low) * p


@dataclass(frozen=True)
class Sine(Dynamics):
    """f_i(t) = gamma sin(2 pi t / period) + (1 - gamma).

    >>> Sine(gamma=0.3, period=4).probabilities(range(4), [0.5])[:, 0].round(2)
    array([0.35, 0.5 , 0.35, 0.2 ])
    """

    gamma: float = 0.3
    period: int = 20

    def __post_init__(self) -> None:
        _check("gamma", self.gamma, at_least=0)
        _check("period", self.period, at_least=1)

    def trajectory(self, t: npt.NDArray[np.int64], p: Array) -> Array:
        # t mod period, so that every period has bit for bit the same values.
        return (self.gamma * np.sin(2 * np.pi * (t % self.period) / self.period) + (1 - self.gamma)) * p


@dataclass(frozen=True)
class InterleavedSine(Dynamics):
    """f_i(t) = g(t) 1{p_i g(t) >= cutoff}, where g is the sine: a probability below the cutoff becomes 0.

    >>> InterleavedSine(gamma=0.3, period=4, cutoff=0.3).probabilities(range(4), [0.5])[:, 0].round(2)
    array([0.35, 0.5 , 0.35, 0.  ])
    """

    name = "interleaved"

    gamma: float = 0.3
    period: int = 20
    cutoff: float = 0.1

    def __post_init__(self) -> None:
        Sine(self.gamma, self.period)
        _check("cutoff", self.cutoff, at_least=0)

    def trajectory(self, t: npt.NDArray[np.int64], p: Array) -> Array:
        likely = Sine(self.gamma, self.period).trajectory(t, p)
        return np.where(likely >= self.cutoff, likely, 0.0)


@dataclass(frozen=True)
class Markov(Dynamics):
    """Markov chains: P(off -> on) = q and P(on -> off) = q (1/p - 1), both divided by the latter if that exceeds 1.

    If it does not, a client is unavailable for 1/q rounds on average and then available for p / (q (1 - p)) rounds. In
    every round it is available with probability p.
    """

    independent_rounds = False

    q: float = 0.1

    def __post_init__(self) -> None:
        _check("q", self.q, above=0, at_most=1)

    def trajectory(self, t: npt.NDArray[np.int64], p: Array) -> Array:
        return p * np.ones_like(t)

    def available(self, seed: int, t: int, p: Array, before: Mask | None) -> Mask:
        p = np.clip(p, 0.0, 1.0)
        leave = self.q * (1 / np.maximum(p, np.finfo(float).tiny) - 1)
        scale = np.maximum(leave, 1.0)
        stay_or_come = p if before is None else np.where(before, 1 - leave / scale, self.q * (p > 0) / scale)
        return rng(seed, "availability", t).random(len(p)) < stay_or_come


@dataclass(frozen=True)
class Cyclic(Dynamics):
    """Every client is available for max(1, round(period p)) rounds of every period, with a random phase.

    It is unavailable for the rest of the period; if nothing is left of the period, for one more round.
    """

    independent_rounds = False
    looks_back = False

    period: int = 20

    def __post_init__(self) -> None:
        _check("period", self.period, at_least=2)

    def _on_and_off(self, p: Array) -> tuple[Array, Array]:
        on = np.maximum(1, np.round(self.period * np.clip(p, 0.0, 1.0)))
        return on, np.maximum(1, self.period - on)

    def trajectory(self, t: npt.NDArray[np.int64], p: Array) -> Array:
        on, off = self._on_and_off(p)  # the phase is random, so all rounds are alike
        return on / (on + off) * np.ones_like(t)

    def available(self, seed: int, t: int, p: Array, before: Mask | None) -> Mask:
        del before
        on, off = self._on_and_off(p)
        phase = np.floor(rng(seed, "phase").random(len(p)) * (on + off))
        return (t + phase) % (on + off) < on


@dataclass(frozen=True)
class Outages(Dynamics):
    """Outages of groups of clients: client i is in group i mod `groups`.

    In every round an outage of a group begins with probability `rate` and lasts `length` rounds. Meanwhile no client of
    the group is available; otherwise client i is available with probability p_i. Outages may overlap.
    """

    independent_rounds = False
    independent_clients = False
    looks_back = False

    groups: int = 5
    rate: float = 0.02
    length: int = 10
    # (seed, t) of the round drawn last -> the last round up to t in which an outage of each group began        [groups]
    _newest: dict[tuple[int, int], npt.NDArray[np.int64]] = field(
        default_factory=dict, init=False, repr=False, compare=False
    )

    def __post_init__(self) -> None:
        for name in ("groups", "length"):
            if not isinstance(getattr(self, name), int | np.integer):
                raise UserError(f"{name} is {getattr(self, name)!r}; expected a whole number")
        _check("groups", self.groups, at_least=1, at_most=10**6)
        _check("rate", self.rate, at_least=0, at_most=1)
        _check("length", self.length, at_least=1)

    def trajectory(self, t: npt.NDArray[np.int64], p: Array) -> Array:
        return (1 - self.rate) ** np.minimum(t + 1, self.length) * p  # no outage began in the last `length` rounds

    def available(self, seed: int, t: int, p: Array, before: Mask | None) -> Mask:
        del before
        out = self._began(seed, t) > t - self.length
        there = rng(seed, "availability", t).random(len(p)) < p
        return np.asarray(there & ~out[np.arange(len(p)) % self.groups])

    def _began(self, seed: int, t: int) -> npt.NDArray[np.int64]:
        """The last round up to t in which an outage of each group began; at most t - length if no outage is left.

        For successive rounds the time does not depend on `length`.
        """
        known = next((at for of, at in self._newest if of == seed and at <= t), -1)
        last = np.full(self.groups, -self.length) if known < 0 else self._newest[seed, known]
        for begin in range(max(known + 1, t - self.length + 1), t + 1):
            last = np.where(rng(seed, "outage", begin).random(self.groups) < self.rate, begin, last)
        self._newest.clear()
        self._newest[seed, t] = last
        return last


def class_weights(classes: int, generator: np.random.Generator) -> Array:
    """The paper's phi [C]: phi_c ~ Uniform(0, Phi_c), Phi_c = 1 for the first half of the classes, 0.5 for the rest."""
    upper = np.where(np.arange(classes) < classes / 2, 1.0, 0.5)
    return generator.uniform(0.0, upper)


def probabilities_from_labels(frequencies: Array, phi: Array) -> Array:
    """p_i = <nu_i, phi> [m], with nu_i [m, C] the actual label frequencies of client i.

    >>> probabilities_from_labels(np.array([[1.0, 0.0], [0.5, 0.5]]), np.array([0.8, 0.2])).tolist()
    [0.8, 0.5]
    """
    return np.asarray(frequencies @ phi, dtype=np.float64)


def _check(name: str, value: float, at_least: float = -np.inf, above: float = -np.inf, at_most: float = np.inf) -> None:
    number = isinstance(value, int | float | np.number)
    if not number or value > LARGEST or not (at_least <= value <= at_most and value > above):  # also refuses NaN
        bounds = [f"at least {at_least:g}"] * (at_least > -np.inf) + [f"above {above:g}"] * (above > -np.inf)
        bounds += [f"at most {min(at_most, LARGEST):g}"] * (at_most < np.inf or (number and value > LARGEST))
        raise UserError(f"{name} is {value!r}; expected a number {' and '.join(bounds)}")


# Names on the command line -> classes.
DYNAMICS: dict[str, type[Dynamics]] = {
    dynamics.name or dynamics.__name__.lower(): dynamics
    for dynamics in (Stationary, Staircase, Sine, InterleavedSine, Markov, Cyclic, Outages)
}
