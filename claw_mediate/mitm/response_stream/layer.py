"""mitmproxy's HTTP stream, which can also answer from a source, early, and in the runner's own terms (``door``).

    a source        headers at once, then chunks, each pulled by a blocking hook
    early           a request that is refused by its headers, or for its size, is answered before its body is there
    limits          hold for what must be whole to be read; what streams through is not counted
    the provider    that gives no response is a refusal in the dialect's shape, which names no address

The states are mitmproxy's own (``mitmproxy.proxy.layers.http.HttpStream``).
"""

from __future__ import annotations

import logging
import time
from collections.abc import Generator
from dataclasses import dataclass
from typing import Any

from mitmproxy import flow, http
from mitmproxy.net.http.validate import validate_headers
from mitmproxy.proxy import commands
from mitmproxy.proxy.layers import http as layers
from mitmproxy.utils import human

from claw_mediate.mitm.flow_state import Source, deciding, fallbacks, held, settle, sources
from claw_mediate.mitm.gate import guard
from claw_mediate.mitm.response_stream import backpressure
from claw_mediate.mitm.view import redaction as veil

MOST_HELD = 1 << 20
"""Bytes of a response that are held back, where it must be whole before it goes on; a longer one goes as it is."""
_MULTIPLEXED = (b"h2", b"h3")
_log = logging.getLogger(__name__)

type _Commands[T] = Generator[Any, Any, T]


@dataclass
class DoorChunkHook(commands.StartHook):
    """Blocking: the door puts the next chunk into the flow's source. Its hook is called ``door_chunk``."""

    flow: http.HTTPFlow


class DoorStream(layers.HttpStream):
    """One request and its response."""

    _waiting = 0
    """Bytes of the body that came while a hook was under way, or a provider was being connected."""

    def handle_event(self, event: Any) -> _Commands[None]:
        if isinstance(event, layers.RequestTrailers | layers.ResponseTrailers):
            return  # may be dropped on the way (RFC 9110, 6.5.1), and mitmproxy can't send them on over HTTP/1
        own: http.HTTPFlow | None = getattr(self, "flow", None)
        if isinstance(event, layers.RequestProtocolError) and own is not None:
            own.metadata[guard.LEFT] = True
            if (source := sources.get(own.id)) is not None:
                source.cancel()
            if (task := deciding.get(own.id)) is not None:
                task.cancel()
        said = super().handle_event(event)
        yield from said if own is None or not veil.keeps(own) else veil.on_the_wire(own, said, self.context.client)
        if own is not None and not self._paused:
            settle(own.id)
        if self._paused and isinstance(event, layers.RequestData):
            self._waiting += len(event.data)
            backpressure.pile(self.context.client, self.stream_id, self._waiting)
        elif self._waiting and not self._paused:
            self._waiting = 0
            backpressure.pile(self.context.client, self.stream_id, 0)

    def state_wait_for_request_headers(self, event: Any) -> _Commands[None]:
        yield from super().state_wait_for_request_headers(event)
        waits = self.client_state == self.state_consume_request_body and not event.end_stream
        if waits and self.flow.response is not None:
            yield from self._answer_early()

    def check_body_size(self, request: bool) -> _Commands[bool]:
        """What is declared is for the hooks to judge; here counts what has come in."""
        if request:
            most = human.parse_size(self.context.options.body_size_limit)
            if most is not None and len(self.request_body_buf) > most:
                guard.refuse(self.flow, *guard.TOO_LARGE)
                yield from self._answer_early()
                return True
        elif len(self.response_body_buf) > MOST_HELD and (tap := held.pop(self.flow.id, None)) is not None:
            assert self.flow.response is not None
            self.flow.response.stream = tap
            begun = bytes(self.response_body_buf)
            self.response_body_buf.clear()
            yield from self.start_response_stream()
            yield from self.state_stream_response_body(layers.ResponseData(self.stream_id, begun))
        return False

    def check_invalid(self, request: bool) -> _Commands[bool]:
        """A response whose head can be read in two ways is none."""
        if not request and self.flow.response is not None and self.flow.id in fallbacks:
            try:
                validate_headers(self.flow.response)
            except ValueError:
                yield commands.CloseConnection(self.flow.server_conn)
                yield from self._fall_back()
                return True
        return (yield from super().check_invalid(request))

    def make_server_connection(self) -> _Commands[bool]:
        if not veil.is_sendable(self.flow):
            self.flow.request.stream = False  # nothing has gone out: it can be answered
            guard.refuse(self.flow, *guard.DOTTED)
            yield from self._answer_early()
            return False
        connected: bool = yield from super().make_server_connection()
        streams = self.client_state == self.state_wait_for_request_headers
        if connected and streams and self.flow.server_conn.alpn not in _MULTIPLEXED:
            guard.chunk(self.flow.request)
        return connected

    def handle_protocol_error(self, event: Any) -> _Commands[None]:
        ours = isinstance(event, layers.ResponseProtocolError)
        if ours and self.client_state == self.state_stream_request_body and self.server_state == self.state_done:
            # The provider answered before the upload was over, and hung up: the answer stands.
            self.client_state = self.state_done
            yield from self.flow_done()
            self.client_state = self.state_errored
            return
        if (
            ours
            and self.flow.response is None
            and self.client_state != self.state_errored
            and self.flow.id in fallbacks
        ):
            yield from self._fall_back()
            return
        yield from super().handle_protocol_error(event)

    def send_response(self, already_streamed: bool = False) -> _Commands[None]:
        source = sources.get(self.flow.id)
        if already_streamed or source is None:
            yield from super().send_response(already_streamed)
            return
        try:
            finished = yield from self._send(source)
        finally:
            sources.pop(self.flow.id, None)
            source.cancel()
        if finished:
            yield from super().send_response(already_streamed=True)

    def _fall_back(self) -> _Commands[None]:
        self.flow.response = fallbacks.pop(self.flow.id)()
        yield from self._answer_early()

    def _answer_early(self) -> _Commands[None]:
        """Answer now, whatever is still to come of the request or of a provider: it is read and forgotten."""
        assert self.flow.response is not None
        self.request_body_buf.clear()
        self.flow.request.data.content = b""
        self.client_state = self.state_done
        self.flow.response.timestamp_start = time.time()
        yield from self.send_response()
        self.client_state = self.server_state = self.state_errored

    def _send(self, source: Source) -> _Commands[bool]:
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

    def _cut(self, error: BaseException) -> _Commands[None]:
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
