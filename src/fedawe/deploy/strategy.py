"""A Flower strategy around any Algorithm: the server holds every client's model, clients hold nothing."""

import hashlib
import itertools
import time
from collections.abc import Callable, Iterable, Mapping
from logging import WARNING
from typing import Any

import numpy as np
import torch
from flwr.app import ArrayRecord, ConfigRecord, Message, MessageType, MetricRecord, RecordDict
from flwr.serverapp import Grid
from flwr.serverapp.strategy import Result, Strategy
from flwr.supercore import log
from torch import Tensor

from fedawe.algorithms import Algorithm
from fedawe.algorithms.base import State
from fedawe.algorithms.versions import Versions
from fedawe.core.errors import UserError
from fedawe.deploy.checkpoint import Folder, Progress
from fedawe.deploy.identity import Connection, Roster
from fedawe.deploy.metrics import finite_metrics, mean_metrics
from fedawe.deploy.presence import Presence
from fedawe.deploy.results import EvaluateFn, Run, recall, with_round
from fedawe.deploy.rounds import Clock, Close, Desk, Question, tell
from fedawe.deploy.rules import Rules
from fedawe.deploy.wire import ROUND, Layout, Refused, check_round, innovation
from fedawe.results.record import Line


class AlgorithmStrategy(Strategy):
    """Runs `algorithm` over a Flower grid under `rules`; `settings` are kept in the record and must not change.

    A round: every client that is connected gets its own model x_i^t, trains, and returns what it has; whoever answers
    in time with something valid is A, G_i = x_i^t - returned, and the algorithm aggregates. Who is not in A was not
    there, for whatever reason. `result.arrays` is the algorithm's model: for FedAWE x-bar, the mean over all clients.
    """

    def __init__(self, algorithm: Algorithm[Any], rules: Rules, settings: Mapping[str, Any] | None = None) -> None:
        self.algorithm, self.rules, self.settings = algorithm, rules, dict(settings or {})
        self.clock = Clock()

    def summary(self) -> None:
        """To Flower's log: what this is."""
        tell("%r, %r", self.algorithm, self.rules)

    # ------------------------------------------------------------------------------------------------ the whole run

    def start(
        self,
        grid: Grid,
        initial_arrays: ArrayRecord,
        num_rounds: int = 3,
        timeout: float = 3600,
        train_config: ConfigRecord | None = None,
        evaluate_config: ConfigRecord | None = None,
        evaluate_fn: EvaluateFn | None = None,
    ) -> Result:
        """All rounds, or those that `rules.out` says are missing; a round takes at most `timeout` seconds."""
        if num_rounds < 1 or not timeout > 0:
            raise UserError(f"num_rounds is {num_rounds} and timeout {timeout}; expected positive numbers")
        self.summary()
        self.layout = Layout.of(initial_arrays)
        try:
            x0, statistics = self.layout.read(initial_arrays)
        except Refused as error:
            raise UserError(f"initial_arrays: {error}") from None
        fresh: Progress[Any] = Progress(
            self.algorithm.init(x0, self.rules.clients),
            statistics,
            np.zeros((0, self.rules.clients), dtype=bool),
            Roster(self.rules.clients).to_json(),
            None,
        )
        self.desk = Desk(grid, self.clock)
        run = Run(num_rounds, timeout, train_config or ConfigRecord(), evaluate_config or ConfigRecord(), evaluate_fn)
        if self.rules.folder is None:
            self._begin(fresh)
            return self._rounds(grid, run, None)
        meant = {
            "algorithm": repr(self.algorithm),
            "clients": self.rules.clients,
            "parameters": self.layout.described(),
            **self.settings,
        }
        folder: Folder[Any] = Folder(self.rules.folder, meant, self.rules.max_versions)
        with folder.held():
            self._begin(folder.load(fresh, lambda text: log(WARNING, text)))
            return self._rounds(grid, run, folder)

    def _begin(self, progress: Progress[Any]) -> None:
        self.state: State = progress.state
        self.statistics, self.on = progress.statistics, progress.on
        asks = self.rules.identity == "client-id"
        self.roster = Roster(self.rules.clients, self.rules.authenticated, asks)
        self.roster.restore(progress.roster)
        self.presence = Presence(self.roster, self.desk)

    def _rounds(self, grid: Grid, run: Run, folder: Folder[Any] | None) -> Result:
        result = Result(arrays=self.arrays())
        if folder is not None and len(self.on):
            recall(result, folder.lines())
            tell("%s: %d of %d rounds are done", folder.path, len(self.on), run.num_rounds)
        elif run.evaluate_fn is not None and (found := run.evaluate_fn(0, result.arrays)) is not None:
            result.evaluate_metrics_serverapp[0] = found
        for n in range(len(self.on) + 1, run.num_rounds + 1):
            began = time.monotonic()
            line = self._round(n, grid, run, result)
            line["round_seconds"] = round(time.monotonic() - began, 3)
            if folder is not None:
                progress: Progress[Any] = Progress(self.state, self.statistics, self.on, self.roster.to_json(), line)
                self.state = folder.save(progress)
        if folder is not None:
            model = result.arrays.to_torch_state_dict()
            folder.finish({name: tensor.contiguous() for name, tensor in model.items()}, len(self.on))
        return result

    def _round(self, n: int, grid: Grid, run: Run, result: Result) -> Line:
        """Round n, from 1: ask, collect, aggregate, evaluate; its line for the record."""
        replies, closed = self._trained_by_clients(n, grid, run, result.arrays)
        trained, metrics = self.aggregate_train(n, replies)
        assert trained is not None
        result.arrays = trained
        line: Line = {
            "kind": "evaluation",
            "round": n,
            "active": int(self.on[-1].sum()),
            "clients": np.flatnonzero(self.on[-1]).tolist(),
            "closed": closed,
            "refused": dict(sorted(self.desk.tally.refused.items())),
            "bytes_down": self.desk.tally.bytes_down,
            "bytes_up": self.desk.tally.bytes_up,
        }
        if isinstance(self.state, Versions):
            line["live_versions"] = len(self.state.models)
        if metrics is not None:
            result.train_metrics_clientapp[n] = metrics
            line["train"] = finite_metrics(metrics)
        if self.rules.evaluate and (found := self._evaluated_by_clients(n, grid, run, trained)) is not None:
            result.evaluate_metrics_clientapp[n] = found
            line["clients_evaluate"] = finite_metrics(found)
        if run.evaluate_fn is not None and (found := run.evaluate_fn(n, result.arrays)) is not None:
            result.evaluate_metrics_serverapp[n] = found
            line["evaluate"] = finite_metrics(found)
        tell("[ROUND %d/%d] %s", n, run.num_rounds, {k: v for k, v in line.items() if k not in ("kind", "round")})
        return line

    def _trained_by_clients(self, n: int, grid: Grid, run: Run, arrays: ArrayRecord) -> tuple[list[Message], Close]:
        """The valid replies of round n, and why it ended."""
        self.innovations: dict[str, tuple[int, Tensor, Tensor]] = {}  # by message: client, G [d], statistics [b]
        # An overridden hook may change the configuration, once a round: who comes later in the round gets the same.
        before = dict(run.train_config)
        configs = itertools.chain([run.train_config], (ConfigRecord(dict(before)) for _ in itertools.count()))

        def ask() -> Iterable[Message]:
            self.desk.ask(self.presence.look(grid, len(self.on)))
            return self.configure_train(n, arrays, next(configs), grid) if self.presence.free() else []

        return self._exchange(run.timeout, ask, lambda question, reply: self._is_innovation(question, reply, n))

    def _evaluated_by_clients(self, n: int, grid: Grid, run: Run, arrays: ArrayRecord) -> MetricRecord | None:
        """The mean of what clients say of the model."""
        replies, _ = self._exchange(
            run.timeout, lambda: self.configure_evaluate(n, arrays, run.evaluate_config, grid), lambda *_: True
        )
        return self.aggregate_evaluate(n, replies)

    def _exchange(
        self, timeout: float, ask: Callable[[], Iterable[Message]], valid: Callable[[Question, Message], bool]
    ) -> tuple[list[Message], Close]:
        """Messages out, valid replies in, until it is over."""
        self.desk.open(timeout)
        replies: list[Message] = []
        while True:
            for question, reply in self.desk.answers():
                if valid(question, reply):
                    self.desk.in_time(question)
                    replies.append(reply)
            self.desk.ask([(*self.presence.addressee(message), message) for message in ask()])
            closed = self.desk.closed(len(replies), self.rules.quorum)
            if closed is not None:
                return replies, closed
            self.desk.pause()

    def _is_innovation(self, question: Question, reply: Message, n: int) -> bool:
        """Whether a reply is an innovation of this round; a reply that says who a node is, is remembered."""
        try:
            if question.client is None:
                self.presence.introduce(question, reply)
                return False
            check_round(reply.content, n, required=self.rules.identity == "client-id")
            assert question.sent is not None
            x, _ = self.layout.read(next(iter(question.sent.array_records.values())))  # x_i^t, as it was sent
            G, statistics = innovation(self.layout, reply.content, x, self.rules.max_norm)
        except Refused as error:
            self.desk.tally.refuse(error, f"client {question.client}, node {question.to.node}")
            return False
        except Exception as error:  # whatever a stranger can make Flower's records do when they are looked at
            found = Refused("malformed", f"{type(error).__name__}: {error}"[:300])
            self.desk.tally.refuse(found, f"client {question.client}, node {question.to.node}")
            return False
        self.innovations[reply.metadata.reply_to_message_id] = (question.client, G, statistics)
        return True

    # -------------------------------------------------------------------------------------- Flower's hooks of a round

    def configure_train(
        self, server_round: int, arrays: ArrayRecord, config: ConfigRecord, grid: Grid
    ) -> Iterable[Message]:
        """A message for each client that is there, has not been asked in this round, and is not still at work."""
        del arrays, grid  # every client has its own
        free = self.presence.free()
        sent: dict[bytes, ArrayRecord] = {}  # clients on the same version share one record, and so one upload
        out = []
        for client, one in free.items():
            x = self.algorithm.start(self.state, torch.tensor([client]))[0]  # x_i^t                  [d]
            version = hashlib.sha256(x.numpy().tobytes()).digest()
            if version not in sent:
                sent[version] = self.layout.record(x, self.statistics)
            out.append(self._message(MessageType.TRAIN, one, sent[version], config, server_round))
        return out

    def aggregate_train(
        self, server_round: int, replies: Iterable[Message]
    ) -> tuple[ArrayRecord | None, MetricRecord | None]:
        """The algorithm's step, with whoever answered; an empty round is a round too."""
        replies = list(replies)
        taken = [self.innovations[reply.metadata.reply_to_message_id] for reply in replies]
        t, d = server_round - 1, len(self.state.latest)
        A = torch.tensor([client for client, _, _ in taken], dtype=torch.int64)
        G = torch.stack([g for _, g, _ in taken]) if taken else self.state.latest.new_empty((0, d))
        self.state = self.algorithm.aggregate(self.state, t, A, G)
        if taken:
            order = A.argsort()
            self.statistics = torch.stack([statistics for _, _, statistics in taken])[order].mean(0)
        self.on = with_round(self.on, A)
        self.innovations = {}
        return self.arrays(), mean_metrics([reply.content for reply in replies], self.rules.weighted_by)

    def configure_evaluate(
        self, server_round: int, arrays: ArrayRecord, config: ConfigRecord, grid: Grid
    ) -> Iterable[Message]:
        """The model to each client that is there, if `rules.evaluate`."""
        del grid
        if not self.rules.evaluate:
            return []
        free = self.presence.free().values()
        return [self._message(MessageType.EVALUATE, one, arrays, config, server_round) for one in free]

    def aggregate_evaluate(self, server_round: int, replies: Iterable[Message]) -> MetricRecord | None:
        """The mean, weighted by samples."""
        del server_round
        return mean_metrics([reply.content for reply in replies], self.rules.weighted_by)

    def _message(self, kind: str, to: Connection, arrays: ArrayRecord, config: ConfigRecord, n: int) -> Message:
        said = ConfigRecord({**config, ROUND: n})
        content = RecordDict({self.rules.arrays_key: arrays, self.rules.config_key: said})
        return Message(content, to.node, kind, ttl=self.desk.ttl(), group_id=str(n))

    def arrays(self) -> ArrayRecord:
        """The model to evaluate or to ship, as named arrays."""
        return self.layout.record(self.algorithm.model(self.state), self.statistics)
