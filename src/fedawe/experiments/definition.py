"""The definition of an experiment: task, algorithms, availability, local training; and the clients of each seed."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import torch

from fedawe.algorithms.base import Algorithm, is_whole
from fedawe.algorithms.facts import is_received_mean, lacks_probabilities, name_of, with_probabilities, with_sizes
from fedawe.algorithms.received import Received
from fedawe.availability.dynamics import (
    DYNAMICS,
    Array,
    Dynamics,
    Sine,
    as_base_probabilities,
    class_weights,
    probabilities_from_labels,
)
from fedawe.availability.trace import Trace
from fedawe.core.describe import described, short
from fedawe.core.errors import UserError
from fedawe.core.memory import MOST
from fedawe.core.rng import rng
from fedawe.tasks.base import Task
from fedawe.training.local import Local
from fedawe.training.simulate import check_clients, check_local

ROUNDS = 300  # if neither the experiment nor a recorded trace gives a number
DEFAULT = "default"  # the key of `local` for all algorithms that are not named in it


@dataclass(frozen=True)
class Population:
    """The clients of one seed: their data and their availability, which all algorithms of an experiment share."""

    seed: int
    task: Task
    trace: Trace
    p: Array | None  # base probabilities [m]; None for a recorded trace


@dataclass(frozen=True, kw_only=True, eq=False)
class Definition:
    """The fields of `Experiment`, which are explained there, and their checks."""

    task: Task | Callable[[int], Task]
    algorithms: Mapping[str, Algorithm[Any]]
    availability: Dynamics | Trace | str | Path = field(default_factory=Sine)
    p: Any = None
    local: Local | Mapping[str, Local] = field(default_factory=Local)
    rounds: int | None = None
    seeds: Sequence[int] = (0, 1, 2)
    evaluate_every: int = 5
    evaluate_last: tuple[int, int] | None = None
    evaluate_received: bool = False

    def __post_init__(self) -> None:
        self._check_task_and_algorithms()
        set_ = object.__setattr__
        set_(self, "algorithms", dict(self.algorithms))
        set_(self, "seeds", _seeds(self.seeds))
        set_(self, "rounds", self._rounds())
        if not is_whole(self.evaluate_every) or self.evaluate_every < 1:
            raise UserError(f"evaluate_every is {self.evaluate_every!r}; expected a whole number from 1")
        if self.evaluate_last is not None:
            set_(self, "evaluate_last", _window(self.evaluate_last))
        if self.p is not None:
            if self.recorded is not None:
                raise UserError("p has no meaning for a recorded trace; omit it (--p on the command line)")
            set_(self, "p", as_base_probabilities([self.p] if np.ndim(self.p) == 0 else self.p))
        _check_local(self.local)
        unknown = set(self.local) - {*self.algorithms, DEFAULT} if isinstance(self.local, Mapping) else set()
        if unknown:
            raise UserError(
                f"local names {', '.join(sorted(map(str, unknown)))}, but the algorithms are {_listed(self)}"
            )
        for label, algorithm in self.algorithms.items():
            check_local(algorithm, self.local_of(label))
            if lacks_probabilities(algorithm) and not self.knows_p:
                raise UserError(
                    f"{label} needs the probabilities of every round, which a recorded trace does not have; omit it"
                )

    def _check_task_and_algorithms(self) -> None:
        if is_module(self.task):
            raise UserError(
                "task is a torch.nn.Module, which is a network, not a task; expected fedawe.tasks.Classification(data, "
                "fedawe.tasks.ModuleNetwork(make), parts), where make() returns the module"
            )
        if not isinstance(self.task, Task) and not callable(self.task):
            raise UserError(f"task is a {type(self.task).__name__}; expected a Task, or a function of the seed")
        if not isinstance(self.algorithms, Mapping) or not self.algorithms:
            raise UserError("no algorithm given; expected a mapping from labels, as in {'FedAvg': fedawe.FedAvg()}")
        for label, algorithm in self.algorithms.items():
            if not isinstance(label, str) or not label.strip() or label.startswith("."):
                raise UserError(f"the label of an algorithm must be text that can name a folder, not {label!r}")
            if isinstance(algorithm, type):
                raise UserError(f"{label} is a class; expected an object, as in {algorithm.__name__}()")
            missing = [verb for verb in ("init", "start", "aggregate", "model") if not hasattr(algorithm, verb)]
            if missing:
                raise UserError(f"{label} is not an algorithm: {type(algorithm).__name__} has no {', '.join(missing)}")

    def _rounds(self) -> int:
        most = None if self.recorded is None else self.recorded.rounds
        rounds = (most or ROUNDS) if self.rounds is None else self.rounds
        if not is_whole(rounds) or not 1 <= rounds <= MOST:
            raise UserError(f"rounds is {rounds!r}; expected a whole number from 1 to {MOST:,}")
        if most is not None and rounds > most:
            raise UserError(f"rounds is {rounds}, but the recorded trace has {most}; use at most as many")
        return int(rounds)

    @cached_property
    def recorded(self) -> Trace | None:
        """The recorded trace that all seeds share; None if every seed draws its own."""
        if isinstance(self.availability, Trace):
            return self.availability
        if isinstance(self.availability, str | Path):
            return Trace.load(_trace_path(self.availability))
        if isinstance(self.availability, type):
            raise UserError(f"availability is a class; expected an object, as in {self.availability.__name__}()")
        if not hasattr(self.availability, "probabilities"):
            kind = type(self.availability).__name__
            raise UserError(f"availability is a {kind}; expected dynamics, a Trace, or the path of a trace")
        return None

    @property
    def knows_p(self) -> bool:
        """Whether the probabilities of every round are known."""
        return self.recorded is None or self.recorded.knows_p

    def is_evaluated(self, n: int) -> bool:
        """Whether models are evaluated after n rounds: at 0, as `evaluate_every` and `evaluate_last` say, and last."""
        assert self.rounds is not None
        window, every = self.evaluate_last or (0, 1)
        return n % self.evaluate_every == 0 or n == self.rounds or (n > self.rounds - window and n % every == 0)

    def local_of(self, label: str) -> Local:
        """The local training of an algorithm."""
        if not isinstance(self.local, Mapping):
            return self.local
        return self.local.get(label) or self.local.get(DEFAULT) or Local()

    def population(self, seed: int, device: torch.device | None = None) -> Population:
        """The clients of a seed: seed -> partition -> label frequencies -> p_i -> trace."""
        assert self.rounds is not None
        task = self.task if isinstance(self.task, Task) else self.task(seed)
        if not isinstance(task, Task):
            how = "; make it one with Classification(data, ModuleNetwork(make), parts), where make() returns the module"
            raise UserError(
                f"task(seed) returned a {type(task).__name__}; expected a fedawe.tasks.Task"
                f"{how if is_module(task) else ''}"
            )
        check_clients(task)
        if device is not None and hasattr(task, "to"):
            task = task.to(device)
        if self.recorded is not None:
            if self.recorded.clients != task.clients:
                raise UserError(f"the trace has {self.recorded.clients} clients, the task {task.clients}")
            return Population(seed, task, self.recorded.first(self.rounds), None)
        p = self._base_probabilities(task, seed)
        dynamics: Any = self.availability
        trace = Trace.draw(dynamics, p, self.rounds, seed)
        if trace.kept:
            assert trace.p is not None  # computed now, so that invalid dynamics are refused before anything is written
        return Population(seed, task, trace, p)

    def _base_probabilities(self, task: Task, seed: int) -> Array:
        if self.p is not None:
            if len(self.p) not in (1, task.clients):
                raise UserError(f"p has {len(self.p)} numbers for {task.clients} clients; give one, or one for each")
            return np.broadcast_to(self.p, task.clients).copy()
        if task.frequencies is None:
            raise UserError(
                "p is needed: the task has no labels from which the paper's rule could compute the probabilities of "
                "the clients; give one number for all clients, or one for each"
            )
        return probabilities_from_labels(task.frequencies, class_weights(task.frequencies.shape[1], rng(seed, "phi")))

    def algorithm(self, label: str, trace: Trace, sizes: Any = None) -> Algorithm[Any]:
        """The algorithm with the probabilities of the trace and the numbers of samples `sizes` [m], if it uses them."""
        algorithm = with_sizes(self.algorithms[label], sizes)
        if lacks_probabilities(algorithm) and self.knows_p:
            algorithm = with_probabilities(algorithm, trace.probabilities)
        return Received(algorithm) if self.evaluate_received and not is_received_mean(algorithm) else algorithm

    def described(self) -> dict[str, Any]:
        """The settings that all runs share, as JSON values."""
        return dict(self._described)

    @cached_property
    def _described(self) -> dict[str, Any]:
        """Computed once, before the first run: a user's objects may cache results in their fields during a run."""
        return {
            "task": described(self.task),
            "availability": self._described_availability(),
            "p": None if self.p is None else self.p.tolist(),
            "rounds": self.rounds,
            "evaluate_every": self.evaluate_every,
            "evaluate_last": None if self.evaluate_last is None else list(self.evaluate_last),
            "evaluate_received": self.evaluate_received,
        }

    def _described_availability(self) -> dict[str, Any]:
        if self.recorded is None:
            name = getattr(self.availability, "name", "") or type(self.availability).__name__.lower()
            return {**described(self.availability), "title": short(self.availability, name)}
        title = str(self.availability) if isinstance(self.availability, str | Path) else "recorded trace"
        return {"title": title, **described(self.recorded)}

    def title_of(self, label: str) -> str:
        """The display name of an algorithm: its label, but `FedAU (K=20)` for a label like `fedau(K=20)`."""
        algorithm = self.algorithms[label]
        name, _, options = label.partition("(")
        if name != name_of(algorithm).lower():
            return label
        return f"{name_of(algorithm)} ({options}" if options else name_of(algorithm)


def is_module(thing: Any) -> bool:
    """Whether an object is a torch.nn.Module or a subclass of it."""
    return isinstance(thing, torch.nn.Module) or (isinstance(thing, type) and issubclass(thing, torch.nn.Module))


def _trace_path(path: str | Path) -> str | Path:
    """The path of a trace; refuses a name of dynamics, which only the command line accepts."""
    if (dynamics := DYNAMICS.get(str(path).partition(":")[0])) is not None and not Path(path).exists():
        raise UserError(
            f"availability is {str(path)!r}, which is not the path of a trace; for these dynamics give the object "
            f"fedawe.{dynamics.__name__}()"
        )
    return path


def _check_local(local: Any) -> None:
    """Refuses anything but a `Local` or a mapping to `Local`."""
    found = local if isinstance(local, Mapping) else {"": local}
    for label, each in found.items():
        if not isinstance(each, Local):
            of = f" of {label}" if label else ""
            raise UserError(
                f"local{of} is {each!r}; expected how clients train, as in fedawe.Local(fedawe.Rate(0.1), steps=10)"
            )


def _window(given: Any) -> tuple[int, int]:
    found = tuple(given) if isinstance(given, Sequence) else ()
    if len(found) != 2 or not all(is_whole(each) and each >= 1 for each in found):
        raise UserError(
            f"evaluate_last is {given!r}; expected two whole numbers from 1: the number of last rounds, and the number "
            "of rounds between two evaluations among them"
        )
    return int(found[0]), int(found[1])


def _seeds(seeds: Any) -> tuple[int, ...]:
    seeds = seeds.tolist() if isinstance(seeds, np.ndarray | torch.Tensor) else seeds
    found = tuple(seeds) if isinstance(seeds, Sequence | range) else (seeds,)
    if not found:
        raise UserError("no seed given; name at least one")
    for seed in found:
        if not is_whole(seed) or seed < 0:
            raise UserError(f"a seed is a whole number from 0, not {seed!r}")
    if len(set(found)) < len(found):
        raise UserError(f"a seed was given twice: {' '.join(map(str, found))}")
    return tuple(int(seed) for seed in found)


def _listed(experiment: Definition) -> str:
    return ", ".join(experiment.algorithms)
