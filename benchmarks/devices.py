"""Two hundred devices at one SuperLink on this machine: how many replies a second, how long a round takes, what memory.

Some are real SuperNodes. The others share processes: each has its own connection, key, node id and heartbeat, by
Flower's own code, but its client app runs in a thread instead of a process of its own. A device looks for work every
few seconds, and after a while leaves for a while; then it comes back under a new id, as an unauthenticated node does.

Run: python benchmarks/devices.py [--devices 200 --real 4 --minutes 20 --out DIR]
"""

import argparse
import json
import os
import platform
import signal
import subprocess
import sys
import tempfile
import threading
import time
import traceback
from collections import defaultdict
from pathlib import Path
from typing import Any, NoReturn

import numpy as np
import torch
from chaos import cpu

from fedawe.core.rng import rng
from fedawe.deploy.checkpoint import run_of
from fedawe.deploy.local.app import write_app
from fedawe.deploy.local.federation import Federation
from fedawe.deploy.local.processes import own_bytes
from fedawe.results import record as records

QUORUM, TIMEOUT = 10, 60.0
LOOK_SECONDS = 5.0  # between two looks for work, on average; a SuperNode's own is 3
HERE_SECONDS, AWAY_SECONDS = 90.0, 270.0  # means of exponential times: a quarter of the devices is there
SHARED = 2  # processes for the devices that share one
SAMPLE_SECONDS = 10.0


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--devices", type=int, default=200)
    parser.add_argument("--real", type=int, default=4, help="SuperNodes that are real processes")
    parser.add_argument("--minutes", type=float, default=20.0)
    parser.add_argument("--out", type=Path, default=Path(tempfile.gettempdir()) / "devices")
    parser.add_argument("--share", type=json.loads, default=None, help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.share is not None:
        share(**given.share)
        return
    print(f"command: python {' '.join(sys.argv)}")
    print(f"hardware: {cpu()}, {os.cpu_count()} cores; Python {platform.python_version()}; n = 1", flush=True)
    config: dict[str, Any] = {
        "clients": given.devices,
        "quorum": min(QUORUM, given.devices // 2),
        "timeout": TIMEOUT,
        "model": "softmax",
        "num-rounds": 100_000,
        "out": str((given.out / "out").absolute()),
    }
    with Federation(given.real, given.out, database=False) as federation:
        app = write_app(given.out / "app")
        sharing = [
            subprocess.Popen(
                [
                    sys.executable,
                    __file__,
                    "--share",
                    json.dumps(
                        {
                            "port": federation.port,
                            "clients": list(range(given.real, given.devices))[n::SHARED],
                            "config": config,
                            "seconds": given.minutes * 60,
                        }
                    ),
                ],
                env=federation.setup.environment(),
                stdout=federation.setup.log(f"shared-{n}").open("wb"),
                stderr=subprocess.STDOUT,
            )
            for n in range(SHARED)
        ]
        processes = {"SuperLink": federation.link.pid, "node-0": federation.nodes[0].pid}
        processes |= {f"devices, process {n}": one.pid for n, one in enumerate(sharing)}
        seen = Seen(federation, processes)
        try:
            status = federation.run(app, config, given.minutes * 60, seen.sample)
        finally:
            for one in sharing:
                one.kill()
    print(f"run: {status}; nodes restarted by the supervisor: {federation.restarts}")
    report(given.out / "out", seen, given)


class Seen:
    """Memory over time."""

    def __init__(self, federation: Federation, processes: dict[str, int]) -> None:
        self.federation, self.processes = federation, processes
        self.began, self.last = time.monotonic(), 0.0
        self.memory: dict[str, list[tuple[float, float]]] = defaultdict(list)  # name: (seconds, MB)

    def sample(self) -> None:
        now = time.monotonic()
        if now - self.last < SAMPLE_SECONDS:
            return
        self.last = now
        for name, pid in {**self.processes, "server app": self.federation.server_app() or 0}.items():
            if held := own_bytes(pid):
                self.memory[name].append((now - self.began, held / 1e6))


def report(out: Path, seen: Seen, given: argparse.Namespace) -> None:
    rounds = records.read(run_of(out) / records.NAME).rounds
    took, active = (
        np.array([line["round_seconds"] for line in rounds]),
        np.array([len(line["clients"]) for line in rounds]),
    )
    devices = {client for line in rounds for client in line["clients"]}
    refused: dict[str, int] = defaultdict(int)
    for line in rounds:
        for reason, n in line["refused"].items():
            refused[reason] += n
    megabytes = sum(line["bytes_down"] + line["bytes_up"] for line in rounds) / 1e6
    print(f"{given.devices} devices, {given.real} of them SuperNodes, for {given.minutes:g} min: {len(rounds)} rounds")
    print(f"replies: {active.sum()} in time, {active.sum() / took.sum():.2f} a second, {active.mean():.1f} a round")
    percentiles = f"median {np.median(took):.1f} s, 99th percentile {np.percentile(took, 99):.1f} s"
    print(f"round: {percentiles}, most {took.max():.1f} s")
    print(f"devices that took part: {len(devices)}; refused: {dict(refused)}; arrays up and down {megabytes:.1f} MB")
    print(
        f"test accuracy: {rounds[0]['evaluate']['test_accuracy']:.3f} -> {rounds[-1]['evaluate']['test_accuracy']:.3f}"
    )
    for name, series in seen.memory.items():
        quarter = series[len(series) // 4]
        print(
            f"{name}: {quarter[1]:.0f} MB after {quarter[0]:.0f} s, {series[-1][1]:.0f} MB after {series[-1][0]:.0f} s"
        )


# ---------------------------------------------------------------------------------- devices that share a process


def share(port: int, clients: list[int], config: dict[str, Any], seconds: float) -> None:
    """The devices `clients`, each in a thread."""
    from flwr.supernode import fleet_http_connection

    def fail(code: int, message: str = "") -> NoReturn:
        raise ConnectionError(f"{code}: {message}")

    torch.set_num_threads(1)
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # with which Flower ends a node that the SuperLink does not know
    vars(fleet_http_connection)["flwr_exit"] = fail  # one device that is not let in must not end the process of all
    threads = [threading.Thread(target=device, args=(port, i, config), daemon=True) for i in clients]
    for thread in threads:
        thread.start()
    time.sleep(seconds)


def device(port: int, client: int, config: dict[str, Any]) -> None:
    """Comes and goes for ever."""
    draw = rng(0, "device", client)
    if draw.random() > HERE_SECONDS / (HERE_SECONDS + AWAY_SECONDS):
        time.sleep(draw.exponential(AWAY_SECONDS))
    while True:
        try:
            stay(port, client, config, time.monotonic() + draw.exponential(HERE_SECONDS), draw)
        except Exception:  # a device that fails is a device that went away
            traceback.print_exc()
        time.sleep(draw.exponential(AWAY_SECONDS))


def stay(port: int, client: int, config: dict[str, Any], until: float, draw: np.random.Generator) -> None:
    """One visit: register, look for work, do it, leave."""
    from flwr.supernode.fleet_http_connection import http_request_response

    with http_request_response(f"127.0.0.1:{port}", insecure=True) as connection:
        node, receive, send, _, _, pull_object, push_object, confirm = connection
        while time.monotonic() < until:
            got = receive()
            if got is None:
                time.sleep(LOOK_SECONDS * draw.uniform(0.5, 1.5))
            else:
                answer(got, node, client, config, send, pull_object, push_object, confirm)


def answer(
    got: Any,
    node: int,
    client: int,
    config: dict[str, Any],
    send: Any,
    pull_object: Any,
    push_object: Any,
    confirm: Any,
) -> None:
    """What a SuperNode and its client process do with a message, in one go."""
    from flwr.app import Context, Message, RecordDict
    from flwr.supercore.inflatable.inflatable_object import (
        get_all_nested_objects,
        get_object_tree,
        no_object_id_recompute,
    )
    from flwr.supercore.inflatable.inflatable_utils import pull_and_inflate_object_from_tree

    from fedawe.deploy import digits

    announced, tree = got
    run = announced.metadata.run_id
    message = pull_and_inflate_object_from_tree(
        tree, lambda name: pull_object(run, name), lambda name: confirm(run, name), return_type=Message
    )
    message.metadata.__dict__["_message_id"] = tree.object_id
    began = time.monotonic()
    context = Context(run, node, {"client-id": client}, RecordDict(), config)
    reply = digits.client_app()(message, context)
    reply.metadata.__dict__["_message_id"] = reply.object_id
    with no_object_id_recompute():
        contents = {name: one.deflate() for name, one in get_all_nested_objects(reply).items()}
        missing, session = send(reply, get_object_tree(reply), time.monotonic() - began)
    for name in missing:
        push_object(run, session, name, contents[name])


if __name__ == "__main__":
    main()
