"""The door: answering a runner chunk by chunk from inside mitmproxy (design.md; reference/mitmproxy.md section 1, (e)).

mitmproxy cannot send a byte before a ``request`` hook returns, and cannot stream from an addon. ``HttpStream.send_response``
is the one place where an addon's response is written: the subclass below sends the headers at once, and then pulls chunks
with a *blocking* hook, so that mitmproxy itself awaits our generator. When the runner goes away, a ``RequestProtocolError``
reaches ``handle_event`` even while the stream waits: the generator, or the hook that is still deciding, is cancelled at once.

Two internals are relied on; ``Door.load`` asserts both. Nothing of this is kept in ``flow.metadata``, which is deep-copied.
"""

from __future__ import annotations

import asyncio
import inspect
import logging
from collections.abc import AsyncIterator, Coroutine, Generator
from dataclasses import dataclass
from typing import Any

from mitmproxy import ctx, flow, http
from mitmproxy.proxy import commands
from mitmproxy.proxy.layers import http as layers

from claw_mediate.exchange import Exchange

_log = logging.getLogger(__name__)
_MOST_AT_ONCE = 65_536
"""Bytes that are collected, where they are ready, before they are sent."""


class Source:
    """The chunks of one answer, and what is left to do with them."""

    def __init__(self, chunks: AsyncIterator[bytes]) -> None:
        self.chunks = chunks
        self.ready = b""
        self.ended = False
        self.served = False
        self.over = asyncio.Event()
        """Set when the last byte was handed to the connection, or never will be."""
        self.error: BaseException | None = None
        self._next: asyncio.Future[bytes] | None = None

    async def pull(self) -> None:
        """Wait for a chunk, and take what is ready behind it. Never raises: sets ``ended``, and ``error`` where it broke."""
        self.served = True
        collected = bytearray()
        while len(collected) < _MOST_AT_ONCE and not self.ended:
            if self._next is None:
                self._next = asyncio.ensure_future(_anext(self.chunks))
            if collected and not self._next.done():
                break
            await asyncio.wait([self._next])
            taken, self._next = self._next, None
            try:
                collected += taken.result()
            except StopAsyncIteration:
                self.ended = True
            except BaseException as error:  # noqa: BLE001 - whatever broke, the stream is cut, and never left hanging
                self.error, self.ended = error, True
        self.ready = bytes(collected)

    def cancel(self) -> None:
        """The runner has gone, or the stream is over: let the generator run its last lines."""
        if self._next is not None:
            self._next.cancel()
        elif not self.ended and (close := getattr(self.chunks, "aclose", None)) is not None:
            _keep(asyncio.ensure_future(close()))
        self.ended = True


_sources: dict[str, Source] = {}
_deciding: dict[str, asyncio.Task[Any]] = {}
_fallbacks: dict[str, http.Response] = {}
_kept: set[asyncio.Future[Any]] = set()


def _keep(future: asyncio.Future[Any]) -> None:
    _kept.add(future)
    future.add_done_callback(_kept.discard)


async def _anext(chunks: AsyncIterator[bytes]) -> bytes:
    return await anext(chunks)


def answer(to: http.HTTPFlow, exchange: Exchange) -> None:
    """Answer this flow with the exchange, chunk by chunk. Called in its ``request`` hook."""
    headers = [(name.encode(), value.encode()) for name, value in exchange.headers]
    if to.request.http_version == "HTTP/1.1":
        headers.append((b"transfer-encoding", b"chunked"))  # HTTP/1.0 reads until close; HTTP/2 and 3 have frames
    to.response = http.Response.make(exchange.status, b"", headers)
    to.response.headers.pop("content-length", None)
    to.response.http_version = to.request.http_version
    _sources[to.id] = Source(exchange.chunks)


async def whole(to: http.HTTPFlow, exchange: Exchange) -> None:
    """Answer this flow with the exchange as one body."""
    body = b"".join([chunk async for chunk in exchange.chunks])
    to.response = http.Response.make(exchange.status, body, [(n.encode(), v.encode()) for n, v in exchange.headers])


def if_unreachable(to: http.HTTPFlow, status: int, body: bytes) -> None:
    """What the runner of a forwarded flow is told when its provider can't be reached."""
    _fallbacks[to.id] = http.Response.make(status, body, {"content-type": "application/json"})


def settled(to: http.HTTPFlow) -> None:
    """The flow is over, or its provider has answered."""
    _fallbacks.pop(to.id, None)


async def idle(seconds: float) -> None:
    """Wait until no answer is being sent, for so long at most."""
    waiting = [asyncio.ensure_future(source.over.wait()) for source in _sources.values()]
    if waiting:
        _, late = await asyncio.wait(waiting, timeout=seconds)
        for future in late:
            future.cancel()


async def while_connected[T](to: http.HTTPFlow, decision: Coroutine[Any, Any, T]) -> T:
    """Await a decision in this flow's hook; it is cancelled when the runner goes away."""
    task = asyncio.ensure_future(decision)
    _deciding[to.id] = task
    try:
        return await task
    finally:
        _deciding.pop(to.id, None)


@dataclass
class DoorChunkHook(commands.StartHook):
    """Blocking: the door puts the next chunk into the flow's source. Its hook is called ``door_chunk``."""

    flow: http.HTTPFlow


class DoorStream(layers.HttpStream):
    """mitmproxy's HTTP stream, which can also answer from a source."""

    def handle_event(self, event: Any) -> Generator[Any, Any, None]:
        if isinstance(event, layers.RequestTrailers):
            return  # no client of a provider sends them, and mitmproxy can't send them on over HTTP/1
        if isinstance(event, layers.RequestProtocolError) and (own := getattr(self, "flow", None)) is not None:
            if (source := _sources.get(own.id)) is not None:
                source.cancel()
            if (task := _deciding.get(own.id)) is not None:
                task.cancel()
        yield from super().handle_event(event)

    def handle_protocol_error(self, event: Any) -> Generator[Any, Any, None]:
        """A provider that can't be reached is refused in the dialect's shape, and nobody is told its address."""
        if isinstance(event, layers.ResponseProtocolError) and (fallback := _fallbacks.get(self.flow.id)) is not None:
            untouched = self.flow.response is None and self.server_state == self.state_wait_for_response_headers
            if untouched and self.client_state == self.state_done:
                self.flow.response = fallback
                yield from super().send_response()
                return
            event = layers.ResponseProtocolError(self.stream_id, "the provider broke off", event.code)
        yield from super().handle_protocol_error(event)

    def send_response(self, already_streamed: bool = False) -> Generator[Any, Any, None]:
        source = _sources.get(self.flow.id)
        if already_streamed or source is None:
            yield from super().send_response(already_streamed)
            return
        try:
            finished = yield from self._send(source)
        finally:
            _sources.pop(self.flow.id, None)
            source.cancel()
            source.over.set()
        if finished:
            yield from super().send_response(already_streamed=True)

    def _send(self, source: Source) -> Generator[Any, Any, bool]:
        """Headers, then chunks until the end: True. False when the stream was cut, by the runner or by an error."""
        assert self.flow.response is not None
        yield layers.SendHttp(
            layers.ResponseHeaders(self.stream_id, self.flow.response, end_stream=False), self.context.client
        )
        sent = bytearray()
        while not source.ended:
            source.served = False
            yield DoorChunkHook(self.flow)
            if not source.served:  # nobody is there to serve the hook: do not spin
                source.error, source.ended = source.error or RuntimeError("the door is not loaded"), True
            if (yield from self.check_killed(True)):
                return False
            if source.ready:
                sent += source.ready
                yield layers.SendHttp(layers.ResponseData(self.stream_id, source.ready), self.context.client)
        if source.error is not None:
            yield from self._cut(source.error)
            return False
        self.flow.response.data.content = bytes(sent)  # what mitmweb and saved flows show
        return True

    def _cut(self, error: BaseException) -> Generator[Any, Any, None]:
        """The headers are out: a stream that broke is cut, and never ended as if it were whole."""
        _log.error("an answer broke off: %s", type(error).__name__)
        self.flow.error = flow.Error("cllama: the answer broke off")
        yield layers.HttpErrorHook(self.flow)
        yield layers.SendHttp(
            layers.ResponseProtocolError(self.stream_id, "the answer broke off", layers.ErrorCode.GENERIC_SERVER_ERROR),
            self.context.client,
        )
        self.flow.live = False
        self.client_state = self.server_state = self.state_errored


class Door:
    """The addon: puts the subclass in place and serves its hook. Added to the master itself, so that it outlives scripts."""

    name = "claw-door"

    def load(self, _loader: Any) -> None:
        """Raises ``RuntimeError`` when this mitmproxy is not built the way the door needs."""
        parameters = list(inspect.signature(layers.HttpStream.send_response).parameters)
        if "HttpStream" not in layers.HttpLayer.make_stream.__code__.co_names or parameters != [
            "self",
            "already_streamed",
        ]:
            raise RuntimeError("this version of mitmproxy is built differently: streaming answers are not possible")
        layers.HttpStream = DoorStream  # type: ignore[misc]

    async def door_chunk(self, flow: http.HTTPFlow) -> None:
        """The next chunk of this flow's answer, and back-pressure: a slow runner slows its source down."""
        await _sources[flow.id].pull()
        proxyserver = ctx.master.addons.get("proxyserver")
        if (handler := proxyserver.connections.get(flow.client_conn.id)) is not None:
            await handler.drain_writers()

    def error(self, flow: http.HTTPFlow) -> None:
        """The runner left before the first chunk."""
        if (source := _sources.pop(flow.id, None)) is not None:
            source.cancel()
            source.over.set()
