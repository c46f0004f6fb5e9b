"""Fetching replies so that none can hold up the others.

A reply is announced first and its arrays follow. If they never do, because the node was killed in between or because
the SuperLink threw damaged ones away, Flower's `pull_messages` waits for them, for minutes, with all that it was asked
for. Here it waits in a thread of its own, and whoever was in its company is fetched alone from then on.
"""

import threading
from collections.abc import Mapping
from concurrent.futures import Future, wait
from dataclasses import dataclass, field

from flwr.app import Message
from flwr.serverapp import Grid

TOGETHER = 16  # replies that are fetched by one call
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

    def replies(self, names: Mapping[str, int], patience: float = PATIENCE_SECONDS) -> list[Message]:
        """Replies to messages, given with the nodes they went to, as far as they are here after so many seconds."""
        held = {name for pull in self.out for name in pull.names}  # perhaps in the hands of a call that is not back
        started = [Pull(group).start(self.grid) for group in self._groups(names, held)]
        wait([pull.replies for pull in started], patience)
        back = [pull for pull in [*self.out, *started] if pull.replies.done()]
        stuck = [pull for pull in started if pull not in back]
        self.out = [pull for pull in self.out if pull not in back] + stuck
        self.suspects |= {names[name] for pull in stuck for name in pull.names}
        found: list[Message] = []
        for pull in back:
            for reply in pull.replies.result():
                name = reply.metadata.reply_to_message_id
                if reply.has_error() and name in held and pull in started:
                    continue  # that there is no such reply only means that another call has it
                found.append(reply)
                self.suspects.discard(names.get(name, 0))
        return found

    def _groups(self, names: Mapping[str, int], held: set[str]) -> list[list[str]]:
        """Whoever is suspect by itself, unless it is being fetched so already; the others in company."""
        doubtful = {name for name, node in names.items() if name in held or node in self.suspects}
        alone = doubtful - {pull.names[0] for pull in self.out if len(pull.names) == 1}
        others = [name for name in names if name not in doubtful]
        return [[name] for name in sorted(alone)] + [others[n : n + TOGETHER] for n in range(0, len(others), TOGETHER)]
