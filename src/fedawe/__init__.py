"""Federated learning when clients come and go."""

from fedawe.algorithms import F3AST, MIFA, Algorithm, FedAU, FedAvg, FedAvgAll, FedAvgKnown, FedAWE, FedVARP
from fedawe.availability import Cyclic, InterleavedSine, Markov, Outages, Sine, Staircase, Stationary
from fedawe.errors import Diverged, UserError
from fedawe.export import load, load_model
from fedawe.local import Local, Rate
from fedawe.rng import rng
from fedawe.simulate import Round, simulate
from fedawe.tasks import Quadratic, classification, digits, dirichlet_partition
from fedawe.trace import Trace

__version__ = "0.1.0"

__all__ = [
    "F3AST",
    "MIFA",
    "Algorithm",
    "Cyclic",
    "Diverged",
    "FedAU",
    "FedAWE",
    "FedAvg",
    "FedAvgAll",
    "FedAvgKnown",
    "FedVARP",
    "InterleavedSine",
    "Local",
    "Markov",
    "Outages",
    "Quadratic",
    "Rate",
    "Round",
    "Sine",
    "Staircase",
    "Stationary",
    "Trace",
    "UserError",
    "classification",
    "digits",
    "dirichlet_partition",
    "load",
    "load_model",
    "rng",
    "simulate",
]
