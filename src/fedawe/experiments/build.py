"""Build an experiment from the settings and specs of the command line."""

import dataclasses
import itertools
from collections.abc import Mapping, Sequence
from typing import Any, get_origin

from fedawe.algorithms import AGGREGATORS, ALGORITHMS, CHOOSERS, PAPER, Algorithm, Chosen, Robust, name_of
from fedawe.algorithms.choosing import Chooser
from fedawe.algorithms.facts import lacks_probabilities
from fedawe.algorithms.robust import Aggregator
from fedawe.availability.dynamics import DYNAMICS, Dynamics
from fedawe.availability.trace import Trace
from fedawe.core.errors import UserError
from fedawe.experiments import names
from fedawe.experiments.build_task import task_of, uses_image_set
from fedawe.experiments.experiment import Experiment
from fedawe.experiments.names import Spec
from fedawe.experiments.settings import OWN, STEPS, Settings, is_recorded
from fedawe.training.local import Local, Rate
from fedawe.training.optimisers import OPTIMISERS, SGD, Adam

ADAM_RATE = 0.001  # eta0 where clients use Adam
RATES = {"quadratic": 0.005, "chars": 1.0}  # eta0 of tasks for which 0.1 is not a good choice


def experiment_of(settings: Settings, algorithms: Sequence[str] = (), seeds: Sequence[int] = (0, 1, 2)) -> Experiment:
    """The experiment with these settings; without names, it has those of the paper's algorithms that can run."""
    availability = _availability(settings)
    recorded = availability if isinstance(availability, Trace) else None
    task, p = task_of(settings, recorded)
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
    batch = settings.batch if settings.batch is not None else 128 if uses_image_set(settings) else 32
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
