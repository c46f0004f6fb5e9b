"""The influence of each client on the model, computed from a trace alone, because rules are linear in the innovations.

`by_identity` is the definition: run the algorithm itself from x0 = 0 in R^m, where client i answers -e_i whenever it is
active; coordinate i of the model is then how much client i has counted. That needs m numbers per client. `influence`
computes the same from a few scalars per client; the tests compare both.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from fedawe.algorithms import F3AST, MIFA, FedAU, FedAvg, FedAvgAll, FedAvgKnown, FedAWE, FedVARP, name_of
from fedawe.algorithms.facts import is_linear, rule_inside
from fedawe.availability.dynamics import Array, Mask
from fedawe.availability.trace import Trace
from fedawe.core.errors import UserError
from fedawe.tasks.base import Metrics, Task, Work
from fedawe.training.local import Local, Rate
from fedawe.training.simulate import simulate

Ints = npt.NDArray[np.int64]


@dataclass(frozen=True)
class Influence:
    """How much each client has counted in a model, after several numbers of rounds."""

    after: Ints  # numbers of rounds, increasing                                                        [C]
    counted: Array  # counted[c, i]: client i after after[c] rounds, in units of one innovation         [C, m]

    @property
    def shares(self) -> Array:
        """The share of each client in the total at the end; zero for all clients if nothing was counted, [m]."""
        return _normalised(self.counted[-1])

    @property
    def fair(self) -> Array:
        """Each client's share over the fair share 1/m: 1 is fair, 0 is forgotten, [m]."""
        return np.asarray(self.shares * self.counted.shape[1])

    @property
    def total_variation(self) -> float:
        """The bias, (1/2) sum_i |share_i - 1/m|: the part of the influence that must move to make all clients equal."""
        return total_variation(self.shares)

    def extremes(self, some: Mask) -> tuple[float, float]:
        """The smallest and largest share over the fair share among these clients [m] bool (among all if none)."""
        fair = self.fair[some] if some.any() else self.fair
        return float(fair.min()), float(fair.max())

    def among(self, some: Mask) -> float:
        """The bias within these clients alone, [m] bool."""
        return total_variation(_normalised(self.counted[-1][some])) if some.any() else 0.0

    @property
    def effective_clients(self) -> float:
        """1 / sum_i share_i^2: the number of clients of equal influence with the same sum of squared shares."""
        squares = float((self.shares**2).sum())
        return 1 / squares if squares > 0 else 0.0

    @property
    def speed(self) -> float:
        """Mean total influence added per round; 1 if every client were always available."""
        return float(self.counted[-1].sum() / self.after[-1])

    def shares_over_time(self) -> Array:
        """The shares after each number of rounds in `after`, [C, m]."""
        return np.stack([_normalised(row) for row in self.counted])

    def over_time(self) -> Array:
        """The total variation after each number of rounds in `after`, [C]."""
        return np.array([total_variation(row) for row in self.shares_over_time()])

    def forgotten(self, n: int) -> list[int]:
        """The n clients with the least influence, in increasing order."""
        return [int(i) for i in np.argsort(self.shares, kind="stable")[:n]]


def total_variation(shares: Array) -> float:
    """(1/2) sum_i |share_i - 1/m|; 1 if nothing was counted.

    >>> total_variation(np.array([0.75, 0.25]))
    0.25
    """
    return float(np.abs(shares - 1 / len(shares)).sum() / 2) if shares.any() else 1.0


def _normalised(counted: Array) -> Array:
    total = counted.sum()
    return counted / total if total > 0 else np.zeros_like(counted)


def by_identity(algorithm: Any, trace: Trace, after: Sequence[int] | None = None, latest: bool = False) -> Influence:
    """The definition: simulate the algorithm from x0 = 0 on the gradients -e_i, with one local step at rate 1.

    With `latest`, the influence is that on the last aggregate instead of `model`.

    >>> always_and_half = Trace([[1, 1], [1, 0], [1, 1], [1, 0]])
    >>> by_identity(FedAvg(), always_and_half).counted      # 1/2 + 1 + 1/2 + 1  and  1/2 + 1/2
    array([[3., 1.]])
    """
    stops, one_step = _stops(after, trace), Local(Rate(1.0, "constant"), steps=1)
    rounds = simulate(_Identity(trace.clients), algorithm, trace.first(int(stops[-1])), one_step, seed=0)
    rows = [(done.state.latest if latest else done.x).numpy().copy() for done in rounds if done.t + 1 in stops]
    return Influence(stops, np.stack(rows))


class _Identity(Task):
    """A task in which the gradient of client i is always -e_i."""

    stacked = True

    def __init__(self, clients: int) -> None:
        self._clients = clients

    @property
    def clients(self) -> int:
        return self._clients

    def initial(self, seed: int) -> Tensor:
        del seed
        return torch.zeros(self.clients, dtype=torch.float64)

    def batches(self, work: Work) -> Tensor:
        return work.A

    def gradients(self, x: Tensor, batches: Tensor, step: int) -> Tensor:
        del step
        return torch.zeros_like(x).scatter_(1, batches[:, None], -1.0)

    def evaluate(self, x: Tensor) -> Metrics:
        del x
        return {}


def influence(algorithm: Any, trace: Trace, after: Sequence[int] | None = None, latest: bool = False) -> Influence:
    """The influence of every client, from a few scalars per client; it equals `by_identity`, the definition.

    Algorithms other than the eight of the paper are computed by the definition.

    after   numbers of rounds after which the influence is computed, increasing (default: once, at the end)
    latest  the influence on the last aggregate instead of `model`; they differ for FedAWE alone

    >>> influence(FedAWE(), Trace([[1, 1], [1, 0], [1, 1], [1, 0]])).counted      # tau_i + 1, over m
    array([[2. , 1.5]])
    """
    _check_linear(algorithm)
    stops, kind = _stops(after, trace), type(algorithm)
    if kind is FedAWE and (algorithm.carry or algorithm.max_absence is not None or algorithm.average == "active"):
        return by_identity(algorithm, trace, after, latest)
    if kind is FedAWE and latest:
        counted = np.stack([_latest(algorithm, trace.on[:n]) for n in stops])
    elif kind in _WHOLE:
        counted = _accumulated(_WHOLE[kind](algorithm, trace.on), trace.on, stops) / trace.clients
    elif kind in _WEIGHTS:
        counted = _accumulated(_WEIGHTS[kind](algorithm, trace.on), trace.on, stops)
    elif kind in _REMEMBERED:
        counted = _REMEMBERED[kind](algorithm, trace.on, stops)
    elif not is_linear(algorithm):
        raise UserError(
            f"{name_of(algorithm)} does not say that its model is linear in the updates (`linear = True`), so that the "
            "influence of a client does not follow from a trace; omit it"
        )
    else:
        return by_identity(algorithm, trace, after, latest)
    return Influence(stops, algorithm.eta_g * counted)


def _check_linear(algorithm: Any) -> None:
    """Refuses a rule whose influence does not follow from a trace alone, with the reason."""
    name, rule = type(algorithm).__name__, algorithm
    while rule is not None:
        if getattr(rule, "clip", None) is not None:
            raise UserError(f"{name} with clip={rule.clip}: a clip is not linear; audit without it")
        if getattr(rule, "memory_rate", None) is not None:
            raise UserError("memory_rate depends on the learning rates, which a trace does not have; audit without it")
        rule = rule_inside(rule)
    if getattr(algorithm, "linear", True) is False:
        raise UserError(
            f"{name} is not linear in the innovations, so that how much a client counts depends on what is learned and "
            "not on the trace alone; it cannot be audited"
        )


def _stops(after: Sequence[int] | None, trace: Trace) -> Ints:
    stops = np.array([trace.rounds] if after is None else after, dtype=np.int64)
    if len(stops) == 0 or stops[0] < 1 or stops[-1] > trace.rounds or (np.diff(stops) < 1).any():
        raise UserError(f"`after` must increase within 1 to {trace.rounds} rounds, not {list(map(int, stops))}")
    return stops


# Rules of the form x^{t+1} = x^t - eta_g sum_A w_i G_i, as FedAWE's x-bar too: iterators of the active clients A and
# their weights w [k] in every round.


def _rounds(on: Mask) -> Iterator[Ints]:
    return (np.flatnonzero(row) for row in on)


def _accumulated(weights: Iterable[tuple[Ints, Array | Ints]], on: Mask, stops: Ints) -> Array:
    """The sums of the weights of each client after the numbers of rounds in `stops`, [C, m]."""
    total, rows, wanted = np.zeros(on.shape[1]), [], set(stops.tolist())
    for t, (A, w) in enumerate(weights, 1):
        total[A] += w
        if t in wanted:
            rows.append(total.copy())
        if t == stops[-1]:
            break
    return np.stack(rows)


def _fedavg(_: FedAvg, on: Mask) -> Iterator[tuple[Ints, Array]]:
    for A in _rounds(on):
        yield A, np.full(len(A), 1 / max(len(A), 1))


def _fedavg_known(algorithm: FedAvgKnown, on: Mask) -> Iterator[tuple[Ints, Array]]:
    p = algorithm.p.numpy()
    for t, A in enumerate(_rounds(on)):
        if (p[t, A] == 0).any():
            raise UserError(f"client {A[p[t, A] == 0][0]} was available in round {t}, but its p is 0")
        yield A, 1 / (on.shape[1] * p[t, A])


def _fedau(algorithm: FedAU, on: Mask) -> Iterator[tuple[Ints, Array]]:
    m = on.shape[1]
    S, M, omega = np.zeros(m), np.zeros(m), np.ones(m)
    for t, A in enumerate(_rounds(on)):
        yield A, omega[A] / m
        S += 1
        ends = np.flatnonzero(on[t] | (algorithm.K == S))
        omega[ends] = (M[ends] * omega[ends] + S[ends]) / (M[ends] + 1)
        M[ends] += 1
        S[ends] = 0


def _f3ast(algorithm: F3AST, on: Mask) -> Iterator[tuple[Ints, Array]]:
    m = on.shape[1]
    r = np.full(m, 1 / m if algorithm.r0 == "share" else algorithm.r0)
    for A in _rounds(on):
        if algorithm.capacity is not None and len(A) > algorithm.capacity:
            A = A[np.sort(np.argsort(r[A], kind="stable")[: algorithm.capacity])]
        r *= 1 - algorithm.beta
        r[A] += algorithm.beta
        w = 1 / r[A]
        if len(A) == 0 or algorithm.normalise == "clients":
            yield A, w / m
        elif algorithm.normalise == "self":
            yield A, w / w.sum()
        else:
            yield A, w / (m * (algorithm.capacity or len(A)))


_WEIGHTS: dict[type, Callable[[Any, Mask], Iterator[tuple[Ints, Array]]]] = {
    FedAvg: _fedavg,
    FedAvgKnown: _fedavg_known,
    FedAU: _fedau,
    F3AST: _f3ast,
}


# Rules whose weights are whole numbers, divided by m at the end: their sums are exact, so that equal totals have equal
# bits.


def _fedavg_all(_: FedAvgAll, on: Mask) -> Iterator[tuple[Ints, Ints]]:
    for A in _rounds(on):
        yield A, np.ones_like(A)


def _fedawe(algorithm: FedAWE, on: Mask) -> Iterator[tuple[Ints, Ints]]:
    """x-bar^{t+1} = x-bar^t - (eta_g/m) sum_A (t - tau_i) G_i."""
    tau = np.full(on.shape[1], -1)
    for t, A in enumerate(_rounds(on)):
        yield A, _echo(algorithm, t - tau[A])
        tau[A] = t


def _echo(algorithm: FedAWE, away: Ints) -> Ints:
    return away if algorithm.max_echo is None else np.minimum(away, algorithm.max_echo)


_WHOLE: dict[type, Callable[[Any, Mask], Iterator[tuple[Ints, Ints]]]] = {FedAvgAll: _fedavg_all, FedAWE: _fedawe}


# FedAWE's last aggregate: x^{t+1} = (1/k) sum_A (x^{tau_i + 1} - (t - tau_i) G_i). It is a weighted sum of innovations
# through earlier versions. One pass from the last round to the first computes the weight of every version.


def _latest(algorithm: FedAWE, on: Mask) -> Array:
    m = on.shape[1]
    counted = np.zeros(m)
    # The next active round of each client (processed before, as time runs backwards), and its weight in that round.
    following, weight = np.zeros(m, dtype=np.int64), np.zeros(m)
    is_last = True
    for t in range(len(on) - 1, -1, -1):
        A = np.flatnonzero(on[t])
        if len(A) == 0:
            continue
        version = weight[A]  # with which x^{t+1} enters through the next rounds of the clients A         [k]
        counted[A] += version * _echo(algorithm, following[A] - t)
        weight[A] = (version.sum() + is_last) / len(A)
        following[A] = t
        is_last = False
    return counted + weight * _echo(algorithm, following + 1)  # first active rounds; weight 0 for clients without any


# MIFA and FedVARP keep the last innovation of each client, here always the same, which counts in every later round.


def _first(on: Mask) -> Ints:
    """The first round of each client, T for those that are never available, [m]."""
    first = np.full(on.shape[1], len(on))
    for t in range(len(on) - 1, -1, -1):  # row by row, as the trace is stored
        first[on[t]] = t
    return first


def _mifa(algorithm: MIFA, on: Mask, stops: Ints) -> Array:
    """1/m in every round from a client's first on; with warm-up, from the round in which the last client joins."""
    first = _first(on)
    begin = first if algorithm.warmup == "none" else np.full_like(first, first.max())
    return np.asarray(np.maximum(stops[:, None] - begin, 0) / on.shape[1])


def _fedvarp(_: FedVARP, on: Mask, stops: Ints) -> Array:
    """1/k in a client's first round, then 1/m in every round with an active client."""
    first, k = _first(on), on.sum(1)
    busy = np.cumsum(np.concatenate(([0], k > 0, [0])))  # non-empty rounds before round t                 [T + 2]
    since = (busy[stops[:, None]] - busy[first + 1]) / on.shape[1]
    once = 1 / np.maximum(np.append(k, 0)[first], 1)
    return np.where(first < stops[:, None], once + since, 0.0)


_REMEMBERED: dict[type, Callable[[Any, Mask, Ints], Array]] = {MIFA: _mifa, FedVARP: _fedvarp}
