"""Patches of mitmproxy's HTTP layers (each is proved in tests/proxy).

Odd traffic:

    trailers of a chunked message     mitmproxy raises, and the peer hangs: they are read and
                                      dropped
    a WebSocket over HTTP/2           (RFC 8441) ends the whole connection: it becomes a request
                                      that can be refused
    a head, a chunk's head, or        are buffered without a limit: beyond a megabyte the connection
    endless pipelined requests        is closed
    h3 offered over TCP               is accepted, and crashes the connection, which has no HTTP/3:
                                      it is not accepted

Back-pressure: mitmproxy buffers without a limit what an HTTP/2 peer gives no window for, and an
upload while its provider is being connected. A task that reads a connection waits before it reads
on (``ConnectionHandler.drain_writers``) until there is room again at every other connection of this
runner, and in its streams. It does not wait for others while its own peer has no room: that peer
must be read, or both would wait forever.

Half heads: each connection of a runner tells since when it has the beginning of a head, and not yet
its end.

Deliveries: each connection to a runner tells where in its bytes an answer ends (``delivery``).

mitmproxy looks the replaced names up when a connection begins; ``install`` checks that.
"""

import asyncio
import time
from collections.abc import Generator, Sequence
from typing import Any
from weakref import WeakKeyDictionary

import h2.events
import h2.frame_buffer
import h11
from mitmproxy import connection
from mitmproxy.addons import tlsconfig
from mitmproxy.proxy import commands, events, server
from mitmproxy.proxy.layers import http as layers
from mitmproxy.proxy.layers import tls
from mitmproxy.proxy.layers.http import _http1, _http2

from claw_mediate.mitm.response_stream import delivery, handler_hooks

MAX_UNREAD = 1 << 20
_parse_request = _http2.parse_h2_request_headers


def install() -> None:
    """Replace the parts of mitmproxy. Raise ``RuntimeError`` for one that is built differently."""
    required_names = [
        ("ChunkedReader", _http1.make_body_reader),
        ("parse_h2_request_headers", _http2.Http2Server.handle_h2_event),
        ("Http1Server", layers.HttpLayer._handle_event),  # noqa: SLF001 - where connections are made
        ("Http1Client", layers.HttpClient._handle_event),  # noqa: SLF001
        ("HTTP_ALPNS", tlsconfig.alpn_select_callback),
        ("drain_writers", server.ConnectionHandler.handle_connection),
        ("hook_task", server.ConnectionHandler.server_event),
    ]
    for name, function in required_names:
        wrapped = getattr(function, "__wrapped__", function)
        used = {*function.__code__.co_names, *wrapped.__code__.co_names}
        if name not in used:
            raise RuntimeError(
                f"this version of mitmproxy is built differently: {name} can't be fixed"
            )

    if "stream_buffers" not in _http2.BufferedH2Connection.__annotations__:
        raise RuntimeError(
            "this version of mitmproxy is built differently: HTTP/2 would have no back-pressure"
        )
    if not {"_data", "_headers_buffer"} <= vars(h2.frame_buffer.FrameBuffer()).keys():
        raise RuntimeError(
            "this version of mitmproxy is built differently: half a head over HTTP/2 "
            "would have no limit"
        )

    _http1.ChunkedReader = _ChunkedReader  # type: ignore[misc]
    _http2.parse_h2_request_headers = _parse_request_head  # type: ignore[assignment]
    layers.Http1Server = _Http1Server  # type: ignore[misc]
    layers.Http1Client = _Http1Client  # type: ignore[misc]
    layers.Http2Server = _Http2Server  # type: ignore[misc]
    layers.Http2Client = _Http2Client  # type: ignore[misc]
    tls.HTTP_ALPNS = (tls.HTTP2_ALPN, *tls.HTTP1_ALPNS)  # type: ignore[assignment]
    server.ConnectionHandler.drain_writers = _drain  # type: ignore[method-assign]
    server.ConnectionHandler.hook_task = handler_hooks.take_hook  # type: ignore[method-assign,assignment]


class _ChunkedReader(_http1.ChunkedReader):
    def __call__(self, buf: Any) -> Any:
        event = super().__call__(buf)
        return h11.EndOfMessage() if isinstance(event, h11.EndOfMessage) else event


def _parse_request_head(fields: Sequence[tuple[bytes, bytes]]) -> Any:
    """Parse the head of a request; a WebSocket (RFC 8441) becomes a GET with ``upgrade``."""
    if (b":protocol", b"websocket") in fields:
        plain = [field for field in fields if field[0] not in (b":protocol", b":method")]
        fields = [(b":method", b"GET"), *plain, (b"upgrade", b"websocket")]
    return _parse_request(fields)


class _Http1Server(layers.Http1Server):
    has_half_head = False

    def _handle_event(self, event: Any) -> Generator[Any, Any, None]:
        if isinstance(event, events.ConnectionClosed):
            delivery.note_runner_left(self.conn)
        yield from super()._handle_event(event)
        if isinstance(event, layers.ResponseEndOfMessage):
            yield from delivery.note_sent(self.conn, event.stream_id)

        unread = len(self.buf)
        if unread > MAX_UNREAD:
            yield from _drop_unread(self)
        is_half = unread > 0 and self.state == self.read_headers
        if is_half != self.has_half_head:
            _note_head(self, is_half=is_half)


class _Http1Client(layers.Http1Client):
    def _handle_event(self, event: Any) -> Generator[Any, Any, None]:
        yield from super()._handle_event(event)
        if len(self.buf) > MAX_UNREAD:
            yield from _drop_unread(self)


def _drop_unread(connection: _http1.Http1Connection) -> Generator[Any, Any, None]:
    connection.buf = _http1.ReceiveBuffer()
    yield commands.CloseConnection(connection.conn)


_half_heads: WeakKeyDictionary["_Http1Server | _Http2Server", float] = WeakKeyDictionary()
"""When the first byte of a head came whose end did not come yet (``time.monotonic``).

The key is the layer that reads it and not the connection: after CONNECT, two layers read one
connection, and one of them only passes its bytes on.
"""


def half_heads() -> dict[str, float]:
    """Return since when each connection has only a part of a head, by its id."""
    return {layer.conn.id: since for layer, since in _half_heads.items()}


def _note_head(layer: "_Http1Server | _Http2Server", *, is_half: bool) -> None:
    layer.has_half_head = is_half
    if is_half:
        _half_heads[layer] = time.monotonic()
    else:
        _half_heads.pop(layer, None)


MAX_BUFFERED = 1 << 20
_drain_writers: Any = server.ConnectionHandler.drain_writers
_has_room: WeakKeyDictionary[connection.Connection, asyncio.Event] = WeakKeyDictionary()
"""For each HTTP/2 connection, set while not too much is buffered for it."""
_buffered: WeakKeyDictionary[connection.Connection, int] = WeakKeyDictionary()
"""The bytes that wait for each of those connections to give room."""
_waiting_bytes: WeakKeyDictionary[connection.Client, dict[int, int]] = WeakKeyDictionary()
"""For each runner, the bytes that wait in its streams."""
_streams_have_room: WeakKeyDictionary[connection.Client, asyncio.Event] = WeakKeyDictionary()


def is_buffering(client: connection.Client) -> bool:
    """Return whether much of an answer waits for this HTTP/2 connection to give room."""
    return client in _has_room and not _has_room[client].is_set()


def buffered_bytes(client: connection.Client) -> int:
    """Return the bytes that wait for this HTTP/2 connection while too much does; 0 otherwise."""
    return _buffered[client] if is_buffering(client) else 0


def set_waiting(client: connection.Client, stream_id: int, size: int) -> None:
    """Note how many bytes wait in this stream of the runner."""
    waiting = _waiting_bytes.setdefault(client, {})
    waiting[stream_id] = size
    if not size:
        del waiting[stream_id]

    room = _streams_have_room.setdefault(client, asyncio.Event())
    _set(room, has_room=sum(waiting.values()) < MAX_BUFFERED)


def _set(event: asyncio.Event, *, has_room: bool) -> None:
    if has_room:
        event.set()
    else:
        event.clear()


class _Http2Server(layers.Http2Server):
    has_half_head = False

    def _handle_event(self, event: Any) -> Generator[Any, Any, None]:
        if isinstance(event, events.ConnectionClosed):
            delivery.note_runner_left(self.conn)
        elif isinstance(event, layers.ResponseEndOfMessage) and not self.is_open_for_us(
            event.stream_id
        ):
            # mitmproxy drops what a closed stream is sent.
            delivery.lose(self.conn, event.stream_id)
        yield from super()._handle_event(event)

        _check_room(self)
        is_half = _has_half_a_frame(self.h2_conn.incoming_buffer)
        if is_half != self.has_half_head:
            _note_head(self, is_half=is_half)
        for stream_id in delivery.unsent(self.conn):
            if not self.h2_conn.stream_buffers.get(stream_id):
                yield from delivery.note_sent(self.conn, stream_id)

    def handle_h2_event(self, event: Any) -> Generator[Any, Any, bool]:
        if isinstance(event, h2.events.StreamReset):
            delivery.lose(self.conn, event.stream_id)
        return (yield from super().handle_h2_event(event))

    def close_connection(self, msg: str) -> Generator[Any, Any, None]:
        delivery.lose_unsent(self.conn)
        yield from super().close_connection(msg)


class _Http2Client(layers.Http2Client):
    def _handle_event(self, event: Any) -> Generator[Any, Any, None]:
        yield from super()._handle_event(event)
        _check_room(self)


def _has_half_a_frame(buffer: h2.frame_buffer.FrameBuffer) -> bool:
    """Return whether a frame, or a head of several frames, has begun and not ended.

    No honest peer sends a frame slowly.
    """
    return bool(buffer._data or buffer._headers_buffer)  # noqa: SLF001 - h2 tells it nobody else


def _check_room(layer: _http2.Http2Connection) -> None:
    """Note whether the connection has room. A closed one has: nobody must wait for it."""
    buffers = layer.h2_conn.stream_buffers
    if not buffers and layer.conn not in _has_room:
        return

    buffered = sum(len(part.data) for buffer in buffers.values() for part in buffer)
    is_closed = not layer.conn.state & connection.ConnectionState.CAN_WRITE
    room = _has_room.setdefault(layer.conn, asyncio.Event())
    _set(room, has_room=buffered < MAX_BUFFERED or is_closed)
    _buffered[layer.conn] = buffered


async def _drain(handler: server.ConnectionHandler) -> None:
    """Wait until there is room for what the task that calls this reads next."""
    await _drain_writers(handler)

    # The runner's own connection waits for its streams.
    reader = asyncio.current_task()
    own = handler.transports.get(handler.client)
    if own is not None and own.handler is reader and handler.client in _streams_have_room:
        await _streams_have_room[handler.client].wait()

    # Any connection waits for all others that are full; but one that is full itself is read
    # on, or both would wait forever.
    full = [
        (io.handler, room)
        for peer, io in handler.transports.items()
        if (room := _has_room.get(peer)) is not None and not room.is_set()
    ]
    if all(task is not reader for task, _ in full):
        for _, room in full:
            await room.wait()
