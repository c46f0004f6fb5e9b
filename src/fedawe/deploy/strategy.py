"""A Flower strategy that runs any Algorithm. The server stores the models of all clients; clients store nothing."""

import hashlib
import itertools
import secrets
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from logging import WARNING
from typing import Any

import numpy as np
from flwr.app import ArrayRecord, ConfigRecord, Message, MessageType, MetricRecord, RecordDict
from flwr.serverapp import Grid
from flwr.serverapp.strategy import Result, Strategy
from flwr.supercore import log

from fedawe.algorithms import Algorithm
from fedawe.algorithms.buffers import with_buffers
from fedawe.algorithms.exchange import chooses, reads_more_than_innovations
from fedawe.algorithms.facts import deployed_form, lacks_probabilities, name_of, with_seed
from fedawe.core.errors import UserError
from fedawe.deploy import wire
from fedawe.deploy.about import About, check_recordable, deployment_header
from fedawe.deploy.checkpoint import Folder
from fedawe.deploy.identity import Connection, Roster
from fedawe.deploy.metrics import finite, finite_metrics, mean_metrics, metrics_by_group, read_groups, recalled
from fedawe.deploy.presence import Presence
from fedawe.deploy.rounds import Clock, Close, Desk, Question, tell
from fedawe.deploy.rules import checked_rules
from fedawe.deploy.session import Session
from fedawe.deploy.wire import ROUND, Refused, Reply
from fedawe.results.record import Line
from fedawe.tasks.layout import Layout

EvaluateFn = Callable[[int, ArrayRecord], MetricRecord | None]
RESERVED = ("kind", "round", "active", "crc")  # names of fields of an evaluation, which metrics may not have


@dataclass(frozen=True)
class Run:
    """The arguments of `start`."""

    num_rounds: int
    timeout: float
    train_config: ConfigRecord
    evaluate_config: ConfigRecord
    evaluate_fn: EvaluateFn | None


class FlowerStrategy(Strategy):
    """Runs `algorithm` over a Flower grid; the options are those of `fedawe.deploy.Rules`, and `clients` is required.

    In a round every connected client receives its own model x_i^t, trains it, and returns it. The clients that send a
    valid reply in time are the active clients A. Their innovations are G_i = x_i^t - returned, which the algorithm
    aggregates. `result.arrays` is the algorithm's model.

    layout  which arrays are parameters and which are buffers (`Layout.of(module)`); by default the names decide, and
            running means and variances are buffers
    about   the description of the deployment for the record
    """

    def __init__(
        self, algorithm: Algorithm[Any], *, layout: Layout | None = None, about: About | None = None, **options: Any
    ) -> None:
        self.rules = checked_rules(options)
        if isinstance(algorithm, type) or not hasattr(algorithm, "aggregate"):
            raise UserError(f"algorithm is {algorithm!r}; expected an object such as fedawe.FedAWE()")
        if lacks_probabilities(algorithm):
            raise UserError(f"{name_of(algorithm)} needs the probabilities of every round; give it p [rounds, clients]")
        self.given = algorithm
        self.algorithm: Algorithm[Any] = deployed_form(algorithm)
        self.about, self.known_layout = about or About(), layout
        self.groups = {} if self.rules.groups is None else read_groups(self.rules.groups, self.rules.clients)
        self.clock = Clock()

    def summary(self) -> None:
        """Write the algorithm and the options to Flower's log."""
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
        """Run all rounds, or those that are missing in `out`; a round takes at most `timeout` seconds."""
        if num_rounds < 1 or not timeout > 0:
            raise UserError(f"num_rounds is {num_rounds} and timeout is {timeout}; expected positive numbers")
        self.summary()
        layout = wire.checked_layout(self.known_layout, initial_arrays)
        x0, rules = wire.read(layout, initial_arrays), self.rules
        roster = Roster(rules.clients, rules.authenticated, rules.identity == "client-id")
        # The seed of the noise is only in memory and new after every start: no round is repeated with the same noise.
        algorithm = with_seed(self.algorithm, secrets.randbits(256))
        self.session = Session(with_buffers(algorithm, layout.buffers), layout, x0, roster)
        self.needs_facts = reads_more_than_innovations(self.algorithm)
        self.desk = Desk(grid, self.clock)
        self.presence = Presence(roster, self.desk)
        run = Run(num_rounds, timeout, train_config or ConfigRecord(), evaluate_config or ConfigRecord(), evaluate_fn)
        if rules.folder is None:
            return self._rounds(grid, run, None)
        check_recordable(run.train_config)
        header = deployment_header(self.about, self.given, self.algorithm, layout, rules.clients, num_rounds)
        header["deployment"] |= {
            "train_config": dict(run.train_config),
            "keys": [rules.arrays_key, rules.config_key],
            "weighted_by": rules.weighted_by,
        }
        folder = Folder(rules.folder, header, rules.max_versions)
        with folder.held():
            self.session.restore(folder.load(self.session.progress(), lambda text: log(WARNING, text)))
            return self._rounds(grid, run, folder)

    def _rounds(self, grid: Grid, run: Run, folder: Folder | None) -> Result:
        session, result = self.session, Result(arrays=self.arrays())
        if folder is not None and session.rounds:
            recalled(result, folder.record(), {*RESERVED, *session.diagnostics()})
            tell("%s: %d of %d rounds are done", folder.out, session.rounds, run.num_rounds)
        else:
            found = None if run.evaluate_fn is None else run.evaluate_fn(0, result.arrays)
            if found is not None:
                result.evaluate_metrics_serverapp[0] = found
            if folder is not None:
                folder.begin(session.layout.state_dict(session.model()), self._evaluation(0, found))
        for n in range(session.rounds + 1, run.num_rounds + 1):
            lines = self._round(n, grid, run, result)
            if folder is not None:
                session.state = folder.save(session.progress(lines))
        if folder is not None:
            models = {"": session.model(), **session.further()}
            folder.finish({name: session.layout.state_dict(x) for name, x in models.items()}, session.rounds)
        return result

    def _round(self, n: int, grid: Grid, run: Run, result: Result) -> list[Line]:
        """Execute round n, counted from 1; returns its lines for the record."""
        began, session = time.monotonic(), self.session
        replies, closed = self._trained_by_clients(n, grid, run, result.arrays)
        trained, metrics = self.aggregate_train(n, replies)
        assert trained is not None
        result.arrays = trained
        tally = self.desk.tally
        line: Line = {
            "kind": "round",
            "round": n,
            "clients": np.flatnonzero(session.on[-1]).tolist(),
            "closed": closed,
            "refused": dict(sorted(tally.refused.items())),
            "bytes_down": tally.bytes_down,
            "bytes_up": tally.bytes_up,
            "never_active": session.never_active,
        }
        if (why := self._why_dropped(len(replies))) is not None:
            line["dropped"] = why
            log(WARNING, "round %d changed nothing: %s", n, why)
        if metrics is not None:
            result.train_metrics_clientapp[n] = metrics
            line["train"] = finite_metrics(metrics.items())
        by_group: dict[str, float] = {}
        if self.rules.evaluate:
            found, by_group = self._evaluated_by_clients(n, grid, run, trained)
            if found is not None:
                result.evaluate_metrics_clientapp[n] = found
                line["clients_evaluate"] = finite_metrics(found.items())
            if by_group:
                line["groups"] = by_group
        evaluated = None if run.evaluate_fn is None else run.evaluate_fn(n, result.arrays)
        if evaluated is not None:
            result.evaluate_metrics_serverapp[n] = evaluated
        evaluation = by_group | self._evaluation(n, evaluated)
        line["round_seconds"] = round(time.monotonic() - began, 3)
        shown = {**line, **evaluation}
        tell("[ROUND %d/%d] %s", n, run.num_rounds, {k: v for k, v in shown.items() if k not in ("kind", "round")})
        self._warn_of_clients_never_active()
        return [line, evaluation]

    def _why_dropped(self, valid: int) -> str | None:
        """Why a round with replies changed nothing: its result was invalid, or every reply was refused; else None."""
        refused = sum(self.desk.tally.refused[reason] for reason in set(self.desk.tally.refused) - {"late"})
        if self.dropped is not None:
            return self.dropped
        return f"all {refused} replies were refused" if refused and not valid else None

    def _warn_of_clients_never_active(self) -> None:
        session, share = self.session, self.session.initial_share
        if share > 0:
            log(
                WARNING,
                "%d of %d clients have never been active: %.0f%% of the model is the initial model; give the number of "
                "clients that exist, or FedAWE(average='active')",
                session.never_active,
                self.rules.clients,
                100 * share,
            )

    def _evaluation(self, n: int, found: MetricRecord | None) -> Line:
        """The line of an evaluation for the record, as in a simulated run."""
        session = self.session
        line: Line = {"kind": "evaluation", "round": n, "active": int(session.on[n - 1].sum()) if n else 0}
        if found is not None:
            line |= {name: one for name, one in finite_metrics(found.items()).items() if name not in RESERVED}
        if n:
            line |= finite(session.diagnostics())
        return line

    # ------------------------------------------------------------------------------------------------- one exchange

    def _trained_by_clients(self, n: int, grid: Grid, run: Run, arrays: ArrayRecord) -> tuple[list[Message], Close]:
        """The valid training replies of round n, and why the exchange ended."""
        self.replies: dict[str, tuple[int, Reply]] = {}  # by message: client and its contribution
        self.asked: list[int] | None = None  # the clients that the algorithm has chosen in this round, if it chooses
        # An overridden hook may change the configuration once a round; clients that connect later get the same changes.
        before = dict(run.train_config)
        configs = itertools.chain([run.train_config], (ConfigRecord(dict(before)) for _ in itertools.count()))

        def ask() -> Iterable[Message]:
            self.desk.ask(self.presence.look(grid, self.session.rounds))
            return self.configure_train(n, arrays, next(configs), grid) if self.presence.free() else []

        return self._exchange(run.timeout, ask, lambda question, reply: self._is_innovation(question, reply, n))

    def _evaluated_by_clients(
        self, n: int, grid: Grid, run: Run, arrays: ArrayRecord
    ) -> tuple[MetricRecord | None, dict[str, float]]:
        """The means of the clients' evaluation metrics, over all clients and by group."""
        if not self.presence.clients:  # an evaluation does not look for new clients
            return None, {}
        replies, _ = self._exchange(
            run.timeout, lambda: self.configure_evaluate(n, arrays, run.evaluate_config, grid), lambda *_: True
        )
        claims, groups = self.session.roster.claims, self.groups
        said = [(claims[reply.metadata.src_node_id], reply.content) for reply in replies] if groups else []
        return self.aggregate_evaluate(n, replies), metrics_by_group(said, groups, self.rules.weighted_by)

    def _exchange(
        self, timeout: float, ask: Callable[[], Iterable[Message]], valid: Callable[[Question, Message], bool]
    ) -> tuple[list[Message], Close]:
        """Send messages and collect valid replies until the exchange is over; returns them, and why it ended."""
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
        """Whether a reply contains a valid innovation. An answer to the question for the client is registered."""
        node = f"node {question.to.node}"
        by = node if question.client is None else f"a reply of client {question.client}, {node}"
        try:
            if question.client is None:
                self.presence.introduce(question, reply)
                return False
            wire.check_round(reply.content, n, required=self.rules.identity == "client-id")
            assert question.sent is not None
            layout, rules = self.session.layout, self.rules
            x = wire.read(layout, next(iter(question.sent.array_records.values())))  # x_i^t, as it was sent
            returned = wire.returned(layout, reply.content)
            G = self.session.innovation(x, returned, rules.max_norm, rules.max_statistics)
            samples = wire.samples_in(reply.content, rules.weighted_by)
            found = Reply(G, **wire.facts(question.sent, reply.content, self.needs_facts), samples=samples)
        except Refused as error:
            self.desk.tally.refuse(error, by)
            return False
        except Exception as error:  # Flower's records may raise anything if a client sends odd content
            odd = Refused("malformed", f"{type(error).__name__}: {error}")
            self.desk.tally.refuse(odd, by)
            return False
        self.replies[reply.metadata.reply_to_message_id] = (question.client, found)
        return True

    # -------------------------------------------------------------------------------------- Flower's hooks of a round

    def configure_train(
        self, server_round: int, arrays: ArrayRecord, config: ConfigRecord, grid: Grid
    ) -> Iterable[Message]:
        """A message to each connected client that has not been asked in this round and has no open question."""
        del arrays, grid  # every client receives its own model
        free = self.presence.free()
        if chooses(self.session.algorithm):
            if self.asked is None:  # clients that connect later are not asked in this round
                self.asked = self.session.chosen(list(free), self.about.seed or 0)
            free = {client: one for client, one in free.items() if client in self.asked}
        down, layout = self.session.broadcast(list(free)), self.session.layout
        keys, said = (self.rules.arrays_key, self.rules.config_key), {**config, ROUND: server_round}
        sent: dict[bytes, ArrayRecord] = {}  # clients with the same version share one record, which is uploaded once
        out = []
        for row, one in enumerate(free.values()):
            version = hashlib.sha256(down.x[row].numpy().tobytes()).digest()
            if version not in sent:
                sent[version] = wire.record(layout, down.x[row])
            content = wire.content(sent[version], down, row, keys, said)
            out.append(self._message(MessageType.TRAIN, one, content, server_round))
        return out

    def aggregate_train(
        self, server_round: int, replies: Iterable[Message]
    ) -> tuple[ArrayRecord | None, MetricRecord | None]:
        """Aggregate the valid replies; without any, the round is empty. Returns the new model and the mean metrics."""
        del server_round
        replies = list(replies)
        taken = dict(self.replies[reply.metadata.reply_to_message_id] for reply in replies)
        self.dropped = self.session.close(taken)
        self.replies = {}
        return self.arrays(), mean_metrics([reply.content for reply in replies], self.rules.weighted_by)

    def configure_evaluate(
        self, server_round: int, arrays: ArrayRecord, config: ConfigRecord, grid: Grid
    ) -> Iterable[Message]:
        """A message with the model to each connected client, if the option `evaluate` is set."""
        del grid
        if not self.rules.evaluate:
            return []
        free = self.presence.free().values()
        said = ConfigRecord({**config, ROUND: server_round})
        content = RecordDict({self.rules.arrays_key: arrays, self.rules.config_key: said})
        return [self._message(MessageType.EVALUATE, one, content, server_round) for one in free]

    def aggregate_evaluate(self, server_round: int, replies: Iterable[Message]) -> MetricRecord | None:
        """The mean of the clients' metrics, weighted by their numbers of samples."""
        del server_round
        return mean_metrics([reply.content for reply in replies], self.rules.weighted_by)

    def _message(self, kind: str, to: Connection, content: RecordDict, n: int) -> Message:
        return Message(content, to.node, kind, ttl=self.desk.ttl(), group_id=str(n))

    def arrays(self) -> ArrayRecord:
        """The model to evaluate or to deploy, as named arrays."""
        return wire.record(self.session.layout, self.session.model())

    def further_arrays(self) -> Mapping[str, ArrayRecord]:
        """Further models of the algorithm by name, such as FedAWE's last aggregate, as named arrays."""
        return {name: wire.record(self.session.layout, x) for name, x in self.session.further().items()}
