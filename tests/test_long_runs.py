"""Two thousand short rounds take no more memory, files or processes in the end than near the beginning.

The same on Ray is in test_ray.py, where there is a cluster.
"""

import os
import sys
from pathlib import Path
from typing import Any

import pytest
import torch
from usage import Usage, family, used

import fedawe
from fedawe.training.engines import Processes

pytestmark = pytest.mark.skipif(not sys.platform.startswith("linux"), reason="looks into /proc")

ROUNDS, EARLY, D = 2000, 500, 2048
ROOM = 6.0  # megabytes: half of what 1,500 rounds would leave behind that each keep one vector
LOCAL = fedawe.Local(fedawe.Rate(0.01), steps=1)


def task() -> fedawe.Quadratic:
    return fedawe.Quadratic(torch.linspace(0, 1, 4)[:, None].repeat(1, D))


def flat(early: Usage, late: Usage) -> None:
    assert late.files <= early.files
    assert late.processes == early.processes
    assert late.megabytes - early.megabytes < ROOM


def test_a_run_in_one_process(tmp_path: Path) -> None:
    """With its record and its checkpoints."""
    seen: dict[int, Usage] = {}

    def tell(progress: Any) -> None:
        if progress.rounds in (EARLY, ROUNDS):
            seen[progress.rounds] = used([os.getpid()])

    fedawe.Experiment(
        task=task(),
        algorithms={"fedawe": fedawe.FedAWE()},
        availability=fedawe.Stationary(),
        p=0.5,
        local=LOCAL,
        rounds=ROUNDS,
        seeds=(0,),
        evaluate_every=50,
    ).run(tmp_path, engine="stacked", workers=1, checkpoint_every=100, tell=tell, warn=lambda _: None)
    flat(seen[EARLY], seen[ROUNDS])
    assert len(list((tmp_path / "fedawe" / "seed-0").iterdir())) == 3  # record, model and the last checkpoint


def test_two_processes() -> None:
    """They begin with room for one client, and grow once."""
    trace = fedawe.Trace.draw(fedawe.Stationary(), [0.5] * 4, ROUNDS, 0)
    engine = Processes(task(), LOCAL, 2, 1, torch.zeros(D))
    seen: dict[int, Usage] = {}
    try:
        here = family(os.getpid())
        for step in fedawe.simulate(task(), fedawe.FedAWE(), trace, LOCAL, seed=0, engine=engine):
            if step.t + 1 in (EARLY, ROUNDS):
                seen[step.t + 1] = used(here)
        flat(seen[EARLY], seen[ROUNDS])
        assert len(here) > 1
    finally:
        engine.close()
    *_, alone = fedawe.simulate(task(), fedawe.FedAWE(), trace, LOCAL, seed=0)
    assert torch.equal(step.x, alone.x)
