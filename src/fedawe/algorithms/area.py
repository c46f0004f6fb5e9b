"""AREA: asynchronous exact averaging (Iakovidou and Kim 2024, arXiv:2405.10123).

Clients start from the model that they received last.
"""

from dataclasses import dataclass

from torch import Tensor

from fedawe.algorithms.base import check_clip, clipped, first_model, received
from fedawe.algorithms.rows import Rows, rows_of, with_rows
from fedawe.algorithms.versions import HeldModel, Versions


@dataclass(frozen=True)
class AreaState(Versions):
    """The models that clients hold, and the difference of the last model that each uploaded from x^0."""

    x0: Tensor  # [d]
    y: Rows  # client -> y_i - x^0, zero before                                                   [d] each


@dataclass(frozen=True)
class AREA(HeldModel[AreaState]):
    """AREA (Iakovidou and Kim 2024, arXiv:2405.10123): asynchronous exact averaging.

    The server averages the last local models y_i of all clients; clients upload only the changes of these.

        x_i = held model - G_i,     x <- x + (1/m) sum_A (x_i - y_i),     y_i <- x_i

    A client trains from the model that it received when it was last active, and uploads when it is active again. Each
    client keeps its own y_i, so the server needs only one vector. Without a clip, x is always the mean of all y_i,
    however often clients are active.

    >>> import torch
    >>> area = AREA()
    >>> state = area.init(torch.zeros(1), m=2)
    >>> state = area.aggregate(state, 0, torch.tensor([0]), torch.tensor([[2.0]]))    # y = -2, 0
    >>> area.model(state)
    tensor([-1.])
    """

    name = "AREA"
    keeps = "the versions that clients hold; every client keeps its own last model"

    clip: float | None = None

    def __post_init__(self) -> None:
        check_clip(self.clip)

    def init(self, x0: Tensor, m: int) -> AreaState:
        """Every client holds x^0, and y_i = x^0."""
        x = first_model(x0, m)
        return AreaState(**vars(Versions.of(x, m)), x0=x.clone(), y={})

    def aggregate(self, state: AreaState, t: int, A: Tensor, G: Tensor) -> AreaState:
        """The step by the sum of the changes over m; A receive the result."""
        A, G = received(state, t, A, G)
        if len(A) == 0:
            return state.after(t)
        y = state[A] - G - state.x0
        x = state.latest + clipped((y - rows_of(state.y, A, state.x0)).sum(0) / state.m, self.clip)
        return state.advance(t, A, x).after(t, y=with_rows(state.y, A, y))
