"""Small models: local steps per second of the stacked clients against the loop that one would write by hand.

usage: python benchmarks/stacked.py [--seconds 10]

64-64-10 MLP, 100 clients, 30 active, 10 steps of batch 32. The hand-written loop has an nn.Module, a DataLoader per
client, optim.SGD and averaged state_dicts, and PyTorch's own choice of threads. Both are timed in turns in one process,
so that a busy machine slows both; the ratio is the figure.
"""

import argparse
import copy
import shlex
import statistics
import sys
import time

import numpy as np
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

import fedawe
from fedawe.environment import environment
from fedawe.tasks import Classification, Data, Dense

CLIENTS, ACTIVE, STEPS, BATCH, SAMPLES = 100, 30, 10, 32, 200


def make_task() -> Classification:
    draw = torch.Generator().manual_seed(0)
    x, y = torch.randn(CLIENTS * SAMPLES, 64, generator=draw), torch.randint(10, (CLIENTS * SAMPLES,), generator=draw)
    parts = list(np.arange(CLIENTS * SAMPLES).reshape(CLIENTS, SAMPLES))
    return Classification(Data("synthetic", x, y, x[:10], y[:10]), Dense((64, 64, 10)), parts)


class HandWritten:
    """FedAvg as in a tutorial."""

    def __init__(self, task: Classification) -> None:
        x, y = task.data.x_train, task.data.y_train
        self.loaders = []
        for i in range(CLIENTS):
            mine = slice(i * SAMPLES, (i + 1) * SAMPLES)
            self.loaders.append(DataLoader(TensorDataset(x[mine], y[mine]), BATCH, shuffle=True, drop_last=True))
        self.iterators = [iter(loader) for loader in self.loaders]
        self.model = nn.Sequential(nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 10))

    def round(self, active: list[int]) -> None:
        states = []
        for i in active:
            model = copy.deepcopy(self.model)
            optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
            for _ in range(STEPS):
                try:
                    x, y = next(self.iterators[i])
                except StopIteration:
                    self.iterators[i] = iter(self.loaders[i])
                    x, y = next(self.iterators[i])
                optimizer.zero_grad()
                nn.functional.cross_entropy(model(x), y).backward()
                optimizer.step()
            states.append(model.state_dict())
        self.model.load_state_dict({k: torch.stack([s[k] for s in states]).mean(0) for k in states[0]})


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seconds", type=float, default=10.0, help="about how long to measure each")
    seconds = parser.parse_args().seconds
    task = make_task()
    on = np.zeros((100_000, CLIENTS), dtype=bool)
    on[:, :ACTIVE] = True
    on = np.random.default_rng(0).permuted(on, axis=1)
    trace = fedawe.Trace(on)
    local = fedawe.Local(fedawe.Rate(0.1), STEPS, BATCH)
    ours = fedawe.simulate(task, fedawe.FedAWE(), trace, local, seed=0)
    hand, threads = HandWritten(task), torch.get_num_threads()
    rates: dict[str, list[float]] = {"hand-written": [], "fedawe": []}
    turns = 10
    for turn in range(turns + 1):  # the first is for warming up
        for name in rates:
            torch.set_num_threads(threads if name == "hand-written" else 1)
            began, rounds = time.perf_counter(), 0
            while time.perf_counter() - began < seconds / turns:
                if name == "fedawe":
                    next(ours)
                else:
                    hand.round(trace.active(rounds).tolist())
                rounds += 1
            if turn:
                rates[name].append(rounds * ACTIVE * STEPS / (time.perf_counter() - began))
    ratios = [a / b for a, b in zip(rates["fedawe"], rates["hand-written"], strict=True)]
    print(f"command: {shlex.join(['python', *sys.argv])}\nhardware: {environment()}\nn = {turns} turns each, medians")
    for name, rate in rates.items():
        print(f"{name:14} {statistics.median(rate):10,.0f} local steps/s")
    print(f"ratio {statistics.median(ratios):.1f} (least {min(ratios):.1f}, most {max(ratios):.1f})")


if __name__ == "__main__":
    main()
