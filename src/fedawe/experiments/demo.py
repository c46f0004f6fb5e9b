"""The experiment of `fedawe demo`: a fleet with labels that depend on availability, on which plain averaging is biased.

The fleet follows from a rule and was not chosen by its results. Client i of 100 is available with base probability
p_i, evenly spaced from 0.05 to 0.95, under the paper's sine. Labels depend on availability as strongly as in
`fedawe audit --save`: the ten clients that are available least hold mostly the digit 0, the next ten mostly the digit
1, and so on. Everything else is the default of `fedawe run`.
"""

import dataclasses
from functools import partial
from pathlib import Path

import numpy as np

from fedawe.audit.dealt import digits, groups_of, labels_of
from fedawe.audit.logs import Log
from fedawe.availability.dynamics import Sine
from fedawe.availability.trace import Trace
from fedawe.experiments.build import experiment_of
from fedawe.experiments.experiment import Experiment
from fedawe.experiments.settings import Settings

CLIENTS, ROUNDS = 100, 300
LEAST, MOST = 0.05, 0.95  # base probabilities


def fleet() -> Log:
    """The fleet, as a log of availability."""
    trace = Trace.draw(Sine(), np.linspace(LEAST, MOST, CLIENTS), ROUNDS, seed=0)
    return Log(trace, tuple(map(str, range(CLIENTS))), None, ())


def write_fleet(path: Path) -> None:
    """Write the fleet and the labels of its clients to a file."""
    p = np.linspace(LEAST, MOST, CLIENTS)
    group, names = groups_of(p, None, ())
    fleet().save(path, labels=labels_of(p, None, None)[0], group=group, groups=list(names))


def demo(path: Path, rounds: int = ROUNDS) -> Experiment:
    """The experiment: the paper's algorithms on the fleet in the file."""
    named = experiment_of(Settings(dynamics=str(path), rounds=rounds))
    return dataclasses.replace(named, task=partial(digits, trace=str(path)))
