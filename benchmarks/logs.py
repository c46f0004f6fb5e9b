"""What reading a log costs: rows, seconds, processor seconds and the largest memory, one process per size.

python benchmarks/logs.py [--rows 1000000 10000000 100000000] [--format parquet|csv]
"""

import argparse
import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np
import polars as pl

CLIENTS, DAYS, ZERO = 10_000, 28, 1714521600
PART = 5_000_000


def write(folder: Path, rows: int, kind: str) -> None:
    draw = np.random.default_rng(0)
    for n, at in enumerate(range(0, rows, PART)):
        count = min(PART, rows - at)
        span = DAYS * 86400 / rows  # a log grows in order of time
        when = ZERO + (np.arange(at, at + count) * span).astype(np.int64)
        frame = pl.DataFrame({"client": draw.integers(CLIENTS, size=count), "timestamp": when})
        if kind == "csv":
            frame.with_columns(pl.from_epoch("timestamp").dt.strftime("%Y-%m-%dT%H:%M:%SZ")).write_csv(
                folder / f"part-{n:03d}.csv"
            )
        else:
            frame.write_parquet(folder / f"part-{n:03d}.parquet")


def one(folder: Path) -> None:
    from fedawe.audit import logs

    began = time.monotonic()
    log = logs.read(folder, round_length="1h")
    seconds, used = time.monotonic() - began, resource.getrusage(resource.RUSAGE_SELF)
    print(f"| {log.rows:,} | {seconds:.0f} | {used.ru_utime + used.ru_stime:.0f} | {used.ru_maxrss / 1e6:.2f} |")


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--rows", type=int, nargs="+", default=[1_000_000, 10_000_000, 100_000_000])
    parser.add_argument("--format", choices=["parquet", "csv"], default="parquet")
    parser.add_argument("--read", type=Path)
    args = parser.parse_args()
    if args.read is not None:
        one(args.read)
        return
    print(f"check-ins of {CLIENTS:,} clients over {DAYS} days as {args.format}")
    print("| rows | s | processor s | GB |\n|---|---|---|---|")
    for rows in args.rows:
        with tempfile.TemporaryDirectory() as folder:
            write(Path(folder), rows, args.format)
            subprocess.run([sys.executable, __file__, "--read", folder], check=True)


if __name__ == "__main__":
    main()
