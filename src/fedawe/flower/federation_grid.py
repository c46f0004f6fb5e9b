"""Flower's grid, except that no reply can hold up the others.

A reply is announced first and its arrays follow. If they never do, because the node was killed in between or because
they were damaged on the way and the SuperLink threw them away, Flower's own `pull_messages` waits for them: three
minutes, until the SuperLink gives up. Here that goes on in a thread of its own.
"""

import threading
from collections.abc import Iterable
from concurrent.futures import Future
from concurrent.futures import wait as wait_for
from typing import Any

from flwr.app import Message, RecordDict
from flwr.common.constant import ErrorCode
from flwr.serverapp import Grid

PATIENCE_SECONDS = 5.0  # for all replies that have come since the last look
UNAVAILABLE = ErrorCode.MESSAGE_UNAVAILABLE
AT_ONCE = 16  # replies that are asked for one by one

Pull = Future[list[Message]]


class BoundedGrid(Grid):
    """`grid`, with a `pull_messages` that is back after `patience` seconds; what comes later is in a later answer."""

    def __init__(self, grid: Grid, patience: float = PATIENCE_SECONDS) -> None:
        self._grid, self._patience = grid, patience
        self._stuck: list[Pull] = []  # pulls of several that did not come back
        self._alone: dict[str, Pull] = {}  # one by one: who is, or was, in a pull that did not come back
        self._suspects: set[str] = set()

    def pull_messages(self, message_ids: Iterable[str]) -> Iterable[Message]:
        """The replies that are here. Whoever was asked for in a pull that got stuck is asked for alone from then on."""
        names = set(message_ids)
        found = self._came_late()
        self._suspects &= names
        if trusted := sorted(names - self._suspects):
            pull = self._pull(trusted)
            if wait_for([pull], self._patience).done:
                found += pull.result()
            else:
                self._stuck.append(pull)
                self._suspects.update(trusted)
        for name in sorted(self._suspects - set(self._alone))[: max(AT_ONCE - len(self._alone), 0)]:
            self._alone[name] = self._pull([name])
        return found

    def _came_late(self) -> list[Message]:
        """What pulls that we did not wait for have brought meanwhile."""
        found: list[Message] = []
        for pull in [pull for pull in self._stuck if pull.done()]:
            self._stuck.remove(pull)
            found += pull.result()
        for name, pull in [(name, pull) for name, pull in self._alone.items() if pull.done()]:
            del self._alone[name]
            self._suspects.discard(name)
            # That there is no such message may only mean that a stuck pull has it in its hands.
            found += [one for one in pull.result() if not (one.has_error() and one.error.code == UNAVAILABLE)]
        return found

    def _pull(self, names: list[str]) -> Pull:
        pull: Pull = Future()

        def work() -> None:
            try:
                pull.set_result(list(self._grid.pull_messages(names)))
            except BaseException as error:  # whoever asks for the result gets it
                pull.set_exception(error)

        threading.Thread(target=work, daemon=True).start()  # daemon: the server app may end before Flower gives up
        return pull

    # All else is Flower's.

    def set_run(self, run: Any) -> None:
        self._grid.set_run(run)

    @property
    def run(self) -> Any:
        return self._grid.run

    def create_message(
        self, content: RecordDict, message_type: str, dst_node_id: int, group_id: str, ttl: float | None = None
    ) -> Message:
        return self._grid.create_message(content, message_type, dst_node_id, group_id, ttl)

    def get_node_ids(self) -> Iterable[int]:
        return self._grid.get_node_ids()

    def get_nodes(self) -> Iterable[Any]:
        return self._grid.get_nodes()

    def push_messages(self, messages: Iterable[Message]) -> Iterable[str]:
        return self._grid.push_messages(messages)

    def send_and_receive(self, messages: Iterable[Message], *, timeout: float | None = None) -> Iterable[Message]:
        return self._grid.send_and_receive(messages, timeout=timeout)
