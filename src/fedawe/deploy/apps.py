"""Complete apps for Flower: a server app for any algorithm by name, a client app for any module and data loader.

Both read Flower's run configuration (kebab-case keys, see docs/flower.md). A reply of a client app made here contains
the client and the round, so that the server can check both.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence, Sized
from dataclasses import dataclass
from typing import Any

import torch
from flwr.app import ArrayRecord, ConfigRecord, Context, Message, MetricRecord, RecordDict
from flwr.clientapp import ClientApp
from flwr.serverapp import Grid, ServerApp
from torch import Tensor, nn

from fedawe.algorithms import Algorithm, name_of
from fedawe.algorithms.facts import lacks_probabilities
from fedawe.core.describe import described
from fedawe.core.errors import UserError
from fedawe.core.metric import Metric
from fedawe.core.rng import rng
from fedawe.deploy import wire
from fedawe.deploy.about import About
from fedawe.deploy.presence import WHO
from fedawe.deploy.rules import number, options_from
from fedawe.deploy.strategy import FlowerStrategy
from fedawe.deploy.wire import ROUND
from fedawe.experiments.build import algorithm_spec, build_algorithm
from fedawe.tasks.layout import Layout
from fedawe.training.local import Local, Rate

# Keys of a run configuration on which the numbers that a client computes do not depend.
EXECUTION = (
    "algorithm", "num-rounds", "timeout", "quorum", "out", "authenticated", "max-norm", "max-statistics",
    "max-versions", "evaluate", "groups",
)  # fmt: skip
Config = Mapping[str, Any]
Arrays = dict[str, Tensor]


@dataclass(frozen=True)
class Job:
    """The work of a client: train the model `arrays` in round t, replacing a gradient g by g + shift + prox (y - x)."""

    arrays: Arrays
    t: int
    client: int
    config: Config  # the run configuration, updated by the configuration in the server's message
    shift: Tensor | None = None  # added to every gradient, in the order of the layout             [d]
    prox: float = 0.0  # adds prox (y - x) to every gradient; y is the iterate, x the model at the start
    rounds: int = 1  # rounds of local work that the client has to make up for, including this one
    loss: bool = False  # whether the algorithm asks for the loss at the start


class ServerAppError(UserError):
    """A user's mistake that ends a server app; it is logged as one line without a traceback.

    Flower logs an exception of a server app with its `__traceback__`. With SystemExit instead, Flower would not report
    the end to the SuperLink, and the run would never end there.
    """

    @property
    def __traceback__(self) -> None:
        """None, so that only the message is logged."""

    @__traceback__.setter
    def __traceback__(self, value: Any) -> None:
        del value


Train = Callable[[Job], tuple[Arrays, Mapping[str, float]]]
Loader = Iterable[tuple[Tensor, Tensor]]


def client_app_of(train: Train, applies: Sequence[str] = ()) -> ClientApp:
    """The client app that answers every job with `train(job)`: the trained arrays, and metrics.

    `applies` names those of the fields "shift", "prox", "rounds" and "loss" of a job that `train` uses. A message with
    another of these fields is refused, so that no algorithm is silently run as FedAvg. Among the metrics,
    "fedawe-weight" is the number of steps, "fedawe-rate" their learning rate and "fedawe-loss" the loss at the start,
    for algorithms that use them.
    """
    app = ClientApp()

    @app.query(WHO.split(".")[1])
    def who(message: Message, context: Context) -> Message:
        return Message(RecordDict({"who": ConfigRecord({"client-id": client_id(context)})}), reply_to=message)

    @app.train()
    def answer(message: Message, context: Context) -> Message:
        config: Config = {**context.run_config, **next(iter(message.content.config_records.values()))}
        sent = wire.fields_of(message.content)
        if unknown := [name for name in sent if name not in applies]:
            raise UserError(
                f"this client app does not apply {', '.join(unknown)}, which the algorithm sends; use one that does"
            )
        metrics: dict[str, Any] = {}
        trained, found = train(_job(message, client_id(context), config))
        said: dict[str, Any] = {ROUND: config[ROUND], wire.APPLIED: ",".join(sent)}
        for name, value in found.items():
            target = said if name in (wire.WEIGHT, wire.RATE, wire.LOSS) else metrics
            target[name] = value
        content = RecordDict(
            {"arrays": ArrayRecord(trained), "metrics": MetricRecord(metrics), "config": ConfigRecord(said)}
        )
        return Message(content, reply_to=message)

    return app


def _job(message: Message, client: int, config: Config) -> Job:
    records = message.content.array_records
    shift = torch.from_numpy(records[wire.SHIFT][wire.SHIFT].numpy().copy()) if wire.SHIFT in records else None
    return Job(
        dict(next(iter(records.values())).to_torch_state_dict()),
        int(config[ROUND]) - 1,
        client,
        config,
        shift,
        float(config.get(wire.PROX, 0.0)),
        int(config.get(wire.ROUNDS, 1)),
        bool(config.get(wire.LOSS, False)),
    )


def client_id(context: Context) -> int:
    """`client-id` of the node's configuration, or `partition-id`, which is its name in Flower's simulation."""
    said = context.node_config.get("client-id", context.node_config.get("partition-id"))
    if isinstance(said, bool) or not isinstance(said, int):
        raise UserError(f"client-id is {said!r}; start the node with --node-config 'client-id=0' (1, 2, ...)")
    return said


def client_app(
    model: Callable[[], nn.Module],
    data: Callable[[int], Loader],
    loss: Callable[[Tensor, Tensor], Tensor] = nn.functional.cross_entropy,
) -> ClientApp:
    """A client app that trains `model()` on the batches of `data(client)`: `steps` steps of SGD at rate eta_l(t).

    With `precision = "bfloat16"` in the run configuration it computes under `torch.autocast`. All random numbers that
    torch draws during training, also those of a loader that shuffles, are determined by (seed, t, client). The metric
    "num-examples" is the number of samples of the client: those of the loader's `dataset`, or, for other iterables,
    those that the steps used.
    """

    def train(job: Job) -> tuple[Arrays, Mapping[str, float]]:
        torch.manual_seed(int(rng(job.config.get("seed", 0), "client", job.t, job.client).integers(2**63)))
        module = model()
        module.load_state_dict(job.arrays)
        local = local_from(job.config)
        samples, total, steps = 0, 0.0, local.steps
        optimizer = torch.optim.SGD(module.parameters(), lr=local.rate(job.t))
        corrected = _correction(module, job)
        loader = data(job.client)
        for inputs, targets in _batches(loader, steps):
            optimizer.zero_grad()
            with local.autocast(inputs.device):
                value = loss(module(inputs), targets)
            value.backward()
            corrected()
            optimizer.step()
            samples, total = samples + len(targets), total + value.item()
        weight = float(local.weights(None, 1, job.t, job.prox))
        dataset = getattr(loader, "dataset", None)
        metrics = {"num-examples": len(dataset) if isinstance(dataset, Sized) else samples, "train-loss": total / steps}
        return module.state_dict(), {**metrics, wire.WEIGHT: weight, wire.RATE: local.rate(job.t)}

    return client_app_of(train, applies=("shift", "prox"))


def local_from(config: Config) -> Local:
    """The local training of `client_app`, from the run configuration."""
    rate, steps = Rate(number(config, "eta0", 0.1)), number(config, "steps", 10)
    return Local(rate, steps, precision=config.get("precision", "float32"))


def _correction(module: nn.Module, job: Job) -> Callable[[], None]:
    """A function that adds shift and prox (y - x) to the gradients of the module's parameters."""
    named = dict(module.named_parameters())
    starts = {name: parameter.detach().clone() for name, parameter in named.items()} if job.prox else {}
    shifts = {} if job.shift is None else Layout.of(module).parts(job.shift, "parameter")

    def correct() -> None:
        for name, parameter in named.items():
            if parameter.grad is None:
                continue
            if name in shifts:
                parameter.grad.add_(shifts[name])
            if name in starts:
                parameter.grad.add_(parameter.detach() - starts[name], alpha=job.prox)

    return correct


def _batches(loader: Loader, steps: int) -> Iterable[tuple[Tensor, Tensor]]:
    """`steps` batches, from as many epochs as needed."""
    left = steps
    while left > 0:
        before = left
        for batch in loader:
            if left == 0:
                return
            yield batch
            left -= 1
        if left == before:
            raise UserError("the data loader of this client has no batches; give it data, or start no node for it")


def server_app(
    model: Callable[[], nn.Module],
    evaluate: Callable[[nn.Module], Mapping[str, float]] | None = None,
    metrics: tuple[Metric, ...] = (),
) -> ServerApp:
    """A server app that runs the algorithm of the run configuration on the parameters of `model()`.

    `evaluate(module)` returns metrics by name; `metrics` describes them for reports.
    """

    def initial(config: Config) -> Arrays:
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(int(rng(number(config, "seed", 0), "init").integers(2**63)))
            return model().state_dict()

    def evaluated(arrays: Arrays, config: Config) -> Mapping[str, float]:
        del config
        assert evaluate is not None
        module = model()
        module.load_state_dict(arrays)
        return evaluate(module.eval())

    def about(config: Config) -> About:
        local = local_from(config)
        return About(
            task={"model": described(model)},
            local={"rate": described(local.rate), "steps": local.steps, "precision": local.precision},
            metrics=metrics,
            seed=number(config, "seed", 0),
            config={name: value for name, value in config.items() if name not in EXECUTION},
        )

    return server_app_of(initial, evaluated if evaluate is not None else None, about, lambda: Layout.of(model()))


def server_app_of(
    initial: Callable[[Config], Arrays],
    evaluate: Callable[[Arrays, Config], Mapping[str, float]] | None = None,
    about: Callable[[Config], About] = lambda config: About(seed=number(config, "seed", 0)),
    layout: Callable[[], Layout] | None = None,
) -> ServerApp:
    """The server app that starts from the model `initial(config)`. Its record contains `about(config)`.

    `about(config)` may not change when the run is continued.
    """
    app = ServerApp()

    @app.main()
    def main(grid: Grid, context: Context) -> None:
        try:
            serve(grid, context.run_config)
        except UserError as error:
            raise ServerAppError(str(error)) from None

    def serve(grid: Grid, config: Config) -> None:
        def evaluate_fn(n: int, arrays: ArrayRecord) -> MetricRecord | None:
            """The metrics of the model and of the algorithm's further models."""
            del n
            if evaluate is None:
                return None
            found: dict[str, Any] = dict(evaluate(dict(arrays.to_torch_state_dict()), config))
            for name, further in strategy.further_arrays().items():
                more = evaluate(dict(further.to_torch_state_dict()), config)
                found |= {f"{name}_{metric}": value for metric, value in more.items()}
            return MetricRecord(found)

        strategy = FlowerStrategy(
            algorithm_from(config),
            layout=None if layout is None else layout(),
            about=about(config),
            identity="client-id",
            **options_from(config),
        )
        strategy.start(
            grid=grid,
            initial_arrays=ArrayRecord(initial(config)),
            num_rounds=number(config, "num-rounds", 3),
            timeout=number(config, "timeout", 3600.0),
            evaluate_fn=evaluate_fn,
        )

    return app


def algorithm_from(config: Config) -> Algorithm[Any]:
    """The algorithm that the configuration names: `fedawe`, `fedawe:clip=0.5`, `my.rules:Mine:beta=0.9`."""
    spec = algorithm_spec(str(config.get("algorithm", "fedawe")))
    algorithm: Algorithm[Any] = build_algorithm(spec, Local(Rate(number(config, "eta0", 0.1))))
    if lacks_probabilities(algorithm):
        raise UserError(
            f"{name_of(algorithm)} needs the probabilities of every round, which a run configuration cannot contain; "
            "write a server app with FlowerStrategy and give the algorithm p [rounds, clients]"
        )
    return algorithm
