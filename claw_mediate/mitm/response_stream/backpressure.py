"""Back-pressure where mitmproxy has none and would buffer without a limit.

    HTTP/2     what a peer gives no window for
    an upload  while its provider is still being connected

A task that reads a connection waits before it reads on (``ConnectionHandler.drain_writers``) until there is room again at every
other connection of this runner, and in its streams. It does not wait for others while its own peer has no room: that peer must
be read, or both would wait forever.
"""

from __future__ import annotations

import asyncio
from collections.abc import Generator
from typing import Any
from weakref import WeakKeyDictionary

from mitmproxy import connection
from mitmproxy.proxy import server
from mitmproxy.proxy.layers import http as layers
from mitmproxy.proxy.layers.http import _http2

MAX_BUFFERED = 1 << 20
_drain_writers: Any = server.ConnectionHandler.drain_writers
_has_room: WeakKeyDictionary[connection.Connection, asyncio.Event] = WeakKeyDictionary()
"""For each HTTP/2 connection, set while not too much is buffered for it."""
_waiting_bytes: WeakKeyDictionary[connection.Client, dict[int, int]] = WeakKeyDictionary()
"""For each runner, the bytes that wait in its streams."""
_streams_have_room: WeakKeyDictionary[connection.Client, asyncio.Event] = WeakKeyDictionary()


def install() -> None:
    """Replace the parts of mitmproxy. Raise ``RuntimeError`` for one that is built differently."""
    used = server.ConnectionHandler.handle_connection.__code__.co_names
    if "drain_writers" not in used or "stream_buffers" not in _http2.BufferedH2Connection.__annotations__:
        raise RuntimeError("this version of mitmproxy is built differently: HTTP/2 would have no back-pressure")
    server.ConnectionHandler.drain_writers = _drain  # type: ignore[method-assign]
    layers.Http2Server = _Http2Server  # type: ignore[misc]
    layers.Http2Client = _Http2Client  # type: ignore[misc]


def set_waiting(client: connection.Client, stream_id: int, size: int) -> None:
    """Note how many bytes wait in this stream of the runner."""
    waiting = _waiting_bytes.setdefault(client, {})
    waiting[stream_id] = size
    if not size:
        del waiting[stream_id]
    _set(_streams_have_room.setdefault(client, asyncio.Event()), has_room=sum(waiting.values()) < MAX_BUFFERED)


def _set(event: asyncio.Event, *, has_room: bool) -> None:
    if has_room:
        event.set()
    else:
        event.clear()


class _Http2Server(layers.Http2Server):
    def _handle_event(self, event: Any) -> Generator[Any, Any, None]:
        yield from super()._handle_event(event)
        _check_room(self)


class _Http2Client(layers.Http2Client):
    def _handle_event(self, event: Any) -> Generator[Any, Any, None]:
        yield from super()._handle_event(event)
        _check_room(self)


def _check_room(layer: _http2.Http2Connection) -> None:
    """Note whether the connection has room. A closed one has: nobody must wait for it."""
    buffers = layer.h2_conn.stream_buffers
    if not buffers and layer.conn not in _has_room:
        return
    buffered = sum(len(part.data) for buffer in buffers.values() for part in buffer)
    is_closed = not layer.conn.state & connection.ConnectionState.CAN_WRITE
    _set(_has_room.setdefault(layer.conn, asyncio.Event()), has_room=buffered < MAX_BUFFERED or is_closed)


async def _drain(handler: server.ConnectionHandler) -> None:
    await _drain_writers(handler)
    reader = asyncio.current_task()
    own = handler.transports.get(handler.client)
    if own is not None and own.handler is reader and handler.client in _streams_have_room:
        await _streams_have_room[handler.client].wait()
    full = [
        (io.handler, room)
        for peer, io in handler.transports.items()
        if (room := _has_room.get(peer)) is not None and not room.is_set()
    ]
    if all(task is not reader for task, _ in full):
        for _, room in full:
            await room.wait()
