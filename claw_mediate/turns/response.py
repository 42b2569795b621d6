"""The answer of a mediated turn as an HTTP response: one JSON body, or a stream that is kept alive.

The headers of a stream go out when content is shown, when the turn goes on after a good first
response, or when ``Pace.first`` is over. Until then an error keeps its own status; afterwards it is
an event of the stream, or cuts it (docs/spec/live.md sections 8 and 9).
"""

import asyncio
import time
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Iterable, Iterator
from typing import Final

from msgspec.structs import replace

from claw_mediate.core.held_text import HeldText
from claw_mediate.core.http import AnswerCutError, RunnerResponse, build_error_body, respond
from claw_mediate.dialects.base import Dialect, RunnerRequest
from claw_mediate.dialects.streams import NO_OPENING, Keepalive, StreamWriter
from claw_mediate.settings import Pace
from claw_mediate.turns.answer_stream import AnswerStream
from claw_mediate.turns.context import TurnContext, TurnResult
from claw_mediate.turns.run import RunningTurn
from claw_state.journal import StoredResponse

STREAM_HEADERS: Final = [
    ("content-type", "text/event-stream"),
    ("cache-control", "no-cache"),
    ("x-accel-buffering", "no"),
]

_SILENT_SECONDS, _EVENT_SECONDS = 30.0, 15.0
"""With ``auto``: until a stream of comments gets an event, and from one to the next.

Some clients count events only.
"""

_CHUNK_BYTES = 16 * 1024
type OnDisconnect = Callable[[], None]  # Called once, when a runner wants no more of a stream


class ClientStream:
    """A stream with its runner.

    It reports the disconnect itself: a generator that never began runs no ``finally``.
    """

    def __init__(self, chunks: AsyncGenerator[bytes], on_disconnect: OnDisconnect) -> None:
        self._chunks = chunks
        self._on_disconnect: OnDisconnect | None = on_disconnect

    def __aiter__(self) -> AsyncIterator[bytes]:
        return self

    async def __anext__(self) -> bytes:
        try:
            return await anext(self._chunks)
        except BaseException:  # the end of the stream, too
            self._disconnect()
            raise

    async def aclose(self) -> None:
        self._disconnect()
        await self._chunks.aclose()

    def _disconnect(self) -> None:
        on_disconnect, self._on_disconnect = self._on_disconnect, None
        if on_disconnect is not None:
            on_disconnect()


async def attend(running: RunningTurn, pace: Pace, held: str = "") -> RunnerResponse:
    """Return the answer of a running turn, for a runner that has joined it.

    Cancelled when that runner leaves. ``held``: what the runner has of it already.
    """
    try:
        if running.stream is not None:
            response = await _stream(running, running.stream, pace, held)
        else:
            # Several runners may wait for the same task.
            await asyncio.wait([running.task])
            response = _whole(running.task.result())
    except asyncio.CancelledError:
        running.disconnect()
        raise

    return replace(
        response,
        on_delivered=running.checkpoint.mark_delivered,
        answer_of=running.context.turn_id,
    )


async def _stream(
    running: RunningTurn, stream: AnswerStream, pace: Pace, held: str
) -> RunnerResponse:
    """Return the answer of a turn that was asked to stream.

    It is the turn's error while the status is open, else its stream.
    """
    progress, task = running.driver.progress, running.task

    committed = asyncio.ensure_future(progress.committed.wait())
    try:
        await asyncio.wait(
            [task, committed], timeout=pace.first, return_when=asyncio.FIRST_COMPLETED
        )
    finally:
        committed.cancel()

    progress.committed.set()
    if task.done() and not stream.shown.has_content:
        result = task.result()
        if not result.ok:
            return _whole(result)

    headers = [*STREAM_HEADERS, *progress.headers]
    events = ClientStream(turn_events(running, stream, pace, held), running.disconnect)
    return RunnerResponse(200, headers, events, streaming=True)


def stored_response(
    view: RunnerRequest, dialect: Dialect, stored: StoredResponse, held: str = ""
) -> RunnerResponse:
    """Return once more the answer that a turn ended with, without what the runner holds of it."""
    if not view.stream:
        return respond(stored.status, stored.body, stored.content_type)

    async def chunks() -> AsyncIterator[bytes]:
        writer = dialect.writer(view, NO_OPENING)
        for events in stored_events(view, dialect, stored, writer, held):
            yield events

    return RunnerResponse(200, [*STREAM_HEADERS], chunks(), streaming=True)


def stored_events(
    view: RunnerRequest, dialect: Dialect, stored: StoredResponse, writer: StreamWriter, held: str
) -> Iterator[bytes]:
    """Yield an answer that a turn ended with as a stream, in chunks.

    ``writer``: of the stream, which may have begun. ``held``: what the runner has of the answer.
    """
    return _batches(_write_unheld(dialect, stored.body, view, writer, held))


def _write_unheld(
    dialect: Dialect, body: bytes, view: RunnerRequest, writer: StreamWriter, held: str
) -> Iterator[bytes]:
    """Yield the events of an answer, without what the runner holds."""
    if not held:
        yield from filter(None, map(writer.write, dialect.tell(body, view)))
        return

    unheld = HeldText(held, whole_pieces=dialect.answers_in_items)
    for event in dialect.tell(body, view):
        for each in unheld.pass_on(event, is_known=True):
            yield writer.write(each)


def _whole(result: TurnResult) -> RunnerResponse:
    return respond(
        result.status, result.body, result.content_type, result.retry_after, result.headers
    )


class Beats:
    """The keepalives of one stream: when the next one is due, and of which kind.

    A keepalive is a comment, or an event of the dialect (``native``). With ``auto``, an event takes
    the place of a comment now and then. Times are seconds of a clock that is given.
    """

    def __init__(self, pace: Pace, now: float) -> None:
        self._pace = pace
        self._next = now  # The first one is sent at once, if there is nothing else to send
        self._next_event = now + (_SILENT_SECONDS if pace.kind == "auto" else 0)

    def note_sent(self, now: float) -> None:
        """Note that an event of the answer was sent."""
        self._next = now + self._pace.every
        if self._pace.kind == "auto":
            self._next_event = now + _SILENT_SECONDS

    def take(self, now: float) -> Keepalive | None:
        """Return the kind of the keepalive that is to be sent now; None if none is due."""
        kind = self._pace.kind
        if kind == "off" or now < self._next:
            return None

        self._next = now + self._pace.every
        if kind == "comment" or (kind == "auto" and now < self._next_event):
            return "comment"

        self._next_event = now + (_EVENT_SECONDS if kind == "auto" else 0)
        return "native"

    def seconds_left(self, now: float) -> float | None:
        """Return the seconds until a keepalive is due; None if none will be."""
        return None if self._pace.kind == "off" else max(self._next - now, 0.0)


async def turn_events(
    running: RunningTurn,
    stream: AnswerStream,
    pace: Pace,
    held: str,
    writer: StreamWriter | None = None,
) -> AsyncGenerator[bytes]:
    """Yield what a turn shows while it comes, and keepalives while nothing does.

    ``writer``: of the runner's stream, if that has begun. Raise ``AnswerCutError`` where the stream
    must break off.
    """
    progress, task = running.driver.progress, running.task
    beats = Beats(pace, time.monotonic())
    reader = stream.readers.attach(held, writer)
    try:
        while True:
            is_over = task.done()  # Looked at first: what was shown before is read below
            chunk = reader.read()
            if not chunk and is_over:
                break

            now = time.monotonic()
            if chunk:
                beats.note_sent(now)
                yield chunk
            elif (kind := beats.take(now)) is not None:
                yield reader.beat(progress.note(names_tools=pace.names_tools), kind)
            else:
                await reader.wait(beats.seconds_left(now))

        result = task.result()
        if result.is_cut and running.context.request.can_be_cut:
            raise AnswerCutError
        if not result.ok:
            yield reader.error(_error_event(running.context, result))
    finally:
        reader.close()


def _batches(events: Iterable[bytes]) -> Iterator[bytes]:
    """Yield events joined to chunks of about ``_CHUNK_BYTES``.

    The whole answer is there, and each chunk is a write.
    """
    batch: list[bytes] = []
    size = 0
    for event in events:
        batch.append(event)
        size += len(event)
        if size >= _CHUNK_BYTES:
            yield b"".join(batch)
            batch = []
            size = 0

    if batch:
        yield b"".join(batch)


def _error_event(context: TurnContext, result: TurnResult) -> bytes:
    own = context.dialect.error_body(result.body)
    if own:
        return own

    message = f"the provider answered with status {result.status}"
    return build_error_body(
        context.request.path, result.status, f"provider_http_{result.status}", message
    )
