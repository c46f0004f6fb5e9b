"""Local optimisers for many clients at once: every step is that of torch.optim, with one row of state per client.

The state of an optimiser is created at the start of a round and dropped at its end. The learning rate is that of
`Local`.
"""

from collections.abc import Callable
from dataclasses import dataclass
from numbers import Real

import torch
from torch import Tensor

from fedawe.core.errors import UserError
from fedawe.core.memory import LARGEST


@dataclass(frozen=True)
class SGD:
    """Stochastic gradient descent with momentum: b <- momentum b + g, y <- y - rate b, with b = g in the first step.

    momentum      0 is plain SGD
    nesterov      y <- y - rate (g + momentum b) instead
    weight_decay  adds weight_decay y to every gradient
    """

    momentum: float = 0.0
    nesterov: bool = False
    weight_decay: float = 0.0

    def __post_init__(self) -> None:
        _check("momentum", self.momentum, 1.0)
        _check("weight_decay", self.weight_decay, LARGEST)
        if self.nesterov and self.momentum == 0:
            raise UserError("nesterov is True and momentum 0; Nesterov's step needs a momentum")

    @property
    def remembers(self) -> bool:
        """Whether a step depends on earlier gradients."""
        return self.momentum > 0

    def weight(self, steps: int) -> float:
        """The sum of the weights with which the gradients of all steps enter the innovation, in units of the rate."""
        rho = self.momentum
        if rho == 0:
            return float(steps)
        if not self.nesterov:
            return (steps - rho * (1 - rho**steps) / (1 - rho)) / (1 - rho)
        b = total = 0.0  # the recursion itself, with every gradient 1
        for _ in range(steps):
            b = rho * b + 1
            total += 1 + rho * b
        return total

    def begin(self, parameters: Tensor, rate: float) -> Callable[[Tensor], None]:
        """Begin a round: returns a function that takes gradients [k, d] and changes the parameters [k, d] in place."""
        b: Tensor | None = None

        def move(g: Tensor) -> None:
            nonlocal b
            if self.weight_decay:
                g = g.add(parameters, alpha=self.weight_decay)
            if self.momentum:
                b = g.clone() if b is None else b.mul_(self.momentum).add_(g)
                g = g.add(b, alpha=self.momentum) if self.nesterov else b
            parameters.sub_(g, alpha=rate)

        return move


@dataclass(frozen=True)
class Adam:
    """Adam (Kingma and Ba 2015, arXiv:1412.6980): y <- y - rate m / (sqrt(v) + eps), both moments corrected.

    b1, b2        decay of the first and of the second moment
    weight_decay  adds weight_decay y to every gradient
    """

    b1: float = 0.9
    b2: float = 0.999
    eps: float = 1e-8
    weight_decay: float = 0.0

    def __post_init__(self) -> None:
        _check("b1", self.b1, 1.0)
        _check("b2", self.b2, 1.0)
        _check("weight_decay", self.weight_decay, LARGEST)
        if not isinstance(self.eps, Real) or not 0 < self.eps < float("inf"):
            raise UserError(f"eps is {self.eps!r}; expected a positive number")

    remembers = True

    def weight(self, steps: int) -> float:
        """The number of steps, because Adam normalises every step."""
        return float(steps)

    def begin(self, parameters: Tensor, rate: float) -> Callable[[Tensor], None]:
        """Begin a round: returns a function that takes gradients [k, d] and changes the parameters [k, d] in place."""
        m, v, step = torch.zeros_like(parameters), torch.zeros_like(parameters), 0

        def move(g: Tensor) -> None:
            nonlocal step
            step += 1
            g = self._decayed(parameters, g, rate)
            m.lerp_(g, 1 - self.b1)
            v.mul_(self.b2).addcmul_(g, g, value=1 - self.b2)
            root = (v.sqrt() / (1 - self.b2**step) ** 0.5).add_(self.eps)
            parameters.addcdiv_(m, root, value=-rate / (1 - self.b1**step))

        return move

    def _decayed(self, parameters: Tensor, g: Tensor, rate: float) -> Tensor:
        del rate
        return g.add(parameters, alpha=self.weight_decay) if self.weight_decay else g


@dataclass(frozen=True)
class AdamW(Adam):
    """Adam with decoupled weight decay (Loshchilov and Hutter 2019, arXiv:1711.05101).

    weight_decay  y <- (1 - rate weight_decay) y before every step
    """

    weight_decay: float = 0.01

    def _decayed(self, parameters: Tensor, g: Tensor, rate: float) -> Tensor:
        if self.weight_decay:
            parameters.mul_(1 - rate * self.weight_decay)
        return g


def _check(name: str, value: object, below: float) -> None:
    if not isinstance(value, Real) or not 0 <= float(value) < below:
        raise UserError(f"{name} is {value!r}; expected a number from 0 and below {below:g}")


OPTIMISERS = {"sgd": SGD, "adam": Adam, "adamw": AdamW}  # by their names on the command line
