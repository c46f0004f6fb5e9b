"""Your own algorithm, task and availability model: fedawe run examples/study.py --out runs/study"""

from dataclasses import dataclass

import numpy as np
import torch

import fedawe
from fedawe.algorithms.base import received


@dataclass(frozen=True)
class Median(fedawe.FedAvg):
    """x <- x - eta_g times the coordinate-wise median of the active clients' updates."""

    name, linear = "Median", False

    def aggregate(self, state, t, A, G):
        A, G = received(state, t, A, G)
        return self.apply(state, t, A, G.median(0).values) if len(A) else state.after(t)


class Letters(fedawe.tasks.Task):
    """Every client has a distribution of letters; the model is one distribution for all of them."""

    metrics = (fedawe.Metric("test_perplexity", "test perplexity", better="lower", decides=True),)
    clients = 20

    def __init__(self, seed):
        self.p = torch.from_numpy(fedawe.rng(seed, "letters").dirichlet(np.ones(6), self.clients))

    def initial(self, seed):
        return torch.zeros(6, dtype=torch.float64)

    def batches(self, work):
        drawn = [fedawe.rng(work.seed, "batch", work.t, i).multinomial(work.size, self.p[i]) for i in work.A.tolist()]
        return torch.tensor(np.array(drawn).reshape(-1, 6) / work.size)  # frequencies in the client's batch   [k, 6]

    def gradients(self, x, batches, step):
        return torch.softmax(x, 1) - batches

    def evaluate(self, x):
        return {"test_perplexity": float(torch.exp(-(self.p.mean(0) * torch.log_softmax(x, 0)).sum()))}


class Weekend(fedawe.Dynamics):
    """Two days in seven every client is available; on the others with probability p_i."""

    def trajectory(self, t, p):
        return np.where(t % 7 >= 5, 1.0, p)


experiment = fedawe.Experiment(
    task=Letters,
    algorithms={"FedAWE": fedawe.FedAWE(), "FedAvg": fedawe.FedAvg(), "Median": Median(eta_g=0.5)},
    availability=Weekend(),
    p=np.linspace(0.05, 0.6, 20),
    local=fedawe.Local(fedawe.Rate(0.5), steps=5, batch=32),
    rounds=200,
)
