"""One mediated turn: offered, driven, recorded, and delivered as JSON or as a stream that is kept alive.

Rules (spec/mediation.md section 6). A stream's headers go out when the turn goes on after a good first response, or when
``keepalive_first`` is over; until then an error keeps its own status, afterwards it is an event of the stream. Whatever
happens, exactly one line of history is written for the turn, with what ran.
"""

from __future__ import annotations

import asyncio
import re
import time
from collections.abc import AsyncGenerator, AsyncIterator, Callable
from dataclasses import dataclass, replace

from claw_contract.history import UsageRecord
from claw_contract.redaction.redactor import Redactor
from claw_mediate.agents.directory import Agent
from claw_mediate.core.continuity import EMPTY_TEXT_KEY
from claw_mediate.core.error_bodies import build_error_body
from claw_mediate.core.http import GONE, RETRY_AFTER, STOPPING, Request, RunnerResponse, respond
from claw_mediate.core.tool_catalog import ToolCatalog
from claw_mediate.core.turn import turn
from claw_mediate.core.types import Deliver, Outcome, Refuse, add_usage, runner_usage
from claw_mediate.dialects.base import Dialect, RequestVariants, RunnerRequest, StreamOpening
from claw_mediate.providers.routing import Route
from claw_mediate.settings import Pace
from claw_mediate.turns.checkpoint import TurnCheckpoint
from claw_mediate.turns.continuity import Continuing
from claw_mediate.turns.driver import TurnDriver, drive
from claw_mediate.turns.recorder import Recorder
from claw_state.continuity import Anchor
from claw_state.journal import Attempt, StoredResponse

_MEDIA_TYPE = re.compile(r"[\w.+-]{1,64}/[\w.+-]{1,64}", re.ASCII)
_SECONDS = re.compile(r"[0-9]{1,9}", re.ASCII)


_STREAM = [("content-type", "text/event-stream"), ("cache-control", "no-cache"), ("x-accel-buffering", "no")]

type Left = Callable[[], None]
"""Told when a runner wants no more of a stream."""


@dataclass(frozen=True, slots=True)
class TurnContext:
    """All that is known of a turn before it begins."""

    turn_id: str
    agent: Agent
    request: Request
    view: RunnerRequest
    dialect: Dialect
    catalog: ToolCatalog
    offered: RequestVariants
    route: Route
    redactor: Redactor
    session: str = ""
    """The conversation, where the runner names it."""
    asked: str = ""
    """What the request is known by, when it comes again."""
    attempt: Attempt = "first"

    @property
    def provider(self) -> str:
        """Who answers; of several candidates the one that was asked last."""
        return self.route.candidate.provider.name

    @property
    def model(self) -> str:
        return self.route.candidate.model


@dataclass(frozen=True, slots=True)
class TurnResult:
    """How a turn ended for its runner."""

    status: int
    body: bytes
    content_type: str
    ok: bool
    code: str | None = None
    """Of an error: Anthropic's shape has no place for it, the log has."""
    retry_after: str = ""


class TurnRun:
    """A turn that is under way."""

    def __init__(self, job: TurnContext, world: TurnDriver, recorder: Recorder, continuing: Continuing) -> None:
        self._job = job
        self._world = world
        self._recorder = recorder
        self._continuing = continuing
        self._started = time.monotonic()
        self._settled = 0
        """Replies that are paid for, by earlier attempts or by this one."""

    async def play(self, tape: TurnCheckpoint) -> TurnResult:
        """To the end. Cancelled when the runner leaves: then what ran is recorded all the same."""
        self._settled = settled = await tape.settled()
        try:
            ended = await self._play()
        except asyncio.CancelledError:
            await tape.ended(None)
            raise
        if not ended.ok and self._settled > settled:
            await tape.settles(self._settled)
        await tape.ended(StoredResponse(ended.status, ended.content_type, ended.body) if ended.ok else None)
        return ended

    async def _play(self) -> TurnResult:
        outcome: Outcome | None = None
        try:
            outcome = await drive(turn(self._job.agent.limits, self._world.now()), self._world)
            ended = await self._end(outcome)
        except asyncio.CancelledError:
            if self._world.stopped:
                outcome = Refuse(503, *STOPPING, self._world.cut_short())
                ended = replace(await self._end(outcome), retry_after=RETRY_AFTER)
                self._record(outcome, ended)
                return ended
            left = Refuse(GONE, "runner_left", "the runner closed its connection", self._world.cut_short())
            self._record(left, TurnResult(GONE, b"", "application/json", ok=False, code=left.code))
            await self._remember_unanswered(left)
            raise
        except Exception as error:  # noqa: BLE001 - a fault of ours: recorded with what ran, and told in the stream's own form
            self._recorder.fault(self._job, error)
            outcome = Refuse(502, "internal_error", "the proxy failed in this turn", self._world.cut_short())
            ended = await self._end(outcome)
        self._record(outcome, ended)
        return ended

    async def _end(self, outcome: Outcome) -> TurnResult:
        job = self._job
        if isinstance(outcome, Deliver):
            await self._remember(outcome)
            if job.view.uses_functions and len(outcome.response.calls) > 1 and not outcome.terminal:
                self._recorder.intervened(job, "legacy_function_calls_serialized")
            body = job.dialect.write_response(
                outcome.response, job.view, runner_usage(outcome.usage), terminal=outcome.terminal
            )
            body = job.redactor.document(body)
            return TurnResult(200, body, "application/json", ok=True)
        await self._remember_unanswered(outcome)
        failure = outcome.failure
        later = _sound(_SECONDS, failure.retry_after) if failure is not None else ""
        if failure is not None and failure.body:
            body = job.redactor.document(failure.body)
            kind = _sound(_MEDIA_TYPE, failure.content_type.partition(";")[0]) or "application/octet-stream"
            return TurnResult(failure.status, body, kind, ok=False, code=outcome.code, retry_after=later)
        body = job.redactor.document(build_error_body(job.request.path, outcome.status, outcome.code, outcome.message))
        return TurnResult(outcome.status, body, "application/json", ok=False, code=outcome.code, retry_after=later)

    async def _remember(self, outcome: Deliver) -> None:
        """Hidden rounds are found again by the anchor of the message that they led to."""
        job = self._job
        hidden = job.dialect.write_hidden_rounds(outcome.rounds, replayed=True)
        anchor = job.dialect.response_anchor(outcome.response, job.view, terminal=outcome.terminal)
        await self._continuing.remember(job, anchor, hidden)

    async def _remember_unanswered(self, outcome: Refuse) -> None:
        """A runner may go on behind a turn that failed: what was done in it is looked for where its answer would stand."""
        job = self._job
        hidden = job.dialect.write_hidden_rounds(outcome.rounds, replayed=True)
        await self._continuing.remember(job, Anchor(EMPTY_TEXT_KEY, job.view.evidence.before), hidden)

    def _record(self, outcome: Outcome, ended: TurnResult) -> None:
        job = self._job
        latency_ms = round((time.monotonic() - self._started) * 1000)
        new = outcome.usage[self._settled :]
        calls, self._settled = len(new), self._settled + len(new)
        try:
            usage = self._recorder.used(job, add_usage(new), calls, ended.status)
        except Exception as error:  # noqa: BLE001 - a provider's odd numbers cost neither the answer nor the line of history
            self._recorder.fault(job, error)
            usage = UsageRecord(total_rounds=calls)
        self._recorder.turn(job, ended, outcome.rounds, usage, latency_ms)


async def json_response(play: asyncio.Task[TurnResult]) -> RunnerResponse:
    """The answer of a turn that was not asked to stream. Others may wait for it too."""
    await asyncio.wait([play])
    ended = play.result()
    return respond(ended.status, ended.body, ended.content_type, ended.retry_after)


async def sse_response(
    job: TurnContext, world: TurnDriver, play: asyncio.Task[TurnResult], pace: Pace, left: Left
) -> RunnerResponse:
    """The answer of a turn that was asked to stream: its error while the status is open, else its stream."""
    goes_on = asyncio.ensure_future(world.progress.goes_on.wait())
    try:
        await asyncio.wait([play, goes_on], timeout=pace.first, return_when=asyncio.FIRST_COMPLETED)
    finally:
        goes_on.cancel()
    world.progress.goes_on.set()
    if play.done() and not (ended := play.result()).ok:
        return respond(ended.status, ended.body, ended.content_type, ended.retry_after)
    return RunnerResponse(200, _STREAM, ClientStream(_events(job, world, play, pace), left), streaming=True)


class ClientStream:
    """A stream with its runner, which leaves it once. A generator that never began has no last lines that could tell of it."""

    def __init__(self, chunks: AsyncGenerator[bytes], left: Left) -> None:
        self._chunks = chunks
        self._left: Left | None = left

    def __aiter__(self) -> AsyncIterator[bytes]:
        return self

    async def __anext__(self) -> bytes:
        try:
            return await anext(self._chunks)
        except BaseException:  # its end, too
            self._leave()
            raise

    async def aclose(self) -> None:
        self._leave()
        await self._chunks.aclose()

    def _leave(self) -> None:
        left, self._left = self._left, None
        if left is not None:
            left()


async def _events(
    job: TurnContext, world: TurnDriver, play: asyncio.Task[TurnResult], pace: Pace
) -> AsyncGenerator[bytes]:
    dialect = job.dialect
    opening = StreamOpening("chatcmpl" + job.turn_id.removeprefix("turn_"), job.view.model, int(time.time()))
    opened = False
    while not play.done():
        if pace.kind != "off":
            opened = pace.kind == "native"
            yield dialect.keepalive(world.progress.note, pace.kind, opening)
        await asyncio.wait([play], timeout=None if pace.kind == "off" else pace.every)
    ended = play.result()
    if ended.ok:
        for event in dialect.stream(ended.body, job.view, opening if opened else None):
            yield event
    else:
        yield dialect.stream_error(_error_event(job, ended))


def stored_response(view: RunnerRequest, dialect: Dialect, answer: StoredResponse) -> RunnerResponse:
    """An answer that a turn ended with, once more."""
    if not view.stream:
        return respond(answer.status, answer.body, answer.content_type)

    async def events() -> AsyncIterator[bytes]:
        for event in dialect.stream(answer.body, view, None):
            yield event

    return RunnerResponse(200, _STREAM, events(), streaming=True)


def _sound(pattern: re.Pattern[str], header: str) -> str:
    """A header's value where it is no more than what it should be; a provider can say anything in it."""
    return header.strip() if pattern.fullmatch(header.strip()) else ""


def _error_event(job: TurnContext, ended: TurnResult) -> bytes:
    """An error in one line of JSON in the dialect's shape, whatever the provider's body is."""
    code = f"provider_http_{ended.status}"
    own = job.dialect.error_body(ended.body)
    return own or build_error_body(
        job.request.path, ended.status, code, f"the provider answered with status {ended.status}"
    )
