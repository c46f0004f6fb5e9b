"""How many processes to use for a task on this machine: a few timed steps decide. Results do not depend on it."""

import os
import time

import torch

from fedawe.tasks.base import Task
from fedawe.training.local import Local
from fedawe.training.shares import STACK, one_step

WORTH_SHARING = 0.1  # seconds of training in a round; with less, sending work to other processes does not pay


def seconds_per_client(task: Task, local: Local, seed: int, clients: int) -> float:
    """Seconds of one step of one client when `clients` are trained together; the better of two measurements."""
    A, times = range(min(clients, task.clients)), []
    for _ in range(3):  # the first is a warm-up
        began = time.perf_counter()
        one_step(task, local, seed, A)
        times.append((time.perf_counter() - began) / len(A))
    return min(times[1:])


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
