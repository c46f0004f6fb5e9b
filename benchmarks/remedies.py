"""FedAWE under long absences: what remedies with O(1) memory per client are worth. The tables of docs/variance.md.

python benchmarks/remedies.py --seeds 3 --rounds 300
"""

import argparse
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor

import fedawe
from fedawe.algorithms.base import OneGlobalModel, ServerState, first_model, received
from fedawe.audit import by_identity


@dataclass(frozen=True)
class TauState(ServerState):
    tau: Tensor  # last active round of each client, or the round up to which its echoes are paid   [m]


@dataclass(frozen=True)
class FromMean(OneGlobalModel[TauState]):
    """Echoes, but everyone starts from x-bar: x^{t+1} = x^t - (1/m) sum_A (t - tau_i) G_i. One model at the server.

    With `most`, an echo is at most so large, and the rest is owed.
    """

    clip: float | None = None
    most: int | None = None

    def init(self, x0: Tensor, m: int) -> TauState:
        return TauState(-1, m, first_model(x0, m), torch.full((m,), -1))

    def aggregate(self, state: TauState, t: int, A: Tensor, G: Tensor) -> TauState:
        A, G = received(state, t, A, G)
        echo = t - state.tau[A]
        paid = echo if self.most is None else echo.clamp(max=self.most)
        tau = state.tau.clone()
        tau[A] += paid
        return state.after(t, x=state.x - (paid[:, None] * G).sum(0) / state.m, tau=tau)


RULES: dict[str, Any] = {
    "FedAvg": fedawe.FedAvg(),
    "MIFA (memory m d)": fedawe.MIFA(),
    "FedAWE": fedawe.FedAWE(),
    "FedAWE, clip 0.5": fedawe.FedAWE(clip=0.5),
    "FedAWE, max_echo 5": fedawe.FedAWE(max_echo=5),
    "FedAWE, max_echo 20": fedawe.FedAWE(max_echo=20),
    "FedAWE, max_absence 20": fedawe.FedAWE(max_absence=20),
    "FedAWE, max_echo 5, carry": fedawe.FedAWE(max_echo=5, carry=True),
    "FedAWE, max_echo 20, carry": fedawe.FedAWE(max_echo=20, carry=True),
    "start from x-bar": FromMean(),
    "start from x-bar, max_echo 5, carry": FromMean(most=5),
    "start from x-bar, momentum 0.9": fedawe.FedAvgM(beta=0.9, eta_s=0.1, rule=FromMean()),
}
HEAD = "| rule | bias | accuracy | last aggregate | lowest of the last 50 rounds |"
DYNAMICS: dict[str, Any] = {"sine": fedawe.Sine(), "markov, q = 0.02": fedawe.Markov(q=0.02)}


def bias(rule: Any, traces: list[fedawe.Trace]) -> str:
    """How much of the influence is not where it should be, from the traces alone."""
    if not getattr(rule, "linear", False):
        return "not linear"
    return f"{np.mean([by_identity(rule, trace).total_variation for trace in traces]):.3f}"


def main() -> None:
    """A table for each availability."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--rounds", type=int, default=300)
    said = parser.parse_args()
    torch.set_num_threads(1)
    local = fedawe.Local(fedawe.Rate(0.1), steps=10, batch=32)
    for title, dynamics in DYNAMICS.items():
        print(f"\n{title}\n\n{HEAD}\n|---|---|---|---|---|", flush=True)
        experiment = fedawe.Experiment(
            task=lambda seed: fedawe.classification(fedawe.digits(), "mlp", 100, 0.1, seed),
            algorithms=RULES, availability=dynamics, p=None if title == "sine" else 0.3, rounds=said.rounds,
        )  # fmt: skip
        populations = [experiment.population(seed) for seed in range(said.seeds)]
        for name, rule in RULES.items():
            final, last, lowest = [], [], []
            for one in populations:
                rounds = fedawe.simulate(one.task, rule, one.trace, local, seed=one.seed)
                found = [
                    (one.task.evaluate(done.x)["test_accuracy"], one.task.evaluate(done.state.latest)["test_accuracy"])
                    for done in rounds
                    if done.t >= said.rounds - 50 and done.t % 5 == 4
                ]
                final.append(found[-1][0])
                last.append(found[-1][1])
                lowest.append(min(x for x, _ in found))
            numbers = [f"{100 * np.mean(v):.1f} ± {100 * np.std(v):.1f}" for v in (final, last, lowest)]
            print(
                f"| {name} | {bias(rule, [one.trace for one in populations])} | " + " | ".join(numbers) + " |",
                flush=True,
            )


if __name__ == "__main__":
    main()
