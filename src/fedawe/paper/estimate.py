"""How long runs will take: a few timed steps and one evaluation, times what there is to do."""

import time
from collections.abc import Iterable
from dataclasses import dataclass, replace
from pathlib import Path

import torch

from fedawe.experiments.settings import Settings, World
from fedawe.paper.plan import Batch
from fedawe.results import record as records
from fedawe.training.engines.calibrate import seconds_per_client
from fedawe.training.local import STACK


@dataclass(frozen=True)
class Estimate:
    """One folder: runs that are complete, runs in all, and seconds that the rest will take on one core."""

    batch: Batch
    complete: int
    total: int
    seconds: float


def complete(folder: Path, batch: Batch) -> int:
    """How many runs of the batch have ended."""
    found = 0
    for contender in batch.contenders():
        for seed in batch.seeds:
            path = folder / batch.folder / contender.label / f"seed-{seed}" / records.NAME
            found += path.exists() and records.read(path).end is not None
    return found


def estimates(folder: Path, batches: Iterable[Batch], data: Path | None) -> list[Estimate]:
    """For every batch; the first seed speaks for all."""
    torch.set_num_threads(1)
    speeds: dict[Settings, tuple[float, float]] = {}
    out = []
    for batch in batches:
        done, total = complete(folder, batch), len(batch.algorithms) * len(batch.seeds)
        if done == total:
            out.append(Estimate(batch, done, total, 0.0))
            continue
        settings = batch.settings.resolved()
        world = World.of(settings, batch.seeds[0], data)
        alike = replace(settings, dynamics="", rounds=None, p=(), eta0=None, evaluate_every=1, alpha=0.1)
        if alike not in speeds:
            speeds[alike] = _speed(world, settings)
        a_step, an_evaluation = speeds[alike]
        evaluations = (world.trace.rounds / settings.evaluate_every + 1) * (2 if settings.evaluate_received else 1.1)
        one = float(world.trace.on.sum()) * settings.steps * a_step + evaluations * an_evaluation
        out.append(Estimate(batch, done, total, (total - done) * one))
    return out


def _speed(world: World, settings: Settings) -> tuple[float, float]:
    """Seconds of a step of one client, trained in the better way, and of an evaluation."""
    local = settings.local()
    ways = [seconds_per_client(world.task, local, world.seed, clients) for clients in (1, STACK)]
    x = world.task.initial(world.seed)
    began = time.perf_counter()
    world.task.evaluate(x)
    return min(ways), time.perf_counter() - began
