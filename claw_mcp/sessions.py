"""Sessions of the server side: whose they are, what runs in them, and what waits for their clients.

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
from http import HTTPStatus
from typing import NamedTuple

import msgspec

from claw_mcp.protocol import RpcMessage

_MAX_WAITING_BYTES = 4 << 20
_MESSAGE_OVERHEAD = 64  # Bytes that a message counts besides its own


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
        """Add a message; drop it if there is no room, or no reader any more."""
        size = len(message) + _MESSAGE_OVERHEAD
        if self.is_closed or self._bytes + size > _MAX_WAITING_BYTES:
            return
        self._bytes += size
        self._messages.append(message)
        self._changed.set()

    def close(self) -> None:
        """Take no more messages; those that wait may still be read."""
        self.is_closed = True
        self._changed.set()

    def take(self) -> bytes:
        """Return the next message. Raise ``IndexError`` if none waits."""
        message = self._messages.popleft()
        self._bytes -= len(message) + _MESSAGE_OVERHEAD
        if not self._messages and not self.is_closed:
            self._changed.clear()
        return message

    async def wait(self, seconds: float) -> bool:
        """Wait until a message is there or the outbox is closed; return False after ``seconds``."""
        try:
            async with asyncio.timeout(seconds):
                return await self._changed.wait()
        except TimeoutError:
            return False


class Answer(NamedTuple):
    """The response to a request, and its HTTP status if nothing was sent before it."""

    message: bytes
    status: int = HTTPStatus.OK


@dataclass(eq=False, slots=True)
class ClientRequest:
    """One request of a client, as a backend answers it.

    ``message.params`` is JSON as it was sent. ``subscriptions``: the methods of the notifications
    that a ``subscriptions/listen`` wants.
    """

    session: "Session"
    message: RpcMessage
    accepts_stream: bool = True
    outbox: Outbox = field(default_factory=Outbox)
    task: asyncio.Task[Answer] | None = None
    subscriptions: frozenset[str] = frozenset()

    @property
    def method(self) -> str:
        return self.message.method or ""

    def send(self, message: bytes) -> None:
        """Send a message to the client before the answer; drop it if the client takes no stream."""
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
        """Send a message of the server on one stream of the client.

        It is the stream of a running request, else that of GET. Drop the message if there is none.
        """
        for request in self.requests:
            if request.accepts_stream and not request.outbox.is_closed:
                request.outbox.put(message)
                return

        if self.listener is not None:
            self.listener.put(message)

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

    A principal has at most ``max_streams``: one more ends the one that is open longest. So streams
    that nobody needs take no place from a session or a request.
    """

    def __init__(self, max_streams: int) -> None:
        self._max_streams = max_streams
        # For each principal, what ends each of its streams; the oldest stream first
        self._ends: dict[str, dict[object, Callable[[], None]]] = {}

    @property
    def principals(self) -> set[str]:
        return set(self._ends)

    @contextmanager
    def open(self, principal: str, end: Callable[[], None]) -> Iterator[None]:
        """Count a stream as long as the context; ``end`` is called to end it before."""
        stream = object()
        own = self._ends.setdefault(principal, {})
        own[stream] = end

        if len(own) > self._max_streams:
            oldest = next(iter(own))
            end_oldest = own.pop(oldest)
            end_oldest()

        try:
            yield
        finally:
            own.pop(stream, None)
            if not own:
                self._ends.pop(principal, None)

    def end_all(self) -> None:
        all_ends = [end for own in self._ends.values() for end in own.values()]
        for end in all_ends:
            end()


class SessionTable:
    """The sessions of a server, in the order of their last use."""

    def __init__(
        self, max_sessions: int, idle_seconds: float, on_end: Callable[[Session], None]
    ) -> None:
        """Call ``on_end`` for each session that has ended, for whatever reason."""
        self._sessions: OrderedDict[str, Session] = OrderedDict()
        self._max_sessions = max_sessions
        self._idle_seconds = idle_seconds
        self._on_end = on_end
        self.id_prefix = ""  # The beginning of the id of each session that is added from now on

    def __len__(self) -> int:
        return len(self._sessions)

    def __iter__(self) -> Iterator[Session]:
        return iter(list(self._sessions.values()))

    def add(self, session: Session) -> bool:
        """Add a session, with a new id; return False if too many of its principal are busy."""
        own = [each for each in self._sessions.values() if each.principal == session.principal]
        if len(own) >= self._max_sessions:
            idle = [each for each in own if not each.is_busy]
            if not idle:
                return False
            self.end(idle[0])  # the one that was used longest ago

        session.id = f"{self.id_prefix}{secrets.token_hex(16)}"
        session.last_use = time.monotonic()
        self._sessions[session.id] = session
        return True

    def find(self, session_id: str, principal: str) -> Session | None:
        """Return the principal's session of this id, and note its use; None if there is none."""
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
