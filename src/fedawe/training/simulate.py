"""The round loop."""

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Generic

import numpy as np
import torch
from torch import Tensor

from fedawe.algorithms.base import Algorithm, S, State, is_whole
from fedawe.algorithms.buffers import with_buffers
from fedawe.algorithms.counted import with_count
from fedawe.algorithms.exchange import absorb, broadcast, choose, first_state, visits_of
from fedawe.algorithms.facts import name_of, needs_plain_local, with_seed
from fedawe.algorithms.private import check_trained
from fedawe.availability.past import Past
from fedawe.availability.trace import Trace
from fedawe.core.errors import UserError
from fedawe.core.rng import rng
from fedawe.tasks.base import Task
from fedawe.training.engines import Engine, Inline, one_thread
from fedawe.training.local import Local
from fedawe.training.memory import check_needs
from fedawe.training.shares import check_broadcast


@dataclass(frozen=True)
class Round(Generic[S]):
    """The outcome of round t; its state is all that `simulate` needs to continue from here."""

    t: int
    A: Tensor  # the active clients                                                [k]
    state: S
    algorithm: Algorithm[S]
    past: Past  # the availability up to this round; the next round updates the same object

    @cached_property
    def x(self) -> Tensor:
        """The model to evaluate, [d]; computed when asked for."""
        return self.algorithm.model(self.state)


def simulate(
    task: Task,
    algorithm: Algorithm[S],
    trace: Trace,
    local: Local,
    *,
    seed: int,
    resume: S | None = None,
    engine: Engine | None = None,
) -> Iterator[Round[S]]:
    """Run the algorithm on the task round by round, with the clients that the trace says are available.

    It begins with the first round, or continues after the round of the state `resume`.

    Two calls with the same arguments give the same numbers, and so does a call that goes on from any round of another.
    `engine` says how the clients' work is executed; by default in this process. Every process uses one thread, so that
    the numbers do not depend on how many PyTorch has; `Processes` uses several cores. Where the task has buffers, the
    states are those of `WithBuffers(algorithm, task.buffers)`. Where batches go on from round to round and the
    algorithm chooses clients without counting how often each was active, its own state is `state.own`, beside a count.
    """
    _check_kinds(algorithm, trace, local)
    if not is_whole(seed) or seed < 0:
        raise UserError(f"a seed is a whole number from 0, not {seed!r}")
    if engine is not None and not hasattr(engine, "train"):
        raise UserError(f"engine is {engine!r}; expected an engine, as in fedawe.training.engines.Inline(task, local)")
    check_clients(task)
    if trace.clients != task.clients:
        raise UserError(f"the trace has {trace.clients} clients, the task {task.clients}")
    check_local(algorithm, local)
    algorithm = prepared(with_seed(algorithm, seed), task, local)
    state = first_state(algorithm, task.initial(seed), task.clients)
    check_possible(algorithm, state, trace, task, local)
    if resume is not None:
        _check_resumed(resume, state)
        state = resume
    return _rounds(algorithm, trace, state, seed, engine or Inline(task, local))


def _check_kinds(algorithm: Any, trace: Any, local: Any) -> None:
    """Refuses arguments of the wrong type."""
    if isinstance(algorithm, type):
        raise UserError(f"algorithm is a class; expected an object, as in {algorithm.__name__}()")
    missing = [verb for verb in ("init", "start", "aggregate", "model") if not hasattr(algorithm, verb)]
    if missing:
        kind = type(algorithm).__name__
        raise UserError(
            f"algorithm is a {kind}, which has no {', '.join(missing)}; expected one such as fedawe.FedAWE()"
        )
    if not isinstance(trace, Trace):
        raise UserError(
            f"trace is a {type(trace).__name__}; expected a fedawe.Trace, as in "
            "fedawe.Trace.draw(fedawe.Sine(), p, rounds=100, seed=0)"
        )
    if not isinstance(local, Local):
        raise UserError(
            f"local is {local!r}; expected how clients train, as in fedawe.Local(fedawe.Rate(0.1), steps=10)"
        )


def prepared(algorithm: Algorithm[Any], task: Task, local: Local) -> Algorithm[Any]:
    """The algorithm for models with the task's buffers, and with a count of active rounds where batches need one."""
    return with_buffers(with_count(algorithm) if local.batches == "epochs" else algorithm, task.buffers)


def check_clients(task: Task) -> None:
    """Refuses a task without a valid number of clients, or whose `sizes` do not have one number for every client."""
    name, clients = type(task).__name__, getattr(task, "clients", None)
    if clients is None:
        raise UserError(f"{name} does not say how many clients it has; give it `clients`, as in self.clients = 10")
    if not is_whole(clients) or clients < 1:
        raise UserError(f"{name}.clients is {clients!r}; expected the number of clients, a whole number from 1")
    sizes = None if task.sizes is None else np.asarray(task.sizes)
    if sizes is not None and (sizes.shape != (clients,) or not np.issubdtype(sizes.dtype, np.integer)):
        raise UserError(
            f"{name}.sizes is {sizes.dtype} of shape {list(sizes.shape)}; expected the number of samples of each of "
            f"the {clients} clients, whole numbers of shape [{clients}]"
        )


def check_local(algorithm: Algorithm[S], local: Local) -> None:
    """Refuses a local optimiser that the algorithm does not support."""
    if needs_plain_local(algorithm) and not local.plain:
        raise UserError(
            f"{name_of(algorithm)} needs local steps of plain SGD: it reads the clients' mean gradients from their "
            f"innovations, which {local.optimiser!r} does not allow; omit the optimiser"
        )


def check_possible(algorithm: Algorithm[S], state: S, trace: Trace, task: Task, local: Local) -> None:
    """Refuses a run that the algorithm, the task or the memory cannot support, before anything is written."""
    check_trained(algorithm, () if task.layout is None else task.layout.frozen)
    down = broadcast(algorithm, state, 0, torch.arange(1))
    _check_models(algorithm, state, down)
    check_broadcast(task, local, down, 1, 0)
    local.check_precision(task, state.latest)
    local.counts(task, torch.arange(0))
    if down.loss and type(task).losses is Task.losses:
        task.losses(state.latest[None], None)
    check_needs(algorithm, state, trace, task, local)


def _check_models(algorithm: Algorithm[S], state: S, down: Any) -> None:
    """Refuses an algorithm whose start models (in `down`) or final model do not have the shape of the model."""
    d = len(state.latest)
    for verb, found, shape in (
        ("broadcast" if hasattr(algorithm, "broadcast") else "start", getattr(down, "x", None), [1, d]),
        ("model", algorithm.model(state), [d]),
    ):
        if not isinstance(found, Tensor) or list(found.shape) != shape:
            got = f"a tensor of shape {list(found.shape)}" if isinstance(found, Tensor) else type(found).__name__
            of = " for one client" if verb != "model" else ""
            raise UserError(f"{type(algorithm).__name__}.{verb} returned {got}{of}; expected a tensor of shape {shape}")


def _check_resumed(resume: State, fresh: State) -> None:
    """Refuses a state from which this algorithm cannot continue on this task."""
    if type(resume) is not type(fresh):
        raise UserError(f"resume is a {type(resume).__name__}; expected the `state` of a round, {type(fresh).__name__}")
    if resume.m != fresh.m or resume.latest.shape != fresh.latest.shape:
        raise UserError(
            f"resume has {resume.m} clients and {len(resume.latest)} parameters, the task has {fresh.m} and "
            f"{len(fresh.latest)}"
        )


def _rounds(algorithm: Algorithm[S], trace: Trace, state: S, seed: int, engine: Engine) -> Iterator[Round[S]]:
    past = Past(trace).through(state.t)
    available = torch.from_numpy(past.counts)  # in how many rounds each was available; updated in place  [m]
    for t in range(state.t + 1, trace.rounds):
        counted = visits_of(algorithm, state)  # in how many rounds each was active, if that is counted   [m]
        visits = available if counted is None else counted
        A = choose(algorithm, state, t, trace.active(t), rng(seed, "choose", t)).cpu()
        with one_thread():
            down = broadcast(algorithm, state, t, A)  # x_i^t and more
            up = engine.train(down, A, t, seed, visits[A])  # x_i^t - x_i^(t,s) and more
            state = absorb(algorithm, state, t, A, up)
        yield Round(t, A, state, algorithm, past.through(t))
