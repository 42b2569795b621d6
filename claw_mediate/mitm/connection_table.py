"""The runners' connections: which wait, which are in use, and whose they are.

    waits for a head   no request has a complete head yet, or none after CONNECT: closed after
                       ``HEAD_SECONDS``
    idle               kept between two requests, with no stream open: closed after
                       ``IDLE_SECONDS``, or ``HEAD_SECONDS`` after the first byte of a head that is
                       not complete
    in use             a request waits for its answer, or streams: stays
    tunnel             encrypted bytes to a host that is not governed: stays, by mitmproxy's own
                       time-out

Only complete heads and ends of requests count as signs of life: single bytes and PINGs of HTTP/2 do
not.

A connection is a stranger's until it shows a valid token, and from then on that agent's. Strangers
have a share of the process's descriptors, and all agents together have another one. Of that, one
agent may have as many as the agents leave free: alone it gets half, each of two gets a third. So
some are free for the next agent, however many the others have taken.

A connection takes one descriptor, and one more for each request under way, or for each connection
that was opened for it, whichever are more (docs/spec/mediation.md section 1).
"""

import math
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Final, NamedTuple

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
    """True if it had a request, and waits for the next one."""
    requests: set[str] = field(default_factory=set)
    """The ids of the flows under way."""
    opened: int = 0
    """The connections that were opened for it."""
    descriptors: int = 1
    """The descriptors that it counts for its owner."""

    @property
    def has_token(self) -> bool:
        return self.owner.agent_id is not None


class Expiry(NamedTuple):
    """A connection that has waited too long."""

    client_id: str
    has_token: bool
    head_limit: float | None
    """Seconds that it had for the head of a request; None if it was idle."""


@dataclass(slots=True, eq=False)
class Owner:
    """All strangers (``agent_id`` None), or one agent, with their connections.

    The connections are by the id of the client, the oldest first.
    """

    agent_id: str | None
    connections: dict[str, Connection] = field(default_factory=dict)
    descriptors: int = 0


class ConnectionTable:
    """All connections of one process."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self.head_seconds = HEAD_SECONDS
        self.idle_seconds = IDLE_SECONDS
        self.max_unknown: float = math.inf
        """The most descriptors for connections that have not shown a valid token."""
        self.max_agents: float = math.inf
        """The most descriptors for the connections of all agents."""
        self.max_agent: float = math.inf
        """The most descriptors for the connections of one agent, however many are free."""
        self._agents_descriptors = 0
        self._clock = clock
        self._all: dict[str, Connection] = {}
        self._strangers = Owner(None)
        self._agents: dict[str, Owner] = {}

    def open(self, client_id: str) -> None:
        self._all[client_id] = connection = Connection(
            self._clock(), self.head_seconds, self._strangers
        )
        self._add(client_id, connection, self._strangers)

    def close(self, client_id: str) -> None:
        if (connection := self._all.pop(client_id, None)) is not None:
            self._remove(client_id, connection)

    def note_token(self, client_id: str, agent_id: str) -> None:
        """Note that a valid token was shown.

        The connection stays that agent's as long as it lives.
        """
        connection = self._all.get(client_id)
        if connection is None or connection.has_token:
            return

        owner = self._agents.setdefault(agent_id, Owner(agent_id))
        self._remove(client_id, connection)
        self._add(client_id, connection, owner)

    def note_tunnel(self, client_id: str) -> None:
        """Note that the connection leads through to a host that is not governed."""
        if (connection := self._all.get(client_id)) is not None:
            connection.limit = math.inf

    def begin_request(self, client_id: str, request_id: str) -> None:
        """Note that the head of a request is complete."""
        connection = self._all.get(client_id)
        if connection is not None and request_id not in connection.requests:
            connection.requests.add(request_id)
            self._recount(connection)

    def end_request(self, client_id: str, request_id: str) -> None:
        """Note that a request has its answer, or never will.

        From now on the connection may be idle.
        """
        self._end(client_id, request_id, self.idle_seconds, is_idle=True)

    def end_connect(self, client_id: str, request_id: str) -> None:
        """Note that a CONNECT was answered.

        A handshake and the head of a request are to follow, in the time for a head.
        """
        self._end(client_id, request_id, self.head_seconds, is_idle=False)

    def add_descriptors(self, client_id: str, count: int) -> None:
        """Count a connection that was opened for this one, or (-1) closed."""
        if (connection := self._all.get(client_id)) is not None:
            connection.opened += count
            self._recount(connection)

    def expired(self, half_heads: Mapping[str, float]) -> list[Expiry]:
        """Return the connections that have waited too long.

        ``half_heads`` has the time of the first byte of each head that is not complete, by the id
        of the client.
        """
        now = self._clock()
        found = []
        for client_id, connection in self._all.items():
            if connection.requests:
                continue

            head_since = half_heads.get(client_id, math.inf)
            if now - connection.since > connection.limit:
                head_limit = None if connection.is_idle else connection.limit
                found.append(Expiry(client_id, connection.has_token, head_limit))
            elif now - head_since > self.head_seconds:
                found.append(Expiry(client_id, connection.has_token, self.head_seconds))

        return found

    def surplus(self) -> str | None:
        """Return the oldest connection without a token; None while their share is not used up."""
        if self._strangers.descriptors > self.max_unknown:
            return self.oldest_unknown()
        return None

    def exceeds_share(self, client_id: str) -> bool:
        """Return whether the agent of this connection has more descriptors than it may have.

        It may have as many as the agents leave free, and at most ``max_agent``.
        """
        connection = self._all.get(client_id)
        if connection is None or not connection.has_token:
            return False
        free = self.max_agents - self._agents_descriptors
        return connection.owner.descriptors > min(free, self.max_agent)

    def oldest_unused(self, client_id: str) -> str | None:
        """Return the oldest connection of the same owner with no request under way.

        Return None if there is none.
        """
        connection = self._all.get(client_id)
        return _oldest_unused(connection.owner) if connection is not None else None

    def most_dispensable(self) -> str | None:
        """Return the connection to close when no descriptor is left.

        It is the oldest one without a token, else the oldest unused one of the agent that has the
        most.
        """
        unknown = self.oldest_unknown()
        if unknown is not None or not self._agents:
            return unknown

        largest = max(self._agents.values(), key=lambda owner: owner.descriptors)
        return _oldest_unused(largest)

    def oldest_unknown(self) -> str | None:
        return next(iter(self._strangers.connections), None)

    def _add(self, client_id: str, connection: Connection, owner: Owner) -> None:
        connection.owner = owner
        owner.connections[client_id] = connection
        self._count(owner, connection.descriptors)

    def _remove(self, client_id: str, connection: Connection) -> None:
        owner = connection.owner
        del owner.connections[client_id]
        self._count(owner, -connection.descriptors)
        if owner.agent_id is not None and not owner.connections:
            del self._agents[owner.agent_id]

    def _recount(self, connection: Connection) -> None:
        """Count the descriptors of a connection anew."""
        descriptors = 1 + max(connection.opened, len(connection.requests))
        if descriptors != connection.descriptors:
            self._count(connection.owner, descriptors - connection.descriptors)
            connection.descriptors = descriptors

    def _count(self, owner: Owner, descriptors: int) -> None:
        owner.descriptors += descriptors
        if owner.agent_id is not None:
            self._agents_descriptors += descriptors

    def _end(self, client_id: str, request_id: str, limit: float, *, is_idle: bool) -> None:
        connection = self._all.get(client_id)
        if connection is None:
            return

        connection.requests.discard(request_id)
        self._recount(connection)
        is_tunnel = connection.limit == math.inf
        if not connection.requests and not is_tunnel:
            connection.since = self._clock()
            connection.limit = limit
            connection.is_idle = is_idle


def _oldest_unused(owner: Owner) -> str | None:
    for client_id, connection in owner.connections.items():
        if not connection.requests:
            return client_id

    return None
