"""The connections of a listener: how many there may be, and how long a peer may
keep one for nothing.

Rules. Between two requests a connection has 30 s, and an answer that nobody reads has 60 s. Where
there are too many connections, the oldest that has shown no token is closed: so nobody without a
token takes a place from who has one, nor the descriptors that the process needs itself. Where all
have shown one, whoever has the most loses one, and keeps nobody else out.
"""

import asyncio
import functools
import logging
from collections.abc import Callable
from typing import Any, Final

from uvicorn.protocols.http.h11_impl import H11Protocol

from claw_contract.limits import LineLimit

ADMITTED: Final = "claw.admitted"
"""The member of a scope's ``state`` to call with the caller's name once it is known who asks."""
_IDLE_SECONDS = 30.0
_UNREAD_SECONDS = 60.0
_READ_AT_LEAST = 1 << 16  # Bytes that a slow reader takes in that time
_MAX_CONNECTIONS = 4_096
_STRANGERS_SHARE = 4  # One of so many connections may be without a token
MAX_DESCRIPTORS: Final = 8_192
ACCEPTED_AT_ONCE: Final = 64
"""Connections that asyncio accepts in one turn of its loop; they are told to us,
and closed, up to three turns later.
"""
_OWN_DESCRIPTORS = (
    4 * ACCEPTED_AT_ONCE
)  # For those, and for pipes, files and connections of the process itself
_log = logging.getLogger(__name__)


class ListenerConnectionTable:
    """The open connections of a listener."""

    def __init__(self, max_descriptors: int) -> None:
        """Keep as many as these descriptors allow."""
        # Where there are few descriptors, half of them must do for the process itself.
        free = max(max_descriptors - _OWN_DESCRIPTORS, max_descriptors // 2)
        self._max_connections = min(_MAX_CONNECTIONS, free)
        self._max_strangers = max(self._max_connections // _STRANGERS_SHARE, 1)
        self._open: set[ListenerConnection] = set()
        self._strangers: dict[
            ListenerConnection, None
        ] = {}  # Those without a token, the oldest first
        self._admitted: dict[str, dict[ListenerConnection, None]] = {}  # The others, by caller
        self._closed, self._lines = 0, LineLimit(max_lines=1)

    def protocol(self) -> Callable[..., H11Protocol]:
        """Return what makes a connection of this table, for uvicorn."""
        return functools.partial(ListenerConnection, table=self)

    def add(self, connection: "ListenerConnection") -> None:
        """Keep a new connection; where it is one too many, close the oldest
        stranger or one of whoever has the most.
        """
        self._open.add(connection)
        self._strangers[connection] = None
        if len(self._strangers) > self._max_strangers:
            self._close(next(iter(self._strangers)), "the oldest without a token")
        elif len(self._open) > self._max_connections:
            self._make_room(connection)

    def admit(self, connection: "ListenerConnection", caller: str) -> None:
        """Note that a connection has shown the token of a caller."""
        if connection in self._strangers:
            del self._strangers[connection]
            self._admitted.setdefault(caller, {})[connection] = None
            connection.caller = caller

    def remove(self, connection: "ListenerConnection") -> None:
        self._open.discard(connection)
        self._strangers.pop(connection, None)
        own = self._admitted.get(connection.caller, {})
        own.pop(connection, None)
        if not own:
            self._admitted.pop(connection.caller, None)

    def _make_room(self, newest: "ListenerConnection") -> None:
        """Close the oldest stranger but for the newest, or a connection of the
        caller with the most: an idle one first.
        """
        oldest = next(iter(self._strangers))
        if oldest is not newest or not self._admitted:
            self._close(oldest, "the oldest without a token")
            return

        most = max(self._admitted.values(), key=len)
        idle = (each for each in most if each.is_idle)
        self._close(next(idle, next(iter(most))), "one of the caller that has the most")

    def _close(self, connection: "ListenerConnection", which: str) -> None:
        """Close a connection, and log it: one line a minute, however many there are."""
        self.remove(connection)
        connection.transport.abort()
        self._closed += 1
        if self._lines.take("") is not None:
            _log.warning("too many connections: closed %s (%d so far)", which, self._closed)


class ListenerConnection(H11Protocol):
    """A connection that ends where its peer keeps it for nothing."""

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
        """Return whether no request of it is answered."""
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
        """Let the time of a connection run while no request of it is answered,
        whatever its peer sends meanwhile.
        """
        if self.is_idle and self._idle is None:
            self._idle = self.loop.call_later(_IDLE_SECONDS, self._end_idle)
        elif not self.is_idle and self._idle is not None:
            self._idle.cancel()
            self._idle = None

    def _end_idle(self) -> None:
        if self.flow.write_paused:  # The answer is still being read, and has a time of its own
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
