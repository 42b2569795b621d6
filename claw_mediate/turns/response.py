"""The answer of a mediated turn as an HTTP response: one JSON body, or a stream that is kept alive.

The headers of a stream go out when the turn goes on after a good first response, or when
``keepalive_first`` is over. Until then an error keeps its own status; afterwards it is an event of
the stream (docs/spec/mediation.md section 6).
"""

import asyncio
import time
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Iterable, Iterator

from msgspec.structs import replace

from claw_mediate.core.http import Keepalive, RunnerResponse, build_error_body, respond
from claw_mediate.dialects.base import Dialect, RunnerRequest
from claw_mediate.dialects.streams import OwnOpening, write_stream
from claw_mediate.settings import Pace
from claw_mediate.turns.context import TurnContext, TurnResult
from claw_mediate.turns.run import RunningTurn
from claw_state.journal import StoredResponse

_STREAM = [
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


async def attend(running: RunningTurn, pace: Pace) -> RunnerResponse:
    """Return the answer of a running turn, for one more runner.

    Cancelled when that runner leaves.
    """
    running.waiting += 1
    try:
        if running.context.view.stream:
            response = await _stream(running, pace)
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


async def _stream(running: RunningTurn, pace: Pace) -> RunnerResponse:
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
    if task.done():
        result = task.result()
        if not result.ok:
            return _whole(result)

    headers = [*_STREAM, *progress.headers]
    stream = ClientStream(_events(running, pace), running.disconnect)
    return RunnerResponse(200, headers, stream, streaming=True)


def stored_response(
    view: RunnerRequest, dialect: Dialect, stored: StoredResponse
) -> RunnerResponse:
    """Return once more the answer that a turn ended with."""
    if not view.stream:
        return respond(stored.status, stored.body, stored.content_type)

    async def chunks() -> AsyncIterator[bytes]:
        for events in _batches(write_stream(dialect, stored.body, view)):
            yield events

    return RunnerResponse(200, _STREAM, chunks(), streaming=True)


def _whole(result: TurnResult) -> RunnerResponse:
    return respond(
        result.status, result.body, result.content_type, result.retry_after, result.headers
    )


async def _events(running: RunningTurn, pace: Pace) -> AsyncGenerator[bytes]:
    """Yield keepalives while a turn runs, then its answer or its error.

    A keepalive is a comment, or an event of the dialect (``native``). With ``auto``, an event takes
    the place of a comment now and then.
    """
    context, progress, task = running.context, running.driver.progress, running.task
    dialect = context.dialect
    own_id = dialect.id_prefix + context.turn_id.removeprefix("turn_")
    own = OwnOpening(own_id, context.view.model, int(time.time()))
    writer = dialect.writer(context.view, own)
    has_announced = False  # True if a native keepalive was sent

    is_auto = pace.kind == "auto"
    interval = None if pace.kind == "off" else pace.every
    next_event = time.monotonic() + (_SILENT_SECONDS if is_auto else 0)
    while not task.done():
        now = time.monotonic()
        note = progress.note(names_tools=pace.names_tools)
        if pace.kind in {"native", "auto"} and now >= next_event:
            beat = writer.beat(note, "native")
            # The first one announces the answer's id, and must arrive.
            yield Keepalive(beat) if has_announced else beat
            has_announced = True
            next_event = now + (_EVENT_SECONDS if is_auto else 0)
        elif pace.kind in {"comment", "auto"}:
            yield Keepalive(writer.beat(note, "comment"))

        await asyncio.wait([task], timeout=interval)

    result = task.result()
    if not result.ok:
        yield writer.error(_error_event(context, result))
        return

    # A native keepalive has told the runner an id before the provider's was known.
    if has_announced and result.kept is not None:
        await running.save_under(own.id, result.kept)
    events = map(writer.write, dialect.tell(result.body, context.view))
    for batch in _batches(filter(None, events)):
        yield batch


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
