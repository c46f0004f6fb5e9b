"""Which Flower node is which client. An unauthenticated node that restarts has a new id; its client stays the same."""

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from flwr.serverapp import Grid

from fedawe.deploy.wire import Refused


@dataclass(frozen=True)
class Connection:
    """A node as the SuperLink lists it."""

    node: int
    since: str = ""  # when it last connected, ISO 8601; empty if unknown
    key: str = ""  # fingerprint of its public key; survives a restart only if the SuperLink authenticates nodes


def connections(grid: Grid) -> dict[int, Connection]:
    """The nodes that the SuperLink lists as connected."""
    return {
        node.node_id: Connection(
            node.node_id,
            node.last_activated_at,
            hashlib.sha256(node.public_key).hexdigest()[:32] if node.public_key else "",
        )
        for node in grid.get_nodes()
    }


@dataclass
class Roster:
    """Which node is which client; part of the checkpoint.

    If two nodes claim the same client, the newer connection wins, because an unauthenticated node that restarts gets a
    new id while its old one is listed for another minute. Under authentication a client belongs to the key that first
    claimed it.
    """

    clients: int
    authenticated: bool = False
    asks: bool = False  # nodes are asked for their client, again after they reconnect: their configuration may differ
    holders: dict[int, Connection] = field(default_factory=dict)  # client -> the node that represents it
    claims: dict[int, int] = field(default_factory=dict)  # node -> client it claimed, also if a newer node has it now
    seen: dict[int, int] = field(default_factory=dict)  # client -> last round in which its node was listed

    def listed(self, online: Mapping[int, Connection], t: int) -> dict[int, Connection]:
        """The clients whose nodes are connected in round t.

        If the node of a client is gone, a connected node that had claimed the client before represents it again.
        """
        speaking = {holder.node for holder in self.holders.values()}
        self.claims = {n: client for n, client in self.claims.items() if n in online or n in speaking}
        for node, client in sorted(self.claims.items()):
            holder = self.holders.get(client)
            if node in online and not self.authenticated and (holder is None or holder.node not in online):
                self.holders[client] = online[node]
        out: dict[int, Connection] = {}
        for client, holder in sorted(self.holders.items()):
            if holder.node not in online:
                continue
            if self.asks and holder.since != online[holder.node].since:
                self.claims.pop(holder.node, None)
            else:
                out[client] = self.holders[client] = online[holder.node]
                self.seen[client] = t
        return out

    def claim(self, by: Connection, client: object) -> int:
        """Register the claim of a node to be this client; refuses an invalid claim."""
        if isinstance(client, bool) or not isinstance(client, int) or not 0 <= client < self.clients:
            said = repr(client)[:40]
            raise Refused("identity", f"node {by.node} says it is client {said}; there are 0 to {self.clients - 1}")
        before, holder = self._client_of(by), self.holders.get(client)
        if holder is not None and not self._same(holder, by) and (self.authenticated or holder.since > by.since):
            raise Refused("identity", f"node {by.node} says it is client {client}, which is node {holder.node}")
        if before is not None and before != client:
            if self.authenticated:
                raise Refused("identity", f"node {by.node} is client {before} and now says it is client {client}")
            del self.holders[before]
        self._hold(client, by)
        return client

    def seat(self, by: Connection, online: Mapping[int, Connection]) -> int:
        """Make an unknown node a client: the first free number, or that of the node that has been gone for longest."""
        client = self._client_of(by)
        if client is None:
            client = next((number for number in range(self.clients) if number not in self.holders), None)
        if client is None and not self.authenticated:
            gone = [number for number, holder in self.holders.items() if holder.node not in online]
            client = min(gone, key=lambda number: (self.seen.get(number, -1), number), default=None)
            if client is not None:
                self.claims.pop(self.holders[client].node, None)
        if client is None:
            raise Refused("identity", f"node {by.node} is one too many: all {self.clients} clients have a node")
        self._hold(client, by)
        return client

    def _hold(self, client: int, by: Connection) -> None:
        self.claims[by.node] = client
        self.holders[client] = by

    def _client_of(self, by: Connection) -> int | None:
        """The client that a node represents, or None."""
        return next((client for client, holder in self.holders.items() if self._same(holder, by)), None)

    def _same(self, one: Connection, other: Connection) -> bool:
        return one.node == other.node or (self.authenticated and one.key != "" and one.key == other.key)

    def to_json(self) -> dict[str, Any]:
        """The roster for the checkpoint; node ids are text because they have 64 bits."""
        return {
            "holders": {str(client): [str(one.node), one.since, one.key] for client, one in self.holders.items()},
            "claims": {str(node): client for node, client in self.claims.items()},
            "seen": {str(client): t for client, t in self.seen.items()},
        }

    def restore(self, said: Mapping[str, Any]) -> None:
        """Replace the roster by that of a checkpoint."""
        self.holders = {int(i): Connection(int(node), since, key) for i, (node, since, key) in said["holders"].items()}
        self.claims = {int(node): client for node, client in said["claims"].items()}
        self.seen = {int(client): t for client, t in said["seen"].items()}
