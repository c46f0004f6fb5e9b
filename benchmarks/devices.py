"""A fleet of devices at one SuperLink on this machine: how many replies a second, how long a round takes, what memory.

Some are real SuperNodes. The others share processes: each has its own connection, key, node id and heartbeat, by
Flower's own code, but its client app runs in a thread instead of a process of its own. A device looks for work every
few seconds, and after a while leaves for a while; then it returns under a new id, as an unauthenticated node does.

With --faults, at equal distances over the time: SIGKILL to a SuperNode; to the server app; to a process that half of
the devices share; SIGSTOP to the SuperLink for 20 s; SIGKILL to SuperLink and server app at once. The same run is then
started again, as an operator would do it, and continues from the checkpoint of the server app.

Run: python benchmarks/devices.py [--devices 200 --real 4 --minutes 20 --look 5 --ask 40 --faults --database --out DIR]
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
LOOKS, ABSENCE = 18, 3.0  # looks for work of a visit, on average; and how many times as long as a visit an absence is
SHARED = 2  # processes for the devices that share one
SAMPLE_SECONDS, STOPPED_SECONDS = 10.0, 20.0


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--devices", type=int, default=200)
    parser.add_argument("--real", type=int, default=4, help="SuperNodes that are real processes")
    parser.add_argument("--minutes", type=float, default=20.0)
    parser.add_argument("--look", type=float, default=5.0, help="mean seconds between two looks of a device for work")
    parser.add_argument("--ask", type=int, default=0, help="clients that are asked in a round, at random; 0: all")
    parser.add_argument("--faults", action="store_true")
    parser.add_argument("--database", action="store_true", help="the SuperLink keeps its state in SQLite")
    parser.add_argument("--out", type=Path, default=Path(tempfile.gettempdir()) / "devices")
    parser.add_argument("--share", type=json.loads, default=None, help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.share is not None:
        share(**given.share)
        return
    print(f"command: python {' '.join(sys.argv)}")
    print(f"hardware: {cpu()}, {os.cpu_count()} cores; Python {platform.python_version()}; n = 1", flush=True)
    with Federation(given.real, given.out, database=given.database) as federation:
        fleet = Fleet(federation, given)
        try:
            fleet.run()
        finally:
            for one in fleet.sharing:
                one.kill()
    print(f"nodes restarted by the supervisor: {federation.restarts}")
    for seconds, what in fleet.events:
        print(f"after {seconds:.0f} s: {what}")
    report(given.out / "out", fleet, given)


class Fleet:
    """The devices, what happens to them, and what memory everyone takes."""

    def __init__(self, federation: Federation, given: argparse.Namespace) -> None:
        self.federation, self.given = federation, given
        self.config: dict[str, Any] = {
            "clients": given.devices,
            "quorum": min(QUORUM, given.devices // 2),
            "timeout": max(TIMEOUT, 3 * given.look),
            "model": "softmax",
            "algorithm": f"chosen:rule=fedawe,chooser=uniform(k={given.ask})" if given.ask else "fedawe",
            "num-rounds": 100_000,
            "out": str((given.out / "out").absolute()),
        }
        self.began, self.last = time.monotonic(), 0.0
        self.end = self.began + given.minutes * 60
        self.sharing = [self._shared(n) for n in range(SHARED)]
        self.memory: dict[str, list[tuple[float, float]]] = defaultdict(list)  # name: (seconds, MB)
        self.events: list[tuple[float, str]] = []
        faults = [self._kill_node, self._kill_server_app, self._kill_devices, self._stop_link, self._kill_link]
        every = given.minutes * 60 / (len(faults) + 1)
        self.faults = [(self.began + every * n, fault) for n, fault in enumerate(faults, 1)] if given.faults else []
        self.wake = 0.0  # when the SuperLink goes on

    def _shared(self, n: int) -> "subprocess.Popen[bytes]":
        """The process of every SHARED-th device."""
        said = {
            "port": self.federation.port,
            "clients": list(range(self.given.real, self.given.devices))[n::SHARED],
            "config": self.config,
            "seconds": self.end - time.monotonic(),
            "look": self.given.look,
        }
        return subprocess.Popen(
            [sys.executable, __file__, "--share", json.dumps(said)],
            env=self.federation.setup.environment(),
            stdout=self.federation.setup.log(f"shared-{n}").open("ab"),
            stderr=subprocess.STDOUT,
        )

    def run(self) -> None:
        """The same run again and again until the time is over, as often as something ends it."""
        app = write_app(self.given.out / "app")
        while (left := self.end - time.monotonic()) > 10:
            status = self.federation.run(app, self.config, left, self.watch)
            self._tell(f"the run ended: {status}")
            if not self.federation.link.alive:
                self.federation.start_link()

    def watch(self) -> None:
        """Called several times a second."""
        now = time.monotonic()
        if self.wake and now > self.wake:
            self.federation.link.resume()
            self.wake = 0.0
        if self.faults and now > self.faults[0][0]:
            self.faults.pop(0)[1]()
        if now - self.last < SAMPLE_SECONDS:
            return
        self.last = now
        pids = {"SuperLink": self.federation.link.pid, "node-1": self.federation.nodes[-1].pid}
        pids |= {f"devices, process {n}": one.pid for n, one in enumerate(self.sharing)}
        for name, pid in {**pids, "server app": self.federation.server_app() or 0}.items():
            if held := own_bytes(pid):
                self.memory[name].append((now - self.began, held / 1e6))

    def _tell(self, what: str) -> None:
        self.events.append((time.monotonic() - self.began, what))
        print(f"[{self.events[-1][0]:.0f} s] {what}", flush=True)

    def _kill_node(self) -> None:
        self.federation.kill_node(0)
        self._tell("SIGKILL to a SuperNode")

    def _kill_server_app(self) -> None:
        self._tell(f"SIGKILL to the server app: {self.federation.kill_server_app()}")

    def _kill_devices(self) -> None:
        self.sharing[0].kill()
        self.sharing[0].wait()
        self.sharing[0] = self._shared(0)
        self._tell(f"SIGKILL to a process of {self.given.devices // SHARED} devices, which was started again")

    def _stop_link(self) -> None:
        self.federation.link.suspend()
        self.wake = time.monotonic() + STOPPED_SECONDS
        self._tell(f"SIGSTOP to the SuperLink for {STOPPED_SECONDS:.0f} s")

    def _kill_link(self) -> None:
        self.federation.kill_link()
        self._tell("SIGKILL to SuperLink and server app")


def report(out: Path, fleet: Fleet, given: argparse.Namespace) -> None:
    record = records.read(run_of(out) / records.NAME)
    rounds, evaluations = record.rounds, record.evaluations
    numbers = [line["round"] for line in rounds]
    print(f"rounds lost or counted twice: {len(numbers) - len(set(numbers)) + max(numbers) - len(set(numbers))}")
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
    first, last = (evaluations[n]["test_accuracy"] for n in (0, -1))
    print(f"test accuracy: {first:.3f} -> {last:.3f}")
    for name, series in fleet.memory.items():
        quarter = series[len(series) // 4]
        print(
            f"{name}: {quarter[1]:.0f} MB after {quarter[0]:.0f} s, {series[-1][1]:.0f} MB after {series[-1][0]:.0f} s"
        )


# ---------------------------------------------------------------------------------- devices that share a process


def share(port: int, clients: list[int], config: dict[str, Any], seconds: float, look: float) -> None:
    """The devices `clients`, each in a thread."""
    from flwr.supernode import fleet_http_connection

    def fail(code: int, message: str = "") -> NoReturn:
        raise ConnectionError(f"{code}: {message}")

    torch.set_num_threads(1)
    os.nice(10)  # what devices do on their own processors is not to slow down the server
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # with which Flower ends a node that the SuperLink does not know
    vars(fleet_http_connection)["flwr_exit"] = fail  # one device that is not let in must not end the process of all
    threads = [threading.Thread(target=device, args=(port, i, config, look), daemon=True) for i in clients]
    for thread in threads:
        thread.start()
    time.sleep(seconds)


def device(port: int, client: int, config: dict[str, Any], look: float) -> None:
    """Available for a while, then not, and so on."""
    draw, visit = rng(0, "device", client), LOOKS * look
    present = draw.random() < 1 / (1 + ABSENCE)
    time.sleep(draw.uniform(0, visit) if present else draw.exponential(ABSENCE * visit))
    while True:
        try:
            stay(port, client, config, time.monotonic() + draw.exponential(visit), draw, look)
        except Exception:  # a device that fails is one that is no longer available
            traceback.print_exc()
        time.sleep(draw.exponential(ABSENCE * visit))


def stay(port: int, client: int, config: dict[str, Any], until: float, draw: np.random.Generator, look: float) -> None:
    """One visit: register, look for work, do it, leave."""
    from flwr.supernode.fleet_http_connection import http_request_response

    with http_request_response(f"127.0.0.1:{port}", insecure=True) as connection:
        node, receive, send, _, _, pull_object, push_object, confirm = connection
        while time.monotonic() < until:
            got = receive()
            if got is None:
                time.sleep(look * draw.uniform(0.5, 1.5))
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
