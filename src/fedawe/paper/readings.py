"""The options of `fedawe reproduce`: how to read the paper, and which part of an item to make."""

from dataclasses import dataclass
from typing import Annotated, Literal

from fedawe.experiments.flags import Names, Wholes, hint, one_of

Clip = Literal["update", "gradient", "none"]
Clipped = Literal["fedawe", "all"]
Evaluate = Literal["mean", "latest", "received"]
RateKind = Literal["paper", "equal", "tuned"]
Crops = Literal["image", "batch"]


@dataclass(frozen=True)
class Readings:
    """How to read the paper where its text and its code disagree; the defaults follow the code."""

    clip: Clip = "update"
    """update: the averaged update is clipped to norm 0.5 (the authors' code); gradient: every stochastic gradient is
    clipped (their text); none: no clipping"""
    clip_whom: Clipped = "fedawe"
    """which algorithms are clipped: only FedAWE (the authors' code), or all"""
    evaluate: Evaluate = "mean"
    """which model is evaluated. mean: each algorithm's own model, x-bar for FedAWE; latest: the last aggregate;
    received: the mean over all clients of the models that they received last (for FedAWE, this is x-bar)"""
    augment: Annotated[Crops | None, hint, one_of(Crops)] = None
    """random crops: for each image (text), or the same for a batch (code) (default: image for paper, else none)"""
    rates: Annotated[RateKind | None, hint, one_of(RateKind)] = None
    """learning rates: paper (its table 7), equal (the same for all algorithms), or tuned (found by search for each)
    (default: paper for the preset paper, else equal)"""


@dataclass(frozen=True)
class Only:
    """The parts of an item to make; by default all."""

    datasets: Names = ()
    """only these of the preset's data sets, as in svhn"""
    dynamics: Names = ()
    """only these of the item's dynamics, as in sine"""
    algorithms: Names = ()
    """only these of the paper's algorithms, as in fedawe fedavg"""
    seeds: Wholes = ()
    """only these of the preset's seeds, as in 3"""
