"""Any rule for the objective F = sum_i w_i F_i instead of (1/m) sum_i F_i."""

from dataclasses import dataclass, field, replace
from typing import Any

import torch
from torch import Tensor

from fedawe.algorithms.base import Algorithm, State
from fedawe.algorithms.exchange import Upload, absorb, asked_for, first_state, in_order
from fedawe.algorithms.facts import name_of
from fedawe.algorithms.fedavg import FedAvg
from fedawe.algorithms.wrapper import NestedState, Wrapper, check_rule
from fedawe.core.errors import UserError


@dataclass(frozen=True, eq=False)
class Weighted(Wrapper[NestedState]):
    """A rule whose innovations are scaled so that client i has weight w_i, where sum_i w_i = 1.

        G_i <- m w_i G_i                              in general
        G_i <- |A| w_i G_i / sum_A w_j                for rules that average the active clients, such as FedAvg:
                                                      sum_A w_i G_i / sum_A w_i, the convention of FedAvg's paper

    For such rules a round in which no active client has a weight above 0 counts as empty.

    weights  one number from 0 per client, with any sum above 0; None: the clients' numbers of samples, which an
             experiment fills in. In a deployment every reply says how many samples its client has (`num-examples`),
             which is enough for rules that average the active clients; other rules need the weights of all clients
    rule     refused are rules that compute a correction of local gradients from G (SCAFFOLD, FedDyn), and rules that
             bound the influence of one client (Robust, Private)

    >>> weighted = Weighted(FedAvg(), weights=[1.0, 3.0])
    >>> state = weighted.init(torch.zeros(1), m=2)
    >>> state = weighted.aggregate(state, 0, torch.tensor([0, 1]), torch.tensor([[4.0], [8.0]]))    # (4 + 3 * 8)/4
    >>> weighted.model(state)
    tensor([-7.])
    """

    name = "Weighted"
    keeps = "one number per client, and what the rule keeps"
    needs_sizes = True

    rule: Algorithm[Any] = field(default_factory=FedAvg)
    weights: Any = None

    def __post_init__(self) -> None:
        check_rule(self.rule)
        if not getattr(self.rule, "weightable", True):
            raise UserError(
                f"{name_of(self.rule)} cannot be weighted: it computes corrections of local gradients from the "
                "innovations, or bounds the influence of one client, and scaled innovations would make that wrong"
            )
        if self.weights is None:
            return
        try:
            weights = torch.as_tensor(self.weights, dtype=torch.float64).clone()
        except (TypeError, ValueError, RuntimeError):
            raise UserError(f"weights must be one number per client, not {self.weights!r}") from None
        if weights.ndim != 1 or not ((weights >= 0) & torch.isfinite(weights)).all() or not weights.any():
            raise UserError("weights must be numbers from 0, one per client, of which not all are 0")
        object.__setattr__(self, "weights", weights)

    def init(self, x0: Tensor, m: int) -> NestedState:
        """The rule's state."""
        if self.weights is None and not self.sums_to_one:
            raise UserError(
                f"Weighted needs the weights of all clients for {name_of(self.rule)}; give weights, one number from 0 "
                "per client"
            )
        if self.weights is not None and len(self.weights) != m:
            raise UserError(f"weights has {len(self.weights)} numbers for {m} clients")
        own: State = first_state(self.rule, x0, m)
        return NestedState(own.t, m, own)

    def absorb(self, state: NestedState, t: int, A: Tensor, upload: Upload) -> NestedState:
        """The rule's round, with scaled innovations."""
        A, up = in_order(state, t, A, upload)
        if len(A) == 0:
            return state.after(t, own=absorb(self.rule, state.own, t, A, up))
        if self.weights is None:
            w = asked_for(up.samples, "number of samples", self).double()  # [k]
        else:
            w = self.weights.to(A.device)[A]
        if self.sums_to_one and not w.any():
            nothing: dict[str, Any] = {name: rows[:0] for name, rows in vars(up).items() if isinstance(rows, Tensor)}
            return state.after(t, own=absorb(self.rule, state.own, t, A[:0], replace(up, **nothing)))
        total = w.mean() if self.sums_to_one else self.weights.mean()
        scale = w / total
        up = replace(up, G=scale.to(up.G)[:, None] * up.G, scale=scale)
        return state.after(t, own=absorb(self.rule, state.own, t, A, up))
