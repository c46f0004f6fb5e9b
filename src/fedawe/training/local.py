"""Local training: s steps of SGD from a flat vector, for many clients at once or one by one."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor

from fedawe.core.errors import Diverged, UserError
from fedawe.tasks.base import Rule, Task, Update, Work

STACK = 16  # clients trained at once where that is the better way
CACHED = 2**18  # numbers that a processor keeps at hand


@dataclass(frozen=True)
class Rate:
    """eta_l(t): the paper's eta_0 / sqrt(t/10 + 1), or eta_0 throughout.

    >>> Rate(0.1)(0), Rate(0.1)(30), Rate(0.1, "constant")(30)
    (0.1, 0.05, 0.1)
    """

    eta0: float = 0.1
    schedule: Literal["paper", "constant"] = "paper"

    def __post_init__(self) -> None:
        if not 0 < self.eta0 < float("inf"):
            raise UserError(f"eta0 is {self.eta0!r}; expected a positive number")
        if self.schedule not in ("paper", "constant"):
            raise UserError(f"schedule is {self.schedule!r}; expected 'paper' or 'constant'")

    def __call__(self, t: int) -> float:
        return self.eta0 if self.schedule == "constant" else self.eta0 / (t / 10 + 1) ** 0.5


@dataclass(frozen=True)
class Local:
    """What every client does with its data: `steps` steps of plain SGD on batches of `batch` samples.

    rate       eta_l(t), a function of the round
    clip_grad  largest norm of one stochastic gradient (the paper's sentence taken literally); None for no clip
    batches    "iid": drawn anew in every step; "epochs": shuffled epochs that go on from round to round, a short last
               batch dropped (the authors' code)
    """

    rate: Callable[[int], float] = Rate()
    steps: int = 10
    batch: int = 128
    clip_grad: float | None = None
    batches: Rule = "iid"

    def __post_init__(self) -> None:
        for name in ("steps", "batch"):
            if not isinstance(getattr(self, name), int) or getattr(self, name) < 1:
                raise UserError(f"{name} is {getattr(self, name)!r}; expected a whole number from 1")
        if self.clip_grad is not None and not 0 < self.clip_grad < float("inf"):
            raise UserError(f"clip_grad is {self.clip_grad!r}; expected a positive number, or None for no clip")
        if self.batches not in ("iid", "epochs"):
            raise UserError(f"batches is {self.batches!r}; expected 'iid' or 'epochs'")

    def work(self, A: Tensor, t: int, seed: int, visits: Tensor | None = None) -> Work:
        """What the clients A [k] have to do in round t; `visits` says how often they were there before."""
        visits = torch.zeros_like(A) if visits is None else visits
        return Work(A, t, seed, self.steps, self.batch, self.batches, visits)


def innovations(
    task: Task,
    local: Local,
    X: Tensor,
    A: Tensor,
    t: int,
    seed: int,
    visits: Tensor | None = None,
    stacked: bool | None = None,
) -> Tensor:
    """G = x^(t,0) - x^(t,s) for the clients A [k], which start round t at the rows of X [k, d]; [k, d].

    `stacked` says whether several clients are trained at once; None leaves it to the task.
    """
    work, G = local.work(A, t, seed, visits), torch.empty_like(X)
    for rows in groups(len(A), X.shape[1], task.stacked if stacked is None else stacked):
        G[rows] = train(task, local, X[rows], work.rows(rows))
    check_finite(G, A, t, local)
    return G


def groups(k: int, d: int, stacked: bool) -> list[slice]:
    """How k clients of d parameters are put together: the same whoever computes them, so that the numbers are the same.

    At least 16 to a group; in rounds of very many an eighth of them, so long as their models stay in the cache.
    """
    size = max(STACK, min(k // 8, CACHED // d)) if stacked else 1
    return [slice(n, min(n + size, k)) for n in range(0, k, size)]


def train(task: Task, local: Local, X: Tensor, work: Work) -> Tensor:
    """s steps of SGD for one group of clients, from the rows of X [k, d]; what they took away, [k, d]."""
    x, update = X.clone(), Update(local.rate(work.t), local.clip_grad)
    task.descend(x, task.batches(work), local.steps, update)
    return X - x


def check_finite(G: Tensor, A: Tensor, t: int, local: Local) -> None:
    """Refuses innovations [k, d] that are not finite, and says whose."""
    finite = torch.isfinite(G.sum(1))
    if not finite.all():
        client = int(A[(~finite).nonzero()[0]])
        raise Diverged(f"diverged in round {t} at client {client} with learning rate {local.rate(t):.4g}; lower eta0")
