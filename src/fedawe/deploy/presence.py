"""Which clients are connected, and which nodes are not clients yet."""

from flwr.app import Message, MessageType, RecordDict
from flwr.serverapp import Grid

from fedawe.deploy.identity import Connection, Roster, connections
from fedawe.deploy.rounds import Desk, Question
from fedawe.deploy.wire import Refused

WHO = f"{MessageType.QUERY}.client_id"  # asks a node which client it is


class Presence:
    """Lists connected nodes, finds out which clients they are, and ignores nodes that the roster refuses."""

    def __init__(self, roster: Roster, desk: Desk) -> None:
        self.roster, self.desk = roster, desk
        self.online: dict[int, Connection] = {}  # by node
        self.clients: dict[int, Connection] = {}  # connected clients
        self.banned: set[Connection] = set()  # refused; not asked again until they reconnect

    def look(self, grid: Grid, t: int) -> list[tuple[Connection, int | None, Message]]:
        """Update the connected clients; returns questions to new nodes, if nodes are asked which client they are."""
        self.online = connections(grid)
        self.clients = self.roster.listed(self.online, t)
        self.banned &= set(self.online.values())
        strangers = [
            one for node, one in self.online.items() if node not in self.roster.claims and one not in self.banned
        ]
        if not self.roster.asks:
            self._seat(strangers)
            return []
        busy = self.desk.busy()
        return [
            (one, None, Message(RecordDict(), one.node, WHO, ttl=self.desk.ttl(), group_id=str(t + 1)))
            for one in strangers
            if one not in busy and (one.node, None) not in self.desk.asked
        ]

    def _seat(self, strangers: list[Connection]) -> None:
        for one in sorted(strangers, key=lambda one: (one.since, one.node)):
            try:
                self.clients[self.roster.seat(one, self.online)] = one
            except Refused as error:
                self.banned.add(one)
                self.desk.tally.refuse(error, f"node {one.node}")

    def introduce(self, question: Question, reply: Message) -> None:
        """Register the client that a node names in its reply; a refused node is not asked again."""
        said = [record["client-id"] for record in reply.content.config_records.values() if "client-id" in record]
        try:
            if len(said) != 1:
                raise Refused("identity", f"node {question.to.node} does not say which client it is")
            self.roster.claim(question.to, said[0])
        except Refused:
            self.banned.add(question.to)
            raise
        self.desk.in_time(question)

    def free(self) -> dict[int, Connection]:
        """The connected clients that have not been asked in this round and have no open question."""
        asked, busy = {client for _, client in self.desk.asked}, self.desk.busy()
        return {client: one for client, one in self.clients.items() if client not in asked and one not in busy}

    def addressee(self, message: Message) -> tuple[Connection, int]:
        """The connection and the client that a message is for."""
        node = message.metadata.dst_node_id
        return self.online[node], self.roster.claims[node]
