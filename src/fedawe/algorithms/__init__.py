"""The eight algorithms. Read `fedawe.py` first: it is the paper's Algorithm 1."""

from typing import Any

from fedawe.algorithms.averages import F3AST, FedAU, FedAvg, FedAvgAll, FedAvgKnown
from fedawe.algorithms.base import Algorithm, State
from fedawe.algorithms.buffers import WithBuffers
from fedawe.algorithms.facts import name_of
from fedawe.algorithms.fedawe import FedAWE
from fedawe.algorithms.memory import MIFA, FedVARP

PAPER = (FedAWE, FedAvg, FedAvgAll, FedAvgKnown, FedAU, F3AST, MIFA, FedVARP)  # the eight that the paper compares

# By their names on the command line.
ALGORITHMS: dict[str, type[Any]] = {name_of(algorithm).lower(): algorithm for algorithm in PAPER}

__all__ = [
    "ALGORITHMS",
    "F3AST",
    "MIFA",
    "PAPER",
    "Algorithm",
    "FedAU",
    "FedAWE",
    "FedAvg",
    "FedAvgAll",
    "FedAvgKnown",
    "FedVARP",
    "State",
    "WithBuffers",
    "name_of",
]
