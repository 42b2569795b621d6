"""One request over HTTP/1.1 and its response, on a connection of its own (RFC 9112, by h11).

Rules. Everything that a peer sends is bounded: the head of a response, informational responses, the
bytes and the pieces of a body. No redirect is followed here, no cookie is kept, nothing is sent
twice. The caller bounds the time, by cancelling.
"""

import asyncio
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Final, NamedTuple

import h11

from claw_tools.web.dialer import Dialer
from claw_tools.web.urls import OutboundUrl

USER_AGENT: Final = "clawdapus-tools"
_READ: Final = 1 << 16
_MAX_HEAD: Final = 64 << 10
_MAX_INFORMATIONAL: Final = 16  # Responses of status 1xx before the real one
_MAX_PIECES: Final = 20_000  # Of a body: a chunk of one byte costs as much time as one of 64 KiB


class BrokenExchangeError(Exception):
    """The peer broke off, or what it sent is no HTTP. The request may have been executed."""


@dataclass(frozen=True, slots=True)
class OutboundRequest:
    """A request.

    Headers are ASCII, their names in lower case; Host, Connection and Content-Length are added.
    """

    url: OutboundUrl
    headers: Mapping[str, str] = field(default_factory=dict)
    method: str = "GET"
    body: bytes = b""


class Body(NamedTuple):
    """The part of a body that was read, and whether that is all of it."""

    content: bytes
    is_whole: bool


@asynccontextmanager
async def exchange(dialer: Dialer, request: OutboundRequest) -> AsyncIterator["OutboundResponse"]:
    """Send a request and yield its response, body unread; the connection ends with the block.

    Raise ``ToolError`` or ``UnreachableError`` if nothing was sent, and ``BrokenExchangeError``
    afterwards.
    """
    reader, writer = await dialer.connect(request.url)
    try:
        connection = h11.Connection(h11.CLIENT, max_incomplete_event_size=_MAX_HEAD)
        writer.write(_encode(connection, request))
        yield await _receive_head(OutboundResponse(connection, reader))
    finally:
        writer.transport.abort()
        await asyncio.sleep(0)  # Let the transport close its socket


class OutboundResponse:
    """The response of an ``OutboundRequest``. Its head has been read."""

    status = 0
    headers: Mapping[str, str]
    """Names are in lower case. Values of the same name are joined by commas."""

    def __init__(self, connection: h11.Connection, reader: asyncio.StreamReader) -> None:
        """Expect the response of the request that the connection has sent."""
        self._connection = connection
        self._reader = reader
        self._received = 0
        self.headers = {}

    async def read_body(self, max_bytes: int) -> Body:
        """Return the first ``max_bytes`` of the body.

        It is not whole if there is more, or if the peer broke off.
        """
        content = bytearray()
        # Chunks may have long heads of their own, which are no content
        max_received = self._received + max_bytes + _MAX_HEAD
        try:
            for _ in range(_MAX_PIECES):
                event = await self.next_event()
                if not isinstance(event, h11.Data):
                    return Body(bytes(content), is_whole=True)

                content += event.data
                if len(content) > max_bytes or self._received > max_received:
                    break
        except BrokenExchangeError:
            pass
        return Body(bytes(content[:max_bytes]), is_whole=False)

    async def next_event(self) -> h11.Event:
        """Return what the peer says next. Raise ``BrokenExchangeError``."""
        try:
            while (event := self._connection.next_event()) is h11.NEED_DATA:
                data = await self._reader.read(_READ)
                self._received += len(data)
                self._connection.receive_data(data)
        except (h11.RemoteProtocolError, OSError) as error:
            raise BrokenExchangeError from error

        if not isinstance(event, h11.Event):
            raise BrokenExchangeError
        return event


async def _receive_head(response: OutboundResponse) -> OutboundResponse:
    for _ in range(_MAX_INFORMATIONAL):
        event = await response.next_event()
        if isinstance(event, h11.Response):
            response.status = event.status_code
            response.headers = _join_headers(event)
            return response
        if not isinstance(event, h11.InformationalResponse):
            break
    raise BrokenExchangeError


def _join_headers(event: h11.Response) -> dict[str, str]:
    joined: dict[str, str] = {}
    for raw_name, raw_value in event.headers:
        name = raw_name.decode("ascii")
        value = raw_value.decode(errors="replace")
        joined[name] = f"{joined[name]}, {value}" if name in joined else value
    return joined


def _encode(connection: h11.Connection, request: OutboundRequest) -> bytes:
    headers = {
        "host": request.url.authority,
        "user-agent": USER_AGENT,
        **request.headers,
        "connection": "close",
    }
    if request.method != "GET":
        headers["content-length"] = str(len(request.body))

    head = h11.Request(
        method=request.method, target=request.url.target, headers=list(headers.items())
    )
    parts = [
        connection.send(head),
        connection.send(h11.Data(data=request.body)),
        connection.send(h11.EndOfMessage()),
    ]
    return b"".join(part for part in parts if part)
