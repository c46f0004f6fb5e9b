"""The eight algorithms. Read `fedawe.py` first: it is the paper's Algorithm 1."""

from typing import Any

from fedawe.algorithms.averages import F3AST, FedAU, FedAvg, FedAvgAll, FedAvgKnown
from fedawe.algorithms.base import Algorithm, State
from fedawe.algorithms.buffers import WithBuffers
from fedawe.algorithms.fedawe import FedAWE
from fedawe.algorithms.memory import MIFA, FedVARP

ALGORITHMS: dict[str, type[Any]] = {
    "fedawe": FedAWE,
    "fedavg": FedAvg,
    "fedavg-all": FedAvgAll,
    "fedavg-known": FedAvgKnown,
    "fedau": FedAU,
    "f3ast": F3AST,
    "mifa": MIFA,
    "fedvarp": FedVARP,
}

__all__ = [
    "ALGORITHMS",
    "F3AST",
    "MIFA",
    "Algorithm",
    "FedAU",
    "FedAWE",
    "FedAvg",
    "FedAvgAll",
    "FedAvgKnown",
    "FedVARP",
    "State",
    "WithBuffers",
]
