"""Fetches replies in such a way that no reply delays the others.

The SuperLink lists a reply before it has all its arrays. If they never arrive, because the node was killed or because
the SuperLink discarded damaged ones, Flower's `pull_messages` waits for minutes, also for the other replies of the same
call; if a reply cannot be assembled, it raises. Here every call has a thread of its own, and the replies of all nodes
in a call that hangs or raises are fetched by separate calls from then on.
"""

import threading
from collections.abc import Mapping
from concurrent.futures import Future, wait
from dataclasses import dataclass, field

from flwr.app import Message
from flwr.serverapp import Grid

TOGETHER = 16  # replies that are fetched by one call, unless there are very many
GROUPS = 8  # calls for several replies per poll, at most
IN_FLIGHT = 16  # with more open calls than this, only one suspect is fetched per poll
PATIENCE_SECONDS = 5.0  # for all calls of one poll


@dataclass(frozen=True, eq=False)
class Pull:
    """A call for the replies to these messages."""

    names: list[str]
    replies: Future[list[Message]] = field(default_factory=Future)

    def start(self, grid: Grid) -> "Pull":
        """Start the call in a thread that ends with the server app at the latest."""
        threading.Thread(target=self._run, args=(grid,), daemon=True).start()
        return self

    def _run(self, grid: Grid) -> None:
        try:
            self.replies.set_result(list(grid.pull_messages(self.names)))
        except BaseException as error:  # raised again by `result`
            self.replies.set_exception(error)


class Pulls:
    """Calls to a grid, some of which may take long to return."""

    def __init__(self, grid: Grid) -> None:
        self.grid = grid
        self.out: list[Pull] = []  # calls that did not return in time
        self.suspects: set[int] = set()  # nodes of such calls; fetched separately until that succeeds
        self.turn = 0  # which suspect is the next
        self.unreadable: dict[str, str] = {}  # messages whose replies Flower could not read, and its error

    def replies(self, names: Mapping[str, int], patience: float = PATIENCE_SECONDS) -> list[Message]:
        """The replies to these messages that arrive within `patience` seconds; `names` maps a message to its node."""
        held = {name for pull in self.out for name in pull.names}  # an open call may return their replies
        started = [Pull(group).start(self.grid) for group in self._groups(names, held)]
        wait([pull.replies for pull in started], patience)
        back = [pull for pull in [*self.out, *started] if pull.replies.done()]
        stuck = [pull for pull in started if pull not in back]
        self.out = [pull for pull in self.out if pull not in back] + stuck
        if len(stuck) < len(started):  # otherwise the SuperLink is slow, not a node
            self.suspects |= {names[name] for pull in stuck for name in pull.names}
        found: list[Message] = []
        for pull in back:
            if self._raised(pull, names):
                continue
            for reply in pull.replies.result():
                name = reply.metadata.reply_to_message_id
                if reply.has_error() and name in held and pull in started:
                    continue  # the SuperLink has no reply because the other call has fetched it
                found.append(reply)
                self.suspects.discard(names.get(name, 0))
        return found

    def _raised(self, pull: Pull, names: Mapping[str, int]) -> bool:
        """Whether a call raised, so that its nodes become suspects.

        The error may also mean that the run has ended; calls that do not depend on clients report that.
        """
        error = pull.replies.exception()
        if error is None:
            return False
        if not isinstance(error, Exception):
            raise error
        self.suspects |= {names[name] for name in pull.names if name in names}
        if len(pull.names) == 1:
            self.unreadable[pull.names[0]] = f"{type(error).__name__}: {error}"[:300]
        return True

    def _groups(self, names: Mapping[str, int], held: set[str]) -> list[list[str]]:
        """A group for each suspect, in turn, unless an open call fetches it alone; several groups for the others.

        There are at least two of the latter: if one call returns, the SuperLink is not the cause of a delay.
        """
        fetched = {pull.names[0] for pull in self.out if len(pull.names) == 1}
        suspect = [name for name, node in names.items() if node in self.suspects and name not in fetched]
        others = [name for name, node in names.items() if node not in self.suspects and name not in held]
        size = max(min(TOGETHER, -(-len(others) // 2)), -(-len(others) // GROUPS), 1)
        groups = [others[n : n + size] for n in range(0, len(others), size)]
        places = max(IN_FLIGHT - len(self.out) - len(groups), 1)
        first = self.turn % len(suspect) if suspect else 0
        self.turn += places
        return groups + [[name] for name in [*suspect[first:], *suspect[:first]][:places]]
