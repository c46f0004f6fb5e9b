"""Questions and answers of a round: push, then pull until a quorum, until everyone who is waited for, or a deadline.

Nothing here waits without end. A node that let a deadline pass is asked again but no longer waited for, until it
answers in time once. A node that still has a question open is not asked another, so that nothing piles up at it.
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
# The SuperLink fails when it is asked for a message that has expired, so messages live longer than they are asked for.
LATE_SECONDS = 30.0  # how long after the deadline a late reply is still fetched, to be counted
GRACE_SECONDS = 60.0  # how long after the deadline the message itself lives


@dataclass(frozen=True)
class Clock:
    """Time; a test brings its own."""

    now: Callable[[], float] = time.monotonic
    sleep: Callable[[float], None] = time.sleep
    poll: float = 0.5  # seconds between two looks


@dataclass(frozen=True)
class Question:
    """A message to a node that has not been answered."""

    to: Connection
    client: int | None  # None where the question is which client it is
    sent: RecordDict | None  # what it carried; given up when the round is over
    deadline: float


@dataclass
class Tally:
    """What a round's exchange came to, for the record."""

    refused: Counter[str] = field(default_factory=Counter)
    bytes_down: int = 0
    bytes_up: int = 0

    def refuse(self, error: Refused, what: str) -> None:
        """Count it, and log the first ones of a round; `what` is a node, or the reply of one."""
        self.refused[error.reason] += 1
        if (total := self.refused.total()) <= LOGGED:
            log(WARNING, "refused %s (%s): %s", what, error.reason, error)
        elif total == LOGGED + 1:
            log(WARNING, "refused more than %d replies; the others of this round are only counted", LOGGED)


class Desk:
    """Where questions go out and answers come in, from round to round."""

    def __init__(self, grid: Grid, clock: Clock) -> None:
        self.grid, self.pulls, self.clock = grid, Pulls(grid), clock
        self.questions: dict[str, Question] = {}  # of this round, by message
        self.overdue: dict[str, Question] = {}  # of earlier rounds
        self.answered: set[str] = set()  # messages of this round that have been answered
        self.asked: set[tuple[int, int | None]] = set()  # nodes of this round, and as which client
        self.waited: set[int] = set()  # nodes of this round that were not slow when asked
        self.slow: set[int] = set()  # nodes that let a deadline pass
        self.tally = Tally()
        self.deadline = 0.0
        self.looked_seconds = 0.0

    def open(self, timeout: float) -> None:
        """A new round, which lasts at most so many seconds."""
        self.deadline = self.clock.now() + timeout
        self.overdue |= {name: replace(one, sent=None) for name, one in self.questions.items()}
        self.questions, self.tally = {}, Tally()
        self.answered, self.asked, self.waited = set(), set(), set()

    def ttl(self) -> float:
        """How long a message that is sent now may live."""
        return max(self.deadline - self.clock.now(), 0.0) + GRACE_SECONDS

    def busy(self) -> set[Connection]:
        """Nodes with a question that they can still answer in time; one that has reconnected since then is another."""
        now = self.clock.now()
        return {one.to for one in [*self.questions.values(), *self.overdue.values()] if now < one.deadline}

    def ask(self, asked: Sequence[tuple[Connection, int | None, Message]]) -> None:
        """Send these. A message that the SuperLink does not take was never asked."""
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
        """Replies to questions of this round that are no errors; every other is refused here."""
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
        """The question of this round that a reply answers; None if it only says that a node has gone."""
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
        """Its answer was good: from now on it is waited for again."""
        self.slow.discard(question.to.node)

    def closed(self, valid: int, quorum: int) -> Close | None:
        """Whether the round is over, and why."""
        if quorum and valid >= quorum:
            return "quorum"
        if self.clock.now() >= self.deadline:
            for question in self.questions.values():
                self.slow.add(question.to.node)
            return "deadline"
        if not self.questions and not self.answered:  # nobody is there: somebody may come
            return None
        # If all of them were slow before, they are worth waiting for.
        waited = [one for one in self.questions.values() if one.to.node in self.waited or not self.waited]
        return None if waited else "all"

    def pause(self) -> None:
        """Until the next look; a SuperLink that is slow is given as much time as it took."""
        seconds = max(self.clock.poll, self.looked_seconds)
        self.clock.sleep(min(seconds, max(self.deadline - self.clock.now(), 0.0)))


def tell(text: str, *values: object) -> None:
    """To Flower's log."""
    log(INFO, text, *values)
