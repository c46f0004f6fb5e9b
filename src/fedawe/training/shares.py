"""The work of a round, divided into shares: groups of clients that are trained together by one process.

The shares depend on the task and on how clients are grouped, never on the engine, so that every engine computes the
same numbers.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from fedawe.algorithms.exchange import Broadcast, Upload
from fedawe.core.errors import Diverged, UserError
from fedawe.tasks.base import Task
from fedawe.training.local import Local

STACK = 16  # clients trained at once where clients are stacked
CACHED = 2**18  # numbers that fit into a processor's cache


@dataclass(frozen=True)
class Answer:
    """The result of training one share."""

    G: Tensor  # start minus end                                                    [k, d]
    loss: list[float] | None = None  # at the start, if asked for                   [k]
    gradient: Tensor | None = None  # at the start, if asked for                    [k, d]


@dataclass(frozen=True)
class Share:
    """What one group of clients has to do in round t, as plain numbers that can be sent to any process."""

    start: int  # its clients are rows start to stop - 1 of the round
    stop: int
    A: list[int]
    t: int
    seed: int
    visits: list[int]
    counts: list[int] | None = None  # local steps of each client; None if all make the same number
    prox: float = 0.0
    rounds: list[int] | None = None  # rounds of work that each client owes, this one included; None for one
    loss: bool = False
    gradient: bool = False

    def train(self, task: Task, local: Local, X: Tensor, shift: Tensor | None = None) -> Answer:
        """Local training of the group from the rows of X [k, d]."""
        work = local.work(torch.tensor(self.A), self.t, self.seed, torch.tensor(self.visits), self._counts())
        x, gradient = X.clone(), None
        batches = task.batches(work) if self.loss or self.rounds is None else None  # every owed round draws its own
        loss = _losses(task, x, batches) if self.loss else None
        if self.gradient:
            again = task.batches(work)  # drawn again, because training may change objects that belong to the batches
            with local.autocast(x.device):
                gradient = _mean_gradient(task, x.clone(), again, work.steps, work.counts)
        if self.rounds is not None:
            return Answer(self._owed(task, local, X, shift, self.rounds), loss, gradient)
        with local.autocast(x.device):
            task.descend(x, batches, work.steps, local.update(self.t, shift, self.prox, work.counts))
        return Answer(X - x, loss, gradient)

    def _owed(self, task: Task, local: Local, X: Tensor, shift: Tensor | None, rounds: Sequence[int]) -> Tensor:
        """Innovations of clients that make up for missed rounds, each with the batches and rate of the missed round."""
        x, owed, counts = X.clone(), torch.tensor(rounds), self._counts()
        for t in range(self.t + 1 - max(rounds), self.t + 1):
            at = (owed > self.t - t).nonzero().flatten()
            A, own = torch.tensor(self.A)[at], None if counts is None else counts[at]
            work = local.work(A, t, self.seed, torch.full_like(A, t), own)  # as if active in every round before
            y = x[at]
            update = local.update(t, None if shift is None else shift[at], self.prox, work.counts)
            batches = task.batches(work)
            with local.autocast(y.device):
                task.descend(y, batches, work.steps, update)
            x[at] = y
        return X - x

    def _counts(self) -> Tensor | None:
        return None if self.counts is None else torch.tensor(self.counts)


def _losses(task: Task, x: Tensor, batches: object) -> list[float]:
    """The mean loss of each client at its row of x [k, d + b]; refuses a task that does not return one number each."""
    found = task.losses(x, batches)
    if not isinstance(found, Tensor) or found.shape != (len(x),):
        got = f"a tensor of shape {list(found.shape)}" if isinstance(found, Tensor) else f"a {type(found).__name__}"
        raise UserError(
            f"{type(task).__name__}.losses returned {got} for x of shape {list(x.shape)}; expected a tensor with one "
            f"loss for each row of x, [{len(x)}]"
        )
    losses: list[float] = found.tolist()
    return losses


def _mean_gradient(task: Task, x: Tensor, batches: object, steps: int, counts: Tensor | None) -> Tensor:
    """The mean of the gradients at x over the batches of the round, [k, d]."""
    total: Tensor | None = None
    n = torch.full((len(x),), steps) if counts is None else counts
    for step in range(steps):
        g = task.gradients(x, batches, step) * (step < n).to(x)[:, None]
        total = g if total is None else total + g
    assert total is not None
    return total / n.to(x)[:, None]


def shares(
    task: Task, local: Local, down: Broadcast, A: Tensor, t: int, seed: int, visits: Tensor, stacked: bool
) -> list[Share]:
    """The shares of round t for the clients A [k], which were active in `visits` [k] rounds before."""
    check_broadcast(task, local, down, len(A), t)
    counts = local.counts(task, A)
    return [
        Share(
            rows.start,
            rows.stop,
            A[rows].tolist(),
            t,
            seed,
            visits[rows].tolist(),
            None if counts is None else counts[rows].tolist(),
            down.prox,
            None if down.rounds is None else down.rounds[rows].tolist(),
            down.loss,
            down.gradient,
        )
        for rows in groups(len(A), down.x.shape[1], stacked)
    ]


def check_broadcast(task: Task, local: Local, down: Broadcast, k: int, t: int) -> None:
    """Refuses a broadcast whose shapes or numbers do not suit the k active clients of round t."""
    local.check_prox(down.prox, t)
    d = down.x.shape[1] - task.buffers
    for name, found, shape in (("x", down.x, [k, d + task.buffers]), ("shift", down.shift, [k, d])):
        if found is not None and (not isinstance(found, Tensor) or list(found.shape) != shape):
            raise UserError(f"Broadcast.{name} is {_shape(found)} in round {t}; expected one row per client, {shape}")
    rounds = down.rounds
    if rounds is None:
        return
    expected = f"expected how many rounds of work each client owes, whole numbers from 1 to {t + 1} of shape [{k}]"
    if not isinstance(rounds, Tensor) or rounds.shape != (k,) or rounds.is_floating_point():
        raise UserError(f"Broadcast.rounds is {_shape(rounds)} in round {t}; {expected}")
    wrong = rounds[(rounds < 1) | (rounds > t + 1)]
    if len(wrong):
        raise UserError(f"Broadcast.rounds has {int(wrong[0])} in round {t}; {expected}")


def _shape(found: object) -> str:
    return f"{found.dtype} of shape {list(found.shape)}" if isinstance(found, Tensor) else f"a {type(found).__name__}"


def one_step(task: Task, local: Local, seed: int, A: Sequence[int]) -> Tensor:
    """The innovations of the clients A [k] after one step of round 0, trained together, [k, d]."""
    X = task.initial(seed).repeat(len(A), 1)
    return Share(0, len(A), list(A), 0, seed, [0] * len(A)).train(task, replace(local, steps=1, epochs=None), X).G


def groups(k: int, d: int, stacked: bool) -> list[slice]:
    """How k active clients with d parameters are grouped; independent of the engine, and so are the numbers.

    A group has 16 clients. In rounds with very many clients it has an eighth of them, as long as their models fit into
    the cache. Clients that are not stacked are groups of one.
    """
    size = max(STACK, min(k // 8, CACHED // d)) if stacked else 1
    return [slice(n, min(n + size, k)) for n in range(0, k, size)]


def upload(
    task: Task,
    local: Local,
    down: Broadcast,
    A: Tensor,
    t: int,
    G: Tensor,
    losses: Sequence[list[float] | None],
    gradient: Tensor | None,
) -> Upload:
    """The upload of round t from G [k, d], the losses of each share and the gradients [k, d]; refuses numbers that are
    not finite."""
    check_finite(G, A, t, local)
    weight = local.weights(local.counts(task, A), len(A), t, down.prox)
    if down.rounds is not None:
        weight = weight * down.rounds.cpu()
    loss = torch.tensor([value for one in losses for value in one or ()], dtype=torch.float64) if down.loss else None
    samples = None if task.sizes is None else torch.as_tensor(task.sizes)[A].double()
    return Upload(G, weight, local.rate_of(t), loss, gradient, samples)


def trained(
    task: Task, local: Local, down: Broadcast, A: Tensor, t: int, seed: int, visits: Tensor, stacked: bool
) -> Upload:
    """Train the clients A [k] of round t in this process, one share after another."""
    G = torch.empty_like(down.x)
    gradient = torch.empty_like(down.x[:, : down.x.shape[1] - task.buffers]) if down.gradient else None
    losses = []
    for share in shares(task, local, down, A, t, seed, visits, stacked):
        rows = slice(share.start, share.stop)
        answer = share.train(task, local, down.x[rows], None if down.shift is None else down.shift[rows])
        G[rows] = answer.G
        losses.append(answer.loss)
        if gradient is not None and answer.gradient is not None:
            gradient[rows] = answer.gradient
    return upload(task, local, down, A, t, G, losses, gradient)


def check_finite(G: Tensor, A: Tensor, t: int, local: Local) -> None:
    """Refuses innovations [k, d] that are not finite, and names the first such client."""
    finite = torch.isfinite(G.sum(1))
    if not finite.all():
        client = int(A[(~finite).nonzero()[0]])
        raise Diverged(f"diverged in round {t} at client {client} with learning rate {local.rate(t):.4g}; lower eta0")
