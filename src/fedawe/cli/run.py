"""`fedawe run`: Compare algorithms under the same availability of clients; the same command again resumes."""

import dataclasses
import shlex
import sys
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import tyro

from fedawe.core.errors import UserError
from fedawe.experiments.execution import Execution
from fedawe.experiments.flags import File, Names, Wholes
from fedawe.experiments.settings import Settings

if TYPE_CHECKING:
    from fedawe.experiments.experiment import Experiment
    from fedawe.experiments.results import Results
    from fedawe.trackers import Tracker


@dataclass(frozen=True)
class RunCommand:
    """Compare algorithms under the same availability of clients; the same command again resumes.

    Algorithms are those listed below, those of installed plug-ins, and your own, as in my.rules:Mine:beta=0.9 or
    rules.py:Mine.
    """

    study: tyro.conf.Positional[File] = None
    """a Python file that defines a fedawe.Experiment; without it the flags describe the experiment"""
    settings: tyro.conf.OmitArgPrefixes[Settings] = field(default_factory=Settings)
    algorithms: Names = ()
    """the algorithms, with options as in fedau:K=20 or fedawe:clip=0.5,eta0=0.2 (default: those of the paper)"""
    seeds: Wholes = ()
    """the seeds; each has its own partition, trace and initial model, shared by all algorithms (default: 0 1 2)"""
    out: Path = Path("runs/latest")
    """folder for records and models"""
    track: Names = ()
    """show running runs in mlflow, tensorboard or wandb, with options as in mlflow:uri=http://localhost:5000 or
    wandb:mode=offline; or in a tracker of your own: my.tools:Chat, tools.py:Chat"""
    execution: tyro.conf.OmitArgPrefixes[Execution] = field(default_factory=Execution)

    def run(self) -> None:
        """Execute the runs that are not complete."""
        experiment = self.experiment()
        run_shown(experiment, self.out, self.execution, [tracker_of(text) for text in self.track])
        print(f"compare them: fedawe report {shlex.quote(str(self.out))}")

    def experiment(self) -> "Experiment":
        """The experiment that the flags or the study file describe."""
        if self.study is None:
            from fedawe.experiments.build import experiment_of

            return experiment_of(self.settings, self.algorithms, self.seeds or (0, 1, 2))
        rest = dataclasses.replace(self.settings, rounds=None)
        if rest != Settings() or self.algorithms:
            raise UserError(
                f"{self.study} defines the experiment; only --rounds, --seeds, --out, --track and execution options "
                "can be given"
            )
        from fedawe.experiments.study import experiment_in

        experiment = experiment_in(self.study)
        rounds = experiment.rounds if self.settings.rounds is None else self.settings.rounds
        return dataclasses.replace(experiment, rounds=rounds, seeds=self.seeds or experiment.seeds)


def description() -> str:
    """The beginning of `fedawe run --help`, with every algorithm, its options and their defaults."""
    import inspect

    from fedawe.algorithms import ALGORITHMS

    lines = []
    for name, algorithm in ALGORITHMS.items():
        given = inspect.signature(algorithm).parameters.values()
        plain = (bool, int, float, str, type(None))
        options = [f"{each.name}={each.default if isinstance(each.default, plain) else '...'}" for each in given]
        lines.append(f"  {name}{':' if options else ''}{','.join(options)}")
    return "\n".join([inspect.cleandoc(RunCommand.__doc__ or ""), "", *lines])


def tracker_of(text: str) -> "Tracker":
    """The tracker that a text such as `mlflow` or `wandb:mode=offline` describes."""
    from fedawe.experiments import names
    from fedawe.trackers import TRACKERS

    found: Tracker = names.parse(text, "trackers", TRACKERS).build()
    return found


def run_shown(
    experiment: "Experiment", out: Path, execution: Execution, trackers: "Sequence[Tracker]" = ()
) -> "Results":
    """Run an experiment, show its progress, and print how many runs are complete."""
    from fedawe.cli.show import progress

    total = len(experiment.algorithms) * len(experiment.seeds)
    command = shlex.join(["fedawe", *sys.argv[1:]])
    with progress(total) as shown:
        results = experiment.run(
            out, trackers=trackers, command=command, tell=shown.tell, warn=shown.warn, **vars(execution)
        )
    labels, seeds = set(experiment.algorithms), set(experiment.seeds)
    found = [run for run in results.runs.runs if run.label in labels and run.seed in seeds]
    for run in found:
        if run.status == "diverged":
            print(f"fedawe: {run.message}", file=sys.stderr)
    complete = sum(run.status == "complete" for run in found)
    already = "" if shown.worked or complete < len(found) else " (they were already)"
    print(f"{complete} of {len(found)} runs complete in {out}{already}")
    for line in {_computed(run.record.header) for run in found if run.record.header.get("executor")}:
        print(line)
    return results


def _computed(header: dict[str, Any]) -> str:
    """A sentence: by which executor the network of a run was computed, and why."""
    grouped = "several clients at once" if header.get("stacked") else "one client after another"
    return f"the network was computed by {header['executor']} ({header['executor_why']}), {grouped}"


VERB = RunCommand
