"""Build an experiment from the settings and specs of the command line."""

import dataclasses
import inspect
import itertools
from collections.abc import Callable, Collection, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any, get_origin

import numpy as np
import torch

from fedawe.algorithms import AGGREGATORS, ALGORITHMS, CHOOSERS, PAPER, Algorithm, Chosen, Robust, name_of
from fedawe.algorithms.choosing import Chooser
from fedawe.algorithms.facts import lacks_probabilities
from fedawe.algorithms.robust import Aggregator
from fedawe.availability.dynamics import DYNAMICS, Dynamics
from fedawe.availability.trace import Trace
from fedawe.core.errors import UserError
from fedawe.core.memory import MOST, check_room
from fedawe.experiments import names
from fedawe.experiments.definition import is_module
from fedawe.experiments.experiment import Experiment
from fedawe.experiments.names import Spec
from fedawe.experiments.settings import OWN, STEPS, Settings, is_recorded
from fedawe.tasks.base import Task
from fedawe.tasks.data.sets import KNOWN
from fedawe.tasks.named import BUNDLED, FILES, NamedTask, is_image_set
from fedawe.tasks.partition import PARTITIONS
from fedawe.tasks.quadratic import Quadratic
from fedawe.tasks.synthetic import Synthetic
from fedawe.training.local import Local, Rate
from fedawe.training.optimisers import OPTIMISERS, SGD, Adam

TASKS = {"synthetic": Synthetic}
ADAM_RATE = 0.001  # eta0 where clients use Adam
RATES = {"quadratic": 0.005, "chars": 1.0}  # eta0 of tasks for which 0.1 is not a good choice


def experiment_of(settings: Settings, algorithms: Sequence[str] = (), seeds: Sequence[int] = (0, 1, 2)) -> Experiment:
    """The experiment with these settings; without names, it has those of the paper's algorithms that can run."""
    availability = _availability(settings)
    recorded = availability if isinstance(availability, Trace) else None
    task, p = _task(settings, recorded)
    knows_p = recorded is None or recorded.knows_p
    chosen = algorithms or [name for name in _paper() if knows_p or not lacks_probabilities(ALGORITHMS[name]())]
    common, built, own, targets = _local(settings), {}, {}, dict[str, Any]()
    for text in chosen:
        spec = algorithm_spec(text)
        if targets.setdefault(spec.label, spec.target) is not spec.target:
            raise UserError(f"{text} and another algorithm are both called {spec.label}; rename one of the classes")
        if spec.label in built:
            raise UserError(f"an algorithm was given twice: {' '.join(chosen)}")
        own[spec.label] = _own(spec, common, settings.schedule)
        built[spec.label] = build_algorithm(spec, own[spec.label])
        if settings.aggregate is not None:
            built[spec.label] = Robust(built[spec.label], aggregator_of(settings.aggregate))
        if settings.choose is not None:
            built[spec.label] = Chosen(built[spec.label], chooser_of(settings.choose))
    _check_distinct(built, own)
    return Experiment(
        task=task,
        algorithms=built,
        availability=settings.dynamics if recorded is not None and not settings.round_seconds else availability,
        p=p,
        local=own,
        rounds=settings.rounds,
        seeds=seeds,
        evaluate_every=settings.evaluate_every,
        evaluate_last=settings.evaluate_last,
        evaluate_received=settings.evaluate_received,
    )


def _check_distinct(built: Mapping[str, Any], local: Mapping[str, Local]) -> None:
    """Refuses one algorithm under two names, as in `fedawe fedawe:eta_g=1.0`: it would be compared with itself."""
    for one, other in itertools.combinations(built, 2):
        if local[one] == local[other] and _equal(built[one], built[other]):
            raise UserError(f"{one} and {other} are the same algorithm with the same local training; omit one of them")


def _equal(one: Any, other: Any) -> bool:
    try:
        return bool(one == other)
    except Exception:  # comparing objects of a user's class may raise anything, for instance if they hold tensors
        return False


def _paper() -> list[str]:
    return [name_of(algorithm).lower() for algorithm in PAPER]


def algorithm_spec(text: str) -> Spec:
    """Read the spec of an algorithm: `fedau:K=20`, `my.rules:Mine:beta=0.9`."""
    return names.parse(text, "algorithms", ALGORITHMS)


def build_algorithm(spec: Spec, local: Local | None = None) -> Any:
    """Build the algorithm of a spec. With `memory_rate=local` it receives the learning rate of its clients.

    An option may itself be an algorithm, a chooser or an aggregation: `fedadam:rule=fedau(K=20),eta_s=0.1`.
    """
    spec, given = spec.without(*_own_keys(spec)), dict[str, Any]()
    if spec.options.get("memory_rate") == "local" and local is not None:
        given["memory_rate"] = local.rate
    hints = spec.parameters()
    for key, text in spec.options.items():
        kind = get_origin(hints.get(key)) or hints.get(key)
        if kind is Algorithm:
            given[key] = build_algorithm(algorithm_spec(names.nested(text)), local)
        elif kind is Chooser:
            given[key] = chooser_of(names.nested(text))
        elif kind is Aggregator:
            given[key] = aggregator_of(names.nested(text))
    return spec.without(*given).build(**given)


def chooser_of(text: str) -> Chooser:
    """Build the chooser of a spec such as `uniform:k=20`."""
    found: Chooser = names.parse(text, "choosers", CHOOSERS).build()
    return found


def aggregator_of(text: str) -> Aggregator:
    """Build the robust aggregation of a spec such as `trimmed:share=0.1`."""
    found: Aggregator = names.parse(text, "aggregators", AGGREGATORS).build()
    return found


def _own_keys(spec: Spec) -> list[str]:
    """The options of a spec that are settings of local training, unless the algorithm has an option of that name."""
    return [key for key in OWN if key in spec.options and key not in spec.parameters()]


def _own(spec: Spec, common: Local, schedule: Any) -> Local:
    """The local training of an algorithm: that of all others, with `eta0` and `clip_grad` from its own options."""
    own: dict[str, float] = {}
    for key in _own_keys(spec):
        try:
            own[key] = float(spec.options[key])
        except ValueError:
            raise UserError(f"{spec.name}:{key} is {spec.options[key]!r}; expected a number") from None
    try:
        rate = Rate(own["eta0"], schedule) if "eta0" in own else common.rate
        return dataclasses.replace(common, rate=rate, clip_grad=own.get("clip_grad", common.clip_grad))
    except UserError as error:
        raise UserError(f"{spec.label}: {error}") from None


def _local(settings: Settings) -> Local:
    if settings.steps is not None and settings.epochs is not None:
        raise UserError(
            f"steps is {settings.steps} and epochs is {settings.epochs}, but epochs replace steps; omit one of the two"
        )
    optimiser, lr = _optimiser(settings)
    default = ADAM_RATE if isinstance(optimiser, Adam) else RATES.get(settings.task, 0.1)
    eta0 = next((rate for rate in (settings.eta0, lr) if rate is not None), default)
    batch = settings.batch if settings.batch is not None else 128 if _is_image_set(settings) else 32
    rate = Rate(eta0, settings.schedule)
    return Local(
        rate,
        STEPS if settings.steps is None else settings.steps,
        batch,
        settings.clip_grad,
        settings.batches,
        optimiser=optimiser,
        epochs=settings.epochs,
        precision=settings.precision,
    )


def _optimiser(settings: Settings) -> tuple[SGD | Adam | None, float | None]:
    """The local optimiser and its learning rate, from a spec such as `adam:lr=0.001`."""
    if settings.optimiser is None:
        return None, None
    spec = names.parse(settings.optimiser, "optimisers", OPTIMISERS)
    spec.check_options(["lr", *spec.parameters()])
    lr = spec.options.get("lr")
    if lr is not None and settings.eta0 is not None:
        raise UserError(f"the local learning rate was given twice: eta0 is {settings.eta0:g} and lr {lr}; omit one")
    try:
        rate = None if lr is None else float(lr)
    except ValueError:
        raise UserError(f"{spec.name}:lr is {lr!r}; expected a number") from None
    return spec.without("lr").build(), rate


def _availability(settings: Settings) -> Dynamics | Trace:
    if is_recorded(settings.dynamics):
        return Trace.load(settings.dynamics, round_seconds=settings.round_seconds, clients=settings.clients)
    if settings.round_seconds is not None:
        raise UserError(
            f"round_seconds is {settings.round_seconds:g}, but {settings.dynamics} is not a recorded trace of "
            "intervals in seconds; omit it (--round-seconds)"
        )
    spec = names.parse(settings.dynamics, "availability", DYNAMICS)
    found = spec.build()
    if not isinstance(found, Trace) and not hasattr(found, "probabilities"):
        raise UserError(f"{settings.dynamics} is a {type(found).__name__}; expected dynamics or a Trace")
    out: Dynamics | Trace = found
    return out


def _task(settings: Settings, recorded: Trace | None) -> tuple[Task | Callable[[int], Task], Any]:
    """The task, and the base probabilities or None."""
    p: Any = settings.p or None
    if recorded is not None and settings.clients not in (None, recorded.clients):
        raise UserError(
            f"clients is {settings.clients}, but {settings.dynamics} has {recorded.clients}; omit it (--clients)"
        )
    # The number of clients, or None if only the data determines it.
    clients = settings.clients
    if clients is None:
        clients = recorded.clients if recorded is not None else len(settings.p) if len(settings.p) > 1 else None
    if clients is not None and not 1 <= clients <= MOST:
        raise UserError(f"clients is {clients}; expected a whole number from 1 to {MOST:,}")
    if p is not None and clients is not None and len(p) not in (1, clients):
        raise UserError(f"p has {len(p)} numbers for {clients} clients; give one for all or one for each")
    if settings.task == "quadratic":
        return _quadratic(settings, clients or 2, p, recorded)
    _refuse_options(settings.task)
    if _is_own(settings.task):
        return _own_task(names.parse(settings.task, "tasks", TASKS), settings, clients), p
    named = NamedTask(
        settings.task,
        settings.model,
        settings.clients,
        settings.alpha,
        settings.image_size,
        settings.augment or ("image" if is_image_set(settings.task) else "none"),
        settings.keep_empty,
        settings.data,
        _partition(settings),
        settings.validation,
        settings.evaluate_on or None,
    )
    if clients is not None and isinstance(named.partition, str) and named.partition != "natural":
        named = dataclasses.replace(named, clients=clients)
    return named, p


def _quadratic(settings: Settings, clients: int, p: Any, recorded: Trace | None) -> tuple[Task, Any]:
    if settings.image_size is not None or settings.evaluate_received:
        raise UserError("image_size and evaluate_received are for data; omit them for quadratic")
    _refuse_unused(settings, ())
    check_room(f"a quadratic for each of {clients:,} clients", 8 * 8 * clients, "use fewer clients")
    if p is None and recorded is None:
        p = np.linspace(0.9, 0.3, clients)  # clients with a smaller optimum are available more often
    return Quadratic(torch.linspace(0, 100, clients, dtype=torch.float64)[:, None]), p


def _partition(settings: Settings) -> Any:
    """The name of a partition, or a user's function (labels, seed); an option `clients` of it receives `--clients`."""
    if settings.partition is None or settings.partition in PARTITIONS:
        return settings.partition
    spec = names.parse(settings.partition, "partitions", dict.fromkeys(PARTITIONS))
    if spec.name in PARTITIONS or not callable(spec.target):
        raise UserError(
            f"partition is {settings.partition!r}; expected {', '.join(PARTITIONS)} without options, or a function "
            "(labels, seed) that gives the samples of each client"
        )
    known = spec.parameters()
    given = {"clients": settings.clients} if settings.clients is not None and "clients" in known else {}
    options = {**given, **spec.read_options(*given, "labels", "seed")}
    return partial(spec.target, **options) if options else spec.target


def _refuse_options(task: str) -> None:
    """Refuses options after the name of a task that has no options."""
    name, colon, options = task.partition(":")
    if colon and (name in ("quadratic", *BUNDLED, *KNOWN) or Path(name).suffix in FILES):
        raise UserError(
            f"the task {name} takes no options, but received {options!r}; use flags such as --clients, "
            "--alpha or --model"
        )


def _is_own(task: str) -> bool:
    """Whether the task is made by a class or function that takes options."""
    return ":" in task or task in TASKS or task in names.registered("tasks")


def _is_image_set(settings: Settings) -> bool:
    return settings.task != "quadratic" and not _is_own(settings.task) and is_image_set(settings.task)


def _own_task(spec: Spec, settings: Settings, clients: int | None) -> Task | Callable[[int], Task]:
    """The task of a spec that names an object, a class, or a function of the seed.

    `--clients`, `--model` and `--validation` are passed to options of those names.
    """
    if is_module(spec.target):
        raise UserError(
            f"{settings.task} is a torch.nn.Module, which is a network, not a task; write a function of the seed that "
            f"returns fedawe.tasks.Classification(data, fedawe.tasks.ModuleNetwork({spec.name}), parts), and give its "
            "name"
        )
    known = {} if isinstance(spec.target, Task) else spec.parameters()
    flags = {"clients": clients, "model": settings.model, "validation": settings.validation}
    given = {name: value for name, value in flags.items() if value is not None and name in known}
    _refuse_unused(settings, given, known)
    if isinstance(spec.target, Task):
        return spec.target
    if not callable(spec.target):
        raise UserError(f"{settings.task} is a {type(spec.target).__name__}; expected a task, its class or a function")
    options = {**given, **spec.read_options(*given, "seed")}
    if "seed" in known or not isinstance(spec.target, type):
        return partial(spec.target, **options) if options else spec.target
    required = [each for each in inspect.signature(spec.target).parameters.values() if each.default is each.empty]
    missing = [each.name for each in required if each.name not in options and each.kind is each.POSITIONAL_OR_KEYWORD]
    if missing:
        raise UserError(f"{settings.task} needs {', '.join(missing)}; write {settings.task}:{missing[0]}=...")
    made: Any = spec.target(**options)
    if not isinstance(made, Task) and not callable(made):
        raise UserError(f"{settings.task} is not a fedawe.tasks.Task; derive it from fedawe.tasks.Task")
    out: Task | Callable[[int], Task] = made
    return out


def _refuse_unused(settings: Settings, used: Collection[str], options: Collection[str] = ()) -> None:
    """Refuses flags about the partition of data, for a task that does not use them; it has `options` of its own."""
    default = Settings()
    for name in ("model", "image_size", "partition", "alpha", "validation", "augment", "keep_empty", "evaluate_on"):
        if name not in used and getattr(settings, name) != getattr(default, name):
            flag, mark = f"--{name.replace('_', '-')}", "," if "=" in settings.task else ":"
            instead = f", or write {settings.task}{mark}{name}=..." if name in options else ""
            raise UserError(f"{flag} has no meaning for the task {settings.task}; omit it{instead}")
