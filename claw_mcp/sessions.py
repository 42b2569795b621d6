"""Sessions of the server side: whose they are, what runs in them, and what waits to
be sent to their clients.

Rules. A session belongs to the principal that opened it. A principal has at most ``max_sessions``:
one more ends the one that was idle longest. What waits for a client that does not read is bounded
in bytes, and what has no room is dropped.
"""

import asyncio
import secrets
import time
from collections import OrderedDict, deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import NamedTuple

import msgspec

from claw_mcp.protocol import RpcMessage

_MAX_WAITING_BYTES = 4 << 20
_SIZE_OF_NONE = 64  # What a message counts besides its bytes


class Outbox:
    """The messages of one stream that wait for their reader."""

    def __init__(self) -> None:
        """Start empty and open."""
        self._messages: deque[bytes] = deque()
        self._bytes = 0
        self._changed = asyncio.Event()
        self.is_closed = False

    def __len__(self) -> int:
        return len(self._messages)

    def put(self, message: bytes) -> None:
        """Add a message; drop it where there is no room, or no reader any more."""
        size = len(message) + _SIZE_OF_NONE
        if not self.is_closed and self._bytes + size <= _MAX_WAITING_BYTES:
            self._bytes += size
            self._messages.append(message)
            self._changed.set()

    def close(self) -> None:
        """Take no more messages; those that wait may still be read."""
        self.is_closed = True
        self._changed.set()

    def take(self) -> bytes:
        """Return the next message. Raise ``IndexError`` where none waits."""
        message = self._messages.popleft()
        self._bytes -= len(message) + _SIZE_OF_NONE
        if not self._messages and not self.is_closed:
            self._changed.clear()
        return message

    async def wait(self, seconds: float) -> bool:
        """Wait until a message is there or the outbox is closed; return False where
        neither came to be in time.
        """
        try:
            async with asyncio.timeout(seconds):
                return await self._changed.wait()
        except TimeoutError:
            return False


class Answer(NamedTuple):
    """The response to a request, with the HTTP status that it has where nothing was sent before."""

    message: bytes
    status: int = 200


@dataclass(eq=False, slots=True)
class ClientRequest:
    """One request of a client, as a backend answers it.

    ``message.params`` is JSON as it was sent.
    """

    session: "Session"
    message: RpcMessage
    accepts_stream: bool = True
    outbox: Outbox = field(default_factory=Outbox)
    task: asyncio.Task[Answer] | None = None
    subscriptions: frozenset[str] = (
        frozenset()
    )  # Methods of the notifications that a ``subscriptions/listen`` wants

    @property
    def method(self) -> str:
        return self.message.method or ""

    def send(self, message: bytes) -> None:
        """Send a message to the client before the answer; it is dropped where the
        client takes no stream.
        """
        if self.accepts_stream:
            self.outbox.put(message)

    def cancel(self) -> None:
        if self.task is not None:
            self.task.cancel()


@dataclass(eq=False, slots=True, weakref_slot=True)
class Session:
    """The state of one client.

    In the stateless era one session without an id stands for all requests of a principal.
    """

    principal: str = ""
    id: str = ""
    version: str = ""
    last_use: float = 0.0
    requests: dict[ClientRequest, None] = field(default_factory=dict)
    listener: Outbox | None = None  # The client's GET stream

    @property
    def is_busy(self) -> bool:
        return bool(self.requests) or self.listener is not None

    def send(self, message: bytes) -> None:
        """Send a message of the server on one stream of the client: that of a
        running request, else that of GET.
        """
        request = next(
            (each for each in self.requests if each.accepts_stream and not each.outbox.is_closed),
            None,
        )
        outbox = request.outbox if request is not None else self.listener
        if outbox is not None:
            outbox.put(message)

    def cancel(self, request_id: msgspec.Raw | bytes) -> None:
        """Cancel the running requests with this id."""
        for request in list(self.requests):
            if bytes(request.message.id) == bytes(request_id):
                request.cancel()

    def end(self) -> None:
        """Cancel what runs, and end the GET stream."""
        for request in list(self.requests):
            request.cancel()
        if self.listener is not None:
            self.listener.close()


class ListeningStreams:
    """The streams on which clients only listen.

    A principal has so many: one more ends the one that is open longest.

    So who opens streams for nothing takes no session's place, and no request's.
    """

    def __init__(self, max_streams: int) -> None:
        """Keep so many of each principal."""
        self._max_streams = max_streams
        self._ends: dict[
            str, dict[object, Callable[[], None]]
        ] = {}  # By principal, the oldest first

    @property
    def principals(self) -> set[str]:
        return set(self._ends)

    @contextmanager
    def open(self, principal: str, end: Callable[[], None]) -> Iterator[None]:
        """Keep a stream as long as the context; ``end`` is called if it is to end."""
        stream, own = object(), self._ends.setdefault(principal, {})
        own[stream] = end
        if len(own) > self._max_streams:
            own.pop(next(iter(own)))()
        try:
            yield
        finally:
            own.pop(stream, None)
            if not own:
                self._ends.pop(principal, None)

    def end_all(self) -> None:
        for end in [end for own in self._ends.values() for end in own.values()]:
            end()


class SessionTable:
    """The sessions of a server, in the order of their last use."""

    def __init__(
        self, max_sessions: int, idle_seconds: float, on_end: Callable[[Session], None]
    ) -> None:
        """Call ``on_end`` for each session that has ended, for whatever reason."""
        self._sessions: OrderedDict[str, Session] = OrderedDict()
        self._max_sessions, self._idle_seconds, self._on_end = max_sessions, idle_seconds, on_end
        self.id_prefix = ""  # Of the ids of sessions that are added from now on

    def __len__(self) -> int:
        return len(self._sessions)

    def __iter__(self) -> Iterator[Session]:
        return iter(list(self._sessions.values()))

    def add(self, session: Session) -> bool:
        """Give the session an id and keep it; return False where its principal has
        too many that are busy.
        """
        own = [each for each in self._sessions.values() if each.principal == session.principal]
        if len(own) >= self._max_sessions:
            idle = next((each for each in own if not each.is_busy), None)
            if idle is None:
                return False
            self.end(idle)
        session.id, session.last_use = f"{self.id_prefix}{secrets.token_hex(16)}", time.monotonic()
        self._sessions[session.id] = session
        return True

    def find(self, session_id: str, principal: str) -> Session | None:
        """Return the principal's session of this id, which is used now; None where
        there is none.
        """
        self._end_idle()
        session = self._sessions.get(session_id)
        if session is None or session.principal != principal:
            return None
        self._use(session)
        return session

    def end(self, session: Session) -> None:
        if self._sessions.pop(session.id, None) is not None:
            session.end()
            self._on_end(session)

    def _use(self, session: Session) -> None:
        session.last_use = time.monotonic()
        self._sessions.move_to_end(session.id)

    def _end_idle(self) -> None:
        now = time.monotonic()
        while self._sessions:
            oldest = next(iter(self._sessions.values()))
            if oldest.last_use >= now or now - oldest.last_use < self._idle_seconds:
                return
            if oldest.is_busy:
                self._use(oldest)
            else:
                self.end(oldest)
