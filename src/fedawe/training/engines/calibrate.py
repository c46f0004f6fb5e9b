"""Which way of training suits a task on this machine: a few timed steps decide."""

import dataclasses
import os
import time

import torch

from fedawe.core.errors import UserError
from fedawe.tasks.base import Task
from fedawe.training.local import Local
from fedawe.training.shares import STACK, Share

WORTH_SHARING = 0.1  # seconds of training in a round from which other processes are worth their messages


def seconds_per_client(task: Task, local: Local, seed: int, clients: int) -> float:
    """Training one client for one step, when `clients` are trained together; the better of two tries."""
    A = torch.arange(min(clients, task.clients))
    one_step = dataclasses.replace(local, steps=1, epochs=None)
    X = task.initial(seed).repeat(len(A), 1)
    times = []
    for _ in range(3):  # the first is for warming up
        began = time.perf_counter()
        Share(0, len(A), A.tolist(), 0, seed, [0] * len(A)).train(task, one_step, X)
        times.append((time.perf_counter() - began) / len(A))
    return min(times[1:])


def better_stacked(task: Task, local: Local, seed: int) -> bool:
    """Whether clients train faster in groups than one after another."""
    try:
        together = seconds_per_client(task, local, seed, STACK)
    except (RuntimeError, UserError):  # the network or the task has something that cannot be stacked
        seconds_per_client(task, local, seed, 1)  # whatever is wrong with one client too is said now
        return False
    if not getattr(getattr(task, "computed", None), "stackable", True):  # it has just fallen back to one by one
        return False
    return together < seconds_per_client(task, local, seed, 1)


def best_workers(task: Task, local: Local, seed: int, active: float, stacked: bool) -> int:
    """How many processes should share the `active` clients of a round."""
    group = STACK if stacked else 1
    counts = local.counts(task, torch.arange(task.clients))
    steps = local.steps if counts is None else float(counts.double().mean())
    round_seconds = seconds_per_client(task, local, seed, group) * active * steps
    return cores() if round_seconds > WORTH_SHARING else 1


def cores() -> int:
    """The number of cores that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
