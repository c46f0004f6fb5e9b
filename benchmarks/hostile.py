"""What some hostile clients do to the bundled digits under each aggregation: the table of docs/privacy.md.

20 clients, each available with probability 0.5, 100 rounds. A hostile client returns -20 times its honest update.

    python benchmarks/hostile.py [--seeds 3]
"""

import argparse
from typing import Any

import numpy as np
import torch
from torch import Tensor

import fedawe
from fedawe.algorithms.exchange import Broadcast, Upload
from fedawe.tasks.named import NamedTask
from fedawe.training.engines import Inline

CLIENTS, ROUNDS, LIE = 20, 100, -20.0
HOSTILE = (0, 1, 3, 6)
BY: dict[str, Any] = {
    "mean": None,
    "norm-bound:c=1": fedawe.NormBound(1.0),
    "trimmed:share=0.3": fedawe.Trimmed(0.3),
    "median": fedawe.Median(),
}


class Lying(Inline):
    """The first clients are hostile."""

    hostile = 0

    def train(self, down: Broadcast, A: Tensor, t: int, seed: int, visits: Tensor) -> Upload:
        up = super().train(down, A, t, seed, visits)
        up.G[self.hostile > A] *= LIE
        return up


def accuracy(rule: Any, alpha: float, hostile: int, seed: int) -> float:
    """Test accuracy after the last round; 0 if the model is lost."""
    task = NamedTask("digits", "mlp", CLIENTS, alpha)(seed)
    local = fedawe.Local(fedawe.Rate(0.1), 10, 32)
    trace = fedawe.Trace.draw(fedawe.Stationary(), np.full(CLIENTS, 0.5), ROUNDS, seed)
    engine = Lying(task, local)
    engine.hostile = hostile
    try:
        *_, last = fedawe.simulate(task, rule, trace, local, seed=seed, engine=engine)
    except fedawe.UserError:  # an update that is not finite: the model is lost
        return 0.0
    found = task.evaluate(last.x)["test_accuracy"]
    assert isinstance(found, float)
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--seeds", type=int, default=3)
    seeds = range(parser.parse_args().seeds)
    torch.set_num_threads(1)
    print("| rule | data | aggregation | " + " | ".join(f"{n} hostile" for n in HOSTILE) + " |")
    print("|---" * (3 + len(HOSTILE)) + "|", flush=True)
    for rule in (fedawe.FedAvg(), fedawe.FedAWE()):
        for alpha, data in ((100.0, "alike"), (0.3, "unlike, Dirichlet 0.3")):
            for name, by in BY.items():
                algorithm = rule if by is None else fedawe.Robust(rule, by)
                cells = [
                    f"{100 * np.mean([accuracy(algorithm, alpha, n, seed) for seed in seeds]):.1f}" for n in HOSTILE
                ]
                print(f"| {rule.name} | {data} | {name} | " + " | ".join(cells) + " |", flush=True)


if __name__ == "__main__":
    main()
