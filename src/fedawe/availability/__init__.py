"""Availability of clients over time: dynamics, traces, and dynamics fitted to a trace."""

from fedawe.availability.dynamics import (
    DYNAMICS,
    Array,
    Cyclic,
    Dynamics,
    InterleavedSine,
    Markov,
    Mask,
    Outages,
    Sine,
    Staircase,
    Stationary,
    as_base_probabilities,
    as_probabilities,
    class_weights,
    probabilities_from_labels,
)
from fedawe.availability.past import Past
from fedawe.availability.trace import Trace

__all__ = [
    "DYNAMICS",
    "Array",
    "Cyclic",
    "Dynamics",
    "InterleavedSine",
    "Markov",
    "Mask",
    "Outages",
    "Past",
    "Sine",
    "Staircase",
    "Stationary",
    "Trace",
    "as_base_probabilities",
    "as_probabilities",
    "class_weights",
    "probabilities_from_labels",
]
