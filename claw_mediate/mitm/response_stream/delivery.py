"""The delivery of an answer: it ends when the last byte has left the process.

    expect          the answer is whole, and goes to the layers of its connection; HTTP/2 may hold
                    it back for want of a window
    note_sent       its last byte goes to the socket now. What the kernel does not take waits in the
                    buffer of the transport
    is delivered    that buffer is empty: the kernel has the answer, whether or not the runner reads
                    it
    is lost         the runner leaves before, by the end or a reset of its stream or connection

The buffer is looked at and never limited: a limit of zero bytes would keep mitmproxy from reading
this connection until all is sent, and a runner that first writes its next request would wait
forever.

A connection that is no socket of asyncio's (HTTP/3, WireGuard) does not tell what has left the
process. There an answer is never delivered, and the same request gets it again
(docs/spec/mediation.md section 5).
"""

import asyncio
from collections.abc import Coroutine, Iterator
from dataclasses import dataclass
from typing import Any
from weakref import WeakKeyDictionary

from mitmproxy import connection, http
from mitmproxy.proxy import commands, server

from claw_mediate.mitm.flow_state import PendingRequest, finish, state_of
from claw_mediate.mitm.response_stream.handler_hooks import HandlerHook

_FIRST_PAUSE, _MAX_PAUSE = 0.005, 0.1
"""Seconds between two looks at a buffer that is not empty; the pause doubles.

A lookup of retries waits for longer than it (``claw_mediate/turns/idempotency.py``).
"""


class Delivery:
    """One answer on its way to its runner."""

    def __init__(self, flow: http.HTTPFlow, stream_id: int, pending: PendingRequest) -> None:
        self._flow = flow
        self._stream_id = stream_id
        self._pending = pending
        self.was_sent = False
        """True when the last byte has gone to the transport."""
        self._writer: asyncio.StreamWriter | None = None
        self._is_delivered: bool | None = None
        """None as long as that is open."""

    def note_sent(self, writer: object) -> Coroutine[Any, Any, None]:
        """Note that the last byte has just been written.

        Return what marks the answer once it has left the process.
        """
        self.was_sent = True
        if self._flow.is_replay:
            # There is no connection: who replays a flow looks at it here.
            self._is_delivered = True
        elif isinstance(writer, asyncio.StreamWriter) and not writer.is_closing():
            self._writer = writer
            self._is_delivered = True if _is_empty(writer) else None
        else:
            # mitmproxy writes nothing to a connection that is being closed.
            self._is_delivered = False
        return self._end()

    def note_runner_left(self) -> None:
        """Settle the delivery when its connection ends on the runner's side."""
        if self._is_delivered is not None:
            return

        writer = self._writer
        if writer is None or writer.is_closing():  # a reset has emptied the buffer, too
            self._is_delivered = False
        else:
            self._is_delivered = _is_empty(writer)

    def lose(self) -> None:
        """Note that the runner will not get the whole answer."""
        self._is_delivered = False
        self._finish()

    async def _end(self) -> None:
        try:
            if await self._wait():
                answer, self._pending.answer = self._pending.answer, None
                mark = answer.note_end(is_delivered=True) if answer is not None else None
                if mark is not None:
                    await mark
        finally:
            self._finish()

    def _finish(self) -> None:
        _under_way[self._flow.client_conn].pop(self._stream_id, None)
        finish(self._flow, self._pending)

    async def _wait(self) -> bool:
        """Wait until the answer has left the process, or never will; return whether it has."""
        pause = _FIRST_PAUSE
        while self._is_delivered is None:
            assert self._writer is not None
            if self._writer.is_closing():
                return await self._wait_until_closed(self._writer)

            if _is_empty(self._writer):
                return True

            await asyncio.sleep(pause)
            pause = min(2 * pause, _MAX_PAUSE)
        return self._is_delivered

    async def _wait_until_closed(self, writer: asyncio.StreamWriter) -> bool:
        """Wait for the end of a connection that we close after the answer.

        What is buffered is sent before the end.
        """
        try:
            await writer.wait_closed()
        except OSError:
            return False
        return self._is_delivered is not False


def _is_empty(writer: asyncio.StreamWriter) -> bool:
    return not writer.transport.get_write_buffer_size()


_under_way: WeakKeyDictionary[connection.Connection, dict[int, Delivery]] = WeakKeyDictionary()
"""The deliveries on each runner's connection, by stream, until they end."""


@dataclass
class ResponseSentHook(HandlerHook):
    """The place right after the last byte of an answer."""

    client: connection.Connection
    delivery: Delivery
    blocking = False

    def serve(self, handler: server.ConnectionHandler) -> Coroutine[Any, Any, None]:
        # The writer is taken now: it may be closed next.
        io = handler.transports.get(self.client)
        return self.delivery.note_sent(io.writer if io is not None else None)


def expect(flow: http.HTTPFlow, stream_id: int) -> None:
    """Note that the whole answer of this flow goes to the layers of its connection now."""
    pending = state_of(flow).pending
    if pending is None or pending.answer is None or flow.client_conn.transport_protocol != "tcp":
        return
    pending.is_being_delivered = True
    _under_way.setdefault(flow.client_conn, {})[stream_id] = Delivery(flow, stream_id, pending)


def unsent(client: connection.Connection) -> list[int]:
    """Return the streams with answers that the layers of this connection still hold back."""
    return [
        stream_id for stream_id, each in _under_way.get(client, {}).items() if not each.was_sent
    ]


def note_sent(client: connection.Connection, stream_id: int) -> Iterator[commands.Command]:
    """Yield what tells the connection's handler that this stream's answer was written."""
    delivery = _under_way.get(client, {}).get(stream_id)
    if delivery is not None and not delivery.was_sent:
        yield ResponseSentHook(client, delivery)


def lose(client: connection.Connection, stream_id: int) -> None:
    """Note that the rest of this stream's answer will not be sent."""
    delivery = _under_way.get(client, {}).get(stream_id)
    if delivery is not None and not delivery.was_sent:
        delivery.lose()


def lose_unsent(client: connection.Connection) -> None:
    """Note the same for all answers that the layers of this connection hold back."""
    for stream_id in unsent(client):
        lose(client, stream_id)


def note_runner_left(client: connection.Connection) -> None:
    """Settle all deliveries of a connection whose runner has ended it.

    One that we close sends what it holds.
    """
    if client.state & connection.ConnectionState.CAN_WRITE:
        for delivery in _under_way.get(client, {}).values():
            delivery.note_runner_left()
