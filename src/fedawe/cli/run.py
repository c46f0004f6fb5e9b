"""`fedawe run`: algorithms under the same comings and goings."""

import shlex
import sys
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

import torch
import tyro

from fedawe.algorithms import ALGORITHMS
from fedawe.cli.show import progress
from fedawe.experiments import schedule as suite
from fedawe.experiments.flags import File, Names, Whole
from fedawe.experiments.schedule import Execution
from fedawe.experiments.settings import Contender, Settings
from fedawe.results.record import Record
from fedawe.training.engines import keep_freed_memory


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
    data: File = None
    """folder of the data sets added with `fedawe data` (default: $FEDAWE_DATA, or the user's cache)"""
    engine: str = "auto"
    """train clients one after another (one), or stacked into one computation (auto: what is faster here); or on a
    cluster: ray (the one that runs on this machine, or a new one), ray:HOST:PORT, ray://HOST:PORT"""
    workers: Whole = None
    """processes that share the clients of a round (default: all cores where rounds are long)"""
    jobs: int = 1
    """runs at once, one core each"""
    device: Literal["cpu", "cuda"] | None = None
    """where to compute (default: a CUDA device if there is one)"""
    checkpoint_every: int = 50
    """rounds between checkpoints"""

    def run(self) -> None:
        """Run what has not run yet."""
        settings = self.settings.resolved()
        algorithms = self.algorithms or tuple(n for n in ALGORITHMS if n != "fedavg-known" or settings.knows_p())
        how = Execution(self.engine, self.workers, self.jobs, self.checkpoint_every, self.data, self.device)
        execute(settings, algorithms, self.seeds, self.out, how)
        print(f"compare them: fedawe report {shlex.quote(str(self.out))}")


def execute(
    settings: Settings, algorithms: Sequence[str], seeds: Sequence[int], out: Path, execution: Execution
) -> list[Record]:
    """All runs, with progress, and in the end what became of them."""
    torch.set_num_threads(1)  # one thread a process: bits stay the same, and many small products want no more
    keep_freed_memory()
    command = shlex.join(["fedawe", *sys.argv[1:]])
    contenders = [Contender.parse(text) for text in algorithms]
    found: list[Record] = []
    with progress(total=len(algorithms) * len(seeds)) as shown:
        for record in suite.run(
            settings,
            contenders,
            seeds,
            out,
            command=command,
            execution=execution,
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
