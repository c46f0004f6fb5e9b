"""A million clients over 10,000 rounds through `fedawe run`: rounds per second, and the largest memory of the process.

    python benchmarks/million.py                                   about a quarter of an hour
    python benchmarks/million.py --clients 20000 --rounds 200 --p 0.01

Every client has two samples: digits of the bundled set with noise, in an npz file that says which client has which
sample, as a user would have it. In a round a client is available with probability p.
"""

import argparse
import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np
from sklearn.datasets import load_digits

EACH = 2  # samples of a client


def fleet(path: Path, clients: int) -> None:
    """The data, as bytes: 64 for a sample."""
    draw = np.random.default_rng(0)
    x, y = load_digits(return_X_y=True)
    images = (x * 15.9375).astype(np.uint8).reshape(-1, 8, 8)
    order = draw.permutation(len(y))
    test, train = order[: len(y) // 5], order[len(y) // 5 :]
    client = np.repeat(np.arange(clients), EACH)
    rows = draw.choice(train, len(client))
    noise = draw.integers(-16, 17, (len(rows), 8, 8), dtype=np.int16)
    noisy = np.clip(images[rows].astype(np.int16) + noise, 0, 255).astype(np.uint8)
    np.savez(path, x_train=noisy, y_train=y[rows], client=client, x_test=images[test], y_test=y[test])


def main() -> None:
    """Make the data, run, and say what it took."""
    flags = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    flags.add_argument("--clients", type=int, default=10**6)
    flags.add_argument("--rounds", type=int, default=10**4)
    flags.add_argument("--p", type=float, default=0.001)
    flags.add_argument("--algorithms", nargs="*", default=["fedawe"])
    given = flags.parse_args()
    with tempfile.TemporaryDirectory() as place:
        fleet(Path(place) / "fleet.npz", given.clients)
        words = f"run --task {place}/fleet.npz --model softmax --dynamics stationary --p {given.p} --seeds 0"
        words += f" --rounds {given.rounds} --evaluate-every 100 --workers 1 --out {place}/out --algorithms"
        began = time.perf_counter()
        subprocess.run([sys.executable, "-m", "fedawe", *words.split(), *given.algorithms], check=True)
        seconds = time.perf_counter() - began
    rate = given.rounds * len(given.algorithms) / seconds
    peak = resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss / 1024
    print(f"{given.clients:,} clients, {given.rounds:,} rounds: {seconds:.0f} s, {rate:.1f} rounds/s, {peak:,.0f} MB")


if __name__ == "__main__":
    main()
