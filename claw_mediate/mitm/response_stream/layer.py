"""mitmproxy's HTTP stream, extended (``door``).

    chunks            a response may come from a source: headers at once, then chunks, each pulled
                      by a blocking hook
    cuts              a source that fails cuts the response, so that it never ends as if it were
                      whole; one that raises AnswerCutError does so on purpose
    early responses   a request that is refused for its headers or its size is answered before its
                      body is there
    size limits       apply to what must be whole to be read; what streams through is not counted
    fallbacks         a provider that gives no response becomes a refusal in the dialect's shape,
                      which names no address

The states are mitmproxy's own (``mitmproxy.proxy.layers.http.HttpStream``).
"""

import asyncio
import logging
import time
from collections.abc import Generator, Iterator
from dataclasses import dataclass
from io import BytesIO
from typing import Any, Self

from mitmproxy import flow, http
from mitmproxy.net.http.validate import validate_headers
from mitmproxy.proxy import commands, server
from mitmproxy.proxy.layers import http as layers
from mitmproxy.utils import human

from claw_mediate.core.http import AnswerCutError
from claw_mediate.http.large_bodies import MAX_INLINE_BYTES
from claw_mediate.mitm.ended_connections import take_layer_apart
from claw_mediate.mitm.flow_state import ChunkSource, FlowState, end_pending, state_of
from claw_mediate.mitm.gate import guard
from claw_mediate.mitm.response_stream import delivery, patches
from claw_mediate.mitm.response_stream.handler_hooks import HandlerHook, complete
from claw_mediate.mitm.view.hidden_flows import MAX_SHOWN
from claw_mediate.mitm.view.redaction import is_sendable, original_data, restore_originals

_PIECE_BYTES = 256 * 1024
"""Bytes of a large body that are sent, and encrypted, at once."""
MAX_HELD = 1 << 20
"""Bytes of a response that are held back until it is whole; a longer one goes on as it is."""
_MULTIPLEXED = (b"h2", b"h3")
_SWITCHED = 101
"""The status after which a stream goes on in another protocol."""
_TRAILERS = layers.RequestTrailers, layers.ResponseTrailers
_log = logging.getLogger(__name__)

type _Commands[T] = Generator[Any, Any, T]


@dataclass
class DoorChunkHook(HandlerHook):
    """A blocking hook: the next chunk of the flow's source is pulled."""

    source: ChunkSource

    async def serve(self, handler: server.ConnectionHandler) -> None:
        # A slow runner slows the source down.
        with handler.timeout_watchdog.disarm():
            await self.source.pull(handler.drain_writers)
        await complete(self, handler)


@dataclass
class DoorPieceHook(HandlerHook):
    """A blocking hook between two pieces of a large body.

    It gives other connections a turn.
    """

    flow: http.HTTPFlow

    async def serve(self, handler: server.ConnectionHandler) -> None:
        with handler.timeout_watchdog.disarm():
            await asyncio.sleep(0)
        await complete(self, handler)


class BodyBuffer:
    """A body as it comes in, in place of mitmproxy's list of chunks.

    The bytes grow where they are, and are given out without a copy. The list of a body of 60 MB
    would be joined in one step.
    """

    def __init__(self) -> None:
        self._file = BytesIO()
        self._size = 0

    def __iadd__(self, data: bytes) -> Self:
        self._size += self._file.write(data)
        return self

    def __len__(self) -> int:
        return self._size

    def __bytes__(self) -> bytes:
        return self._file.getvalue()

    def clear(self) -> None:
        self._file, self._size = BytesIO(), 0


class SentBytes:
    """The first bytes of a response that came from a source, for whoever looks at its flow.

    While nobody observes flows, none are kept: a long answer would be held twice.
    """

    def __init__(self, state: FlowState) -> None:
        redaction = state.redaction
        redactor = None
        if redaction is not None and redaction.heads is not None:
            redactor = redaction.bodies or redaction.heads

        # The flow shows MAX_SHOWN bytes. A secret that this limit goes through is found only if it
        # is kept as a whole.
        self._limit = MAX_SHOWN + redactor.max_form_bytes if redactor is not None else 0
        self._kept = bytearray()
        self._size = 0

    def add(self, data: bytes) -> None:
        self._size += len(data)
        room = self._limit - len(self._kept)
        if room > 0:
            self._kept += data[:room]

    def show(self, flow: http.HTTPFlow) -> None:
        """Put what is kept into the flow; if bytes are missing, its comment says so."""
        if not self._limit:
            return

        assert flow.response is not None
        flow.response.data.content = bytes(self._kept)
        missing = self._size - MAX_SHOWN
        if missing > 0:
            note = f"{missing} bytes of the answer are not shown"
            flow.comment = f"{flow.comment} ({note})".lstrip()


def _cancel_for_runner(state: FlowState) -> None:
    """Cancel what is made for a runner that has left."""
    state.runner_left = True
    if state.source is not None:
        state.source.cancel()
    if state.decision is not None:
        state.decision.cancel()


class DoorStream(layers.HttpStream):
    """One request and its response."""

    _waiting_bytes = 0
    """Bytes of the body that came while a hook was under way or a provider was being connected."""
    _is_dropped = False
    """True as soon as HTTP has dropped this stream, so that no event reaches it any more."""

    @classmethod
    def check(cls) -> None:
        """Raise ``RuntimeError`` for a mitmproxy that is built differently."""
        if (
            "request_body_buf"
            not in layers.HttpStream.state_consume_request_body.__wrapped__.__code__.co_names
        ):
            raise RuntimeError(
                "this version of mitmproxy is built differently: bodies would be joined "
                "in the event loop"
            )

    def __init__(self, *arguments: Any) -> None:
        super().__init__(*arguments)
        self.request_body_buf: Any = BodyBuffer()

    def handle_event(self, event: Any) -> _Commands[None]:
        if isinstance(event, _TRAILERS):
            # They may be dropped on the way (RFC 9110, 6.5.1), and mitmproxy can't send them on
            # over HTTP/1.
            return

        steps: Iterator[Any] = super().handle_event(event)
        own: http.HTTPFlow | None = getattr(self, "flow", None)
        if own is None:  # the flow is made when the head of the request is there
            yield from steps
        else:
            state = state_of(own)
            if isinstance(event, layers.RequestProtocolError):
                _cancel_for_runner(state)

            # What is sent has the originals in it; without any, mitmproxy's steps stay as they are.
            if state.redaction is not None:
                steps = restore_originals(own, state, steps, self.context.client)
            yield from steps
            if not self._paused:
                end_pending(own, state)

        # While a step waits for a hook, mitmproxy keeps what comes in.
        if self._paused and isinstance(event, layers.RequestData):
            self._waiting_bytes += len(event.data)
            patches.set_waiting(self.context.client, self.stream_id, self._waiting_bytes)
        elif self._waiting_bytes and not self._paused:
            self._waiting_bytes = 0
            patches.set_waiting(self.context.client, self.stream_id, 0)

        if self._is_dropped and not self._paused:
            take_layer_apart(self)

    def state_wait_for_request_headers(self, event: Any) -> _Commands[None]:
        yield from super().state_wait_for_request_headers(event)
        waits = self.client_state == self.state_consume_request_body and not event.end_stream
        if waits and self.flow.response is not None:
            yield from self._answer_early()

    def state_consume_request_body(self, event: Any) -> _Commands[None]:
        """Send a large body piece by piece.

        Over TLS, mitmproxy would encrypt all of it in one step.
        """
        steps = super().state_consume_request_body(event)
        is_end = not isinstance(event, layers.RequestData)
        # A small body stays small, unless it is unpacked before it is sent.
        is_large = len(self.request_body_buf) > _PIECE_BYTES
        may_be_large = is_large or "content-encoding" in self.flow.request.headers
        return self._split_body(steps) if is_end and may_be_large else steps

    def _split_body(self, steps: Generator[Any, Any, None]) -> _Commands[None]:
        """Take the steps that send a request, with its body in pieces."""
        reply: Any = None
        while True:
            try:
                command = steps.send(reply)
            except StopIteration:
                return

            reply = None
            is_sent = isinstance(command, layers.SendHttp)
            if is_sent and isinstance(command.event, layers.RequestData):
                yield from self._send_pieces(command, command.event.data)
            else:
                reply = yield command

    def _send_pieces(self, command: layers.SendHttp, shown: bytes) -> _Commands[None]:
        data = original_data(self.flow, shown)
        if len(data) <= MAX_INLINE_BYTES:
            yield command
            return

        view = memoryview(data)
        for start in range(0, len(view), _PIECE_BYTES):
            piece = bytes(view[start : start + _PIECE_BYTES])
            yield layers.SendHttp(layers.RequestData(self.stream_id, piece), command.connection)
            yield DoorPieceHook(self.flow)

    def check_body_size(self, request: bool) -> _Commands[bool]:
        """Refuse a request of which too much has come in; send on a response that is held back.

        Return whether the request was refused. What its head declares was judged by the hooks.
        """
        state = state_of(self.flow)
        if request:
            size = len(self.request_body_buf)
            limit = human.parse_size(self.context.options.body_size_limit)
            if limit is not None and size > limit:
                guard.refuse(self.flow, *guard.TOO_LARGE)
                yield from self._answer_early()
                return True

            held = state.pending.body if state.pending is not None else None
            overflow = held.grow_to(size) if held is not None else None
            if overflow is not None:
                guard.refuse_rest(self.flow, overflow)
                yield from self._answer_early()
                return True

        elif len(self.response_body_buf) > MAX_HELD and state.held_tap is not None:
            # Too long to be held back: what has come goes on now, and the rest streams.
            assert self.flow.response is not None
            self.flow.response.stream = state.held_tap
            state.held_tap = None
            begun = bytes(self.response_body_buf)
            self.response_body_buf.clear()
            yield from self.start_response_stream()
            yield from self.state_stream_response_body(layers.ResponseData(self.stream_id, begun))

        return False

    def check_invalid(self, request: bool) -> _Commands[bool]:
        """Use the fallback for a response whose head two programs might read differently."""
        response = self.flow.response
        if not request and response is not None and state_of(self.flow).fallback is not None:
            try:
                validate_headers(response)
            except ValueError:
                yield commands.CloseConnection(self.flow.server_conn)
                yield from self._fall_back()
                return True

        return (yield from super().check_invalid(request))

    def make_server_connection(self) -> _Commands[bool]:
        if not is_sendable(self.flow):
            self.flow.request.stream = False  # nothing has gone out: it can be answered
            guard.refuse(self.flow, *guard.DOTTED_URL)
            yield from self._answer_early()
            return False

        connected: bool = yield from super().make_server_connection()
        streams = self.client_state == self.state_wait_for_request_headers
        if connected and streams and self.flow.server_conn.alpn not in _MULTIPLEXED:
            guard.chunk_unframed(self.flow.request)
        return connected

    def handle_protocol_error(self, event: Any) -> _Commands[None]:
        is_providers = isinstance(event, layers.ResponseProtocolError)
        is_uploading = self.client_state == self.state_stream_request_body
        if is_providers and is_uploading and self.server_state == self.state_done:
            # The provider answered before the upload was over, and hung up: the answer is valid.
            self.client_state = self.state_done
            yield from self.flow_done()
            self.client_state = self.state_errored
            return

        has_no_answer = self.flow.response is None and self.client_state != self.state_errored
        if is_providers and has_no_answer and state_of(self.flow).fallback is not None:
            yield from self._fall_back()
            return

        for command in super().handle_protocol_error(event):
            yield command
            if isinstance(command, layers.DropStream):
                self._is_dropped = True

    def send_response(self, already_streamed: bool = False) -> _Commands[None]:
        state = state_of(self.flow)
        source = state.source
        if already_streamed or source is None:
            yield from super().send_response(already_streamed)
            return

        try:
            is_complete = yield from self._send(source)
        finally:
            state.source = None
            source.cancel()
        if is_complete:
            yield from super().send_response(already_streamed=True)

    def flow_done(self) -> _Commands[None]:
        delivery.expect(self.flow, self.stream_id)
        yield from super().flow_done()
        assert self.flow.response is not None
        self._is_dropped = self.flow.response.status_code != _SWITCHED
        if self.flow.is_replay:
            yield from delivery.note_sent(self.flow.client_conn, self.stream_id)

    def _fall_back(self) -> _Commands[None]:
        state = state_of(self.flow)
        assert state.fallback is not None
        self.flow.response, state.fallback = state.fallback(), None
        yield from self._answer_early()

    def _answer_early(self) -> _Commands[None]:
        """Send the response now, though the request is not over, and take no more of it."""
        assert self.flow.response is not None
        self.request_body_buf.clear()
        self.flow.request.data.content = b""
        self.client_state = self.state_done
        self.flow.response.timestamp_start = time.time()
        yield from self.send_response()
        self.client_state = self.server_state = self.state_errored

    def _send(self, source: ChunkSource) -> _Commands[bool]:
        """Send headers, then chunks.

        Return whether the end was reached, and the stream not cut by the runner or an error.
        """
        assert self.flow.response is not None
        client = self.context.client
        head = layers.ResponseHeaders(self.stream_id, self.flow.response, end_stream=False)
        yield layers.SendHttp(head, client)

        sent = SentBytes(state_of(self.flow))
        while not source.has_ended:
            yield DoorChunkHook(source)
            if (yield from self.check_killed(True)):
                return False

            if source.ready:
                sent.add(source.ready)
                yield layers.SendHttp(layers.ResponseData(self.stream_id, source.ready), client)

        sent.show(self.flow)
        if source.error is not None:
            yield from self._cut(source.error)
            return False

        return True

    def _cut(self, error: BaseException) -> _Commands[None]:
        """Cut a response after its headers: it must never end as if it were whole."""
        if isinstance(error, AnswerCutError):
            reason = f"the answer was cut: {error}"
        else:
            reason = "the answer broke off"
            _log.error("an answer broke off: %s", type(error).__name__)
        self.flow.error = flow.Error(f"cllama: {reason}")
        yield layers.HttpErrorHook(self.flow)

        # Over HTTP/2 this resets the stream, also before the runner has ended its side.
        end = layers.ResponseProtocolError(
            self.stream_id, reason, layers.ErrorCode.GENERIC_SERVER_ERROR
        )
        yield layers.SendHttp(end, self.context.client)
        self.flow.live = False
        self.client_state = self.server_state = self.state_errored
