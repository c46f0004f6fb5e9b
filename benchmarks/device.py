"""Local steps per second on a device, clients stacked and one after another; the time of a round includes its waits.

usage: python benchmarks/device.py [--device cuda] [--seconds 5]
"""

import argparse
import time

import numpy as np
import torch
from modules import CLIENTS, STEPS, WORKLOADS, chosen

import fedawe
from fedawe.tasks import Classification, Data, ModuleNetwork
from fedawe.training.engines import Inline


def rate(task: Classification, name: str, stacked: bool, seconds: float) -> float:
    """Local steps per second."""
    load = WORKLOADS[name]
    local = fedawe.Local(fedawe.Rate(0.05), STEPS, load.batch, batches=load.batches)
    trace = chosen(10_000, CLIENTS, load.active)
    rounds = fedawe.simulate(task, fedawe.FedAvg(), trace, local, seed=0, engine=Inline(task, local, stacked))
    for _ in range(2):  # warming up
        next(rounds)
    began, done = time.perf_counter(), 0
    while time.perf_counter() - began < seconds:
        next(rounds)
        done += load.active * STEPS
    return done / (time.perf_counter() - began)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--device", default="cuda")
    parser.add_argument("--seconds", type=float, default=5.0)
    parser.add_argument("--only", choices=WORKLOADS, nargs="*", default=list(WORKLOADS))
    arguments = parser.parse_args()
    device = torch.device(arguments.device)
    print("| network | executor | stacked, steps/s | one after another, steps/s |")
    print("|---|---|---|---|")
    for name in arguments.only:
        load = WORKLOADS[name]
        x, y = load.data()
        parts = list(np.arange(len(y)).reshape(CLIENTS, -1))
        data = Data("synthetic", x, y, x[:10], y[:10])
        task = Classification(data, ModuleNetwork(load.make), parts).to(device)
        rates = [rate(task, name, stacked, arguments.seconds) for stacked in (True, False)]
        print(f"| {load.what} | {task.executor} | {rates[0]:,.1f} | {rates[1]:,.1f} |", flush=True)


if __name__ == "__main__":
    main()
