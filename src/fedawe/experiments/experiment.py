"""An experiment that can be run: the object behind `fedawe run`."""

import dataclasses
import os
from collections.abc import Sequence
from contextlib import closing
from dataclasses import dataclass
from typing import Any

from fedawe.core.errors import UserError
from fedawe.core.files import as_folder
from fedawe.experiments.definition import Definition
from fedawe.experiments.execution import Execution
from fedawe.experiments.results import Results, load
from fedawe.experiments.run import Tell, Warn
from fedawe.experiments.schedule import run_all
from fedawe.experiments.tracking import Tracking
from fedawe.trackers.base import Tracker
from fedawe.training.engines import one_thread


@dataclass(frozen=True, kw_only=True, eq=False)
class Experiment(Definition):
    """Algorithms compared on one task under one availability, with several seeds.

    task            a Task, or a function of the seed that returns one
    algorithms      label -> algorithm; the label names it in tables and folders
    availability    dynamics, which are drawn for every seed; or a Trace or the path of one, which all seeds share
    p               base probabilities: one for all clients or one for each. None: the paper's rule, from the labels
    local           how clients train; or a mapping from labels, with the key "default" for all others
    rounds          number of rounds; None: all of a recorded trace, or 300
    seeds           each seed has its own partition, trace and initial model, shared by all algorithms
    evaluate_every  rounds between two evaluations; there is always one before the first round and after the last
    evaluate_last   (rounds, every): among the last `rounds` rounds, evaluate also after each that `every` divides; with
                    (50, 2) a mean over the last 50 rounds is one of 25 evaluations, whatever `evaluate_every` is
    evaluate_received   also evaluate the mean over all clients of the model that each received last

    >>> import fedawe, torch
    >>> example_1 = fedawe.Experiment(
    ...     task=fedawe.Quadratic(torch.tensor([[0.0], [100.0]])),
    ...     algorithms={"FedAWE": fedawe.FedAWE(), "FedAvg": fedawe.FedAvg()},
    ...     availability=fedawe.Stationary(), p=[0.9, 0.3],
    ...     local=fedawe.Local(fedawe.Rate(0.01, "constant"), steps=1), rounds=50,
    ... )
    >>> example_1.population(seed=0).trace.clients
    2
    """

    def run(
        self,
        out: str | os.PathLike[str],
        *,
        trackers: Sequence[Tracker] = (),
        command: str = "",
        tell: Tell = lambda _: None,
        warn: Warn = print,
        **execution: Any,
    ) -> Results:
        """Execute all runs that are not complete, and return the results. The same call resumes after an interruption.

        out        folder of records and models
        trackers   objects such as fedawe.trackers.MLflow(), which receive every evaluation during the runs (`Tracker`)
        command    a command that repeats the experiment, for the report
        tell       a function that is called after every round with a `Progress`
        warn       a function that is called with a sentence when a file was repaired or something is unusual
        execution  how to execute: jobs, workers, engine, device, checkpoint_every (see `Execution`)
        """
        known = [each.name for each in dataclasses.fields(Execution)]
        if unknown := sorted(set(execution) - set(known)):
            raise UserError(f"run has no option {unknown[0]!r}; it has {', '.join(known)}")
        if not isinstance(trackers, Sequence):
            raise UserError(f"trackers is a {type(trackers).__name__}; expected a list, as in trackers=[...]")
        if others := [each for each in trackers if not isinstance(each, Tracker)]:
            raise UserError(f"a tracker is a {type(others[0]).__name__}; expected an object of a fedawe.Tracker")
        for name, given in (("tell", tell), ("warn", warn)):
            if not callable(given):
                raise UserError(f"{name} is {given!r}; expected a function of one argument, such as print")
        folder = as_folder(out, "out")
        tracking = Tracking(folder, trackers, self.is_evaluated, warn)
        tell = tracking.telling(tell)
        with one_thread(), closing(tracking):  # one thread per process: small matrix products are not faster with more
            for record in run_all(self, folder, Execution(**execution), command=command, tell=tell, warn=warn):
                tracking.ended(record)
        return load(out)
