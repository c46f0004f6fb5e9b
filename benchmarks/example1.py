"""What every algorithm learns in Example 1 of the paper, where 50 is right: the table of docs/algorithms.md.

Two clients with optima 0 and 100 are available with probabilities 0.9 and 0.3; the local rate is 0.01.

    python benchmarks/example1.py --rounds 20000
"""

import argparse
from typing import Any

import numpy as np
import torch

import fedawe

FLEET = (0.9, 0.3)


def algorithms(p: Any) -> dict[str, Any]:
    """By name, with default options where these make sense for two clients."""
    return {
        "FedAWE": fedawe.FedAWE(),
        "FedAvg": fedawe.FedAvg(),
        "FedAvg-all": fedawe.FedAvgAll(),
        "FedAvg-known": fedawe.FedAvgKnown(p),
        "FedAU": fedawe.FedAU(),
        "F3AST": fedawe.F3AST(),
        "MIFA": fedawe.MIFA(),
        "FedVARP": fedawe.FedVARP(),
        "FedProx": fedawe.FedProx(),
        "SCAFFOLD": fedawe.SCAFFOLD(),
        "SCAFFOLD, option 1": fedawe.SCAFFOLD(option=1),
        "FedDyn": fedawe.FedDyn(),
        "FedNova": fedawe.FedNova(),
        "FedAvgM": fedawe.FedAvgM(),
        "FedAvgM around FedAU": fedawe.FedAvgM(rule=fedawe.FedAU()),
        "FedAdam": fedawe.FedAdam(),
        "FedYogi": fedawe.FedYogi(),
        "FedAdagrad": fedawe.FedAdagrad(eta_s=1.0),
        "FedAdam around MIFA": fedawe.FedAdam(rule=fedawe.MIFA()),
        "Amplified FedAvg": fedawe.Amplified(),
        "FedStale": fedawe.FedStale(),
        "FedStale, beta = 0.5": fedawe.FedStale(beta=0.5),
        "MimiC": fedawe.MimiC(),
        "FedPBC": fedawe.FedPBC(),
        "FedBuff": fedawe.FedBuff(),
        "FedAsync": fedawe.FedAsync(),
        "CA2FL": fedawe.CA2FL(),
        "AREA": fedawe.AREA(),
        "FedLaAvg": fedawe.FedLaAvg(),
        "ClusterFedVARP, 1 cluster": fedawe.ClusterFedVARP(1),
        "FedAvg, 1 client chosen at random": fedawe.Chosen(fedawe.FedAvg(), fedawe.Uniform(1)),
        "FedAvg, the longest absent": fedawe.Chosen(fedawe.FedAvg(), fedawe.LongestAbsent(1)),
    }


def learned(algorithm: Any, trace: fedawe.Trace, steps: int) -> tuple[float, float]:
    """Mean and standard deviation of the model over the second half of the rounds."""
    task = fedawe.Quadratic(torch.tensor([[0.0], [100.0]], dtype=torch.float64))
    local = fedawe.Local(fedawe.Rate(0.01, "constant"), steps)
    runs = fedawe.simulate(task, algorithm, trace, local, seed=0)
    x = [float(done.x) for done in runs if done.t >= trace.rounds // 2]
    return float(np.mean(x)), float(np.std(x))


def main() -> None:
    """The table, row by row."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--rounds", type=int, default=20_000)
    rounds = parser.parse_args().rounds
    torch.set_num_threads(1)
    trace = fedawe.Trace.draw(fedawe.Stationary(), np.array(FLEET), rounds, 0)
    print("| algorithm | s = 1 | s = 5 |\n|---|---|---|", flush=True)
    for name, algorithm in algorithms(trace.p).items():
        found = [learned(algorithm, trace, steps) for steps in (1, 5)]
        print(f"| {name} | " + " | ".join(f"{mean:.1f} ± {std:.1f}" for mean, std in found) + " |", flush=True)


if __name__ == "__main__":
    main()
