"""The public checks: what is right passes, and each law that is broken is named."""

import dataclasses
from typing import Any

import numpy as np
import pytest
import torch
from table import ROUNDS, ROWS, Row
from torch import Tensor

import fedawe
from fedawe.availability import DYNAMICS
from fedawe.testing import CheckFailed, check_algorithm, check_dynamics, check_task


@pytest.mark.parametrize("row", ROWS, ids=repr)
def test_every_algorithm_passes(row: Row) -> None:
    check_algorithm(row.make(torch.full((ROUNDS, 5), 0.5)))


@pytest.mark.parametrize(
    "algorithm", [fedawe.FedAvgKnown(), fedawe.Private(), fedawe.Weighted(fedawe.FedAU())], ids=lambda one: one.name
)
def test_an_algorithm_is_given_what_an_experiment_gives_it(algorithm: Any) -> None:
    check_algorithm(algorithm)


@pytest.mark.parametrize("dynamics", DYNAMICS.values())
def test_all_dynamics_pass(dynamics: type[Any]) -> None:
    check_dynamics(dynamics())


def test_tasks_pass() -> None:
    check_task(fedawe.Quadratic(torch.tensor([[0.0], [100.0]]), noise=0.1))
    check_task(lambda seed: fedawe.classification(fedawe.digits(), "mlp", 20, 0.5, seed))


@dataclasses.dataclass(frozen=True)
class Broken(fedawe.FedAvg):
    """FedAvg with one fault."""

    fault: str = ""

    @property
    def linear(self) -> bool:
        return True

    def start(self, state: Any, A: Tensor) -> Tensor:
        if self.fault == "shape":
            return super().start(state, A)[:, :-1]
        return super().start(state, A)

    def aggregate(self, state: Any, t: int, A: Tensor, G: Tensor) -> Any:
        if self.fault == "impure":
            state.x.add_(1.0)
        if self.fault == "order" and len(A):
            return dataclasses.replace(super().aggregate(state, t, A, G), x=state.x - G[0])
        if self.fault == "lenient":
            G, t = torch.nan_to_num(G), max(t, state.t + 1)
        if self.fault == "empty" and not len(A):
            raise RuntimeError("nobody")
        after = super().aggregate(state, t, A, G)
        if self.fault == "curved":
            return dataclasses.replace(after, x=torch.tanh(after.x))
        return after

    def model(self, state: Any) -> Tensor:
        return state.x if self.fault == "own" else super().model(state)


@pytest.mark.parametrize(
    ("fault", "said"),
    [
        ("shape", r"start must give \[2, 3\]"),
        ("impure", "changes the state that it is given"),
        ("own", "returns tensors of it"),
        ("order", "order in which clients arrive"),
        ("lenient", "a round that is already over is accepted"),
        ("empty", r"aggregate in round 1 \(empty\) raises RuntimeError: nobody"),
        ("curved", "not linear in the innovations"),
    ],
)
def test_a_broken_algorithm_is_told_what_is_wrong(fault: str, said: str) -> None:
    with pytest.raises(CheckFailed, match=said):
        check_algorithm(Broken(fault=fault))


def test_the_broken_algorithm_without_its_fault_passes() -> None:
    check_algorithm(Broken())


def test_something_else_is_no_algorithm() -> None:
    with pytest.raises(CheckFailed, match="no method `init`"):
        check_algorithm(object())


class Drifting(fedawe.Stationary):
    """Dynamics with a memory that they should not have."""

    calls = 0

    def available(self, seed: int, t: int, p: Any, before: Any) -> Any:
        type(self).calls += 1
        return np.random.default_rng(type(self).calls).random(len(p)) < p


class Wild(fedawe.Stationary):
    def probabilities(self, t: Any, p: Any) -> Any:
        return 2 * super().probabilities(t, p)


@pytest.mark.parametrize(
    ("dynamics", "said"), [(Drifting(), "not a prefix"), (Wild(), r"outside \[0, 1\]"), (object(), "probabilities")]
)
def test_broken_dynamics_are_told_what_is_wrong(dynamics: Any, said: str) -> None:
    with pytest.raises(CheckFailed, match=said):
        check_dynamics(dynamics)


class BadTask(fedawe.Quadratic):
    """A quadratic with one fault."""

    def __init__(self, fault: str) -> None:
        super().__init__(torch.tensor([[0.0], [1.0], [2.0]]))
        object.__setattr__(self, "fault", fault)

    def gradients(self, x: Tensor, batches: Any, step: int) -> Tensor:
        first = self.fault == "first model" and step == 0  # later steps differ by themselves
        g = super().gradients(x[:1].expand_as(x) if first else x, batches, step)
        if self.fault == "random":
            return g + torch.rand_like(g)
        return g + g.mean() if self.fault == "together" else g

    def evaluate(self, x: Tensor) -> Any:
        if self.fault == "":
            return {name: torch.tensor(value) for name, value in super().evaluate(x).items()}
        if self.fault == "number":
            return 0.5
        if self.fault == "reserved":
            return {**super().evaluate(x), "test_seconds": 1.0}
        return {"loss": 1.0} if self.fault == "metric" else super().evaluate(x)


@pytest.mark.parametrize(
    ("fault", "said"),
    [
        ("random", "gives another result"), ("together", "each alone"), ("metric", "declares distance"),
        ("first model", "each alone"), ("reserved", "a metric cannot be called test_seconds"),
        ("number", "evaluate must return a dict of numbers by name"),
    ],
)  # fmt: skip
def test_a_broken_task_is_told_what_is_wrong(fault: str, said: str) -> None:
    with pytest.raises(CheckFailed, match=said):
        check_task(BadTask(fault))


def test_numbers_of_libraries_are_numbers() -> None:
    check_task(BadTask(""))


def test_one_metric_without_a_comma_is_told() -> None:
    task = BadTask("")
    object.__setattr__(task, "metrics", task.metrics[0])
    with pytest.raises(CheckFailed, match=r"BadTask\.metrics is a Metric; expected a tuple of metrics, as in"):
        check_task(task)
