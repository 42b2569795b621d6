"""Back-pressure where mitmproxy has none, and would keep whatever comes, however much that becomes.

    HTTP/2     what a peer gives no window for
    an upload  while its provider is still being connected

Who reads a connection waits before it reads on (``ConnectionHandler.drain_writers``) until there is room again: at every other
connection of this runner, and in its streams. It does not wait for others where its own peer is waited for: that one must be
heard, or both would wait forever.
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

MOST_KEPT = 1 << 20
_drain_writers: Any = server.ConnectionHandler.drain_writers
_room: WeakKeyDictionary[connection.Connection, asyncio.Event] = WeakKeyDictionary()
"""Of each connection of HTTP/2: set while not too much is kept for it."""
_piles: WeakKeyDictionary[connection.Client, dict[int, int]] = WeakKeyDictionary()
"""Of each runner: the bytes that wait in its streams."""
_shrunk: WeakKeyDictionary[connection.Client, asyncio.Event] = WeakKeyDictionary()


def make() -> None:
    """Raises ``RuntimeError`` where mitmproxy is built differently."""
    used = server.ConnectionHandler.handle_connection.__code__.co_names
    if "drain_writers" not in used or "stream_buffers" not in _http2.BufferedH2Connection.__annotations__:
        raise RuntimeError("this version of mitmproxy is built differently: HTTP/2 would have no back-pressure")
    server.ConnectionHandler.drain_writers = _drained  # type: ignore[method-assign]
    layers.Http2Server = _Http2Server  # type: ignore[misc]
    layers.Http2Client = _Http2Client  # type: ignore[misc]


def pile(client: connection.Client, stream_id: int, size: int) -> None:
    """So many bytes wait in this stream of the runner's."""
    piles = _piles.setdefault(client, {})
    piles[stream_id] = size
    if not size:
        del piles[stream_id]
    shrunk = _shrunk.setdefault(client, asyncio.Event())
    if sum(piles.values()) < MOST_KEPT:
        shrunk.set()
    else:
        shrunk.clear()


class _Http2Server(layers.Http2Server):
    def _handle_event(self, event: Any) -> Generator[Any, Any, None]:
        yield from super()._handle_event(event)
        _look(self)


class _Http2Client(layers.Http2Client):
    def _handle_event(self, event: Any) -> Generator[Any, Any, None]:
        yield from super()._handle_event(event)
        _look(self)


def _look(layer: _http2.Http2Connection) -> None:
    """Whether there is room, now. Of a connection that is over nobody waits for any."""
    buffers = layer.h2_conn.stream_buffers
    if not buffers and layer.conn not in _room:
        return
    room = _room.setdefault(layer.conn, asyncio.Event())
    kept = sum(len(part.data) for buffer in buffers.values() for part in buffer)
    if kept < MOST_KEPT or not layer.conn.state & connection.ConnectionState.CAN_WRITE:
        room.set()
    else:
        room.clear()


async def _drained(handler: server.ConnectionHandler) -> None:
    await _drain_writers(handler)
    reads = asyncio.current_task()
    own = handler.transports.get(handler.client)
    if own is not None and own.handler is reads and handler.client in _shrunk:
        await _shrunk[handler.client].wait()
    full = [
        (io.handler, room)
        for peer, io in handler.transports.items()
        if (room := _room.get(peer)) is not None and not room.is_set()
    ]
    if all(task is not reads for task, _ in full):
        for _, room in full:
            await room.wait()
