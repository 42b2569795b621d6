"""One connection to a peer, with one request at a time: h11 knows the protocol, asyncio the socket."""

from __future__ import annotations

import asyncio
import select
from collections.abc import AsyncIterator

import h11
import httpx2

_MOST_HEAD = 100 * 1024
"""Bytes of a response before its body."""
_MOST_UNREAD = 256 * 1024
"""Bytes that may wait to be read before the peer has to."""


class Connection(asyncio.Protocol):
    """The protocol's side of asyncio, and the caller's."""

    def __init__(self) -> None:
        self._wire = h11.Connection(h11.CLIENT, max_incomplete_event_size=_MOST_HEAD)
        self._received = bytearray()
        self._lost = False
        self._error: Exception | None = None
        self._news: asyncio.Future[None] | None = None
        self._transport: asyncio.Transport | None = None
        self._good_until = 0.0

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport

    def data_received(self, data: bytes) -> None:
        self._received += data
        if len(self._received) > _MOST_UNREAD:
            self._sure().pause_reading()
        self._tell()

    def connection_lost(self, error: Exception | None) -> None:
        self._lost, self._error = True, error
        self._tell()

    async def ask(self, request: h11.Request, body: bytes) -> h11.Response:
        """Send the request, and read up to the body of its response.

        Nothing waits until the request is gone: a peer may answer before it has read all of it.
        """
        parts = self._wire.send_with_data_passthrough(request) or []
        parts += self._wire.send_with_data_passthrough(h11.Data(data=body)) or [] if body else []
        self._wire.send(h11.EndOfMessage())
        self._sure().writelines(parts)
        while isinstance(event := await self._event(), h11.InformationalResponse):
            pass
        if not isinstance(event, h11.Response):
            raise httpx2.RemoteProtocolError("no response")
        return event

    def body(self) -> httpx2.AsyncByteStream:
        """The body of the response."""
        return _Body(self)

    async def parts(self) -> AsyncIterator[bytes]:
        """Of the body, as they come."""
        while isinstance(event := await self._event(), h11.Data):
            yield bytes(event.data)

    def is_good(self, now: float) -> bool:
        """Whether a request may be asked on this connection, which waits for one: nothing came unasked, not even an end."""
        return now < self._good_until and not self._lost and not self._received and not _has_news(self._sure())

    def renewed(self, until: float) -> bool:
        """Ready for another request, until that time, where both sides have said all they had to say."""
        said = self._wire.our_state is h11.DONE and self._wire.their_state is h11.DONE
        if not said or self._wire.trailing_data[0] or self._lost or self._sure().get_write_buffer_size():
            return False
        self._wire.start_next_cycle()
        self._good_until = until
        return True

    def end(self) -> None:
        self._sure().abort()

    async def _event(self) -> h11.Event | type[h11.PAUSED]:
        """What the peer says next."""
        try:
            while (event := self._wire.next_event()) is h11.NEED_DATA:
                await self._more()
        except h11.RemoteProtocolError as error:
            raise httpx2.RemoteProtocolError("this is no HTTP response") from error
        return event  # type: ignore[return-value] # it is not NEED_DATA

    async def _more(self) -> None:
        if not self._received and not self._lost:
            self._news = asyncio.get_running_loop().create_future()
            await self._news
        if self._error is not None and not self._received:
            raise httpx2.ReadError("the connection broke") from self._error
        data = bytes(self._received)
        self._received.clear()
        if len(data) > _MOST_UNREAD:
            self._sure().resume_reading()
        self._wire.receive_data(data)  # no bytes: the peer has gone, and h11 knows whether it may

    def _tell(self) -> None:
        news, self._news = self._news, None
        if news is not None and not news.done():
            news.set_result(None)

    def _sure(self) -> asyncio.Transport:
        assert self._transport is not None
        return self._transport


class _Body(httpx2.AsyncByteStream):
    def __init__(self, connection: Connection) -> None:
        self._connection = connection

    def __aiter__(self) -> AsyncIterator[bytes]:
        return self._connection.parts()


def _has_news(transport: asyncio.Transport) -> bool:
    """Whether something came, or the end, that the loop did not yet come to tell."""
    if transport.is_closing():
        return True
    poll = select.poll()
    poll.register(transport.get_extra_info("socket"), select.POLLIN)
    return bool(poll.poll(0))
