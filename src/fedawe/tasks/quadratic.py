"""Quadratics: the paper's Example 1 and its general form, with the optimum in closed form."""

from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor

from fedawe.core.errors import UserError
from fedawe.core.metric import Metric
from fedawe.core.rng import rng
from fedawe.tasks.base import Metrics, Task, Work


@dataclass(frozen=True, eq=False)
class Quadratic(Task):
    """F_i(x) = (1/2) (x - u_i)' diag(h_i) (x - u_i), the objective F = (1/m) sum_i F_i.

    u      [m, d], the clients' own optima
    h      [m, d], the curvatures; ones by default, as in Example 1
    noise  standard deviation of the gradient noise in every coordinate

    >>> example_1 = Quadratic(torch.tensor([[0.0], [100.0]]))
    >>> example_1.optimum
    tensor([50.])
    """

    stacked = True
    metrics = (
        Metric("distance", "distance to the optimum", better="lower", decides=True),
        Metric("loss", "objective", better="lower"),
    )

    u: Tensor
    h: Tensor | None = None
    noise: float = 0.0
    curvature: Tensor = field(init=False, repr=False)

    def __post_init__(self) -> None:
        if self.u.ndim != 2 or 0 in self.u.shape or not self.u.is_floating_point():
            raise UserError(f"u must be one optimum per client [m, d], not {self.u.dtype} {list(self.u.shape)}")
        curvature = torch.ones_like(self.u) if self.h is None else self.h
        if curvature.shape != self.u.shape or not (curvature > 0).all():
            raise UserError("h must be positive and of the shape of u")
        if not 0 <= self.noise < float("inf"):
            raise UserError(f"noise is {self.noise!r}; expected a standard deviation from 0")
        object.__setattr__(self, "curvature", curvature)

    @property
    def clients(self) -> int:
        """m."""
        return len(self.u)

    @property
    def optimum(self) -> Tensor:
        """sum_i h_i u_i / sum_i h_i, [d]."""
        return (self.curvature * self.u).sum(0) / self.curvature.sum(0)

    def initial(self, seed: int) -> Tensor:
        """Zero, whatever the seed."""
        del seed
        return torch.zeros_like(self.u[0])

    def batches(self, work: Work) -> Any:
        """The clients' quadratics and, where there is noise, its draws [k, s, d]."""
        u, h, shape = self.u[work.A], self.curvature[work.A], (work.steps, self.u.shape[1])
        if self.noise == 0 or len(work.A) == 0:
            return u, h, None
        draws = [rng(work.seed, "batch", work.t, i).normal(0, self.noise, shape) for i in work.A.tolist()]
        return u, h, torch.stack([torch.from_numpy(draw) for draw in draws]).to(self.u)

    def gradients(self, x: Tensor, batches: Any, step: int) -> Tensor:
        """h_i (x_i - u_i), plus noise."""
        u, h, noise = batches
        g: Tensor = h * (x - u)
        return g if noise is None else g + noise[:, step]

    def losses(self, x: Tensor, batches: Any) -> Tensor:
        """F_i(x_i), [k]."""
        u, h, _ = batches
        out: Tensor = (h * (x - u) ** 2).sum(1) / 2
        return out

    def evaluate(self, x: Tensor) -> Metrics:
        """The distance to the optimum, and the objective."""
        return {
            "distance": float(torch.linalg.vector_norm(x - self.optimum)),
            "loss": float((self.curvature * (x - self.u) ** 2).sum(1).mean() / 2),
        }
