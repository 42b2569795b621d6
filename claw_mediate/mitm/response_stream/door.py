"""The door: answering a runner chunk by chunk from inside mitmproxy (design.md; reference/mitmproxy.md section 1, (e)).

mitmproxy cannot send a byte before a ``request`` hook returns, and cannot stream from an addon. ``HttpStream.send_response``
is the one place where an addon's response is written: our stream (``stream.py``) sends the headers at once, and then pulls
chunks with a *blocking* hook, so that mitmproxy itself awaits our generator. When the runner goes away, a
``RequestProtocolError`` reaches ``handle_event`` even while the stream waits: the generator, or the hook that is still
deciding, is cancelled at once.

The internals that are relied on are asserted by ``Door.load``.
"""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Callable, Coroutine
from typing import Any

from mitmproxy import connection, ctx, http
from mitmproxy.proxy.layers import http as layers

from claw_mediate.core.http import RunnerResponse
from claw_mediate.mitm.flow_state import Source, deciding, fallbacks, held, sources
from claw_mediate.mitm.gate import guard
from claw_mediate.mitm.response_stream import backpressure, fixes
from claw_mediate.mitm.response_stream.layer import DoorStream


def answer(to: http.HTTPFlow, exchange: RunnerResponse) -> None:
    """Answer this flow with the exchange, chunk by chunk. Called in its ``request`` hook."""
    headers = [(name.encode(), value.encode()) for name, value in exchange.headers]
    if to.request.http_version == "HTTP/1.1":
        headers.append((b"transfer-encoding", b"chunked"))  # HTTP/1.0 reads until close; HTTP/2 and 3 have frames
    to.response = http.Response.make(exchange.status, b"", headers)
    to.response.headers.pop("content-length", None)
    to.response.http_version = to.request.http_version
    sources[to.id] = Source(exchange.chunks)


async def whole(to: http.HTTPFlow, exchange: RunnerResponse) -> None:
    """Answer this flow with the exchange as one body."""
    body = b"".join([chunk async for chunk in exchange.chunks])
    to.response = http.Response.make(exchange.status, body, [(n.encode(), v.encode()) for n, v in exchange.headers])


def if_unreachable(to: http.HTTPFlow, status: int, body: Callable[[], bytes]) -> None:
    """What the runner of a forwarded flow is told when its provider gives no response."""
    fallbacks[to.id] = lambda: http.Response.make(status, body(), {"content-type": "application/json"})


def hold(to: http.HTTPFlow, tap: Callable[[bytes], bytes]) -> None:
    """Let the response be whole before it goes on; one that is too long for that streams through the tap after all."""
    held[to.id] = tap


def settled(to: http.HTTPFlow) -> None:
    """The flow is over, or its provider has answered."""
    fallbacks.pop(to.id, None)
    held.pop(to.id, None)


async def while_connected[T](to: http.HTTPFlow, decision: Coroutine[Any, Any, T]) -> T:
    """Await a decision in this flow's hook; it is cancelled when the runner goes away."""
    task = asyncio.ensure_future(decision)
    deciding[to.id] = task
    if guard.LEFT in to.metadata:  # while its body was being unpacked
        task.cancel()
    try:
        return await task
    finally:
        deciding.pop(to.id, None)


class Door:
    """The addon: puts our stream in place and serves its hook. Added to the master itself, so that it outlives scripts."""

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
        fixes.make()
        backpressure.make()

    async def door_chunk(self, flow: http.HTTPFlow) -> None:
        """The next chunk of this flow's answer, and back-pressure: a slow runner slows its source down."""
        await sources[flow.id].pull()
        if (handler := _handler(flow.client_conn)) is not None:
            await handler.drain_writers()

    def client_disconnected(self, client: connection.Client) -> None:
        """Sockets that are to be closed while a hook is under way are forgotten by mitmproxy: the runner's, its providers'."""
        handler = _handler(client)
        for left in handler.transports.values() if handler is not None else ():
            if left.writer is not None:
                left.writer.close()

    def error(self, flow: http.HTTPFlow) -> None:
        """The runner left before the first chunk."""
        if not guard.is_recorded(flow) and (source := sources.pop(flow.id, None)) is not None:
            source.cancel()


def _handler(client: connection.Client) -> Any:
    return ctx.master.addons.get("proxyserver").connections.get(client.id)
