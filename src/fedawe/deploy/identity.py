"""Which client a Flower node is. Node ids change when an unauthenticated node restarts; clients stay."""

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
    key: str = ""  # fingerprint of its public key; lasts longer than the id only if the SuperLink authenticates


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
    """Who is who; part of the checkpoint.

    A claim by a newer connection wins, since an unauthenticated node that restarts gets a new id while its old one
    is listed for another minute. Under authentication a client belongs to the key that first claimed it.
    """

    clients: int
    authenticated: bool = False
    asks: bool = False  # nodes say who they are, and say it again when they reconnect: their configuration may differ
    holders: dict[int, Connection] = field(default_factory=dict)  # client -> who speaks for it
    claims: dict[int, int] = field(default_factory=dict)  # node -> client that it is, or was until another came
    seen: dict[int, int] = field(default_factory=dict)  # client -> last round in which its node was listed

    def listed(self, online: Mapping[int, Connection], t: int) -> dict[int, Connection]:
        """The clients whose nodes are connected in round t. A displaced node takes over from one that has gone."""
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
        """The node says which client it is."""
        if isinstance(client, bool) or not isinstance(client, int) or not 0 <= client < self.clients:
            said = repr(client)[:40]
            raise Refused("identity", f"node {by.node} says it is client {said}; there are 0 to {self.clients - 1}")
        before, holder = self._client_of(by), self.holders.get(client)
        if holder is not None and not self._same(holder, by) and (self.authenticated or holder.since > by.since):
            raise Refused("identity", f"node {by.node} says it is client {client}, who is node {holder.node}")
        if before is not None and before != client:
            if self.authenticated:
                raise Refused("identity", f"node {by.node} is client {before} and now says it is client {client}")
            del self.holders[before]
        self._hold(client, by)
        return client

    def seat(self, by: Connection, online: Mapping[int, Connection]) -> int:
        """The client that an unknown node becomes: the first free number, or that of who has been gone for longest."""
        client = self._client_of(by)
        if client is None:
            client = next((number for number in range(self.clients) if number not in self.holders), None)
        if client is None and not self.authenticated:
            gone = [number for number, holder in self.holders.items() if holder.node not in online]
            client = min(gone, key=lambda number: (self.seen.get(number, -1), number), default=None)
            if client is not None:
                self.claims.pop(self.holders[client].node, None)
        if client is None:
            raise Refused("identity", f"node {by.node} is one more than the {self.clients} clients there may be")
        self._hold(client, by)
        return client

    def _hold(self, client: int, by: Connection) -> None:
        self.claims[by.node] = client
        self.holders[client] = by

    def _client_of(self, by: Connection) -> int | None:
        """The client that a node speaks for."""
        return next((client for client, holder in self.holders.items() if self._same(holder, by)), None)

    def _same(self, one: Connection, other: Connection) -> bool:
        return one.node == other.node or (self.authenticated and one.key != "" and one.key == other.key)

    def to_json(self) -> dict[str, Any]:
        """For the checkpoint; ids as text, since they need 64 bits."""
        return {
            "holders": {str(client): [str(one.node), one.since, one.key] for client, one in self.holders.items()},
            "claims": {str(node): client for node, client in self.claims.items()},
            "seen": {str(client): t for client, t in self.seen.items()},
        }

    def restore(self, said: Mapping[str, Any]) -> None:
        """What the checkpoint has."""
        self.holders = {int(i): Connection(int(node), since, key) for i, (node, since, key) in said["holders"].items()}
        self.claims = {int(node): client for node, client in said["claims"].items()}
        self.seen = {int(client): t for client, t in said["seen"].items()}
