"""Fixes of what mitmproxy's HTTP layers do with odd traffic (each is proved in tests/proxy).

    trailers of a chunked message     mitmproxy raises, and the peer hangs: they are read and dropped
    a WebSocket over HTTP/2           (RFC 8441) ends the whole connection: it becomes a request that can be refused
    a head, a chunk's head, or        are buffered without a limit: beyond a megabyte the connection is closed
    endless pipelined requests
    h3 offered over TCP               is accepted, and crashes the connection, which has no HTTP/3: it is not accepted

mitmproxy looks the replaced names up when a connection begins; ``install`` checks that.
"""

from __future__ import annotations

from collections.abc import Generator, Sequence
from typing import Any

import h11
from mitmproxy.addons import tlsconfig
from mitmproxy.proxy import commands
from mitmproxy.proxy.layers import http as layers
from mitmproxy.proxy.layers import tls
from mitmproxy.proxy.layers.http import _http1, _http2

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
    ]
    for name, where in required_names:
        if name not in where.__code__.co_names and name not in getattr(where, "__wrapped__", where).__code__.co_names:
            raise RuntimeError(f"this version of mitmproxy is built differently: {name} can't be fixed")
    _http1.ChunkedReader = _ChunkedReader  # type: ignore[misc]
    _http2.parse_h2_request_headers = _parse_request_head  # type: ignore[assignment]
    layers.Http1Server = _Http1Server  # type: ignore[misc]
    layers.Http1Client = _Http1Client  # type: ignore[misc]
    tls.HTTP_ALPNS = (tls.HTTP2_ALPN, *tls.HTTP1_ALPNS)  # type: ignore[assignment]


class _ChunkedReader(_http1.ChunkedReader):
    def __call__(self, buf: Any) -> Any:
        event = super().__call__(buf)
        return h11.EndOfMessage() if isinstance(event, h11.EndOfMessage) else event


def _parse_request_head(fields: Sequence[tuple[bytes, bytes]]) -> Any:
    if (b":protocol", b"websocket") in fields:
        plain = [field for field in fields if field[0] not in (b":protocol", b":method")]
        fields = [(b":method", b"GET"), *plain, (b"upgrade", b"websocket")]
    return _parse_request(fields)


class _Http1Server(layers.Http1Server):
    def _handle_event(self, event: Any) -> Generator[Any, Any, None]:
        yield from super()._handle_event(event)
        yield from _limit_unread(self)


class _Http1Client(layers.Http1Client):
    def _handle_event(self, event: Any) -> Generator[Any, Any, None]:
        yield from super()._handle_event(event)
        yield from _limit_unread(self)


def _limit_unread(connection: _http1.Http1Connection) -> Generator[Any, Any, None]:
    if len(connection.buf) > MAX_UNREAD:
        connection.buf = _http1.ReceiveBuffer()
        yield commands.CloseConnection(connection.conn)
