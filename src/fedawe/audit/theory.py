"""The paper's theory in numbers: mixing, staleness, learning rates, bounds, and the costs of each algorithm.

Symbols as in the paper: m clients, p_i^t >= delta, W the gossip matrix of a round, M = E[W^2], rho its second largest
eigenvalue, s local steps, L smoothness, sigma and zeta noise and divergence of gradients, beta of Assumption 4.
Theorems, lemmas and equations are numbered as in arXiv:2409.17446. `+` marks exact values and tighter bounds that are
not in the paper.
"""

from collections.abc import Callable
from dataclasses import dataclass
from math import ceil, inf, sqrt

import numpy as np

from fedawe.availability.dynamics import Array, as_probabilities
from fedawe.availability.trace import Trace
from fedawe.core.errors import UserError
from fedawe.core.rng import rng

DENSE = 2000  # with more clients, matrices [m, m] are not formed


def _nodes(m: int) -> tuple[Array, Array]:
    """Nodes and weights on [0, 1] that integrate polynomials of degree m exactly, or up to rounding if m is large."""
    n = min(ceil((m + 1) / 2), 64 + ceil(8 * sqrt(m)))
    x, w = np.polynomial.legendre.leggauss(n)
    return (x + 1) / 2, w / 2


@dataclass(frozen=True)
class Mixing:
    """M = E[W] for independent clients, as diag(d) + B B' without forming it.

    W^2 = W, so that M = E[W^2] = E[W]. M_ij = p_i p_j E[1/(2 + others)] for i != j, and E[1/(2 + n)] is the integral
    over [0, 1] of s E[s^n]: a polynomial in s, which a sum over nodes integrates exactly.
    """

    diagonal: Array  # [m]
    factor: Array  # B                                                                                       [m, n]

    @classmethod
    def of(cls, p: Array) -> "Mixing":
        """For the probabilities p [m] of one round."""
        p = as_probabilities(p)
        if ((p < 0) | (p > 1)).any():
            raise UserError("probabilities must be in [0, 1]")
        s, w = _nodes(len(p))
        one = 1 - p[:, None] + p[:, None] * s  # E[s^{1 if client i is active}]                              [m, n]
        everyone = np.exp(np.log(one).sum(0))
        B = p[:, None] / one * np.sqrt(w * s * everyone)
        alone = (p[:, None] / one * (w * everyone)).sum(1)  # E[1{i in A} / |A|]
        return cls(1 - p + alone - (B**2).sum(1), B)

    def matrix(self) -> Array:
        """M [m, m]."""
        return np.diag(self.diagonal) + self.factor @ self.factor.T

    def rho(self) -> float:
        """lambda_2(M)."""
        m = len(self.diagonal)
        if m == 1:
            return 0.0
        if m <= DENSE:
            return second_eigenvalue(self.matrix())
        return _second_by_lanczos(lambda v: self.diagonal * v + self.factor @ (self.factor.T @ v), m)


def second_eigenvalue(M: Array) -> float:
    """The second largest eigenvalue of a symmetric doubly stochastic matrix, whose largest is 1, of the vector of ones.

    >>> second_eigenvalue(np.array([[0.75, 0.25], [0.25, 0.75]]))
    0.5
    """
    return round(float(np.clip(np.linalg.eigvalsh(M - 1 / len(M))[-1], 0.0, 1.0)), 15)


def _second_by_lanczos(product: Callable[[Array], Array], m: int) -> float:
    from scipy.sparse.linalg import LinearOperator, eigsh

    operator = LinearOperator((m, m), matvec=lambda v: product(v.ravel()) - v.mean(), dtype=np.float64)
    start = rng(0, "theory", "lanczos").normal(size=m)
    top = eigsh(operator, k=1, which="LA", v0=start, return_eigenvectors=False, tol=1e-10)[0]
    return float(np.clip(top, 0.0, 1.0))


def rho(p: Array) -> float:
    """rho = max_t lambda_2(M^(t)) for probabilities [m] or [T, m]: the factor of Lemma 1.

    >>> round(rho(np.array([0.5, 0.5])), 12), rho_equal(0.5, 2)
    (0.75, 0.75)
    """
    return worst_round(p)[1]


def worst_round(p: Array) -> tuple[int, float]:
    """The first round whose M mixes least, and its lambda_2, for probabilities [m] or [T, m].

    >>> worst_round(np.array([[0.9, 0.9], [0.5, 0.5], [0.5, 0.5]]))
    (1, 0.75)
    """
    rows, first = np.unique(np.atleast_2d(np.asarray(p, dtype=np.float64)), axis=0, return_index=True)
    found = [(Mixing.of(row).rho(), -int(t)) for row, t in zip(rows, first, strict=True)]
    largest, t = max(found)
    return -t, largest


def rho_of_trace(trace: Trace) -> float:
    """lambda_2 of the mean of W over the rounds of a trace, which needs no independence of clients or rounds."""
    if trace.clients > DENSE:
        raise UserError(f"{trace.clients} clients: the mean of W is formed for at most {DENSE}")
    if trace.clients == 1:
        return 0.0
    M = np.zeros((trace.clients, trace.clients))
    for at in range(0, trace.rounds, 512):
        on = trace.on[at : at + 512].astype(np.float64)
        on /= np.sqrt(np.maximum(on.sum(1, keepdims=True), 1))
        M += on.T @ on
    M /= trace.rounds
    M[np.diag_indices(trace.clients)] += 1 - trace.on.mean(0)
    return second_eigenvalue(M)


def rho_paper(delta: float, m: int) -> float:
    """Lemma 4: rho <= 1 - delta^4 (1 - (1 - delta)^m)^2 / 8."""
    return 1 - delta**4 * (1 - (1 - delta) ** m) ** 2 / 8


def rho_simple(delta: float) -> float:
    """+ rho <= 1 - delta^2: every entry of M is at least delta^2 / m, and M is symmetric and doubly stochastic."""
    return 1 - delta**2


def rho_equal(p: float, m: int) -> float:
    """+ rho = (1 - p) (m - (1 - p)^{m-1}) / (m - 1) exactly, if all probabilities are p."""
    return (1 - p) * (m - (1 - p) ** (m - 1)) / (m - 1) if m > 1 else 0.0


def staleness(p: Array) -> tuple[Array, Array]:
    """+ E[t - tau_i(t)] and E[(t - tau_i(t))^2] exactly for probabilities p [T, m], t = 0, ..., T, both [T + 1, m].

    P(t - tau > r) is the product of 1 - p_i^q over the r rounds before t.

    >>> first, second = staleness(np.full((2000, 1), 0.25))
    >>> first[-1].round(9), second[-1].round(9)                # 1/p and (2 - p)/p^2
    (array([4.]), array([28.]))
    """
    p = np.asarray(p, dtype=np.float64)
    first, second = np.ones((len(p) + 1, p.shape[1])), np.ones((len(p) + 1, p.shape[1]))
    for t, now in enumerate(p):
        # With probability p the client was available and t + 1 - tau is 1; else it is one more than before.
        first[t + 1] = 1 + (1 - now) * first[t]
        second[t + 1] = 1 + (1 - now) * (second[t] + 2 * first[t])
    return first, second


def staleness_of_trace(trace: Trace) -> tuple[Array, Array]:
    """The means of t - tau_i(t) and of its square over the rounds of a trace, both [m].

    >>> first, second = staleness_of_trace(Trace([[1], [0], [0], [1]]))
    >>> first.tolist(), second.tolist()                        # 1, 1, 2, 3
    ([1.75], [3.75])
    """
    away, first, second = np.ones(trace.clients), np.zeros(trace.clients), np.zeros(trace.clients)
    for now in trace.on:
        first += away
        second += away**2
        away = np.where(now, 1, away + 1)
    return first / trace.rounds, second / trace.rounds


def staleness_bounds(delta: float) -> tuple[float, float]:
    """Lemma 2: E[t - tau] <= 1/delta, E[(t - tau)^2] <= 2/delta^2."""
    return 1 / delta, 2 / delta**2


CONSTANTS = {"z-bar": (6, 24, 15, 2800), "x-bar": (12, 48, 31, 5600), "x_i": (3, 12, 28, 1600)}


@dataclass(frozen=True)
class Problem:
    """The constants that the theorems use."""

    m: int  # clients
    delta: float  # smallest probability
    rho: float
    s: int = 10  # local steps
    L: float = 1.0  # smoothness
    beta: float = 0.0  # Assumption 4
    delta_max: float = 1.0  # largest probability
    sigma: float = 1.0  # gradient noise
    zeta: float = 1.0  # gradient divergence
    gap: float = 1.0  # F(x-bar^0) - F*

    def __post_init__(self) -> None:
        if not 0 < self.delta <= self.delta_max <= 1:
            raise UserError(f"expected 0 < delta <= delta_max <= 1, not {self.delta} and {self.delta_max}")
        if not 0 <= self.rho <= 1:
            raise UserError(f"rho is {self.rho}; expected a number in [0, 1]")
        constants = (self.beta, self.sigma, self.zeta, self.gap)
        if self.m < 1 or self.s < 1 or not 0 < self.L < inf or not all(0 <= value < inf for value in constants):
            raise UserError(
                f"m = {self.m}, s = {self.s}, L = {self.L}, beta, sigma, zeta, gap = {constants}: expected m and s "
                "from 1, L above 0, and the others from 0, all of them finite"
            )

    @property
    def _root(self) -> float:
        return sqrt((self.beta**2 + 1) * (1 + self.L**2))

    def largest_rates(self) -> dict[str, tuple[float, float]]:
        """Name of a condition -> largest (eta_l eta_g, eta_l) it allows; inf where it says nothing."""
        s, L, delta, r = self.s, self.L, self.delta, sqrt(self.rho)
        return {
            "condition (11)": (
                (1 - r) * delta / (80 * s * (L + 1) * (r + 1) * self._root),
                delta / (200 * s * L * self._root),
            ),
            "Lemma 3": (9 / (100 * s * L), inf),
            "Lemma 5": (inf, 1 / (4 * s * L)),
            "Lemma 6": (delta * (1 - r) / (10 * s * L * (r + 1)), delta / (20 * s * L)),
        }

    def corollary_1(self, T: float) -> tuple[float, float]:
        """(eta_l, eta_g) that Corollary 1 chooses: 1/(sqrt(T) s L) and sqrt(s delta m)."""
        return 1 / (sqrt(T) * self.s * self.L), sqrt(self.s * self.delta * self.m)

    def smallest_T(self) -> float:
        """+ The smallest T whose Corollary 1 rates satisfy (11); the paper says T >= 1."""
        r = sqrt(self.rho)
        if r >= 1:
            return inf
        one = (
            self.s * self.m * (80 * (self.L + 1) * (1 + r) * self._root) ** 2 / (self.L**2 * self.delta * (1 - r) ** 2)
        )
        return max(1.0, one, 40000 * self._root**2 / self.delta**2)

    def bound(self, T: float, eta_l: float, eta_g: float, of: str = "x-bar") -> tuple[float, float, float, float]:
        """The terms of a bound on a mean over rounds, for eta_g >= 1: start, noise, noise and mixing, divergence.

        of   "z-bar": E||grad F(z-bar)||^2, Theorem 1; "x-bar": E||grad F(x-bar)||^2, Corollary 2; "x_i":
             (1/m) sum_i E||x_i - x-bar||^2 for L >= 1, Corollary 3
        """
        if of not in CONSTANTS:
            raise UserError(f"the bounds are of {', '.join(map(repr, CONSTANTS))}, not {of!r}")
        a, b, c, d = CONSTANTS[of]
        step, mixing = eta_l * eta_g, 1 - sqrt(self.rho)
        spread = (step * self.s * self.L / (self.delta * mixing)) ** 2 if mixing > 0 else inf
        return (
            a * self.gap / (step * self.s * T),
            b * step * self.L * self.delta_max * self.sigma**2 / (self.m * self.delta**2),
            c * spread * self.sigma**2 if self.sigma else 0.0,
            d * spread * self.zeta**2 if self.zeta else 0.0,
        )


@dataclass(frozen=True)
class Cost:
    """The numbers of vectors [d] that are kept and sent, and of scalars that are kept."""

    server: int  # models or innovations the server keeps
    client: int  # models each client keeps
    scalars: int  # scalars the server keeps
    down: float  # models sent to clients in a round
    up: float  # models received in a round


def costs(m: int, k: float, versions: float) -> dict[str, Cost]:
    """The costs of each algorithm with m clients, k of them active in a round; FedAWE keeps `versions` models."""
    plain = Cost(1, 0, 0, k, k)
    return {
        "fedawe (clients keep x_i)": Cost(0, 1, 0, k, k),
        "fedawe (server keeps versions)": Cost(ceil(versions), 0, m, k, k),
        "fedavg": plain,
        "fedavg-all": plain,
        "fedavg-known": Cost(1, 0, m, k, k),
        "fedau": Cost(1, 0, 3 * m, k, k),
        "f3ast": Cost(1, 0, m, k, k),
        "mifa": Cost(2 + m, 0, 0, k, k),
        "fedvarp": Cost(2 + m, 0, 0, k, k),
    }
