"""Estimate how long runs will take, from the measured time of a training step and of an evaluation."""

import time
from collections.abc import Iterable
from dataclasses import dataclass, replace
from pathlib import Path

from fedawe.core.errors import UserError
from fedawe.experiments.definition import Population
from fedawe.experiments.experiment import Experiment
from fedawe.experiments.settings import STEPS, Settings
from fedawe.paper.plan import Planned
from fedawe.results import record as records
from fedawe.training.engines import keep_freed_memory, one_thread
from fedawe.training.engines.calibrate import seconds_per_client
from fedawe.training.shares import STACK


@dataclass(frozen=True)
class Estimate:
    """The estimate of one folder: runs that have ended, runs in all, and seconds for the rest on one core."""

    planned: Planned
    complete: int
    total: int
    seconds: float | None  # None if the experiment cannot be built, for instance because data is missing
    problem: str = ""  # the reason


def complete(folder: Path, planned: Planned) -> int:
    """The number of runs of the experiment that have ended."""
    found = 0
    for variant in planned.variants:
        for seed in planned.seeds:
            path = folder / planned.folder / variant.label / f"seed-{seed}" / records.NAME
            found += path.exists() and records.read(path).end is not None
    return found


def estimates(folder: Path, planned: Iterable[Planned]) -> list[Estimate]:
    """The estimates of all experiments, from the first seed of each. Without its data, an experiment has no time."""
    speeds: dict[Settings, tuple[float, float]] = {}
    out = []
    keep_freed_memory()  # as for runs
    with one_thread():
        for each in planned:
            done, total = complete(folder, each), len(each.variants) * len(each.seeds)
            try:
                seconds = (total - done) * _one(each, speeds) if done < total else 0.0
                out.append(Estimate(each, done, total, seconds))
            except UserError as error:
                out.append(Estimate(each, done, total, None, str(error)))
    return out


def _one(planned: Planned, speeds: dict[Settings, tuple[float, float]]) -> float:
    """The seconds of one run on one core."""
    settings = planned.settings
    experiment = planned.experiment()
    population = experiment.population(planned.seeds[0])
    alike = replace(
        settings, dynamics="", rounds=None, p=(), eta0=None, evaluate_every=1, evaluate_last=None, alpha=0.1
    )
    if alike not in speeds:
        speeds[alike] = _speed(experiment, population)
    a_step, an_evaluation = speeds[alike]
    evaluations = sum(experiment.is_evaluated(n) for n in range(population.trace.rounds + 1))
    models = 2 if settings.evaluate_received else 1.1  # FedAWE evaluates two, all others one
    return float(population.trace.on.sum()) * (settings.steps or STEPS) * a_step + evaluations * models * an_evaluation


def _speed(experiment: Experiment, population: Population) -> tuple[float, float]:
    """The seconds of a step of one client, and of an evaluation."""
    local, task, seed = experiment.local_of(next(iter(experiment.algorithms))), population.task, population.seed
    step = seconds_per_client(task, local, seed, STACK if task.stacked else 1)
    x = task.initial(seed)
    began = time.perf_counter()
    task.evaluate(x)
    return step, time.perf_counter() - began
