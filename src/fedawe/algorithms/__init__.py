"""The algorithms. Read `fedawe.py` first: it is the paper's Algorithm 1."""

from typing import Any

from fedawe.algorithms.amplified import Amplified
from fedawe.algorithms.area import AREA
from fedawe.algorithms.base import Algorithm, State
from fedawe.algorithms.buffers import WithBuffers
from fedawe.algorithms.ca2fl import CA2FL
from fedawe.algorithms.choosing import CHOOSERS, Chosen, LongestAbsent, Oort, PowerOfChoice, Uniform
from fedawe.algorithms.exchange import Broadcast, Upload
from fedawe.algorithms.f3ast import F3AST
from fedawe.algorithms.facts import name_of
from fedawe.algorithms.fedasync import FedAsync
from fedawe.algorithms.fedau import FedAU
from fedawe.algorithms.fedavg import FedAvg, FedAvgAll
from fedawe.algorithms.fedavg_known import FedAvgKnown
from fedawe.algorithms.fedavgm import FedAvgM
from fedawe.algorithms.fedawe import FedAWE
from fedawe.algorithms.fedbuff import FedBuff
from fedawe.algorithms.feddyn import FedDyn
from fedawe.algorithms.fedlaavg import FedLaAvg
from fedawe.algorithms.fednova import FedNova
from fedawe.algorithms.fedopt import FedAdagrad, FedAdam, FedYogi
from fedawe.algorithms.fedpbc import FedPBC
from fedawe.algorithms.fedprox import FedProx
from fedawe.algorithms.fedstale import FedStale
from fedawe.algorithms.memory import MIFA, ClusterFedVARP, FedVARP
from fedawe.algorithms.mimic import MimiC
from fedawe.algorithms.private import Private
from fedawe.algorithms.robust import AGGREGATORS, Median, NormBound, Robust, Trimmed
from fedawe.algorithms.scaffold import SCAFFOLD
from fedawe.algorithms.weighted import Weighted

PAPER = (FedAWE, FedAvg, FedAvgAll, FedAvgKnown, FedAU, F3AST, MIFA, FedVARP)  # the eight that the paper compares
NEIGHBOURS = (
    FedProx,
    SCAFFOLD,
    FedDyn,
    FedNova,
    FedAvgM,
    FedAdam,
    FedYogi,
    FedAdagrad,
    Amplified,
    FedStale,
    MimiC,
    FedPBC,
    FedBuff,
    FedAsync,
    CA2FL,
    AREA,
    FedLaAvg,
    ClusterFedVARP,
    Weighted,
    Chosen,
    Robust,
    Private,
)

# Names on the command line -> classes.
ALGORITHMS: dict[str, type[Any]] = {name_of(algorithm).lower(): algorithm for algorithm in (*PAPER, *NEIGHBOURS)}

__all__ = [
    "AGGREGATORS",
    "ALGORITHMS",
    "AREA",
    "CA2FL",
    "CHOOSERS",
    "F3AST",
    "MIFA",
    "NEIGHBOURS",
    "PAPER",
    "SCAFFOLD",
    "Algorithm",
    "Amplified",
    "Broadcast",
    "Chosen",
    "ClusterFedVARP",
    "FedAU",
    "FedAWE",
    "FedAdagrad",
    "FedAdam",
    "FedAsync",
    "FedAvg",
    "FedAvgAll",
    "FedAvgKnown",
    "FedAvgM",
    "FedBuff",
    "FedDyn",
    "FedLaAvg",
    "FedNova",
    "FedPBC",
    "FedProx",
    "FedStale",
    "FedVARP",
    "FedYogi",
    "LongestAbsent",
    "Median",
    "MimiC",
    "NormBound",
    "Oort",
    "PowerOfChoice",
    "Private",
    "Robust",
    "State",
    "Trimmed",
    "Uniform",
    "Upload",
    "Weighted",
    "WithBuffers",
    "name_of",
]
