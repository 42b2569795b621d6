"""Messages to one MCP server over HTTP, and what comes back (docs/spec/mcp.md, "Tools over MCP").

Each message is one POST, which is made once. Its response comes as JSON, or in a stream of events
that may hold other messages of the server before it. Everything is bounded: a message, a stream,
and the messages that nobody waits for.
"""

import asyncio
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import suppress
from http import HTTPStatus
from typing import Any, Final, NamedTuple

import httpx2

from claw_contract.content_coding import coding_names
from claw_contract.sse import EventTooLongError, SseReader
from claw_mcp import protocol
from claw_mcp.protocol import MessageError, RpcMessage
from claw_mediate.http.bounded_body import read_bounded
from claw_mediate.http.client import ConnectionPool, Response
from claw_mediate.http.headers import Headers, ascii_headers
from claw_mediate.tools.managed_call import MAX_BODY_BYTES

MAX_MESSAGE_BYTES = 16 * 1024 * 1024
MAX_REFUSAL_BYTES = 64 * 1024  # Of a refused notification
NOTE_SECONDS = 5.0  # For a message that nobody waits for
MAX_NOTES = 8  # Such messages on the way at once; further ones are not sent

# Time for a stream to end after its response: only then can its connection be used again
_DRAIN_SECONDS = 0.02

# Of a stream, after which others have their turn between two of its pieces
_MAX_UNSHARED_BYTES = 1 << 16

_NULL = b"null"
_HEADERS: Final[Headers] = [("accept-encoding", "identity"), ("content-type", protocol.JSON_TYPE)]

FAILURES = (httpx2.HTTPError, httpx2.InvalidURL, UnicodeError)
"""The errors of a request that could not be made, or whose connection broke."""


class AnswerTooLargeError(Exception):
    """An answer that is longer than the proxy reads."""


class Reply(NamedTuple):
    """The HTTP response to a request.

    ``message``: the JSON-RPC response in it, None if the body holds none.
    """

    status: int
    content_type: str
    body: bytes
    message: RpcMessage | None
    session_id: str | None = None


class McpWire:
    """The connections to one server with one credential."""

    def __init__(self, pool: ConnectionPool, url: str, credentials: Headers) -> None:
        self._pool = pool
        self._url = url
        self._credentials = credentials
        self._notes: set[asyncio.Task[None]] = set()

    async def ask(
        self, request_id: bytes, headers: Headers, body: bytes, hear: Callable[[RpcMessage], None]
    ) -> Reply:
        """Send a request once and return what came back.

        ``hear`` is called with each message before the response. Raise ``FAILURES`` and
        ``AnswerTooLargeError``.
        """
        raw = ascii_headers([*self._credentials, *_HEADERS, *headers])
        find = _ResponseFinder(request_id, hear)

        async with self._pool.stream("POST", self._url, raw, body) as response:
            status = response.status_code
            content_type = response.headers.get("content-type", "")
            is_refusal = status >= HTTPStatus.BAD_REQUEST

            if coding_names(response.headers.get_list("content-encoding")):
                if is_refusal:
                    # A program between us and the server may encode what it refuses, unasked.
                    return Reply(status, content_type, b"", None)
                raise httpx2.RemoteProtocolError(
                    "the answer is encoded, though that was not accepted"
                )

            message: RpcMessage | None
            if _is_event_stream(content_type) and not is_refusal:
                content_type = protocol.JSON_TYPE  # of the event that is the answer
                answer, message = await _read_stream(response, find)
            else:
                answer, size = await read_bounded(response, MAX_MESSAGE_BYTES, MAX_MESSAGE_BYTES)
                if size > MAX_MESSAGE_BYTES:
                    raise AnswerTooLargeError
                message = find(answer, may_lack_id=is_refusal)

        session_id = response.headers.get(protocol.SESSION_ID, None)
        return Reply(status, content_type, answer, message, session_id)

    async def send(
        self, method: str, headers: Headers, body: bytes | None = None
    ) -> tuple[int, bytes]:
        """Send a message that has no response; return the status, and the beginning of a refusal.

        Raise ``FAILURES``.
        """
        raw = ascii_headers([*self._credentials, *_HEADERS, ("accept", protocol.ACCEPT), *headers])
        async with self._pool.stream(method, self._url, raw, body) as response:
            is_refusal = response.status_code >= HTTPStatus.BAD_REQUEST
            is_encoded = bool(coding_names(response.headers.get_list("content-encoding")))
            if is_refusal and not is_encoded:
                words, _ = await read_bounded(response, MAX_REFUSAL_BYTES, MAX_REFUSAL_BYTES)
                return response.status_code, words

            await _drain(response.aiter_raw())
        return response.status_code, b""

    def send_later(self, method: str, headers: Headers, body: bytes | None = None) -> None:
        """Send a message that nobody waits for, unless too many are on the way."""
        if len(self._notes) >= MAX_NOTES:
            return
        task = asyncio.ensure_future(_send_note(self.send(method, headers, body)))
        self._notes.add(task)
        task.add_done_callback(self._notes.discard)

    async def close(self) -> None:
        """Let the messages on the way leave, and close every connection.

        If cancelled, do not wait for them.
        """
        try:
            if self._notes:
                await asyncio.wait(self._notes)
        finally:
            for note in self._notes:
                note.cancel()
            if self._notes:
                await asyncio.wait(self._notes)
            await self._pool.close()


async def _send_note(note: Coroutine[Any, Any, object]) -> None:
    """Wait for a message that nobody waits for, within its time, and ignore its failure."""
    with suppress(TimeoutError, *FAILURES):
        async with asyncio.timeout(NOTE_SECONDS):
            await note


class _ResponseFinder:
    """Finds the response to one request among messages; all others are handed on."""

    def __init__(self, request_id: bytes, hear: Callable[[RpcMessage], None]) -> None:
        self._request_id = request_id
        self._hear = hear

    def __call__(self, body: bytes, *, may_lack_id: bool = False) -> RpcMessage | None:
        """Return the response among the messages of a body; None if there is none.

        ``may_lack_id``: take an error without id, too. The body of an HTTP error may have one,
        because the server did not read the request.
        """
        try:
            messages = protocol.read_answers(body)
        except MessageError:
            return None

        found = None
        for message in messages:
            if found is None and self._is_response(message, may_lack_id=may_lack_id):
                found = message
            else:
                self._hear(message)
        return found

    def _is_response(self, message: RpcMessage, *, may_lack_id: bool) -> bool:
        return message.answers(self._request_id) or (may_lack_id and message.answers(_NULL))


def _is_event_stream(content_type: str) -> bool:
    return content_type.partition(";")[0].strip().lower() == protocol.SSE_TYPE


async def _read_stream(response: Response, find: _ResponseFinder) -> tuple[bytes, RpcMessage]:
    """Return (the event with the response, the response).

    Raise ``HTTPError`` if the stream ends before it.
    """
    reader = SseReader(MAX_MESSAGE_BYTES)
    size = 0
    chunks = response.aiter_raw()
    try:
        async for chunk in chunks:
            size += len(chunk)
            for event in reader.feed(chunk):
                message = find(event.data) if event.name == b"message" and event.data else None
                if message is not None:
                    await _drain(chunks)
                    return event.data, message

            if size > MAX_BODY_BYTES:
                raise AnswerTooLargeError
            if size > _MAX_UNSHARED_BYTES:
                # The pieces of a flood are all there already, so that reading them never waits.
                await asyncio.sleep(0)
    except EventTooLongError as error:
        raise AnswerTooLargeError from error
    raise httpx2.RemoteProtocolError("the stream ended without the response")


async def _drain(chunks: AsyncIterator[bytes]) -> None:
    """Read what is left of a body, for a moment, so that its connection can be used again."""
    with suppress(TimeoutError, httpx2.HTTPError):
        async with asyncio.timeout(_DRAIN_SECONDS):
            async for _ in chunks:
                pass
