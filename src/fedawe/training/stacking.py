"""Whether several clients are trained at once (stacked), or one after another."""

from collections.abc import Sequence

import torch
from torch import Tensor

from fedawe.core.rng import rng
from fedawe.tasks.base import Task
from fedawe.tasks.executors.differentiated import SMALL
from fedawe.training.local import Local, Rate
from fedawe.training.shares import STACK, Share

# Relative to the largest number of a row: more than rounding, and less than the data or model of another client make.
ALIKE = 1e-3


def is_stacked(task: Task, local: Local, asked: bool | None = None) -> bool:
    """Whether clients are stacked: as `asked`, or else as the task's attribute `stacked` says.

    Where both are None, clients are stacked if the models are small and a trial shows that training several at once
    gives what training each alone gives, up to rounding. Nothing is timed, so that the same experiment is computed in
    the same way every time.
    """
    said = task.stacked if asked is None else asked
    return _can_be_stacked(task, local) if said is None else said


def _can_be_stacked(task: Task, local: Local) -> bool:
    """Whether one step of several clients from different models gives what the same step gives for each alone.

    The gradient and a plain SGD step of rate 1 are compared, whatever optimiser and rate the experiment uses: the
    first step of Adam has the same length for every gradient, and a warm-up may begin with a rate of 0.
    """
    plain, A = Local(Rate(1.0, "constant"), 1, local.batch, batches=local.batches), range(min(STACK, task.clients))
    try:
        x = task.initial(0)
        if x.device.type == "cpu" and len(x) > SMALL:
            return False
        X = around(x, len(A), task.buffers)
        with torch.random.fork_rng(devices=[x.device] if x.device.type == "cuda" else []):
            alone = [_tried(task, plain, [i], X[n : n + 1]) for n, i in enumerate(A)]
            together = _tried(task, plain, A, X)
        rounding = 4 * torch.finfo(x.dtype).eps * X.abs().amax(1)  # error of X - x, however short the step is   [k]
        slack = (rounding, rounding, torch.zeros_like(rounding))
        return all(map(_alike, together, (torch.cat(rows) for rows in zip(*alone, strict=True)), slack))
    except Exception:  # a task may refuse several clients, or a client that is never active, with any error
        return False


def around(x: Tensor, k: int, buffers: int) -> Tensor:
    """k models with different parameters, each at a distance from x [d + b] that training might cover; [k, d + b]."""
    X, d = x.repeat(k, 1), len(x) - buffers
    X[:, :d] += torch.from_numpy(0.1 * rng(0, "trial").normal(size=(k, d))).to(x)
    return X


def _tried(task: Task, local: Local, A: Sequence[int], X: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """One step from X [k, d + b]: changes of the parameters [k, d] and of the buffers [k, b], and gradients [k, d]."""
    answer = Share(0, len(A), list(A), 0, 0, [0] * len(A), gradient=True).train(task, local, X)
    assert answer.gradient is not None
    d = X.shape[1] - task.buffers
    return answer.G[:, :d], answer.G[:, d:], answer.gradient


def _alike(found: Tensor, right: Tensor, slack: Tensor) -> bool:
    """Whether the rows [k, n] are equal up to rounding: relative to the largest number of a row, plus `slack` [k]."""
    if found.shape != right.shape:
        return False
    return right.numel() == 0 or bool(((found - right).abs().amax(1) <= ALIKE * right.abs().amax(1) + slack).all())
