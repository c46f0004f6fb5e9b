"""What a second node is worth: the SVHN network on one and on two single-core Ray nodes of this machine, in turns.

usage: python benchmarks/ray_cluster.py [--turns 5] [--seconds 10] [--data FOLDER]

The two and the processes of one machine are timed one after the other in every turn, so that a busy machine slows all;
a ratio is taken within a turn. Both nodes and the driver must have a core's time: run it on an otherwise idle machine.
"""

import argparse
import os
import secrets
import shlex
import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch
from engine import spread, svhn_like
from modules import chosen
from turns import Rate, median, ratio, timed

import fedawe
from fedawe.core.environment import environment
from fedawe.tasks import Task
from fedawe.tasks.named import NamedTask
from fedawe.training.engines import Engine, Processes, RayCluster, RayEngine, keep_freed_memory

CLIENTS, ACTIVE = 100, 20
LOCAL = fedawe.Local(fedawe.Rate(0.05), 10, 128)
MEMORY = 2**30  # of each node


@contextmanager
def nodes() -> Iterator[str]:
    """A head without cores for this process, and two nodes of one core each; nothing of them is left afterwards."""
    with tempfile.TemporaryDirectory(prefix="ray", dir="/tmp", ignore_cleanup_errors=True) as folder:
        # names of sockets must be short, hence the folder
        os.environ.update(RAY_TMPDIR=folder, RAY_USAGE_STATS_ENABLED="0")
        os.environ.update(RAY_AUTH_MODE="token", RAY_AUTH_TOKEN=secrets.token_hex(32))
        os.environ["RAY_worker_niceness"] = "0"  # noqa: SIM112 (Ray's spelling); as the processes, Ray's own choice is 15
        from ray.cluster_utils import Cluster

        found: Any = Cluster()
        try:
            found.add_node(num_cpus=0, include_dashboard=False, object_store_memory=MEMORY)
            for _ in range(2):
                found.add_node(num_cpus=1, object_store_memory=MEMORY)
            yield found.address
        finally:
            found.shutdown()


def on_nodes(task: Task, cluster: RayCluster, number: int) -> Engine:
    engine = RayEngine(task, LOCAL, cluster, number)
    while engine.actors.starting:
        engine.actors.next()
    return engine


def steps_per_second(task: Task, engine: Engine, seconds: float) -> Rate:
    """Local steps of whole rounds of FedAWE, after one round to warm up; and the engine is closed."""
    rounds = fedawe.simulate(task, fedawe.FedAWE(), chosen(1000, CLIENTS, ACTIVE), LOCAL, seed=0, engine=engine)
    next(rounds)

    def work() -> int:
        next(rounds)
        return ACTIVE * LOCAL.steps

    rate = timed(seconds, work)
    engine.close()
    return rate


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--turns", type=int, default=5)
    parser.add_argument("--seconds", type=float, default=10.0, help="of each measurement")
    parser.add_argument("--data", type=Path, help="folder in which `fedawe data` keeps svhn (default: random images)")
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    keep_freed_memory()
    task: Task = svhn_like(CLIENTS)
    if arguments.data is not None:
        task = NamedTask("svhn", "paper", CLIENTS, alpha=1.0, folder=arguments.data)(0)
    rates: dict[str, list[Rate]] = {"one": [], "two": [], "processes": []}
    with nodes() as address, RayCluster(address) as cluster:
        engines: dict[str, Callable[[], Engine]] = {
            "one": lambda: on_nodes(task, cluster, 1),
            "two": lambda: on_nodes(task, cluster, 2),
            "processes": lambda: Processes(task, LOCAL, 2, ACTIVE, task.initial(0)),
        }
        for turn in range(arguments.turns):
            for name, build in engines.items():
                rates[name].append(steps_per_second(task, build(), arguments.seconds))
            print(
                f"turn {turn + 1}:", {name: round(found[-1].wall, 1) for name, found in rates.items()}, file=sys.stderr
            )
    command = shlex.join(["python", os.path.relpath(__file__), *sys.argv[1:]])
    data = "svhn" if arguments.data is not None else "random images"
    print(f"`{command}`; {data}, {ACTIVE} of {CLIENTS} clients, {LOCAL.steps} steps of batch {LOCAL.batch}; ", end="")
    print(
        f"n = {arguments.turns} turns, medians (least to most);",
        ", ".join(f"{k} {v}" for k, v in environment().items()),
    )
    print("\n| what | found | wanted |\n| --- | --- | --- |")
    for name, what in (("one", "one node"), ("two", "two nodes"), ("processes", "two processes, without Ray")):
        print(f"| local steps/s, {what} | {median(rates[name]):.1f} | |")
    print(f"| two nodes / one | {spread(ratio(rates['two'], rates['one']))} | >= 1.6 |")
    print(f"| two nodes / two processes | {spread(ratio(rates['two'], rates['processes']))} | |")


if __name__ == "__main__":
    main()
