"""How long clients have been inactive, written to the record of a run in every evaluation.

Call `diagnostics(round.state, round.past)` after any round, or pass the trace instead of the past. The function
`fedawe.audit.describe` computes the same numbers for a whole trace, without a run.
"""

import numpy as np
import numpy.typing as npt

from fedawe.algorithms.base import State
from fedawe.availability.past import Past
from fedawe.availability.trace import Trace
from fedawe.core.errors import UserError
from fedawe.core.metric import Metric


def last_active(trace: Trace, t: int) -> npt.NDArray[np.int64]:
    """tau_i(t), the last round before t in which client i was available, -1 if none, [m].

    >>> last_active(Trace([[1, 0], [0, 0], [0, 1]]), 2).tolist()
    [0, -1]
    """
    if not 0 <= t <= trace.rounds:
        raise UserError(f"the trace has rounds 0 to {trace.rounds - 1}, but the state before round {t} was asked for")
    back = trace.on[:t][::-1]
    return np.where(back.any(0), t - 1 - back.argmax(0), -1) if t else np.full(trace.clients, -1)


METRICS = (
    Metric("active", "active clients", better=None),
    Metric("echo_mean", "mean echo of the active clients", better=None),
    Metric("echo_max", "largest echo of the active clients", better=None),
    Metric("staleness_mean", "mean number of rounds since a client was last active", better=None),
    Metric("staleness_max", "largest number of rounds since a client was last active", better=None),
)


def diagnostics(state: State, seen: Trace | Past) -> dict[str, float]:
    """How long clients have been inactive, in the round that made this state.

    active             how many clients were active
    echo_mean, _max    t - tau_i(t) of those clients, absent in an empty round; FedAWE multiplies by it
    staleness_mean, _max   t - tau_i(t) of all clients, active or not (Lemma 2)

    >>> import fedawe, torch
    >>> trace, algorithm = Trace([[1, 1], [1, 0], [1, 1]]), fedawe.FedAWE()
    >>> state = algorithm.init(torch.zeros(1), 2)
    >>> for t in range(3):
    ...     state = algorithm.aggregate(state, t, trace.active(t), torch.ones(len(trace.active(t)), 1))
    >>> diagnostics(state, trace)["echo_max"]    # client 1 missed a round
    2
    """
    t = state.t
    if t < 0:
        raise UserError("no round has been run yet")
    trace = seen if isinstance(seen, Trace) else seen.trace
    if trace.clients != state.m:
        raise UserError(f"the trace has {trace.clients} clients, the state {state.m}")
    away = t - last_active(seen, t) if isinstance(seen, Trace) else seen.through(t).away()
    echo = away[trace.row(t)]
    out: dict[str, float] = {"active": len(echo)}
    if len(echo):
        out |= {"echo_mean": float(echo.mean()), "echo_max": int(echo.max())}
    out |= {"staleness_mean": float(away.mean()), "staleness_max": int(away.max())}
    return out
