"""Speed, as ratios measured in one run on one machine; prints a table and writes it to docs/benchmarks.md.

usage: python benchmarks/engine.py [--only NAME ...] [--turns 5] [--one-thread] [--against TREE]

Every measurement runs in a process of its own, so that its peak memory is its own. What is compared is timed in turns,
so that a busy machine slows both; figures are medians over the turns.
"""

import argparse
import cProfile
import dataclasses
import json
import os
import pstats
import resource
import shlex
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from functools import partial
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import torch
from hand_written import HandWritten, cnn, mlp
from modules import WORKLOADS, chosen, measured, sgemm
from turns import Rate, Served, in_turns, median, ratio, timed

import fedawe
from fedawe.availability import class_weights
from fedawe.core.environment import environment
from fedawe.experiments import checkpoint
from fedawe.tasks import Augment, Classification, Data, Task
from fedawe.tasks.base import Metrics, Update, Work
from fedawe.tasks.models import dense, paper
from fedawe.training.engines import Engine, Inline, Processes, cores, keep_freed_memory

Result = dict[str, Any]
CNN_FLOP = 19.28e6  # of one image in one training step of the SVHN network
ROOT = Path(__file__).resolve().parent.parent


def peak_memory() -> float:
    """Of this process and of the largest of its children, in MB."""
    return sum(resource.getrusage(who).ru_maxrss for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)) / 1024


def with_threads(threads: int, seconds: float, work: Callable[[], int]) -> Callable[[], Rate]:
    """A turn of so many seconds with so many threads."""

    def run() -> Rate:
        torch.set_num_threads(threads)
        return timed(seconds, work)

    return run


def svhn_like(clients: int = 100, each: int = 512, augment: Augment | None = None) -> Classification:
    draw = torch.Generator().manual_seed(0)
    x = torch.randint(256, (clients * each, 32, 32, 3), dtype=torch.uint8, generator=draw)
    y = torch.randint(10, (clients * each,), generator=draw)
    data = Data("svhn", x, y, x[:1000], y[:1000], (0.4377, 0.4438, 0.4728), (0.198, 0.201, 0.197))
    return Classification(data, paper(), list(np.arange(clients * each).reshape(clients, each)), augment=augment)


def bench_cnn(turns: int) -> Result:
    """100 clients x 512 images of 32 x 32, 20 active, 10 steps of batch 128; both do the same, without augmentation."""
    task, local, trace = svhn_like(), fedawe.Local(fedawe.Rate(0.05), 10, 128), chosen(10_000, 100, 20)
    threads = torch.get_num_threads()
    inputs = torch.cat([task.data.inputs(task.data.x_train, rows) for rows in torch.arange(51_200).split(1024)])
    hand = HandWritten(cnn(), inputs, task.data.y_train, 100, 128)
    x0 = task.initial(0)
    engines = {f"workers_{n}": Processes(task, local, n, 20, x0) for n in (1, cores())}
    ours = {
        name: fedawe.simulate(task, fedawe.FedAWE(), trace, local, seed=0, engine=engine)
        for name, engine in engines.items()
    }
    cropping = svhn_like(augment=Augment(flip=False))
    engines["crops"] = Processes(cropping, local, cores(), 20, x0)
    ours["crops"] = fedawe.simulate(cropping, fedawe.FedAWE(), trace, local, seed=0, engine=engines["crops"])
    played = iter(range(10_000))

    def by_hand() -> int:
        hand.round(trace.active(next(played)).tolist()[:5], 10)  # 5 of the 20: the same work per step
        return 50

    def by(name: str) -> Callable[[], Rate]:
        def work() -> int:
            next(ours[name])
            return 200

        return with_threads(1, 2.0, work)

    rates = in_turns(
        turns,
        hand=with_threads(threads, 2.0, by_hand),
        gemm=lambda: sgemm(threads),
        **{name: by(name) for name in engines},
    )
    every = f"workers_{cores()}"
    state = next(ours[every]).state
    with tempfile.TemporaryDirectory() as folder:
        times = []
        for _ in range(10):
            began = time.perf_counter()
            checkpoint.save(Path(folder), state)
            times.append(time.perf_counter() - began)
    for engine in engines.values():
        engine.close()
    step_rate, gemm_rate = median(rates[every]), median(rates["gemm"])
    return {
        "hand_steps": median(rates["hand"]),
        "steps": step_rate,
        "ratio": ratio(rates[every], rates["hand"]),
        "gemm_gflops": gemm_rate / 1e9,
        "gemm_share": step_rate * 128 * CNN_FLOP / gemm_rate,
        "scaling": ratio(rates[every], rates["workers_1"]),
        "crops": ratio(rates["crops"], rates[every]),
        "checkpoint_share": statistics.median(times) * step_rate / 200,
        "live_versions": len(state.models),
    }


def bench_profile(turns: int) -> Result:
    """Where the time of the convolutional network goes, one thread, one process."""
    del turns
    torch.set_num_threads(1)
    task, local = svhn_like(4), fedawe.Local(fedawe.Rate(0.05), 10, 128)
    engine, A = Inline(task, local), torch.arange(2)
    X = task.initial(0).repeat(2, 1)
    engine.train(fedawe.Broadcast(X), A, 0, 0, torch.zeros(2, dtype=torch.int64))
    with cProfile.Profile() as found:
        for t in range(1, 4):
            engine.train(fedawe.Broadcast(X), A, t, 0, torch.zeros(2, dtype=torch.int64))
    rows: dict[str, float] = {}  # a kernel counts as the function that calls it
    for (file, _, function), (_, _, own, *_) in pstats.Stats(found).stats.items():  # type: ignore[attr-defined]
        name = f"{Path(file).stem}.{function}" if file.endswith(".py") else function
        rows[name] = rows.get(name, 0.0) + own
    total = sum(rows.values())
    products = ("pooled.forward", "pooled.backward", "linear.forward", "products.product")
    top = sorted(rows.items(), key=lambda row: -row[1])[:12]
    return {
        "outside": 1 - sum(rows.get(name, 0) for name in products) / total,
        "top": [(name, value / total) for name, value in top],
    }


def bench_mlp(turns: int) -> Result:
    """64-64-10, 100 clients x 200 samples, 30 active, 10 steps of batch 32."""
    draw = torch.Generator().manual_seed(0)
    x, y = torch.randn(20_000, 64, generator=draw), torch.randint(10, (20_000,), generator=draw)
    task = Classification(
        Data("synthetic", x, y, x[:10], y[:10]), dense((64, 64, 10)), list(np.arange(20_000).reshape(100, 200))
    )
    local, trace, threads = fedawe.Local(fedawe.Rate(0.1), 10, 32), chosen(200_000, 100, 30), torch.get_num_threads()
    hand = HandWritten(mlp(), x, y, 100, 32)
    engines: dict[str, Engine] = {
        "inline": Inline(task, local),
        "workers": Processes(task, local, cores(), 30, task.initial(0)),
    }
    ours = {
        name: fedawe.simulate(task, fedawe.FedAvg(), trace, local, seed=0, engine=engine)
        for name, engine in engines.items()
    }
    echoing = fedawe.simulate(task, fedawe.FedAWE(), trace, local, seed=0, engine=engines["inline"])
    played = iter(range(200_000))

    def by_hand() -> int:
        hand.round(trace.active(next(played)).tolist(), 10)
        return 300

    def step(rounds: Any) -> Callable[[], Rate]:
        def work() -> int:
            next(rounds)
            return 300

        return with_threads(1, 1.0, work)

    rates = in_turns(
        turns,
        hand=with_threads(threads, 1.0, by_hand),
        inline=step(ours["inline"]),
        workers=step(ours["workers"]),
        fedawe=step(echoing),
    )
    engines["workers"].close()
    return {
        "hand_steps": median(rates["hand"]),
        "inline_steps": median(rates["inline"]),
        "workers_steps": median(rates["workers"]),
        "inline_ratio": ratio(rates["inline"], rates["hand"]),
        "workers_ratio": ratio(rates["workers"], rates["hand"]),
        "fedawe_cost": ratio(rates["inline"], rates["fedawe"], cpu=True),
    }


def bench_versions(turns: int) -> Result:
    """How many models FedAWE holds for 100 clients over 2000 rounds of the paper's dynamics."""
    del turns
    most, mean = 0, []
    for dynamics in (fedawe.Stationary(), fedawe.Staircase(), fedawe.Sine(), fedawe.InterleavedSine()):
        for seed in range(3):
            phi = class_weights(10, fedawe.rng(seed, "phi"))
            nu = fedawe.rng(seed, "partition").dirichlet(0.1 * np.ones(10), 100)
            trace = fedawe.Trace.draw(dynamics, nu @ phi, 2000, seed)
            algorithm = fedawe.FedAWE()
            state = algorithm.init(torch.zeros(1), 100)
            for t in range(trace.rounds):
                A = trace.active(t)
                state = algorithm.aggregate(state, t, A, torch.zeros(len(A), 1))
                most = max(most, len(state.models))
                mean.append(len(state.models))
    return {"most": most, "mean": statistics.mean(mean)}


class Fleet(Task):
    """As many clients as one likes on 1,000 shared shards."""

    def __init__(self, clients: int) -> None:
        draw = torch.Generator().manual_seed(0)
        x, y = torch.randn(20_000, 64, generator=draw), torch.randint(10, (20_000,), generator=draw)
        shards = list(np.arange(20_000).reshape(1000, 20))
        self.shards = Classification(Data("synthetic", x, y, x[:10], y[:10]), dense((64, 10)), shards)
        self.count, self.stacked = clients, True

    @property
    def clients(self) -> int:
        return self.count

    def initial(self, seed: int) -> torch.Tensor:
        return self.shards.initial(seed)

    def batches(self, work: Work) -> Any:
        return self.shards.batches(dataclasses.replace(work, A=work.A % 1000))

    def gradients(self, x: torch.Tensor, batches: Any, step: int) -> torch.Tensor:
        return self.shards.gradients(x, batches, step)

    def descend(self, x: torch.Tensor, batches: Any, steps: int, update: Update) -> None:
        self.shards.descend(x, batches, steps, update)

    def evaluate(self, x: torch.Tensor) -> Metrics:
        return self.shards.evaluate(x)


def bench_million(turns: int) -> Result:
    """1,000 of m clients active, softmax regression on 64 features, availability drawn for all in every round."""
    torch.set_num_threads(1)
    curve = {}
    for m in (10_000, 100_000, 1_000_000):
        task, local = Fleet(m), fedawe.Local(fedawe.Rate(0.1), 10, 16)
        rounds = 3 + 5 * turns
        times, began = [], time.perf_counter()
        trace = fedawe.Trace.draw(fedawe.Sine(), np.full(m, 1000 / 0.7 / m), rounds, 0)
        drawing = (time.perf_counter() - began) / rounds
        last = time.perf_counter()
        for _ in fedawe.simulate(task, fedawe.FedAWE(), trace, local, seed=0):
            times.append(time.perf_counter() - last + drawing)
            last = time.perf_counter()
        curve[m] = {"seconds": statistics.median(times[3:]), "drawing": drawing, "memory_mb": peak_memory()}
    return {"curve": curve}


BENCHES: dict[str, Callable[[int], Result]] = {
    f.__name__.removeprefix("bench_"): f for f in (bench_cnn, bench_profile, bench_mlp, bench_versions, bench_million)
}


def module_bench(name: str, one_thread: bool = False) -> Callable[[int], Result]:
    return lambda turns: measured(name, turns, one_thread)


BENCHES.update({f"module_{name}": module_bench(name) for name in WORKLOADS})


def rounds_of(tree: Path, algorithm: str, network: str) -> Served:
    """Rounds by the package of another tree."""
    command = [sys.executable, str(ROOT / "benchmarks" / "rounds.py"), str(tree), algorithm, network, "1.0"]
    return Served(command, {**os.environ, "PYTHONPATH": str(tree / "src"), "OMP_NUM_THREADS": "1"})


def bench_scaffold(turns: int) -> Result:
    """The time of a round of SCAFFOLD over that of FedAvg, on the SVHN network."""
    served = {name: rounds_of(ROOT, name, "svhn") for name in ("FedAvg", "SCAFFOLD")}
    rates = in_turns(turns, **{name: one.turn for name, one in served.items()})
    for one in served.values():
        one.close()
    return {"cost": ratio(rates["FedAvg"], rates["SCAFFOLD"], cpu=True)}


BENCHES["scaffold"] = bench_scaffold


def bench_against(turns: int, tree: Path) -> Result:
    """Rounds per second of processor time over those of an earlier tree."""
    found: Result = {}
    for network, algorithm in product(("svhn", "mlp"), ("FedAvg", "FedAWE")):
        served = {"ours": rounds_of(ROOT, algorithm, network), "theirs": rounds_of(tree, algorithm, network)}
        rates = in_turns(turns, **{name: one.turn for name, one in served.items()})
        for one in served.values():
            one.close()
        found[f"{algorithm}, {network}"] = ratio(rates["ours"], rates["theirs"], cpu=True)
    return {"ratios": found, "tree": commit(tree)}


def commit(tree: Path) -> str:
    """What git says it is."""
    command = ["git", "-C", str(tree), "rev-parse", "--short", "HEAD"]
    return subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True).stdout.strip()


def spread(values: list[float]) -> str:
    return f"{statistics.median(values):.2f} ({min(values):.2f} to {max(values):.2f})"


def table(found: dict[str, Result], turns: int, command: str) -> str:
    """The results as Markdown."""
    machine = environment()
    rows = [("what", "found", "wanted", "peak MB")]

    def row(what: str, value: str, wanted: str, name: str) -> None:
        rows.append((what, value, wanted, f"{found[name]['memory_mb']:,.0f}"))

    if "cnn" in found:
        r = found["cnn"]
        row("SVHN network, local steps/s, hand-written loop", f"{r['hand_steps']:.1f}", "", "cnn")
        row("SVHN network, local steps/s, fedawe", f"{r['steps']:.1f}", "", "cnn")
        row("1. fedawe / hand-written", spread(r["ratio"]), ">= 3.1", "cnn")
        row(f"1. share of the sgemm rate ({r['gemm_gflops']:.0f} Gflop/s)", f"{r['gemm_share']:.3f}", ">= 0.55", "cnn")
        row("with random crops / without", spread(r["crops"]), "", "cnn")
        row(f"5. {cores()} workers / 1 worker", spread(r["scaling"]), ">= 1.7", "cnn")
        row(
            f"6. checkpoint every round ({r['live_versions']} versions)",
            f"{r['checkpoint_share']:.1%}",
            "<= 3 %",
            "cnn",
        )
    if "profile" in found:
        row("time outside convolutions and linear layers", f"{found['profile']['outside']:.0%}", "", "profile")
    if "mlp" in found:
        r = found["mlp"]
        row("64-64-10 MLP, local steps/s, hand-written loop", f"{r['hand_steps']:,.0f}", "", "mlp")
        row("64-64-10 MLP, local steps/s, fedawe, one process", f"{r['inline_steps']:,.0f}", "", "mlp")
        row("64-64-10 MLP, local steps/s, fedawe, workers", f"{r['workers_steps']:,.0f}", "", "mlp")
        row("2. fedawe, one process / hand-written", spread(r["inline_ratio"]), ">= 15", "mlp")
        row("2. fedawe, workers / hand-written", spread(r["workers_ratio"]), ">= 30", "mlp")
        row("3. time of a FedAWE round / of a FedAvg round", spread(r["fedawe_cost"]), "<= 1.05", "mlp")
    if "versions" in found:
        r = found["versions"]
        value = f"{r['most']} at most, {r['mean']:.1f} on average"
        row("3. models held for 100 clients, T = 2000, four dynamics, 3 seeds", value, "< 40", "versions")
    if "million" in found:
        for m, r in found["million"]["curve"].items():
            drawing = f"{r['drawing'] * 1e3:.1f} ms of it drawing which clients are available"
            value = f"{1 / r['seconds']:.1f} rounds/s ({drawing})"
            wanted = ">= 5, < 2,000 MB" if int(m) == 1_000_000 else ""
            rows.append((f"4. {int(m):,} clients, 1,000 active", value, wanted, f"{r['memory_mb']:,.0f}"))
    for name in [f"module_{each}" for each in WORKLOADS if f"module_{each}" in found]:
        r = found[name]
        how = f"{r['executor']}, {'stacked' if r['stacked'] else 'one by one'}"
        what = f"nn.Module: {r['what']}"
        if "ratio" in r:
            row(f"{what} ({how}), local steps/s", f"{r['steps']:,.1f}", "", name)
            row(f"7. {what}, all cores / hand-written", spread(r["ratio"]), f">= {r['wanted']}", name)
            row(f"{what}, the same at the rate of sgemm", f"{r['bound']:.2f}", "", name)
        row(f"{what} ({how}), ms of a step, hand-written and fedawe", f"{r['hand_ms']:.3g}, {r['ms']:.3g}", "", name)
        row(f"7. {what}, one thread / hand-written on one thread", spread(r["one_thread"]), f">= {r['wanted']}", name)
        row(f"{what}, the same at the rate of sgemm", f"{r['bound_one']:.2f}", "", name)
        if "jax" in r:
            row(f"{what}, fedawe / jitted JAX scan", spread(r["jax"]), "> 1", name)
    if "scaffold" in found:
        row(
            "time of a SCAFFOLD round / of a FedAvg round, SVHN network",
            spread(found["scaffold"]["cost"]),
            "<= 1.25",
            "scaffold",
        )
    if "against" in found:
        for what, values in found["against"]["ratios"].items():
            row(f"{what}, this tree / commit {found['against']['tree']}", spread(values), ">= 0.97", "against")
    lines = [
        f"`{command}`; n = {turns} turns, medians (least to most); "
        + ", ".join(f"{k} {v}" for k, v in machine.items())
        + f"; load of the machine {', '.join(f'{each:.0f}' for each in os.getloadavg())}",
        "",
    ]
    lines += ["| " + " | ".join(cells) + " |" for cells in (rows[0], ("---",) * 4, *rows[1:])]
    if "profile" in found:
        lines += [
            "",
            "Where a training step of the SVHN network spends its time (one thread):",
            "",
            "| function, with the kernels that it calls | share |",
            "|---|---|",
        ]
        lines += [f"| `{name}` | {share:.1%} |" for name, share in found["profile"]["top"]]
    return "\n".join(lines) + "\n"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--only", nargs="+", metavar="NAME", help="some of them, not written to the docs")
    parser.add_argument("--turns", type=int, default=5, help="how often each is measured")
    parser.add_argument("--against", type=Path, metavar="TREE", help="also compare with the package of another tree")
    parser.add_argument("--one-thread", action="store_true", help="modules on one thread only: for a busy machine")
    parser.add_argument("--inside", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    turns = arguments.turns
    if arguments.one_thread:
        BENCHES.update({f"module_{name}": module_bench(name, one_thread=True) for name in WORKLOADS})
    if arguments.against:
        BENCHES["against"] = partial(bench_against, tree=arguments.against.resolve())
    if arguments.inside:
        keep_freed_memory()
        result = BENCHES[arguments.inside](turns)
        print(json.dumps({**result, "memory_mb": peak_memory()}))
        return
    found: dict[str, Result] = {}
    if unknown := set(arguments.only or ()) - set(BENCHES):
        parser.error(f"unknown: {', '.join(sorted(unknown))}; there are {', '.join(BENCHES)}")
    for name in arguments.only or BENCHES:
        print(f"{name} ...", file=sys.stderr)
        command = [sys.executable, __file__, "--inside", name, "--turns", str(turns)]
        command += ["--against", str(arguments.against)] if arguments.against else []
        command += ["--one-thread"] if arguments.one_thread else []
        output = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True, env=dict(os.environ)).stdout
        found[name] = json.loads(output.strip().splitlines()[-1])
    text = table(found, turns, shlex.join(["python", os.path.relpath(__file__), *sys.argv[1:]]))
    print(text)
    if not arguments.only:
        page = ROOT / "docs" / "benchmarks.md"
        head = page.read_text().split("<!-- measured -->")[0]
        page.write_text(f"{head}<!-- measured -->\n{text}")


if __name__ == "__main__":
    main()
