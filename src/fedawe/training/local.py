"""Local training: how every client trains in a round."""

from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from numbers import Real
from typing import Any, Literal, get_args

import torch
from torch import Tensor

from fedawe.algorithms.base import is_whole
from fedawe.core.errors import UserError
from fedawe.core.memory import LARGEST, MOST
from fedawe.tasks.base import Rule, Task, Update, Work
from fedawe.training.optimisers import SGD, Adam

Precision = Literal["float32", "bfloat16"]


@dataclass(frozen=True)
class Rate:
    """eta_l(t): the paper's eta_0 / sqrt(t/10 + 1), or eta_0 throughout.

    >>> Rate(0.1)(0), Rate(0.1)(30), Rate(0.1, "constant")(30)
    (0.1, 0.05, 0.1)
    """

    eta0: float = 0.1
    schedule: Literal["paper", "constant"] = "paper"

    def __post_init__(self) -> None:
        if not isinstance(self.eta0, Real) or not 0 < self.eta0 <= LARGEST:
            raise UserError(f"eta0 is {self.eta0!r}; expected a positive number{_at_most(self.eta0)}")
        if self.schedule not in ("paper", "constant"):
            raise UserError(f"schedule is {self.schedule!r}; expected 'paper' or 'constant'")

    def __call__(self, t: int) -> float:
        return self.eta0 if self.schedule == "constant" else self.eta0 / (t / 10 + 1) ** 0.5


def _at_most(value: Any) -> str:
    return f", at most {LARGEST:g}" if isinstance(value, Real) and float(value) > LARGEST else ""


@dataclass(frozen=True)
class Local:
    """How every client trains on its data: `steps` steps on batches of `batch` samples, of plain SGD by default.

    rate       eta_l(t), a function of the round
    clip_grad  largest norm of one stochastic gradient (the paper's sentence taken literally); None for no clip
    batches    "iid": drawn anew in every step; "epochs": shuffled epochs that go on from round to round, a short last
               batch dropped (the authors' code)
    optimiser  `SGD(momentum=0.9)`, `Adam()`, `AdamW()`, or None for plain SGD; it takes `rate` as its learning rate and
               begins anew in every round
    epochs     passes over the client's own samples instead of `steps`, so that clients with more samples make more
               steps: epochs max(1, n_i // batch)
    precision  "bfloat16": forward and backward passes run under `torch.autocast`, which rounds the operands of matrix
               products and convolutions; parameters, steps, updates and evaluations stay float32. "float32": no
               rounding

    >>> local = Local(Rate(0.1), steps=5, batch=32)
    >>> local.rate(0), local.optimiser
    (0.1, None)
    """

    rate: Callable[[int], float] = Rate()
    steps: int = 10
    batch: int = 128
    clip_grad: float | None = None
    batches: Rule = "iid"
    optimiser: SGD | Adam | None = None
    epochs: int | None = None
    precision: Precision = "float32"

    def __post_init__(self) -> None:
        if isinstance(self.rate, type) or not callable(self.rate):
            like = repr(self.rate) if isinstance(self.rate, Real) else "0.1"
            raise UserError(f"rate is {self.rate!r}; expected a function of the round, such as fedawe.Rate({like})")
        for name, otherwise in (("steps", ""), ("batch", ""), ("epochs", ", or None for `steps` steps")):
            value = getattr(self, name)
            if value is None and name == "epochs":
                continue
            if not is_whole(value) or not 1 <= value <= MOST:
                raise UserError(f"{name} is {value!r}; expected a whole number from 1 to {MOST:,}{otherwise}")
            object.__setattr__(self, name, int(value))  # it may be a number of numpy
        if self.clip_grad is not None and (not isinstance(self.clip_grad, Real) or not 0 < self.clip_grad <= LARGEST):
            most = _at_most(self.clip_grad)
            raise UserError(f"clip_grad is {self.clip_grad!r}; expected a positive number{most}, or None for no clip")
        if self.batches not in ("iid", "epochs"):
            raise UserError(f"batches is {self.batches!r}; expected 'iid' or 'epochs'")
        if self.optimiser is not None and not isinstance(self.optimiser, SGD | Adam):
            raise UserError(
                f"optimiser is {self.optimiser!r}; expected fedawe.SGD(...), fedawe.Adam(...) or fedawe.AdamW(...)"
            )
        if self.precision not in get_args(Precision):
            raise UserError(f"precision is {self.precision!r}; expected 'float32' or 'bfloat16'")

    @property
    def plain(self) -> bool:
        """Whether a step depends on the present gradient alone, so that an innovation is a sum of gradients."""
        return self.optimiser is None or not self.optimiser.remembers

    def check_precision(self, task: Task, x: Tensor) -> None:
        """Refuses a precision in which this task cannot be trained; its models are of the type and device of x."""
        if self.precision == "float32":
            return
        if not task.mixed:
            raise UserError(
                f"precision is {self.precision}, but {type(task).__name__} is not trained under torch.autocast (its "
                "class does not say `mixed = True`); use float32"
            )
        if x.dtype != torch.float32:
            raise UserError(f"precision is {self.precision}, but the models are {x.dtype}; expected torch.float32")
        if x.device.type == "cuda" and not torch.cuda.is_bf16_supported():
            raise UserError(f"precision is {self.precision}, which this CUDA device does not have; use float32")

    def autocast(self, device: torch.device) -> AbstractContextManager[object]:
        """The context in which forward and backward passes of local training run."""
        if self.precision == "float32":
            return nullcontext()
        # The cache of autocast is off: it would keep the rounded weights of the first step while the weights change.
        return torch.autocast(device.type, dtype=torch.bfloat16, cache_enabled=False)

    def counts(self, task: Task, A: Tensor) -> Tensor | None:
        """How many steps each of the clients A [k] makes, [k]; None where that is `steps` for all."""
        if self.epochs is None:
            return None
        if task.sizes is None:
            raise UserError(
                f"epochs is {self.epochs}, but {type(task).__name__} does not say how many samples its clients have; "
                "give it `sizes`, or use steps"
            )
        return self.epochs * (torch.as_tensor(task.sizes)[A] // self.batch).clamp(min=1)

    def work(self, A: Tensor, t: int, seed: int, visits: Tensor | None = None, counts: Tensor | None = None) -> Work:
        """What the clients A [k] have to do in round t; `visits` says how often they were active before."""
        visits = torch.zeros_like(A) if visits is None else visits
        steps = self.steps
        if counts is not None and len(counts):
            steps = int(counts.max())
            counts = None if bool((counts == steps).all()) else counts
        return Work(A, t, seed, steps, self.batch, self.batches, visits, counts)

    def rate_of(self, t: int) -> float:
        """eta_l(t), checked."""
        rate = self.rate(t)
        number = isinstance(rate, Real) or (isinstance(rate, Tensor) and rate.ndim == 0)
        if not number or not 0 <= rate <= LARGEST:
            raise UserError(f"the learning rate of round {t} is {rate!r}; expected a number from 0 to {LARGEST:g}")
        return float(rate)

    def check_prox(self, prox: float, t: int) -> None:
        """Refuses a proximal term that pushes clients away from where they began.

        A step multiplies y - x by 1 - eta mu; if that is -1 or less, the sum of the weights a may be zero or negative.
        The first step of a round starts at y = x, where the proximal term is zero.
        """
        if prox and self.plain and (self.steps > 1 or self.epochs is not None) and self.rate_of(t) * prox >= 2:
            raise UserError(
                f"mu (FedDyn: alpha) times the learning rate is {prox:g} times {self.rate_of(t):g} in round {t}; "
                "expected less than 2, or the term does not pull clients back to where they began; lower one of them"
            )

    def update(self, t: int, shift: Tensor | None, prox: float, counts: Tensor | None) -> Update:
        """What the clients do with every gradient of round t."""
        return Update(self.rate_of(t), self.clip_grad, shift, prox, self.optimiser, counts)

    def weights(self, counts: Tensor | None, k: int, t: int, prox: float) -> Tensor:
        """The sum of the weights a with which the gradients of a round enter each innovation, over the rate, [k].

        s for plain SGD; with a momentum as in FedNova's paper; with a proximal term (1 - (1 - eta mu)^s) / (eta mu).
        """
        steps = [self.steps] * k if counts is None else counts.tolist()
        return torch.tensor([self._weight(s, t, prox) for s in steps], dtype=torch.float64)

    def _weight(self, steps: int, t: int, prox: float) -> float:
        if prox and self.plain:
            shrink = self.rate_of(t) * prox
            return (1 - (1 - shrink) ** steps) / shrink if shrink else float(steps)
        return float(steps) if self.optimiser is None else self.optimiser.weight(steps)
