"""A federation of real processes under random faults: is a round lost, a tau wrong, a model not finite, memory growing?

SIGKILL and SIGSTOP of nodes, server app and SuperLink; replies that are late, doubled, corrupted, cut off, or lies.

Run: python benchmarks/chaos.py [--rounds 200 --nodes 4 --seed 0 --faults all|none|lies|oversized --out DIR]
"""

import argparse
import contextlib
import json
import os
import platform
import shutil
import signal
import sys
import tempfile
import time
from collections import Counter, defaultdict
from collections.abc import Callable
from pathlib import Path

import numpy as np
import safetensors
import torch
from mischief import LIES, LYING_APP, MEDDLING, Proxy, told_lies

from fedawe.core.rng import rng
from fedawe.deploy.checkpoint import run_of
from fedawe.deploy.local.app import write_app
from fedawe.deploy.local.federation import Federation
from fedawe.deploy.local.processes import free_port, own_bytes
from fedawe.deploy.replay import deployed, replay
from fedawe.results import record as records

TIMEOUT = 20.0  # seconds of a round
ASLEEP = (5.0, 30.0)  # seconds that a SIGSTOP lasts; less than a minute, after which Flower gives a node up
SAMPLE_SECONDS = 5.0
RUN_SECONDS = 3600.0


class Behind(Federation):
    """A federation whose nodes reach the SuperLink through a proxy."""

    def __init__(self, nodes: int, folder: Path) -> None:
        port = free_port()
        self.proxy = Proxy(port, TIMEOUT + 5)
        super().__init__(nodes, folder, port=port)

    def node_superlink(self) -> int:
        return self.proxy.port

    def close(self) -> None:
        super().close()
        self.proxy.close()


class Campaign:
    """One federation, its faults, and what was seen meanwhile."""

    def __init__(self, federation: Behind, rounds: int, seed: int, faults: str) -> None:
        self.federation, self.rounds = federation, rounds
        self.out, self.orders = federation.folder / "out", federation.folder / "orders"
        self.orders.mkdir(exist_ok=True)
        self.draw = rng(seed, "chaos")
        self.began = time.monotonic()
        kill, stop, nodes = federation.kill_node, federation.stop_node, len(federation.nodes)
        self.kinds: dict[str, Callable[[], object]] = {
            "SIGKILL node": lambda: kill(self.any_node()),
            "SIGTERM node": lambda: self.leave(self.any_node(), stop),
            "SIGSTOP node": lambda: self.sleep(self.any_node()),
            "SIGKILL all nodes": lambda: [kill(i) for i in range(nodes)],
            "SIGKILL server app": federation.kill_server_app,
            "SIGKILL SuperLink and server app": federation.kill_link,
            "SIGSTOP server app": lambda: self.sleep(None),
            "SIGSTOP SuperLink": lambda: self.sleep(-1),
        }
        self.plan = self.random_plan() if faults == "all" else lies_alone(rounds, faults)
        self.did: Counter[str] = Counter()
        self.asked_again: set[int] = set()  # rounds in which the server was killed
        self.wake: list[tuple[float, Callable[[], object]]] = []
        self.memory: dict[str, list[tuple[float, int, int]]] = defaultdict(list)  # name: (seconds, pid, bytes)
        self.sampled = 0.0
        self.on = np.zeros((0, nodes), dtype=bool)
        self.checkpoints, self.wrong = 0, Counter[str]()
        self.newest: Path | None = None

    def random_plan(self) -> list[tuple[int, str]]:
        """(round, fault): so many of each kind, at random moments."""
        plan = ["SIGKILL node"] * 12 + ["SIGTERM node"] * 4 + ["SIGSTOP node"] * 10 + ["SIGKILL all nodes"] * 2
        plan += ["SIGKILL server app"] * 4 + ["SIGKILL SuperLink and server app"] * 4
        plan += ["SIGSTOP server app"] * 2 + ["SIGSTOP SuperLink"] * 2
        plan += [f"reply: {how}" for how in MEDDLING for _ in range(4)]
        plan += [f"lie: {how}" for how in LIES for _ in range(2)]
        when = np.sort(self.draw.integers(2, self.rounds - 3, len(plan)))
        return [(int(t), plan[k]) for t, k in zip(when, self.draw.permutation(len(plan)), strict=True)]

    def any_node(self) -> int:
        return int(self.draw.integers(len(self.federation.nodes)))

    def later(self, what: Callable[[], object]) -> None:
        self.wake.append((time.monotonic() + self.draw.uniform(*ASLEEP), what))

    def leave(self, i: int, stop: Callable[[int], None]) -> None:
        stop(i)
        self.later(lambda: self.federation.start_node(i))

    def sleep(self, i: int | None) -> None:
        """SIGSTOP to node i, to the server app (None) or to the SuperLink (-1), and SIGCONT some seconds later."""
        if i is None:
            pid = self.federation.server_app()
            if pid is not None:
                os.kill(pid, signal.SIGSTOP)
                self.later(lambda: wake(pid))
            return
        process = self.federation.link if i < 0 else self.federation.nodes[i]
        process.suspend()
        self.later(process.resume)

    def done(self) -> int:
        """Rounds that are done, from the newest checkpoint."""
        names = sorted(path.name for path in self.out.glob("*/seed-*/checkpoint-*.safetensors"))
        return int(names[-1].split("-")[1]) if names else 0

    def watch(self) -> None:
        """Called several times a second while the run goes on."""
        self.look()
        now = time.monotonic()
        for when, what in [one for one in self.wake if one[0] <= now]:
            self.wake.remove((when, what))
            what()
        done = self.done()
        while self.plan and self.plan[0][0] <= done:
            _, fault = self.plan.pop(0)
            self.commit(fault)
            print(f"{now - self.began:7.1f} s, round {done:4}: {fault}", flush=True)
        if now - self.sampled > SAMPLE_SECONDS:
            self.sampled = now
            self.sample(now - self.began)

    def commit(self, fault: str) -> None:
        kind, _, how = fault.partition(": ")
        if kind == "reply":
            self.federation.proxy.orders.append(how)
        elif kind == "lie":
            free = [i for i in range(len(self.federation.nodes)) if not (self.orders / str(i)).exists()]
            (self.orders / str(self.draw.choice(free))).write_text(how)
        else:
            self.did[fault] += self.kinds[fault]() is not False  # there may be no server app just now
            if fault.lower().startswith("sigkill s"):
                self.asked_again.add(self.done() + 1)

    def sample(self, seconds: float) -> None:
        """Memory of every process."""
        processes = {"SuperLink": self.federation.link.pid, "server app": self.federation.server_app() or 0}
        processes |= {node.name: node.pid for node in self.federation.nodes}
        for name, pid in processes.items():
            if held := own_bytes(pid):
                self.memory[name].append((seconds, pid, held))

    def look(self) -> None:
        """Every checkpoint that is seen: tau as the trace so far says, the past unchanged, all models finite."""
        found = sorted(self.out.glob("*/seed-*/checkpoint-*.safetensors"))
        if not found or found[-1] == self.newest:
            return
        try:
            with safetensors.safe_open(found[-1], "pt") as opened:
                said, tau = json.loads(opened.metadata()["fedawe"]), opened.get_tensor("own.tau").numpy()
                packed, t = opened.get_tensor("on").numpy(), int(opened.get_tensor("t"))
            rows = [row(found[-1].parent / "versions" / file) for file in said["rows"].values()]
        except FileNotFoundError:  # the next checkpoint has replaced it
            return
        on = np.unpackbits(packed, axis=1, count=self.on.shape[1]).astype(bool)
        self.newest, self.checkpoints = found[-1], self.checkpoints + 1
        self.wrong["rounds lost"] += len(on) < len(self.on) or t != len(on) - 1
        self.wrong["rounds changed afterwards"] += not np.array_equal(on[: len(self.on)], self.on[: len(on)])
        self.wrong["wrong tau"] += int((tau != last_active(on)).sum())
        self.wrong["models not finite"] += sum(not bool(torch.isfinite(x).all()) for x in rows)
        self.on = on


def lies_alone(rounds: int, faults: str) -> list[tuple[int, str]]:
    """A lie every third round: of every kind in turn, of one, or none; for looking at memory."""
    kinds = {"none": [], "lies": list(LIES)}.get(faults, [faults])
    return [(t, f"lie: {kinds[n % len(kinds)]}") for n, t in enumerate(range(5, rounds - 3, 3)) if kinds]


def last_active(on: np.ndarray) -> np.ndarray:
    """tau_i = the last round in which i was there, -1 if never, from the trace alone."""
    return np.where(on.any(0), len(on) - 1 - on[::-1].argmax(0), -1)


def row(path: Path) -> torch.Tensor:
    with safetensors.safe_open(path, "pt") as opened:
        found: torch.Tensor = opened.get_tensor("row")
        return found


def wake(pid: int) -> None:
    with contextlib.suppress(ProcessLookupError):
        os.kill(pid, signal.SIGCONT)


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--rounds", type=int, default=200)
    parser.add_argument("--nodes", type=int, default=4)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--faults", choices=["all", "none", "lies", "oversized"], default="all")
    parser.add_argument("--out", type=Path, default=None, help="keep everything here (default: a temporary folder)")
    given = parser.parse_args()
    folder = given.out or Path(tempfile.mkdtemp(prefix="chaos-"))
    print(f"command: python {' '.join(sys.argv)}")
    print(f"hardware: {cpu()}, {os.cpu_count()} cores; Python {platform.python_version()}; n = 1")
    app = write_app(folder / "app", LYING_APP, {"orders": str((folder / "orders").absolute())})
    began = time.monotonic()
    with Behind(given.nodes, folder) as federation:
        campaign = Campaign(federation, given.rounds, given.seed, given.faults)
        config = {
            "num-rounds": given.rounds,
            "clients": given.nodes,
            "quorum": given.nodes // 2 + 1,
            "timeout": TIMEOUT,
            "max-norm": 100.0,
            "model": "norm",  # with batch normalisation, whose statistics are the server's state too
            "out": campaign.out,
        }
        ends = Counter[str]()
        while not list(campaign.out.glob("*/seed-*/model.safetensors")) and sum(ends.values()) < 60:
            if not federation.link.alive:
                federation.start_link()
            status = federation.run(app, config, RUN_SECONDS, campaign.watch)
            ends[status] += 1
            print(f"{time.monotonic() - began:7.1f} s, round {campaign.done():4}: run {status}", flush=True)
        campaign.look()
        restarts = federation.restarts
    ok = report(campaign, ends, restarts, time.monotonic() - began)
    if given.out is None and ok:
        shutil.rmtree(folder)
    sys.exit(0 if ok else 1)


def report(campaign: Campaign, ends: Counter[str], restarts: int, seconds: float) -> bool:
    """What it came to; whether all is well."""
    rounds = records.read(run_of(campaign.out) / records.NAME).rounds
    took = np.array([line["round_seconds"] for line in rounds])
    lies, meddled = told_lies(campaign.orders), campaign.federation.proxy.done
    clients = {line["round"]: line["clients"] for line in rounds}
    did = campaign.did + Counter({f"reply: {how}": n for how, n in meddled.items()})
    did += Counter(f"lie: {how}" for _, how, _ in lies)
    refused = sum((Counter(line["refused"]) for line in rounds), Counter[str]())
    print(f"\n{len(rounds)} rounds in {seconds / 60:.1f} min, {sum(did.values())} faults")
    for fault, n in sorted(did.items()):
        print(f"  {n:4} x {fault}")
    print(f"runs: {dict(ends)}; nodes restarted by the supervisor: {restarts}")
    print(f"round: median {np.median(took):.1f} s, 99th percentile {np.percentile(took, 99):.1f} s")
    active = np.mean([len(line["clients"]) for line in rounds])
    print(f"active clients: {active:.2f} of {campaign.on.shape[1]} on average")
    print(f"closed: {dict(Counter(line['closed'] for line in rounds))}; refused: {dict(sorted(refused.items()))}")
    wrong = Counter(campaign.wrong)
    wrong["rounds lost"] += [line["round"] for line in rounds] != list(range(1, campaign.rounds + 1))
    wrong["rounds lost"] += len(campaign.on) != campaign.rounds
    wrong["trace differs from the record"] += sum(
        np.flatnonzero(on).tolist() != line["clients"] for on, line in zip(campaign.on, rounds, strict=False)
    )
    # A round in which the server was killed is asked again, and then its clients may tell the truth.
    wrong["lies let in"] += sum(i in clients[n] and n not in campaign.asked_again for i, _, n in lies)
    x, y = deployed(campaign.out), replay(campaign.out)
    wrong["models not finite"] += not bool(torch.isfinite(x).all())
    wrong["replay differs"] += not torch.allclose(x, y, rtol=1e-4, atol=1e-5)
    print(f"deployed model and replay of the trace differ by at most {float((x - y).abs().max()):.3g}")
    memory(campaign)
    print(f"looked at {campaign.checkpoints} checkpoints; wrong: {dict(wrong)}")
    return not sum(wrong.values())


def memory(campaign: Campaign) -> None:
    """Memory over each process's longest life: MB after a quarter of it, and at its end."""
    for name, series in sorted(campaign.memory.items()):
        lives = defaultdict(list)
        for seconds, pid, held in series:
            lives[pid].append((seconds, held / 1e6))
        longest = max(lives.values(), key=lambda life: life[-1][0] - life[0][0])
        quarter, end = longest[len(longest) // 4], longest[-1]
        print(
            f"{name}: {len(lives)} lives, the longest {end[0] - longest[0][0]:.0f} s; "
            f"{quarter[1]:.0f} MB after a quarter of it, {end[1]:.0f} MB at its end; "
            f"at most {max(held for _, _, held in series) / 1e6:.0f} MB"
        )


def cpu() -> str:
    for line in Path("/proc/cpuinfo").read_text().splitlines() if Path("/proc/cpuinfo").exists() else []:
        if line.startswith("model name"):
            return line.split(":")[1].strip()
    return platform.processor() or "unknown processor"


if __name__ == "__main__":
    main()
