"""AREA: asynchronous exact averaging (Iakovidou and Kim 2024, arXiv:2405.10123), with held starts."""

from dataclasses import dataclass

from torch import Tensor

from fedawe.algorithms.base import check_clip, clipped, first_model, received
from fedawe.algorithms.rows import Rows, rows_of, with_rows
from fedawe.algorithms.versions import HeldModel, Versions


@dataclass(frozen=True)
class AreaState(Versions):
    """What clients hold, and how far the last model that each uploaded is from x^0."""

    x0: Tensor  # [d]
    y: Rows  # client -> y_i - x^0, zero before                                                   [d] each


@dataclass(frozen=True)
class AREA(HeldModel[AreaState]):
    """AREA (Iakovidou and Kim 2024, arXiv:2405.10123): asynchronous exact averaging.

    The server averages the last local model of every client, of which it is sent only the changes.

        x_i = held model - G_i,     x <- x + (1/m) sum_A (x_i - y_i),     y_i <- x_i

    A client trains on the model of its last visit and uploads at its next. Each keeps its own y_i, so the server needs
    one vector: without a clip, x is the mean of all y_i at any time, however often clients are active.

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
        """Everyone holds x^0, and y_i = x^0."""
        x = first_model(x0, m)
        return AreaState(**vars(Versions.of(x, m)), x0=x.clone(), y={})

    def aggregate(self, state: AreaState, t: int, A: Tensor, G: Tensor) -> AreaState:
        """Move by the mean of the changes; A receive the result."""
        A, G = received(state, t, A, G)
        if len(A) == 0:
            return state.after(t)
        y = state[A] - G - state.x0
        x = state.latest + clipped((y - rows_of(state.y, A, state.x0)).sum(0) / state.m, self.clip)
        return state.advance(t, A, x).after(t, y=with_rows(state.y, A, y))
