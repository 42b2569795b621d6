"""The runners' connections: which wait, which are in use, whose they are (docs/spec/mediation.md section 1).

    waits for a head   no complete head of a request yet, or none behind CONNECT: closed after ``HEAD_SECONDS``
    idle               kept between two requests, with no stream open: closed after ``IDLE_SECONDS``
    in use             a request waits for its answer, or streams: stays
    tunnel             encrypted bytes to a host that is not governed: stays, by mitmproxy's own time-out

Only complete heads and ends of requests count as signs of life: single bytes and PINGs of HTTP/2 do not.

A connection is a stranger's until it shows a valid token, and from then on that agent's. Strangers have a share of the
process's descriptors, and so has each agent. A connection takes one, and one more for each request under way, or for each
connection that was opened for it, whichever are more.
"""

import math
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Final

HEAD_SECONDS: Final = 30.0
IDLE_SECONDS: Final = 300.0


@dataclass(slots=True)
class Connection:
    """One connection of a runner."""

    since: float
    """When it began to wait: for a head, or for its next request."""
    limit: float
    """Seconds that it may wait."""
    owner: "Owner"
    is_idle: bool = False
    """It had a request, and waits for the next one."""
    requests: set[str] = field(default_factory=set)
    """The ids of the flows under way."""
    opened: int = 0
    """The connections that were opened for it."""

    @property
    def has_token(self) -> bool:
        return self.owner.agent_id is not None

    @property
    def descriptors(self) -> int:
        return 1 + max(self.opened, len(self.requests))


@dataclass(slots=True, eq=False)
class Owner:
    """All strangers (``agent_id`` None), or one agent, and their connections by the id of the client, the oldest first."""

    agent_id: str | None
    connections: dict[str, Connection] = field(default_factory=dict)
    descriptors: int = 0


class ConnectionTable:
    """All connections of one process."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self.head_seconds, self.idle_seconds = HEAD_SECONDS, IDLE_SECONDS
        self.max_unknown: float = math.inf
        """The most descriptors for connections that have not shown a valid token."""
        self.max_agent: float = math.inf
        """The most descriptors for the connections of one agent."""
        self._clock = clock
        self._all: dict[str, Connection] = {}
        self._strangers = Owner(None)
        self._agents: dict[str, Owner] = {}

    def open(self, client_id: str) -> None:
        self._all[client_id] = connection = Connection(self._clock(), self.head_seconds, self._strangers)
        self._add(client_id, connection, self._strangers)

    def close(self, client_id: str) -> None:
        if (connection := self._all.pop(client_id, None)) is not None:
            self._remove(client_id, connection)

    def note_token(self, client_id: str, agent_id: str) -> None:
        """Note that a valid token was shown: the connection is that agent's as long as it lives."""
        connection = self._all.get(client_id)
        if connection is None or connection.has_token:
            return
        self._remove(client_id, connection)
        self._add(client_id, connection, self._agents.setdefault(agent_id, Owner(agent_id)))

    def note_tunnel(self, client_id: str) -> None:
        """Note that the connection leads through to a host that is not governed."""
        if (connection := self._all.get(client_id)) is not None:
            connection.limit = math.inf

    def begin_request(self, client_id: str, request_id: str) -> None:
        """Note that the head of a request is complete."""
        if (connection := self._all.get(client_id)) is not None:
            before = connection.descriptors
            connection.requests.add(request_id)
            connection.owner.descriptors += connection.descriptors - before

    def end_request(self, client_id: str, request_id: str) -> None:
        """Note that a request has its answer, or never will; from now on the connection may be idle."""
        self._end(client_id, request_id, self.idle_seconds, is_idle=True)

    def end_connect(self, client_id: str, request_id: str) -> None:
        """Note that a CONNECT was answered: behind it a handshake and a head are to come, in the time for a head."""
        self._end(client_id, request_id, self.head_seconds, is_idle=False)

    def add_descriptors(self, client_id: str, count: int) -> None:
        """Count a connection that was opened for this one, or (-1) closed."""
        if (connection := self._all.get(client_id)) is not None:
            before = connection.descriptors
            connection.opened += count
            connection.owner.descriptors += connection.descriptors - before

    def expired(self) -> list[tuple[str, Connection]]:
        """Return the connections that have waited too long."""
        now = self._clock()
        return [
            (client_id, connection)
            for client_id, connection in self._all.items()
            if not connection.requests and now - connection.since > connection.limit
        ]

    def surplus(self) -> str | None:
        """Return the oldest connection without a token, if all of them have more than their share of the descriptors."""
        return self.oldest_unknown() if self._strangers.descriptors > self.max_unknown else None

    def exceeds_share(self, client_id: str) -> bool:
        """Return whether the agent of this connection has more than its share of the descriptors."""
        connection = self._all.get(client_id)
        return connection is not None and connection.has_token and connection.owner.descriptors > self.max_agent

    def oldest_unused(self, client_id: str) -> str | None:
        """Return the oldest connection of the same owner on which no request is under way; None if there is none."""
        connection = self._all.get(client_id)
        return _oldest_unused(connection.owner) if connection is not None else None

    def most_dispensable(self) -> str | None:
        """Return the oldest connection without a token, else the oldest unused one of the agent that has the most."""
        if (unknown := self.oldest_unknown()) is not None or not self._agents:
            return unknown
        largest = max(self._agents.values(), key=lambda owner: owner.descriptors)
        return _oldest_unused(largest)

    def oldest_unknown(self) -> str | None:
        return next(iter(self._strangers.connections), None)

    def _add(self, client_id: str, connection: Connection, owner: Owner) -> None:
        connection.owner = owner
        owner.connections[client_id] = connection
        owner.descriptors += connection.descriptors

    def _remove(self, client_id: str, connection: Connection) -> None:
        owner = connection.owner
        del owner.connections[client_id]
        owner.descriptors -= connection.descriptors
        if owner.agent_id is not None and not owner.connections:
            del self._agents[owner.agent_id]

    def _end(self, client_id: str, request_id: str, limit: float, *, is_idle: bool) -> None:
        connection = self._all.get(client_id)
        if connection is None:
            return
        before = connection.descriptors
        connection.requests.discard(request_id)
        connection.owner.descriptors += connection.descriptors - before
        if not connection.requests and connection.limit != math.inf:
            connection.since, connection.limit, connection.is_idle = self._clock(), limit, is_idle


def _oldest_unused(owner: Owner) -> str | None:
    unused = (client_id for client_id, each in owner.connections.items() if not each.requests)
    return next(unused, None)
