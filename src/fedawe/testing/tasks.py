"""The requirements that every task meets."""

from collections.abc import Mapping
from typing import Any

import numpy as np
import torch

from fedawe.algorithms.base import is_whole
from fedawe.core.metric import as_metrics, check_names
from fedawe.tasks.base import Task
from fedawe.testing.failed import attempted, expect
from fedawe.training.engines.base import innovations
from fedawe.training.local import Local, Rate
from fedawe.training.stacking import around

LOCAL = Local(Rate(0.01, "constant"), steps=3, batch=8)


def check_task(task: Any) -> None:
    """Check that an object is a task: shapes, random numbers that depend on the seed and the round alone, metrics.

    `task` may also be a function of the seed that returns a task. Training several clients together must give the same
    as training each of them alone, up to rounding.

    >>> import fedawe, torch
    >>> check_task(fedawe.Quadratic(torch.tensor([[0.0], [100.0]])))
    """
    if not isinstance(task, Task) and callable(task):
        task = attempted("task(seed=0)", task, 0)
    name = type(task).__name__
    expect(isinstance(task, Task), f"{name} is not derived from fedawe.tasks.Task")
    m = attempted(f"{name}.clients", getattr, task, "clients")
    expect(is_whole(m) and m >= 1, f"{name}.clients is {m!r}; expected a whole number from 1")
    x = attempted(f"{name}.initial(0)", task.initial, 0)
    expect(
        isinstance(x, torch.Tensor) and x.ndim == 1 and x.is_floating_point() and len(x) > task.buffers,
        f"{name}.initial must give a floating-point vector [d]",
    )
    expect(torch.equal(x, task.initial(0)), f"{name}.initial gives another model when it is called again")
    _check_metrics(name, task, x)
    _check_training(name, task, x)


def _check_metrics(name: str, task: Task, x: torch.Tensor) -> None:
    found = attempted(f"{name}.evaluate", task.evaluate, x)
    by_name = isinstance(found, Mapping) and all(isinstance(key, str) for key in found)
    expect(by_name, f"{name}.evaluate must return a dict of numbers by name, as in {{'loss': 0.5}}; it gives {found!r}")
    for key, value in found.items():
        value = value.tolist() if isinstance(value, torch.Tensor | np.ndarray | np.generic) else value
        numbers = value if isinstance(value, list) else [value]
        expect(all(isinstance(each, float | int) for each in numbers), f"{name}.evaluate: {key} is not a number")
    again = task.evaluate(x)
    same = found.keys() == again.keys() and all(np.array_equal(found[k], again[k], equal_nan=True) for k in found)
    expect(same, f"{name}.evaluate gives other numbers when it is called again")
    declared = attempted(f"{name}.metrics", as_metrics, task.metrics, f"{name}.metrics")
    attempted(f"{name}.evaluate", check_names, [*found, *(metric.name for metric in declared)], name)
    missing = [metric.name for metric in declared if metric.name not in found]
    expect(not missing, f"{name} declares {', '.join(missing)}, but evaluate does not return it")
    decides = [metric.name for metric in declared if metric.decides]
    expect(len(decides) <= 1, f"{name}: more than one metric decides ({', '.join(decides)})")


def _check_training(name: str, task: Task, x: torch.Tensor) -> None:
    A = torch.arange(min(4, task.clients))
    X = around(x, len(A), task.buffers)  # different models, to detect a task that uses one model for all clients
    for t in (0, 5):
        G = attempted(f"training {len(A)} clients of {name}", innovations, task, LOCAL, X, A, t, 0)
        expect(bool(torch.isfinite(G).all()), f"{name}: training gives numbers that are not finite")
        again = innovations(task, LOCAL, X, A, t, 0)
        expect(torch.equal(G, again), f"{name}: training again with the same seed and round gives another result")
        alone = [innovations(task, LOCAL, X[i : i + 1], A[i : i + 1], t, 0) for i in range(len(A))]
        close = torch.allclose(G, torch.cat(alone), rtol=1e-3, atol=1e-5)
        expect(close, f"{name}: clients that are trained together get other models than each alone")
    empty = attempted(f"a round of {name} without clients", innovations, task, LOCAL, X[:0], A[:0], 0, 0)
    expect(empty.shape == (0, len(x)), f"{name}: a round without clients must give no rows")
