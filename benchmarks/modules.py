"""Your own nn.Module: local steps per second as a ratio to the hand-written loop, measured in turns in one run."""

import importlib.util
import os
import statistics
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
from hand_written import (
    CHARACTERS,
    LENGTH,
    CharacterLSTM,
    HandWritten,
    Transformer,
    cnn,
    mlp,
    resnet8_batch,
    resnet8_group,
)
from torch import Tensor, nn
from torch.utils.flop_counter import FlopCounterMode
from turns import Rate, Served, in_turns, median, ratio, timed

import fedawe
from fedawe.tasks import Classification, Data, ModuleNetwork
from fedawe.tasks.base import Rule
from fedawe.training.engines import Processes, cores

CLIENTS, STEPS, SECONDS = 100, 10, 0.7


@dataclass(frozen=True)
class Workload:
    """What 100 clients learn, of which `active` take part in a round of 10 steps."""

    what: str
    make: Callable[[], nn.Module]
    shape: tuple[int, ...]
    active: int
    batch: int
    wanted: float
    samples: int  # of each client
    batches: Rule = "iid"
    by_hand: int = 2  # how many clients the hand-written loop trains at a time
    text: bool = False

    def data(self) -> tuple[Tensor, Tensor]:
        draw = torch.Generator().manual_seed(0)
        n = CLIENTS * self.samples
        if self.text:
            text = torch.randint(CHARACTERS, (n, LENGTH + 1), generator=draw)
            return text[:, :-1].contiguous(), text[:, -1].contiguous()
        return torch.randn(n, *self.shape, generator=draw), torch.randint(10, (n,), generator=draw)


WORKLOADS = {
    "svhn": Workload("the paper's SVHN network, batch 128", cnn, (3, 32, 32), 20, 128, 2.8, 256),
    "small": Workload("the same at 16 x 16, batch 32", partial(cnn, 16), (3, 16, 16), 20, 32, 4.0, 128),
    "mlp": Workload("64-64-10 MLP, epochs rule, batch 32", mlp, (64,), 30, 32, 25.0, 200, "epochs", by_hand=5),
    "resnet_group": Workload("ResNet-8, GroupNorm, batch 32", resnet8_group, (3, 32, 32), 10, 32, 1.8, 64),
    "resnet_batch": Workload("ResNet-8, BatchNorm, batch 32", resnet8_batch, (3, 32, 32), 10, 32, 1.8, 64),
    "lstm": Workload("character LSTM of 128, batch 16", CharacterLSTM, (LENGTH,), 20, 16, 1.5, 64, text=True),
    "transformer": Workload(
        "transformer, 2 layers of 64, batch 16", Transformer, (LENGTH,), 20, 16, 1.5, 64, text=True
    ),
}


def chosen(rounds: int, clients: int, active: int) -> fedawe.Trace:
    """`active` of the clients in every round."""
    on = np.zeros((rounds, clients), dtype=bool)
    on[:, :active] = True
    return fedawe.Trace(np.random.default_rng(0).permuted(on, axis=1))


def sgemm(threads: int) -> Rate:
    """Floating-point operations per second of a product of 1024 x 1024 matrices."""
    torch.set_num_threads(threads)
    a = torch.randn(1024, 1024)

    def work() -> int:
        a @ a
        return 2 * 1024**3

    return timed(0.2, work)


def operations(load: Workload, x: Tensor, y: Tensor) -> int:
    """Floating-point operations of the matrix products in one training step of the module as it is written."""
    module = load.make()
    with FlopCounterMode(display=False) as counter, torch.backends.mkldnn.flags(enabled=False):
        nn.functional.cross_entropy(module(x[: load.batch]), y[: load.batch]).backward()
    return int(counter.get_total_flops())


def measured(name: str, turns: int, one_thread: bool = False) -> dict[str, Any]:
    """Both loops on the same data: ours with all cores as processes, and on one thread against theirs on one thread.

    With `one_thread` only the latter, by processor time: where a machine is busy, the threads of the hand-written loop
    wait for each other, and a ratio on all cores means nothing.

    The bound is the ratio that would be found if the products of the module ran at the rate of sgemm, on all cores
    without loss, and everything else took no time.
    """
    load, threads = WORKLOADS[name], 1 if one_thread else torch.get_num_threads()
    workers = 1 if one_thread else cores()
    x, y = load.data()
    parts = list(np.arange(len(y)).reshape(CLIENTS, -1))
    task = Classification(Data("synthetic", x, y, x[:10], y[:10]), ModuleNetwork(load.make), parts)
    local = fedawe.Local(fedawe.Rate(0.05), STEPS, load.batch, batches=load.batches)
    torch.set_num_threads(1)
    stacked = task.stacked
    engines = {n: Processes(task, local, n, load.active, task.initial(0), stacked) for n in {1, workers}}
    # One by one, few clients take as long for a step as many, and a turn is shorter.
    active = {n: load.active if stacked or n > 1 else load.by_hand for n in engines}
    rounds: dict[int, Iterator[Any]] = {
        n: fedawe.simulate(task, fedawe.FedAvg(), chosen(20_000, CLIENTS, active[n]), local, seed=0, engine=engine)
        for n, engine in engines.items()
    }
    trace = chosen(20_000, CLIENTS, load.active)
    hands = {n: HandWritten(load.make(), x, y, CLIENTS, load.batch) for n in (1, threads)}
    played = iter(range(10**9))

    def by_hand(n: int) -> Callable[[], Rate]:
        def work() -> int:
            torch.set_num_threads(n)
            hands[n].round(trace.active(next(played) % trace.rounds).tolist()[: load.by_hand], STEPS)
            return load.by_hand * STEPS

        return lambda: timed(SECONDS, work)

    def ours(n: int) -> Callable[[], Rate]:
        def work() -> int:
            torch.set_num_threads(1)
            next(rounds[n])
            return active[n] * STEPS

        return lambda: timed(SECONDS, work)

    others: dict[str, Callable[[], Rate]] = {"gemm": lambda: sgemm(1)}
    jax = None
    if name == "mlp" and importlib.util.find_spec("jax"):
        sizes = [load.active, STEPS, load.batch, load.samples, SECONDS]
        script = Path(__file__).with_name("jax_scan.py")
        flags = "--xla_cpu_multi_thread_eigen=false intra_op_parallelism_threads=1" if one_thread else ""
        jax = Served([sys.executable, str(script), *map(str, sizes)], {**os.environ, "XLA_FLAGS": flags})
        others["jax"] = jax.turn
    rates = in_turns(
        turns,
        **{f"hand_{n}": by_hand(n) for n in hands},
        **{f"ours_{n}": ours(n) for n in engines},
        **others,
    )
    for engine in engines.values():
        engine.close()
    if jax is not None:
        jax.close()
    mine, hand = rates[f"ours_{workers}"], rates[f"hand_{threads}"]
    work = operations(load, x, y)
    limit = [rate.cpu / work for rate in rates["gemm"]]  # steps per second on one core
    found: dict[str, Any] = {
        "what": load.what,
        "wanted": load.wanted,
        "executor": task.executor,
        "stacked": stacked,
        "hand_steps": median(hand),
        "steps": median(mine),
        "ms": 1e3 / statistics.median(rate.cpu for rate in rates["ours_1"]),
        "hand_ms": 1e3 / statistics.median(rate.cpu for rate in rates["hand_1"]),
        "one_thread": ratio(rates["ours_1"], rates["hand_1"], cpu=True),
        "bound_one": statistics.median(most / rate.cpu for most, rate in zip(limit, rates["hand_1"], strict=True)),
    }
    if not one_thread:
        bound = statistics.median(cores() * most / rate.wall for most, rate in zip(limit, hand, strict=True))
        found.update({"ratio": ratio(mine, hand), "bound": bound})
    return found if jax is None else {**found, "jax": ratio(mine, rates["jax"], cpu=one_thread)}
