"""How long runs will take: a few timed steps and one evaluation, times what there is to do."""

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
    """One folder: runs that are complete, runs in all, and seconds that the rest will take on one core."""

    planned: Planned
    complete: int
    total: int
    seconds: float | None  # None where the data is missing
    problem: str = ""  # why


def complete(folder: Path, planned: Planned) -> int:
    """How many runs of the experiment have ended."""
    found = 0
    for variant in planned.variants:
        for seed in planned.seeds:
            path = folder / planned.folder / variant.label / f"seed-{seed}" / records.NAME
            found += path.exists() and records.read(path).end is not None
    return found


def estimates(folder: Path, planned: Iterable[Planned]) -> list[Estimate]:
    """For every experiment; the first seed stands for all. What lacks its data is listed without a time."""
    speeds: dict[Settings, tuple[float, float]] = {}
    out = []
    keep_freed_memory()  # as runs do
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
    """Seconds of one run on one core."""
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
    models = 2 if settings.evaluate_received else 1.1  # FedAWE has two
    return float(population.trace.on.sum()) * (settings.steps or STEPS) * a_step + evaluations * models * an_evaluation


def _speed(experiment: Experiment, population: Population) -> tuple[float, float]:
    """Seconds of a step of one client, and of an evaluation."""
    local, task, seed = experiment.local_of(next(iter(experiment.algorithms))), population.task, population.seed
    step = seconds_per_client(task, local, seed, STACK if task.stacked else 1)
    x = task.initial(seed)
    began = time.perf_counter()
    task.evaluate(x)
    return step, time.perf_counter() - began
