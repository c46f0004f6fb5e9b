"""Local steps per second on a device, clients stacked and one after another; the time of a round includes its waits.

usage: python benchmarks/device.py [--device cuda] [--seconds 5] [--precision bfloat16]
"""

import argparse
import time

import numpy as np
import torch
from modules import CLIENTS, STEPS, WORKLOADS, chosen

import fedawe
from fedawe.tasks import Classification, Data, ModuleNetwork
from fedawe.training.engines import Inline
from fedawe.training.local import Precision


def rate(task: Classification, name: str, stacked: bool, seconds: float, precision: Precision) -> float:
    """Local steps per second."""
    load = WORKLOADS[name]
    local = fedawe.Local(fedawe.Rate(0.05), STEPS, load.batch, batches=load.batches, precision=precision)
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
    parser.add_argument("--precision", choices=["float32", "bfloat16"], default="float32")
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
        try:
            rates = [rate(task, name, stacked, arguments.seconds, arguments.precision) for stacked in (True, False)]
        except fedawe.UserError as error:  # such as an LSTM in bfloat16 on a processor that has none
            print(f"| {load.what} | {task.executor} | {error} | |", flush=True)
            continue
        print(f"| {load.what} | {task.executor} | {rates[0]:,.1f} | {rates[1]:,.1f} |", flush=True)


if __name__ == "__main__":
    main()
