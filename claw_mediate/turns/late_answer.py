"""The answer to a request whose turn is not found at once.

The same request may be under way in another process, so that its turn is waited for. Of an agent
whose streams are live, the runner sees meanwhile (docs/spec/live.md section 9):

    until the turn is found, or ``Pace.first`` is over    nothing: an error keeps its own status
    from then on, until it is found                       headers and keepalives
    it is resumed or joined here                          what it shows, from its beginning
    it has ended with an answer                           the answer
    the request is refused                                an error event

There is one stream, of one writer, so that the id that a keepalive has told is the answer's.
"""

import asyncio
import dataclasses
import time
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import aclosing
from typing import NamedTuple

import msgspec

from claw_mediate.core.http import (
    STOPPING,
    NoteTurn,
    OnDelivered,
    RunnerResponse,
    build_error_body,
    refuse_stopping,
)
from claw_mediate.dialects.streams import OwnOpening, StreamWriter
from claw_mediate.providers.routing import new_turn_id
from claw_mediate.settings import Pace
from claw_mediate.turns.answer_reader import write_beat
from claw_mediate.turns.context import DialectRequest
from claw_mediate.turns.idempotency import CompletedTurn
from claw_mediate.turns.response import (
    STREAM_HEADERS,
    Beats,
    ClientStream,
    attend,
    stored_events,
    stored_response,
    turn_events,
)
from claw_mediate.turns.run import RunningTurn

_NOTE = "claw waiting=turn"


class StoredAnswer(NamedTuple):
    """The answer that an earlier turn ended with."""

    turn: CompletedTurn
    on_delivered: OnDelivered
    save_id: Callable[[str, str], Awaitable[None]]
    """Saves what is kept of the answer under the id that a runner was told, too."""


type AnswerSource = RunningTurn | StoredAnswer | RunnerResponse
"""The turn or the response that answers a request. In a running turn, its runner is counted."""


async def respond_from(
    incoming: DialectRequest, source: AnswerSource, held: str, pace: Pace
) -> RunnerResponse:
    """Return an answer of which nothing was sent. ``held``: what the runner has of it already."""
    match source:
        case RunningTurn() as running:
            return await attend(running, pace, held)
        case StoredAnswer(turn, on_delivered):
            view, dialect = incoming.view, incoming.dialect
            response = stored_response(view, dialect, turn.response, held)
            return msgspec.structs.replace(
                response, on_delivered=on_delivered, answer_of=turn.turn_id
            )
        case RunnerResponse() as response:
            return response


type Search = asyncio.Task[tuple[AnswerSource, str]]
"""Finds the answer to a request, and what its runner has of it already."""


class LateAnswer:
    """The stream of an answer that is searched for."""

    def __init__(self, incoming: DialectRequest, pace: Pace) -> None:
        self._incoming = incoming
        self._pace = pace
        self._note_turn: NoteTurn | None = None

    async def respond(self, search: Search) -> RunnerResponse:
        """Return the answer as soon as it is found, or as a stream that waits for it.

        Cancelled when the runner leaves; then the search ends, too.
        """
        until = time.monotonic() + self._pace.first
        try:
            await asyncio.wait([search], timeout=self._pace.first)
        except asyncio.CancelledError:
            _leave(search)
            await asyncio.wait([search])
            raise

        if search.cancelled():
            return refuse_stopping(self._incoming.request.path)
        if search.done():
            pace = dataclasses.replace(self._pace, first=max(until - time.monotonic(), 0.0))
            source, held = search.result()
            return await respond_from(self._incoming, source, held, pace)

        events = ClientStream(self._events(search), lambda: _leave(search))
        return RunnerResponse(
            200, [*STREAM_HEADERS], events, streaming=True, when_found=self._when_found
        )

    def _when_found(self, note_turn: NoteTurn) -> None:
        self._note_turn = note_turn

    async def _events(self, search: Search) -> AsyncGenerator[bytes]:
        """Yield keepalives until the answer is found, and then the answer."""
        writer = _new_writer(self._incoming)
        beats = Beats(self._pace, time.monotonic())
        while not search.done():
            now = time.monotonic()
            kind = beats.take(now)
            if kind is not None:
                yield write_beat(writer, _NOTE, kind)
            else:
                await asyncio.wait([search], timeout=beats.seconds_left(now))

        async with aclosing(self._found_events(search, writer)) as events:
            async for chunk in events:
                yield chunk

    async def _found_events(self, search: Search, writer: StreamWriter) -> AsyncGenerator[bytes]:
        """Yield the answer, behind what was sent while it was searched for."""
        if search.cancelled():
            path = self._incoming.request.path
            yield writer.error(build_error_body(path, 503, *STOPPING))
            return

        source, held = search.result()
        match source:
            case RunningTurn():
                self._tell_turn(source.context.turn_id, source.checkpoint.mark_delivered)
                source.driver.progress.committed.set()
                assert source.stream is not None  # An equal request, so that it has one
                events = turn_events(source, source.stream, self._pace, held, writer)
                async with aclosing(events):
                    async for chunk in events:
                        yield chunk
            case StoredAnswer(turn, on_delivered, save_id):
                self._tell_turn(turn.turn_id, on_delivered)
                if writer.id:
                    await save_id(_id_of(turn.response.body), writer.id)
                view, dialect = self._incoming.view, self._incoming.dialect
                for chunk in stored_events(view, dialect, turn.response, writer, held):
                    yield chunk
            case RunnerResponse(chunks=chunks):
                body = b"".join([chunk async for chunk in chunks])
                yield writer.error(self._incoming.dialect.error_body(body) or body)

    def _tell_turn(self, turn_id: str, on_delivered: OnDelivered) -> None:
        if self._note_turn is not None:
            self._note_turn(turn_id, on_delivered)


def _new_writer(incoming: DialectRequest) -> StreamWriter:
    """Return the writer of a stream, whose id is the proxy's own until it has another."""
    own_id = incoming.dialect.id_prefix + new_turn_id().removeprefix("turn_")
    own = OwnOpening(own_id, incoming.view.model, int(time.time()))
    return incoming.dialect.writer(incoming.view, own)


def _leave(search: Search) -> None:
    """End a search whose runner has left; leave what it has found."""
    if not search.done():
        search.cancel()
    elif not search.cancelled() and search.exception() is None:
        source, _ = search.result()
        if isinstance(source, RunningTurn):
            source.disconnect()


class _BodyWithId(msgspec.Struct):
    id: object = None


def _id_of(body: bytes) -> str:
    """Return the id of an answer; "" if the provider gave it none."""
    own = msgspec.json.decode(body, type=_BodyWithId).id
    return own if isinstance(own, str) else ""
