"""`fedawe run`: algorithms under the same comings and goings."""

import shlex
import sys
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

import torch
import tyro

from fedawe import records, runs
from fedawe.algorithms import ALGORITHMS
from fedawe.cli.show import progress
from fedawe.experiment import Contender, Settings
from fedawe.flags import Names


@dataclass(frozen=True)
class Run:
    """Compare algorithms under the same comings and goings of clients; the same call again resumes."""

    settings: tyro.conf.OmitArgPrefixes[Settings] = field(default_factory=Settings)
    algorithms: Names = ()
    """which, with options as in fedau:K=20 or fedawe:clip=0.5,eta0=0.2 (default: all that the trace allows)"""
    seeds: tuple[int, ...] = (0, 1, 2)
    """each seed is its own partition, trace and initial model, shared by all algorithms"""
    out: Path = Path("runs/latest")
    """folder of records and models"""
    checkpoint_every: int = 50
    """rounds between checkpoints"""

    def run(self) -> None:
        """Run what has not run yet."""
        settings = self.settings.resolved()
        algorithms = self.algorithms or tuple(n for n in ALGORITHMS if n != "fedavg-known" or settings.knows_p())
        execute(settings, algorithms, self.seeds, self.out, self.checkpoint_every)
        print(f"compare them: fedawe report {shlex.quote(str(self.out))}")


def execute(
    settings: Settings, algorithms: Sequence[str], seeds: Sequence[int], out: Path, checkpoint_every: int
) -> list[records.Record]:
    """All runs, with progress, and in the end what became of them."""
    torch.set_num_threads(1)  # many small products: threads cost more than they bring, and bits stay the same
    command = shlex.join(["fedawe", *sys.argv[1:]])
    contenders = [Contender.parse(text) for text in algorithms]
    found: list[records.Record] = []
    with progress(total=len(algorithms) * len(seeds)) as shown:
        for record in runs.run(
            settings,
            contenders,
            seeds,
            out,
            command=command,
            checkpoint_every=checkpoint_every,
            tell=shown.tell,
            warn=shown.warn,
        ):
            found.append(record)
            shown.done()
            if record.end is not None and record.status == "diverged":
                shown.warn(record.end["message"])
    complete = sum(record.status == "complete" for record in found)
    already = "" if shown.worked else " (they were already)"
    print(f"{complete} of {len(found)} runs complete in {out}{already}")
    return found
