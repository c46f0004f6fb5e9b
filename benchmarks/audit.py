"""How long an audit takes: a large trace for all eight algorithms, a log of two million check-ins from the file on, and
12 combinations of round length, cohort and requirement over four weeks of sessions.

Run: python benchmarks/audit.py [--clients 10000 --rounds 5000 --rows 2000000 --only what-if]
"""

import argparse
import os
import platform
import resource
import sys
import tempfile
import time
from pathlib import Path

import numpy as np
import polars as pl

from fedawe.audit import audit, logs, whatif
from fedawe.availability.trace import Trace
from fedawe.core.rng import rng

DAY = 86400


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--clients", type=int, default=10_000)
    parser.add_argument("--rounds", type=int, default=5_000)
    parser.add_argument("--rows", type=int, default=2_000_000)
    parser.add_argument("--only", choices=("trace", "log", "what-if"), default=None)
    given = parser.parse_args()
    print(f"command: python {' '.join(sys.argv)}")
    print(
        f"hardware: {cpu()}, {os.cpu_count()} cores; Python {platform.python_version()}, polars {pl.__version__}; n = 1"
    )
    if given.only in (None, "trace"):
        a_trace(given.clients, given.rounds)
    if given.only in (None, "log"):
        a_log(given.rows)
    if given.only in (None, "what-if"):
        a_what_if(given.clients)


def a_trace(m: int, T: int) -> None:
    """Rates uniform on (0, 0.5), independent rounds: a quarter of everyone in a round."""
    p, on = rng(0, "p").uniform(0, 0.5, m), np.empty((T, m), dtype=bool)
    for t in range(T):
        on[t] = rng(0, "on", t).random(m) < p
    began = time.perf_counter()
    found = audit(Trace(on))
    seconds = time.perf_counter() - began
    print(f"{m:,} clients x {T:,} rounds, all eight algorithms: {seconds:.1f} s, {memory():.2f} GB at most")
    for name, influence in found.influences.items():
        print(f"  {name:14} {influence.total_variation:.4f}")


def a_log(rows: int) -> None:
    """Check-ins of 5,000 clients over four weeks, most in the evening, in order of time, as CSV."""
    draw = rng(0, "log")
    day, hour = draw.integers(28, size=rows), draw.normal(20, 4, rows) % 24
    at = 1_704_067_200 + day * DAY + (hour * 3600).astype(np.int64)
    client = (5000 * draw.beta(0.5, 2, rows)).astype(np.int64)
    frame = pl.DataFrame({"client": client, "timestamp": at}).sort("timestamp")
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "checkins.csv"
        text = pl.from_epoch("timestamp").dt.strftime("%Y-%m-%dT%H:%M:%SZ")
        frame.with_columns(timestamp=text, client="device-" + pl.col("client").cast(pl.String)).write_csv(path)
        began = time.perf_counter()
        log = logs.read(path)
        read = time.perf_counter() - began
        found = audit(log)
        seconds = time.perf_counter() - began
        size = path.stat().st_size / 1e6
    print(f"{rows:,} check-ins ({size:.0f} MB of CSV): read after {read:.1f} s, audited after {seconds:.1f} s")
    print(f"  {log.trace}")
    print(f"  {found.advice.text}")


def a_what_if(m: int) -> None:
    """Two sessions a day and client on average over four weeks, half of them while charging, as parquet."""
    draw, rows = rng(0, "sessions"), 56 * m
    client = (m * draw.beta(0.7, 1.5, rows)).astype(np.int64)
    start = 1_704_067_200 + draw.integers(28, size=rows) * DAY + (draw.normal(20, 4, rows) % 24 * 3600).astype(np.int64)
    end = start + draw.exponential(3 * 3600, rows).astype(np.int64) + 1
    columns = {"client": client, "start": start, "end": end, "charging": draw.random(rows) < 0.5}
    asked = ["round=10min,1h,3h", "choose=all,100", "require=charging,none"]
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "sessions.parquet"
        pl.DataFrame(columns).sort("start").write_parquet(path)
        began = time.perf_counter()
        found = whatif.scenarios(logs.Reader((path,)), None, whatif.parse(asked), whatif.default_algorithms())
        seconds = time.perf_counter() - began
    print(f"{m:,} clients, {rows:,} sessions over 4 weeks, --what-if {' '.join(asked)}:")
    print(f"  {len(found)} combinations in {seconds:.1f} s, {memory():.2f} GB at most")
    for one in found:
        bias = one.bias["fedavg"]
        print(f"  {one.round:6} {one.choose:4} {one.require:9} fedavg {bias:.3f}, multiplier {one.multiplier:.1f}")


def cpu() -> str:
    for line in Path("/proc/cpuinfo").read_text().splitlines() if Path("/proc/cpuinfo").exists() else []:
        if line.startswith("model name"):
            return line.split(":")[1].strip()
    return platform.processor() or "unknown processor"


def memory() -> float:
    """The most that the process has held so far, in GB."""
    most = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return most / (1e9 if sys.platform == "darwin" else 1e6)


if __name__ == "__main__":
    main()
