"""Your own nn.Module: local steps per second as a ratio to the hand-written loop, measured in turns in one run."""

import statistics
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
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

import fedawe
from fedawe.tasks import Classification, Data, ModuleNetwork
from fedawe.tasks.base import Rule
from fedawe.training.engines import Processes, better_stacked, cores

CLIENTS, STEPS = 100, 10


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


def measured(
    name: str,
    turns: int,
    in_turns: Callable[..., dict[str, list[float]]],
    with_threads: Callable[[int, Callable[[], int]], Callable[[], int]],
    trace: fedawe.Trace,
) -> dict[str, Any]:
    """Both loops on the same data: ours with all cores as processes, and on one thread against theirs on one thread."""
    load, threads = WORKLOADS[name], torch.get_num_threads()
    x, y = load.data()
    parts = list(np.arange(len(y)).reshape(CLIENTS, -1))
    task = Classification(Data("synthetic", x, y, x[:10], y[:10]), ModuleNetwork(load.make), parts)
    local = fedawe.Local(fedawe.Rate(0.05), STEPS, load.batch, batches=load.batches)
    torch.set_num_threads(1)
    stacked = better_stacked(task, local, 0)
    engines = {f"workers_{n}": Processes(task, local, n, load.active, task.initial(0), stacked) for n in {1, cores()}}
    rounds: dict[str, Iterator[Any]] = {
        each: fedawe.simulate(task, fedawe.FedAvg(), trace, local, seed=0, engine=engine)
        for each, engine in engines.items()
    }
    hands = {n: HandWritten(load.make(), x, y, CLIENTS, load.batch) for n in (1, threads)}
    played = iter(range(10**9))

    def by_hand(n: int) -> Callable[[], int]:
        def work() -> int:
            hands[n].round(trace.active(next(played) % trace.rounds).tolist()[: load.by_hand], STEPS)
            return load.by_hand * STEPS

        return with_threads(n, work)

    def ours(each: str) -> Callable[[], int]:
        def work() -> int:
            next(rounds[each])
            return load.active * STEPS

        return with_threads(1, work)

    rates = in_turns(
        turns,
        1.0,
        **{f"hand_{n}": by_hand(n) for n in hands},
        **{each: ours(each) for each in engines},
    )
    for engine in engines.values():
        engine.close()
    every = f"workers_{cores()}"
    return {
        "what": load.what,
        "wanted": load.wanted,
        "executor": task.executor,
        "stacked": stacked,
        "hand_steps": statistics.median(rates[f"hand_{threads}"]),
        "steps": statistics.median(rates[every]),
        "ratio": [a / b for a, b in zip(rates[every], rates[f"hand_{threads}"], strict=True)],
        "one_thread": [a / b for a, b in zip(rates["workers_1"], rates["hand_1"], strict=True)],
    }
