"""The messages of a round: push, then pull until a quorum or all nodes have answered, or until the deadline.

Every wait has a limit. A node that missed a deadline is asked again but not waited for, until it answers in time once.
A node with an open question is not asked another one, so that messages do not accumulate.
"""

import time
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from logging import INFO, WARNING
from typing import Literal

from flwr.app import Message, RecordDict
from flwr.serverapp import Grid
from flwr.supercore import log

from fedawe.deploy.identity import Connection
from fedawe.deploy.pulls import PATIENCE_SECONDS, Pulls
from fedawe.deploy.wire import Refused, payload

Close = Literal["quorum", "all", "deadline"]

LOGGED = 100  # refusals of a round that are logged one by one
# The SuperLink fails when the reply to an expired message is requested, so messages expire after the last request.
LATE_SECONDS = 30.0  # time after the deadline during which late replies are fetched, so that they can be counted
GRACE_SECONDS = 60.0  # time after the deadline at which messages expire


@dataclass(frozen=True)
class Clock:
    """Functions for time, which tests replace."""

    now: Callable[[], float] = time.monotonic
    sleep: Callable[[float], None] = time.sleep
    poll: float = 0.5  # seconds between two polls


@dataclass(frozen=True)
class Question:
    """A message to a node that has no answer yet."""

    to: Connection
    client: int | None  # None if the question is which client the node is
    sent: RecordDict | None  # its content; None after its round
    deadline: float


@dataclass
class Tally:
    """Numbers of refusals and bytes of one exchange, for the record."""

    refused: Counter[str] = field(default_factory=Counter)
    bytes_down: int = 0
    bytes_up: int = 0

    def refuse(self, error: Refused, what: str) -> None:
        """Count a refusal, and log the first ones of a round; `what` names the node or the reply that was refused."""
        self.refused[error.reason] += 1
        if (total := self.refused.total()) <= LOGGED:
            log(WARNING, "refused %s (%s): %s", what, error.reason, error)
        elif total == LOGGED + 1:
            log(WARNING, "refused more than %d replies; the others of this round are only counted", LOGGED)


class Desk:
    """Sends questions to nodes and collects their answers, round after round."""

    def __init__(self, grid: Grid, clock: Clock) -> None:
        self.grid, self.pulls, self.clock = grid, Pulls(grid), clock
        self.questions: dict[str, Question] = {}  # open questions of this round, by message
        self.overdue: dict[str, Question] = {}  # open questions of earlier rounds, by message
        self.answered: set[str] = set()  # messages of this round that have been answered
        self.asked: set[tuple[int, int | None]] = set()  # nodes asked in this round, with the client
        self.waited: set[int] = set()  # nodes asked in this round that were not slow at that time
        self.slow: set[int] = set()  # nodes that missed a deadline
        self.tally = Tally()
        self.deadline = 0.0
        self.looked_seconds = 0.0

    def open(self, timeout: float) -> None:
        """Start a new exchange, which lasts at most `timeout` seconds."""
        self.deadline = self.clock.now() + timeout
        self.overdue |= {name: replace(one, sent=None) for name, one in self.questions.items()}
        self.questions, self.tally = {}, Tally()
        self.answered, self.asked, self.waited = set(), set(), set()

    def ttl(self) -> float:
        """The seconds after which a message that is sent now expires."""
        return max(self.deadline - self.clock.now(), 0.0) + GRACE_SECONDS

    def busy(self) -> set[Connection]:
        """Connections with an open question before its deadline; a node that reconnects has a new connection."""
        now = self.clock.now()
        return {one.to for one in [*self.questions.values(), *self.overdue.values()] if now < one.deadline}

    def ask(self, asked: Sequence[tuple[Connection, int | None, Message]]) -> None:
        """Send these messages. One that the SuperLink does not accept is not an open question."""
        if not asked:
            return
        ids = list(self.grid.push_messages([message for _, _, message in asked]))
        for (to, client, message), message_id in zip(asked, ids or [""] * len(asked), strict=True):
            self.asked.add((to.node, client))
            if message_id:
                if to.node not in self.slow:
                    self.waited.add(to.node)
                self.questions[message_id] = Question(to, client, message.content, self.deadline)
                self.tally.bytes_down += payload(message)

    def answers(self) -> list[tuple[Question, Message]]:
        """The new replies to questions of this round that are not errors; all others are refused and counted."""
        now = self.clock.now()
        self.overdue = {name: one for name, one in self.overdue.items() if now < one.deadline + LATE_SECONDS}
        names = {name: one.to.node for name, one in [*self.questions.items(), *self.overdue.items()]}
        out: list[tuple[Question, Message]] = []
        pulled = self.pulls.replies(names, min(PATIENCE_SECONDS, max(self.deadline - now, 1.0)))
        self.looked_seconds = self.clock.now() - now
        for name, why in self.pulls.unreadable.items():
            self.overdue.pop(name, None)  # it is not fetched again
            if self.questions.pop(name, None) is not None:
                self.answered.add(name)
            self.tally.refuse(Refused("malformed", why), f"a reply of node {names.get(name)}")
        self.pulls.unreadable.clear()
        for reply in pulled:
            name = reply.metadata.reply_to_message_id
            try:
                question = self._matched(name, reply)
            except Refused as error:
                self.tally.refuse(error, f"a reply of node {reply.metadata.src_node_id}")
                continue
            if question is not None:
                out.append((question, reply))
        return out

    def _matched(self, name: str, reply: Message) -> Question | None:
        """The question of this round that a reply answers; None for an overdue question whose node has gone."""
        self.tally.bytes_up += payload(reply)
        if name in self.answered:
            raise Refused("duplicate", "a second reply to the same message")
        if name in self.overdue:
            del self.overdue[name]
            if reply.has_error():
                return None
            raise Refused("late", "the round is over")
        if name not in self.questions:
            raise Refused("late", "a reply to a message of another round")
        question = self.questions.pop(name)
        self.answered.add(name)
        if reply.has_error():
            raise Refused("error", f"node {question.to.node}: error {reply.error.code}: {reply.error.reason!s}")
        if reply.metadata.src_node_id != question.to.node:
            raise Refused("identity", f"a reply in the name of node {question.to.node}")
        return question

    def in_time(self, question: Question) -> None:
        """The node gave a valid answer in time: it is waited for again."""
        self.slow.discard(question.to.node)

    def closed(self, valid: int, quorum: int) -> Close | None:
        """Why the round is over; None if it is not."""
        if quorum and valid >= quorum:
            return "quorum"
        if self.clock.now() >= self.deadline:
            for question in self.questions.values():
                self.slow.add(question.to.node)
            return "deadline"
        if not self.questions and not self.answered:  # no client is connected; one may still connect
            return None
        # If all nodes were slow before, all of them are waited for.
        waited = [one for one in self.questions.values() if one.to.node in self.waited or not self.waited]
        return None if waited else "all"

    def pause(self) -> None:
        """Wait until the next poll: at least as long as the last poll took, but not beyond the deadline."""
        seconds = max(self.clock.poll, self.looked_seconds)
        self.clock.sleep(min(seconds, max(self.deadline - self.clock.now(), 0.0)))


def tell(text: str, *values: object) -> None:
    """Write a line to Flower's log."""
    log(INFO, text, *values)
