"""Federated learning when clients come and go."""

from fedawe.algorithms import F3AST, MIFA, Algorithm, FedAU, FedAvg, FedAvgAll, FedAvgKnown, FedAWE, FedVARP
from fedawe.availability.dynamics import Cyclic, InterleavedSine, Markov, Outages, Sine, Staircase, Stationary
from fedawe.availability.trace import Trace
from fedawe.core.errors import Diverged, UserError
from fedawe.core.rng import rng
from fedawe.results.frame import load
from fedawe.results.model import load_model
from fedawe.tasks import Quadratic, classification, digits, dirichlet_partition
from fedawe.training.local import Local, Rate
from fedawe.training.simulate import Round, simulate

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
