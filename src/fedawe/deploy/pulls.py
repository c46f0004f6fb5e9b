"""Fetching replies so that none can hold up the others.

A reply is announced first and its arrays follow. If they never do, because the node was killed in between or because
the SuperLink threw damaged ones away, Flower's `pull_messages` waits for them, for minutes, with all that it was asked
for; and if a reply cannot be put together again, it raises. Here that happens in a thread of its own, and whoever was
in such company is fetched alone from then on.
"""

import threading
from collections.abc import Mapping
from concurrent.futures import Future, wait
from dataclasses import dataclass, field

from flwr.app import Message
from flwr.serverapp import Grid

TOGETHER = 16  # replies that are fetched by one call, if there are not very many
GROUPS = 8  # calls of a look at most, besides those for a single reply
IN_FLIGHT = 16  # calls at once above which suspects are fetched one at a look; the others always are
PATIENCE_SECONDS = 5.0  # for all calls of one look


@dataclass(frozen=True, eq=False)
class Pull:
    """A call for the replies to these messages."""

    names: list[str]
    replies: Future[list[Message]] = field(default_factory=Future)

    def start(self, grid: Grid) -> "Pull":
        """In a thread that ends with the server app at the latest."""
        threading.Thread(target=self._run, args=(grid,), daemon=True).start()
        return self

    def _run(self, grid: Grid) -> None:
        try:
            self.replies.set_result(list(grid.pull_messages(self.names)))
        except BaseException as error:  # raised again where the result is asked for
            self.replies.set_exception(error)


class Pulls:
    """Calls to a grid, of which some may not come back for long."""

    def __init__(self, grid: Grid) -> None:
        self.grid = grid
        self.out: list[Pull] = []  # did not come back in time
        self.suspects: set[int] = set()  # nodes that were in such a call; fetched alone until that goes well
        self.turn = 0  # whose turn it is among them
        self.unreadable: dict[str, str] = {}  # messages whose replies Flower could not read, and what it said

    def replies(self, names: Mapping[str, int], patience: float = PATIENCE_SECONDS) -> list[Message]:
        """Replies to messages, given with the nodes they went to, as far as they are here after so many seconds."""
        held = {name for pull in self.out for name in pull.names}  # perhaps in the hands of a call that is not back
        started = [Pull(group).start(self.grid) for group in self._groups(names, held)]
        wait([pull.replies for pull in started], patience)
        back = [pull for pull in [*self.out, *started] if pull.replies.done()]
        stuck = [pull for pull in started if pull not in back]
        self.out = [pull for pull in self.out if pull not in back] + stuck
        if len(stuck) < len(started):  # otherwise the SuperLink is slow, and nobody is to blame
            self.suspects |= {names[name] for pull in stuck for name in pull.names}
        found: list[Message] = []
        for pull in back:
            if self._raised(pull, names):
                continue
            for reply in pull.replies.result():
                name = reply.metadata.reply_to_message_id
                if reply.has_error() and name in held and pull in started:
                    continue  # that there is no such reply only means that another call has it
                found.append(reply)
                self.suspects.discard(names.get(name, 0))
        return found

    def _raised(self, pull: Pull, names: Mapping[str, int]) -> bool:
        """Whether a reply could not be read. That a run is over shows elsewhere too, where nobody else can cause it."""
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
        """Suspects one by one and in turn, unless they are being fetched so already; the others in two groups or more.

        Two, so that one which comes back shows that it is not the SuperLink which is stuck.
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
