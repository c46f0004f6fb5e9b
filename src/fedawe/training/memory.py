"""Refuses, before it begins, a run that needs more memory than is free."""

import dataclasses
from typing import Any

import numpy as np

from fedawe.algorithms.base import State
from fedawe.algorithms.exchange import most_asked
from fedawe.algorithms.facts import name_of
from fedawe.algorithms.rows import Rows
from fedawe.algorithms.versions import Held
from fedawe.availability.trace import Trace
from fedawe.core.errors import UserError
from fedawe.core.memory import free_memory, in_bytes
from fedawe.tasks.base import Task
from fedawe.training.local import Local
from fedawe.training.shares import STACK

COPIES = 3  # rows for every active client: its start model, its innovation, and a copy for the aggregation
GROUPS = 1000  # clients of similar availability are grouped to estimate how many versions are held


def check_needs(algorithm: object, state: State, trace: Trace, task: Task, local: Local) -> None:
    """Refuses a run whose batches or vectors (of active clients, all clients or versions) would not fit into memory."""
    free = free_memory()
    if free is not None:
        _check_batches(task, local, free)
        _check_active(algorithm, state, trace, free)
        _check_rows(algorithm, state, trace, free)
        _check_versions(algorithm, state, trace, free)


def _check_batches(task: Task, local: Local, free: int) -> None:
    """Indices of the samples of all steps of a round are drawn at once, for a group of clients."""
    if task.sizes is None:
        return
    largest = int(np.asarray(task.sizes).max())
    steps = local.steps if local.epochs is None else local.epochs * max(1, largest // local.batch)
    needed = 3 * 8 * min(STACK, task.clients) * steps * min(local.batch, largest)
    if needed > free:
        raise UserError(
            f"{steps:,} local steps on batches of {min(local.batch, largest):,} samples need {in_bytes(needed)} to say "
            f"which samples are used in a round, of which {in_bytes(free)} are free; use fewer steps or epochs"
        )


def _check_active(algorithm: object, state: State, trace: Trace, free: int) -> None:
    """Every active client needs a few vectors of the size of the model."""
    active = min(trace.most_available(), most_asked(algorithm) or trace.clients)
    d, needed = len(state.latest), COPIES * active * _vector(state)
    if needed > free:
        raise UserError(
            f"a round with {active:,} active clients needs {COPIES} vectors of {d:,} numbers for each of them, "
            f"{in_bytes(needed)}, of which {in_bytes(free)} are free; ask fewer clients in a round "
            "(--choose uniform:k=100), or use a smaller model"
        )


def _check_rows(algorithm: object, state: State, trace: Trace, free: int) -> None:
    """An algorithm may keep a vector for every client that was ever active."""
    kinds, d = _kinds(state, Rows), len(state.latest)
    if kinds == 0 or kinds * trace.clients * _vector(state) <= free:
        return
    clients = trace.ever_available(free // (kinds * _vector(state)))
    needed = kinds * clients * _vector(state)
    if needed > free:
        raise UserError(
            f"{name_of(algorithm)} keeps {'' if trace.kept else 'at least '}{kinds * clients:,} vectors of {d:,} "
            f"numbers, {in_bytes(needed)}, of which {in_bytes(free)} are free; use fewer clients, a smaller model, "
            "or an algorithm that keeps no vector for every client, such as FedAvg or FedAU"
        )


def _check_versions(algorithm: object, state: State, trace: Trace, free: int) -> None:
    """An algorithm may keep every model that some client still holds."""
    kinds, d = _kinds(state, Held), len(state.latest)
    if kinds == 0 or kinds * min(trace.rounds, trace.clients) * _vector(state) <= free:
        return
    versions = versions_held(trace, most_asked(algorithm))
    needed = kinds * versions * _vector(state)
    if needed > free:
        raise UserError(
            f"{name_of(algorithm)} keeps about {kinds * versions:,} versions of {d:,} numbers, {in_bytes(needed)}, of "
            f"which {in_bytes(free)} are free, since clients are so seldom active; use a smaller model, an "
            "algorithm with one model for all, such as FedAU, or limit absences (fedawe:max_absence=100)"
        )


def versions_held(trace: Trace, asked: int | None = None) -> int:
    """How many models are held by some client in the last round, estimated from how often each is available.

    The model of a round is held until all clients of that round have been active again. If client i is active in a
    round with probability p_i, the model of a rounds ago is held with probability 1 - exp(-sum_i p_i (1 - p_i)^a).
    """
    rates = np.sort(trace.rates())
    if asked is not None:
        rates = rates * min(1.0, asked / max(float(rates.sum()), 1e-300))
    size = max(1, len(rates) // GROUPS)
    starts = np.arange(0, len(rates), size)
    counts = np.diff(np.append(starts, len(rates)))
    p = np.clip(np.add.reduceat(rates, starts) / counts, 0.0, 1.0)
    total = 0.0
    for a in range(trace.rounds):
        held = 1 - np.exp(-float((counts * p * (1 - p) ** a).sum()))
        total += held
        if held < 1e-6:
            break
    return int(np.ceil(total)) + 1  # and the initial model


def _vector(state: State) -> int:
    """Bytes of one model."""
    return len(state.latest) * state.latest.element_size()


def _kinds(state: Any, kind: Any) -> int:
    """How many fields of this kind a state has, including those of the states inside it."""
    own = [(each.type, getattr(state, each.name)) for each in dataclasses.fields(state)]
    inner = [_kinds(value, kind) for _, value in own if dataclasses.is_dataclass(value)]
    return sum(inner) + len([found for found, _ in own if found == kind])
