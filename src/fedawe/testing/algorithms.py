"""The requirements that every algorithm meets."""

import copy
import dataclasses
from collections.abc import Mapping
from typing import Any

import numpy as np
import safetensors.torch
import torch
from torch import Tensor

from fedawe.algorithms.base import pack, unpack
from fedawe.algorithms.facts import is_linear, name_of, with_probabilities, with_seed, with_sizes
from fedawe.testing.failed import attempted, expect, refused

M, D, ROUNDS = 5, 3, 12
Past = list[tuple[Tensor, Tensor]]  # for every round the active clients [k] and their innovations [k, d]
NOBODY = torch.empty(0, dtype=torch.int64)


def check_algorithm(algorithm: Any) -> None:
    """Check that an object is an algorithm: shapes, dtypes, no side effects, order of arrival, refusals, resumption.

    If it declares `linear = True`, linearity is checked too, because the audit relies on it. Probabilities, numbers of
    samples and a seed are given to an algorithm that needs them, as in an experiment.

    >>> import fedawe
    >>> check_algorithm(fedawe.FedAvg(eta_g=0.5))
    """
    for verb in ("init", "start", "aggregate", "model"):
        expect(callable(getattr(algorithm, verb, None)), f"{type(algorithm).__name__} has no method `{verb}`")
    expect(not isinstance(algorithm, type), "an object is expected, not a class")
    name = name_of(algorithm)
    p = np.random.default_rng(0).uniform(0.2, 1.0, (ROUNDS + 5, M))
    algorithm = with_seed(with_sizes(with_probabilities(algorithm, p), np.arange(1, M + 1)), 0)
    for dtype in (torch.float32, torch.float64):
        past, x0 = _past(1, dtype), torch.linspace(-1, 1, D, dtype=dtype)
        _check_shapes(name, algorithm, x0, past)
        _check_purity(name, algorithm, x0, past)
        _check_order(name, algorithm, x0, past)
        _check_resumption(name, algorithm, x0, past)
    _check_refusals(name, algorithm)
    _check_repr(name, algorithm)
    if is_linear(algorithm):
        _check_linear(name, algorithm)


def _past(seed: int, dtype: torch.dtype) -> Past:
    """Rounds with different numbers of clients, also empty ones, in any order; one client is never active."""
    draw = np.random.default_rng(seed)
    active = [[2, 0], [], [1, 3, 0], [3], [], [2, 1], [0, 1, 2, 3]]
    active += [draw.permutation(M - 1)[: draw.integers(M)].tolist() for _ in range(ROUNDS - len(active))]
    rounds = []
    for A in active:
        G = torch.from_numpy(draw.normal(size=(len(A), D))).to(dtype)
        rounds.append((torch.tensor(A, dtype=torch.int64), G))
    return rounds


def _run(algorithm: Any, x0: Tensor, past: Past) -> Any:
    state = algorithm.init(x0, M)
    for t, (A, G) in enumerate(past):
        state = algorithm.aggregate(state, t, A, G)
    return state


def _check_shapes(name: str, algorithm: Any, x0: Tensor, past: Past) -> None:
    state = attempted(f"{name}.init(x0 [{D}], {M})", algorithm.init, x0, M)
    for t, (A, G) in enumerate(past):
        X = attempted(f"{name}.start with {len(A)} clients", algorithm.start, state, A)
        expect(
            isinstance(X, Tensor) and X.shape == (len(A), D) and X.dtype == x0.dtype,
            f"{name}.start must give [{len(A)}, {D}] of {x0.dtype}; it gives {_shape(X)}",
        )
        empty = " (empty)" if not len(A) else ""
        state = attempted(f"{name}.aggregate in round {t}{empty}", algorithm.aggregate, state, t, A, G)
        expect(getattr(state, "t", None) == t, f"{name}: the state after round {t} must have t = {t}")
        x = attempted(f"{name}.model", algorithm.model, state)
        expect(
            isinstance(x, Tensor) and x.shape == (D,) and x.dtype == x0.dtype,
            f"{name}.model must give [{D}] of {x0.dtype}; it gives {_shape(x)}",
        )
        expect(bool(torch.isfinite(x).all()), f"{name}.model is not finite after round {t}")
    latest = getattr(state, "latest", None)
    expect(isinstance(latest, Tensor), f"{name}: the state needs `latest`, the last aggregate [d]")


def _check_purity(name: str, algorithm: Any, x0: Tensor, past: Past) -> None:
    state = algorithm.init(x0, M)
    for t, (A, G) in enumerate(past):
        before, A0, G0 = copy.deepcopy(state), A.clone(), G.clone()
        algorithm.start(state, A).fill_(float("nan"))
        algorithm.model(state).fill_(float("nan"))
        after = algorithm.aggregate(state, t, A, G)
        expect(torch.equal(A, A0) and torch.equal(G, G0), f"{name}.aggregate changes its arguments")
        expect(
            not _differences(before, state),
            f"{name} changes the state that it is given, or returns tensors of it: {_differences(before, state)}",
        )
        again = algorithm.aggregate(state, t, A, G)
        expect(not _differences(after, again), f"{name}.aggregate gives another result when it is called again")
        state = after


def _check_order(name: str, algorithm: Any, x0: Tensor, past: Past) -> None:
    mirrored = [(A.flip(0), G.flip(0)) for A, G in past]
    found = _differences(_run(algorithm, x0, past), _run(algorithm, x0, mirrored))
    expect(not found, f"{name}: the order in which clients arrive changes the result (in {', '.join(found)})")


def _check_resumption(name: str, algorithm: Any, x0: Tensor, past: Past) -> None:
    state = algorithm.init(x0, M)
    for t, (A, G) in enumerate(past):
        content = attempted(
            f"{name}: a checkpoint of the state (a dataclass of tensors and numbers)",
            _stored,
            state,
        )
        fresh = algorithm.init(torch.zeros_like(x0), M)
        loaded = unpack(fresh, safetensors.torch.load(content))
        expect(not _differences(loaded, state), f"{name}: a state that was stored and loaded is not the same")
        state = algorithm.aggregate(loaded, t, A, G)
    found = _differences(state, _run(algorithm, x0, past))
    expect(not found, f"{name}: a run that is resumed ends in another state than one that never stopped ({found})")


def _check_refusals(name: str, algorithm: Any) -> None:
    x0 = torch.zeros(D, dtype=torch.float64)
    state = _run(algorithm, x0, _past(2, torch.float64)[:6])
    before = copy.deepcopy(state)
    one, row = torch.tensor([1]), torch.ones(1, D, dtype=torch.float64)
    cases: dict[str, tuple[Any, Any, Any]] = {
        "more rows than clients": (6, one, row.repeat(2, 1)),
        "rows that are too short": (6, one, row[:, :-1]),
        "an unknown client": (6, torch.tensor([M]), row),
        "a negative client": (6, torch.tensor([-1]), row),
        "a repeated client": (6, torch.tensor([1, 1]), row.repeat(2, 1)),
        "a round that is already over": (5, one, row),
        "an innovation that is not finite": (6, one, row * float("nan")),
    }
    for what, (t, A, G) in cases.items():
        refused(f"{name}.aggregate with {what}", algorithm.aggregate, state, t, A, G)
        expect(not _differences(before, state), f"{name}: {what} is refused, but the state has changed")
    refused(f"{name}.start with an unknown client", algorithm.start, state, torch.tensor([M]))


def _check_repr(name: str, algorithm: Any) -> None:
    if not dataclasses.is_dataclass(algorithm):
        return
    for field in dataclasses.fields(algorithm):
        if field.repr:
            expect(f"{field.name}=" in repr(algorithm), f"{name}: repr does not show the hyper-parameter {field.name}")


def _check_linear(name: str, algorithm: Any) -> None:
    """Check linearity with x0 = 0: the model of a G + b H is a times that of G plus b times that of H."""
    x0, past = torch.zeros(D, dtype=torch.float64), _past(3, torch.float64)
    others = [(A, torch.sin(5 * G)) for A, G in past]
    mixed = [(A, 2 * G - 0.5 * H) for (A, G), (_, H) in zip(past, others, strict=True)]
    one, other, both = (algorithm.model(_run(algorithm, x0, each)) for each in (past, others, mixed))
    close = torch.allclose(both, 2 * one - 0.5 * other, rtol=1e-9, atol=1e-9)
    expect(close, f"{name} says linear = True, but its model is not linear in the innovations")


def _shape(x: Any) -> str:
    return f"{list(x.shape)} of {x.dtype}" if isinstance(x, Tensor) else type(x).__name__


def _differences(one: Any, other: Any) -> list[str]:
    """The names of the tensors in which two states are not bit for bit the same."""
    a, b = _packed(one), _packed(other)
    return [key for key in {**a, **b} if key not in a or key not in b or not _same(a[key], b[key])]


def _packed(state: Any) -> Mapping[str, Tensor]:
    packed: Mapping[str, Tensor] = attempted("reading the state, which must be a dataclass,", pack, state)
    return packed


def _stored(state: Any) -> bytes:
    return safetensors.torch.save({name: tensor.contiguous() for name, tensor in pack(state).items()})


def _same(one: Tensor, other: Tensor) -> bool:
    return one.dtype == other.dtype and one.shape == other.shape and torch.equal(one, other)
