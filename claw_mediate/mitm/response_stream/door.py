"""The door: a response to a runner, chunk by chunk, from inside mitmproxy (decision 0003).

mitmproxy cannot send a byte before a ``request`` hook returns, and cannot stream from an addon.
``HttpStream.send_response`` is the one place where an addon's response is written. Our stream
(``layer.py``) sends the headers at once and then pulls chunks by a *blocking* hook, so that the
connection's handler awaits our generator. When the runner leaves, a ``RequestProtocolError``
reaches ``handle_event`` even while the stream waits, and the generator, or the hook that is still
deciding, is cancelled at once.

``DoorAddon.load`` checks the internals of mitmproxy that this relies on.
"""

import asyncio
import inspect
from collections.abc import Callable, Coroutine
from typing import Any

from mitmproxy import connection, http
from mitmproxy.proxy.layers import http as layers

from claw_mediate.core.http import RunnerResponse
from claw_mediate.mitm import ended_connections
from claw_mediate.mitm.addon_state import AddonState
from claw_mediate.mitm.flow_state import ChunkSource, state_of
from claw_mediate.mitm.response_stream import delivery, patches
from claw_mediate.mitm.response_stream.layer import DoorStream


def stream_response(flow: http.HTTPFlow, exchange: RunnerResponse) -> None:
    """Answer the flow chunk by chunk. Call this in its ``request`` hook."""
    headers = [(name.encode(), value.encode()) for name, value in exchange.headers]
    if flow.request.http_version == "HTTP/1.1":
        headers.append((b"transfer-encoding", b"chunked"))

    flow.response = http.Response.make(exchange.status, b"", headers)
    flow.response.headers.pop("content-length", None)
    flow.response.http_version = flow.request.http_version
    state_of(flow).source = ChunkSource(exchange.chunks)


def is_framed(request: http.Request) -> bool:
    """Return whether the response to this request has an end of its own.

    HTTP/1.1 has chunks, HTTP/2 and HTTP/3 have frames. HTTP/1.0 reads until the connection ends.
    """
    return request.http_version == "HTTP/1.1" or request.is_http2 or request.is_http3


async def set_response(flow: http.HTTPFlow, exchange: RunnerResponse) -> None:
    """Answer the flow with one body."""
    body = b"".join([chunk async for chunk in exchange.chunks])
    headers = [(name.encode(), value.encode()) for name, value in exchange.headers]
    flow.response = http.Response.make(exchange.status, body, headers)


def set_fallback(flow: http.HTTPFlow, status: int, body: Callable[[], bytes]) -> None:
    """Set the response that the runner gets if the provider of a forwarded flow gives none."""
    state_of(flow).fallback = lambda: http.Response.make(
        status, body(), {"content-type": "application/json"}
    )


def clear_fallback(flow: http.HTTPFlow) -> None:
    """Forget the fallback of a flow that is over, or whose provider has answered.

    Hold no response back any more.
    """
    state = state_of(flow)
    state.fallback = state.held_tap = None


async def while_connected[T](flow: http.HTTPFlow, decision: Coroutine[Any, Any, T]) -> T:
    """Await a decision in this flow's hook. It is cancelled when the runner leaves."""
    state = state_of(flow)
    state.decision = task = asyncio.ensure_future(decision)
    if state.runner_left:  # while its body was being unpacked
        task.cancel()
    try:
        return await task
    finally:
        state.decision = None


class DoorAddon:
    """The addon: installs our stream. It outlives scripts."""

    name = "claw-door"

    def __init__(self, addon_state: AddonState) -> None:
        self._builtin = addon_state.builtin

    def load(self, _loader: Any) -> None:
        """Install the stream. Raise ``RuntimeError`` for a mitmproxy that is built differently."""
        parameters = list(inspect.signature(layers.HttpStream.send_response).parameters)
        used = layers.HttpLayer.make_stream.__code__.co_names
        if "HttpStream" not in used or parameters != ["self", "already_streamed"]:
            raise RuntimeError(
                "this version of mitmproxy is built differently: streaming answers are not possible"
            )
        DoorStream.check()
        layers.HttpStream = DoorStream  # type: ignore[misc, assignment]
        patches.install()
        ended_connections.install()

    def client_disconnected(self, client: connection.Client) -> None:
        """Close the sockets of this connection.

        mitmproxy forgets those that are to be closed while a hook is under way.
        """
        delivery.lose_unsent(client)
        handler = self._connection_handler(client)
        if handler is None:
            return

        for transport in handler.transports.values():
            if transport.writer is not None:
                transport.writer.close()

    def error(self, flow: http.HTTPFlow) -> None:
        """Cancel the response of a runner that left before the first chunk."""
        state = state_of(flow)
        if state.source is not None:
            state.source.cancel()
            state.source = None

    def _connection_handler(self, client: connection.Client) -> Any:
        return self._builtin.proxyserver.connections.get(client.id)
