"""The runners' connections: which wait, which are in use, which have shown a token (docs/spec/mediation.md section 1).

    waits for a head   no complete head of a request yet, or none behind CONNECT: closed after ``HEAD_SECONDS``
    idle               kept between two requests, with no stream open: closed after ``IDLE_SECONDS``
    in use             a request waits for its answer, or streams: stays
    tunnel             encrypted bytes to a host that is not governed: stays, by mitmproxy's own time-out

Only complete heads and ends of requests count as signs of life: single bytes and PINGs of HTTP/2 do not.
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
    is_idle: bool = False
    """It had a request, and waits for the next one."""
    requests: set[str] = field(default_factory=set)
    """The ids of the flows under way."""
    has_token: bool = False
    descriptors: int = 1
    """Its own, and those of the connections that were opened for it."""


class ConnectionTable:
    """All connections of one process by the id of their client, the oldest first."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self.head_seconds, self.idle_seconds = HEAD_SECONDS, IDLE_SECONDS
        self.max_unknown: float = math.inf
        """The most descriptors for connections that have not shown a valid token."""
        self._clock = clock
        self._known: dict[str, Connection] = {}
        self._unknown: dict[str, Connection] = {}
        self._unknown_descriptors = 0

    def open(self, client_id: str) -> None:
        self._unknown[client_id] = Connection(self._clock(), self.head_seconds)
        self._unknown_descriptors += 1

    def close(self, client_id: str) -> None:
        self._known.pop(client_id, None)
        if (connection := self._unknown.pop(client_id, None)) is not None:
            self._unknown_descriptors -= connection.descriptors

    def note_token(self, client_id: str) -> None:
        """Note that a valid token was shown: the connection counts as known as long as it lives."""
        if (connection := self._unknown.pop(client_id, None)) is not None:
            self._unknown_descriptors -= connection.descriptors
            connection.has_token = True
            self._known[client_id] = connection

    def note_tunnel(self, client_id: str) -> None:
        """Note that the connection leads through to a host that is not governed."""
        if (connection := self._find(client_id)) is not None:
            connection.limit = math.inf

    def begin_request(self, client_id: str, request_id: str) -> None:
        """Note that the head of a request is complete."""
        if (connection := self._find(client_id)) is not None:
            connection.requests.add(request_id)

    def end_request(self, client_id: str, request_id: str) -> None:
        """Note that a request has its answer, or never will; from now on the connection may be idle."""
        self._end(client_id, request_id, self.idle_seconds, is_idle=True)

    def end_connect(self, client_id: str, request_id: str) -> None:
        """Note that a CONNECT was answered: behind it a handshake and a head are to come, in the time for a head."""
        self._end(client_id, request_id, self.head_seconds, is_idle=False)

    def add_descriptors(self, client_id: str, count: int) -> None:
        """Count a connection that was opened for this one, or (-1) closed."""
        if (connection := self._find(client_id)) is not None:
            connection.descriptors += count
            if not connection.has_token:
                self._unknown_descriptors += count

    def expired(self) -> list[tuple[str, Connection]]:
        """Return the connections that have waited too long."""
        now = self._clock()
        return [
            (client_id, connection)
            for connections in (self._unknown, self._known)
            for client_id, connection in connections.items()
            if not connection.requests and now - connection.since > connection.limit
        ]

    def surplus(self) -> str | None:
        """Return the oldest connection without a token, if all of them have more than their share of the descriptors."""
        return self.oldest_unknown() if self._unknown_descriptors > self.max_unknown else None

    def oldest_unknown(self) -> str | None:
        return next(iter(self._unknown), None)

    def _end(self, client_id: str, request_id: str, limit: float, *, is_idle: bool) -> None:
        connection = self._find(client_id)
        if connection is None:
            return
        connection.requests.discard(request_id)
        if not connection.requests and connection.limit != math.inf:
            connection.since, connection.limit, connection.is_idle = self._clock(), limit, is_idle

    def _find(self, client_id: str) -> Connection | None:
        return self._known.get(client_id) or self._unknown.get(client_id)
