"""A grid in memory, with time of its own: nodes come, go, answer late, twice, or with whatever a test wants."""

import fedawe.deploy  # noqa: F401  # first, since it takes care of the warnings of what Flower imports

# isort: split
import heapq
import itertools
import threading
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any

import torch
from flwr.app import ArrayRecord, Context, Error, Message, RecordDict
from flwr.clientapp import ClientApp
from flwr.proto.node_pb2 import NodeInfo
from flwr.serverapp import Grid
from flwr.supercore.run import Run
from flwr.supercore.task_identity import TaskIdentity

from fedawe.deploy import FlowerStrategy, digits
from fedawe.deploy.apps import algorithm_from
from fedawe.deploy.checkpoint import run_of
from fedawe.deploy.rounds import Clock
from fedawe.results import record as records
from fedawe.results.record import Record

Answers = Iterable[tuple[float, Message]]  # seconds until it arrives, and what
Behaviour = Callable[[Message, Callable[[], Message]], Answers]
TIMEOUT = 30.0
CONFIG: dict[str, Any] = {"clients": 4, "model": "norm", "steps": 2, "batch": 8, "alpha": 5.0, "eta0": 0.3}


def honest(_: Message, reply: Callable[[], Message]) -> Answers:
    """In time."""
    return [(1.0, reply())]


class FakeGrid(Grid):
    """What a SuperLink does, and nothing of what it forbids: every reply that a test can think of gets through."""

    def __init__(self, app: ClientApp | None = None, config: dict[str, Any] | None = None) -> None:
        TaskIdentity.run_id, TaskIdentity.node_id, TaskIdentity.task_id = 1, 1, 1
        self.app, self.config = app or digits.client_app(), CONFIG if config is None else config
        self.time, self.number = 0.0, itertools.count(1)
        self.nodes: dict[int, NodeInfo] = {}
        self.node_config: dict[int, dict[str, Any]] = {}
        self.behaviour: dict[int, Behaviour] = {}
        self.lock = threading.Lock()
        self.due: list[tuple[float, int, Message]] = []
        self.plans: list[tuple[float, int, Callable[[], None]]] = []  # what happens when
        self.sent: list[Message] = []
        self.clock = Clock(lambda: self.time, self.sleep)

    # Nodes

    def connect(
        self, node: int, client: int | None = None, behaviour: Behaviour = honest, key: bytes = b"", config: Any = None
    ) -> None:
        """A node is there from now on."""
        self.nodes[node] = NodeInfo(node_id=node, last_activated_at=f"{self.time:012.3f}", public_key=key)
        self.node_config[node] = config or ({} if client is None else {"client-id": client})
        self.behaviour[node] = behaviour

    def disconnect(self, node: int) -> None:
        del self.nodes[node]

    def plan(self, seconds: float, what: Callable[[], None]) -> None:
        """At that time."""
        heapq.heappush(self.plans, (seconds, next(self.number), what))

    def sleep(self, seconds: float) -> None:
        self.time += seconds
        while self.plans and self.plans[0][0] <= self.time:
            heapq.heappop(self.plans)[2]()

    # Flower's interface

    def set_run(self, run: Run) -> None:
        raise AssertionError("a strategy does not call this")

    @property
    def run(self) -> Run:
        raise AssertionError("a strategy does not call this")

    def create_message(self, *_: Any, **__: Any) -> Message:
        raise AssertionError("a strategy does not call this")

    def send_and_receive(self, messages: Iterable[Message], *, timeout: float | None = None) -> Iterable[Message]:
        raise AssertionError("it would wait for everyone")

    def get_node_ids(self) -> Iterable[int]:
        return list(self.nodes)

    def get_nodes(self) -> Iterable[NodeInfo]:
        return list(self.nodes.values())

    def push_messages(self, messages: Iterable[Message]) -> Iterable[str]:
        ids = []
        for message in messages:
            message.metadata.__dict__["_message_id"] = f"message-{next(self.number)}"
            ids.append(message.metadata.message_id)
            self.sent.append(message)
            node = message.metadata.dst_node_id
            if node not in self.nodes:
                continue
            for seconds, reply in self.behaviour[node](message, lambda m=message, n=node: self.answer(m, n)):
                self.deliver(seconds, reply)
        return ids

    def answer(self, message: Message, node: int) -> Message:
        """What the client app says; an exception is an answer too."""
        try:
            return self.app(message, Context(1, node, self.node_config[node], RecordDict(), dict(self.config)))
        except Warning:
            raise
        except Exception as error:
            return Message(Error(2, str(error)), reply_to=message)

    def deliver(self, seconds: float, reply: Message) -> None:
        heapq.heappush(self.due, (self.time + seconds, next(self.number), reply))

    def pull_messages(self, message_ids: Iterable[str]) -> Iterable[Message]:
        """Everything that is due, whether asked for or not."""
        found = []
        with self.lock:
            while self.due and self.due[0][0] <= self.time:
                found.append(heapq.heappop(self.due)[2])
        return found


def strategy_on(grid: FakeGrid, out: Path | None, **rules: Any) -> FlowerStrategy:
    """The strategy that the digits app would run on this grid."""
    given = {"identity": "client-id", "clients": grid.config["clients"], **rules}
    strategy = FlowerStrategy(algorithm_from(grid.config), about=digits.about(grid.config), out=out, **given)
    strategy.clock = grid.clock
    return strategy


def run_digits(grid: FakeGrid, out: Path | None, rounds: int, **rules: Any) -> FlowerStrategy:
    """All rounds; what is left of the strategy then."""
    strategy = strategy_on(grid, out, **rules)
    strategy.start(grid, ArrayRecord(digits.initial(grid.config)), num_rounds=rounds, timeout=TIMEOUT)
    return strategy


def shipped(strategy: FlowerStrategy) -> torch.Tensor:
    """The model, [d + b]."""
    return strategy.session.model()


def rounds_in(out: Path) -> list[dict[str, Any]]:
    """What the record says of every round."""
    return record_in(out).rounds


def record_in(out: Path) -> Record:
    return records.read(run_of(out) / records.NAME)


def connected(clients: Sequence[int] = range(4), config: dict[str, Any] | None = None) -> FakeGrid:
    """A grid on which node 100 + i is client i."""
    grid = FakeGrid(config=None if config is None else {**CONFIG, **config})
    for client in clients:
        grid.connect(100 + client, client)
    return grid
