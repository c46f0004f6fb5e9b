"""The work of a round, cut into shares: groups of clients that are trained together, wherever that happens.

Shares depend on the task and on how clients are grouped, never on the engine, so that the numbers are the same too.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from fedawe.algorithms.exchange import Broadcast, Upload
from fedawe.core.errors import Diverged, UserError
from fedawe.core.rng import rng
from fedawe.tasks.base import Task
from fedawe.tasks.executors.differentiated import SMALL
from fedawe.training.local import Local, Rate

STACK = 16  # clients trained at once where that is the better way
ALIKE = 1e-3  # relative to a row's largest number: more than rounding, and less than another client's data or model
CACHED = 2**18  # numbers that a processor keeps at hand


@dataclass(frozen=True)
class Answer:
    """What one share came to."""

    G: Tensor  # start minus end                                                    [k, d]
    loss: list[float] | None = None  # at the start, if asked for                   [k]
    gradient: Tensor | None = None  # at the start, if asked for                    [k, d]


@dataclass(frozen=True)
class Share:
    """What one group of clients has to do in round t, in plain numbers that any process can be sent."""

    start: int  # which rows of the round these are
    stop: int
    A: list[int]
    t: int
    seed: int
    visits: list[int]
    counts: list[int] | None = None  # steps of each; None for the same number
    prox: float = 0.0
    rounds: list[int] | None = None  # rounds of work owed by each, this one included; None for one
    loss: bool = False
    gradient: bool = False

    def train(self, task: Task, local: Local, X: Tensor, shift: Tensor | None = None) -> Answer:
        """Local training of the group from the rows of X [k, d]."""
        work = local.work(torch.tensor(self.A), self.t, self.seed, torch.tensor(self.visits), self._counts())
        x, gradient = X.clone(), None
        batches = task.batches(work) if self.loss or self.rounds is None else None  # owed rounds have their own
        loss = _losses(task, x, batches) if self.loss else None
        if self.gradient:
            again = task.batches(work)  # a network may keep things in them from step to step
            with local.autocast(x.device):
                gradient = _mean_gradient(task, x.clone(), again, work.steps, work.counts)
        if self.rounds is not None:
            return Answer(self._owed(task, local, X, shift, self.rounds), loss, gradient)
        with local.autocast(x.device):
            task.descend(x, batches, work.steps, local.update(self.t, shift, self.prox, work.counts))
        return Answer(X - x, loss, gradient)

    def _owed(self, task: Task, local: Local, X: Tensor, shift: Tensor | None, rounds: Sequence[int]) -> Tensor:
        """One round of work after another, each with the batches and the rate of its own round."""
        x, owed, counts = X.clone(), torch.tensor(rounds), self._counts()
        for t in range(self.t + 1 - max(rounds), self.t + 1):
            at = (owed > self.t - t).nonzero().flatten()
            A, own = torch.tensor(self.A)[at], None if counts is None else counts[at]
            work = local.work(A, t, self.seed, torch.full_like(A, t), own)  # active in every round before
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
    """The mean loss of each client at its row of x [k, d + b]; refused if it is not one number for each."""
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
    """The work of round t for the clients A [k], which were active in `visits` [k] rounds before."""
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
    """Refuses what k clients cannot receive in round t."""
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


def is_stacked(task: Task, local: Local, asked: bool | None = None) -> bool:
    """Whether several clients are trained at once: as asked for, or as the task says.

    Where a task says nothing, they are if its models are small and that gives what each gives alone, to rounding. No
    clock decides, so that the same experiment is computed in the same way every time.
    """
    said = task.stacked if asked is None else asked
    return _can_be_stacked(task, local) if said is None else said


def _can_be_stacked(task: Task, local: Local) -> bool:
    """Whether one step of several clients from models that differ gives what each gives alone.

    A plain step of rate 1 and the gradient itself are compared, whatever the training will be: the first step of Adam
    has the same length for every gradient, and that of a warm-up may have none.
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
        rounding = 4 * torch.finfo(x.dtype).eps * X.abs().amax(1)  # of a step, whose length may be far less      [k]
        slack = (rounding, rounding, torch.zeros_like(rounding))
        return all(map(_alike, together, (torch.cat(rows) for rows in zip(*alone, strict=True)), slack))
    except Exception:  # whatever a task of the user's own says of several clients, or of one that is never active
        return False


def around(x: Tensor, k: int, buffers: int) -> Tensor:
    """k models that differ in their parameters, each about as far from x [d + b] as training might go, [k, d + b]."""
    X, d = x.repeat(k, 1), len(x) - buffers
    X[:, :d] += torch.from_numpy(0.1 * rng(0, "trial").normal(size=(k, d))).to(x)
    return X


def _tried(task: Task, local: Local, A: Sequence[int], X: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """What a step from X [k, d + b] does to parameters [k, d] and buffers [k, b], and the gradients [k, d]."""
    answer = Share(0, len(A), list(A), 0, 0, [0] * len(A), gradient=True).train(task, local, X)
    assert answer.gradient is not None
    d = X.shape[1] - task.buffers
    return answer.G[:, :d], answer.G[:, d:], answer.gradient


def _alike(found: Tensor, right: Tensor, slack: Tensor) -> bool:
    """Whether rows [k, n] are the same to rounding, and to the slack [k]."""
    if found.shape != right.shape:
        return False
    return right.numel() == 0 or bool(((found - right).abs().amax(1) <= ALIKE * right.abs().amax(1) + slack).all())


def one_step(task: Task, local: Local, seed: int, A: Sequence[int]) -> Tensor:
    """What the clients A [k] come to in one step of round 0, trained together, [k, d]."""
    X = task.initial(seed).repeat(len(A), 1)
    return Share(0, len(A), list(A), 0, seed, [0] * len(A)).train(task, replace(local, steps=1, epochs=None), X).G


def groups(k: int, d: int, stacked: bool) -> list[slice]:
    """How k clients of d parameters are put together: the same whoever computes them, so that the numbers are the same.

    At least 16 to a group; in rounds of very many an eighth of them, so long as their models stay in the cache.
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
    """What all shares of round t came to, checked: G [k, d], the losses share by share, the gradients [k, d]."""
    check_finite(G, A, t, local)
    weight = local.weights(local.counts(task, A), len(A), t, down.prox)
    if down.rounds is not None:
        weight = weight * down.rounds.cpu()
    loss = torch.tensor([value for one in losses for value in one or ()], dtype=torch.float64) if down.loss else None
    samples = None if task.sizes is None else torch.as_tensor(task.sizes)[A].double()
    return Upload(G, weight, local.rate_of(t), loss, gradient, samples)


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
    visits = torch.zeros_like(A) if visits is None else visits
    return trained(task, local, Broadcast(X), A, t, seed, visits, is_stacked(task, local, stacked)).G


def trained(
    task: Task, local: Local, down: Broadcast, A: Tensor, t: int, seed: int, visits: Tensor, stacked: bool
) -> Upload:
    """The whole round in this process."""
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
    """Refuses innovations [k, d] that are not finite, and says whose."""
    finite = torch.isfinite(G.sum(1))
    if not finite.all():
        client = int(A[(~finite).nonzero()[0]])
        raise Diverged(f"diverged in round {t} at client {client} with learning rate {local.rate(t):.4g}; lower eta0")
