"""The connections of a listener: how many there may be, and how long an unused one may stay.

Rules. A connection without a request is closed after 30 s, and one whose peer does not read the
answer after 60 s. If there are too many connections, the oldest that has shown no token is closed:
a peer without a token takes no place from callers that have one, nor the descriptors that the
process needs itself. If all have shown a token, the caller with the most connections loses one, so
that it keeps no other caller out.
"""

import asyncio
import functools
import logging
from collections.abc import Callable
from typing import Any, Final

from uvicorn.protocols.http.h11_impl import H11Protocol

from claw_contract.limits import LineLimit

ADMITTED: Final = "claw.admitted"
"""The member of a scope's ``state`` that is called with the caller's name once it is known."""
_IDLE_SECONDS = 30.0
_UNREAD_SECONDS = 60.0
_READ_AT_LEAST = 1 << 16  # Bytes that a slow reader takes in that time
_MAX_CONNECTIONS = 4_096
_STRANGERS_SHARE = 4  # At most one connection in four may be without a token
MAX_DESCRIPTORS: Final = 8_192
ACCEPTED_AT_ONCE: Final = 64
"""Connections that asyncio accepts in one turn of its loop.

We hear of them, and close them, up to three turns later.
"""
_OWN_DESCRIPTORS = 4 * ACCEPTED_AT_ONCE
"""Descriptors for those, and for pipes, files and connections of the process itself."""
_log = logging.getLogger(__name__)


class ListenerConnectionTable:
    """The open connections of a listener."""

    def __init__(self, max_descriptors: int) -> None:
        """Keep as many as these descriptors allow."""
        # If there are few descriptors, half of them must do for the process itself.
        free = max(max_descriptors - _OWN_DESCRIPTORS, max_descriptors // 2)
        self._max_connections = min(_MAX_CONNECTIONS, free)
        self._max_strangers = max(self._max_connections // _STRANGERS_SHARE, 1)
        self._open: set[ListenerConnection] = set()
        # Connections that have shown no token, the oldest first
        self._strangers: dict[ListenerConnection, None] = {}
        # Connections that have shown one, by caller
        self._admitted: dict[str, dict[ListenerConnection, None]] = {}
        self._closed = 0
        self._lines = LineLimit(max_lines=1)

    def protocol(self) -> Callable[..., H11Protocol]:
        """Return what makes a connection of this table, for uvicorn."""
        return functools.partial(ListenerConnection, table=self)

    def add(self, connection: "ListenerConnection") -> None:
        """Add a new connection; if it is one too many, close another one."""
        self._open.add(connection)
        self._strangers[connection] = None

        if len(self._strangers) > self._max_strangers:
            self._close(next(iter(self._strangers)), "the oldest without a token")
        elif len(self._open) > self._max_connections:
            self._make_room(connection)

    def admit(self, connection: "ListenerConnection", caller: str) -> None:
        """Note that a connection has shown the token of a caller."""
        if connection not in self._strangers:
            return
        del self._strangers[connection]
        connection.caller = caller
        self._admitted.setdefault(caller, {})[connection] = None

    def remove(self, connection: "ListenerConnection") -> None:
        self._open.discard(connection)
        self._strangers.pop(connection, None)

        own = self._admitted.get(connection.caller, {})
        own.pop(connection, None)
        if not own:
            self._admitted.pop(connection.caller, None)

    def _make_room(self, newest: "ListenerConnection") -> None:
        """Close the oldest stranger; if that is ``newest``, one of the caller with the most.

        Of that caller's connections, an idle one is closed rather than the oldest.
        """
        oldest = next(iter(self._strangers))
        if oldest is not newest or not self._admitted:
            self._close(oldest, "the oldest without a token")
            return

        most = max(self._admitted.values(), key=len)
        connections = list(most)
        idle = [each for each in connections if each.is_idle]
        victim = idle[0] if idle else connections[0]
        self._close(victim, "one of the caller that has the most")

    def _close(self, connection: "ListenerConnection", which: str) -> None:
        """Close a connection, and log it: one line a minute, however many there are."""
        self.remove(connection)
        connection.transport.abort()
        self._closed += 1
        if self._lines.take("") is not None:
            _log.warning("too many connections: closed %s (%d so far)", which, self._closed)


class ListenerConnection(H11Protocol):
    """A connection that is closed if its peer sends no request, or does not read the answer."""

    def __init__(self, *arguments: Any, table: ListenerConnectionTable, **more: Any) -> None:
        """Register with ``table`` once the connection is made."""
        super().__init__(*arguments, **more)
        self._table = table
        self.caller = ""
        self.app_state = {**self.app_state, ADMITTED: functools.partial(table.admit, self)}
        self._idle: asyncio.TimerHandle | None = None
        self._unread: asyncio.TimerHandle | None = None

    @property
    def is_idle(self) -> bool:
        """Return whether no request of it is being answered."""
        return self.cycle is None or self.cycle.response_complete

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        self._watch()
        self._table.add(self)

    def connection_lost(self, exc: Exception | None) -> None:
        self._table.remove(self)
        for timer in (self._idle, self._unread):
            if timer is not None:
                timer.cancel()
        super().connection_lost(exc)

    def handle_events(self) -> None:
        super().handle_events()
        self._watch()

    def on_response_complete(self) -> None:
        super().on_response_complete()
        self._watch()

    def pause_writing(self) -> None:
        super().pause_writing()
        self._wait_for_reader()

    def resume_writing(self) -> None:
        super().resume_writing()
        if self._unread is not None:
            self._unread.cancel()
            self._unread = None

    def _watch(self) -> None:
        """Start the time of an idle connection, and stop it while a request is being answered.

        What the peer sends short of a whole request does not stop it.
        """
        if self.is_idle and self._idle is None:
            self._idle = self.loop.call_later(_IDLE_SECONDS, self._end_idle)
        elif not self.is_idle and self._idle is not None:
            self._idle.cancel()
            self._idle = None

    def _end_idle(self) -> None:
        if self.flow.write_paused:
            # The peer is still reading the answer, which has a time of its own.
            self._idle = self.loop.call_later(_IDLE_SECONDS, self._end_idle)
        else:
            self.transport.abort()

    def _wait_for_reader(self) -> None:
        waiting = self.transport.get_write_buffer_size()
        self._unread = self.loop.call_later(_UNREAD_SECONDS, self._end_unread, waiting)

    def _end_unread(self, before: int) -> None:
        if self.transport.get_write_buffer_size() > before - _READ_AT_LEAST:
            self.transport.abort()
        else:
            self._wait_for_reader()
