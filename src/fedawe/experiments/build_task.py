"""Build the task of an experiment from the settings of the command line."""

import dataclasses
import inspect
from collections.abc import Callable, Collection
from functools import partial
from pathlib import Path
from typing import Any, get_args

import numpy as np
import torch

from fedawe.availability.trace import Trace
from fedawe.core.errors import UserError
from fedawe.core.memory import MOST, check_room
from fedawe.experiments import names
from fedawe.experiments.definition import is_module
from fedawe.experiments.names import Spec
from fedawe.experiments.settings import Settings
from fedawe.tasks.base import Task
from fedawe.tasks.data.sets import KNOWN
from fedawe.tasks.models import ModelName
from fedawe.tasks.module import ModuleNetwork
from fedawe.tasks.named import BUNDLED, FILES, NamedTask, is_image_set
from fedawe.tasks.partition import PARTITIONS
from fedawe.tasks.quadratic import Quadratic
from fedawe.tasks.synthetic import Synthetic

TASKS = {"synthetic": Synthetic}
MODELS = get_args(ModelName)


def task_of(settings: Settings, recorded: Trace | None) -> tuple[Task | Callable[[int], Task], Any]:
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
        _model(settings),
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


def _model(settings: Settings) -> Any:
    """The name of a network, or a user's function that builds it; a task of the user's own may have other names."""
    if settings.model is None or settings.model in MODELS or (_is_own(settings.task) and ":" not in settings.model):
        return settings.model
    spec = names.parse(settings.model, "models", dict.fromkeys(MODELS))
    if spec.name in MODELS:
        raise UserError(f"the network {spec.name} has no options, but received {settings.model!r}")
    if isinstance(spec.target, torch.nn.Module):
        raise UserError(f"{settings.model} is a module; expected its class, or a function that builds it")
    made = spec.build()
    if isinstance(made, ModuleNetwork):
        return made
    if not isinstance(made, torch.nn.Module):
        raise UserError(f"{settings.model} gives a {type(made).__name__}; expected a torch.nn.Module")
    options = spec.read_options()
    return partial(spec.target, **options) if options else spec.target


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


def uses_image_set(settings: Settings) -> bool:
    """Whether the task is an image set that `fedawe data` keeps."""
    return settings.task != "quadratic" and not _is_own(settings.task) and is_image_set(settings.task)


def _own_task(spec: Spec, settings: Settings, clients: int | None) -> Task | Callable[[int], Task]:
    """The task of a spec that names an object, a class, or a function of the seed.

    `--clients`, `--model` and `--validation` are passed to options of those names.
    """
    if is_module(spec.target):
        raise UserError(
            f"{settings.task} is a torch.nn.Module, which is a network, not a task; name the data with --task, and the "
            f"network with --model {settings.task}"
        )
    known = {} if isinstance(spec.target, Task) else spec.parameters()
    flags = {"clients": clients, "model": _model(settings), "validation": settings.validation}
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
