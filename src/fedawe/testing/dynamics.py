"""The requirements that every availability model meets."""

from typing import Any

import numpy as np

from fedawe.availability.trace import Trace
from fedawe.testing.failed import attempted, expect

ROUNDS = 60


def check_dynamics(dynamics: Any, p: Any = (0.1, 0.5, 0.9, 1.0)) -> None:
    """Check that an object is an availability model: probabilities in [0, 1], and draws that depend on (seed, t) alone.

    p are the base probabilities for the check.

    >>> import fedawe
    >>> check_dynamics(fedawe.Sine(gamma=0.2))
    """
    name = type(dynamics).__name__
    base = np.asarray(p, dtype=np.float64)
    rounds = np.arange(ROUNDS)
    expect(hasattr(dynamics, "probabilities"), f"{name} has no method `probabilities`")
    table = np.asarray(attempted(f"{name}.probabilities(rounds, p)", dynamics.probabilities, rounds, base))
    expect(
        table.shape == (ROUNDS, len(base)),
        f"{name}.probabilities must give [{ROUNDS}, {len(base)}] for {ROUNDS} rounds; it gives {list(table.shape)}",
    )
    expect(bool(((table >= 0) & (table <= 1)).all()), f"{name}.probabilities has values outside [0, 1]")
    for t in (0, 7, ROUNDS - 1):
        one = np.asarray(attempted(f"{name}.probabilities({t}, p)", dynamics.probabilities, t, base))
        expect(one.shape == (len(base),), f"{name}.probabilities({t}, p) must give [{len(base)}]")
        expect(bool(np.array_equal(one, table[t])), f"{name}.probabilities of round {t} differs alone and in a table")
    whole = attempted(f"drawing a trace from {name}", Trace.draw, dynamics, base, ROUNDS, 3)
    part = Trace.draw(dynamics, base, ROUNDS // 2, 3)
    expect(
        bool(np.array_equal(part.on, whole.on[: ROUNDS // 2])), f"{name}: a shorter draw is not a prefix of a longer"
    )
    again = Trace.draw(dynamics, base, ROUNDS, 3)
    expect(bool(np.array_equal(again.on, whole.on)), f"{name}: the same seed draws another trace")
    never = ~whole.on & (table == 1)
    expect(not (whole.on & (table == 0)).any(), f"{name}: a client with probability 0 was available")
    independent = getattr(dynamics, "independent_rounds", True)
    expect(not (independent and never.any()), f"{name}: a client with probability 1 was not available")
